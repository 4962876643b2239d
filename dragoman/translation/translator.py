"""The translator: text in, text out.

    translator = Translator("runs/phrasebook")
    translator.translate(["The train leaves at nine."])              # ["Il treno parte alle nove."]
    translator.explain(["The train leaves at nine."])[0].sentences   # scores, tokens, other translations

A text is cleaned, cut into sentences such as the model has learnt from, encoded, batched by length, searched, decoded,
and put together again. What the vocabulary does not know is copied from the source as it stands there, or in lower
case where data.lowercase is set.

A model of several directions is told by each text what to make of it, `>>it<< The train leaves at nine.`, see
`languages`; a text that says nothing is taken for one of the usual direction.

A language model has no source: it goes on with each line that it is given, as with a translation that has begun.
"""

from __future__ import annotations

import copy
import math
import re
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from dragoman import command_line, errors
from dragoman.architectures import ctc
from dragoman.architectures.ensemble import Ensemble
from dragoman.architectures.protocol import Model
from dragoman.corpora.cleaning import clean
from dragoman.corpora.sentence_splitting import LineStatistics, sentence_joiner, split_sentences, split_text
from dragoman.dataset import UNSEEN, Tokenizer, masks, source_batch
from dragoman.device import autocast, choose_device, choose_precision
from dragoman.directions import Direction, split_tag, tag_of, tagged, targets
from dragoman.errors import ConfigError, DataError
from dragoman.settings import EOS, PAD, SOS, UNK, Config, DecodingConfig, ModelConfig
from dragoman.signals import Stopped
from dragoman.translation.alignment import made_from
from dragoman.translation.copying import LITERAL, copies
from dragoman.translation.engines import CACHE, AnyEngine, ready
from dragoman.translation.loading import SIDES, find_checkpoint, line_statistics, unpack
from dragoman.translation.results import Candidate, Sentence, Translation
from dragoman.translation.search import Hypothesis, Watch, normalizer, read_off, search

BATCH_TOKENS = 4096  # padded source positions in a batch, for each hypothesis in the beam


@dataclass(frozen=True)
class _Piece:
    """A sentence to be translated: its text, and what the tokenizer made of it."""

    text: str
    ids: list[int]
    words: list[str]  # what each id stands for, an unknown word or a literal itself
    prefix: list[int] = field(default_factory=list)  # target ids that the translation has to begin with
    prefix_words: list[str] = field(default_factory=list)  # and what they stand for


class OtherEngine(Protocol):
    """Another program that searches in place of `decoding.search`, with the same model."""

    step_bytes: int  # as of `engine.Engine`

    def search(
        self,
        source: Tensor,
        limits: Sequence[int],
        settings: DecodingConfig,
        least: Sequence[int] | None,
        unknowns: Sequence[int] | None,
        prefixes: Sequence[Sequence[int]] | None,
        watch: Watch | None,
    ) -> list[list[Hypothesis]]:
        """As `decoding.search`; the log-probabilities of single tokens may lack."""
        ...


class Translator:
    """A model with its tokenizers: texts in one language to texts in another.

    Attributes:
        config: the configuration of the run, with its decoding settings
        source, target: the tokenizers
        path: the folder of the checkpoint, the first one of several
        step: that of the checkpoint
        warnings: what the last call of `translate` has to say about its texts, a line each
    """

    path: Path
    step: int

    def __init__(
        self, path: str | Path | Sequence[str | Path], device: str = "auto", overrides: Sequence[str] = ()
    ) -> None:
        """Load the best checkpoint of the run whose folder this is, or the checkpoint whose folder this is.

        Several paths make an ensemble, which translates by the mean of the models' probabilities.

        Raises CheckpointError if there is none that can be used, or if several do not fit together, and ConfigError for
        a bad override, which is given as on the command line: `["--decoding.beam_size", "5"]`.
        """
        paths = [path] if isinstance(path, str | Path) else path
        found = [find_checkpoint(Path(each)) for each in paths]
        first = found[0]
        tokenizers = [[each.files[f"{side}.tokenizer.json"] for side in SIDES] for each in found]
        for other, texts in zip(found, tokenizers, strict=True):
            if texts != tokenizers[0]:
                raise errors.CheckpointError(
                    f"{other.path} and {first.path} do not have the same tokenizers: models that translate together "
                    "must have been trained on the same prepared data."
                )
        unpacked = [unpack(each) for each in found]
        models = [model for model, *_ in unpacked]
        if len({each.settings.architecture == "encoder-only" and each.settings.upsampling for each in models}) > 1:
            raise errors.CheckpointError(
                "models that translate together must all write word by word, or all be encoder-only with the same "
                "model.upsampling."
            )
        if len({(each.data.lowercase, each.data.normalize) for _, each, *_ in unpacked}) > 1:
            raise errors.CheckpointError(
                "models that translate together must read the same text: data.lowercase or data.normalize differs."
            )
        _, settings, source, target, trained = unpacked[0]
        on = choose_device(device)
        self._set(
            (models[0] if len(models) == 1 else Ensemble(models)).to(on).eval(),
            source,
            target,
            command_line.override(settings, overrides),
            trained,
            choose_precision("auto", on),
        )
        self.path, self.step = first.path, first.step

    @classmethod
    def around(
        cls,
        model: Model,
        source: Tokenizer,
        target: Tokenizer,
        settings: Config,
        trained_on: Any,
        dtype: torch.dtype,
    ) -> Translator:
        """A translator with a model in memory. Training validates with it, so that both decode by the same code.

        trained_on is the report on the source side, `preparing.SideReport`.
        """
        translator = cls.__new__(cls)
        translator._set(model, source, target, settings, line_statistics(vars(trained_on)), dtype)
        translator._changing = True
        return translator

    def with_decoding(self, **changes: Any) -> Translator:
        """The same model with other settings of the search, as `with_decoding(beam_size=5, n_best=3)`.

        Raises ConfigError for a setting that may not have that value.
        """
        other = copy.copy(self)
        other.config = replace(self.config, decoding=replace(self.config.decoding, **changes))
        if "precision" in changes:
            other._engine = None
        return other

    def searching_with(self, engine: OtherEngine) -> Translator:
        """The same translator, for which another program searches; all that stands around the search stays."""
        other = copy.copy(self)
        other._other = engine
        return other

    def _set(
        self,
        model: Model | Ensemble,
        source: Tokenizer,
        target: Tokenizer,
        settings: Config,
        trained: LineStatistics,
        dtype: torch.dtype,
    ) -> None:
        self.model = model
        self.source = source
        self.target = target
        self.config = settings
        self.trained = trained
        self.device = next(model.parameters()).device
        self.dtype = dtype
        self.warnings: list[str] = []
        self._changing = False  # the weights, between two calls
        self._engine: AnyEngine | None = None
        self._other: OtherEngine | None = None

    # -------------------------------------------------------------------------------------------------- translating

    def translate(self, texts: Sequence[str], to: str | None = None) -> list[str]:
        """Translate each text, however long, line by line; an empty or blank line stays empty.

        `to` is the language to translate into, of a model of several. Raises ConfigError for one that it does not know.
        """
        if to is not None:
            texts = [self.asking(text, to) for text in texts]
        return [translation.text for translation in self.explain(texts)]

    def asking(self, text: str, to: str, source: str = "") -> str:
        """The text with the tag that asks for a translation into a language, and says which one it is in, if told.

        An empty `to` is the language into which texts in that one usually go. A tag that the text has gives way.

        Raises ConfigError for languages that the model does not know.
        """
        several = self.config.data.several
        directions = [self.usual, *several]
        known = {"to": targets(directions), "from": list(dict.fromkeys(each.source for each in directions))}
        for how, language in (("to", to), ("from", source)):
            if language and language not in known[how]:
                raise ConfigError(f"this model does not translate {how} {language}, but {how} {', '.join(known[how])}.")
        to = to or next(each.target for each in directions if source in ("", each.source))
        if to == source:
            raise ConfigError(f"from {source} to {to} there is nothing to translate.")
        return tagged(split_tag(text)[1], Direction(source, to)) if several else text

    def explain(
        self,
        texts: Sequence[str],
        first: int = 1,
        advance: Callable[[int], object] | None = None,
        prefixes: Sequence[str] | None = None,
    ) -> list[Translation]:
        """Translate each text, and keep how that came about.

        Args:
            first: the number by which warnings call the first text
            advance: is told, now and then, how many more texts are done
            prefixes: words that the translation of each text has to begin with

        Raises ConfigError for prefixes where the model has no use for them.
        """
        self.warnings = []
        if prefixes:
            self._check_begins()
        asked = [self._asked(text) for text in texts]
        self._check_tags(texts, first)
        lines = [
            [self._pieces(clean(line), first + i, direction) for line in text.split("\n")]
            for i, (direction, text) in enumerate(asked)
        ]
        for line, prefix in zip((text[0] for text in lines), prefixes or [], strict=False):
            if line:
                line[0] = self._begun(line[0], prefix)
        owners = [i for i, text in enumerate(lines) for line in text for _ in line]
        flat = [piece for text in lines for line in text for piece in line]
        waiting = [sum(map(len, text)) for text in lines]
        if advance:
            advance(waiting.count(0))
        found: dict[int, Sentence] = {}
        with closing(self._translated(flat)) as done_batches:  # also if advance raises: no thread works on for nobody
            for batch, translated in done_batches:
                found.update(zip(batch, translated, strict=True))
                for k in batch:
                    waiting[owners[k]] -= 1
                if advance:
                    advance(sum(waiting[i] == 0 for i in {owners[k] for k in batch}))
        done = iter(found[k] for k in range(len(flat)))
        translations = []
        for i, ((direction, text), parts) in enumerate(zip(asked, lines, strict=True)):
            between = sentence_joiner(direction.target)
            of_lines = [[next(done) for _ in line] for line in parts]
            of_text = [sentence for line in of_lines for sentence in line]
            self._check(of_text, first + i)
            joined = (  # a line of which nothing was made stays as it is
                clean(between.join(sentence.candidates[0].text for sentence in line) if line else raw)
                for line, raw in zip(of_lines, text.split("\n"), strict=True)
            )
            translations.append(Translation(text, "\n".join(joined), of_text))
        return translations

    def speak(self, text: str, write: Callable[[str], object], prefix: str = "") -> Translation:
        """Translate one line, beginning with prefix, and write the words as soon as the search has settled them."""
        self.warnings = []
        done: list[Sentence] = []
        if prefix:
            self._check_begins()
        self._check_tags([text], 1)
        direction, text = self._asked(text)
        between = sentence_joiner(direction.target)
        for piece in self._pieces(clean(text), 1, direction):
            said = between if done else ""
            write(said)
            spoken = ""
            if prefix and not done:
                piece = self._begun(piece, prefix)

            def hear(_: int, tokens: list[int]) -> None:
                nonlocal spoken
                known = tokens[: tokens.index(UNK)] if UNK in tokens else tokens  # what is copied is known at the end
                now = self.target.decode(known).rstrip("\ufffd")  # of a letter in several pieces, not all are there
                now = re.sub(r"\s", " ", now)  # what is made of bytes may hold the end of a line
                if now.startswith(spoken):
                    write(now[len(spoken) :])
                    spoken = now

            engine = self._ready()
            with self._threads(engine):
                [hypotheses] = self._search(engine, [piece], hear)
            done += self._sentences([piece], [hypotheses])
            final = done[-1].candidates[0].text
            write(final[len(spoken) :] if final.startswith(spoken) else f"\n{final}")
        self._check(done, 1)
        return Translation(text, between.join(sentence.candidates[0].text for sentence in done), done)

    def score(self, pairs: Sequence[tuple[str, str]], first: int = 1) -> list[Candidate]:
        """How probable the model finds given translations, each taken as one sentence.

        The score is the one by which a search would have ranked it, but for the digits that `decoding.precision` cuts
        off. A word that the vocabulary does not know has the probability of [UNK].
        """
        self.warnings = []
        self._check_tags([text for text, _ in pairs], first)
        sources = [self._piece(text, direction).ids for direction, text in (self._asked(text) for text, _ in pairs)]
        texts = [clean(target, self.config.data) for _, target in pairs]
        targets = self.target.encode_batch(texts)
        for number, (source, target) in enumerate(zip(sources, targets, strict=True), first):
            if len(target) >= self._room(len(source)):
                raise DataError(f"text {number}: this pair is longer than the positions that the model has learnt.")
            if self._at_once and ctc.needed(target) > self.config.model.upsampling * (len(source) + 1):
                raise DataError(
                    f"text {number}: a translation of {len(target)} tokens has no room in the places that "
                    f"{len(source)} source tokens make (model.upsampling), and so no score."
                )
        found: dict[int, Candidate] = {}
        lengths = [max(len(a), len(b)) + 1 for a, b in zip(sources, targets, strict=True)]
        self.model.eval()
        for batch in batches_by_length(lengths, BATCH_TOKENS):
            rated = self._rated([(sources[i], targets[i]) for i in batch])
            for i, log_probs in zip(batch, rated, strict=True):
                score = sum(log_probs) / normalizer(len(log_probs), self.config.decoding)
                labels = [self.target.label(word) for word in self.target.tokens(texts[i])]
                found[i] = Candidate(texts[i], targets[i], [*labels, "[EOS]"], log_probs, score, True, {})
        return [found[i] for i in range(len(pairs))]

    def embed(self, texts: Sequence[str], first: int = 1) -> Tensor:
        """A vector for each text, (texts, D): the mean of the model's states of its tokens; zeros for an empty one.

        The states are the encoder's; those of the source in a decoder-only model, of the text in a language model.
        Raises ConfigError for an ensemble, whose members have nothing in common there.
        """
        if isinstance(self.model, Ensemble):
            raise ConfigError("a vector of a text is that of one model, not of several.")
        self.warnings = []
        self._check_tags(texts, first)
        pieces = [
            [piece for line in text.split("\n") if line.strip() for piece in self._pieces(clean(line), i, direction)]
            for i, (direction, text) in enumerate(map(self._asked, texts), first)
        ]
        owners = [i for i, of_text in enumerate(pieces) for _ in of_text]
        flat = [piece for of_text in pieces for piece in of_text]
        sums, counts = torch.zeros(len(texts), self.config.model.d_model), torch.zeros(len(texts), 1)
        self.model.eval()
        for batch in batches_by_length([len(piece.ids + piece.prefix) + 1 for piece in flat], BATCH_TOKENS):
            source, target = self._teacher_forced([(flat[k].ids, flat[k].prefix) for k in batch])
            with torch.inference_mode(), autocast(self.device, self.dtype):
                of_text = self.config.is_language_model
                states = (
                    self.model.states(source, target, *masks(source, target)) if of_text else self.model.read(source)
                )
            real = (target if of_text else source) != PAD
            total = (states.float() * real[:, :, None]).sum(1).cpu()
            to = torch.tensor([owners[k] for k in batch])
            sums.index_add_(0, to, total)
            counts.index_add_(0, to, real.sum(1, keepdim=True).float().cpu())
        return sums / counts.clamp(min=1)

    def align(self, sentence: Sentence, candidate: Candidate) -> list[int]:
        """For each token of a candidate, [EOS] excluded, the position of the source token that it is made from."""
        [weights] = self.alignments([(sentence, candidate)])
        return made_from(candidate, weights)

    def alignments(self, pairs: Sequence[tuple[Sentence, Candidate]]) -> list[Tensor]:
        """By how much each token of candidates is made from each of their sentences, [EOS] excluded: (T, S) each.

        It is (0, 0) where there is nothing to align: a language model has no source.
        """
        found = [torch.zeros(0, 0) for _ in pairs]
        some = [i for i, (sentence, candidate) in enumerate(pairs) if sentence.ids and candidate.ids]
        lengths = [1 + max(len(part.ids) for part in pairs[i]) for i in some]
        for batch in batches_by_length(lengths, BATCH_TOKENS):
            ids = [(pairs[some[k]][0].ids, pairs[some[k]][1].ids) for k in batch]
            for k, weights in zip(batch, self._alignments(ids), strict=True):
                found[some[k]] = weights
        return found

    def attention(self, sentence: Sentence, candidate: Candidate) -> Tensor:
        """Where each token of a candidate looked in its source, [EOS] included: (layers, H, T, S)."""
        target = [*candidate.ids, EOS] if candidate.complete else candidate.ids
        with torch.inference_mode(), autocast(self.device, self.dtype):
            maps = self.model.cross_attention(*self._teacher_forced([(sentence.ids, target)]))
        return maps[:, 0, :, : len(target)].float().cpu()

    # ------------------------------------------------------------------------------------------------------ its steps

    @property
    def usual(self) -> Direction:
        """The direction of a text that says nothing of it."""
        return Direction(self.config.data.source_lang or "", self.config.data.target_lang)

    def _asked(self, text: str) -> tuple[Direction, str]:
        """The direction in which a text wants to be translated, the usual one if it says none, and what follows that.

        One that no pair of training had is possible, too: from a language that was read into one that was written.
        """
        several = self.config.data.several
        direction, rest = split_tag(text) if several else (None, text)
        if direction is None or tag_of(direction.target) not in self.source.tags:
            return self.usual, text
        if not direction.source:  # which has a say in where its sentences end, and in nothing else
            [direction, *_] = [each for each in (self.usual, *several) if each.target == direction.target]
        return direction, rest

    def _check_tags(self, texts: Sequence[str], first: int) -> None:
        """Warn of tags that are translated as text, for the model has no such language."""
        for number, text in enumerate(texts if self.config.data.several else (), first):
            direction, _ = split_tag(text)
            if direction and tag_of(direction.target) not in self.source.tags:
                self.warnings.append(f"text {number}: this model does not translate to {direction.target}.")

    def _check_begins(self) -> None:
        """Raise ConfigError if this model's translations cannot begin with given words."""
        if self.config.is_language_model or self._at_once:
            why = "writes all words at once" if self._at_once else "goes on with each text itself"
            raise ConfigError(f"there is no translation to begin with a prefix: this model {why}.")

    def _begun(self, piece: _Piece, prefix: str) -> _Piece:
        """A piece whose translation is to begin with prefix."""
        words = clean(prefix, self.config.data)
        return replace(piece, prefix=self.target.encode(words), prefix_words=self.target.tokens(words))

    def _piece(self, text: str, direction: Direction) -> _Piece:
        """What the tokenizer makes of a sentence, cleaned as in training, each literal in it being one unknown word."""
        text = clean(text, self.config.data)
        plain = LITERAL.sub(UNSEEN, text) if self._carries_literals else text
        literals = iter(LITERAL.findall(text) if self._carries_literals else ())
        if self.config.data.several:
            plain = tagged(plain, direction)
        words = [next(literals, word) if word == UNSEEN else word for word in self.source.tokens(plain)]
        return _Piece(text, self.source.encode(plain), words)

    @property
    def _carries_literals(self) -> bool:
        return self.config.decoding.unknown == "copy" and self.source.encode(UNSEEN) == [UNK]

    def _pieces(self, text: str, number: int, direction: Direction) -> list[_Piece]:
        """The sentences of a line, such as the model has learnt from; or the line, to be gone on with.

        The line is cleaned, but as it was written: capitals tell where sentences begin, and are lowered afterwards.
        None for what is empty, or what the model has no positions for, which a warning says.
        """
        if not text:
            return []
        if self.config.is_language_model:
            text = clean(text, self.config.data)
            found = [_Piece(text, [], [], self.target.encode(text), self.target.tokens(text))]
        else:
            found = self._sentence_pieces(text, number, direction)
        if any(self._room(len(piece.ids)) <= len(piece.prefix) for piece in found):
            self.warnings.append(
                f"text {number}: it does not fit into the positions that the model has learnt (model.max_positions), "
                "and is left as it is."
            )
            return []
        return found

    def _sentence_pieces(self, text: str, number: int, direction: Direction) -> list[_Piece]:
        whole = self._piece(text, direction)
        trained = self.trained
        if not self.config.decoding.split_sentences:
            trained = LineStatistics(usual=trained.longest, longest=trained.longest, sentences=len(text))

        def lengths(texts: Sequence[str]) -> list[int]:
            return [len(self._piece(text, direction).ids) for text in texts]

        found = split_text(text, direction.source, trained, lengths)
        if len(found) == 1:
            return [whole]
        for length in lengths(split_sentences(text, direction.source)):
            if length > trained.longest:
                self.warnings.append(
                    f"text {number}: a sentence of {length:,} tokens is translated in parts, for the longest one that "
                    f"the model has learnt from had {trained.longest}."
                )
        return [self._piece(part, direction) for part in found]

    @property
    def _budget(self) -> int:
        decoding = self.config.decoding
        return BATCH_TOKENS // max(decoding.beam_size, decoding.n_best)

    @property
    def _at_once(self) -> bool:
        return self.config.model.architecture == "encoder-only"

    def _ready(self) -> AnyEngine | OtherEngine:
        """The model, made ready to translate with."""
        if self._other is not None:
            return self._other
        if self._changing:
            return ready(self.model, self.config.decoding.precision)
        if self._engine is None:
            self._engine = ready(self.model, self.config.decoding.precision)
        return self._engine

    def _translated(self, flat: Sequence[_Piece]) -> Generator[tuple[list[int], list[Sentence]], None, None]:
        """Batches, as numbers of sentences, and their translations, in the order in which they get done.

        On a CPU each batch has one thread: a decoder's steps are too small to be shared well, so that two threads with
        a batch each translate more than two threads do together.
        """
        if not flat:
            return
        engine = self._ready()
        more = self.config.decoding.max_length if self.config.is_language_model else 0
        lengths = [len(piece.ids + piece.prefix) + 1 + more for piece in flat]
        threads = torch.get_num_threads() if self.device.type == "cpu" else 1
        budget = self._budget
        if threads > 1 and len(flat) >= 8 * threads:
            budget = min(budget, -(-sum(lengths) // threads) + max(lengths))
        batches = [(batch, [flat[k] for k in batch]) for batch in batches_by_length(lengths, budget)]
        if threads == 1 or len(batches) == 1:
            for batch, pieces in batches:
                with self._threads(engine):
                    found = self._search(engine, pieces)
                yield batch, self._sentences(pieces, found)
            return
        stoppable = _Stoppable(engine)
        pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
        try:
            searches = {pool.submit(self._search, stoppable, pieces): (batch, pieces) for batch, pieces in batches}
            for done in as_completed(searches):
                batch, pieces = searches[done]
                yield batch, self._sentences(pieces, done.result())
        finally:
            stoppable.stopped = True
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(threads)  # part of that setting is the whole process's

    @contextmanager
    def _threads(self, engine: AnyEngine | OtherEngine) -> Iterator[None]:
        """For a few sentences, threads help to fetch the weights from memory; those in the cache one has sooner."""
        threads = torch.get_num_threads()
        if self.device.type == "cpu" and engine.step_bytes < CACHE:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)

    def _search(
        self,
        engine: Any,
        batch: Sequence[_Piece],
        watch: Callable[[int, list[int]], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """The best hypotheses for each sentence of a batch. Raises DataError if one of them has no room."""
        decoding = self.config.decoding
        lengths = [len(piece.ids) for piece in batch]
        prefixes = [piece.prefix for piece in batch]
        limits = [self._limit(piece) for piece in batch]
        least = [
            min(int(decoding.min_ratio * length), limit - 1) for length, limit in zip(lengths, limits, strict=True)
        ]
        # To copy a word that the model knows in its source language would be a word of the wrong language.
        unknowns = [(piece.ids + piece.prefix).count(UNK) for piece in batch] if decoding.unknown == "copy" else None
        source = source_batch([piece.ids for piece in batch]).to(self.device)
        if self._at_once:
            found = read_off(engine, source, limits, decoding, unknowns)
            for i, [hypothesis] in enumerate(found if watch else []):
                watch(i, hypothesis.tokens)  # type: ignore[misc]
            return found
        find = partial(search, engine) if self._other is None else engine.search
        return find(
            source,
            limits,
            decoding,
            least if any(least) else None,
            unknowns,
            prefixes if any(prefixes) else None,
            watch,
        )

    def _limit(self, piece: _Piece) -> int:
        """How many tokens the translation of a sentence may have, the closing [EOS] included. Raises DataError."""
        decoding, length, begun = self.config.decoding, len(piece.ids), len(piece.prefix)
        if self.config.is_language_model:
            limit = begun + decoding.max_length
        else:
            limit = max(min(decoding.max_length, int(decoding.max_ratio * length) + 10), begun + 1)
        room = self._room(length)
        if room <= begun:
            raise DataError(f"a prefix of {begun} tokens leaves no room among the positions that the model has learnt.")
        return min(limit, room)

    def _room(self, length: int) -> int:
        """How many tokens fit into a translation of a sentence of so many, as far as the positions of all models go.

        That is one less than there are: to be looked at, a translation is given to the model with [SOS] and [EOS].
        """
        members = self.model.members if isinstance(self.model, Ensemble) else [self.model]
        return min(self._room_in(each.settings, length + 1) for each in members)

    @staticmethod
    def _room_in(settings: ModelConfig, read: int) -> int:
        if settings.positions != "learned":
            return sys.maxsize
        if settings.positions_of(read, 1) > settings.max_positions:
            return 0
        match settings.architecture:
            case "encoder-decoder":
                return settings.max_positions - 1
            case "decoder-only":
                return settings.max_positions - read - 1
            case "encoder-only":
                return sys.maxsize

    def _rated(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[list[float]]:
        """The log-probability of each token of the targets of pairs of ids, that of the closing [EOS] last."""
        source, target = self._teacher_forced(pairs)
        with torch.inference_mode(), autocast(self.device, self.dtype):
            logits = self.model.places(source) if self._at_once else self.model(source, target, *masks(source, target))  # type: ignore[operator]
            log_probs = logits.float().log_softmax(-1)
            if self._at_once:
                lengths = self.model.lengths(source)  # type: ignore[operator]
                wanted = target[:, 1:]
                path = ctc.forced_path(log_probs, lengths, wanted, (wanted != PAD).sum(1))
                rows = zip(log_probs, lengths.tolist(), [ids for _, ids in pairs], path, strict=True)
                return [ctc.by_token(*row) for row in rows]
            following = torch.cat((target[:, 1:], torch.full_like(target[:, :1], PAD)), 1)
            ended = torch.arange(target.shape[1]) == torch.tensor([len(ids) for _, ids in pairs])[:, None]
            following = following.masked_fill(ended.to(self.device), EOS)
            rated = log_probs.gather(2, following[:, :, None])[:, :, 0].tolist()
        return [row[: len(ids) + 1] for row, (_, ids) in zip(rated, pairs, strict=True)]

    def _sentences(self, batch: Sequence[_Piece], hypotheses: Sequence[list[Hypothesis]]) -> list[Sentence]:
        """Make text of what the search found."""
        gaps = [(b, h) for b, found in enumerate(hypotheses) for h in found if UNK in h.tokens]
        copied: dict[int, dict[int, int]] = {}  # by the identity of the hypothesis
        if gaps and self.config.decoding.unknown == "copy":
            for (b, h), weights in zip(
                gaps, self._alignments([(batch[b].ids, h.tokens) for b, h in gaps]), strict=True
            ):
                begun = len(batch[b].prefix)  # its words are given, and no copies
                words = ["" if word in self.source.tags else word for word in batch[b].words]
                tail = copies(h.tokens[begun:], batch[b].ids, words, weights[begun:])
                copied[id(h)] = {begun + t: s for t, s in tail.items()}
        return [
            Sentence(
                piece.text,
                piece.ids,
                [*map(self.source.label, piece.words), "[EOS]"],
                [s for s, token in enumerate(piece.ids) if token == UNK],
                [self._candidate(piece, h, copied.get(id(h), {})) for h in found],
            )
            for piece, found in zip(batch, hypotheses, strict=True)
        ]

    def _candidate(self, piece: _Piece, hypothesis: Hypothesis, copied: dict[int, int]) -> Candidate:
        ids, log_probs, score, complete = hypothesis
        words = {t: piece.words[s] for t, s in copied.items()}
        # Of a search that found nothing there is not even the prefix.
        words |= {t: word for t, word in enumerate(piece.prefix_words[: len(ids)]) if piece.prefix[t] == UNK}
        dropped = UNK if self.config.decoding.unknown == "drop" else None
        kept = [t for t, token in enumerate(ids) if token != dropped or t in words]
        labels = self.target.pieces(ids)
        for t, word in words.items():
            labels[t] = self.source.label(word)
        # Clean, for a model that writes bytes can write the end of a line, too.
        text = clean(
            self.target.decode_with([ids[t] for t in kept], {i: words[t] for i, t in enumerate(kept) if t in words})
            if words
            else self.target.decode([ids[t] for t in kept])
        )
        return Candidate(text, ids, labels + ["[EOS]"] * complete, log_probs, score, complete, copied)

    def _alignments(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[Tensor]:
        """For pairs of ids, by how much each target token is aligned with each source token: (T, S) each."""
        with torch.inference_mode(), autocast(self.device, self.dtype):
            weights = self.model.alignment(*self._teacher_forced(pairs)).float().cpu()
        return [weights[b, : len(target), : len(source)] for b, (source, target) in enumerate(pairs)]

    def _teacher_forced(self, pairs: Sequence[tuple[list[int], list[int]]]) -> tuple[Tensor, Tensor]:
        """Source ids (B, S), ended and padded, and target ids (B, 1 + T), begun and padded."""
        source = source_batch([ids for ids, _ in pairs])
        longest = max(len(ids) for _, ids in pairs)
        target = torch.tensor([[SOS, *ids, *[PAD] * (longest - len(ids))] for _, ids in pairs])
        return source.to(self.device), target.to(self.device)

    def _check(self, sentences: Sequence[Sentence], number: int) -> None:
        """Warn of what a reader of the translation alone could not see."""
        for sentence in sentences:
            best = sentence.candidates[0]
            if not math.isfinite(best.score):
                self.warnings.append(f"text {number}: the settings under decoding have left no translation at all.")
            elif not best.complete:
                limits = "max_length" if self.config.is_language_model else "max_length and decoding.max_ratio"
                self.warnings.append(
                    f"text {number}: what the model wrote was cut off after {len(best.ids)} tokens, the limit that "
                    f"decoding.{limits} set, or the positions that it has learnt."
                )
            lost = [literal for literal in LITERAL.findall(sentence.source) if literal not in best.text]
            if lost:
                self.warnings.append(f"text {number}: lost in translation: {', '.join(lost)}.")


class _Stoppable:
    """An engine whose searches, which run in threads, end at their next step when nobody waits for them any more."""

    STEPS = ("step", "places", "search")

    def __init__(self, engine: AnyEngine | OtherEngine) -> None:
        self.engine = engine
        self.stopped = False

    def __getattr__(self, name: str) -> Any:
        """What the engine has of that name. Raises Stopped for what takes its time."""
        if self.stopped and name in self.STEPS:
            raise Stopped
        return getattr(self.engine, name)


def batches_by_length(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Cut the numbers of all sentences, longest first, into batches of at most budget padded positions (or one)."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > budget:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
