"""What all tests share: one thread per process, no network, and a run that trains in a second."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Set before torch is imported: thread pools neither survive a fork nor share two cores well.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["MPLBACKEND"] = "Agg"

import random
import runpy
import shutil
import signal
import socket
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import cache, partial
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tensorboard.summary.writer import event_file_writer
from torch import Tensor

from dragoman.command_line import override
from dragoman.corpora import language_id
from dragoman.corpora.formats import language_names
from dragoman.corpora.formats.units import is_left_out
from dragoman.corpora.readers import read_units
from dragoman.corpora.sources import Source
from dragoman.settings import Config, DataConfig
from dragoman.training import tensorboard

if TYPE_CHECKING:  # it imports a lot, and imports this module
    from faults.harness import Reference

torch.set_num_threads(1)
# TensorBoard reads the event files of one second in the order of their names, and number 10 before number 9.
event_file_writer._global_uid = event_file_writer.AtomicCounter(10**6)


def _do_not_wait_for_the_disk(descriptor: Any) -> None:
    """`os.fsync`, which a training calls 200 times, without its effect, which only a power cut would show."""
    os.fstat(descriptor)  # it must be open


os.fsync = _do_not_wait_for_the_disk  # tests of the order of these calls log or replace them


def _empty_figure(weights: Tensor, source: Sequence[str], target: Sequence[str]) -> Any:
    """An empty figure instead of an attention map with these labels."""
    from matplotlib.figure import Figure

    assert weights.shape[1:] == (len(target), len(source))
    return Figure((0.1, 0.1))


draw_attention = tensorboard.attention_figure
tensorboard.attention_figure = _empty_figure  # a figure takes as long as thirty updates; one shared run has real ones

ROOT = Path(__file__).parent.parent
_numbers = count()
HANG = 1200  # seconds after which a process is given up; no test depends on how long anything takes
SHARED = ROOT.parent / "shared" / "data"  # real text; tests that need it are skipped without it

WORDS = {
    "the": "il", "cat": "gatto", "dog": "cane", "sees": "vede", "wants": "vuole", "bread": "pane", "wine": "vino",
    "red": "rosso", "black": "nero", "and": "e", "today": "oggi", "here": "qui", "not": "non", "this": "questo",
}  # fmt: skip


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep files for CTranslate2 out of the user's cache, in forked and started processes, too."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse every connection to another machine, in forked processes, too."""

    def allowed(address: Any) -> bool:
        return not isinstance(address, tuple) or str(address[0]) in ("localhost", "::1") or address[0][:4] == "127."

    def guarded(connect: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def guard(self: socket.socket, address: Any) -> Any:
            if not allowed(address):
                raise PermissionError(f"tests must not use the network, but this one connects to {address}")
            return connect(self, address)

        return guard

    resolve = socket.getaddrinfo

    def look_up(host: Any, *arguments: Any, **options: Any) -> Any:
        if not allowed((host or "localhost",)):
            raise PermissionError(f"tests must not use the network, but this one looks up {host}")
        return resolve(host, *arguments, **options)

    monkeypatch.setattr(socket.socket, "connect", guarded(socket.socket.connect))
    monkeypatch.setattr(socket.socket, "connect_ex", guarded(socket.socket.connect_ex))
    monkeypatch.setattr(socket, "getaddrinfo", look_up)


def tiny_pairs(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Sentences of two to nine words with word-for-word translations and a full stop."""
    draw = random.Random(seed)
    sentences = [draw.choices(list(WORDS), k=draw.randint(2, 9)) for _ in range(count)]
    return [(" ".join(words) + ".", " ".join(WORDS[word] for word in words) + ".") for words in sentences]


def write_tsv(path: Path, pairs: list[tuple[str, str]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8", newline="\n")
    return path


def read_splits(source: Source, data: DataConfig) -> dict[str, Iterator[tuple[str, str]]]:
    """The raw pairs of each split of a source, without units that are no pairs."""
    return {
        name: (unit[1:] for unit in split.units if not is_left_out(unit[1]))
        for name, split in read_units(source, data).items()
    }


def tiny_config(folder: Path, **changes: object) -> Config:
    """A run on 300 tiny pairs, with changed settings: `model__dropout=0` sets model.dropout.

    On purpose, its intervals are out of step with one another and with the epochs, and dropout is on.
    """
    corpus = folder / "corpus" / "pairs.tsv"
    if not corpus.exists():
        write_tsv(corpus, tiny_pairs(300))
    settings = {
        "run.name": "tiny", "run.dir": folder / "runs", "data.train": corpus, "data.validation_fraction": 0.05,
        "data.test_fraction": 0.05, "tokenizer.min_frequency": 1, "model.d_model": 32, "model.n_heads": 2,
        "model.encoder_layers": 1, "model.decoder_layers": 1, "model.d_ff": 64, "model.dropout": 0.1,
        "training.max_epochs": 4, "training.batch_tokens": 150, "training.lr": 0.01, "training.warmup_steps": 5,
        "training.optimizer": "adamw", "training.weight_decay": 0.0, "training.accumulate": 2,
        "training.log_every": 3, "training.validate_every": 10, "training.save_every": 7,
        "training.device": "cpu", "training.precision": "float32", "decoding.precision": "float32",
    }  # fmt: skip
    settings |= {key.replace("__", "."): value for key, value in changes.items()}
    words = [f"--{key}={'null' if value is None else value}" for key, value in settings.items()]
    return override(Config(), words)


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., Config]:
    """`tiny_config` in a new folder."""
    return partial(tiny_config, tmp_path)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium without a window, by Playwright; tests are skipped where one of them is missing.

    Each page has its own storage. One browser for the whole session would leave an event loop to other tests.
    """
    driver = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not chromium:
        pytest.skip("needs Chromium: apt install chromium")
    with driver.sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        with closing(playwright.chromium.launch(executable_path=chromium, args=arguments)) as opened:
            yield opened


def shared_folder(factory: pytest.TempPathFactory, name: str, fill: Callable[[Path], None]) -> Path:
    """A folder that the first worker to need it fills. The others wait for that; all of them only read it."""
    import fcntl  # not on Windows

    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    filled = folder.with_suffix(".filled")
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not filled.exists():
            fill(folder)
            filled.touch()
    return folder


def _learned_config(folder: Path) -> Config:
    return tiny_config(
        folder, training__max_epochs=30, training__accumulate=1, training__keep_last=2, training__lr=0.003,
        training__warmup_steps=50, training__validate_every=200, training__save_every=300,
    )  # fmt: skip


@pytest.fixture(scope="session")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A run that has learned the tiny pairs: where its translations depend on rounding, few of them do.

    Its folder is shared: copy it to change it.
    """
    from dragoman.__main__ import run as run_command

    def train(folder: Path) -> None:
        write_tsv(folder / "corpus" / "pairs.tsv", tiny_pairs(600))

        def with_pictures() -> int:
            tensorboard.attention_figure = draw_attention
            return run_command("train", _learned_config(folder))

        assert in_child(with_pictures) == 0

    return _learned_config(shared_folder(tmp_path_factory, "learned", train))


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where all runs of `faults` train on the same corpus."""
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="session")
def reference(workshop: Path) -> Reference:
    """The undisturbed run there."""
    from faults.harness import Reference

    return Reference.made_in(workshop)


@pytest.fixture
def toy(workshop: Path) -> Callable[..., Config]:
    """A run like the reference under its own name, with changed settings."""
    from faults.harness import toy_config

    name = f"run-{next(_numbers)}"
    return lambda **changes: toy_config(workshop, **({"run__name": name} | changes))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of a run's checkpoints, not yet made."""
    return tmp_path / "runs" / "toy" / "checkpoints"


@cache
def warm_up() -> None:
    """Load what nearly every training loads, once and not again in each forked process."""
    for name in ("dragoman.train", "torch._dynamo"):  # the first optimizer imports the second
        import_module(name)
    language_id.knows("en")
    for text in ("en", "English"):
        language_names.language_of(text)


def in_child(work: Callable[[], int | None]) -> int:
    """Do work in a forked process; return its exit code, or minus the signal that killed it. It may take `HANG`."""
    warm_up()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = 99
        signal.alarm(HANG)
        try:
            code = work() or 0
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 98
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run_python(
    words: Sequence[object], folder: Path, given: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Do in a folder what `python SCRIPT ...` or `python -m MODULE ...` does, with a standard input.

    The process is forked, since importing torch takes longer than most programs.
    """
    arguments = [os.fsdecode(word) if isinstance(word, bytes) else str(word) for word in words]
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        stdin.write(given)
        stdin.seek(0)

        def work() -> int | None:
            for number, file in enumerate((stdin, stdout, stderr)):
                os.dup2(file.fileno(), number)
            sys.stdin, sys.stdout, sys.stderr = (
                os.fdopen(number, mode, encoding="utf-8", closefd=False) for number, mode in enumerate("rww")
            )
            os.chdir(folder)
            os.environ.update(environment)
            sys.orig_argv = [sys.executable, *arguments]  # with which a launcher starts its ranks
            try:
                if arguments[0] == "-m":
                    sys.argv = arguments[1:]
                    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
                else:
                    sys.argv = arguments
                    sys.path.insert(0, str(Path(arguments[0]).parent))
                    runpy.run_path(arguments[0], run_name="__main__")
            except SystemExit as stop:
                if stop.code is not None:
                    raise
            return None

        code = in_child(work)
        for file in (stdout, stderr):
            file.seek(0)
        return subprocess.CompletedProcess(arguments, code, stdout.read(), stderr.read())
