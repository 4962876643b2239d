"""Send the points of a training to trackio, MLflow or Weights & Biases, in addition to TensorBoard's files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from dragoman import console, serialization, storage
from dragoman.settings import Config, values

NOTE = "tracker.json"  # of a run: its id in the tracker, and the last step sent of each curve
PROJECTS = {"trackio": "TRACKIO_PROJECT", "mlflow": "MLFLOW_EXPERIMENT_NAME", "wandb": "WANDB_PROJECT"}


def _open(name: str, config: Config, known: str | None) -> tuple[str, Callable[..., Any], Callable[[], Any]]:
    """Start a run, or continue the known one: its id, a function that logs points at a step, and one that ends it."""
    project = os.environ.setdefault(PROJECTS[name], "dragoman")
    library: Any = import_module(name)
    if name == "mlflow":
        run = library.start_run(known, run_name=None if known else config.run.name)
        if not known:
            library.log_params(values(config))
        return run.info.run_id, library.log_metrics, library.end_run
    trackio = {"embed": False, "resume": "must" if known else "never"}
    options = {"id": known, "resume": "allow"} if name == "wandb" else trackio
    run = library.init(project=project, name=config.run.name, config=values(config), **options)
    if name == "wandb":  # its own count of steps would refuse a step that it has seen before a resume
        run.define_metric("*", step_metric="step")
        return run.id, lambda points, step: run.log({**points, "step": step}), run.finish
    return run.id, run.log, run.finish


class Tracker:
    """A run in a tracker. If it fails, there is one warning, and the training continues without it."""

    def __init__(self, run: Path, config: Config, is_new: bool) -> None:
        self._name, self._file, self._failed = config.training.tracker, run / NOTE, False
        self._step, self._points = 0, {}  # not sent yet
        with self._watched():
            saved = {} if is_new or not self._file.exists() else serialization.load_json(self._file.read_bytes())
            note = saved if saved.get("tracker") == self._name else {}
            self._sent: dict[str, int] = dict(note.get("sent", {}))
            self._id, self._log, self._end = _open(self._name, config, note.get("id"))

    def add(self, tag: str, value: float, step: int) -> None:
        """Add a point, unless it was sent before the training was killed and resumed. Send those of the last step."""
        if not self._failed and step > self._sent.get(tag, -1):
            if step != self._step:
                self.send()
            self._step, self._points[tag] = step, value

    def send(self, end: bool = False) -> None:
        """Send the points and note which; `end` also ends the run there."""
        with self._watched():
            if self._points:
                self._log(self._points, step=self._step)
                self._sent |= dict.fromkeys(self._points, self._step)
                note = {"tracker": self._name, "id": self._id, "sent": self._sent}
                storage.replace_durably(self._file, serialization.json_bytes(note))
            self._points = {}
            if end:
                self._end()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if not self._failed:
                console.warn(
                    f"warning: training.tracker {self._name} gets no more points, because it failed: {error!r}"
                )
            self._failed = True
