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

Preparing goes by shards of some ten thousand pairs: text is read into one file, the tokenizers learn from that file,
and it becomes ids, appended to the arrays that training will read. All this lies in a hidden folder beside the final
one, and a preparation that is killed at any moment goes on behind its last whole shard, to the very same end.

Limits: preparing holds a shard, the kinds of word that the tokenizers count, the pairs held out, and, for the report,
30 bytes a training pair. It needs room on disk for the cleaned text beside the ids. Training maps the ids from disk
where they are large; a plan takes 45 bytes a pair. Nothing here locks the folder: one process prepares, the others
load afterwards.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import math
import os
import platform
import shutil
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, compress, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from checkpoint import replace_durably, sync
from config import EOS, PAD, SOS, SPECIAL_TOKENS, UNK, Config, ConfigError, DataConfig
from corpus import (
    MOST_OFTEN,
    SPLITS,
    Count,
    DataError,
    Pair,
    Source,
    check_splits,
    find_sources,
    hashes,
    known_by,
    noun,
    parts_of,
    read_portions,
)
from languages import split_tag, targets
from segment import sentences
from tokenizer import UNSEEN, Tokenizer, train_pair

FORMAT = 2  # of the prepared folder
LARGE = 64 * 2**20  # bytes; arrays above are mapped from disk
CHUNK = 10_000  # sentences that are tokenised at a time
SHARD = 50_000  # pairs that are worked on at a time
SAMPLE = 100_000  # training pairs in which sentences are counted: more would not change what one line in 200 has
SIDES = ("source", "target")
HEAD = 128  # bytes before the numbers of an .npy file
WEIGHTS = "train.weights.npy"
# In the hidden folder in which data are prepared:
RESULT = "data"  # what is renamed in the end
TEXTS = ("text", "written")  # the corpus as it is trained on, and as it was written if that differs
NOTE = "so-far.json"
ORIGIN = "origin.json"
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
        """(N), int32, the end token included."""
        lengths = np.empty(len(self.offsets) - 1, np.int32)
        np.subtract(self.offsets[1:], self.offsets[:-1], out=lengths, casting="same_kind")
        lengths += 1
        return lengths

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


def _id_type(tokenizer: Tokenizer) -> type[np.integer]:
    return np.uint16 if len(tokenizer) <= 2**16 else np.int32


def encode_side(texts: Sequence[str], tokenizer: Tokenizer) -> EncodedSide:
    """Tokenise sentences, in chunks, since a list of Python's numbers takes 20 times the room of an array."""
    dtype = _id_type(tokenizer)
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


def sampled(count: int) -> np.ndarray:
    """The numbers of the pairs, or SAMPLE of them where there are more: in their order, and always the same ones."""
    if count <= SAMPLE:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, SAMPLE, replace=False))


def _with_language(text: str, language: str) -> tuple[str, str]:
    """A text without its tag, if it has one, and the language that it is in."""
    direction, text = split_tag(text)
    return text, direction.source if direction else language


def _report(
    text: Text,
    written: Text,
    counts: dict[str, Count],
    train: EncodedPairs,
    tokenizers: tuple[Tokenizer, Tokenizer],
    data: DataConfig,
) -> Report:
    sides = []
    held_out = {split: text.held_out(split) for split in ("validation", "test")}
    validation = encode_pairs(held_out["validation"], *tokenizers)
    lines = columns(written.rows(sampled(written.kept["train"])))
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
    names = {split: [known_by(pair, data) for pair in pairs] for split, pairs in held_out.items()}
    few = set(chain(*names.values()))
    known = {sentence for pair in text.pairs() if (sentence := known_by(pair, data)) in few}
    repeated = {split: sum(sentence in known for sentence in texts) for split, texts in names.items()}
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
    appears by one rename. A preparation that was killed is gone on with, if it was of this corpus and these settings.
    """
    workplace = directory.with_name(f".{directory.name}.tmp")
    if directory.exists():
        prepared = load(directory)
        _check_unchanged(prepared.origin, config, say, tokenizers)
        shutil.rmtree(workplace, ignore_errors=True)  # of one that was killed when all was done
        return prepared
    sources = find_sources(config.data)
    origin = {"settings": _settings(config, tokenizers), "files": hashes(sources)}
    for source in sources:
        if not source.files and config.data.revision is None:  # the hub has it
            say(
                f"warning: {source} can change on the hub, and this run could not be repeated: set data.revision to a "
                "commit of it."
            )
    if _begun(workplace, origin, sources, config.data):
        say("going on with a preparation that was cut short")
    result = workplace / RESULT
    try:
        if not (result / "report.json").exists():  # the last of the files
            _make(workplace, sources, config, say, tokenizers, origin)
    except (DataError, ConfigError):  # would be met again
        shutil.rmtree(workplace)
        raise
    for path in (*result.iterdir(), result):
        sync(path)
    for path in [path for path in workplace.iterdir() if path.name not in (RESULT, ORIGIN)]:  # text above all
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    result.rename(directory)
    sync(directory.parent)
    shutil.rmtree(workplace)
    return load(directory)


def _begun(workplace: Path, origin: dict[str, Any], sources: Sequence[Source], data: DataConfig) -> bool:
    """Whether the workplace holds work to go on with. What is of another corpus is thrown away."""
    # Other libraries could clean or cut text otherwise, and the data would be partly of one kind, partly of the other.
    versions = {name: importlib.metadata.version(name) for name in ("tokenizers", "datasets")}
    ours = {"origin": origin, "versions": versions | {"python": platform.python_version()}}
    begun = _noted(workplace / ORIGIN) == ours
    if not all(source.files or data.revision for source in sources):  # by now the hub may have something else
        begun = begun and all(note["state"]["whole"] for name in TEXTS if (note := _noted(workplace / name / NOTE)))
    if not begun:
        if workplace.exists():
            shutil.rmtree(workplace)
        (workplace / RESULT).mkdir(parents=True)
        replace_durably(workplace / ORIGIN, _as_json(ours))
    return begun


def _make(
    workplace: Path,
    sources: Sequence[Source],
    config: Config,
    say: Callable[[str], None],
    tokenizers: tuple[Tokenizer, Tokenizer] | None,
    origin: dict[str, Any],
) -> None:
    """Put what `load` reads into the result. Each step does what of it is not yet done."""
    data, result = config.data, workplace / RESULT
    text = Text(workplace / TEXTS[0], noun(data))
    if not text.whole:
        say(f"reading {', '.join(dict.fromkeys(map(str, sources)))}")
        text.read(sources, data)
    tokenizers = _tokenizers(result, text, config, say, tokenizers)
    say("turning text into ids")
    counts = text.counts
    counts["train"] += _encode(workplace, text, tokenizers, data)
    written = text
    if data.lowercase:  # by their capitals sentences are told apart, here as in translating
        written = Text(workplace / TEXTS[1], noun(data))
        if not written.whole:
            written.read(sources, replace(data, lowercase=False))
    report = _report(text, written, counts, _load_train(result), tokenizers, data)
    for split in ("validation", "test"):
        shutil.copyfile(text.path(split), result / f"{split}.tsv")
    replace_durably(result / "report.json", _as_json({"origin": origin, "report": asdict(report)}))


def _tokenizers(
    result: Path, text: Text, config: Config, say: Callable[[str], None], given: tuple[Tokenizer, Tokenizer] | None
) -> tuple[Tokenizer, Tokenizer]:
    """Those given, or those that learn from the text.

    They are on disk before anything is encoded with them: trained once more, they could give other ids.
    """
    note = result.parent / "tokenizers.json"
    places = [result / f"{side}.tokenizer.json" for side in SIDES]
    left_out = _noted(note)
    if left_out is None:
        if given is None:
            say(f"training the tokenizers on {text.kept['train']:,} {noun(config.data)}s")
            # They are one for plain text, to which its empty sources add nothing.
            given = train_pair(text.column(0), text.column(1), config.tokenizer, targets(config.data.several))
        for place, tokenizer in zip(places, given, strict=True):
            replace_durably(place, tokenizer.to_json().encode())
        left_out = [tokenizer.left_out for tokenizer in given]
        replace_durably(note, _as_json(left_out))
    source, target = (Tokenizer.from_json(place.read_text(encoding="utf-8")) for place in places)
    source.left_out, target.left_out = left_out
    return source, target


def _encode(workplace: Path, text: Text, tokenizers: tuple[Tokenizer, Tokenizer], data: DataConfig) -> Count:
    """Append the ids of the training pairs to the arrays of the result, and count those that are dropped.

    DataError if none is left.
    """
    result, weights_file, directions_file = workplace / RESULT, workplace / "weights", workplace / "directions"
    numbers = {str(direction): number for number, direction in enumerate(data.several)}
    arrays: dict[Path, Any] = {}  # their types
    for side, tokenizer in zip(SIDES, tokenizers, strict=True):
        arrays |= {result / f"train.{side}.npy": _id_type(tokenizer), result / f"train.{side}.offsets.npy": np.int64}
    heads = [bytes(HEAD), bytes(HEAD) + bytes(8)]  # offsets begin with 0
    files = dict(zip(arrays, 2 * heads, strict=True)) | {weights_file: b"", directions_file: b""}
    start = {"at": 0, "rows": 0, "kept": 0, "ids": [0, 0], "weighted": False, "dropped": asdict(Count())}
    with Growing(workplace / "ids.json", files, start) as growing:
        state = growing.state
        with _bar(text.unit, text.kept["train"], state["rows"]) as bar:
            for pairs, at in text.shards(state["at"]):
                encoded = encode_pairs(pairs, *tokenizers)
                keep, dropped = _within(encoded, data)
                parts = []
                for number, side in enumerate((encoded.source.where(keep), encoded.target.where(keep))):
                    parts += [side.ids, side.offsets[1:] + state["ids"][number]]
                    state["ids"][number] += len(side.ids)
                weights = text.weights(state["rows"], state["rows"] + len(pairs))[keep]
                state |= {"at": at, "rows": state["rows"] + len(pairs), "kept": state["kept"] + len(weights)}
                state["weighted"] |= bool((weights != 1).any())
                state["dropped"] = asdict(Count(**state["dropped"]) + dropped)
                directions = [numbers[str(split_tag(source)[0])] for source, _ in pairs] if numbers else []
                directions = np.array(directions, np.uint16)[keep if numbers else ()]
                growing.append(part.tobytes() for part in (*parts, weights, directions))
                bar.update(len(pairs))
    if not state["kept"]:
        limits = f"longer than data.max_length ({data.max_length})"
        if data.max_ratio and data.source_lang:
            limits += f" or more uneven than data.max_ratio ({data.max_ratio:g})"
        raise DataError(f"every training {noun(data)} is {limits}: set it higher.")
    for path, dtype in arrays.items():
        _write_head(path, np.dtype(dtype))
    balance = bool(numbers) and data.temperature > 1
    if state["weighted"] or balance:
        weights = np.fromfile(weights_file, np.float32)
        if balance:
            weights = balanced(weights, np.fromfile(directions_file, np.uint16), data.temperature)
        if not len(rows_of(weights, 0, 0)):
            raise DataError(f"the weights in data.train leave none of its {len(weights):,} {noun(data)}s: raise them.")
        np.save(result / WEIGHTS, weights)
    return Count(**state["dropped"])


def _within(pairs: EncodedPairs, data: DataConfig) -> tuple[np.ndarray, Count]:
    """Which pairs are within the limits (N, boolean), and how many are not."""
    lengths = pairs.lengths if data.source_lang else pairs.lengths[1:]  # a single side is even with itself
    shorter, longer = np.min(lengths, axis=0) - 1, np.max(lengths, axis=0) - 1  # end tokens do not count
    short = longer <= data.max_length
    even = longer <= (data.max_ratio or np.inf) * shorter
    return short & even, Count(too_long=int((~short).sum()), uneven=int((short & ~even).sum()))


def _write_head(path: Path, dtype: np.dtype) -> None:
    """Make an .npy file of the numbers that stand in it behind room for the head: the one that `np.save` writes."""
    head = io.BytesIO()
    count = (path.stat().st_size - HEAD) // dtype.itemsize
    np.lib.format.write_array_header_1_0(
        head, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (count,)}
    )
    assert head.tell() == HEAD
    with path.open("r+b") as file:
        file.write(head.getvalue())


def load(directory: Path) -> Prepared:
    """What `prepare` wrote; DataError if it is not all there."""
    try:
        texts = [(directory / f"{side}.tokenizer.json").read_text(encoding="utf-8") for side in SIDES]
        source = Tokenizer.from_json(texts[0])
        target = source if texts[0] == texts[1] else Tokenizer.from_json(texts[1])
        weights = directory / WEIGHTS
        validation, test = (_load_pairs(directory / f"{split}.tsv") for split in ("validation", "test"))
        summary = json.loads((directory / "report.json").read_text(encoding="utf-8"))
        identity = [summary["origin"], source.fingerprint, target.fingerprint]
        return Prepared(
            train=_load_train(directory),
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


def _load_train(directory: Path) -> EncodedPairs:
    paths = [[directory / f"train.{side}{part}.npy" for part in ("", ".offsets")] for side in SIDES]
    return EncodedPairs(*(EncodedSide(*map(_load_array, each)) for each in paths))


def _load_array(path: Path) -> np.ndarray:
    # As a plain array in either case: a memmap that is sliced makes a memmap each time, which is five times slower.
    return np.asarray(np.load(path, mmap_mode="r" if path.stat().st_size > LARGE else None))


def _load_pairs(path: Path) -> list[Pair]:
    with path.open(encoding="utf-8", newline="\n") as file:
        return list(map(_pair_of, file))


def _bar(unit: str, total: int | None = None, done: int = 0) -> tqdm:
    """Pairs, as they are done; None for `disable`: only on a terminal."""
    return tqdm(total=total, initial=done, unit=unit, unit_scale=True, dynamic_ncols=True, disable=None, leave=False)


# --- Work that can be gone on with --------------------------------------------------------------------------------


def _as_json(values: Any) -> bytes:
    return json.dumps(values, indent=2, ensure_ascii=False).encode()


def _noted(path: Path) -> Any:
    """What `_as_json` wrote; None if there is no such file."""
    return json.loads(path.read_bytes()) if path.exists() else None


class Growing:
    """Files that grow together, shard by shard, so that work on them which is killed can go on behind a whole one.

    A note of their sizes, and of `state`, replaces the one before once all of a shard is on disk. What a file has
    beyond the size that was noted is of a shard that was cut short, and is cut off.

    Attributes:
        state: all else that there is to know in order to go on, as JSON can hold it
    """

    def __init__(self, note: Path, files: Mapping[Path, bytes], start: dict[str, Any]) -> None:
        """files tells what each begins with, and start the state at that time."""
        self.note = note
        noted = _noted(note)
        self.state = noted["state"] if noted else start
        for number, (path, first) in enumerate(files.items()):
            if noted:
                os.truncate(path, noted["sizes"][number])
            else:
                path.write_bytes(first)
        self.files = [path.open("ab") for path in files]

    def __enter__(self) -> Growing:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self.files:
            file.close()

    def append(self, parts: Iterable[bytes]) -> None:
        """Add a part to each file, and note that this is done, and the state."""
        for file, part in zip(self.files, parts, strict=True):
            file.write(part)
            file.flush()
            os.fsync(file.fileno())
        replace_durably(self.note, _as_json({"sizes": [file.tell() for file in self.files], "state": self.state}))


class Text:
    """The cleaned pairs of a corpus by split, in a folder: a pair a line, a tab between its sides, which have neither.

    Attributes:
        unit: what to call one of them
        whole: whether the corpus has been read to its end
        kept: how many pairs of each split there are
    """

    def __init__(self, folder: Path, unit: str) -> None:
        self.folder, self.unit = folder, unit
        noted = _noted(folder / NOTE)
        counts = {split: asdict(Count()) for split in SPLITS}
        start = {"read": 0, "whole": False, "kept": dict.fromkeys(SPLITS, 0), "counts": counts, "weights": []}
        start["learnt"] = []
        self.state: dict[str, Any] = noted["state"] if noted else start

    @property
    def whole(self) -> bool:
        return self.state["whole"]

    @property
    def kept(self) -> dict[str, int]:
        return self.state["kept"]

    @property
    def counts(self) -> dict[str, Count]:
        """What became of the pairs that were read, by split."""
        return {split: Count(**count) for split, count in self.state["counts"].items()}

    def path(self, split: str) -> Path:
        return self.folder / f"{split}.tsv"

    def read(self, sources: Sequence[Source], data: DataConfig) -> None:
        """Read the corpus, or go on with it where that was cut short. Raises DataError."""
        self.folder.mkdir(exist_ok=True)
        files = {self.path(split): b"" for split in SPLITS}
        with Growing(self.folder / NOTE, files, self.state) as growing:
            self.state = state = growing.state
            with _bar(self.unit, done=state["read"]) as bar:
                for portion in read_portions(sources, data, skip=state["read"]):
                    for split, count in self.counts.items():
                        state["counts"][split] = asdict(count + portion.counts[split])
                        state["kept"][split] += len(portion.pairs[split])
                    state["read"] += portion.read
                    state["learnt"] = sorted({*state["learnt"], *portion.learnt})
                    state["weights"].append((portion.weight, len(portion.pairs["train"])))
                    growing.append(_lines(portion.pairs[split]) for split in SPLITS)
                    bar.update(portion.read)
            check_splits(self.kept, self.counts, state["learnt"], data)
            state["whole"] = True
            growing.append(b"" for _ in SPLITS)

    def weights(self, start: int, stop: int) -> np.ndarray:
        """How often each of these training pairs is seen in an epoch, float32."""
        weights, counts = zip(*self.state["weights"], strict=True)
        ends = np.cumsum(counts)
        inside = np.minimum(ends, stop) - np.maximum(ends - counts, start)
        return np.repeat(np.array(weights, np.float32), inside.clip(0))

    def pairs(self) -> Iterator[Pair]:
        """Those of training."""
        with self.path("train").open(encoding="utf-8", newline="\n") as file:
            yield from map(_pair_of, file)

    def column(self, side: int) -> Iterator[str]:
        """The sources (0) or the targets (1) of training, with a bar."""
        with _bar(self.unit, self.kept["train"]) as bar:
            for pair in self.pairs():
                yield pair[side]
                bar.update()

    def rows(self, numbers: np.ndarray) -> list[Pair]:
        """The training pairs of these numbers, in their order."""
        wanted = np.zeros(self.kept["train"], bool)
        wanted[numbers] = True
        return list(compress(self.pairs(), wanted.tobytes()))

    def shards(self, at: int) -> Iterator[tuple[list[Pair], int]]:
        """The training pairs from a byte on, SHARD at a time, and the byte behind these."""
        with self.path("train").open("rb") as file:
            file.seek(at)
            while lines := list(islice(file, SHARD)):
                at += sum(map(len, lines))
                yield [_pair_of(line.decode()) for line in lines], at

    def held_out(self, split: str) -> list[Pair]:
        """All pairs of validation or test."""
        return _load_pairs(self.path(split))


def _lines(pairs: Iterable[Pair]) -> bytes:
    return "".join(f"{source}\t{target}\n" for source, target in pairs).encode()


def _pair_of(line: str) -> Pair:
    source, target = line[:-1].split("\t")
    return source, target


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


def balanced(weights: np.ndarray, parts: np.ndarray, temperature: float) -> np.ndarray:
    """The weights of pairs (N) that are parted, raised where a part (its number for each, N) has few.

    A part of share p is seen in proportion to p ** (1 / temperature) (Arivazhagan et al. 2019), the largest as before.
    """
    totals = np.bincount(parts, weights)
    factors = np.divide(totals, totals.max(), out=np.ones_like(totals), where=totals > 0) ** (1 / temperature - 1)
    return (weights * np.minimum(factors, MOST_OFTEN)[parts]).astype(np.float32)


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
    needed = [np.zeros(0, np.int64)]
    for start in range(0, len(pairs), SHARD):
        offsets = pairs.target.offsets[start : start + SHARD + 1]
        ids = pairs.target.ids[offsets[0] : offsets[-1]]
        again = np.zeros(len(ids) + 1, np.int64)  # how often, up to each token, one follows upon its like
        again[2:] = np.cumsum(ids[1:] == ids[:-1])
        starts, ends = offsets[:-1] - offsets[0], offsets[1:] - offsets[0]
        needed.append(ends - starts + again[ends] - again[np.minimum(starts + 1, ends)])
    return np.concatenate(needed) <= upsampling * pairs.source.lengths


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
