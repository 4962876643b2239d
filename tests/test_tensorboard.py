"""Tests of what is written to TensorBoard."""

from __future__ import annotations

import html
import re
from contextlib import closing
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.plugin_util import markdown_to_safe_html
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams.backend_context import Context
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData  # pyright: ignore

from dragoman.command_line import override
from dragoman.settings import SETTINGS, Config
from dragoman.training.tensorboard import attention_figure, lists, open_board


def test_a_sample_stays_plain_text() -> None:
    """No text becomes markup or a separate line; a table would break words to fit."""
    texts = ["a | b", "<script>alert(1)</script>", "*star* `tick` [x](y) 1. \\_", "one\n\n- two", "# three"]
    page = markdown_to_safe_html(lists([[("name", text) for text in texts]] * 2))
    assert set(re.findall(r"</?(\w+)", page)) == {"p", "strong", "ul", "li"}
    for text in texts:
        assert text in html.unescape(page)


@pytest.mark.parametrize("layers", [1, 3])
def test_attention_is_drawn_for_every_layer(layers: int) -> None:
    """Guards the labels: one per token, whatever it contains."""
    weights = torch.rand(layers, 2, 3).softmax(-1)
    figure = attention_figure(weights, ["$x^{$", "_", "[EOS]"], ["è", "[EOS]"])
    assert len(figure.axes) == layers
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["è", "[EOS]"]
    figure.canvas.draw()


def test_a_reopened_log_has_one_value_per_step(tmp_path: Path) -> None:
    """Guards the curves of a killed run: points after its checkpoint are made again, not doubled."""
    first = open_board(tmp_path, 0, Config())
    for step in range(1, 9):
        first.add_scalar("x", step, step)
    first.close()
    second = open_board(tmp_path, 5, Config())
    for step in range(6, 11):
        second.add_scalar("x", -step, step)
    second.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [(e.step, e.value) for e in events.Scalars("x")] == [(s, s if s < 6 else -s) for s in range(1, 11)]
    assert "_hparams_/experiment" in str(events.Tags()) or events.PluginTagToContent("hparams")


def test_the_table_of_runs_has_no_empty_cells(tmp_path: Path) -> None:
    """Guards the comparison of runs: each has a value for every setting, and those that differ come first."""
    changes = {"usual": [], "other": ["--model.d_model", "64", "--training.max_steps", "60"]}
    for name, words in changes.items():
        with closing(open_board(tmp_path / name, 0, override(Config(), words))) as writer:
            writer.add_scalar("score/bleu", 10.0, 60)
    multiplexer = EventMultiplexer().AddRunsFromDirectory(str(tmp_path)).Reload()
    provider = MultiplexerDataProvider(multiplexer, str(tmp_path))
    context = Context(TBContext(data_provider=provider))
    tags = context.hparams_metadata(RequestContext(), "")
    shown = context.experiment_from_metadata(RequestContext(), "", True, tags, [])
    columns = [info.name for info in shown.hparam_infos]
    assert columns[:2] == ["model.d_model", "training.max_steps"]
    assert set(columns) == set(SETTINGS) - {"run.name", "run.dir"}
    assert "score/bleu" in {info.name.tag for info in shown.metric_infos}
    for name in changes:
        content = tags[name]["_hparams_/session_start_info"]
        row = HParamsPluginData.FromString(content).session_start_info.hparams
        assert {key for key in columns if row[key].string_value} == set(columns)
