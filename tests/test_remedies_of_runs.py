"""The advice in messages of training, translation, exports and the server: following it helps."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import ROOT, in_child, tiny_config, tiny_pairs, write_tsv
from dragoman import checkpoint, resources, run_lock, train
from dragoman.__main__ import main
from dragoman.command_line import override, parse_train
from dragoman.dataset import Batch
from dragoman.documents import markup
from dragoman.errors import ConfigError, DataError
from dragoman.export import formats
from dragoman.serialization import sealed
from dragoman.settings import Config
from dragoman.training import checks, saving
from dragoman.training.progress import Progress, end_reason
from dragoman.training.state import TrainingState
from dragoman.translation import loading
from faults import harness
from faults.harness import Fault, flip_a_bit, training_of
from faults.test_numerical import spoilt_loss
from faults.untrained import forge
from test_remedies import arguments_of, found, run

__all__ = ["run"]
Remedy = tuple[str, str]  # a pattern whose group `key`, or the option itself, names what to set, and a value


def followed(said: str, pattern: str, value: str) -> list[str]:
    """The words that a message asks to add. The value is that of the message, if the pattern has a group for it."""
    matched = re.search(pattern, said)
    assert matched, said
    return [f"--{matched['key'].removeprefix('--')}", matched.groupdict().get("value") or value]


def slow_after_first(cases: list[Any]) -> list[Any]:
    """The cases, of which only the first is quick enough for the default suite."""
    return [cases[0], *(pytest.param(*case, marks=pytest.mark.slow) for case in cases[1:])]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run runs/tiny of eight steps, which has two checkpoints."""
    folder = tmp_path_factory.mktemp("template")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert in_child(lambda: main(train_tiny())) == 0
    return folder


def train_tiny() -> list[str]:
    """The command that trains it."""
    config = tiny_config(
        Path(), training__max_epochs=None, training__max_steps=8, training__validate_every=900,
        training__save_every=4, decoding__max_length=12, data__check_languages=False,
    )  # fmt: skip
    return ["train", *arguments_of(config)]


@pytest.fixture
def here(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the template, which is the current folder."""
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- Training -------------------------------------------------------------------------------------------------------

NAME = (r"another (?P<key>run\.name)", "other")
UNTESTED = ["--data.test_fraction", "0"]  # of a new run, to be quick
RESUMED: list[tuple[str, int, str, Remedy]] = [
    (
        "--model.d_model 64",
        2,
        "was started with",
        (r"(?P<key>model\.d_model) was (?P<value>\d+) and .* set it back", ""),
    ),
    ("--model.d_model 64", 2, "was started with", NAME),
    ("", 0, "is finished", (r"(?P<key>training\.max_steps) \(8\) is reached.*raise the limit", "9")),
]


@pytest.mark.parametrize(("line", "code", "complaint", "remedy"), RESUMED)
def test_a_run_that_exists(
    line: str, code: int, complaint: str, remedy: Remedy, here: Path, run: Callable[..., str]
) -> None:
    """Tests the ways to continue a run that cannot do as asked."""
    words = [*train_tiny(), *line.split()]
    said = run(words, code)
    assert complaint in said
    words = [*words, *followed(said, *remedy), *(UNTESTED if remedy == NAME else [])]
    assert complaint not in run(words)


@pytest.mark.parametrize(
    ("key", "progress"),
    [
        ("max_steps", {"step": 5}),
        ("max_epochs", {"epoch": 5}),
        ("max_minutes", {"seconds": 300.0}),
        ("patience", {"worse": 5}),
    ],
)
def test_every_limit_can_be_raised(key: str, progress: dict[str, float]) -> None:
    """Each reason for the end names the setting to raise."""
    config = override(Config(), ["--training.max_epochs=9", f"--training.{key}=5"])
    reached = Progress(**progress)  # type: ignore[arg-type]
    words = followed(end_reason(reached, config) or "", r"(?P<key>training\.\w+) \(5\)", "6")
    assert end_reason(reached, override(config, words)) is None


SUMMARIES: list[tuple[str, str, Remedy]] = [
    ("warmup_steps=30", "will not reach its peak", (r"(?P<key>training\.warmup_steps) is 30, .* Lower it", "2")),
    ("warmup_steps=30", "will not reach its peak", (r"or raise (?P<key>training\.max_steps)\.", "90")),
    ("validate_every=30", "only validation", (r"(?P<key>\S+every) is 30, .* only (?P<value>\d+) steps", "")),
    (
        "decay_share=0.5 --training.schedule=constant",
        "no effect",
        (r"(?P<key>training\.decay_share) has no effect", "1"),
    ),
    ("fsdp=true", "no effect", (r"(?P<key>training\.fsdp) has no effect", "false")),
]  # fmt: skip


@pytest.mark.parametrize(("line", "complaint", "remedy"), SUMMARIES)
def test_settings_that_do_not_suit(
    line: str, complaint: str, remedy: Remedy, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Guards advice that leads to the same warning again."""
    config = tiny_config(tmp_path, training__max_epochs=None, training__max_steps=20)
    config = override(config, f"--training.{line}".split())
    checks.describe_training(training_of(config))
    said = " ".join(capsys.readouterr().out.split())
    assert complaint in said
    checks.describe_training(training_of(override(config, followed(said, *remedy))))
    assert complaint not in capsys.readouterr().out


LENGTHS: list[tuple[str, Remedy]] = [
    (
        "--model.positions=learned --model.max_positions=21 --data.max_length=20 --data.validation=long.tsv",
        (r"needs (?P<value>\d+) positions, but (?P<key>model\.max_positions) is", ""),
    ),
    (
        "--model.architecture=encoder-only --model.upsampling=1 --data.train=growing.tsv",
        (r"(?P<key>model\.upsampling) \(1\) allows: raise it", "4"),
    ),
]


@pytest.mark.parametrize(("line", "remedy"), LENGTHS)
def test_lengths_that_do_not_fit(line: str, remedy: Remedy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against advising a number that is one too low."""
    monkeypatch.chdir(tmp_path)
    write_tsv(Path("long.tsv"), [("the cat " * 15, "il gatto " * 15), *tiny_pairs(5)])
    write_tsv(Path("growing.tsv"), [(a, f"{b} {b} {b}") for a, b in tiny_pairs(300)])
    config = override(tiny_config(Path()), line.split())
    with pytest.raises(DataError) as refused:
        training_of(config)
    shutil.rmtree("runs")
    training_of(override(config, followed(str(refused.value), *remedy)))


def test_a_run_in_use(here: Path, run: Callable[..., str]) -> None:
    """Tests both ways: another name now, or the same name later."""
    words = [*train_tiny(), "--training.max_steps", "9"]
    with run_lock.lock(Path("runs/tiny")):
        said = run(words, 5)
        assert "wait until it ends, stop it, or" in said
        run([*words, *followed(said, *NAME), *UNTESTED])
    run(words)


def test_all_checkpoints_are_damaged(here: Path, template: Path, run: Callable[..., str]) -> None:
    """Tests the two ways to continue after losing all checkpoints."""
    for path in checkpoint.steps(Path("runs/tiny/checkpoints")):
        flip_a_bit(path / "model.safetensors")
    said = run(train_tiny(), 4)
    name = found(r"the newest is ([\w-]+);.* restore one from a copy, or start a new run under another name", said)
    run([*train_tiny(), *UNTESTED, "--run.name", "other"])
    lost = Path("runs/tiny/checkpoints", name)
    shutil.rmtree(lost)
    shutil.copytree(template / lost, lost)
    assert "is finished" in run(train_tiny())


@pytest.mark.parametrize("version", [False, True])
def test_another_checkpoint_to_translate_with(version: bool, here: Path, run: Callable[..., str]) -> None:
    """Guards a checkpoint that is damaged, or of a newer version."""
    newest, other, *_ = checkpoint.steps(Path("runs/tiny/checkpoints"))
    if version:
        content = checkpoint.read_manifest(newest)
        (newest / "manifest.json").write_bytes(sealed({**content, "format_version": 99}))
    else:
        flip_a_bit(newest / "model.safetensors")
    assert re.search(r"or use another( checkpoint)?\.", run(f"translate --checkpoint {newest} cat", 4))
    run(f"translate --checkpoint {other} cat")


def test_other_data_than_the_run_was_trained_on(here: Path, run: Callable[..., str]) -> None:
    """Guards a corpus that is restored, but whose prepared data are not."""
    corpus = Path("corpus/pairs.tsv")
    before = corpus.read_bytes()
    write_tsv(corpus, tiny_pairs(300, seed=9))
    shutil.rmtree("runs/tiny/data")
    words = [*train_tiny(), "--training.max_steps", "9"]
    said = run(words, 4)
    corpus.write_bytes(before)
    shutil.rmtree(found(r"restore the corpus and delete the folder (\S+), or train under another run\.name", said))
    run(words)


def test_a_training_state_of_another_kind(here: Path, run: Callable[..., str]) -> None:
    """The message says how to leave out the checkpoint."""
    newest, *_ = checkpoint.steps(Path("runs/tiny/checkpoints"))
    forge(newest, {"training.pt": b"nothing"})
    words = [*train_tiny(), "--training.max_steps", "9"]
    said = run(words, 4)
    shutil.move(found(r"To resume from an older one, move (\S+) elsewhere\.$", said), "elsewhere")
    assert "resumed from step 4" in run(words)


def test_weights_of_another_model(here: Path, run: Callable[..., str]) -> None:
    """Guards against a first error that names only half of the settings to change."""
    other = "--run.name other --training.init_from runs/tiny --tokenizer.kind word"
    words = [*train_tiny(), *UNTESTED, *other.split()]
    said = run(words, 2)
    assert "set them as in that model" in said
    for key, value in re.findall(r"([\w.]+) is \w+, but (\w+)", said):
        words += [f"--{key}", value]
    run(words)


def spoilt_moments(step: int) -> Fault:
    """A fault: the state of the optimizer is not finite when this step is saved."""

    def fault() -> None:
        save = saving.save

        def spoilt(state: TrainingState) -> None:
            if state.progress.step == step:
                next(iter(state.optimizer.state.values()))["exp_avg"].view(-1)[0] = float("inf")
            save(state)

        saving.save = spoilt

    return fault


SPOILT: list[tuple[Fault, str]] = [
    (spoilt_loss(6, float("nan")), r"Lower (?P<key>training\.lr) or raise"),
    (spoilt_loss(6, float("nan")), r"or raise (?P<key>training\.warmup_steps), and run the same"),
    (spoilt_moments(8), r"Lower (?P<key>training\.lr) or raise"),
]


@pytest.mark.parametrize(("fault", "pattern"), slow_after_first(SPOILT))
def test_numbers_that_are_not_finite(fault: Fault, pattern: str, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    """Guards a run that cannot be resumed with the smaller updates that its message asks for."""
    limits = {"training__max_epochs": None, "training__max_steps": 8, "training__save_every": 4}
    config = harness.toy_config(tmp_path, **limits, training__validate_every=900)
    assert harness.run(config, fault) == 6
    said = " ".join(capfd.readouterr().err.split())
    assert "run the same command again" in said
    smaller = override(config, followed(said, pattern, "0.001" if pattern.startswith("Lower") else "8"))
    assert harness.run(smaller) == 0
    assert "resumed from step 4" in capfd.readouterr().out


def with_memory_for(positions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no batch with more positions fit in memory."""
    compute = train.Learner.forward

    def limited(self: train.Learner, batch: Batch) -> Any:
        if batch.source.numel() + batch.target_out.numel() > positions:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return compute(self, batch)

    monkeypatch.setattr(train.Learner, "forward", limited)


BATCHES = r"new (?P<a>run\S*?),? .*half of (?P<b>training\.batch_tokens) and twice (?P<c>training\.accumulate)\."
MEMORY: list[tuple[int, int, str, str, str]] = [
    (0, 6, "too little memory", BATCHES, "--run.name other --{b} 75 --{c} 4"),
    (220, 0, "Such batches are split", BATCHES, "--run.name other --{b} 75 --{c} 4"),
    (
        12,
        6,
        "a single pair",
        r"lower (?P<a>data\.max_length) .*, under a new (?P<b>run\.name)\.",
        "--{a} 5 --{b} other",
    ),
]


@pytest.mark.parametrize(("positions", "code", "complaint", "pattern", "remedy"), slow_after_first(MEMORY))
def test_too_little_memory(
    positions: int, code: int, complaint: str, pattern: str, remedy: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture,
) -> None:  # fmt: skip
    """Guards batches that are still too large, and settings that a new run does not take."""
    config = harness.toy_config(tmp_path, training__max_epochs=None, training__max_steps=2)
    if positions:
        with_memory_for(positions, monkeypatch)
    else:  # outside of an update, so that nothing can be split
        build = train.build_state

        def short(config: Config, *arguments: Any, **options: Any) -> Any:
            if int(config.training.batch_tokens) > 100:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return build(config, *arguments, **options)

        monkeypatch.setattr(train, "build_state", short)
    assert harness.run(config) == code
    said = " ".join("".join(capfd.readouterr()).split())
    assert complaint in said
    matched = re.search(pattern, said)
    assert matched, said
    assert harness.run(override(config, remedy.format(**matched.groupdict()).split())) == 0
    assert complaint not in "".join(capfd.readouterr())


# --- Translation ----------------------------------------------------------------------------------------------------


def test_no_trained_model_here(here: Path, run: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against advising options and commands that do not exist."""
    (here / "empty").mkdir()
    monkeypatch.chdir(here / "empty")
    monkeypatch.setattr(loading, "place_of_runs", lambda folder: folder)  # a clone may have runs of its own
    said = run("translate cat", 4)
    run(["translate", "cat", *followed(said, r"or name a run with (?P<key>--run)\.", "../runs/tiny")])
    main_file = shlex.split(found(r": run (.*?), or name", said))
    assert parse_train(main_file[main_file.index("train.py") + 1 :] if "train.py" in main_file else [])


# --- Installing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_clone", [False, True])
def test_what_is_missing_can_be_installed(in_clone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against commands that need a clone where there is none, unquoted brackets in zsh, and unknown extras."""
    monkeypatch.setattr(resources, "IN_CLONE", in_clone)
    for library in ("lxml", "onnxruntime"):
        monkeypatch.setitem(sys.modules, library, None)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for attempt, library in (
        (lambda: markup.parse_markup("<a/>", "xml"), "lxml"),
        (lambda: resources.require("export", formats.WRITERS["onnx"], "onnx"), "onnxruntime"),
    ):
        with pytest.raises(ConfigError) as refused:
            attempt()
        command, extra = re.findall(r"(pip install .*?'[^']*\[(\w+)\]')", str(refused.value))[0]
        assert shlex.split(command) == [
            "pip",
            "install",
            *(["-e", f".[{extra}]"] if in_clone else [f"dragoman[{extra}]"]),
        ]
        assert library in " ".join(extras[extra])
