"""What `dragoman check` reports of a corpus: the pairs that `dragoman clean` would drop, and faults that need advice.

Each check is a function of a `CheckedCorpus` that yields findings and suggested settings; `tokens` has some more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from dragoman.corpora import language_choice
from dragoman.corpora.formats.languages import BESIDE, language_name, language_of
from dragoman.corpora.formats.units import languages_of
from dragoman.corpora.sources import unit_name
from dragoman.dataset import Pair
from dragoman.filtering.checked import CheckedCorpus, CheckedSplit, Finding, SuggestedSetting, sample
from dragoman.filtering.judge import Judge, Sample
from dragoman.filtering.rules import REASONS
from dragoman.filtering.workers import reasons_of
from dragoman.processes import cores
from dragoman.text.conventions import Conventions

ONE_PROCESS = 100_000  # pairs that are judged before others would have started
UNALIGNED = ("length", "misaligned", "cut")  # reasons that compare the two sides
# A stretch of pairs has slipped if PROOF more of its pairs are unaligned than are not. Shifts are tried for an
# explanation, by the lengths of the two sides.
PROOF = 20
SHIFTS, STRETCHES = (1, -1, 2, -2, 3, -3), 5
# What people call the columns of a table of pairs, besides languages and the words of BESIDE.
_NAMES = BESIDE | {
    "traduzione", "traduction", "traducción", "traducao", "tradução", "übersetzung", "vertaling", "tłumaczenie",
    "frase", "phrases", "frasi", "frases", "sätze", "zin", "zdanie", "oración", "oraciones", "quelle", "ziel",
    "originale", "origen", "destino", "question", "answer", "term", "terms", "begriff", "sl", "tl", "l1", "l2",
}  # fmt: skip
_MARKS = re.compile(r"[\W_]+")
_LOOP = re.compile(r"\b(\w+(?:\W+\w+){0,3})(?:\W+\1\b){3,}", re.IGNORECASE)
_NOTICE = re.compile(
    r"MYMEMORY WARNING|translated (?:by|with) (?:google|deepl|bing|microsoft|yandex)|as an ai language model",
    re.IGNORECASE,
)
_LOST_LETTER = re.compile(r"[^\W\d_]\?[^\W\d_A-Z]")
_MARKUP = re.compile(r"</?[A-Za-z][^<>]*>|&(?:[a-z]+|#[0-9]+|#x[0-9a-f]+);")
# Not the joiners of Persian, Hindi and emoji.
_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u200b\u202a-\u202e\u2060-\u2069\ufeff]")


def check_pairs(corpus: CheckedCorpus) -> Iterator[Finding | SuggestedSetting]:
    """Report the pairs that `dragoman clean` would drop, by reason, and stretches of them."""
    data, plain = corpus.config.data, not corpus.config.data.source_lang
    # Plain text is judged as a pair of the text and itself, without the reasons that compare two sides.
    data = replace(data, source_lang=data.target_lang) if plain else data
    pairs = {name: [(b, b) for _, b in split.pairs] if plain else split.pairs for name, split in corpus.splits.items()}
    learnt = Sample()
    for pair in pairs["train"]:
        learnt.add(*pair)
    judge = Judge.learn(learnt.pairs(), data, UNALIGNED if plain else ())
    stopping = 0
    for name, split in corpus.splits.items():
        processes = 1 if len(split.pairs) < ONE_PROCESS else cores()
        reasons = np.array([*reasons_of(pairs[name], judge, processes, with_repeats=name == "train")], object)
        for reason in REASONS:
            yield from split.finding(reason, np.flatnonzero(reasons == reason))
        yield from _slips(split, pairs[name], np.isin(reasons, UNALIGNED))
        stopping += int((reasons == "unreadable").sum())
    if stopping and data.on_bad_line == "error":
        why = f"drops the {stopping:,} {unit_name(corpus.config.data)}s that cannot be read"
        yield SuggestedSetting("data.on_bad_line", "skip", why)


def _slips(split: CheckedSplit, pairs: list[Pair], bad: np.ndarray) -> Iterator[Finding]:
    """Report stretches in which most pairs are no translations, as after a line that one side lacks."""
    gains = np.where(bad, 1.0, -1.0)
    for _ in range(STRETCHES):
        proof, start, end = _best_stretch(gains)
        if proof < PROOF:
            return
        sides = np.array([list(map(len, pair)) for pair in pairs[start:end]]).T
        rows, shift = np.arange(start, end), _shift(*sides)
        where = f"{abs(shift)} {split.unit}{'s' * (abs(shift) > 1)} {'below' if shift > 0 else 'above'}"
        gains[rows] = -1
        first, last = split.positions[[start, end - 1]]
        yield from split.finding("slipped", rows, first=first, last=last, where=where if shift else "somewhere else")


def _best_stretch(gains: np.ndarray) -> tuple[float, int, int]:
    """Return the largest sum of consecutive values (Kadane), the index of the first, and the index after the last."""
    sums = np.concatenate([[0.0], np.cumsum(gains)])
    rises = sums - np.minimum.accumulate(sums)
    end = int(rises.argmax())
    return float(rises[end]), int(sums[: end + 1].argmin()), end


def _shift(source: np.ndarray, target: np.ndarray) -> int:
    """Return by how many lines targets lie below their sources, going by lengths; 0 if no shift explains them."""
    alike = {shift: _correlation(source, np.roll(target, -shift)) for shift in SHIFTS}
    best = max(alike, key=lambda shift: alike[shift])
    return best if alike[best] > 0.5 else 0


def _correlation(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.corrcoef(one, other)[0, 1]) if one.std() and other.std() else 0.0


def check_wording(corpus: CheckedCorpus) -> Iterator[Finding]:
    """Report names of columns, text made by machines, and letters that became question marks."""
    for split in corpus.splits.values():
        first = split.pairs[0] if split.pairs else ("", "")
        yield from split.finding("header", [0] if all(map(_names_a_column, first[corpus.sides[0] :])) else [])
        for name, test in TESTS.items():
            yield from split.finding(name, split.where(test))


def _names_a_column(text: str) -> bool:
    words = re.findall(r"[^\W_]+", text.casefold())
    return bool(language_of(text)) or (
        0 < len(words) <= 3 and all(word in _NAMES or word.isdecimal() for word in words)
    )


def _machine_made(source: str, target: str) -> bool:
    """Whether one side, and not the other, repeats itself or says that a machine wrote it."""
    return _loops(source) != _loops(target) or bool(_NOTICE.search(source) or _NOTICE.search(target))


def _loops(text: str) -> bool:
    words = text.split()
    return len(words) >= 8 and len({*words}) <= 0.7 * len(words) and bool(_LOOP.search(text))


def _lost_letters(text: str) -> bool:
    return "?" in text and any(
        _LOST_LETTER.search(word) for word in text.split() if "/" not in word and "=" not in word
    )


TESTS: dict[str, Callable[[str, str], object]] = {
    "control": lambda source, target: _CONTROL.search(source) or _CONTROL.search(target),
    "question_marks": lambda source, target: _lost_letters(source) or _lost_letters(target),
    "machine": _machine_made,
    "markup": lambda source, target: _MARKUP.search(source) or _MARKUP.search(target),
}


def _rough(text: str) -> str:
    """Return a text without capitals and marks; a text of nothing else as it is."""
    return _MARKS.sub("", text.casefold()) or text


def check_overlap(corpus: CheckedCorpus) -> Iterator[Finding]:
    """Report the pairs of validation and test whose source, or plain text, is also in training."""
    train, *others = corpus.splits.values()
    side = corpus.sides[0]
    # Collect the few held-out texts, not those of training, which would take as much memory as the pairs.
    held_out = {text: _rough(text) for split in others for text in split.texts(split.whole, side)}
    few, exact, rough = {*held_out.values()}, set[str](), set[str]()
    for text in train.texts(train.whole, side) if few else ():
        if (key := _rough(text)) in few:
            exact.add(text)
            rough.add(key)
    for split in others:
        rows = [i for i in split.whole.tolist() if held_out[split.pairs[i][side]] in rough]
        count = sum(split.pairs[i][side] not in exact for i in rows)
        yield from split.finding("overlap", rows, what="text" if side else "source", rough=count)


def check_labels(corpus: CheckedCorpus) -> Iterator[Finding | SuggestedSetting]:
    """Report sides in another language than the settings say, and suggest that language."""
    train, data = corpus.splits["train"], corpus.config.data
    rows = train.whole[: language_choice.READ]
    keys = [language_choice.KEYS[side] for side in corpus.sides]
    for side, key, expected in zip(corpus.sides, keys, languages_of(data), strict=True):
        spoken = language_choice.spoken_in(train.texts(rows, side))
        if spoken and language_choice.is_other(spoken, expected):
            names = {"language": language_name(spoken.language), "expected": language_name(expected)}
            yield from train.finding("label", [], len(rows), round(spoken.share * len(rows)), **names)
            yield SuggestedSetting(key, spoken.language, f"{spoken.share:.0%} of the lines whose language is clear")


def check_conventions(corpus: CheckedCorpus) -> Iterator[Finding]:
    """Report text that was lower-cased or tokenized before, unlike what people will type."""
    train, data = corpus.splits["train"], corpus.config.data
    for side, language in zip(corpus.sides, languages_of(data), strict=True):
        texts = train.texts(sample(train.whole), side)
        usual = Conventions.of(texts)
        for name, is_so in (
            ("lowercased", usual.is_lowercase and not data.lowercase), ("tokenized", usual.is_tokenized)
        ):  # fmt: skip
            yield from train.finding(name, [], len(texts), is_so * len(texts), language=language)
