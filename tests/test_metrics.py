"""Scores equal sacreBLEU's, and torchmetrics is used only where it is right."""

from __future__ import annotations

from typing import cast

import pytest
import sacrebleu
import torch
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from torchmetrics.functional.text import chrf_score, sacre_bleu_score, translation_edit_rate

from conftest import SHARED
from dragoman.errors import ConfigError
from dragoman.evaluation import metrics
from dragoman.evaluation.metrics import score, tokenization
from dragoman.evaluation.per_direction import tokenizations
from dragoman.settings import DataConfig

REFERENCES = ["The cat sees the dog.", "L'amico beve (non) vino, oggi.", "Ciao!"]
needs_multi30k = pytest.mark.skipif(not (SHARED / "multi30k").is_dir(), reason="needs Multi30k in ../shared/data")


def test_perfect_and_empty_translations() -> None:
    """Guards the ends of the scales; the TER of torchmetrics calls an empty translation perfect."""
    perfect = score(REFERENCES, REFERENCES)
    assert (perfect.bleu, perfect.chrf, perfect.wer, perfect.cer) == pytest.approx((100, 100, 0, 0))
    empty = score(["", "", ""], REFERENCES)
    assert (empty.bleu, empty.wer, empty.cer) == pytest.approx((0, 1, 1))
    assert empty.chrf == pytest.approx(0)


def test_small_overlap_scores_above_zero() -> None:
    """Guards smoothing: without it, the BLEU curve of a new model stays at zero."""
    assert 0 < score(["The dog sees the", "vino", "Ciao!"], REFERENCES).bleu < 40


@needs_multi30k
@pytest.mark.parametrize("tokenize", ["13a", "none", "intl"])
def test_scores_equal_sacrebleu_on_real_text(tokenize: str) -> None:
    """Guards the arguments: references as one list, in the right order, and the tokeniser."""
    lines = (SHARED / "multi30k" / "val.de").read_text(encoding="utf-8").split("\n")[:300]
    shifted = [line if i % 3 else " ".join(line.split()[1:]) for i, line in enumerate(lines)]
    found = score(shifted, lines, tokenize)
    assert found.bleu == pytest.approx(sacrebleu.corpus_bleu(shifted, [lines], tokenize=tokenize, force=True).score)
    assert found.chrf == pytest.approx(sacrebleu.corpus_chrf(shifted, [lines]).score)
    assert f"tok:{tokenize}" in found.signature
    words = sum(len(line.split()) for line in lines)
    dropped = sum(1 for i, line in enumerate(lines) if i % 3 == 0 and line.split())
    assert found.wer == pytest.approx(dropped / words)


def test_torchmetrics_is_wrong_where_we_do_not_use_it() -> None:
    """Fails once torchmetrics is fixed: its TER calls empty text perfect, its chrF is too high, its BLEU is 0."""
    empty, nested = [""], [["the dog sees"]]
    assert cast(torch.Tensor, translation_edit_rate(empty, nested)).item() == 0
    assert TER().corpus_score(empty, nested).score == 100
    partly, nested = ["xyz", "the cat"], [["the dog sees the red wine"], ["the cat"]]
    assert 100 * cast(torch.Tensor, chrf_score(partly, nested, n_word_order=0)).item() > 75
    assert CHRF().corpus_score(partly, [[one for [one] in nested]]).score < 35
    beginning, nested = ["the red dog sees it"], [["the dog sees the wine"]]
    assert sacre_bleu_score(beginning, nested, smooth=True).item() == 0
    assert BLEU().corpus_score(beginning, nested).score > 0


@pytest.mark.parametrize(
    ("language", "expected", "without_libraries"),
    [
        *((code, "zh", "zh") for code in ("zh", "zho", "cmn", "zh-TW", "zh_Hans", "zho_Hant", "yue", "Chinese")),
        *((code, "ja-mecab", "char") for code in ("ja", "jpn", "ja-JP", "jpn_Jpan")),
        *((code, "ko-mecab", "char") for code in ("ko", "kor", "kor_Hang")),
        *((code, "char", "char") for code in ("th", "lo", "km", "my", "tha_Thai", "bo", "dz", "shn")),
        *((code, "13a", "13a") for code in ("it", "de-AT", "ru", "ar", "hi", "vi", "tlh", "en", "zh-Latn")),
    ],
)
def test_tokenization_follows_the_language(
    language: str, expected: str, without_libraries: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards BLEU that counts a whole Chinese sentence as one word, under whatever name the language goes."""
    data = DataConfig(source_lang="eo", target_lang=language)
    monkeypatch.setattr(metrics, "find_spec", lambda name: name)
    assert tokenization(data, language) == expected
    monkeypatch.setattr(metrics, "find_spec", lambda name: None)
    assert tokenization(data, language) == without_libraries
    assert tokenization(DataConfig(bleu_tokenize="intl"), language) == "intl", "a setting has the last word"
    with pytest.raises(ConfigError, match="its library is missing: pip install 'sacrebleu"):
        tokenization(DataConfig(bleu_tokenize="ja-mecab"), language)


def test_each_direction_has_its_tokenization() -> None:
    """Guards BLEU over several languages: each sentence counts as BLEU of its own language counts it."""
    data = DataConfig(source_lang="en", target_lang="zh", directions="en-zh, zh-en")
    sources = [">>en-zh<< x", ">>zh-en<< x", ">>en-zh<< x"]
    references = ["她正在和她的朋友看电视。", "She is watching TV with her friend.", "我们明天早上去海边。"]
    translations = ["她正在和他的朋友看电视。", "She is watching TV with a friend.", "我们明天去海边。"]
    tokenize = tokenizations(sources, data)
    assert tokenize == ["zh", "13a", "zh"]
    found = metrics.measure(translations, references, tokenize)
    for name, which in ("zh", [0, 2]), ("13a", [1]):
        alone = score([translations[i] for i in which], [references[i] for i in which], name)
        assert found.bleu.score(which) == pytest.approx(alone.bleu)
        assert 20 < alone.bleu < 90
        assert f"tok:{name}" in found.figures[0].signature
