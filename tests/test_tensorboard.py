"""Tests of what is written to TensorBoard."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugin_util import markdown_to_safe_html

from conftest import draw_attention
from dragoman.settings import Config
from dragoman.training.tensorboard import indented, open_board


def test_a_sample_stays_plain_text() -> None:
    """Guards the page: no text may become markup."""
    texts = ["a | b", "<script>alert(1)</script>", "*star* `tick` [x](y) 1. \\_", "one\n\n- two", "# three"]
    page = markdown_to_safe_html(indented("\n".join(texts)))
    assert set(re.findall(r"</?(\w+)", page)) == {"pre", "code"}
    for text in texts:
        assert text in html.unescape(page)


@pytest.mark.parametrize("layers", [1, 3])
def test_attention_is_drawn_for_every_layer(layers: int) -> None:
    """Guards the labels: one per token, whatever it contains."""
    weights = torch.rand(layers, 2, 3).softmax(-1)
    figure = draw_attention(weights, ["$x^{$", "_", "[EOS]"], ["è", "[EOS]"])
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
