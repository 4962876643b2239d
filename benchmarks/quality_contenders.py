"""What the contenders of quality.py share, and the contender `ours`."""

from __future__ import annotations

import argparse
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from common import ROOT, Texts, fail, last_progress, train_command

from dragoman.settings import Config
from dragoman.translation.translator import Translator

SPLITS = ("validation", "test")
BEAMS = (1, 5)


@dataclass(frozen=True)
class Outcome:
    """The result of a contender."""

    minutes: float  # of its training loop
    whole: float  # minutes from raw text to a trained model
    passes: int
    parameters: int
    translations: dict[str, list[str]]  # by split and beam: "test 5"


def languages(config: Config) -> tuple[str, str]:
    """Return the suffixes of the text files."""
    return str(config.data.source_lang), config.data.target_lang


def data_settings(options: argparse.Namespace, config: Config) -> list[str]:
    """Return the settings of this program that select the shared texts."""
    source, target = languages(config)
    splits = [f"--data.{split}={options.work / 'text' / split}" for split in ("train", *SPLITS)]
    return [*splits, f"--data.source_lang={source}", f"--data.target_lang={target}"]


def output_lines(
    command: Sequence[str | Path], folder: Path, place: Path, stop_after: tuple[str, float] | None = None
) -> Iterator[tuple[str, float]]:
    """Run a command in `place` and yield each line of its output with the time; also log the lines beside the folder.

    `stop_after=(text, seconds)` sends Ctrl-C that many seconds after the first line that contains the text.
    """
    timer = None
    with (
        Path(f"{folder}.log").open("a", encoding="utf-8") as log,
        subprocess.Popen(
            command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            preexec_fn=_restore_interrupts,
        ) as process,
    ):  # fmt: skip
        assert process.stdout
        try:
            for line in process.stdout:
                if stop_after and timer is None and stop_after[0] in line:
                    timer = threading.Timer(stop_after[1], process.send_signal, [signal.SIGINT])
                    timer.start()
                log.write(line)
                log.flush()
                yield line, time.perf_counter()
        except BaseException:
            process.kill()
            raise
        finally:
            if timer:
                timer.cancel()
    if process.returncode:
        fail(f"{' '.join(map(str, command[:3]))} ended with {process.returncode}: see {log.name}")


def _restore_interrupts() -> None:
    """Undo that a program started in the background, and everything it starts, ignores Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def ours(options: argparse.Namespace, config: Config, folder: Path, texts: Texts) -> Outcome:
    """Run `train.py` like a user, then translate."""
    settings = [f"--run.seed={options.seed}", f"--training.device={options.device}"]
    settings += [f"--training.max_minutes={options.minutes}", "--training.max_epochs=null", "--training.max_steps=null"]
    settings += options.settings + ["--data.config=null"] * bool(config.data.config) + data_settings(options, config)
    command = train_command(folder, "run", options.config, settings)
    started = time.perf_counter()
    ended = next((moment for line, moment in output_lines(command, folder, ROOT) if line.startswith("finished:")), None)
    if ended is None:
        fail(f"train.py did not finish: see {folder}.log")
    progress = last_progress(folder / "run")
    translator = Translator(folder / "run", options.device)
    found = {
        f"{split} {beam}": translator.with_decoding(beam_size=beam).translate(texts[split][0])
        for split in SPLITS
        for beam in BEAMS
    }
    size = sum(weight.numel() for weight in translator.model.parameters())
    return Outcome(progress["seconds"] / 60, (ended - started) / 60, progress["epoch"], size, found)
