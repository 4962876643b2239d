"""What `dragoman check` reports of a corpus: the pairs that `dragoman clean` would drop, and faults that need advice.

Each check is a function of a `CheckedCorpus` that yields findings and suggested settings. The vocabulary and the limits
are checked on a sample, which is tokenised.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from dragoman import presets
from dragoman.corpora import language_choice
from dragoman.corpora.formats.language_names import language_name
from dragoman.corpora.formats.units import languages_of
from dragoman.corpora.sources import unit_name
from dragoman.corpora.subwords import SMALLEST_SUBWORDS
from dragoman.dataset import encode_side
from dragoman.filtering.checked import KINDS, CheckedCorpus, CheckedSplit, Finding, SuggestedSetting, sample
from dragoman.filtering.judge import Judge, Sample, reasons_of
from dragoman.filtering.rules import REASONS
from dragoman.processes import cores
from dragoman.settings import UNK
from dragoman.text.conventions import Conventions

ONE_PROCESS = 100_000  # pairs that are judged before others would have started
UNALIGNED = ("length", "misaligned", "cut")  # reasons that compare the two sides
PROOF = 20  # report a stretch in which unaligned pairs outnumber the others by this
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


def check_vocabulary(corpus: CheckedCorpus) -> Iterator[Finding | SuggestedSetting]:
    """Report the validation tokens that would be unknown, and suggest a better vocabulary."""
    config = corpus.config
    (_, train_rows), (validation, rows) = corpus.used["train"], corpus.used["validation"]
    rows = sample(rows)
    shares = []
    for side in corpus.sides:
        texts, tokenizer = validation.texts(rows, side), corpus.tokenizers[side]
        encoded = encode_side(texts, tokenizer)
        missing = np.flatnonzero(encoded.ids == UNK)
        shares.append(len(missing) / len(encoded.ids))
        words: Counter[str] = Counter()
        for i in np.unique(np.searchsorted(encoded.offsets, missing, "right") - 1).tolist():
            unknown = encoded.ids[encoded.offsets[i] : encoded.offsets[i + 1]] == UNK
            words.update(map(tokenizer.label, np.array(tokenizer.tokens(texts[i]))[unknown].tolist()))
        language = (config.data.source_lang, config.data.target_lang)[side]
        most_common = ", ".join(word for word, _ in words.most_common(5))
        # Name it validation even if it is a share of training.
        split = replace(validation, name="validation")
        yield from split.finding("unknown", [], len(encoded.ids), len(missing), language=language, words=most_common)
    share, count = max(shares), len(train_rows)
    if share >= KINDS["unknown"].grave and corpus.borrowed:
        why = f"with its vocabulary {share:.0%} of the validation tokens are unknown"
        yield SuggestedSetting("training.init_from", "null", why)
    elif share >= KINDS["unknown"].grave:
        yield SuggestedSetting("tokenizer.kind", "bpe", f"as words, {share:.0%} of the validation tokens are unknown")
        if config.tokenizer.vocab_size < SMALLEST_SUBWORDS:
            size = presets.PRESETS[presets.choose(count)]["tokenizer.vocab_size"]
            why = f"{SMALLEST_SUBWORDS} bytes and special tokens come before all subwords"
            yield SuggestedSetting("tokenizer.vocab_size", str(size), why)
    elif share > 0.01 and count < 50_000 and config.model.dropout < 0.2:
        why = f"{count:,} {unit_name(config.data)}s of such variety are little data"
        yield SuggestedSetting("model.dropout", "0.3", why)


def check_limits(corpus: CheckedCorpus) -> Iterator[Finding | SuggestedSetting]:
    """Report the training pairs that data.max_length and data.max_ratio would drop, and suggest better limits."""
    data, (train, rows) = corpus.config.data, corpus.used["train"]
    rows = sample(rows)
    sizes = [encode_side(train.texts(rows, side), corpus.tokenizers[side]).lengths - 1 for side in corpus.sides]
    longest, ratios = np.max(sizes, axis=0), np.max(sizes, axis=0) / np.min(sizes, axis=0)
    long = longest > data.max_length
    uneven = ~long & (ratios > (data.max_ratio or np.inf))
    longest_first = rows[np.argsort(-longest, kind="stable")]
    yield from train.finding("too_long", longest_first[: long.sum()], len(rows), limit=data.max_length)
    yield from train.finding("too_uneven", rows[uneven], len(rows), limit=data.max_ratio)
    if long.mean() > 0.001:
        enough = math.ceil(np.percentile(longest, 99.9))
        why = f"keeps all but one in a thousand; {data.max_length} drops {long.mean():.1%}"
        yield SuggestedSetting("data.max_length", str(enough), why)
    fair = math.ceil(2 * np.percentile(ratios, 99.5)) / 2
    beyond = float((ratios > 2 * fair).mean())
    if not data.max_ratio and beyond > 0.0005:
        why = f"99.5 % are less uneven, but {beyond:.2%} more than twice as uneven"
        yield SuggestedSetting("data.max_ratio", f"{fair:g}", why)


def check_amounts(corpus: CheckedCorpus) -> Iterator[SuggestedSetting]:
    """Suggest settings that follow from the number of pairs."""
    (_, train), (_, validation) = corpus.used.values()
    total, units = len(train) + len(validation), f"{unit_name(corpus.config.data)}s"
    if "validation" not in corpus.splits and len(validation) > 5000:
        why = f"2,000 {units} measure as well as {len(validation):,}, in less time"
        yield SuggestedSetting("data.validation_fraction", f"{2000 / total:.2g}", why)
    if "validation" not in corpus.splits and len(validation) < 100 and total >= 1000:
        why = f"{len(validation):,} {units} are too few to compare models"
        yield SuggestedSetting("data.validation_fraction", f"{min(500 / total, 0.2):.2g}", why)
