"""Write to TensorBoard: open the log of a run, draw attention.

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

from dragoman import config_file, reading, storage
from dragoman.evaluation.curves import HEAD, METRICS
from dragoman.settings import Config
from dragoman.training.trackers import Tracker

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# The width of an attention picture. TensorBoard shows pictures 350 pixels wide, and shrinks larger ones.
INCHES = 3.5
DOTS_PER_INCH = 100


class Board(SummaryWriter):
    """A log for TensorBoard. The points of its curves are also in the run's metrics.csv, for every other program."""

    def __init__(self, run: Path, config: Config, purge_step: int | None = None) -> None:
        super().__init__(str(run), purge_step=purge_step)
        self._tracker = None if config.training.tracker == "tensorboard" else Tracker(run, config, purge_step == 0)
        self._points = (run / METRICS).open("a", encoding="utf-8", newline="\n")

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:  # type: ignore[override]
        """Add a point to a curve."""
        super().add_scalar(tag, scalar_value, global_step)
        self._points.write(f"{global_step},{tag},{scalar_value:.7g}\n")
        if self._tracker:
            self._tracker.add(tag, scalar_value, global_step)

    def flush(self) -> None:
        """Write everything to the disk."""
        super().flush()
        self._points.flush()
        os.fsync(self._points.fileno())

    def close(self) -> None:
        """Write everything to the disk and close the log."""
        super().close()
        self._points.close()
        if self._tracker:
            self._tracker.send(end=True)


@contextmanager
def reopened(run: Path, config: Config) -> Iterator[Board]:
    """Context manager: add to the log of a finished run."""
    writer = Board(run, config)
    try:
        yield writer
    finally:
        writer.close()


def open_board(run: Path, step: int, config: Config) -> Board:
    """Open the log of a run after a step (0: from the start), with its settings.

    A killed run may have logged points beyond its last checkpoint. They are purged and made again, so that no point is
    missing and none appears twice.
    """
    # If the disk fails, silence the writer's thread: the next add_scalar raises the same error.
    threading.excepthook = lambda failure: issubclass(failure.exc_type, OSError) or threading.__excepthook__(failure)
    _cut_metrics(run / METRICS, step)
    writer = Board(run, config, purge_step=step + 1 if step else 0)
    if step == 0:
        writer.add_text("settings", indented(config_file.dump(config)), 0)
    return writer


def _cut_metrics(path: Path, step: int) -> None:
    """Remove the points after a step, or all of them if it is 0, and a line that was not finished."""
    kept = [HEAD]
    if step and path.exists():
        points = reading.read(path, reading.TABLE).decode().split("\n")[1:-1]
        kept += [f"{line}\n" for line in points if int(line.partition(",")[0]) <= step]
    path.parent.mkdir(parents=True, exist_ok=True)
    storage.replace_durably(path, "".join(kept).encode())


def indented(text: str) -> str:
    """Text as a block of code, for a viewer that renders Markdown."""
    return "".join(f"    {line}\n" for line in text.splitlines())


def attention_figure(weights: torch.Tensor, source: Sequence[str], target: Sequence[str]) -> Figure:
    """Draw where each target token attends in the source: one map per layer of weights (layers, T, S)."""
    import matplotlib as mpl

    mpl.use("Agg")  # without a window
    warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # fonts lack some scripts
    from matplotlib import pyplot as plt

    layers = len(weights)
    cell = max(0.16, min(0.4, (INCHES - 1.2) / len(source)))  # inches; a label needs 0.16
    size = (max(INCHES, 1.2 + cell * len(source)), 1.2 + layers * (0.35 + cell * len(target)))
    with mpl.rc_context({"text.parse_math": False}):  # tokens may contain dollar signs
        figure, axes = plt.subplots(
            layers, 1, figsize=size, dpi=DOTS_PER_INCH, squeeze=False, layout="compressed", sharex=True
        )
        for i, axis in enumerate(axes[:, 0]):
            axis.imshow(weights[i].float().cpu().numpy(), vmin=0, vmax=1, cmap="Blues", aspect="equal")
            axis.set_title(f"layer {i + 1}", fontsize=10)
            axis.set_xticks(range(len(source)), source, rotation=90, fontsize=10)
            axis.set_yticks(range(len(target)), target, fontsize=10)
        figure.supylabel("next token", fontsize=10)
        figure.supxlabel("source token looked at", fontsize=10)
        figure.draw_without_rendering()  # the layout is final at the second drawing, which is the writer's
    return figure
