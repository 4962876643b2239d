"""CTranslate2 as the engine of an encoder-decoder: the search of this program's `search`, several times as fast.

    engine = CTranslate2Engine(partial(engine_files, path), "cpu", "float32", source, target)
    for indices, hypotheses in engine.search_in_batches(trained, [pieces]): ...

It runs the model from files of its own, see `engine_files`. Nothing here needs torch, whose import alone takes several
times as long as translating a sentence.

Greedy search finds the same translations as ours. Beam search stops by another rule, so it finds nearly the same.
CTranslate2 does not report the log-probability of each token, only their sum.

Its threads do not survive a fork. A forked child leaves them alone and loads the files again when it first searches.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple
from weakref import WeakSet

from dragoman import console
from dragoman.dataset import Tokenizer
from dragoman.errors import EngineError, UnsupportedError
from dragoman.processes import cores
from dragoman.settings import EOS, UNK, DecodingConfig
from dragoman.translation.constraints import BATCH_TOKENS, Constraints, batches_by_length, constraints
from dragoman.translation.engine_files import engine_files
from dragoman.translation.loading import TrainedModel
from dragoman.translation.pieces import Piece
from dragoman.translation.results import NOTHING, Hypothesis

POSITIONS = 1024  # that the files describe; longer pieces need our own search
BATCH_SENTENCES = 32  # larger batches are not faster on a CPU in float32, and slower in int8
# CTranslate2 ends a search when this many times the beam size have ended; ours ends when nothing better can be found.
# With 1, its usual value, BLEU differs by up to 0.25; with 1.5 by 0.03, for 5 % more time (Multi30k, beams of 4).
PATIENCE = 1.5
AHEAD = 8  # batches for each thread that wait in its queue, while text is encoded or put together
CACHE = 16 * 2**20  # bytes of cache that every CPU core has
EngineName = Literal["auto", "ctranslate2", "torch"]
_engines: WeakSet[CTranslate2Engine] = WeakSet()  # of this process


class Choice(NamedTuple):
    """What searches, and why."""

    engine: Literal["ctranslate2", "torch"]
    device: str  # its name; auto only for torch
    reason: str


def choose_engine(name: EngineName, trained: TrainedModel, device: str) -> Choice:
    """Choose what searches, and say what decided: CTranslate2 wherever it can, unless torch is asked for.

    Args:
        trained: with the settings in use
        device: a name, see `device.choose_device`; auto is the GPU that CTranslate2 finds, or the CPU

    Raises UnsupportedError if CTranslate2 is asked for and cannot do this, and EngineError if it is missing.
    """
    if name == "torch":
        return Choice("torch", device, "torch is asked for")
    if len(trained.shapes) > 1:
        reason = "several models translate together"
    elif trained.config.model.architecture != "encoder-decoder":
        reason = f"model.architecture is {trained.config.model.architecture}"
    else:
        reason = unsupported(trained)
    if not reason:
        device, reason = _device(device, name == "ctranslate2")
    if not reason:
        return Choice("ctranslate2", device, "CTranslate2 can do all that is asked for")
    reason = f"CTranslate2 cannot translate like this: {reason}."
    if name == "ctranslate2":
        raise UnsupportedError(reason)
    return Choice("torch", device, reason)


def _device(name: str, gpu: bool) -> tuple[str, str | None]:
    """The device with this name, and why CTranslate2 does not run on it; it runs on a GPU only if `gpu` asks for it."""
    try:
        import ctranslate2
    except ImportError as error:
        raise EngineError(f"CTranslate2 is missing ({error}): pip install ctranslate2.") from None
    gpus = ctranslate2.get_cuda_device_count()
    if name == "auto":
        name = "cuda" if gpus else "cpu"
    kind, _, index = name.partition(":")
    if kind != "cpu" and (kind != "cuda" or int(index or 0) >= gpus):
        return name, f"it does not run on {name}"
    if kind == "cuda" and not gpu:
        return name, "it runs on a GPU only where --engine ctranslate2 asks for it"
    return name, None


def open_engine(name: EngineName, trained: TrainedModel, path: Path, device: str) -> CTranslate2Engine | None:
    """An engine for the checkpoint in this folder; None if `choose_engine` chooses torch, or if auto finds no other.

    Raises EngineError if ctranslate2 is asked for and fails, and CheckpointError.
    """
    try:
        choice = choose_engine(name, trained, device)
        if choice.engine == "torch":
            return None
        precision = trained.config.decoding.precision
        return CTranslate2Engine(partial(engine_files, path), choice.device, precision, trained.source, trained.target)
    except EngineError as error:
        if name == "ctranslate2":
            raise
        console.warn(f"{error} Translating with torch instead.")
        return None


def choose_precision(name: str, size: int, device: str) -> str:
    """The precision with this name, for weights that take this many bytes in float32.

    auto is float16 on a GPU. On a CPU it is int8 for weights that do not fit into the cache, which costs a tenth of a
    BLEU point; a smaller model would gain little.
    """
    import ctranslate2

    if name != "auto":
        return name
    supported = ctranslate2.get_supported_compute_types(device.partition(":")[0])
    if "float16" in supported:  # only a GPU has it
        return "float16"
    return "int8" if size > CACHE and "int8" in supported else "float32"


def thread_count() -> int:
    """How many threads translate: OMP_NUM_THREADS, or one for each processor that this process may use."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdecimal() and int(asked):
        return int(asked)
    return cores()


def unsupported(trained: TrainedModel) -> str | None:
    """Name the first setting of the search that CTranslate2 lacks, and what it does instead; None if it has all."""
    settings, longest = trained.config.decoding, max(trained.trained_on.longest, trained.config.decoding.max_length)
    if not settings.split_sentences or longest >= POSITIONS:
        return f"a sentence or its translation may have more than {POSITIONS - 1:,} tokens"
    if settings.sample:
        return "decoding.sample is true, but it draws other random numbers"
    if settings.length_formula == "paper" and settings.beam_size > 1:
        return "decoding.length_formula is paper, but it divides by a power of the length: set it to power"
    if settings.precision == "bfloat16":
        return "decoding.precision is bfloat16, but it has float32 and int8"
    return None


class CTranslate2Engine:
    """Searches for the translations of pieces of text on all threads."""

    def __init__(
        self,
        read_files: Callable[[], Mapping[str, bytes]],
        device: str,
        precision: str,
        source: Tokenizer,
        target: Tokenizer,
    ) -> None:
        """Load the files of `engine_files`. Raises EngineError for a device or precision that does not exist here.

        Args:
            read_files: reads the files, now and once more in each forked child
            precision: a name, see `choose_precision`
        """
        self.read_files, self.device, self.precision = read_files, device, precision
        self.source, self.target = source.tokens_by_id, target.tokens_by_id
        self.ids = target.vocabulary
        self.threads = thread_count()
        self.translator = self._load()
        _engines.add(self)

    def _load(self) -> Any:
        import ctranslate2

        kind, _, index = self.device.partition(":")
        files = self.read_files()
        try:
            return ctranslate2.Translator(
                "model",
                device=kind,
                device_index=int(index or 0),
                compute_type=choose_precision(self.precision, len(files["model.bin"]), self.device),
                inter_threads=self.threads,
                intra_threads=1,
                max_queued_batches=-1,  # no limit: `search_in_batches` has its own
                files=dict(files),
            )
        except (ValueError, RuntimeError) as error:
            raise EngineError(f"CTranslate2 cannot translate on {self.device} in {self.precision}: {error}") from None

    def search_in_batches(
        self, trained: TrainedModel, groups: Iterable[Sequence[Piece]]
    ) -> Generator[tuple[list[int], list[list[Hypothesis]]], None, None]:
        """Yield the indices, among all groups, and the hypotheses of one batch of pieces after another.

        Batches are handed over ahead, so that some are translated while the next group is encoded, and while the text
        of others is put together.
        """
        decoding, stand_ins = trained.config.decoding, set(trained.hiders[0].stand_ins)
        waiting: deque[tuple[list[int], Callable[[], list[list[Hypothesis]]]]] = deque()
        first = 0
        for pieces in groups:
            for batch, of_batch in self._batches(trained, pieces):
                chosen = [pieces[k] for k in batch]
                # The placeholders of a translation may have to be told apart by what the model looked at.
                hidden = any(not stand_ins.isdisjoint(piece.ids) for piece in chosen)
                waiting.append(([first + k for k in batch], self._search(chosen, of_batch, decoding, hidden)))
            first += len(pieces)
            while len(waiting) > AHEAD * self.threads:
                indices, finish = waiting.popleft()
                yield indices, finish()
        yield from ((indices, finish()) for indices, finish in waiting)

    def _batches(self, trained: TrainedModel, pieces: Sequence[Piece]) -> Iterator[tuple[list[int], Constraints]]:
        """Group pieces of similar length that may use the same tokens, since a batch has one list for all."""
        whole, decoding = constraints(trained, pieces), trained.config.decoding
        groups: dict[Any, list[int]] = {}
        for k in range(len(pieces)):
            unknowns = bool(not whole.max_unknowns or whole.max_unknowns[k])
            groups.setdefault((unknowns, tuple(whole.absent[k])), []).append(k)
        width = max(decoding.beam_size, decoding.n_best)
        for group in groups.values():
            lengths = [len(pieces[k].ids + pieces[k].prefix) + 1 for k in group]
            # Enough batches for every thread, even of few sentences.
            most = (
                min(BATCH_SENTENCES, -(-len(group) // self.threads)) if len(group) >= 8 * self.threads else len(group)
            )
            for batch in batches_by_length(lengths, BATCH_TOKENS // width):
                for start in range(0, len(batch), most):
                    chosen = [group[i] for i in batch[start : start + most]]
                    yield chosen, whole.chosen(chosen)

    def _search(
        self, pieces: Sequence[Piece], given: Constraints, settings: DecodingConfig, attention: bool
    ) -> Callable[[], list[list[Hypothesis]]]:
        """Begin to search. Returns a function that waits for the hypotheses. attention: whether they include it."""
        running = self._start(pieces, given, settings, attention)

        def finish() -> list[list[Hypothesis]]:
            found = [self._hypotheses(*each) for each in zip(running, given.max_lengths, strict=True)]
            for k, most in enumerate(given.max_unknowns):
                if any(each.tokens.count(UNK) > most for each in found[k]):
                    fewer = [each for each in found[k] if each.tokens.count(UNK) <= most]
                    found[k] = fewer or self._search_on(
                        pieces[k], given.chosen([k]), settings, attention, found[k][0].tokens
                    )
            return found

        return finish

    def _search_on(
        self, piece: Piece, given: Constraints, settings: DecodingConfig, attention: bool, tokens: list[int]
    ) -> list[Hypothesis]:
        """Search again from the first [UNK] of too many, without any more: CTranslate2 can allow only all or none."""
        cut = [i for i, token in enumerate(tokens) if token == UNK][given.max_unknowns[0]]
        rest = given._replace(prefixes=[tokens[:cut]], max_unknowns=[0])
        [running] = self._start([replace(piece, prefix=tokens[:cut])], rest, settings, attention)
        return self._hypotheses(running, given.max_lengths[0])

    def _start(
        self, pieces: Sequence[Piece], given: Constraints, settings: DecodingConfig, attention: bool
    ) -> list[Any]:
        """Begin to search; the results wait until they are asked for."""
        if self.translator is None:
            self.translator = self._load()
        absent = [[self.target[token]] for token in given.absent[0]]
        return self.translator.translate_batch(
            [[self.source[token] for token in piece.ids] for piece in pieces],
            [[self.target[token] for token in piece.prefix] for piece in pieces] if given.prefixes else None,
            asynchronous=True,
            beam_size=settings.beam_size,
            patience=PATIENCE if settings.beam_size > 1 else 1,
            num_hypotheses=settings.n_best,
            length_penalty=settings.length_penalty,
            no_repeat_ngram_size=settings.no_repeat_ngram or 0,
            disable_unk=bool(given.max_unknowns) and not given.max_unknowns[0],
            suppress_sequences=absent or None,
            min_decoding_length=0,
            max_decoding_length=max(given.max_lengths),
            max_input_length=0,
            return_scores=True,
            return_end_token=True,
            return_attention=attention,
        )

    def _hypotheses(self, running: Any, limit: int) -> list[Hypothesis]:
        try:
            result = running.result()
        except RuntimeError as error:  # no memory, or a library of the GPU is missing
            raise EngineError(f"CTranslate2 failed: {error}; --engine torch does not need it.") from None
        rows = zip_longest(result.hypotheses, result.scores, result.attention)  # the last may be empty
        return [self._hypothesis(limit, *row) for row in rows] or [NOTHING]

    def _hypothesis(
        self, limit: int, tokens: list[str], score: float, attention: list[list[float]] | None
    ) -> Hypothesis:
        ids = [self.ids[token] for token in tokens[:limit]]
        complete = EOS in ids
        if complete:
            ids = ids[: ids.index(EOS)]
        return Hypothesis(ids, [], score, complete, None if attention is None else attention[: len(ids)])


def _after_fork() -> None:
    """Leave the engines of the parent alone: searching with them, or closing them, would wait for its threads."""
    import ctypes

    for engine in _engines:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine.translator))  # never closed, not even at exit
        engine.translator = None


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_after_fork)
