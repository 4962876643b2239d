"""Every shipped architecture, from its config to a translation, and after a stop and a resume."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from conftest import ROOT, tiny_pairs, write_tsv
from dragoman import command_line, config_file, train
from dragoman.__main__ import run as run_command
from dragoman.architectures import ctc
from dragoman.architectures.summary import describe_model
from dragoman.command_line import override
from dragoman.corpora import preparation
from dragoman.corpora.selection import fits_upsampling
from dragoman.errors import ConfigError, DataError
from dragoman.settings import Config
from dragoman.translation.constraints import length_limit
from dragoman.translation.translator import Translator

CONFIGS = sorted((ROOT / "configs" / "architectures").glob("*.yaml"))
SHORT = [
    "--training.max_steps=3", "--training.max_epochs=null", "--training.validate_every=3", "--training.warmup_steps=1",
    "--training.device=cpu", "--training.precision=float32", "--training.batch_tokens=200",
    "--decoding.max_length=8", "--data.max_length=12",
]  # fmt: skip
Tiny = Callable[..., Config]


def loaded(path: Path, *settings: str) -> Config:
    return override(config_file.load(path), settings)


@pytest.mark.slow
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_architecture_trains_and_translates(path: Path, tmp_path: Path) -> None:
    """Runs every config end to end: bundled corpus, updates, validation, checkpoint, report, translation."""
    config = loaded(path, *SHORT, f"--run.dir={tmp_path}")
    assert config.run.name == path.stem, "two configs would share a run"
    assert run_command("train", config) == 0
    result = json.loads((tmp_path / path.stem / "result.json").read_text())
    translator = Translator(tmp_path / path.stem, "cpu")
    if config.is_language_model:
        assert result["test"]["perplexity"] < 1.2 * len(translator.target)
        assert translator.translate(["La vecchia", ""])[0].startswith("La vecchia")
    else:
        assert result["test"]["pairs"] == 500
        assert len(translator.translate(["The black cats are drinking the milk.", ""])) == 2
    vectors = translator.embed(["The black cats are drinking the milk.", "", "Where is it?"])
    assert vectors.shape == (3, config.model.d_model)
    assert vectors[0].norm() > 0
    assert not torch.equal(vectors[0], vectors[2])


VARIANTS: dict[str, dict[str, object]] = {
    "decoder-only": {"model__architecture": "decoder-only", "model__positions": "learned"},
    "encoder-only": {"model__architecture": "encoder-only"},
    "language model": {
        "model__architecture": "decoder-only", "data__source_lang": None, "tokenizer__shared": True,
    },
    "rotary": {"model__positions": "rotary", "model__kv_heads": 1},
    "learned": {"model__positions": "learned", "model__activation": "swiglu", "model__norm_kind": "rms"},
    "none": {"model__positions": "none", "model__activation": "gelu", "model__attention_bias": False},
}  # fmt: skip


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_resumed_run_equals_uninterrupted_one(changes: dict[str, object], tiny: Tiny) -> None:
    """Guards against weights missing from a checkpoint, and random numbers that differ after a stop."""
    weights = []
    for name, stops in (("whole", [9]), ("stopped", [4, 9])):
        for steps in stops:
            limits = {"training__max_steps": steps, "training__max_epochs": None, "training__schedule": "constant"}
            assert run_command("train", tiny(run__name=name, **limits, **changes)) == 0
        [folder] = Path(tiny().run.dir, name, "checkpoints").glob("step-*9")
        weights.append((folder / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]


# The BLEU to reach in 640 updates on word-by-word translations of random sentences. One processor reached 50, 100,
# 100, 10 and 10. Their order takes absolute positions; rotary ones give only distances.
LEAST = {"decoder-only": 15, "encoder-only": 60, "learned": 60, "rotary": 4, "none": 1}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in ("learned", "none"))) for name in VARIANTS]
)
def test_architecture_learns(name: str, tiny: Tiny) -> None:
    """Guards against a model that runs but learns nothing: a wrong mask, a wrong loss."""
    config = tiny(**VARIANTS[name], training__max_epochs=20, training__accumulate=1, training__validate_every=160)
    assert run_command("train", config) == 0
    result = json.loads((Path(config.run.dir) / config.run.name / "result.json").read_text())
    if config.is_language_model:  # words are random, one of 14; only the full stop and the end are predictable
        assert result["test"]["perplexity"] < 11
    else:
        assert LEAST[name] < result["validation"]["bleu"]
    if name == "none":
        assert result["validation"]["bleu"] < 40, "without positions, the order is a guess"


def test_encoder_only_refuses_search_settings_and_prefixes(tiny: Tiny) -> None:
    """Guards against settings and prefixes that an encoder-only model would silently ignore."""
    config = tiny(model__architecture="encoder-only", training__max_epochs=1)
    for changes in ({"beam_size": 4}, {"sample": True}, {"no_repeat_ngram": 3}):
        with pytest.raises(ConfigError, match="does not search"):
            replace(config, decoding=replace(config.decoding, **changes))
    assert run_command("train", config) == 0
    translator = Translator(Path(config.run.dir) / config.run.name, "cpu")
    with pytest.raises(ConfigError, match="all words at once"):
        translator.explain([translator.request("the cat sees the dog.", prefix="il")])


def test_encoder_only_scores_equal_those_of_its_search(tiny: Tiny) -> None:
    """Guards --score: it must follow the path that the translation was read from."""
    config = tiny(model__architecture="encoder-only")
    assert run_command("train", config) == 0
    translator = Translator(Path(config.run.dir) / config.run.name, "cpu", ["--decoding.unknown", "keep"])
    texts = ["the cat sees the dog.", "this black dog wants bread."]
    translations = translator.with_alignments(translator.explain(texts))
    for text, translation in zip(texts, translations, strict=True):
        [found] = translation.sentences[0].candidates
        [scored] = translator.score([(text, found.text)])
        assert scored.ids == found.ids
        assert scored.score == pytest.approx(found.score, rel=1e-3)
        assert scored.log_probs == pytest.approx(found.log_probs, rel=1e-2, abs=1e-3)
        assert len(found.alignment or []) == len(found.ids)
    with pytest.raises(DataError, match="does not fit into the places"):
        translator.score([("the cat.", "il gatto vede il cane e il gatto.")])
    assert translator.score([("the cat.", "")])[0].ids == []


def test_text_beyond_the_learned_positions_is_refused(tiny: Tiny) -> None:
    """Guards the end of the table: no IndexError during a translation, and no target that runs past it."""
    settings = {"model__positions": "learned", "model__max_positions": 14, "data__max_length": 12}
    config = tiny(**settings, training__max_epochs=1)
    assert run_command("train", config) == 0
    run = Path(config.run.dir) / config.run.name
    plain = tiny(run__name="plain", training__max_epochs=1)
    assert run_command("train", plain) == 0
    for paths in (run, [Path(config.run.dir) / "plain", run]):
        translator = Translator(paths, "cpu")
        [translation] = translator.explain([translator.request("the cat sees the dog.", prefix="il gatto " * 6)])
        [sentence] = translation.sentences
        [best] = sentence.candidates
        assert len(best.ids) in (12, 13)
        assert length_limit(translator.trained, len(sentence.ids), 0) == 13, "one position is left for attention"
        assert translator.attention(sentence, replace(best, ids=best.ids[:12], complete=True)).shape[2] == 13
        with pytest.raises(DataError, match=r"text 8: .* longer than the positions"):
            translator.score([("the cat", "il gatto"), ("the cat", "il gatto " * 20)], first=7)
        with pytest.raises(DataError, match="prefix of 20 tokens"):
            translator.explain([translator.request("the cat", prefix="il gatto " * 10)])
    with pytest.raises(ConfigError, match=r"max_positions is 12.* need 13"):
        tiny(**settings | {"model__max_positions": 12})
    with pytest.raises(ConfigError, match=r"max_positions is 14.* need 26"):
        tiny(**settings, model__architecture="decoder-only")
    with pytest.raises(ConfigError, match=r"max_positions is 13.* need 14"):
        tiny(**settings | VARIANTS["language model"] | {"model__positions": "learned", "model__max_positions": 13})


@pytest.mark.parametrize("split", ["validation", "test"])
def test_held_out_pairs_that_do_not_fit_stop_the_run_at_once(
    split: str, tiny: Tiny, capsys: pytest.CaptureFixture
) -> None:
    """Guards against a failure after hours of training: data.max_length limits only the training pairs."""
    config = tiny()
    long = write_tsv(
        Path(config.run.dir) / "long.tsv", [("the cat.", "il gatto."), ("the cat " * 15, "il gatto " * 15)]
    )
    learned = {"model__positions": "learned", "model__max_positions": 21, "data__max_length": 20}
    assert run_command("train", tiny(**learned, **{f"data__{split}": long})) == 3
    assert f"the longest {split} pair needs 31 positions" in capsys.readouterr().err
    assert not list(Path(config.run.dir, "tiny").glob("checkpoints/*"))


def test_targets_too_long_for_their_places_are_reported(tiny: Tiny, capsys: pytest.CaptureFixture) -> None:
    """Guards CTC, whose loss is 0 for a target without a path: a good loss, but nothing learned."""
    config = tiny(model__architecture="encoder-only", training__max_steps=2, training__warmup_steps=0)
    corpus = Path(config.data.train)
    short = [(" ".join(a.split()[:1]), b) for a, b in tiny_pairs(300)]
    write_tsv(corpus, [*tiny_pairs(200, seed=1), *short])
    assert run_command("train", config) == 0
    said = capsys.readouterr().out
    assert "training pairs the target is longer than model.upsampling (2)" in said
    data = preparation.load(Path(config.run.dir) / "tiny" / "data")
    places = 2 * data.train.source.lengths
    wanted = [
        ctc.needed(data.train.target.ids[a:b].tolist()) <= room
        for a, b, room in zip(data.train.target.offsets, data.train.target.offsets[1:], places, strict=False)
    ]
    found = fits_upsampling(data.train, 2)
    assert found.tolist() == wanted
    assert 0 < found.sum() < len(found)
    write_tsv(corpus, [(f"w{i}", "il gatto vede il cane e il gatto nero.") for i in range(99)])
    assert run_command("train", replace(config, run=replace(config.run, name="none"))) == 3
    assert "every one of the training pairs" in capsys.readouterr().err


def test_a_language_model_continues_its_text(tiny: Tiny, capsys: pytest.CaptureFixture) -> None:
    """Guards the missing source: the beginning is kept, scores are those of the text, and nothing is aligned."""
    config = tiny(**VARIANTS["language model"])
    assert run_command("train", config) == 0
    assert "perplexity" in capsys.readouterr().out
    run = Path(config.run.dir) / config.run.name
    translator = Translator(run, "cpu", ["--decoding.sample", "true", "--decoding.max_length", "5"])
    begun = ["il gatto vede", "zzz il", "", "la", "il gatto", "il cane"]
    texts = translator.translate(begun)
    assert texts[0].startswith(begun[0])
    assert texts[1].startswith(begun[1]), "an unknown word is kept as it is"
    assert texts[2] == ""
    assert texts == [translator.translate([each])[0] for each in begun]
    more = [text.removeprefix(beginning) for text, beginning in zip(texts, begun, strict=True)]
    assert len(set(more[3:])) > 1, "each text has its own random numbers"
    one, other = translator.score([("", "il gatto."), ("", "gatto il gatto il gatto")])
    assert one.log_probs[-1] > -0.4, "the full stop is followed by the end"
    assert other.log_probs[-1] < -2
    [translation] = translator.with_alignments(translator.explain(["il cane"]))
    assert translation.sentences[0].candidates[0].alignment == []
    with pytest.raises(ConfigError, match="continues each text"):
        translator.explain([translator.request("il", prefix="il")])
    with pytest.raises(ConfigError, match="decoder-only"):
        tiny(data__source_lang=None, tokenizer__shared=True)
    best = json.loads((run / "checkpoints" / "best.json").read_text())
    assert best["perplexity"] == pytest.approx(
        json.loads((run / "result.json").read_text())["validation"]["perplexity"]
    )


def test_a_language_model_on_the_command_line(tiny: Tiny, capfd: pytest.CaptureFixture) -> None:
    """Two texts to score are not a pair, a text that is too long does not affect the others, and options that need a
    source are refused."""
    config = tiny(**VARIANTS["language model"] | {"model__positions": "learned", "model__max_positions": 140})
    assert run_command("train", config) == 0
    run = str(Path(config.run.dir) / config.run.name)
    capfd.readouterr()

    def said(*arguments: str) -> list[str]:
        code = run_command("translate", command_line.parse_translate(["--run", run, *arguments]))
        out, err = capfd.readouterr()
        return [str(code), *out.splitlines(), *err.splitlines()]

    code, one, two = said("--score", "il gatto vede.", "il cane nero.")
    assert (code, one) == tuple(said("--score", "il gatto vede."))
    assert one != two
    long = " ".join(["il"] * 150)
    code, first, left, last, warning = said("--decoding.max_length", "3", "il gatto", long, "il cane")
    assert (code, left) == ("0", long)
    assert first.startswith("il gatto")
    assert last.startswith("il cane")
    assert "text 2: not translated" in warning
    code, vector, nothing, warning = said("--embed", "il gatto", long)
    assert code == "0"
    assert set(json.loads(nothing)) == {0.0} != set(json.loads(vector))
    for arguments in (["--align", "il"], ["--attention", f"{run}/x.html", "il"]):
        code, *_, error = said(*arguments)
        assert code == "2"
        assert "no source" in error


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_summary_of_every_config(path: Path, tmp_path: Path) -> None:
    """Guards `dragoman summary`: vocabularies come from the config's own run or its limit, not from another run."""
    config = loaded(path, f"--run.dir={tmp_path}")
    lines = describe_model(config)
    assert f"{config.tokenizer.vocab_size:,}" in lines[1]
    assert any("operations: " in line for line in lines)
    whole = next(line for line in lines if "(the whole)" in line)
    assert ("(1, 1), (1, 8)" in whole) == config.is_language_model, whole


def test_embeddings_do_not_depend_on_the_batch(tiny: Tiny) -> None:
    """Guards --embed against padding in the mean, swapped sentences, and texts of several sentences."""
    for changes in ({}, VARIANTS["decoder-only"], VARIANTS["encoder-only"], VARIANTS["language model"]):
        config = tiny(run__name="-".join(map(str, changes.values())) or "tiny", training__max_epochs=1, **changes)
        assert run_command("train", config) == 0
        translator = Translator(Path(config.run.dir) / config.run.name, "cpu")
        texts = ["il vino rosso.", "", "il gatto e il cane e il vino rosso e il pane.", "il vino rosso."]
        together = translator.embed(texts)
        alone = torch.cat([translator.embed([text]) for text in texts])
        torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(together[0], together[3], rtol=1e-4, atol=1e-5)
        assert config.is_language_model or together[1].abs().max() == 0


def test_ensembles_need_models_of_one_kind(tiny: Tiny) -> None:
    """Guards against a traceback for an ensemble of a model that writes word by word and one that does not."""
    runs = []
    for name in ("decoder-only", "encoder-only"):
        data = {"run__name": name, "training__max_epochs": 1, "model__architecture": name}
        assert run_command("train", tiny(**data)) == 0
        runs.append(Path(tiny().run.dir) / name)
    with pytest.raises(train.checkpoint.CheckpointError, match="word by word"):
        Translator(runs, "cpu")
    assert Translator([runs[1]] * 2, "cpu").translate(["the cat."]) == Translator(runs[1], "cpu").translate(
        ["the cat."]
    )
