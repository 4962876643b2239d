"""What `dragoman check` reports of a corpus: the pairs that `dragoman clean` would drop, and faults that need advice.

Each check is a function of a `CheckedCorpus` that yields findings and suggested settings; `tokens` has some more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from dragoman.corpora import language_choice
from dragoman.corpora.formats.languages import language_name
from dragoman.corpora.formats.units import languages_of
from dragoman.corpora.sources import unit_name
from dragoman.filtering.checked import CheckedCorpus, CheckedSplit, Finding, SuggestedSetting, sample
from dragoman.filtering.judge import Judge, Sample
from dragoman.filtering.rules import REASONS
from dragoman.filtering.workers import reasons_of
from dragoman.processes import cores
from dragoman.text.conventions import Conventions

ONE_PROCESS = 100_000  # pairs that are judged before others would have started
UNALIGNED = ("length", "misaligned", "cut")  # reasons that compare the two sides
PROOF = 20  # a stretch has slipped if it has so many more unaligned pairs than others
STRETCHES = 5  # that are reported at most
_MARKS = re.compile(r"[\W_]+")
_MARKUP = re.compile(r"</?[A-Za-z][^<>]*>|&(?:[a-z]+|#[0-9]+|#x[0-9a-f]+);")
# Without the joiners of Persian, Hindi and emoji.
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
        yield from _slips(split, np.isin(reasons, UNALIGNED))
        stopping += int((reasons == "unreadable").sum())
    if stopping and data.on_bad_line == "error":
        why = f"drops the {stopping:,} {unit_name(corpus.config.data)}s that cannot be read"
        yield SuggestedSetting("data.on_bad_line", "skip", why)


def _slips(split: CheckedSplit, unaligned: np.ndarray) -> Iterator[Finding]:
    """Report stretches in which most pairs are not translations, as after a line that one side lacks."""
    gains = np.where(unaligned, 1.0, -1.0)
    for _ in range(STRETCHES):
        proof, start, end = _best_stretch(gains)
        if proof < PROOF:
            return
        rows = np.arange(start, end)
        gains[rows] = -1
        first, last = split.positions[[start, end - 1]]
        yield from split.finding("slipped", rows, first=first, last=last)


def _best_stretch(gains: np.ndarray) -> tuple[float, int, int]:
    """Return the largest sum of consecutive values (Kadane), the index of the first, and the index after the last."""
    sums = np.concatenate([[0.0], np.cumsum(gains)])
    rises = sums - np.minimum.accumulate(sums)
    end = int(rises.argmax())
    return float(rises[end]), int(sums[: end + 1].argmin()), end


def check_wording(corpus: CheckedCorpus) -> Iterator[Finding]:
    """Report control characters and markup."""
    for split in corpus.splits.values():
        for name, pattern in (("control", _CONTROL), ("markup", _MARKUP)):
            rows = [i for i in split.whole.tolist() if any(map(pattern.search, split.pairs[i]))]
            yield from split.finding(name, rows)


def _rough(text: str) -> str:
    """Return a text without capitals and marks; unchanged if nothing would be left."""
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
