"""Tests of training.init_from: what a run takes from another model, what it refuses, and its final report."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import tiny_config, tiny_pairs, write_tsv
from dragoman import check, checkpoint, serialization, tensors
from dragoman.evaluation import validation_loss
from dragoman.setting_types import shown
from dragoman.settings import Config
from dragoman.training import final_report
from dragoman.translation.loading import find_checkpoint
from faults import harness
from faults.harness import after_step, die, outcome

Make = Callable[..., Config]

BRIEF = {"training__max_epochs": None, "training__max_steps": 12, "training__warmup_steps": 0, "training__lr": 0.002}


@pytest.fixture
def domain(tmp_path: Path, learned: Config) -> Make:
    """A run on other pairs, where a word has another meaning; it starts from a copy of the general run."""
    other = tmp_path / "runs" / "general"
    shutil.copytree(harness.directory(learned), other)
    pairs = [(a, b.replace("gatto", "cane")) for a, b in tiny_pairs(200, seed=7)]
    corpus = write_tsv(tmp_path / "corpus" / "domain.tsv", pairs)
    settings = {"run__name": "domain", "data__train": corpus, "training__init_from": other, **BRIEF}
    return lambda **changes: tiny_config(tmp_path, **(settings | changes))


def result(config: Config) -> dict:
    return serialization.load_json((harness.directory(config) / final_report.RESULT).read_bytes())


def first_validation(config: Config) -> dict[str, float]:
    """The points of the curves at step 0."""
    curves = harness.curves(harness.directory(config))
    return {tag: points[0][1] for tag, points in curves.items() if points[0][0] == 0}


def test_the_corpus_check_knows_whose_vocabulary_is_used(domain: Make) -> None:
    """Guards against advice about tokenizers that this run will not use."""
    pairs = [(f"zork{n} {a}", b) for n, (a, b) in enumerate(tiny_pairs(200, seed=7))]
    config = domain(data__train=write_tsv(Path(domain().run.dir).parent / "corpus" / "words.tsv", pairs))
    settings = check.check_corpus(config).settings
    assert [setting.key for setting in settings if setting.key.startswith(("tokenizer", "training.init"))] == [
        "training.init_from"
    ]
    fresh = check.check_corpus(replace(config, training=replace(config.training, init_from=None))).settings
    assert "tokenizer.kind" in [setting.key for setting in fresh]


def test_a_preparation_knows_whose_vocabulary_is_used(domain: Make, capfd: pytest.CaptureFixture) -> None:
    """Guards against advice to set tokenizer.kind in a run where it has no effect."""
    pairs = [(f"zork{n} {a}", f"zork{n} {b}") for n, (a, b) in enumerate(tiny_pairs(200, seed=7))]
    corpus = write_tsv(Path(domain().run.dir).parent / "corpus" / "words.tsv", pairs)
    fresh = {"run__name": "fresh", "training__init_from": None}
    for changes, remedy, other in ({}, "init_from", "tokenizer.kind"), (fresh, "tokenizer.kind", "init_from"):
        assert harness.run(domain(data__train=corpus, **changes)) == 0
        warnings = [line for line in capfd.readouterr().out.splitlines() if "tokens are unknown and will" in line]
        assert warnings
        assert all(remedy in line and other not in line for line in warnings)


def test_training_starts_from_exactly_that_model(domain: Make, capfd: pytest.CaptureFixture) -> None:
    """Guards against new tokenizers, which would give each weight another word; weights of the newest checkpoint
    instead of the best; random weights, which start from BLEU 0."""
    config = domain()
    root = Path(config.training.init_from or "") / "checkpoints"
    best = checkpoint.read(checkpoint.steps(root)[1])
    checkpoint.set_best(root, best.step)
    assert harness.run(config, after_step(1, die)) == -signal.SIGKILL
    said = capfd.readouterr().out
    assert "step 0, " in said
    first = checkpoint.read(checkpoint.step_directory(harness.checkpoints(config), 0))
    for name in ("model.safetensors", "source.tokenizer.json", "target.tokenizer.json"):
        assert first.files[name] == best.files[name], name
    assert not tensors.load_tensors(first.files["training.pt"])["optimizer"]["state"], "no moments yet"
    prepared = (harness.directory(config) / "data" / "target.tokenizer.json").read_bytes()
    assert prepared == best.files["target.tokenizer.json"]
    fresh = domain(run__name="fresh", training__init_from=None, training__validate_every=1, training__max_steps=1)
    assert harness.run(fresh) == 0
    before = first_validation(config)
    after_one = harness.curves(harness.directory(fresh))
    assert before["score/bleu"] > 10 + after_one["score/bleu"][0][1]
    assert before["loss/validation"] < after_one["loss/validation"][0][1]
    assert first_validation(fresh) == {}, "random weights need no validation"


def test_the_result_shows_what_was_gained_and_lost(domain: Make, capfd: pytest.CaptureFixture) -> None:
    """Guards against a report that hides forgetting, or a "before" of other weights or other pairs."""
    config = domain(training__max_steps=40)
    assert harness.run(config) == 0
    found = result(config)
    assert found["init_from"]["path"] == config.training.init_from
    old = found["init_from"]["old_test"]
    before = result_of_other(config)["test"]
    assert (old["pairs"], old["bleu_before"]) == (before["pairs"], pytest.approx(before["bleu"]))
    assert old["signature"].startswith("nrefs:1")
    assert found["validation"]["step"] > 0
    assert old["bleu_after"] != old["bleu_before"]
    assert found["test"]["pairs"] != old["pairs"], "the test set of this run is reported as usual"
    [line] = [line for line in capfd.readouterr().out.splitlines() if line.startswith("started from ")]
    first_bleu = outcome(config)[1]["progress"]["first_bleu"]
    assert first_bleu == pytest.approx(first_validation(config)["score/bleu"])
    assert f"validation BLEU {first_bleu:.2f} before, {found['validation']['bleu']:.2f} after" in line
    assert f"BLEU {old['bleu_before']:.2f} before, {old['bleu_after']:.2f} after" in line


def result_of_other(config: Config) -> dict:
    return serialization.load_json((Path(config.training.init_from or "") / final_report.RESULT).read_bytes())


def test_a_model_that_only_gets_worse_is_kept(domain: Make) -> None:
    """Guards against a run that ends with a worse model than it started from, and calls it the best."""
    config = domain(training__lr=3.0, training__validate_every=4)
    assert harness.run(config) == 0
    best = checkpoint.get_best(harness.checkpoints(config))
    assert best is not None
    assert best["step"] == 0
    old = result(config)["init_from"]["old_test"]
    assert old["bleu_after"] == old["bleu_before"]


@pytest.mark.parametrize("step", [3, 9])
def test_resumed_without_the_other_run_equals_uninterrupted(domain: Make, step: int) -> None:
    """Guards the exact resume of a run killed before or after its second checkpoint, when the other run and the
    prepared data are gone."""
    once, twice = domain(run__name="once"), domain(run__name="twice")
    assert harness.run(once) == 0
    assert harness.run(twice, after_step(step, die)) == -signal.SIGKILL
    shutil.rmtree(str(twice.training.init_from))
    shutil.rmtree(harness.directory(twice) / "data")
    assert harness.run(twice) == 0
    assert outcome(twice) == outcome(once)
    assert result(twice)["init_from"] == {"path": twice.training.init_from}
    assert result(twice)["test"] == result(once)["test"]


def test_a_signal_during_the_first_validation_loses_nothing(domain: Make) -> None:
    """Guards a stop at step 0, after which the other model would count as validated."""
    once, twice = domain(run__name="once"), domain(run__name="twice")
    assert harness.run(once) == 0
    ask = harness.wrap(validation_loss, "mean_loss", harness.at(1, harness.signal_oneself(signal.SIGTERM)))
    assert harness.run(twice, ask) == 143
    assert [path.name for path in checkpoint.steps(harness.checkpoints(twice))] == ["step-00000000"]
    assert harness.run(twice) == 0
    assert outcome(twice) == outcome(once)


def refused(config: Config, code: int, capfd: pytest.CaptureFixture) -> str:
    """The line with which a run is refused; it must leave nothing behind."""
    capfd.readouterr()
    before = harness.tree(Path(config.run.dir))
    assert harness.run(config) == code
    error = capfd.readouterr().err
    assert "error: " in error
    assert error.count("\n") == 1
    assert harness.tree(Path(config.run.dir)) == before
    return error


@pytest.mark.parametrize(
    ("setting", "value", "old"),
    [
        ("model__d_model", 64, "32"),
        ("model__norm", "post", "pre"),
        ("model__activation", "gelu", "relu"),  # the shapes agree, but not the function
        ("data__target_lang", "fr", "it"),
        ("data__source_lang", "de", "en"),
        ("model__kv_heads", 1, "null"),
        ("model__attention_bias", False, "true"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(
    domain: Make, setting: str, value: object, old: str, capfd: pytest.CaptureFixture
) -> None:
    """Guards against weights used in another model, and errors that only name tensors."""
    error = refused(domain(**{setting: value}), 2, capfd)
    assert f"{setting.replace('__', '.')} is {shown(value)}, but {old} in the model" in error
    assert f"set it to {old}, or training.init_from to null" in error


def test_everything_that_does_not_fit_is_named_at_once(domain: Make, capfd: pytest.CaptureFixture) -> None:
    """Guards against a new refusal for each setting that the user fixes."""
    error = refused(domain(model__d_model=64, model__norm="post"), 2, capfd)
    assert "model.d_model is 64, but 32, model.norm is post, but pre in the model that" in error
    assert "set them as in that model, or training.init_from to null" in error


def test_a_model_that_cannot_be_used_is_refused(domain: Make, capfd: pytest.CaptureFixture) -> None:
    """Guards against a run that starts with random or damaged weights when another model was asked for."""
    config = domain()
    other = Path(config.training.init_from or "")
    missing = refused(domain(training__init_from=other.with_name("genral")), 4, capfd)
    assert "genral holds no checkpoint" in missing
    assert str(other) in missing
    [damaged, *_] = checkpoint.steps(other / "checkpoints")
    harness.flip_a_bit(damaged / "model.safetensors")
    assert "sha256" in refused(domain(training__init_from=damaged), 4, capfd)
    for path in checkpoint.steps(other / "checkpoints"):
        (path / "model.safetensors").unlink(missing_ok=True)
    assert harness.run(config) == 4
    assert not harness.directory(config).exists()


def test_a_tokenizer_setting_gives_a_warning_and_dropout_may_differ(domain: Make, capfd: pytest.CaptureFixture) -> None:
    """Guards against ignoring a tokenizer setting silently, and against refusing another dropout. The folder of a
    checkpoint works like that of a run, but has no test set."""
    config = domain(tokenizer__kind="bpe", tokenizer__vocab_size=300, model__dropout=0.3, data__max_length=50)
    best = find_checkpoint(Path(config.training.init_from or "")).path
    config = domain(tokenizer__kind="bpe", model__dropout=0.3, data__max_length=50, training__init_from=best)
    assert harness.run(config) == 0
    said = capfd.readouterr().out
    assert f"tokenizer.kind has no effect: the tokenizers are those of {best}\n" in said
    assert result(config)["init_from"] == {"path": str(best)}


def test_another_model_for_a_started_run_is_refused(domain: Make, capfd: pytest.CaptureFixture) -> None:
    """Guards against a command that seems to load a model, but continues without it."""
    fresh = domain(training__init_from=None, training__max_steps=2)
    assert harness.run(fresh) == 0
    assert "training.init_from was null and is " in refused(domain(), 2, capfd)


def test_a_language_model_starts_from_another(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    """Guards the path through the report without translations to score."""
    text = {"data__source_lang": None, "tokenizer__shared": True, "model__architecture": "decoder-only", **BRIEF}
    first = tiny_config(tmp_path, run__name="first", **text)
    assert harness.run(first) == 0
    second = tiny_config(tmp_path, run__name="second", **text, training__init_from=harness.directory(first))
    assert harness.run(second) == 0
    assert "step 0, 0.0 min: validation loss" in capfd.readouterr().out
    assert result(second)["init_from"] == {"path": second.training.init_from}
