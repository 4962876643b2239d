"""From sentence pairs to batches: cleaned, split, tokenised once, and put together by length.

Use:
    data = prepare(config, run / "data", print)                  # once a run; later calls load what the first one wrote
    for indices in batch_plan(*data.train.lengths, config.training.batch_tokens, seed, epoch):
        batch = make_batch(data.train, indices)              # .source, .target_in, .target_out, .tokens

Plain text, for a language model, is pairs with an empty source: in a batch it is an end token and nothing else.

What a run trains on is decided once, written into its folder, and never again: the tokenizers, which pair belongs to
which split, and the ids. The batches and their order are a pure function of (lengths, seed, epoch), so that a resumed
run needs to remember nothing but the number of its next batch.

Shapes are written in these letters:
    N pairs   B rows of a batch   S source positions   T target positions
A row is one sentence: its ids, the end token, and then padding.

Limits: preparing holds the text of all pairs in memory, and takes about 550 bytes a pair of thirteen words. Training
holds the ids alone, and maps them from disk where they are large. Nothing here locks the folder: one process prepares,
the others load afterwards.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from checkpoint import sync
from config import EOS, PAD, SOS, SPECIAL_TOKENS, UNK, Config, DataConfig
from corpus import (
    MOST_OFTEN,
    SPLITS,
    Count,
    DataError,
    Pair,
    find_sources,
    hashes,
    known_by,
    noun,
    parts_of,
    read_corpus,
)
from languages import split_tag, targets
from segment import sentences
from tokenizer import UNSEEN, Tokenizer, train_pair

FORMAT = 2  # of the prepared folder
LARGE = 64 * 2**20  # bytes; arrays above are mapped from disk
CHUNK = 10_000  # sentences that are tokenised at a time
SAMPLE = 100_000  # training pairs in which sentences are counted: more would not change what one line in 200 has
SIDES = ("source", "target")
WEIGHTS = "train.weights.npy"
PLACES = tuple(f"data.{split}" for split in SPLITS)


class DataChangedError(DataError):
    """The corpus or a setting is not the one that the data of this run were prepared from."""


# --- Ids ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EncodedSide:
    """The ids of N sentences of one language, in one flat array: sentence i is ids[offsets[i] : offsets[i + 1]]."""

    ids: np.ndarray  # uint16, or int32 for a large vocabulary
    offsets: np.ndarray  # (N + 1), int64

    @classmethod
    def of(cls, lengths: np.ndarray, ids: np.ndarray) -> EncodedSide:
        return cls(ids, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))

    @property
    def lengths(self) -> np.ndarray:
        """(N), the end token included."""
        return np.diff(self.offsets) + 1

    def where(self, keep: np.ndarray) -> EncodedSide:
        """The sentences that `keep` (N, boolean) selects."""
        lengths = np.diff(self.offsets)
        return EncodedSide.of(lengths[keep], self.ids[np.repeat(keep, lengths)])

    def joined(self, rows: np.ndarray) -> np.ndarray:
        """The ids of the given sentences, any number of times each, one after the other."""
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        # Every token at once: where its row starts in `ids`, plus how many tokens of the row came before it.
        shift = starts - (np.cumsum(lengths) - lengths)
        return self.ids[np.repeat(shift, lengths) + np.arange(lengths.sum())]

    def padded(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The given sentences (B) as a block (B, longest) of ids, end token and padding, and their lengths (B)."""
        lengths = self.offsets[rows + 1] - self.offsets[rows]
        columns = np.arange(lengths.max(initial=0) + 1)
        block = np.where(columns == lengths[:, None], EOS, PAD)
        block[columns < lengths[:, None]] = self.joined(rows)
        return block, lengths + 1


def columns(pairs: Sequence[Pair]) -> tuple[list[str], list[str]]:
    """The sources and the targets of pairs."""
    return [source for source, _ in pairs], [target for _, target in pairs]


@dataclass(frozen=True)
class EncodedPairs:
    """N sentence pairs as ids."""

    source: EncodedSide
    target: EncodedSide

    def __len__(self) -> int:
        return len(self.source.offsets) - 1

    @property
    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Those of the sources (N) and those of the targets (N), the end tokens included."""
        return self.source.lengths, self.target.lengths

    def lengths_of(self, rows: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Likewise, of the given pairs, any number of times each; None: of all."""
        source, target = self.lengths
        return (source, target) if rows is None else (source[rows], target[rows])


def encode_side(texts: Sequence[str], tokenizer: Tokenizer) -> EncodedSide:
    """Tokenise sentences, in chunks, since a list of Python's numbers takes 20 times the room of an array."""
    dtype = np.uint16 if len(tokenizer) <= 2**16 else np.int32
    lengths, ids = [np.zeros(0, np.int64)], [np.zeros(0, dtype)]
    for start in range(0, len(texts), CHUNK):
        rows = tokenizer.encode_batch(texts[start : start + CHUNK])
        lengths.append(np.fromiter(map(len, rows), np.int64))
        ids.append(np.fromiter(chain.from_iterable(rows), dtype))
    return EncodedSide.of(np.concatenate(lengths), np.concatenate(ids))


def encode_pairs(pairs: Sequence[Pair], source: Tokenizer, target: Tokenizer) -> EncodedPairs:
    """Tokenise both sides of cleaned pairs."""
    sources, targets = columns(pairs)
    return EncodedPairs(encode_side(sources, source), encode_side(targets, target))


# --- The report ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SideReport:
    """One language: lengths of the training sentences in tokens, the vocabulary, and how well it covers."""

    language: str
    mean: float
    median: float
    percentile_99: float
    longest: int
    sentences: int  # one line in 200 has so many or more
    vocabulary: int
    left_out: int  # kinds of word that occur in training but have no id
    unknown: float  # share of the validation tokens


@dataclass(frozen=True)
class Report:
    """What the corpus holds, and what was done to it."""

    counts: dict[str, Count]
    sides: list[SideReport]  # of source and target; of plain text the same one twice
    repeated: dict[str, int]  # by split: sentences whose source, or plain text, stands in training, too

    @classmethod
    def of(cls, values: dict[str, Any]) -> Report:
        """The report of which `asdict` made the values."""
        counts = {split: Count(**count) for split, count in values["counts"].items()}
        return cls(counts, [SideReport(**side) for side in values["sides"]], values["repeated"])

    @property
    def plain(self) -> bool:
        """Whether this is about plain text, of which there is but one side."""
        return self.sides[0] == self.sides[1]

    @property
    def _things(self) -> str:
        return "texts" if self.plain else "pairs"

    def lines(self) -> list[str]:
        """The report, to be printed."""
        lines = []
        for split, count in self.counts.items():
            reasons = {
                "are empty" if self.plain else "lack a side": count.empty,
                "are not UTF-8": count.unreadable,
                "are too long": count.too_long,
                "are too uneven": count.uneven,
            }
            why = "".join(f"; {number:,} {reason} and are dropped" for reason, number in reasons.items() if number)
            lines.append(f"{split}: {count.read:,} {self._things}{why}")
        for side in self.sides[self.plain :]:
            rare = f" (without {side.left_out:,} rarer words)" if side.left_out else ""
            lines.append(
                f"{side.language}: {side.mean:.1f} tokens a sentence, half up to {side.median:.0f}, 99 % up to "
                f"{side.percentile_99:.0f}, longest {side.longest}; vocabulary {side.vocabulary:,}{rare}; "
                f"{side.unknown:.2%} of the validation tokens are unknown"
            )
        return lines + [f"warning: {warning}" for warning in self.warnings()]

    def warnings(self) -> list[str]:
        """What somebody should look at before believing in the run."""
        found = [
            f"{count.dropped / count.read:.0%} of the {split} {self._things} are dropped: is the corpus what it should "
            "be, and data.max_length large enough?"
            for split, count in self.counts.items()
            if count.dropped > 0.2 * count.read
        ]
        found += [
            f"{side.unknown:.0%} of the {side.language} validation tokens are unknown and will be "
            f"{'written' if self.plain else 'translated'} as [UNK]: "
            "set tokenizer.kind to bpe, or lower tokenizer.min_frequency."
            for side in self.sides[self.plain :]
            if side.unknown > 0.05
        ]
        return found + [
            f"{number:,} {'texts' if self.plain else 'source sentences'} of {split} stand in train, too: "
            "scores will flatter."
            for split, number in self.repeated.items()
            if number
        ]


def sampled(pairs: Sequence[Pair]) -> Sequence[Pair]:
    """The pairs, or SAMPLE of them where there are more: in their order, and always the same ones."""
    if len(pairs) <= SAMPLE:
        return pairs
    chosen = np.random.default_rng(0).choice(len(pairs), SAMPLE, replace=False)
    return [pairs[i] for i in np.sort(chosen)]


def _with_language(text: str, language: str) -> tuple[str, str]:
    """A text without its tag, if it has one, and the language that it is in."""
    direction, text = split_tag(text)
    return text, direction.source if direction else language


def _report(
    pairs: dict[str, list[Pair]],
    written: list[Pair],
    counts: dict[str, Count],
    train: EncodedPairs,
    tokenizers: tuple[Tokenizer, Tokenizer],
    data: DataConfig,
) -> Report:
    sides = []
    validation = encode_pairs(pairs["validation"], *tokenizers)
    lines = columns(sampled(written))
    languages = [data.source_lang, data.target_lang]
    if data.several:
        languages = [", ".join(dict.fromkeys(each)) for each in zip(*data.several, strict=True)]
    for side, language, tokenizer, texts in zip(SIDES, languages, tokenizers, lines, strict=True):
        if language is None:
            continue
        lengths = np.diff(getattr(train, side).offsets)
        counts_of_sentences = [len(sentences(*_with_language(text, language))) for text in texts]
        sides.append(
            SideReport(
                language,
                mean=float(lengths.mean()),
                median=float(np.median(lengths)),
                percentile_99=float(np.percentile(lengths, 99)),
                longest=int(lengths.max()),
                sentences=int(np.percentile(counts_of_sentences, 99.5)),
                vocabulary=len(tokenizer),
                left_out=tokenizer.left_out,
                unknown=float((getattr(validation, side).ids == UNK).mean()),
            )
        )
    # The few are held against the many: a set of all training sources would take as much room as their ids.
    held_out = {split: [known_by(pair, data) for pair in pairs[split]] for split in ("validation", "test")}
    few = set(chain(*held_out.values()))
    known = {sentence for pair in pairs["train"] if (sentence := known_by(pair, data)) in few}
    repeated = {split: sum(sentence in known for sentence in texts) for split, texts in held_out.items()}
    # What a language model is to go on from is cut by the lengths of what it has learnt.
    return Report(counts, sides if data.source_lang else 2 * sides, repeated)


# --- Preparing ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prepared:
    """All that a run knows of its corpus. The fingerprint tells it from every other, tokenizers included."""

    train: EncodedPairs
    weights: np.ndarray | None  # (N), how often each is seen in an epoch; None: once
    validation: list[Pair]  # cleaned text
    test: list[Pair]  # cleaned text; may be empty
    source: Tokenizer
    target: Tokenizer  # the same object, if the vocabulary is shared
    report: Report
    origin: dict[str, Any]  # the settings and the files that all this was made from
    fingerprint: str


def prepare(
    config: Config,
    directory: Path,
    say: Callable[[str], None],
    tokenizers: tuple[Tokenizer, Tokenizer] | None = None,
) -> Prepared:
    """Bring the corpus into `directory`, or load what an earlier call brought there from the same corpus and settings.

    Args:
        say: is told what goes on, a line at a time
        tokenizers: of source and target; None trains them on the training pairs

    Raises DataError if the corpus cannot be used, DataChangedError if it is not the one that was prepared. The folder
    appears by one rename: a preparation that is killed leaves nothing that a later one could mistake for data.
    """
    if directory.exists():
        prepared = load(directory)
        _check_unchanged(prepared.origin, config, say, tokenizers)
        return prepared
    data = config.data
    sources = find_sources(data)
    origin = {"settings": _settings(config, tokenizers), "files": hashes(sources)}
    for source in sources:
        if not source.files and data.revision is None:  # the hub has it
            say(
                f"warning: {source} can change on the hub, and this run could not be repeated: set data.revision to a "
                "commit of it."
            )
    say(f"reading {', '.join(dict.fromkeys(map(str, sources)))}")
    pairs, counts, weights = read_corpus(sources, data)
    if tokenizers is None:
        say(f"training the tokenizers on {len(pairs['train']):,} {noun(data)}s")
        # They are one for plain text, to which its empty sources add nothing.
        tokenizers = train_pair(*columns(pairs["train"]), config.tokenizer, targets(data.several))
    say("turning text into ids")
    train = encode_pairs(pairs["train"], *tokenizers)
    lengths = train.lengths if data.source_lang else train.lengths[1:]  # a single side is even with itself
    shorter, longer = np.min(lengths, axis=0) - 1, np.max(lengths, axis=0) - 1  # end tokens do not count
    short = longer <= data.max_length
    even = longer <= (data.max_ratio or np.inf) * shorter
    if not (short & even).any():
        limits = f"longer than data.max_length ({data.max_length})"
        if data.max_ratio and data.source_lang:
            limits += f" or more uneven than data.max_ratio ({data.max_ratio:g})"
        raise DataError(f"every training {noun(data)} is {limits}: set it higher.")
    counts["train"].too_long = int((~short).sum())
    counts["train"].uneven = int((short & ~even).sum())
    train = EncodedPairs(train.source.where(short & even), train.target.where(short & even))
    weights = np.array(weights, np.float32)[short & even]
    if data.temperature > 1 and data.several:
        numbers = {str(direction): number for number, direction in enumerate(data.several)}
        kept = [source for (source, _), keep in zip(pairs["train"], short & even, strict=True) if keep]
        weights = balanced(weights, [numbers[str(split_tag(source)[0])] for source in kept], data.temperature)
    if not len(rows_of(weights, 0, 0)):
        raise DataError(f"the weights in data.train leave none of its {len(train):,} {noun(data)}s: raise them.")
    written = pairs["train"]
    if data.lowercase:  # by their capitals sentences are told apart, here as in translating
        written = read_corpus(sources, replace(data, lowercase=False))[0]["train"]
    report = _report(pairs, written, counts, train, tokenizers, data)
    _write(directory, train, weights, tokenizers, pairs, {"origin": origin, "report": asdict(report)})
    return load(directory)


def _write(
    directory: Path,
    train: EncodedPairs,
    weights: np.ndarray,
    tokenizers: tuple[Tokenizer, Tokenizer],
    pairs: dict[str, list[Pair]],
    summary: dict[str, Any],
) -> None:
    """Put into the folder what `load` reads."""
    with _published(directory) as folder:
        if (weights != 1).any():
            np.save(folder / WEIGHTS, weights)
        for side, tokenizer in zip(SIDES, tokenizers, strict=True):
            np.save(folder / f"train.{side}.npy", getattr(train, side).ids)
            np.save(folder / f"train.{side}.offsets.npy", getattr(train, side).offsets)
            (folder / f"{side}.tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
        for split in ("validation", "test"):
            lines = "".join(f"{source}\t{target}\n" for source, target in pairs[split])
            (folder / f"{split}.tsv").write_text(lines, encoding="utf-8")
        (folder / "report.json").write_text(json.dumps(summary, indent=2, ensure_ascii=False), encoding="utf-8")


def load(directory: Path) -> Prepared:
    """What `prepare` wrote; DataError if it is not all there."""
    try:
        texts = [(directory / f"{side}.tokenizer.json").read_text(encoding="utf-8") for side in SIDES]
        source = Tokenizer.from_json(texts[0])
        target = source if texts[0] == texts[1] else Tokenizer.from_json(texts[1])
        arrays = [[directory / f"train.{side}{part}.npy" for part in ("", ".offsets")] for side in SIDES]
        weights = directory / WEIGHTS
        validation, test = (_load_pairs(directory / f"{split}.tsv") for split in ("validation", "test"))
        summary = json.loads((directory / "report.json").read_text(encoding="utf-8"))
        identity = [summary["origin"], source.fingerprint, target.fingerprint]
        return Prepared(
            train=EncodedPairs(*(EncodedSide(*map(_load_array, paths)) for paths in arrays)),
            weights=_load_array(weights) if weights.exists() else None,
            validation=validation,
            test=test,
            source=source,
            target=target,
            report=Report.of(summary["report"]),
            origin=summary["origin"],
            fingerprint=hashlib.sha256(json.dumps(identity).encode()).hexdigest(),
        )
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{directory} is damaged ({error}): restore it, or delete it to have it made anew.") from error


def _load_array(path: Path) -> np.ndarray:
    # As a plain array in either case: a memmap that is sliced makes a memmap each time, which is five times slower.
    return np.asarray(np.load(path, mmap_mode="r" if path.stat().st_size > LARGE else None))


def _load_pairs(path: Path) -> list[Pair]:
    rows = (line.split("\t") for line in path.read_text(encoding="utf-8").split("\n")[:-1])
    return [(source, target) for source, target in rows]


@contextmanager
def _published(directory: Path) -> Iterator[Path]:
    """A folder to write in, which takes its name, in one rename, once everything in it is on disk."""
    temporary = directory.with_name(f".{directory.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)  # of a preparation that was killed
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for path in (*temporary.iterdir(), temporary):
            sync(path)
        temporary.rename(directory)
        sync(directory.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


# --- Where prepared data come from --------------------------------------------------------------------------------


def _settings(config: Config, tokenizers: tuple[Tokenizer, Tokenizer] | None) -> dict[str, Any]:
    """Every setting that has a say in the prepared data, by name."""
    found: dict[str, Any] = {"format": FORMAT}
    weights = [weight for weight, _ in parts_of(config.data.train)]
    if weights != [1.0]:
        found["the weights in data.train"] = weights
    found |= {f"data.{key}": value for key, value in asdict(config.data).items() if key != "bleu_tokenize"}
    if tokenizers is None:
        return found | {f"tokenizer.{key}": value for key, value in asdict(config.tokenizer).items()}
    return found | {f"{side} tokenizer": each.fingerprint for side, each in zip(SIDES, tokenizers, strict=True)}


def _differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    return [key for key in one | other if one.get(key) != other.get(key)]


def _in_place(files: dict[str, str]) -> dict[str, str]:
    """The names that `hashes` gives, by what remains of each when a corpus moves or its folder is renamed."""
    found = {}
    for name in files:
        setting, _, path = name.partition(": ")
        _, *inside = Path(path).parts
        found[f"{setting}: {'/'.join(inside) or Path(path).suffix}"] = name
    return found


def _only_moved(key: str, before: str, after: str, files: dict[str, str]) -> bool:
    """Whether a place, or each of several, has the name that it had, or is one of files, whose content is told."""
    names = [[name for _, name in parts_of(text)] if key == "data.train" else [text] for text in (before, after)]
    if len(names[0]) != len(names[1]):
        return False
    settings = [key, *(f"{key} ({number})" for number in range(2, len(names[0]) + 1))]
    return all(
        one == other or any(name.startswith(f"{setting}: ") for name in files)
        for setting, one, other in zip(settings, *names, strict=True)
    )


def _check_unchanged(
    then: dict[str, Any], config: Config, say: Callable[[str], None], tokenizers: tuple[Tokenizer, Tokenizer] | None
) -> None:
    """DataChangedError if data were prepared from something else. A corpus that is gone, or has moved, has not changed.

    A place that is named anew must hold the very same files; what is on the hub cannot be told to be the same.
    """
    # What an older version of this program did not know, it did as the defaults do.
    defaults = {key: value for key, value in _settings(Config(), None).items() if key.startswith("data.")}
    before, after = defaults | then["settings"], _settings(config, tokenizers)
    settings = _differences(before, after)
    moved = [key for key in settings if key in PLACES]
    try:
        now = hashes(find_sources(config.data))
    except DataError as error:
        if moved:
            raise
        say(f"{error} Going on with what was prepared from it.")
        now = then["files"]
    files, new_files = _in_place(then["files"]), _in_place(now)
    changed = [
        files.get(place) or new_files[place]
        for place in files | new_files
        if then["files"].get(files.get(place, "")) != now.get(new_files.get(place, ""))
    ]
    if not changed:
        for key in [key for key in moved if _only_moved(key, before[key], after[key], now)]:
            say(f"{key} was {before[key]} and is {after[key]}: the same files in another place")
            settings.remove(key)
    changes = [f"{key} was {before.get(key)} and is {after.get(key)}" for key in settings]
    changes += [f"{name} is not the file it was" for name in changed]
    if changes:
        raise DataChangedError(
            f"this run was prepared from other data ({'; '.join(changes)}): change that back, or train "
            "under a new run.name."
        )


# --- Batches ------------------------------------------------------------------------------------------------------

# How far a pair may stray among pairs of its length, in tokens by which its sides differ: at 0 an epoch would be much
# like the one before it, at 8 there is twice as much padding (6 % rather than 3 % of Multi30k).
STRAY = 2.0


def batch_plan(
    source_lengths: np.ndarray, target_lengths: np.ndarray, batch_tokens: int, seed: int, epoch: int
) -> list[np.ndarray]:
    """Which pairs make which batch, in the order in which they are trained on; each pair is in one batch.

    Args:
        source_lengths, target_lengths: (N), the end tokens included
        batch_tokens: limit of rows x longest sentence of either side; a longer pair is a batch of its own
        seed, epoch: the same numbers give the same plan, on any machine
    """
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))
    longest = np.maximum(source_lengths, target_lengths)
    # Pairs of a length are sorted by which side is the longer one, to and fro, so that where one length ends and the
    # next begins both sides go on as they are.
    lean = source_lengths - target_lengths + STRAY * random.random(len(longest))
    order = np.argsort(np.where(longest % 2, lean, -lean), kind="stable")
    small = longest.astype(np.min_scalar_type(longest.max(initial=0)))  # numbers of one or two bytes sort in no time
    order = order[np.argsort(small[order], kind="stable")]
    longest = longest[order]
    batches = []
    start = 0
    while start < len(order):
        ahead = longest[start : start + max(1, batch_tokens // longest[start])]
        sizes = ahead * np.arange(1, len(ahead) + 1)  # of the batch that ends with each row; they only grow
        rows = max(1, int(np.searchsorted(sizes, batch_tokens, side="right")))
        batches.append(order[start : start + rows])
        start += rows
    return [batches[i] for i in random.permutation(len(batches))]


def rows_of(weights: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """The pairs that an epoch sees, each by its number, as often as its weight (N) says: 2.5 is two or three times.

    Which are seen once more is drawn from (seed, epoch), among all pairs of that weight; how many they are is the same
    in every epoch.
    """
    random = np.random.default_rng((seed, epoch))
    times = np.floor(weights).astype(np.int64)
    for weight in np.unique(weights):
        alike = np.flatnonzero(weights == weight)
        more = round(float(weight % 1) * len(alike))
        times[random.permutation(alike)[:more]] += 1
    return np.repeat(np.arange(len(weights)), times)


def balanced(weights: np.ndarray, parts: Sequence[int], temperature: float) -> np.ndarray:
    """The weights of pairs (N) that are parted, raised where a part (its number for each, N) has few.

    A part of share p is seen in proportion to p ** (1 / temperature) (Arivazhagan et al. 2019), the largest as before.
    """
    totals = np.bincount(parts, weights)
    factors = np.divide(totals, totals.max(), out=np.ones_like(totals), where=totals > 0) ** (1 / temperature - 1)
    return (weights * np.minimum(factors, MOST_OFTEN)[np.asarray(parts)]).astype(np.float32)


def plan_of(
    count: int, source_lengths: np.ndarray, target_lengths: np.ndarray, batch_tokens: int, seed: int, epoch: int
) -> list[np.ndarray]:
    """As `batch_plan`, in so many batches, for which their limit may have to be another one.

    With subword dropout lengths change from epoch to epoch, but the number of updates, by which the rate falls, must
    not. `count` is that of the very pairs as they are, and at most so many pairs are there.
    """
    limit = batch_tokens
    while len(plan := batch_plan(source_lengths, target_lengths, limit, seed, epoch)) > count:
        limit = max(limit + 1, math.ceil(limit * len(plan) / count))
    plan.sort(key=len)
    while len(plan) < count:  # by a few
        for half in np.array_split(plan.pop(), 2):
            insort(plan, half, key=len)
    random = np.random.default_rng((seed, epoch))
    return [plan[i] for i in random.permutation(len(plan))]


@dataclass(frozen=True)
class Batch:
    """Pairs as padded ids, all int64. Position t of target_out is the token that follows position t of target_in."""

    source: Tensor  # (B, S): ids, end, padding
    target_in: Tensor  # (B, T): start, ids, padding
    target_out: Tensor  # (B, T): ids, end, padding
    indices: np.ndarray  # (B): which pairs these are
    tokens: int  # of the target, the end tokens included, padding not
    source_tokens: int  # likewise

    @property
    def padding(self) -> float:
        """Share of the positions of both sides that hold no token."""
        return 1 - (self.source_tokens + self.tokens) / (self.source.numel() + self.target_out.numel())

    def to(self, device: torch.device | str) -> Batch:
        """The batch on a device."""
        return self.moved(lambda ids: ids.to(device))

    def moved(self, how: Callable[[Tensor], Tensor]) -> Batch:
        """The batch with its ids in another memory."""
        source, target_in, target_out = map(how, (self.source, self.target_in, self.target_out))
        return replace(self, source=source, target_in=target_in, target_out=target_out)

    def halves(self) -> list[Batch]:
        """The first and the second half of at least two rows, each no wider than its own sentences are."""
        middle = len(self.indices) // 2
        return [self._rows(slice(middle)), self._rows(slice(middle, None))]

    def share(self, index: int, count: int) -> Batch:
        """What rank `index` of `count` computes of it: every count-th row, so that each has as much to do.

        Of fewer rows than ranks, whoever has none computes the first one for nothing, as `tokens` of 0 tells: in what
        follows all take part.
        """
        if count == 1:
            return self
        if index >= len(self.indices):
            return replace(self._rows(slice(1)), tokens=0, source_tokens=0)
        return self._rows(slice(index, None, count))

    def _rows(self, rows: slice) -> Batch:
        source, target = self.source[rows], self.target_out[rows]
        of_source, of_target = ((ids != PAD).any(0) for ids in (source, target))
        return Batch(
            source[:, of_source],
            self.target_in[rows][:, of_target],
            target[:, of_target],
            self.indices[rows],
            int((target != PAD).sum()),
            int((source != PAD).sum()),
        )


def make_batch(pairs: EncodedPairs, indices: np.ndarray) -> Batch:
    """The batch of the given pairs (B)."""
    source, source_lengths = pairs.source.padded(indices)
    target, target_lengths = pairs.target.padded(indices)
    started = np.where(target == EOS, PAD, target)[:, :-1]
    started = np.concatenate([np.full((len(indices), 1), SOS), started], axis=1)
    return Batch(
        torch.from_numpy(source),
        torch.from_numpy(started),
        torch.from_numpy(target),
        indices,
        int(target_lengths.sum()),
        int(source_lengths.sum()),
    )


def have_room(pairs: EncodedPairs, upsampling: int) -> np.ndarray:
    """Which targets fit into the places of an encoder-only model: (N), boolean.

    A token takes a place, and so does what parts it from one that equals it, see `ctc`; the end token takes none.
    """
    ids, offsets = pairs.target.ids, pairs.target.offsets
    again = np.zeros(len(ids) + 1, np.int64)  # how often, up to each token, one follows upon its like
    again[2:] = np.cumsum(ids[1:] == ids[:-1])
    starts, ends = offsets[:-1], offsets[1:]
    repeats = again[ends] - again[np.minimum(starts + 1, ends)]
    return ends - starts + repeats <= upsampling * pairs.source.lengths


def twins(source: Tokenizer, target: Tokenizer) -> np.ndarray:
    """For each source id the target id of the very same word, if that is likely to be a name, a number or the like.

    -1 stands for no such word: pieces of words have none, and words of one or two letters (a, in, no) mean different
    things in two languages.
    """
    found = np.full(len(source), -1)
    if UNK in source.encode(UNSEEN):
        there = target.vocabulary
        for word, i in source.vocabulary.items():
            letters = sum(map(str.isalnum, word))
            if word not in SPECIAL_TOKENS and word not in source.tags and (letters > 2 or any(map(str.isdigit, word))):
                found[i] = there.get(word, -1)
    return found


def without_copied(batch: Batch, twin: np.ndarray, rate: float, random: np.random.Generator) -> Batch:
    """The batch with [UNK], at the given rate, for words that a source and its target share, on both sides.

    What stands on both sides is copied, be it the name of a person or a number. A model that has never seen [UNK] in
    the place of one makes up some word for the next name that it does not know; now it learns to say [UNK] there, and
    `Translator` puts the name.

    Args:
        twin: see `twins`
    """
    target, twin_of = batch.target_out.numpy(), twin[batch.source.numpy()]  # (B, T), (B, S)
    drawn = (random.random(twin_of.shape) < rate) & (twin_of >= 0)  # (B, S)
    if not drawn.any():  # with pieces of words: always
        return batch
    same = (twin_of[:, :, None] == target[:, None, :]) & drawn[:, :, None]  # (B, S, T)
    # A word that occurs twice is dropped twice.
    of_target = same.any(1)  # (B, T)
    of_source = (twin_of[:, :, None] == np.where(of_target, target, -2)[:, None, :]).any(2)  # (B, S)
    started = np.pad(of_target[:, :-1], ((0, 0), (1, 0)))
    return replace(
        batch,
        source=batch.source.masked_fill(torch.from_numpy(of_source), UNK),
        target_in=batch.target_in.masked_fill(torch.from_numpy(started), UNK),
        target_out=batch.target_out.masked_fill(torch.from_numpy(of_target), UNK),
    )


def source_batch(sources: Sequence[Sequence[int]]) -> Tensor:
    """Sentences to translate, as ids without an end token, made (B, S)."""
    lengths = np.fromiter(map(len, sources), np.int64)
    side = EncodedSide.of(lengths, np.fromiter(chain.from_iterable(sources), np.int64))
    return torch.from_numpy(side.padded(np.arange(len(sources)))[0])
