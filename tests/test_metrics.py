"""Scores of texts, and sacreBLEU's tokenization for each language."""

from __future__ import annotations

import pytest
import sacrebleu

from dragoman.errors import ConfigError
from dragoman.evaluation import metrics
from dragoman.evaluation.metrics import Measurements, tokenization
from dragoman.evaluation.per_direction import tokenizations
from dragoman.settings import DataConfig

REFERENCES = ["The cat sees the dog.", "L'amico beve (non) vino, oggi.", "Ciao!"]


def test_perfect_and_empty_translations() -> None:
    """Guards the ends of the scales; the TER of torchmetrics calls an empty translation perfect."""
    for translations, expected in (REFERENCES, (100, 100, 0, 0, 0)), (["", "", ""], (0, 0, 100, 100, 100)):
        figures = Measurements(translations, REFERENCES).figures
        assert [figure.score for figure in figures] == pytest.approx(expected)


def test_small_overlap_scores_above_zero() -> None:
    """Guards smoothing: without it, the BLEU curve of a new model stays at zero."""
    assert 0 < Measurements(["The dog sees the", "vino", "Ciao!"], REFERENCES).bleu.score() < 40


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
    measured = Measurements(translations, references, tokenize)
    for name, which in ("zh", [0, 2]), ("13a", [1]):
        texts = [translations[i] for i in which], [[references[i] for i in which]]
        assert measured.bleu.score(which) == pytest.approx(sacrebleu.corpus_bleu(*texts, tokenize=name).score)
        assert f"tok:{name}" in measured.figures[0].signature
