"""The translator: text in, text out.

    translator = Translator("runs/phrasebook")
    translator.translate(["The train leaves at nine."])              # ["Il treno parte alle nove."]
    translator.explain(["The train leaves at nine."])[0].sentences   # scores, tokens, other translations

A text is parsed into a request (`request`), split into encoded pieces (`pieces`), translated in batches
(`batch_search`, `search`) and put back together (`assembly`). By default (decoding.unknown), unknown words are copied
from the source as written, or in lower case if data.lowercase is set.

A model of several directions takes the direction of each text from a tag, `>>it<< The train leaves at nine.`, or from a
`Request`; a text without a tag is translated in the usual direction. A language model has no source: it continues each
line.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from dragoman import command_line, console, hub
from dragoman.checkpoint import Checkpoint
from dragoman.dataset import Tokenizer
from dragoman.directions import Direction
from dragoman.errors import ConfigError, DataError
from dragoman.settings import EOS, Config
from dragoman.translation import ctranslate2_engine
from dragoman.translation.assembly import as_typed, make_sentences
from dragoman.translation.ctranslate2_engine import CTranslate2Engine, EngineName, open_engine
from dragoman.translation.doubts import lacks_words, loses_numbers
from dragoman.translation.glossary import Glossary
from dragoman.translation.loading import TEXT, UNSURE, TrainedModel, bleu_of, line_statistics, open_all
from dragoman.translation.pieces import Piece, encode_piece, with_hidden_numbers
from dragoman.translation.request import Request, parse_request, usual_direction
from dragoman.translation.results import Candidate, Hypothesis, Sentence, Translation, normalizer
from dragoman.translation.term_placement import place_terms
from dragoman.translation.work import Work

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor

    from dragoman.architectures.build import Model
    from dragoman.architectures.ensemble import Ensemble
    from dragoman.corpora.preparation import PreparedData

BEAM = 4  # of the second search for translations without words
GROUP = 10_000  # tokens that are encoded at a time, while earlier ones are translated


class Translator:
    """A trained model, or several, that translates texts.

    Attributes:
        trained: the model, its tokenizers and its configuration
        path: the folder of the checkpoint; of the first one of an ensemble
        step: the step of that checkpoint
        manifests: of each of its checkpoints, with the hashes of their files
        warnings: messages about the texts of the last call, each with the index of its text
        glossary: the terms that translations must contain
    """

    path: Path
    step: int

    def __init__(
        self,
        path: str | Path | Sequence[str | Path],
        device: str = "auto",
        overrides: Sequence[str] = (),
        engine: EngineName = "torch",
    ) -> None:
        """Load a checkpoint, or the best checkpoint of a run. Several paths make an ensemble.

        Args:
            path: the folder of a run or of a checkpoint, or hf:owner/name
            device: auto, cpu, cuda, cuda:1 or mps
            overrides: settings as on the command line, `["--decoding.beam_size", "5"]`
            engine: what searches. ctranslate2 is the fastest, but reports no log-probabilities of single tokens. auto
                uses it if it supports the settings, else torch, the search of this program; see
                `ctranslate2_engine.choose_engine`.

        Raises CheckpointError if a checkpoint is unusable or several do not fit together, ConfigError for a bad
        override, and EngineError if ctranslate2 cannot do what is asked for.
        """
        paths = [hub.local(path)] if isinstance(path, str | Path) else list(map(hub.local, path))
        fast = None
        if engine != "torch":
            trained, opened = open_all(paths, TEXT)
            trained = replace(trained, config=command_line.override(trained.config, overrides))
            fast = open_engine(engine, trained, opened[0].path, device)
        if fast:
            self._start(replace(trained, weights=_built_later(opened, trained, fast.device)))
            self._engine = fast
        else:
            from dragoman.device import choose_device  # slow to import
            from dragoman.translation.model_loading import load

            trained, opened = load(paths, choose_device(device))
            self._start(replace(trained, config=command_line.override(trained.config, overrides)))
            if self.config.decoding.precision == "int8":
                console.warn("decoding.precision int8 needs CTranslate2: torch translates as with auto")
        self.path, self.step = opened[0].path, opened[0].step
        self.manifests = [each.manifest for each in opened]

    @classmethod
    def of_model(cls, model: Model, data: PreparedData, config: Config, dtype: torch.dtype) -> Translator:
        """A translator of a model in memory, whose weights may change: training validates with it."""
        translator = cls.__new__(cls)
        lines = line_statistics([vars(side) for side in data.report.sides])
        translator._start(
            TrainedModel(
                lambda: (model, dtype),
                [config.model],
                data.source,
                data.target,
                config,
                lines,
                UNSURE,
                data.conventions,
            )
        )
        return translator

    def __repr__(self) -> str:
        """Such as Translator(en→it, phrasebook, step 1267, BLEU 95.2)."""
        data, path = self.config.data, getattr(self, "path", None)
        what = [f"{data.source_lang or ''}→{data.target_lang}".lstrip("→"), self.config.run.name]
        if path is not None:
            what.append(f"step {self.step}")
            if (bleu := bleu_of(path.absolute().parent.parent)) is not None:
                what.append(f"BLEU {bleu:.1f}")
        return f"Translator({', '.join(what)})"

    def _start(self, trained: TrainedModel) -> None:
        self.trained = trained
        self.manifests: list[dict[str, Any]] = []
        self.warnings: list[tuple[int, str]] = []
        self.glossary: Glossary | None = None
        self._engine: CTranslate2Engine | None = None

    def with_decoding(self, **changes: Any) -> Translator:
        """The same model with other decoding settings: `with_decoding(beam_size=5, n_best=3)`.

        Raises ConfigError for a value that a setting does not take.
        """
        other = copy.copy(self)
        decoding = replace(self.config.decoding, **changes)
        other.trained = replace(self.trained, config=replace(self.config, decoding=decoding))
        if "precision" in changes or ctranslate2_engine.unsupported(other.trained):
            other._engine = None  # torch translates
        return other

    def with_glossary(self, terms: str | Path | Mapping[str, str]) -> Translator:
        """The same translator with a glossary, from a file or a dictionary: `with_glossary({"dog": "Hund"})`.

        Raises DataError for a faulty glossary, and ConfigError for a language model.
        """
        if self.config.is_language_model:
            raise ConfigError("this model takes no glossary, because it continues texts and does not translate.")
        other = copy.copy(self)
        glossary = Glossary(terms) if isinstance(terms, Mapping) else Glossary.read(terms)
        other.glossary = glossary.cleaned(self.config.data)
        return other

    @property
    def model(self) -> Model | Ensemble:
        """The model, or the ensemble."""
        return self.trained.model

    @property
    def source(self) -> Tokenizer:
        """The tokenizer of the source."""
        return self.trained.source

    @property
    def target(self) -> Tokenizer:
        """The tokenizer of the target."""
        return self.trained.target

    @property
    def config(self) -> Config:
        """The configuration of the run, with the decoding settings in use."""
        return self.trained.config

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.trained.device

    @property
    def usual(self) -> Direction:
        """The direction of a text without a tag."""
        return usual_direction(self.config.data)

    def request(self, text: str, to: str = "", source: str = "", prefix: str = "") -> Request:
        """A request to translate a text to and from these languages, starting with a prefix.

        See `parse_request`. Raises ConfigError for languages that the model does not know.
        """
        tags = self.source.tags
        return replace(parse_request(text, self.config.data, tags, to, source, prefix), glossary=self.glossary)

    @overload
    def translate(self, texts: str, to: str = "") -> str: ...
    @overload
    def translate(self, texts: Sequence[str | Request], to: str = "") -> list[str]: ...
    def translate(self, texts: str | Sequence[str | Request], to: str = "") -> str | list[str]:
        """Translate a text, or a list of texts, of any length, line by line; a blank line stays blank.

        to is the language to translate into, for a model of several. Raises ConfigError for one that it does not know.
        """
        if isinstance(texts, str):
            return self.translate([texts], to)[0]
        requests = [self.request(text, to) if isinstance(text, str) else text for text in texts]
        return [translation.text for translation in self.explain(requests)]

    __call__ = translate

    def explain(self, texts: Sequence[str | Request], poll: Callable[[], object] | None = None) -> list[Translation]:
        """Translate texts, and return the scores, tokens and alternatives of each translation.

        poll is called after each batch. Raises ConfigError if the model cannot start with a prefix, and DataError if a
        prefix is too long for it.
        """
        work = self.work(texts)
        work.add(self.translate_pieces(iter(lambda: work.take(GROUP), []), poll))
        return work.translations()

    def work(self, texts: Sequence[str | Request]) -> Work:
        """The texts, ready to be encoded and translated in parts. `warnings` become those about these texts.

        Raises ConfigError if the model cannot start with a prefix.
        """
        if isinstance(texts, str):
            raise TypeError("give a list of texts, since a string is a sequence of letters")
        requests = [self.request(text) if isinstance(text, str) else text for text in texts]
        _check_prefixes(self.trained, requests)
        work = Work(self.trained, requests)
        self.warnings = work.warnings
        return work

    def translate_pieces(
        self, groups: Iterable[Sequence[Piece]], poll: Callable[[], object] | None = None
    ) -> list[Sentence]:
        """Translate groups of pieces, with CTranslate2 one group while the next is encoded."""
        pieces: list[Piece] = []

        def collected() -> Iterator[Sequence[Piece]]:
            for group in groups:
                pieces.extend(group)
                yield group

        sentences: dict[int, Sentence] = {}
        # Closed even if poll raises, so that no thread continues to translate.
        with closing(self._search(collected())) as batches:
            for batch, hypotheses in batches:
                made = make_sentences(self.trained, [pieces[k] for k in batch], hypotheses)
                sentences.update(zip(batch, made, strict=True))
                if poll:
                    poll()
        self._search_again(pieces, sentences)
        placed = place_terms(self.trained, pieces, [sentences[k] for k in range(len(pieces))])
        return as_typed(self.trained, pieces, placed)

    def _search_again(self, pieces: list[Piece], sentences: dict[int, Sentence]) -> None:
        """Repeat the search for translations without words, with a beam, and for those that lost a number.

        In the latter, all numbers are hidden. A text stays as it is if no words are found for it. Without
        decoding.tolerant, only numbers are checked.
        """
        decoding = self.config.decoding
        without = [k for k, sentence in sentences.items() if decoding.tolerant and lacks_words(pieces[k], sentence)]
        if without and decoding.beam_size == 1 and not (decoding.sample or self.trained.writes_at_once):
            wider = self.with_decoding(beam_size=BEAM, n_best=BEAM)
            wider._replace_if(lacks_words, pieces, {k: pieces[k] for k in without}, sentences)
        for k in without:
            pieces[k] = replace(pieces[k], is_kept=lacks_words(pieces[k], sentences[k]))
        if self.trained.hides_numbers:
            lost = [k for k, sentence in sentences.items() if loses_numbers(pieces[k], sentence)]
            hidden = {k: with_hidden_numbers(self.trained, pieces[k]) for k in lost}
            self._replace_if(loses_numbers, pieces, hidden, sentences)

    def _replace_if(
        self,
        spoilt: Callable[[Piece, Sentence], bool],
        pieces: list[Piece],
        others: Mapping[int, Piece],
        sentences: dict[int, Sentence],
    ) -> None:
        """Translate other pieces in place of those at these indices, and keep the translations that are not spoilt."""
        if not others:
            return
        indices, chosen = list(others), list(others.values())
        for batch, hypotheses in self._search(iter([chosen])):
            new = make_sentences(self.trained, [chosen[i] for i in batch], hypotheses)
            for i, sentence in zip(batch, new, strict=True):
                ways = [replace(sentence, candidates=sentence.candidates[k:]) for k in range(len(sentence.candidates))]
                if best := next((way for way in ways if not spoilt(chosen[i], way)), None):
                    kept = best.candidates[: len(sentences[indices[i]].candidates)]
                    pieces[indices[i]], sentences[indices[i]] = chosen[i], replace(best, candidates=kept)

    def score(self, pairs: Sequence[tuple[str | Request, str]], first: int = 1) -> list[Candidate]:
        """Score given translations, each taken as one sentence.

        The score is what a search would rank the translation by, apart from the rounding of `decoding.precision`.
        A word that the vocabulary does not know has the probability of [UNK]. Raises DataError for a pair that is too
        long for the model; `first` is the number of the first pair in the message.
        """
        from dragoman.translation.teacher_forcing import score_texts

        requests = self.work([source for source, _ in pairs]).requests
        pieces = [encode_piece(self.trained, request.text, request.direction) for request in requests]
        scored = score_texts(self.trained, [(piece, text) for piece, (_, text) in zip(pieces, pairs, strict=True)])
        for number, reason in enumerate(scored, first):
            if isinstance(reason, str):
                raise DataError(f"text {number}: {reason}")
        return [candidate for candidate in scored if isinstance(candidate, Candidate)]

    def embed(self, texts: Sequence[str | Request]) -> Tensor:
        """A vector for each text, (texts, D): the mean of the model's states of its tokens; zeros for a blank text.

        The states are those of the encoder, or of the source in a decoder-only model, or of the text in a language
        model. Raises ConfigError for an ensemble, whose members have no states in common.
        """
        from dragoman.translation.teacher_forcing import embeddings

        if len(self.trained.shapes) > 1:
            raise ConfigError("only a single model gives vectors: name one checkpoint.")
        work = self.work(texts)
        pieces = work.take(sys.maxsize)
        owners = [i for i, counts in enumerate(work.counts) for _ in range(sum(counts))]
        return embeddings(self.trained, [(piece.ids, piece.prefix) for piece in pieces], owners, len(texts))

    def with_log_probs(self, translations: Sequence[Translation]) -> list[Translation]:
        """Translations with the log-probability of each token, which CTranslate2 does not report."""
        candidates = [each for one in translations for sentence in one.sentences for each in sentence.candidates]
        if not any(candidate.tokens and not candidate.log_probs for candidate in candidates):
            return list(translations)
        from dragoman.translation.teacher_forcing import token_log_probs

        def scored(candidate: Candidate, log_probs: list[float]) -> Candidate:
            log_probs = log_probs[: len(candidate.tokens)]
            score = sum(log_probs) / normalizer(len(log_probs), self.config.decoding) if log_probs else candidate.score
            return replace(candidate, log_probs=log_probs, score=score)

        return _completed(translations, partial(token_log_probs, self.trained), scored)

    def with_alignments(self, translations: Sequence[Translation]) -> list[Translation]:
        """Translations with the alignment of each candidate; it is (0, 0) if one side has no tokens."""
        from dragoman.translation.teacher_forcing import alignments

        def aligned(candidate: Candidate, weights: np.ndarray) -> Candidate:
            return replace(candidate, weights=weights)

        return _completed(translations, partial(alignments, self.trained), aligned)

    def attention(self, sentence: Sentence, candidate: Candidate) -> Tensor:
        """Where each token of a candidate looked in its source, [EOS] included: (layers, heads, T, S)."""
        from dragoman.translation.teacher_forcing import attention

        target = [*candidate.ids, EOS] if candidate.complete else candidate.ids
        return attention(self.trained, sentence.ids, target)

    def _search(
        self, groups: Iterable[Sequence[Piece]]
    ) -> Generator[tuple[list[int], list[list[Hypothesis]]], None, None]:
        """Yield the indices, among all groups, and the hypotheses of one batch of pieces after another."""
        if self._engine:
            return self._engine.search_in_batches(self.trained, groups)
        from dragoman.translation.batch_search import search_in_batches  # slow to import

        return search_in_batches(self.trained, list(chain.from_iterable(groups)))


def _check_prefixes(trained: TrainedModel, requests: Sequence[Request]) -> None:
    """Raise ConfigError if there are prefixes and the model cannot start with one."""
    if not any(request.prefix for request in requests):
        return
    if trained.writes_at_once:
        raise ConfigError("this model cannot start with a prefix, because it writes all words at once.")
    if trained.config.is_language_model:
        raise ConfigError("this model takes no prefix, because it continues each text itself.")


def _built_later(
    checkpoints: Sequence[Checkpoint], trained: TrainedModel, device: str
) -> Callable[[], tuple[Model | Ensemble, torch.dtype]]:
    """A function that builds the model when it is first called, and needs torch only then."""

    @cache
    def built() -> tuple[Model | Ensemble, torch.dtype]:
        from dragoman.device import choose_device
        from dragoman.translation.model_loading import build_all

        return build_all(checkpoints, trained, choose_device(device))

    return built


def _completed(
    translations: Sequence[Translation],
    compute: Callable[[list[tuple[list[int], list[int]]]], Iterable[Any]],
    complete: Callable[[Candidate, Any], Candidate],
) -> list[Translation]:
    """Complete each candidate with what `compute` returns for the ids of its sentence and its own."""
    sentences = [sentence for translation in translations for sentence in translation.sentences]
    values = iter(compute([(sentence.ids, each.ids) for sentence in sentences for each in sentence.candidates]))

    def completed(sentence: Sentence) -> Sentence:
        return replace(sentence, candidates=[complete(each, next(values)) for each in sentence.candidates])

    return [replace(one, sentences=list(map(completed, one.sentences))) for one in translations]
