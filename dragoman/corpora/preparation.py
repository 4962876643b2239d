"""Prepare the data of a run: read, clean and tokenise a corpus once, into files of the run's folder, with a report.

    data = prepare_data(config, run / "data", print)             # later calls load what the first one wrote

The tokenizers, the split of each pair and the ids are fixed here for the whole run.

Preparation works in shards of 10,000 pairs: it writes the cleaned text of each, trains the tokenizers on that of
training, writes the ids of each shard, and joins them into the arrays that training will read. All this is in a hidden
folder beside the final one. A preparation that is killed at any moment resumes with the shards that are missing, with
the same result. Several processes, or ranks, divide the shards, see `crew`; the result does not depend on their number.

Limits: memory holds a shard for each process, the distinct words that the tokenizers and the conventions count, the
held-out pairs and, for the report, 30 bytes per training pair. The disk also needs room for the cleaned text, twice
for the ids, and for the words of each shard. Nothing here locks the folder: the caller does.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from dragoman import config_file, reading
from dragoman.corpora import splitting
from dragoman.corpora.crew import Crew, Share
from dragoman.corpora.data_report import CorpusReport, count_repeated, measure_side, sample_indices
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
from dragoman.corpora.sources import SPLITS, Source, find_sources, unit_name
from dragoman.corpora.splitting import PairCounts, read_portions
from dragoman.corpora.subwords import special_tokens, train_tokenizer
from dragoman.dataset import EncodedPairs, EncodedSide, Pair, Tokenizer, encode_pairs, id_type
from dragoman.directions import split_tag, targets
from dragoman.errors import CheckpointError, ConfigError, DataChangedError, DataError, DragomanError
from dragoman.serialization import json_bytes, load_json
from dragoman.settings import PLACEHOLDERS, Config, DataConfig, with_preset
from dragoman.storage import publish, remove_temporaries, replace_durably
from dragoman.text.conventions import ConventionCounts, Conventions, conventions_of_ids

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


def prepare_run(
    config: Config,
    directory: Path,
    has_checkpoint: bool,
    say: Say,
    tokenizers: Tokenizers | None = None,
    sources: Sequence[Source] | None = None,
    crew: Crew | None = None,
) -> PreparedData:
    """Prepare or load the data of a run by `prepare_data`, and print a report if they are new.

    Args:
        has_checkpoint: without one, changed data are prepared again
    """
    crew = crew or Crew()
    fresh = crew.is_first and not directory.exists()  # other ranks do not look: NFS may remember that it was missing
    try:
        data = prepare_data(config, directory, say, tokenizers, sources, crew)
    except DataChangedError as error:
        if has_checkpoint:
            raise
        say(f"{error} No step has been saved yet, so the data are prepared again.")
        shutil.rmtree(directory)
        return prepare_run(config, directory, has_checkpoint, say, tokenizers, sources, crew)
    if fresh:
        for line in data.report.lines():
            say(line)
    return data


def prepared_preset(config: Config) -> str | None:
    """The preset for which these very data were prepared before, if model.preset is auto.

    Another machine, or a busier one, might choose another one, whose tokenizers are not those of the prepared data.
    """
    directory = Path(config.run.dir) / config.run.name
    if config.model.preset == "auto" and (directory / "config.yaml").exists() and (directory / "data").exists():
        with suppress(DragomanError, OSError, ValueError, LookupError, TypeError):  # then it is chosen as for new data
            name = config_file.load(directory / "config.yaml").model.preset
            origin = load_json(reading.read(directory / "data" / "report.json", reading.TEXT))["origin"]
            check_unchanged(origin, with_preset(config, str(name)), lambda _: None, None)
            return name
    return None


def prepare_data(
    config: Config,
    directory: Path,
    say: Say,
    tokenizers: Tokenizers | None = None,
    sources: Sequence[Source] | None = None,
    crew: Crew | None = None,
) -> PreparedData:
    """Prepare a corpus into `directory`, or load what an earlier call prepared there from the same corpus and settings.

    The folder appears by one rename.

    Args:
        say: callback for progress messages
        tokenizers: of source and target; None trains them on the training pairs
        sources: the corpus, if `find_sources` has found it already
        crew: the processes that share the work, by default this one alone; every rank must call this

    Raises:
        DataError: the corpus cannot be used
        DataChangedError: the folder was prepared from another corpus or other settings
    """
    crew, prepared = crew or Crew(), None
    workplace = directory.with_name(f".{directory.name}.tmp")
    if crew.is_first and directory.exists():
        prepared = load(directory)
        check_unchanged(prepared.origin, config, say, tokenizers)
        shutil.rmtree(workplace, ignore_errors=True)  # left over if a preparation was killed at its very end
    if crew.broadcast(prepared is not None):
        return prepared or load(directory, is_checked=True)
    origin: dict[str, Any] = {}
    sources = find_sources(config.data) if sources is None else sources
    if crew.is_first:
        sources = list(map(with_hashes, sources))
        origin = origin_of(config, sources, tokenizers)
        _begin(workplace, origin, sources, config.data, say)
    result = workplace / RESULT
    try:
        if not crew.broadcast((result / "report.json").exists()):  # the last file to be written
            _Preparation(workplace, sources, config).run(crew, say, tokenizers, origin)
    except (DataError, ConfigError):  # retrying cannot help
        if crew.is_alone:
            shutil.rmtree(workplace)
        raise
    if crew.is_first:
        remove_temporaries(result)  # of a killed process
        publish(result, directory)
        shutil.rmtree(workplace)
    crew.wait()
    return load(directory, is_checked=not crew.is_first)


def _begin(workplace: Path, origin: dict[str, Any], sources: Sequence[Source], data: DataConfig, say: Say) -> None:
    """Make the workplace, and say what is not obvious."""
    for source in sources:
        if not source.files and data.revision is None:
            say(
                f"warning: {source} can change on the hub, and then this run cannot be repeated: set data.revision to "
                "a commit of it."
            )
    say_choices(sources, data, say)
    if _set_up(workplace, origin, sources, data):
        say("resuming an interrupted preparation")


def _set_up(workplace: Path, origin: dict[str, Any], sources: Sequence[Source], data: DataConfig) -> bool:
    """Make the workplace. Return whether it holds work to resume; work on another corpus is deleted."""
    # Other library versions might clean or tokenise differently, so that the two parts would not match.
    versions = {name: importlib.metadata.version(name) for name in ("tokenizers", "datasets")}
    versions |= {"python": platform.python_version()}
    ours = {"origin": origin, "versions": versions, "pairs in a shard": splitting.PORTION}
    resumable = read_note(workplace / ORIGIN) == ours
    if not all(source.files or data.revision for source in sources):  # the hub may have another version by now
        resumable = resumable and (workplace / TEXT / COMPLETE).exists()
    if not resumable:
        if workplace.exists():
            shutil.rmtree(workplace)
        (workplace / RESULT).mkdir(parents=True)
        replace_durably(workplace / ORIGIN, json_bytes(ours))
    return resumable


@dataclass(frozen=True)
class _Preparation:
    """The work of a preparation. Its results lie in the workplace, so copies of it in other processes share the work.

    Each step skips what is already done.
    """

    workplace: Path
    sources: Sequence[Source]
    config: Config

    @property
    def result(self) -> Path:
        return self.workplace / RESULT

    @property
    def text(self) -> CleanedCorpus:
        return CleanedCorpus(self.workplace / TEXT, unit_name(self.config.data))

    def run(self, crew: Crew, say: Say, given: Tokenizers | None, origin: dict[str, Any]) -> None:
        """Write everything that `load` reads, together with the other ranks. `given` are tokenizers not to train."""
        self._read(crew, say)
        if crew.is_first:
            self._prepare_tokenizers(crew, say, given)
            say("turning text into ids")
        shards = crew.broadcast(len(self.text.notes))
        (self.workplace / IDS).mkdir(exist_ok=True)
        crew.map(partial(self.encode, shards), crew.shares)
        crew.wait()
        if crew.is_first:
            self._finish(crew, given is not None, origin)

    def _read(self, crew: Crew, say: Say) -> None:
        """Clean and save the text of the corpus. Raises DataError."""
        data, text = self.config.data, self.text
        if crew.broadcast(bool(text.notes)):
            return
        say(f"reading {', '.join(dict.fromkeys(map(str, self.sources)))}")
        shares = crew.shares
        if not all(source.files or data.revision for source in self.sources):
            shares = [Share()] if crew.is_first else []  # several processes could read several versions
        counts = crew.map(partial(text.read_share, sources=self.sources, data=data), shares)
        crew.wait()
        if crew.is_first:
            text.complete(counts[0], self.sources, data)

    def _prepare_tokenizers(self, crew: Crew, say: Say, given: Tokenizers | None) -> None:
        """Save the given tokenizers, or train them on the text.

        They are saved before anything is encoded with them, since training them again could give other ids.
        """
        note = self.workplace / "tokenizers.json"
        if note.exists():
            return
        if given is None:
            pairs = f"{self.text.counts['train'].kept:,} {unit_name(self.config.data)}s"
            say(f"training the tokenizers on {pairs}")
            saved = crew.map(self.train, [0] if self.config.tokenizer.shared else [0, 1])
        else:
            saved = [(tokenizer.to_json(), tokenizer.left_out) for tokenizer in given]
        saved = [saved[0], saved[-1]]
        for side, (content, _) in zip(SIDES, saved, strict=True):
            replace_durably(self.result / _tokenizer_file(side), content.encode())
        replace_durably(note, json_bytes([left_out for _, left_out in saved]))

    def train(self, side: int) -> tuple[str, int]:
        """Train the tokenizer of the sources (0), of the targets (1), or of both; return its JSON and `left_out`."""
        settings, data = self.config.tokenizer, self.config.data
        # Plain text has a shared vocabulary, to which its empty sources add nothing, and nothing is copied.
        special = special_tokens(targets(data.several), PLACEHOLDERS if data.source_lang else ())[side]
        sides = (0, 1) if settings.shared else (side,)
        sentences = chain.from_iterable(self.text.training_side(number, side == 0) for number in sides)
        tokenizer = train_tokenizer(sentences, settings, special)
        return tokenizer.to_json(), tokenizer.left_out

    def tokenizers(self) -> Tokenizers:
        """Load the tokenizers."""
        source, target = (Tokenizer.from_json(read_text(self.result / _tokenizer_file(side))) for side in SIDES)
        source.left_out, target.left_out = read_note(self.workplace / "tokenizers.json")
        return source, target

    def encode(self, shards: int, share: Share) -> None:
        """Write the ids of the training pairs of a share, and the counts of their conventions: a file for each shard.

        Args:
            shards: how many the corpus has
        """
        if share.processes > 1:
            os.environ["TOKENIZERS_PARALLELISM"] = "false"  # each process has a core of its own
        text, tokenizers, data = self.text, self.tokenizers(), self.config.data
        with progress_bar("shard", shards, share.is_first) as bar:
            for number in range(shards):
                path = self._ids(number)
                if number in share and not path.exists():
                    pairs = [*text.shard(number, "train")]
                    arrays = _encode_shard(pairs, text.weight(number), tokenizers, data)
                    for side, name in enumerate(SIDES):
                        lines = (split_tag(pair[side])[1] if data.several else pair[side] for pair in pairs)
                        counts = ConventionCounts.of(lines, _language(side, data)).json
                        arrays[f"{name}.conventions"] = np.frombuffer(counts.encode(), np.uint8)
                    content = io.BytesIO()
                    np.savez(content, allow_pickle=False, **arrays)
                    replace_durably(path, content.getvalue())
                bar.update()

    def _ids(self, number: int) -> Path:
        return self.workplace / IDS / f"{number:06}.npz"

    def _finish(self, crew: Crew, borrowed: bool, origin: dict[str, Any]) -> None:
        """Join the shards, and describe them. `borrowed`: whether the tokenizers were given."""
        data, text = self.config.data, self.text
        counts = text.counts
        counts["train"] += _join([*map(self._ids, range(len(text.notes)))], self.result, self.tokenizers(), data)
        source, target, repeated = crew.map(self.measure, (0, 1, None))
        # The translator reads its line statistics from the source side, so plain text puts its only side there, too.
        report = CorpusReport(counts, [source or target, target], repeated, borrowed)
        for split in SPLITS[1:]:
            save_pairs(self.result / f"{split}.tsv", text.pairs(split))
        replace_durably(self.result / "report.json", json_bytes({"origin": origin, "report": asdict(report)}))

    def measure(self, side: int | None) -> Any:
        """Save the conventions of the sources (0) or the targets (1), and return the report of this side.

        That is None for sources that plain text does not have. Without a side, count the repeated pairs.
        """
        text, data = self.text, self.config.data
        if side is None:
            return count_repeated(text, data)
        name = SIDES[side]
        counts = ConventionCounts()
        for part in _parts([*map(self._ids, range(len(text.notes)))], f"{name}.conventions"):
            counts.add(ConventionCounts.from_json(part.tobytes().decode()))
        conventions = counts.conventions(_language(side, data))
        replace_durably(self.result / conventions_file(name), conventions.json.encode())
        if not (side or data.source_lang):
            return None
        cased = text.pairs("train")
        if data.lowercase:  # sentences are split by their capitals, here as in translating
            portions = read_portions(self.sources, replace(data, lowercase=False))
            cased = chain.from_iterable(portion.pairs["train"] for portion in portions)
        lengths = np.diff(load_array(self.result / f"train.{name}.offsets.npy"))
        return measure_side(side, text, cased, lengths, self.tokenizers()[side], data)


def _tokenizer_file(side: str) -> str:
    return f"{side}.tokenizer.json"


def _language(side: int, data: DataConfig) -> str:
    """The language whose rules change the case of letters on a side; "" if there are several, or no capitals."""
    return "" if data.several or data.lowercase else (data.source_lang, data.target_lang)[side] or ""


def _parts(shards: Sequence[Path], name: str) -> Iterator[np.ndarray]:
    """Yield an array of each shard."""
    for path in shards:
        with np.load(path) as arrays:
            yield arrays[name]


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
    parts = partial(_parts, shards)
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
        texts = [read_text(directory / _tokenizer_file(side)) for side in SIDES]
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
