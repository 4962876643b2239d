"""What a run trains on: text read, cleaned and tokenised once, into files of the run's folder, with a report.

Use:
    data = prepare(config, run / "data", print)                  # once a run; later calls load what the first one wrote

What is decided here is never decided again: the tokenizers, which pair belongs to which split, and the ids.

Preparing goes by shards of some ten thousand pairs: text is read into one file, the tokenizers learn from that file,
and it becomes ids, appended to the arrays that training will read. All this lies in a hidden folder beside the final
one, and a preparation that is killed at any moment goes on behind its last whole shard, to the very same end.

Limits: preparing holds a shard, the kinds of word that the tokenizers count, the pairs held out, and, for the report,
30 bytes a training pair. It needs room on disk for the cleaned text beside the ids. Training maps the ids from disk
where they are large. Nothing here locks the folder: one process prepares, the others load afterwards.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, compress, islice
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from dragoman.corpora.mixing import balanced, rows_of
from dragoman.corpora.report import CorpusReport, SideReport
from dragoman.corpora.sentence_splitting import split_sentences
from dragoman.corpora.sources import SPLITS, Source, find_sources, parts_of, unit_name
from dragoman.corpora.splitting import Count, check_splits, hashes, known_by, read_portions
from dragoman.corpora.subwords import train_tokenizers
from dragoman.dataset import SHARD, EncodedPairs, EncodedSide, Pair, Tokenizer, encode_pairs, id_type, unzip_pairs
from dragoman.directions import split_tag, targets
from dragoman.errors import ConfigError, DataChangedError, DataError
from dragoman.settings import UNK, Config, DataConfig
from dragoman.storage import replace_durably, sync

FORMAT = 2  # of the prepared folder
LARGE = 64 * 2**20  # bytes; arrays above are mapped from disk
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


def sampled(count: int) -> np.ndarray:
    """The numbers of the pairs, or SAMPLE of them where there are more: in their order, and always the same ones."""
    if count <= SAMPLE:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, SAMPLE, replace=False))


def _with_language(text: str, language: str, data: DataConfig) -> tuple[str, str]:
    """A text without its tag, if it has one, and the language that it is in."""
    direction, rest = split_tag(text) if data.several else (None, text)
    return rest, direction.source if direction else language


def _report(
    text: Text,
    written: Text,
    counts: dict[str, Count],
    train: EncodedPairs,
    tokenizers: tuple[Tokenizer, Tokenizer],
    data: DataConfig,
) -> CorpusReport:
    sides = []
    held_out = {split: text.held_out(split) for split in ("validation", "test")}
    validation = encode_pairs(held_out["validation"], *tokenizers)
    lines = unzip_pairs(written.rows(sampled(written.kept["train"])))
    languages = [data.source_lang, data.target_lang]
    if data.several:
        each = (", ".join(dict.fromkeys(names)) for names in zip(*data.several, strict=True))
        languages = [f"{side} ({names})" for side, names in zip(SIDES, each, strict=True)]
    for side, language, tokenizer, texts in zip(SIDES, languages, tokenizers, lines, strict=True):
        if language is None:
            continue
        lengths = np.diff(getattr(train, side).offsets)
        counts_of_sentences = [len(split_sentences(*_with_language(text, language, data))) for text in texts]
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
    names = {split: [_names(pair, data) for pair in pairs] for split, pairs in held_out.items()}
    few = set(chain(*chain(*names.values())))
    known = {name for pair in text.pairs() for name in _names(pair, data) if name in few}
    repeated = {split: sum(not known.isdisjoint(each) for each in of_split) for split, of_split in names.items()}
    # What a language model is to go on from is cut by the lengths of what it has learnt.
    return CorpusReport(counts, sides if data.source_lang else 2 * sides, repeated)


def _names(pair: Pair, data: DataConfig) -> list[str]:
    """By what a pair is known again. With several directions, what is a target in one may be a source in another."""
    return [split_tag(pair[0])[1], pair[1]] if data.several else [known_by(pair, data)]


# --- Preparing ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PreparedData:
    """All that a run knows of its corpus. The fingerprint tells it from every other, tokenizers included."""

    train: EncodedPairs
    weights: np.ndarray | None  # (N), how often each is seen in an epoch; None: once
    validation: list[Pair]  # cleaned text
    test: list[Pair]  # cleaned text; may be empty
    source: Tokenizer
    target: Tokenizer  # the same object, if the vocabulary is shared
    report: CorpusReport
    origin: dict[str, Any]  # the settings and the files that all this was made from
    fingerprint: str


def prepare_data(
    config: Config,
    directory: Path,
    say: Callable[[str], None],
    tokenizers: tuple[Tokenizer, Tokenizer] | None = None,
) -> PreparedData:
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
    text = Text(workplace / TEXTS[0], unit_name(data))
    if not text.whole:
        say(f"reading {', '.join(dict.fromkeys(map(str, sources)))}")
        text.read(sources, data)
    tokenizers = _tokenizers(result, text, config, say, tokenizers)
    say("turning text into ids")
    counts = text.counts
    counts["train"] += _encode(workplace, text, tokenizers, data)
    written = text
    if data.lowercase:  # by their capitals sentences are told apart, here as in translating
        written = Text(workplace / TEXTS[1], unit_name(data))
        if not written.whole:
            written.read(sources, replace(data, lowercase=False), check=False)  # by its letters, split otherwise
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
            say(f"training the tokenizers on {text.kept['train']:,} {unit_name(config.data)}s")
            # They are one for plain text, to which its empty sources add nothing.
            given = train_tokenizers(text.column(0), text.column(1), config.tokenizer, targets(config.data.several))
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
        arrays |= {result / f"train.{side}.npy": id_type(tokenizer), result / f"train.{side}.offsets.npy": np.int64}
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
        raise DataError(f"every training {unit_name(data)} is {limits}: set it higher.")
    for path, dtype in arrays.items():
        _write_head(path, np.dtype(dtype))
    balance = bool(numbers) and data.temperature > 1
    if state["weighted"] or balance:
        weights = np.fromfile(weights_file, np.float32)
        if balance:
            weights = balanced(weights, np.fromfile(directions_file, np.uint16), data.temperature)
        if not len(rows_of(weights, 0, 0)):
            raise DataError(
                f"the weights in data.train leave none of its {len(weights):,} {unit_name(data)}s: raise them."
            )
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


def load(directory: Path) -> PreparedData:
    """What `prepare` wrote; DataError if it is not all there."""
    try:
        texts = [(directory / f"{side}.tokenizer.json").read_text(encoding="utf-8") for side in SIDES]
        source = Tokenizer.from_json(texts[0])
        target = source if texts[0] == texts[1] else Tokenizer.from_json(texts[1])
        weights = directory / WEIGHTS
        validation, test = (_load_pairs(directory / f"{split}.tsv") for split in ("validation", "test"))
        summary = json.loads((directory / "report.json").read_text(encoding="utf-8"))
        identity = [summary["origin"], source.fingerprint, target.fingerprint]
        return PreparedData(
            train=_load_train(directory),
            weights=_load_array(weights) if weights.exists() else None,
            validation=validation,
            test=test,
            source=source,
            target=target,
            report=CorpusReport.of(summary["report"]),
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

    def read(self, sources: Sequence[Source], data: DataConfig, check: bool = True) -> None:
        """Read the corpus, or go on with it where that was cut short. Raises DataError.

        check: whether there must be something to train and to validate on
        """
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
            if check:
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
