"""Training as a whole: what a run produces and how it ends well; `faults` has the other endings."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import dragoman
from conftest import in_child, tiny_pairs, write_tsv
from dragoman import checkpoint, dataset, errors, serialization, tensors, train
from dragoman.__main__ import run as run_command
from dragoman.architectures.loss import Loss, batch_loss
from dragoman.settings import Config
from dragoman.signals import Stop
from dragoman.training import checks, final_report, prefetch, saving, tensorboard, validation
from dragoman.training.batches import training_batches
from dragoman.training.prefetch import prefetched
from dragoman.training.progress import Progress, progress_of
from faults import harness
from faults.harness import after_step, die, outcome, together, training_of

TARGET = "decoder.embedding.table.weight"
Tiny = Callable[..., Config]


def run(config: Config) -> int:
    """Train in a process of its own."""
    return in_child(lambda: run_command("train", config))


def test_a_raised_limit_extends_a_finished_run(tiny: Tiny) -> None:
    """With a schedule without an end, 6 + 6 steps equal 12 steps."""
    common = {"training__schedule": "constant", "training__max_epochs": None, "training__validate_every": 6}
    once, twice = (tiny(run__name=name, training__max_steps=12, **common) for name in ("once", "twice"))
    assert run(once) == 0
    assert run(replace(twice, training=replace(twice.training, max_steps=6))) == 0
    assert run(twice) == 0
    *expected, points = outcome(once)
    *found, extended = outcome(twice)
    assert found == expected
    # The test set was scored after step 6, too.
    assert {tag: [p for p in curve if p[0] != 6 or "test/" not in tag] for tag, curve in extended.items()} == points


def test_training_from_python(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Guards a notebook: one call trains or resumes, and returns a translator that says what it is."""
    pairs = write_tsv(tmp_path / "pairs.tsv", tiny_pairs(300))
    settings = {
        "run.name": "first", "run.dir": str(tmp_path / "runs"), "data.train": str(pairs), "data.source_lang": "en",
        "data.target_lang": "it", "model.preset": None, "model.d_model": 32, "model.d_ff": 64, "training.max_steps": 3,
        "training.device": "cpu", "data.check_languages": False,
    }  # fmt: skip

    def work() -> None:
        translator = dragoman.train(settings=settings)  # pyright: ignore[reportCallIssue]
        assert re.fullmatch(r"Translator\(en→it, first, step 3, BLEU [0-9.]+\)", repr(translator))
        assert translator("the cat.") == translator.translate("the cat.")
        again = dragoman.train(settings=settings)  # pyright: ignore[reportCallIssue]
        assert again.step == 3
        with pytest.raises(errors.ConfigError, match=r"model\.d_model"):
            dragoman.train(settings={"model.d_model": "wide"})  # pyright: ignore[reportCallIssue]

    assert in_child(work) == 0
    assert "is finished" in capfd.readouterr().out


def prefetch_on_cpu() -> None:
    """Make batches ahead in a thread, as on a GPU."""
    prefetch.prefetched = lambda items, _: prefetched(items, 3)


def test_prefetching_changes_nothing(tiny: Tiny) -> None:
    """Guards the position in the data against a thread that is ahead of it: a killed and resumed run skips nothing."""
    once, ahead = (tiny(run__name=name) for name in ("once", "ahead"))
    assert run(once) == 0
    assert harness.run(ahead, together(prefetch_on_cpu, after_step(19, die))) == -signal.SIGKILL
    assert harness.run(ahead, prefetch_on_cpu) == 0
    assert outcome(ahead) == outcome(once)


def test_placeholders_depend_on_the_step_alone(tiny: Tiny) -> None:
    """Guards the exact resume: a resumed run hides the same words as an uninterrupted one."""
    training, resumed = (training_of(tiny(training__placeholders=0.5)) for _ in range(2))
    updates = training_batches(training)
    for step in range(12):  # into the second epoch
        next(updates)
        training.progress.step = step + 1
    resumed.progress = replace(training.progress)
    hidden = 0
    for first, second in islice(zip(updates, training_batches(resumed), strict=True), 12):
        for one, other in zip(first, second, strict=True):
            assert all(torch.equal(getattr(one, side), getattr(other, side)) for side in ("source", "target_out"))
            hidden += int(np.isin(one.source.numpy(), training.data.source.placeholders).any())
    assert 0 < hidden < 12
    assert resumed.progress == training.progress


def test_weighted_corpora_depend_on_the_epoch_alone(tiny: Tiny, tmp_path: Path) -> None:
    """Guards the exact resume and the number of updates where some pairs are seen more often than others."""
    other = write_tsv(tmp_path / "other.tsv", [(f"{a} {a}", f"{b} {b}") for a, b in tiny_pairs(60, seed=5)])
    corpora = f"0.5 * {tiny().data.train} + 2.5 * {other}"
    subwords = {"tokenizer__kind": "bpe", "tokenizer__vocab_size": 300}
    training, resumed = (training_of(tiny(data__train=corpora, **subwords)) for _ in range(2))
    weights = training.data.weights
    assert weights is not None
    for epoch in range(3):
        plan = training.planner.plan(training.config.training.batch_tokens, epoch)
        times = np.bincount(np.concatenate(plan), minlength=len(weights))
        assert len(plan) == training.batches_in_epoch
        assert times[weights == 0.5].mean() == pytest.approx(0.5, abs=0.02)
        assert set(times[weights == 2.5]) == {2, 3}
    assert all(
        np.array_equal(*rows)
        for rows in zip(
            *(each.planner.plan(each.config.training.batch_tokens, 2) for each in (training, resumed)), strict=True
        )
    )


@pytest.mark.parametrize(
    "settings",
    [{"training__optimizer": "muon"}, {"training__placeholders": 0.3}],
    ids=["muon", "placeholders"],
)
def test_a_killed_run_resumes_exactly(tiny: Tiny, settings: dict[str, object]) -> None:
    """Guards the state of each part of a recipe, and randomness that depends on more than the seed and the step."""
    once, twice = (tiny(run__name=name, **settings, training__max_epochs=2) for name in ("once", "twice"))
    assert run(once) == 0
    assert harness.run(twice, after_step(9, die)) == -signal.SIGKILL
    assert harness.run(twice) == 0
    assert outcome(twice) == outcome(once)


@pytest.mark.parametrize(
    ("settings", "warning"),
    [
        ({"training__decay_share": 0.5, "training__schedule": "constant"}, "training.decay_share has no effect"),
        ({"training__fsdp": True}, "training.fsdp has no effect"),
        ({"training__decay_share": 0.5}, None),
    ],
)
def test_settings_without_effect_give_a_warning(
    tiny: Tiny, settings: dict[str, object], warning: str | None, capfd: pytest.CaptureFixture
) -> None:
    """Warns users who expect an effect of a setting that has none here."""
    checks.describe_training(training_of(tiny(**settings)))
    said = capfd.readouterr().out
    assert (warning in said) if warning else ("no effect" not in said)


def test_a_failure_leaves_no_thread(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against a process that cannot end, or that keeps making batches that are not used."""
    training = training_of(tiny())
    seen: list[int] = []

    def spoilt(*arguments: Any) -> Loss:
        seen.append(threading.active_count())
        loss = batch_loss(*arguments)
        return Loss(loss.smoothed * torch.nan, loss.plain)

    with monkeypatch.context() as patch:
        patch.setattr(prefetch, "prefetched", lambda items, _: prefetched(items, 3))
        patch.setattr(train, "batch_loss", spoilt)
        with pytest.raises(errors.NumericalError):
            train.training_loop(training, Stop())
    assert training.writer
    training.writer.close()
    assert threading.active_count() < seen[0] - 1, "neither this thread nor the writer's is left"


def test_the_learning_rate_falls_to_zero_when_the_time_is_up(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards training.max_minutes: a schedule by steps alone would be cut off at its peak, or restart after a stop."""
    now = count(start=0.0, step=0.02)  # seconds; each look at the clock takes one step
    monkeypatch.setattr(time, "perf_counter", lambda: next(now))
    limit = {"training__max_minutes": 0.2, "training__max_epochs": None, "training__log_every": 1}
    config = tiny(**limit, training__validate_every=1000, training__save_every=1000)
    assert run_command("train", replace(config, training=replace(config.training, max_minutes=0.1))) == 0
    assert run_command("train", config) == 0
    events = EventAccumulator(str(harness.directory(config))).Reload()
    rates = [(point.step, point.value) for point in events.Scalars("training/learning_rate")]
    assert [step for step, _ in rates] == list(range(1, len(rates) + 1))
    values = [value for _, value in rates]
    [extended] = [i for i in range(5, len(values)) if values[i] > values[i - 1]]  # where the limit was raised
    assert values[extended - 1] < 0.02 * config.training.lr
    assert values[-1] < 0.02 * config.training.lr
    assert values[extended] == pytest.approx(config.training.lr * 0.5, rel=0.1), "half of the longer time was left"


def test_a_validation_does_not_use_up_the_last_of_the_time(tiny: Tiny) -> None:
    """A long validation just before the end must not cut off the fall of the learning rate."""
    training = training_of(tiny(training__max_minutes=1.0))
    training.progress.seconds = 50.0
    assert validation.has_time(training), "none was measured yet"
    for seconds, has_time in ((9.0, True), (11.0, False)):
        training.progress.validation_seconds = seconds
        assert validation.has_time(training) == has_time


@pytest.mark.parametrize("schedule", ["linear", "constant", "inverse_sqrt"])
def test_a_warmup_that_the_clock_ended_stays_over_without_it(tiny: Tiny, schedule: str) -> None:
    """Guards a run whose time limit is removed: its rate once fell to a quarter and rose for thousands of updates."""
    limits: dict[str, Any] = {"max_minutes": None, "max_steps": 10_000, "max_epochs": None}
    training = training_of(tiny(training__warmup_steps=4000, training__schedule=schedule, **named("training", limits)))
    training.progress = Progress(step=1000, warm_steps=200)
    rates = [training.learning_rate(step) for step in (1001, 2000, 4000, 6000)]
    assert rates == sorted(rates, reverse=True)
    assert 0.85 < rates[0] / training.config.training.lr <= 1


def test_a_warmup_that_is_too_long_gives_a_warning(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    """Guards the advice: it must name the limit that ends this run, and is not needed if the clock ends the warm-up."""
    for limits, expected in (
        ({"max_steps": 60, "max_epochs": 1000}, "raise training.max_steps."),
        ({"max_epochs": 2}, "raise training.max_epochs."),
        ({"max_epochs": 2, "max_minutes": 1.0, "schedule": "linear"}, None),
    ):
        capsys.readouterr()
        checks.describe_training(training_of(tiny(training__warmup_steps=200, **named("training", limits))))
        said = capsys.readouterr().out
        assert ("warmup_steps is 200" in said) == bool(expected)
        assert expected is None or expected in said


def named(section: str, settings: dict[str, Any]) -> dict[str, Any]:
    return {f"{section}__{key}": value for key, value in settings.items()}


def test_training_continues_when_the_reader_of_its_output_ends(tiny: Tiny) -> None:
    """Guards `train.py | head`, which once ended with the message of a full disk, and saved nothing."""

    config = tiny(training__max_steps=5)

    def unread() -> int:
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, 1)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # pytest has its own there
        return run_command("train", config)

    assert in_child(unread) == 0
    assert (harness.directory(tiny()) / "result.json").exists()


@pytest.mark.parametrize(
    ("losses", "advice"),
    [
        ([(3.0, 3.0), (2.0, 2.0), (2.1, 1.9), (2.2, 1.8), (2.3, 1.7)], "model.dropout"),
        ([(3.0, 3.0), (4.0, 4.0), (5.0, 5.0), (6.0, 6.0)], "training.lr"),
        ([(2.0, 2.0), (2.1, 1.9), (2.2, 1.8), (2.15, 1.7), (2.3, 1.6)], ""),
        ([(2.0, 2.0), (2.1, 1.9), (2.2, 1.8)], ""),
    ],
)
def test_a_rising_validation_loss_names_a_setting(losses: list[tuple[float, float]], advice: str) -> None:
    """A run that gets worse gets advice, and a good one does not."""
    said = validation.advise(losses)
    assert (advice in said) if advice else (said == "")


def test_a_run_with_averaged_weights_resumes_with_its_own(tiny: Tiny) -> None:
    """Checkpoints of older versions may hold a moving average in model.safetensors, and the weights beside it."""
    config = tiny(training__max_steps=3)
    assert run(config) == 0
    saved = checkpoint.newest(harness.directory(config) / "checkpoints", quarantine=False, warn=print)
    assert saved is not None
    training = training_of(config)
    saving.restore(training, saved)
    own = {name: weight + 1 for name, weight in training.model.state_dict().items()}
    state = tensors.tensors_bytes({**tensors.load_tensors(saved.files["training.pt"]), "weights": own})
    saving.restore(training, replace(saved, files={**saved.files, "training.pt": state}))
    assert all(torch.equal(weight, own[name]) for name, weight in training.model.state_dict().items())


@pytest.mark.parametrize("cut", [1, 2, 5])
def test_update_does_not_depend_on_how_the_batch_is_split(tiny: Tiny, cut: int) -> None:
    """Guards against the classic accumulation bug: the mean of batch means favours the short batch."""
    config = tiny(model__dropout=0.0)
    updated = []
    for pieces in ([range(6)], [range(cut), range(cut, 6)]):
        training = training_of(config)
        # Not Adam, which turns a gradient of pure rounding errors into a full step.
        training.optimizer = torch.optim.SGD(training.model.parameters())
        batches = [dataset.make_batch(training.data.train, np.array(piece)) for piece in pieces]
        train.train_step(training, batches)
        updated.append(training.model.state_dict())
    torch.testing.assert_close(updated[0], updated[1], rtol=1e-5, atol=1e-7)


def test_a_changed_weight_decay_takes_effect(tiny: Tiny) -> None:
    """Guards against an optimizer state that restores old settings along with the moments."""
    assert run(tiny(training__max_steps=5)) == 0
    assert run(tiny(training__max_steps=8, training__weight_decay=0.1)) == 0
    last = checkpoint.newest(Path(tiny().run.dir) / "tiny" / "checkpoints", quarantine=False, warn=pytest.fail)
    assert last is not None
    groups = tensors.load_tensors(last.files["training.pt"])["optimizer"]["param_groups"]
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]


def test_patience_ends_a_run_that_no_longer_improves(tiny: Tiny, capfd: pytest.CaptureFixture) -> None:
    """Guards early stopping, and that the count survives a resume. The rate is too small to change a weight."""
    config = tiny(training__lr=1e-30, training__validate_every=2, training__patience=3, training__max_epochs=50)
    assert harness.run(config, after_step(7, die)) == -signal.SIGKILL
    assert harness.run(config) == 0
    assert "training.patience (3)" in capfd.readouterr().out
    assert outcome(config)[1]["progress"]["step"] == 8  # best at 2; 4, 6 and 8 are no better


@pytest.mark.parametrize("damage", ["missing", "empty", "ragged", "latin-1"])
def test_bad_data_gives_one_line(tiny: Tiny, tmp_path: Path, damage: str, capfd: pytest.CaptureFixture) -> None:
    """Guards a new user's first minute: exit code 3, one line that names the file, no traceback, no run."""
    corpus = tmp_path / "bad.tsv"
    match damage:
        case "empty":
            corpus.write_bytes(b"")
        case "ragged":
            corpus.write_bytes(b"the cat\til gatto\nthe dog\n")
        case "latin-1":
            corpus.write_bytes("perché\twhy\n".encode("latin-1"))
    assert run(tiny(data__train=corpus)) == 3
    error = capfd.readouterr().err
    assert "error: " in error
    assert error.count("\n") == 1
    assert "bad.tsv" in error
    if damage == "missing":
        assert not Path(tiny().run.dir).exists(), "a mistyped path leaves nothing behind"


def test_a_run_learns_and_writes_all_its_files(learned: Config) -> None:
    """The model learns a word-for-word language, and all files are written."""
    directory = harness.directory(learned)
    result = serialization.load_json((directory / final_report.RESULT).read_bytes())
    assert result["test"]["bleu"] > 50
    assert result["test"]["signature"].startswith("nrefs:1")
    kept = checkpoint.steps(directory / "checkpoints")
    assert 2 <= len(kept) <= 3
    assert {path.name for path in kept[0].iterdir()} == {
        "model.safetensors", "config.yaml", "source.tokenizer.json", "target.tokenizer.json", "training.pt",
        "trained_on.json",
        "source.conventions.json",
        "target.conventions.json",
        "state.json", "manifest.json",
    }  # fmt: skip
    events = EventAccumulator(str(directory)).Reload().Tags()
    tags = set(events["scalars"])
    scores = ["bleu", "cer", "chrf", "perplexity_train", "perplexity_validation", "wer"]
    assert sorted(tag for tag in tags if tag.startswith(("loss/", "score/"))) == [
        "loss/train", "loss/validation", *(f"score/{name}" for name in scores)
    ], "the first screen of TensorBoard shows loss and BLEU"  # fmt: skip
    named = ("learning_rate", "gradient_norm", "padding", "epoch", "smoothed_loss")
    assert {f"training/{name}" for name in named} <= tags
    assert {"speed/tokens_per_second", "speed/validation"} <= tags
    groups = sorted({tag.partition("/")[0] for tag in tags})
    assert groups[:2] == ["loss", "score"], "TensorBoard shows the first groups unfolded"
    assert "under the hood/attention" in events["images"]
    assert any("samples" in tag for tag in events["tensors"])
    assert sorted((directory / "samples").iterdir())
    assert "\t" in (directory / "report" / "test.tsv").read_text(encoding="utf-8")


def test_float16_needs_cuda(tiny: Tiny, capfd: pytest.CaptureFixture) -> None:
    """Guards against a run that is slow and wrong instead of being refused."""
    assert run(tiny(training__precision="float16")) == 2
    assert "precision float16" in capfd.readouterr().err
    assert not Path(tiny().run.dir).exists()


def test_points_are_in_a_table_too(tiny: Tiny, tmp_path: Path) -> None:
    """Guards metrics.csv, which other programs read, when the log is opened again."""
    tensorboard.open_board(tmp_path, 0, tiny()).close()
    with tensorboard.reopened(tmp_path, Config()) as writer:
        writer.add_scalar("loss/train", 1.25, 1)
    assert (tmp_path / "metrics.csv").read_text(encoding="utf-8") == "step,tag,value\n1,loss/train,1.25\n"


CHINESE = dict(
    zip(["the", "cat", "dog", "sees", "a", "bird", "in", "house", "eats", "fish"], "那猫狗看一鸟在家吃鱼", strict=True)
)


@pytest.mark.parametrize(("tokenize", "zero"), [("auto", False), ("13a", True)])
def test_the_best_weights_are_chosen_in_every_language(
    tiny: Tiny, tmp_path: Path, tokenize: str, zero: bool, capfd: pytest.CaptureFixture
) -> None:
    """Guards a run whose BLEU is always 0, since each line is one word: the first checkpoint would stay the best."""
    draw = random.Random(1)
    sources = [draw.choices(list(CHINESE), k=draw.randint(5, 9)) for _ in range(300)]
    pairs = [(" ".join(words), "".join(map(CHINESE.__getitem__, words))) for words in sources]
    corpus = write_tsv(tmp_path / "corpus" / "zh.tsv", pairs)
    config = tiny(
        data__train=corpus, data__target_lang="zh", data__bleu_tokenize=tokenize, training__max_epochs=5,
        tokenizer__kind="bpe", tokenizer__vocab_size=300, data__check_languages=False,
    )  # fmt: skip
    assert run(config) == 0
    said = capfd.readouterr().out
    lines = [line for line in said.splitlines() if "validation loss" in line]
    best = [line for line in lines if line.endswith("(best so far)")]
    assert best[-1] != lines[0], "the model learns"
    assert ("BLEU 0.00" in best[-1]) == zero
    result = json.loads((harness.directory(config) / "result.json").read_bytes())
    name = "zh" if tokenize == "auto" else tokenize
    assert f"step {result['validation']['step']}, " in best[-1]
    assert f"tok:{name}" in result["test"]["signature"]
    assert f"bleu_tokenize: {name}" in (harness.directory(config) / "config.yaml").read_text()


def test_a_run_keeps_its_tokenization(tiny: Tiny, capfd: pytest.CaptureFixture) -> None:
    """Guards an old run against another BLEU, by which its best weights would no longer be the best."""
    thai = {"data__target_lang": "th", "data__check_languages": False}
    assert run(tiny(**thai, data__bleu_tokenize="13a", training__max_steps=10)) == 0
    folder = harness.directory(tiny())
    saved = checkpoint.steps(folder / "checkpoints")[0]
    state = json.loads((saved / "state.json").read_bytes())
    assert state["progress"].pop("best_chrf") > 0
    state["progress"].pop("best_loss")
    old: Any = SimpleNamespace(files={"state.json": json.dumps(state).encode()})
    assert progress_of(old).best_chrf == -1
    assert run(tiny(**thai, training__max_steps=20)) == 0
    assert "bleu_tokenize: 13a" in (folder / "config.yaml").read_text()
    assert "bleu_tokenize" not in capfd.readouterr().out
