"""Tests of what is written to TensorBoard."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData  # pyright: ignore

from dragoman.command_line import override
from dragoman.settings import Config
from dragoman.training.tensorboard import attention_figure, open_board, table


def test_a_sample_cannot_break_its_table() -> None:
    """Guards the page: a bar in a sentence must not end a cell, and no text may become markup."""
    row = table("abc", [("a | b", "<script>alert(1)</script>", "*star* `tick` ~~x~~")]).splitlines()[2]
    assert row.count("|") == 4
    assert "<" not in row
    assert "*" not in row


@pytest.mark.parametrize("layers", [1, 3])
def test_attention_is_drawn_for_every_layer(layers: int) -> None:
    """Guards the labels: one per token, whatever it contains."""
    weights = torch.rand(layers, 2, 3).softmax(-1)
    figure = attention_figure(weights, ["$x^{$", "_", "[EOS]"], ["è", "[EOS]"])
    assert len(figure.axes) == layers
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["è", "[EOS]"]
    figure.canvas.draw()


def test_a_picture_does_not_affect_others() -> None:
    """Guards tokens with dollar signs, which are not formulas here, and later pictures, where they may be."""
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    figure = attention_figure(torch.rand(1, 2, 2), ["$100", "$_{"], ["\\frac", "$$"])
    assert "$_{" in [label.get_text() for label in figure.axes[0].get_xticklabels()]
    figure.canvas.draw()  # as the writer does later
    assert {key: value for key, value in mpl.rcParams.items() if key != "backend"} == {
        key: value for key, value in before.items() if key != "backend"
    }


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


def test_the_table_of_runs_shows_what_differs(tmp_path: Path) -> None:
    """Guards the comparison of runs against a hundred columns with the same value in each row."""
    open_board(tmp_path, 0, override(Config(), ["--model.d_model", "64", "--training.lr", "0.001"])).close()
    events = EventAccumulator(str(tmp_path)).Reload()
    content = events.PluginTagToContent("hparams")["_hparams_/session_start_info"]
    shown = HParamsPluginData.FromString(content).session_start_info.hparams
    assert {key: value.string_value for key, value in shown.items()} == {
        "model.d_model": "64",
        "training.lr": "0.001",
        "run.seed": "1",
    }
