"""The vocabulary shortlist: learnt when a training ends, kept where it costs no BLEU, and used where it may be."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import tiny_config, tiny_pairs
from dragoman import checkpoint, reading
from dragoman.__main__ import run as run_command
from dragoman.corpora.preparation import load
from dragoman.errors import CheckpointError
from dragoman.serialization import sealed, unsealed
from dragoman.settings import SPECIAL_TOKENS, Config
from dragoman.training import shortlist as learning
from dragoman.translation import shortlist
from dragoman.translation.shortlist import Shortlist
from dragoman.translation.translator import Translator

TEXTS = [source for source, _ in tiny_pairs(60, seed=7)]
# With decoding.tolerant, a translation without a word would be searched again, with a beam and without lists.
FLOAT32 = ["--decoding.precision", "float32", "--decoding.tolerant", "false"]


def result_of(config: Config) -> dict[str, Any]:
    return json.loads((Path(config.run.dir) / config.run.name / "result.json").read_text())


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose vocabulary is too small for a shortlist by default, so it has none."""
    config = tiny_config(tmp_path_factory.mktemp("shortlist"))
    assert run_command("train", config) == 0
    assert "shortlist" not in result_of(config)
    return Path(config.run.dir) / config.run.name


@pytest.fixture
def run(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert not (trained / shortlist.NAME).exists()
    return Path(shutil.copytree(trained, tmp_path / "run"))


def fast(run: Path, *overrides: str) -> Translator:
    return Translator(run, "cpu", [*FLOAT32, *overrides], "ctranslate2")


def slow(run: Path, *overrides: str) -> Translator:
    return Translator(run, "cpu", [*FLOAT32, *overrides])


def give(run: Path, always: list[str], lists: dict[str, list[str]] | None = None) -> Translator:
    """Give a run lists: those of `always`, and of all source tokens, which are empty unless `lists` has them."""
    translator = slow(run)
    tokens = {
        "": [*SPECIAL_TOKENS, *always],
        **{token: [] for token in translator.source.tokens_by_id},
        **(lists or {}),
    }
    vmap = "".join(f"{token}\t{' '.join(listed)}\n" for token, listed in tokens.items())
    shortlist.write(translator.path, Shortlist.of(vmap, translator.source))
    return fast(run)


class Recorded:
    """CTranslate2's translator, and whether each call used the lists."""

    def __init__(self, translator: Translator) -> None:
        assert translator._fast
        self.real, self.used = translator._fast.translator, list[bool]()
        translator._fast.translator = self

    def translate_batch(self, *given: Any, use_vmap: bool, **more: Any) -> Any:
        self.used.append(use_vmap)
        return self.real.translate_batch(*given, use_vmap=use_vmap, **more)


@pytest.mark.parametrize("beam", ["1", "4"])
def test_lists_of_everything_change_nothing(run: Path, beam: str) -> None:
    """Guards the mapping between the tokens of a list and the vocabulary."""
    translator = give(run, slow(run).target.tokens_by_id).with_decoding(beam_size=int(beam))
    recorded = Recorded(translator)
    without = fast(run, "--decoding.shortlist", "false", "--decoding.beam_size", beam)
    assert translator.translate(TEXTS) == without.translate(TEXTS)
    assert recorded.used
    assert all(recorded.used)
    assert len(set(translator.translate(TEXTS))) > 5
    if beam == "1":
        assert translator.translate(TEXTS) == slow(run).translate(TEXTS)


def test_lists_restrict_the_search(run: Path) -> None:
    """Guards lists that are written and never used, and the setting that turns them off."""
    plain = slow(run)
    translator = give(run, ["il", "gatto", "￭."], {"dog": ["cane"]})
    words = {word for text in translator.translate(TEXTS) for word in text.rstrip(".").split()}
    assert words <= {"il", "gatto", "cane"}
    assert "cane" in words
    assert translator.with_decoding(shortlist=False).translate(TEXTS) == plain.translate(TEXTS)
    assert fast(run, "--decoding.shortlist", "false").translate(TEXTS) == plain.translate(TEXTS)


def test_where_lists_would_be_wrong_they_are_not_used(run: Path) -> None:
    """Guards prefixes, glossaries, n-best lists, wide beams and tokens without a list, beside texts that use them."""
    translator = give(run, ["il", "gatto", "￭."])
    ids = translator.source.vocabulary
    assert translator._fast
    translator._fast.shortlist = Shortlist("", frozenset(set(ids.values()) - {ids["wine"]}), 7)
    recorded = Recorded(translator)
    prefixed = [translator.request(text, prefix="il") for text in TEXTS[:5]]
    assert translator.translate(prefixed) == slow(run).translate(prefixed)
    translator.with_glossary({"cat": "micio", "the": "lo"}).translate(["the cat sees the cat."])
    translator.with_decoding(beam_size=3, n_best=2).translate(TEXTS[:5])
    translator.with_decoding(beam_size=4).translate(TEXTS[:5])
    assert not any(recorded.used)
    translator.with_decoding(beam_size=3).translate(["the cat."])
    assert recorded.used[-1]
    recorded.used.clear()
    texts = ["the cat wants bread.", "the cat wants wine."]
    restricted, free = translator.translate(texts)
    assert sorted(recorded.used) == [False, True]
    assert set(restricted.rstrip(".").split()) <= {"il", "gatto"}
    assert free == slow(run).translate(texts[1])


@pytest.mark.parametrize("overrides", [(), ("--decoding.beam_size", "10"), ("--decoding.no_repeat_ngram", "1")])
@pytest.mark.parametrize("unknown", ["copy", "keep", "drop"])
def test_strange_texts_are_translated(run: Path, overrides: tuple[str, ...], unknown: str) -> None:
    """Guards names, empty texts, single words and beams wider than a list: each ends, and names pass through."""
    texts = ["Zoltan Imre Ada Ivo Bela.", "", "cat", "\n\n", "https://x.org", "Zoltan", ".", "the cat. " * 40]
    for always in ([], slow(run).target.tokens_by_id):
        found = give(run, always).with_decoding(unknown=unknown).translate(texts)
        assert len(found) == len(texts)
        assert (found[1], found[3]) == ("", "\n\n")
    if unknown == "copy" and not overrides:
        assert found == slow(run).translate(texts)


def flip(data: bytes) -> bytes:
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]


def forged(**changes: Any) -> Callable[[bytes], bytes]:
    return lambda data: sealed({**unsealed(data), **changes})


@pytest.mark.parametrize(
    "damage",
    [
        flip, lambda data: data[:-9], lambda data: b"", lambda data: b"[]",
        forged(checkpoint="0" * 64), forged(version=2), forged(vmap=""), forged(vmap=None), forged(vmap="\n"),
        forged(vmap="il\n"), forged(vmap="a b c\til\n"), forged(vmap="nowhere\til\n"), forged(vmap="\til\tgatto\n"),
        forged(vmap="\ud800"), forged(surer=None),
    ],
)  # fmt: skip
def test_damaged_or_foreign_lists_are_not_used(run: Path, damage: Callable[[bytes], bytes]) -> None:
    """Guards against lists of other weights, and against a file at which CTranslate2 crashes, as at an empty one."""
    give(run, ["il", "￭."])
    file = run / shortlist.NAME
    file.write_bytes(damage(file.read_bytes()))
    translator = fast(run)
    assert translator._fast
    assert translator._fast.shortlist is None
    assert translator.translate(TEXTS[:9]) == slow(run).translate(TEXTS[:9])


def test_lists_of_a_large_vocabulary_are_read(run: Path) -> None:
    """Guards the lists of 8,000 tokens, which are more than a note of the program may have."""
    give(run, [])
    path = run / shortlist.NAME
    content = unsealed(path.read_bytes()) | {"spare": "x" * 2 * reading.NOTE}
    path.write_bytes(sealed({name: value for name, value in content.items() if name != "sha256"}))
    engine = fast(run)._fast
    assert engine is not None
    assert engine.shortlist is not None


def test_lists_belong_to_one_checkpoint(run: Path) -> None:
    """Guards a run that is trained further, or of which another checkpoint translates."""
    best = give(run, ["il", "￭."]).path
    other = next(path for path in checkpoint.steps(run / "checkpoints") if path != best)
    assert fast(other).translate(TEXTS) == slow(other).translate(TEXTS)
    assert fast(best).translate(TEXTS) != slow(best).translate(TEXTS)


def test_a_training_learns_lists_for_its_best_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards the way from the end of a training to the search, and Ctrl-C on that way."""
    monkeypatch.setattr(learning, "SMALLEST", 1)
    config = tiny_config(tmp_path)
    run = Path(config.run.dir) / config.run.name

    def interrupted(*_: Any) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(learning, "learn", interrupted)
        assert run_command("train", config) == 130
    assert not (run / "result.json").exists()
    saved = {path: path.stat().st_mtime_ns for path in checkpoint.steps(run / "checkpoints")}
    capsys.readouterr()
    assert run_command("train", config) == 0
    assert {path: path.stat().st_mtime_ns for path in checkpoint.steps(run / "checkpoints")} == saved
    assert "vocabulary shortlist kept: validation BLEU" in capsys.readouterr().out
    found = result_of(config)["shortlist"]
    assert found["kept"]
    assert found["bleu_without"] - found["bleu"] < learning.LOSS
    translator = fast(run)
    recorded = Recorded(translator)
    translator.translate(TEXTS)
    assert True in recorded.used
    assert translator._fast
    assert translator._fast.shortlist
    assert translator.trained.unsure == slow(run).trained.unsure + translator._fast.shortlist.surer
    lists = dict(line.split("\t") for line in translator._fast.shortlist.vmap.splitlines())
    assert {"gatto", "cane", *SPECIAL_TOKENS} <= set(lists[""].split())
    assert "gatto" in lists["cat"].split()


def test_lists_that_cost_bleu_are_dropped(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards quality: bad lists are neither kept nor left behind by an earlier training."""
    give(run, ["il", "￭."])
    data = load(run / "data")
    monkeypatch.setattr(learning, "SMALLEST", 1)
    source = data.source.tokens_by_id
    monkeypatch.setattr(learning, "learn", lambda *_: "".join(f"{token}\til e\n" for token in ["", *source]))
    found = learning.make_shortlist(slow(run).config, run, data)
    assert found
    assert not found["kept"]
    assert "vocabulary shortlist dropped: validation BLEU" in capsys.readouterr().out
    assert not (run / shortlist.NAME).exists()
    config = slow(run, "--decoding.shortlist", "false").config
    assert learning.make_shortlist(config, run, data) is None


def test_lists_name_source_tokens_only(run: Path) -> None:
    with pytest.raises(CheckpointError, match="no list"):
        Shortlist.of("cat\tgatto", slow(run).target)
