"""What messages of training, translation, exports and the server tell people to do: done as said, it helps."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import in_child, tiny_config, tiny_pairs, write_tsv
from dragoman import checkpoint, run_lock
from dragoman.__main__ import main
from dragoman.command_line import override
from dragoman.errors import DataError
from dragoman.serialization import sealed
from dragoman.settings import Config
from dragoman.training import checks
from dragoman.training.progress import Progress, end_reason
from faults.harness import flip_a_bit, training_of
from faults.untrained import forge
from test_remedies import arguments_of, found, run

__all__ = ["run"]
Remedy = tuple[str, str]  # a pattern whose group `key`, or the option itself, names what to set, and a value


def followed(said: str, pattern: str, value: str) -> list[str]:
    """The words that a message asks to add. The value is that of the message, if the pattern has a group for it."""
    matched = re.search(pattern, said)
    assert matched, said
    return [f"--{matched['key'].removeprefix('--')}", matched.groupdict().get("value") or value]


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
RESUMED: list[tuple[str, int, str, Remedy]] = [
    ("--model.d_model 64", 2, "was started with", (r"(?P<key>model\.d_model) was (?P<value>\d+) and .* set it back", "")),
    ("--model.d_model 64", 2, "was started with", NAME),
    ("", 0, "is finished", (r"(?P<key>training\.max_steps) \(8\) is reached.*raise the limit", "9")),
    ("", 0, "is finished", NAME),
]


@pytest.mark.parametrize(("line", "code", "complaint", "remedy"), RESUMED)
def test_a_run_that_exists(
    line: str, code: int, complaint: str, remedy: Remedy, here: Path, run: Callable[..., str]
) -> None:
    """Guards ways on from a run that cannot go on as asked."""
    words = [*train_tiny(), *line.split()]
    said = run(words, code)
    assert complaint in said
    assert complaint not in run([*words, *followed(said, *remedy)]) or remedy[0].endswith("set it back")


@pytest.mark.parametrize(
    ("key", "progress"),
    [("max_steps", {"step": 5}), ("max_epochs", {"epoch": 5}), ("max_minutes", {"seconds": 300.0}), ("patience", {"worse": 5})],
)  # fmt: skip
def test_every_limit_can_be_raised(key: str, progress: dict[str, float]) -> None:
    """Guards a reason for the end that does not name the setting to raise."""
    config = override(Config(), ["--training.max_epochs=9", f"--training.{key}=5"])
    reached = Progress(**progress)  # type: ignore[arg-type]
    words = followed(end_reason(reached, config) or "", r"(?P<key>training\.\w+) \(5\)", "6")
    assert end_reason(reached, override(config, words)) is None


SUMMARIES: list[tuple[str, str, Remedy]] = [
    ("warmup_steps=30", "will hardly fall", (r"(?P<key>training\.warmup_steps) is 30, .* Lower it", "2")),
    ("warmup_steps=30", "will hardly fall", (r"or raise (?P<key>training\.max_steps)\.", "90")),
    ("validate_every=30", "only validation", (r"(?P<key>training\.validate_every) is 30, .* only (?P<value>\d+) steps", "")),
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
    checks.print_summary(training_of(config))
    said = " ".join(capsys.readouterr().out.split())
    assert complaint in said
    checks.print_summary(training_of(override(config, followed(said, *remedy))))
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
def test_lengths_that_do_not_fit(
    line: str, remedy: Remedy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards a number that is one too low."""
    monkeypatch.chdir(tmp_path)
    write_tsv(Path("long.tsv"), [("the cat " * 15, "il gatto " * 15), *tiny_pairs(5)])
    write_tsv(Path("growing.tsv"), [(a, f"{b} {b} {b}") for a, b in tiny_pairs(300)])
    config = override(tiny_config(Path()), line.split())
    with pytest.raises(DataError) as refused:
        training_of(config)
    shutil.rmtree("runs")
    training_of(override(config, followed(str(refused.value), *remedy)))


def test_a_model_that_is_not_trained_enough(here: Path, run: Callable[..., str]) -> None:
    """Guards a command that can be given for ever, since the best weights stay those of an early step."""
    said = run("evaluate --run runs/tiny")
    command = found(r"Continue with: (.*? --training\.max_steps \d+)", said)
    run(f"{command} --training.save_every 50")
    root = Path("runs/tiny/checkpoints")
    checkpoint.set_best(root, min(map(checkpoint.step_of, checkpoint.steps(root))))
    assert "not trained enough" not in run("evaluate --run runs/tiny")


def test_a_run_in_use(here: Path, run: Callable[..., str]) -> None:
    """Guards both ways on: under another name at once, or under the same one afterwards."""
    words = [*train_tiny(), "--training.max_steps", "9"]
    with run_lock.lock(Path("runs/tiny")):
        said = run(words, 5)
        assert "wait until it ends, stop it, or" in said
        run([*words, *followed(said, *NAME)])
    run(words)


def test_all_checkpoints_are_damaged(here: Path, template: Path, run: Callable[..., str]) -> None:
    """Guards the two ways on from a run whose checkpoints are lost."""
    for path in checkpoint.steps(Path("runs/tiny/checkpoints")):
        flip_a_bit(path / "model.safetensors")
    said = run(train_tiny(), 4)
    name = found(r"the newest is ([\w-]+);.* restore one from a copy, or start a new run under another name", said)
    run([*train_tiny(), "--run.name", "other"])
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


def test_averages(here: Path, run: Callable[..., str]) -> None:
    """Guards averages of too few checkpoints, and of two runs."""
    said = run("average --run runs/tiny")
    words = followed(said, r"holds only 2 checkpoints; (?P<key>training\.keep_last) sets", "9")
    run([*train_tiny(), *words, "--training.save_every", "1", "--run.name", "many"])
    assert "holds only" not in run("average --run runs/many")

    shutil.rmtree(checkpoint.steps(Path("runs/tiny/checkpoints"))[-1])
    said = run("average --run runs/tiny --output one", 4)
    assert "choose a run that has saved more, and raise training.keep_last" in said
    run("average --run runs/many --output one")

    run([*train_tiny(), "--run.name", "wide", "--model.d_ff", "32"])
    one, two = (checkpoint.steps(Path(f"runs/{name}/checkpoints"))[0] for name in ("many", "wide"))
    said = run(f"average {one} {two} --output both", 4)
    assert "choose checkpoints of one training run" in said
    other = checkpoint.steps(one.parent)[1]
    run(f"average {one} {other} --output both")


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
    """Guards a run that cannot be resumed, whose message does not say how to leave a checkpoint out."""
    newest, *_ = checkpoint.steps(Path("runs/tiny/checkpoints"))
    forge(newest, {"training.pt": b"nothing"})
    words = [*train_tiny(), "--training.max_steps", "9"]
    said = run(words, 4)
    shutil.move(found(r"To resume from an older one, move (\S+) elsewhere\.$", said), "elsewhere")
    assert "resumed from step 4" in run(words)


def test_weights_of_another_model(here: Path, run: Callable[..., str]) -> None:
    """Guards two refusals in a row, of which the first names half of what has to be set."""
    words = [*train_tiny(), "--run.name", "other", "--training.init_from", "runs/tiny", "--tokenizer.kind", "word"]
    said = run(words, 2)
    assert "set them as in that model" in said
    for key, value in re.findall(r"([\w.]+) is \w+, but (\w+)", said):
        words += [f"--{key}", value]
    run(words)
