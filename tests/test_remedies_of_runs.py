"""What messages of training, translation, exports and the server tell people to do: done as said, it helps."""

from __future__ import annotations

import errno
import fcntl
import os
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
from dragoman import checkpoint, reading, resources, run_lock, train, translate
from dragoman.__main__ import main
from dragoman.command_line import override, parse_serve, parse_train, read_settings
from dragoman.corpora.sources import find_sources
from dragoman.dataset import Batch
from dragoman.distributed import Ranks
from dragoman.errors import ConfigError, DataError, DeviceError
from dragoman.export import formats
from dragoman.serialization import sealed
from dragoman.settings import Config
from dragoman.training import checks, outlook, saving, starting
from dragoman.training.progress import Progress, end_reason
from dragoman.training.state import TrainingState
from dragoman.translation import markup, markup_markdown
from echo import echo
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
    """The cases, of which only the first is quick enough for every day."""
    return [cases[0], *(pytest.param(*case, marks=pytest.mark.slow) for case in cases[1:])]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run runs/tiny of eight steps, which has two checkpoints."""
    folder = tmp_path_factory.mktemp("template")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        find_sources(parse_train(train_tiny()[1:]).data)  # which reads the names of all languages, here once
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
def here(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None) -> Path:
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
    """Guards ways on from a run that cannot go on as asked."""
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
    """Guards a reason for the end that does not name the setting to raise."""
    config = override(Config(), ["--training.max_epochs=9", f"--training.{key}=5"])
    reached = Progress(**progress)  # type: ignore[arg-type]
    words = followed(end_reason(reached, config) or "", r"(?P<key>training\.\w+) \(5\)", "6")
    assert end_reason(reached, override(config, words)) is None


SUMMARIES: list[tuple[str, str, Remedy]] = [
    ("warmup_steps=30", "will hardly fall", (r"(?P<key>training\.warmup_steps) is 30, .* Lower it", "2")),
    ("warmup_steps=30", "will hardly fall", (r"or raise (?P<key>training\.max_steps)\.", "90")),
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
def test_lengths_that_do_not_fit(line: str, remedy: Remedy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        run([*words, *followed(said, *NAME), *UNTESTED])
    run(words)


@pytest.mark.slow
def test_a_disk_without_locks(here: Path, run: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards a run that is put on another disk."""
    lock = fcntl.flock

    def flock(descriptor: int, operation: int) -> None:
        if os.path.samestat(os.fstat(descriptor), os.stat("runs/tiny/.lock")):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    words = [*train_tiny(), "--training.max_steps", "9"]
    said = run(words, 7)
    shutil.copytree("runs", "elsewhere")
    run([*words, *followed(said, r"put the run on another disk, with (?P<key>--run\.dir)\.", "elsewhere")])


def test_all_checkpoints_are_damaged(here: Path, template: Path, run: Callable[..., str]) -> None:
    """Guards the two ways on from a run whose checkpoints are lost."""
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


@pytest.mark.slow
def test_averages(here: Path, run: Callable[..., str]) -> None:
    """Guards averages of too few checkpoints, and of two runs."""
    said = run("average --run runs/tiny")
    words = followed(said, r"holds only 2 checkpoints; (?P<key>training\.keep_last) sets", "9")
    run([*train_tiny(), *UNTESTED, *words, "--training.save_every", "1", "--run.name", "many"])
    assert "holds only" not in run("average --run runs/many")

    shutil.rmtree(checkpoint.steps(Path("runs/tiny/checkpoints"))[-1])
    said = run("average --run runs/tiny --output one", 4)
    assert "choose a run that has saved more, and raise training.keep_last" in said
    run("average --run runs/many --output one")

    run([*train_tiny(), *UNTESTED, "--run.name", "wide", "--model.d_ff", "32"])
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
    words = [
        *train_tiny(),
        *UNTESTED,
        "--run.name",
        "other",
        "--training.init_from",
        "runs/tiny",
        "--tokenizer.kind",
        "word",
    ]
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


@pytest.mark.parametrize("limit", ["max_minutes", "max_epochs"])
def test_limits_before_translations_are_usable(limit: str) -> None:
    """Guards a number that is still too low."""
    here = outlook.Outlook(speed=1000 / outlook.FOR_UPDATES, tokens=60_000, usable=5)
    config = override(Config(), [f"--training.{limit}", "3"])
    [said] = here.shortages(config.training)
    words = followed(said, r"(?P<key>training\.\w+) is 3, .* raise it to (?P<value>\d+) or more", "")
    assert not list(here.shortages(override(config, words).training))


def test_ranks_that_cannot_share_a_device() -> None:
    """Guards a device that is proposed and then refused."""
    ranks = Ranks(rank=1, world_size=2, local_rank=1)
    with pytest.raises(DeviceError) as refused:
        ranks.own_device(torch.device("cuda:0"))
    words = followed(str(refused.value), r"set (?P<key>training\.device) to cuda or (?P<value>cpu)\.", "")
    ranks.own_device(torch.device(override(Config(), words).training.device))


PRESETS: list[tuple[str, str, str]] = [
    ("", "seldom suit other data", r": (?P<options>--model\.preset auto) chooses"),
    ("preset: tiny", "it has no effect", r"or use (?P<options>--model\.preset tiny), which overrules"),
]


@pytest.mark.parametrize(("preset", "complaint", "remedy"), PRESETS)
def test_presets(preset: str, complaint: str, remedy: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Guards a preset that still does nothing."""
    text = (ROOT / "config.yaml").read_text(encoding="utf-8").replace("preset: null", preset or "preset: null")
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    corpus = write_tsv(tmp_path / "pairs.tsv", tiny_pairs(99))
    words = ["--config", str(tmp_path / "mine.yaml"), "--data.train", str(corpus)]
    starting.with_preset(read_settings(words), torch.device("cpu"))
    said = " ".join(capsys.readouterr().out.split())
    assert complaint in said
    words += shlex.split(found(remedy.replace("?P<options>", ""), said))
    starting.with_preset(read_settings(words), torch.device("cpu"))
    said = capsys.readouterr().out
    assert complaint not in said
    assert "model.preset " in said


# --- Translation ----------------------------------------------------------------------------------------------------


def test_no_trained_model_here(here: Path, run: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards options and commands that do not exist."""
    (here / "empty").mkdir()
    monkeypatch.chdir(here / "empty")
    said = run("translate cat", 4)
    run(["translate", "cat", *followed(said, r"or name a run with (?P<key>--run)\.", "../runs/tiny")])
    main_file = shlex.split(found(r": run (.*?), or name", said))
    assert parse_train(main_file[main_file.index("train.py") + 1 :] if "train.py" in main_file else [])


def test_data_that_only_another_run_has(here: Path, run: Callable[..., str]) -> None:
    """Guards what needs the prepared data of a run."""
    shutil.copytree("runs/tiny", "runs/bare")
    shutil.rmtree("runs/bare/data")
    for command in ("translate --example 1 --attention map.html", "export --to ctranslate2"):
        if command.startswith("export"):
            pytest.importorskip("ctranslate2")
        said = run(f"{command} --run runs/bare", 3)
        assert re.search(r"needs the test set of a run|name a run that still has its data folder", said)
        run(f"{command} --run runs/tiny")


@pytest.mark.slow
def test_ensembles(here: Path, run: Callable[..., str]) -> None:
    """Guards ensembles that fit: of one set of prepared data, and one way to write."""
    write_tsv(Path("corpus/other.tsv"), tiny_pairs(80, seed=5))
    brief = [*train_tiny(), "--training.max_steps", "2", *UNTESTED, "--run.name"]
    tiny, both = "--checkpoint runs/tiny", "--checkpoint runs/tiny --checkpoint runs"
    run([*brief, "other", "--data.train", "corpus/other.tsv"])
    assert "must be trained on the same prepared data" in run(f"translate {both}/other cat", 4)
    run([*brief, "same", "--run.seed", "2", "--data.test_fraction", "0.05"])
    run(f"translate {both}/same cat")
    run(
        [
            *brief,
            "ctc",
            "--data.test_fraction",
            "0.05",
            "--model.architecture",
            "encoder-only",
            "--model.upsampling",
            "3",
        ]
    )
    assert "must all write word by word, or all be encoder-only" in run(f"translate {both}/ctc cat", 4)
    assert "name one checkpoint" in run(f"translate {both}/same --embed cat", 2)
    run(f"translate {tiny} --embed cat")


def test_ctranslate2_and_another_search(here: Path, run: Callable[..., str]) -> None:
    """Guards a setting of the search that the engine lacks."""
    pytest.importorskip("ctranslate2")
    words = shlex.split("translate --run runs/tiny --engine ctranslate2 --decoding.length_formula paper cat")
    said = run([*words, "--decoding.beam_size", "2"], 2)
    words += followed(said, r"(?P<key>decoding\.length_formula) is paper, .* set it to (?P<value>\w+)", "")
    run([*words, "--decoding.beam_size", "2"])


def test_a_list_of_texts() -> None:
    """Guards a text that would be translated letter by letter."""
    with pytest.raises(TypeError, match="give a list of texts"):
        echo().explain("live in")
    assert [each.text for each in echo().explain(["live in"])] == ["live in"]


DOCUMENTS: list[tuple[str, Any, int, str, str]] = [
    ("MAX_CHARACTERS", markup, 20, "markdown", "My name is, and I live in: number!\n\n"),
    ("MAX_RUN", markup_markdown, 9, "markdown", "[My name is, and I live in: number!](x)\n\n"),
]


@pytest.mark.parametrize(("limit", "module", "most", "kind", "text"), DOCUMENTS)
def test_documents_to_split(
    limit: str, module: Any, most: int, kind: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards a document whose halves are still refused."""
    pytest.importorskip("markdown_it")
    monkeypatch.setattr(module, limit, most)
    with pytest.raises(DataError, match="split it"):
        markup.translate_markup(echo(), text, kind)
    halves = ["My name is,", "I live in:"] if limit == "MAX_CHARACTERS" else ["[My name is,](x)", "[and I live](x)"]
    assert [markup.translate_markup(echo(), half, kind).strip() for half in halves] == halves


def test_a_file_to_split(tmp_path: Path, run: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards a document that is too large to be parsed."""
    pytest.importorskip("markdown_it")
    monkeypatch.setattr(reading, "TEXT", 20)
    monkeypatch.setattr(translate, "load_translator", lambda *_: echo())
    (tmp_path / "whole.md").write_text("My name is\n\nand I live\n", encoding="utf-8")
    (tmp_path / "half.md").write_text("My name is\n", encoding="utf-8")
    words = ["translate", "--run", "here", "--markup", "markdown", "--input"]
    assert re.search(r"may have: split it\.$", run([*words, str(tmp_path / "whole.md")], 3))
    run([*words, str(tmp_path / "half.md")])


GLOSSARIES = [
    (b"a\tb\ndog\tHu\x1bnd\n", "g.tsv", r"U\+(001B): remove it", lambda data: data.replace(b"\x1b", b"")),
    (b"a,b\ndog,Hu\rnd\n", "g.csv", r"(quote) cells that contain commas", lambda data: b'a,b\ndog,"Hu\rnd"\n'),
]


@pytest.mark.parametrize(("data", "name", "remedy", "mend"), GLOSSARIES)
def test_glossaries(data: bytes, name: str, remedy: str, mend: Callable[[bytes], bytes], tmp_path: Path) -> None:
    """Guards a glossary that is refused again."""
    file = tmp_path / name
    file.write_bytes(data)
    with pytest.raises(DataError) as refused:
        echo().with_glossary(file)
    assert re.search(remedy, str(refused.value))
    file.write_bytes(mend(data))
    echo().with_glossary(file)


# --- Server ---------------------------------------------------------------------------------------------------------


def test_a_port_that_is_free() -> None:
    """Guards a port that is taken, too."""
    connection = pytest.importorskip("dragoman.server.connection", reason="needs the libraries of the server")
    with connection.listen("127.0.0.1", 0) as taken:
        with pytest.raises(ConfigError) as refused:
            connection.listen("127.0.0.1", taken.getsockname()[1])
        words = followed(str(refused.value), r"(?P<key>--port) (?P<value>\d+) is free\.", "")
        with connection.listen("127.0.0.1", parse_serve(words).port):
            pass


def test_requests_that_are_refused() -> None:
    """Guards clients that do what the answer says."""
    serve = pytest.importorskip("test_serve", reason="needs the libraries of the server")
    with serve.serving(echo(), max_wait=2) as server:
        reply = server.post({"text": "live"}, kind="text/plain")
        assert reply.status == 415
        assert server.post({"text": "live"}, kind=found(r"Content-Type: (\S+)$", reply.json["detail"])).status == 200


# --- Installing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_clone", [False, True])
def test_what_is_missing_can_be_installed(in_clone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards a command that needs a clone without one, brackets that zsh takes for a pattern, and unknown extras."""
    monkeypatch.setattr(resources, "IN_CLONE", in_clone)
    monkeypatch.setattr(markup, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for attempt, library in (
        (lambda: markup.parse_markup("<a/>", "xml"), "lxml"),
        (lambda: formats.require_libraries("onnx"), "onnxruntime"),
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
