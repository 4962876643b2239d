"""Prepare the data of a run: read, clean and tokenise a corpus once, into files of the run's folder, with a report.

    data = prepare_data(config, run / "data", print)             # later calls load what the first one wrote

The tokenizers, the split of each pair and the ids are fixed here for the whole run.

Preparation works in shards of 50,000 pairs: it writes the cleaned text of each, trains the tokenizers on that of
training, writes the ids of each shard, and joins them into the arrays that training will read. All this is in a hidden
folder beside the final one. A preparation that is killed at any moment resumes after its last complete shard, with the
same result.

Limits: memory holds a shard, the distinct words that the tokenizers count, the held-out pairs and, for the report, 30
bytes per training pair. The disk also needs room for the cleaned text and, twice, for the ids. Nothing here locks the
folder: one process prepares, the others load afterwards.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import platform
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from dragoman import reading
from dragoman.corpora.data_report import CorpusReport, make_report, sample_indices
from dragoman.corpora.origin import SIDES, Tokenizers, check_unchanged, origin_of, with_hashes
from dragoman.corpora.prepared_files import (
    COMPLETE,
    CleanedCorpus,
    load_array,
    load_pairs,
    progress_bar,
    read_note,
    save_array,
    save_pairs,
)
from dragoman.corpora.readers import say_choices
from dragoman.corpora.selection import balanced, rows_of, within_limits
from dragoman.corpora.sources import Source, find_sources, unit_name
from dragoman.corpora.splitting import PairCounts, read_portions
from dragoman.corpora.subwords import train_tokenizers
from dragoman.dataset import EncodedPairs, EncodedSide, Pair, Tokenizer, encode_pairs, id_type
from dragoman.directions import split_tag, targets
from dragoman.errors import CheckpointError, ConfigError, DataError
from dragoman.serialization import json_bytes, load_json
from dragoman.settings import PLACEHOLDERS, Config, DataConfig
from dragoman.storage import publish, remove_temporaries, replace_durably
from dragoman.text.conventions import Conventions, conventions_of_ids

VALIDATED = 5_000  # pairs at most: 2 % of millions would take longer to translate than others to learn
WEIGHTS = "train.weights.npy"
# In the hidden folder:
RESULT = "data"  # renamed to the final folder in the end
TEXT = "text"  # the cleaned corpus
IDS = "ids"  # those of its training pairs
ORIGIN = "origin.json"

Say = Callable[[str], None]


@dataclass(frozen=True)
class PreparedData:
    """The prepared corpus of a run. The fingerprint distinguishes it from every other, tokenizers included."""

    train: EncodedPairs
    weights: np.ndarray | None  # (N), how often an epoch shows each pair; None: once
    validation: list[Pair]  # cleaned text, at most VALIDATED pairs
    test: list[Pair]  # cleaned text; may be empty
    source: Tokenizer
    target: Tokenizer  # the same object if the vocabulary is shared
    report: CorpusReport
    conventions: tuple[Conventions, Conventions]  # of the source and target text
    origin: dict[str, Any]  # the settings and files that this was made from, see `origin`
    fingerprint: str


def prepare_data(
    config: Config,
    directory: Path,
    say: Say,
    tokenizers: Tokenizers | None = None,
    sources: Sequence[Source] | None = None,
) -> PreparedData:
    """Prepare a corpus into `directory`, or load what an earlier call prepared there from the same corpus and settings.

    The folder appears by one rename.

    Args:
        say: callback for progress messages
        tokenizers: of source and target; None trains them on the training pairs
        sources: the corpus, if `find_sources` has found it already

    Raises:
        DataError: the corpus cannot be used
        DataChangedError: the folder was prepared from another corpus or other settings
    """
    workplace = directory.with_name(f".{directory.name}.tmp")
    if directory.exists():
        prepared = load(directory)
        check_unchanged(prepared.origin, config, say, tokenizers)
        shutil.rmtree(workplace, ignore_errors=True)  # left over if a preparation was killed at its very end
        return prepared
    sources = list(map(with_hashes, find_sources(config.data) if sources is None else sources))
    origin = origin_of(config, sources, tokenizers)
    for source in sources:
        if not source.files and config.data.revision is None:
            say(
                f"warning: {source} can change on the hub, and then this run cannot be repeated: set data.revision to "
                "a commit of it."
            )
    say_choices(sources, config.data, say)
    if _set_up(workplace, origin, sources, config.data):
        say("resuming an interrupted preparation")
    result = workplace / RESULT
    try:
        if not (result / "report.json").exists():  # the last file to be written
            _prepare(workplace, sources, config, say, tokenizers, origin)
    except (DataError, ConfigError):  # retrying cannot help
        shutil.rmtree(workplace)
        raise
    remove_temporaries(result)  # of a killed process
    publish(result, directory)
    shutil.rmtree(workplace)
    return load(directory)


def _set_up(workplace: Path, origin: dict[str, Any], sources: Sequence[Source], data: DataConfig) -> bool:
    """Make the workplace. Return whether it holds work to resume; work on another corpus is deleted."""
    # Other library versions might clean or tokenise differently, so that the two parts would not match.
    versions = {name: importlib.metadata.version(name) for name in ("tokenizers", "datasets")}
    ours = {"origin": origin, "versions": versions | {"python": platform.python_version()}}
    resumable = read_note(workplace / ORIGIN) == ours
    if not all(source.files or data.revision for source in sources):  # the hub may have another version by now
        resumable = resumable and (workplace / TEXT / COMPLETE).exists()
    if not resumable:
        if workplace.exists():
            shutil.rmtree(workplace)
        (workplace / RESULT).mkdir(parents=True)
        replace_durably(workplace / ORIGIN, json_bytes(ours))
    return resumable


def _prepare(
    workplace: Path,
    sources: Sequence[Source],
    config: Config,
    say: Say,
    tokenizers: Tokenizers | None,
    origin: dict[str, Any],
) -> None:
    """Write everything that `load` reads. Each step skips what is already done."""
    data, result = config.data, workplace / RESULT
    text = CleanedCorpus(workplace / TEXT, unit_name(data))
    if not (text.folder / COMPLETE).exists():
        say(f"reading {', '.join(dict.fromkeys(map(str, sources)))}")
        text.read(sources, data)
    borrowed = tokenizers is not None
    tokenizers = _prepare_tokenizers(result, text, config, say, tokenizers)
    say("turning text into ids")
    counts = text.counts
    shards = _encode(workplace / IDS, text, tokenizers, data)
    counts["train"] += _join(shards, result, tokenizers, data)
    cased = text.pairs("train")
    if data.lowercase:  # sentences are split by their capitals, here as in translating
        portions = read_portions(sources, replace(data, lowercase=False))
        cased = chain.from_iterable(portion.pairs["train"] for portion in portions)
    report = make_report(text, cased, counts, _load_train(result, *tokenizers), tokenizers, data, borrowed)
    for number, side in enumerate(SIDES):
        lines = text.training_side(number)
        if data.several:
            lines = (split_tag(line)[1] for line in lines)
        language = "" if data.several or data.lowercase else (data.source_lang, data.target_lang)[number]
        conventions = Conventions.of(lines, language or "")
        replace_durably(result / conventions_file(side), conventions.json.encode())
    for split in ("validation", "test"):
        save_pairs(result / f"{split}.tsv", text.pairs(split))
    replace_durably(result / "report.json", json_bytes({"origin": origin, "report": asdict(report)}))


def _prepare_tokenizers(
    result: Path, text: CleanedCorpus, config: Config, say: Say, given: Tokenizers | None
) -> Tokenizers:
    """Save the given tokenizers, or train them on the text; if that is done, load them.

    They are saved before anything is encoded with them, since training them again could give other ids.
    """
    note = result.parent / "tokenizers.json"
    paths = [result / f"{side}.tokenizer.json" for side in SIDES]
    left_out = read_note(note)
    if left_out is None:
        if given is None:
            say(f"training the tokenizers on {text.counts['train'].kept:,} {unit_name(config.data)}s")
            # Plain text has a shared vocabulary, to which its empty sources add nothing, and nothing is copied.
            sides = text.training_side(0), text.training_side(1)
            placeholders = PLACEHOLDERS if config.data.source_lang else ()
            given = train_tokenizers(*sides, config.tokenizer, targets(config.data.several), placeholders)
        for path, tokenizer in zip(paths, given, strict=True):
            replace_durably(path, tokenizer.to_json().encode())
        left_out = [tokenizer.left_out for tokenizer in given]
        replace_durably(note, json_bytes(left_out))
    source, target = (Tokenizer.from_json(read_text(path)) for path in paths)
    source.left_out, target.left_out = left_out
    return source, target


def _encode(folder: Path, text: CleanedCorpus, tokenizers: Tokenizers, data: DataConfig) -> list[Path]:
    """Write the ids of the training pairs, a file for each shard of the text, and return these files."""
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{number:06}.npz" for number in range(len(text.notes))]
    with progress_bar(text.unit, text.counts["train"].kept) as bar:
        for number, path in enumerate(paths):
            pairs = [*text.shard(number, "train")]
            if not path.exists():
                content = io.BytesIO()
                arrays = _encode_shard(pairs, text.notes[number]["weight"], tokenizers, data)
                np.savez(content, allow_pickle=False, **arrays)
                replace_durably(path, content.getvalue())
            bar.update(len(pairs))
    return paths


def _encode_shard(
    pairs: Sequence[Pair], weight: float, tokenizers: Tokenizers, data: DataConfig
) -> dict[str, np.ndarray]:
    """Return the ids, lengths, weights and directions of the pairs within the limits, and how many are not."""
    encoded = encode_pairs(pairs, *tokenizers)
    short, even = within_limits(encoded, data)
    keep = short & even
    arrays = {"dropped": np.array([(~short).sum(), (short & ~even).sum()])}
    kept = encoded.take(np.flatnonzero(keep))
    for name, side in zip(SIDES, (kept.source, kept.target), strict=True):
        arrays |= {name: side.ids, f"{name}.lengths": np.diff(side.offsets)}
    numbers = {str(direction): number for number, direction in enumerate(data.several)}
    directions = [numbers[str(split_tag(source)[0])] for source, _ in pairs] if numbers else []
    arrays["directions"] = np.array(directions, np.uint16)[keep if numbers else ()]
    return arrays | {"weights": np.full(keep.sum(), weight, np.float32)}


def _join(shards: Sequence[Path], result: Path, tokenizers: Tokenizers, data: DataConfig) -> PairCounts:
    """Join the shards into the arrays of the result. Return the counts of dropped pairs.

    Raises DataError if no pair is left.
    """

    def parts(name: str) -> Iterator[np.ndarray]:
        for path in shards:
            with np.load(path) as arrays:
                yield arrays[name]

    weights = np.concatenate([*parts("weights")])
    if not len(weights):
        limits, them = f"longer than data.max_length ({data.max_length})", "it"
        if data.max_ratio and data.source_lang:
            limits, them = f"{limits} or more uneven than data.max_ratio ({data.max_ratio:g})", "them"
        raise DataError(f"every training {unit_name(data)} is {limits}: raise {them}.")
    for side, tokenizer in zip(SIDES, tokenizers, strict=True):
        offsets = np.concatenate([[0], *parts(f"{side}.lengths")]).cumsum()
        save_array(result / f"train.{side}.offsets.npy", offsets.dtype, len(offsets), [offsets])
        save_array(result / f"train.{side}.npy", np.dtype(id_type(tokenizer)), int(offsets[-1]), parts(side))
    balance = data.several and data.temperature > 1
    if balance:
        weights = balanced(weights, np.concatenate([*parts("directions")]), data.temperature)
    if balance or (weights != 1).any():
        if not len(rows_of(weights, 0, 0)):
            raise DataError(
                f"the weights in data.train leave none of its {len(weights):,} {unit_name(data)}s: raise them."
            )
        save_array(result / WEIGHTS, weights.dtype, len(weights), [weights])
    too_long, uneven = np.sum([*parts("dropped")], axis=0).tolist()
    return PairCounts(too_long=too_long, uneven=uneven)


def load(directory: Path, is_checked: bool = False) -> PreparedData:
    """Load what `prepare_data` wrote. Raises DataError if it is damaged.

    is_checked: whether another rank has just looked at all the ids, which is done once, since there may be gigabytes
    """
    try:
        texts = [read_text(directory / f"{side}.tokenizer.json") for side in SIDES]
        source = Tokenizer.from_json(texts[0])
        target = source if texts[0] == texts[1] else Tokenizer.from_json(texts[1])
        weights = directory / WEIGHTS
        validation, test = (load_pairs(directory / f"{split}.tsv") for split in ("validation", "test"))
        summary = load_json(reading.read(directory / "report.json", reading.TEXT))
        identity = [summary["origin"], source.fingerprint, target.fingerprint]
        train = _load_train(directory, source, target, is_checked=is_checked)
        return PreparedData(
            train=train,
            weights=load_array(weights) if weights.exists() else None,
            validation=[validation[i] for i in sample_indices(len(validation), VALIDATED)],
            test=test,
            source=source,
            target=target,
            report=CorpusReport.of(summary["report"]),
            conventions=load_conventions(directory, train, source, target),
            origin=summary["origin"],
            fingerprint=hashlib.sha256(json.dumps(identity).encode()).hexdigest(),
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError, MemoryError, CheckpointError) as error:
        raise DataError(f"{directory} is damaged ({error}): restore it, or delete it to prepare it again.") from error


def conventions_file(side: str) -> str:
    """The name of the file of a side's conventions, in a run's data and in its checkpoints."""
    return f"{side}.conventions.json"


def load_conventions(
    directory: Path, train: EncodedPairs, source: Tokenizer, target: Tokenizer
) -> tuple[Conventions, Conventions]:
    """Load the conventions, or learn them from the training ids if the data are older than them. Raises ValueError."""
    paths = [directory / conventions_file(side) for side in SIDES]
    if not all(path.exists() for path in paths):
        return conventions_of_ids(train.source, source), conventions_of_ids(train.target, target)
    one, other = (Conventions.from_json(read_text(path)) for path in paths)
    return one, other


def conventions_of_data(directory: Path, source: Tokenizer, target: Tokenizer) -> tuple[Conventions, Conventions]:
    """The conventions of the data of a run whose checkpoint does not hold them. Raises OSError and ValueError."""
    return load_conventions(directory, _load_train(directory, source, target), source, target)


def read_text(path: Path) -> str:
    """Read a text file of the prepared data. Raises OSError and ValueError."""
    return reading.read(path, reading.TEXT).decode()


def _load_train(directory: Path, *tokenizers: Tokenizer, is_checked: bool = False) -> EncodedPairs:
    """Load the training pairs. Raises OSError, and ValueError if they cannot be ids of these tokenizers."""
    sides = [[load_array(directory / f"train.{side}{part}.npy") for part in ("", ".offsets")] for side in SIDES]
    pairs = EncodedPairs(*(EncodedSide(*arrays) for arrays in sides))
    for side, tokenizer in zip((pairs.source, pairs.target), tokenizers, strict=True):
        ids, offsets = side.ids, side.offsets
        if not (
            (ids.dtype in (np.uint16, np.int32) and offsets.dtype == np.int64 and ids.ndim == offsets.ndim == 1)
            and (len(offsets) and offsets[0] == 0 and offsets[-1] == len(ids))
            and (is_checked or (offsets[:-1] <= offsets[1:]).all())
            and (is_checked or 0 <= ids.min(initial=0) <= ids.max(initial=0) < len(tokenizer))
        ):
            raise ValueError("the training pairs are not ids of the tokenizers")
    if len(pairs.source.offsets) != len(pairs.target.offsets):
        raise ValueError("the training sides have different numbers of sentences")
    return pairs
