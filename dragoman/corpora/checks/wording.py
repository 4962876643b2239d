"""What a text gives away about where it comes from: rows of names, boilerplate, machines, tools that changed it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from dragoman.corpora.checks.corpus import CheckedCorpus, CheckedSplit, sample
from dragoman.corpora.checks.findings import Finding
from dragoman.corpora.formats.languages import BESIDE, language_of
from dragoman.text.conventions import Conventions

# What people call the columns of a table of pairs, besides languages and the words of BESIDE.
_NAMES = BESIDE | {
    "traduzione", "traduction", "traducción", "traducao", "tradução", "übersetzung", "vertaling", "tłumaczenie",
    "frase", "phrases", "frasi", "frases", "sätze", "zin", "zdanie", "oración", "oraciones", "quelle", "ziel",
    "originale", "origen", "destino", "question", "answer", "term", "terms", "begriff", "sl", "tl", "l1", "l2",
}  # fmt: skip
OFTEN = 10  # times that a pair comes, apart from digits, capitals and marks, to be boilerplate
_MARKS = re.compile(r"[\W_]+")
_MARKS_AND_DIGITS = re.compile(r"[\W\d_]+")
_LOOP = re.compile(r"\b(\w+(?:\W+\w+){0,3})(?:\W+\1\b){3,}", re.IGNORECASE)
_NOTICE = re.compile(
    r"MYMEMORY WARNING|translated (?:by|with) (?:google|deepl|bing|microsoft|yandex)|as an ai language model",
    re.IGNORECASE,
)
_LOST_LETTER = re.compile(r"[^\W\d_]\?[^\W\d_A-Z]")


def check_wording(corpus: CheckedCorpus) -> Iterator[Finding]:
    """Report names of columns, boilerplate, text made by machines, and letters that became question marks."""
    for split in corpus.splits.values():
        first = split.pairs[0] if split.pairs else ("", "")
        yield from split.finding("header", [0] if all(map(_names_a_column, first[corpus.sides[0] :])) else [])
        yield from split.finding("machine", split.where(_machine_made))
        yield from split.finding("question_marks", split.where(lambda *pair: any(map(_lost_letters, pair))))
    train, *others = corpus.splits.values()
    known = _rough_hashes(train, corpus, _MARKS_AND_DIGITS)
    _, places, counts = np.unique(known[:, 0] * 31 + known[:, 1], return_inverse=True, return_counts=True)
    yield from train.finding("boilerplate", train.whole[counts[places] >= OFTEN])
    side, known = corpus.sides[0], _rough_hashes(train, corpus, _MARKS)
    for split in others:
        rough, exact = _rough_hashes(split, corpus, _MARKS)[:, side], split.hashes[split.whole, side]
        near = np.isin(rough, known[:, side]) & ~np.isin(exact, train.hashes[train.whole, side])
        yield from split.finding("near_overlap", split.whole[near])


def check_conventions(corpus: CheckedCorpus) -> Iterator[Finding]:
    """Report text that was lower-cased or tokenized before, unlike what people will type."""
    train, lowercased = corpus.splits["train"], corpus.config.data.lowercase
    languages = corpus.config.data.source_lang, corpus.config.data.target_lang
    for side in corpus.sides:
        texts = train.texts(sample(train.whole), side)
        found = Conventions.of(texts)
        for name, is_so in (("lowercased", found.is_lowercase and not lowercased), ("tokenized", found.is_tokenized)):
            yield from train.finding(name, [], len(texts), is_so * len(texts), language=languages[side])


def _names_a_column(text: str) -> bool:
    words = re.findall(r"[^\W_]+", text.casefold())
    return bool(language_of(text)) or (
        0 < len(words) <= 3 and all(word in _NAMES or word.isdecimal() for word in words)
    )


def _machine_made(source: str, target: str) -> bool:
    """Whether one side, and not the other, goes round in circles or says that a machine wrote it."""
    return _loops(source) != _loops(target) or bool(_NOTICE.search(source) or _NOTICE.search(target))


def _loops(text: str) -> bool:
    words = text.split()
    return len(words) >= 8 and len({*words}) <= 0.7 * len(words) and bool(_LOOP.search(text))


def _lost_letters(text: str) -> bool:
    return "?" in text and any(
        _LOST_LETTER.search(word) for word in text.split() if "/" not in word and "=" not in word
    )


def _rough_hashes(split: CheckedSplit, corpus: CheckedCorpus, left_out: re.Pattern[str]) -> np.ndarray:
    """Hash the whole pairs without capitals and some characters, (N, 2); a text of nothing else as it is."""
    found = np.zeros((len(split.whole), 2), np.int64)
    for side in corpus.sides:
        texts = split.texts(split.whole, side)
        found[:, side] = [hash(left_out.sub("", text.casefold()) or text) for text in texts]
    return found
