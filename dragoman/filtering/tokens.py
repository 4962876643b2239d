"""What the vocabulary of this config would not know, what its limits would drop, and which settings fit better.

Only a sample is tokenised.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from dragoman import presets
from dragoman.corpora.sources import unit_name
from dragoman.corpora.subwords import SMALLEST_SUBWORDS
from dragoman.dataset import encode_side
from dragoman.filtering.checked import KINDS, CheckedCorpus, Finding, SuggestedSetting, sample
from dragoman.settings import UNK


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
