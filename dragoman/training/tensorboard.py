"""Write to TensorBoard: open the log of a run, tables of text, pictures of attention.

Points of curves are plain `writer.add_scalar` calls where the numbers are computed.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from dragoman import config_file, reading, settings, storage
from dragoman.evaluation.curves import HEAD, METRICS
from dragoman.settings import Config
from dragoman.training import layer_statistics

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Board(SummaryWriter):
    """A log for TensorBoard. The points of its curves are also in the run's metrics.csv, for every other program."""

    def __init__(self, run: Path, purge_step: int | None = None) -> None:
        super().__init__(str(_folder(run)), purge_step=purge_step)
        self._points = (run / METRICS).open("a", encoding="utf-8", newline="\n")

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:  # type: ignore[override]
        """Add a point to a curve."""
        super().add_scalar(tag, scalar_value, global_step)
        self._points.write(f"{global_step},{tag},{scalar_value:.7g}\n")

    def flush(self) -> None:
        """Write everything to the disk."""
        super().flush()
        self._points.flush()
        os.fsync(self._points.fileno())

    def close(self) -> None:
        """Write everything to the disk and close the log."""
        super().close()
        self._points.close()


@contextmanager
def reopened(run: Path) -> Iterator[Board]:
    """Context manager: add to the log of a finished run."""
    writer = Board(run)
    try:
        yield writer
    finally:
        writer.close()


def open_board(run: Path, step: int, config: Config) -> Board:
    """Open the log of a run after a step (0: from the start), with its settings and charts.

    A killed run may have logged points beyond its last checkpoint. They are purged and made again, so that no point is
    missing and none appears twice.
    """
    # If the disk fails, the writer's thread fails, too, but the next call that adds a point reports it: once is enough.
    threading.excepthook = lambda failure: issubclass(failure.exc_type, OSError) or threading.__excepthook__(failure)
    _cut_metrics(run / METRICS, step)
    writer = Board(run, purge_step=step + 1 if step else 0)
    if step == 0:
        # What differs from the default run; a table of a hundred equal columns compares nothing.
        changed = {change.key: str(change.new) for change in settings.changes(Config(), config)}
        values = {key: value for key, value in changed.items() if not key.startswith("run.")}
        values |= {"run.seed": str(config.run.seed)}
        # add_hparams would create a second run; these three records put the table into this one.
        metric = "score/perplexity_validation" if config.is_language_model else "score/bleu"
        for record in hparams(values, {metric: None}):
            writer.file_writer.add_summary(record)  # type: ignore[union-attr]
        writer.add_text("settings", indented(config_file.dump(config)), 0)
        writer.add_custom_scalars(
            {
                "overview": {
                    "loss": ["Multiline", ["loss/train", "loss/validation"]],
                    "perplexity": ["Multiline", ["score/perplexity_train", "score/perplexity_validation"]],
                    "scores": ["Multiline", ["score/bleu", "score/chrf"]],
                },
                **layer_statistics.charts(),
            }
        )
    return writer


def _cut_metrics(path: Path, step: int) -> None:
    """Remove the points after a step, or all of them if it is 0, and a line that was not finished."""
    kept = [HEAD]
    if step and path.exists():
        points = reading.read(path, reading.TABLE).decode().split("\n")[1:-1]
        kept += [f"{line}\n" for line in points if int(line.partition(",")[0]) <= step]
    path.parent.mkdir(parents=True, exist_ok=True)
    storage.replace_durably(path, "".join(kept).encode())


def _folder(run: Path) -> Path:
    """Where a run logs: in its folder, whose name TensorBoard shows; a run of version 0.1, in a subfolder."""
    old = run / "tensorboard"
    return old if old.exists() else run


def indented(text: str) -> str:
    """Text as a block of code, for a viewer that renders Markdown."""
    return "".join(f"    {line}\n" for line in text.splitlines())


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    # The texts may hold anything, but must not end a cell or become markup.
    lines = [heads, ["---"] * len(heads), *([_plain(text) for text in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _plain(text: str) -> str:
    return "".join(f"&#{ord(letter)};" if letter in "|<>&*_`[]\\~#" else letter for letter in text)


def attention_figure(weights: torch.Tensor, source: Sequence[str], target: Sequence[str]) -> Figure:
    """Draw where each target token attends in the source: one map per layer of weights (layers, T, S)."""
    import matplotlib as mpl

    mpl.use("Agg")  # without a window
    warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # fonts lack some scripts
    from matplotlib import pyplot as plt

    layers = len(weights)
    size = (1.5 + layers * (0.6 + 0.26 * len(source)), 1.5 + 0.26 * len(target))
    with mpl.rc_context({"text.parse_math": False}):  # tokens may contain dollar signs
        figure, axes = plt.subplots(1, layers, figsize=size, squeeze=False, layout="constrained", sharey=True)
        for i, axis in enumerate(axes[0]):
            axis.imshow(weights[i].float().cpu().numpy(), vmin=0, vmax=1, cmap="Blues", aspect="equal")
            axis.set_title(f"layer {i + 1}", fontsize=9)
            axis.set_xticks(range(len(source)), source, rotation=90, fontsize=8)
            axis.set_yticks(range(len(target)), target, fontsize=8)
        axes[0][0].set_ylabel("next token")
        figure.supxlabel("source token looked at", fontsize=9)
        figure.draw_without_rendering()  # the layout is final at the second drawing, which is the writer's
    return figure
