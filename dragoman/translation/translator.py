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
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from dragoman import command_line, console
from dragoman.dataset import Tokenizer
from dragoman.directions import Direction
from dragoman.errors import ConfigError, EngineError, ExportError
from dragoman.settings import EOS, Config
from dragoman.text.sentence_splitting import sentence_joiner
from dragoman.translation import ctranslate2_engine
from dragoman.translation.assembly import as_typed, make_sentences
from dragoman.translation.ctranslate2_engine import POSITIONS, CTranslate2Engine, EngineName
from dragoman.translation.doubts import lacks_words, loses_numbers, shortcomings
from dragoman.translation.glossary import Glossary
from dragoman.translation.loading import UNSURE, TrainedModel, bleu_of, line_statistics
from dragoman.translation.pieces import Piece, encode_request, with_hidden_numbers
from dragoman.translation.request import Request, parse_request, usual_direction
from dragoman.translation.results import Candidate, Hypothesis, Sentence, Translation, normalizer
from dragoman.translation.term_placement import place_terms

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor

    from dragoman.architectures.ensemble import Ensemble
    from dragoman.architectures.protocol import Model
    from dragoman.corpora.preparation import PreparedData

BEAM = 4  # to search for what a greedy search does not find
GROUP = 512  # texts that are encoded at a time, while earlier ones are translated


class Translator:
    """A trained model, or several, that translates texts.

    Attributes:
        trained: the model, its tokenizers and its configuration
        path: the folder of the checkpoint; of the first one of an ensemble
        step: the step of that checkpoint
        warnings: messages about the texts of the last call, one line each
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
            path: the folder of a run or of a checkpoint
            device: auto, cpu, cuda, cuda:1 or mps
            overrides: settings as on the command line, `["--decoding.beam_size", "5"]`
            engine: what searches. ctranslate2 is the fastest, but reports no log-probabilities of single tokens. auto
                takes it where it can do what `overrides` ask for, and torch, the search of this program, elsewhere; see
                `ctranslate2_engine.choose_engine`.

        Raises CheckpointError if a checkpoint is unusable or several do not fit together, ConfigError for a bad
        override, and EngineError if ctranslate2 cannot do what is asked for.
        """
        paths = [Path(path)] if isinstance(path, str | Path) else list(map(Path, path))
        if engine == "torch" or not self._starts_with_ctranslate2(paths, device, overrides, engine):
            from dragoman.device import choose_device  # slow to import
            from dragoman.translation.model_loading import load

            trained, first = load(paths, choose_device(device))
            self._start(replace(trained, config=command_line.override(trained.config, overrides)))
            self.path, self.step = first.path, first.step
            if self.config.decoding.precision == "int8":
                console.warn("decoding.precision int8 needs CTranslate2: torch translates as with auto")

    def _starts_with_ctranslate2(
        self, paths: Sequence[Path], device: str, overrides: Sequence[str], engine: EngineName
    ) -> bool:
        """Start with CTranslate2 as the engine, or return False where auto leaves that to torch."""
        try:
            opened, trained, fast = ctranslate2_engine.open_run(paths, device, overrides, engine)
        except (EngineError, ExportError) as error:
            if engine == "ctranslate2":
                raise
            console.warn(f"{error} Translating with torch instead.")
            return False
        if fast is None:
            return False
        self._start(trained)
        self._fast = fast
        self.path, self.step = opened.path, opened.step
        return True

    @classmethod
    def around(cls, model: Model, data: PreparedData, config: Config, dtype: torch.dtype) -> Translator:
        """A translator with a model in memory, whose weights may change: training validates with it."""
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
        self.warnings: list[str] = []
        self._messages: defaultdict[int, list[str]] = defaultdict(list)  # the same by the number of the text
        self.glossary: Glossary | None = None
        self._fast: CTranslate2Engine | None = None

    def with_decoding(self, **changes: Any) -> Translator:
        """The same model with other decoding settings: `with_decoding(beam_size=5, n_best=3)`.

        Raises ConfigError for a value that a setting does not take.
        """
        other = copy.copy(self)
        decoding = replace(self.config.decoding, **changes)
        other.trained = replace(self.trained, config=replace(self.config, decoding=decoding))
        if "precision" in changes:
            other._fast = None
            if self._fast and ctranslate2_engine.unsupported_setting(decoding) is None:
                with suppress(EngineError):  # then torch translates
                    other._fast = ctranslate2_engine.open_engine(self.path, other.trained, self._fast.device)
        return other

    def with_glossary(self, terms: str | Path | Mapping[str, str]) -> Translator:
        """The same translator with a glossary, from a file or a dictionary: `with_glossary({"dog": "Hund"})`.

        Raises DataError for a faulty glossary, and ConfigError for a language model.
        """
        if self.config.is_language_model:
            raise ConfigError("this model takes no glossary, because it continues each text and translates none.")
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

    def explain(
        self, texts: Sequence[str | Request], first: int = 1, advance: Callable[[int], object] | None = None
    ) -> list[Translation]:
        """Translate texts, and return the scores, tokens and alternatives of each translation.

        Args:
            first: the number of the first text in warnings
            advance: called now and then with the number of texts that have been finished since

        Raises ConfigError if the model cannot start with a prefix, and DataError if a prefix is too long for it.
        """
        requests = self._parse(texts, first)
        encoded: list[list[list[Piece]]] = []

        def groups() -> Iterator[list[list[list[Piece]]]]:
            for start in range(0, len(requests), GROUP):
                new = self._encode(requests[start : start + GROUP], first + start)
                encoded.extend(new)
                yield new

        found = self._translate(groups(), advance)
        return self._put_together(requests, encoded, found, first)

    def explain_in_parts(
        self, texts: Sequence[str | Request], tokens: Callable[[], int], first: int = 1
    ) -> Generator[None, None, list[Translation]]:
        """Like `explain`, but pauses after each part of about `tokens()` source tokens, so that the caller can do more.

        The generator returns the translations. A part is whole pieces, so a piece that is longer is a part of its own.
        """
        requests = self._parse(texts, first)
        encoded: list[list[list[Piece]]] = [[] for _ in requests]
        found: list[Sentence] = []
        part: list[Piece] = []
        for number, request in enumerate(requests):
            for line in encode_request(self.trained, request, partial(self._warn, first + number)):
                encoded[number].append(line)
                for piece in line:
                    part.append(piece)
                    if sum(len(each.ids) + 1 for each in part) >= tokens():
                        found += self._translate([[[part]]], None)
                        part = []
                        yield
        found += self._translate([[[part]]], None)
        return self._put_together(requests, encoded, found, first)

    def _put_together(
        self,
        requests: Sequence[Request],
        encoded: Sequence[list[list[Piece]]],
        sentences: Iterable[Sentence],
        first: int,
    ) -> list[Translation]:
        """The translation of each request from those of all pieces, with the warnings about it."""
        found = iter(sentences)
        translations = []
        for number, (request, lines) in enumerate(zip(requests, encoded, strict=True), first):
            joiner = sentence_joiner(request.direction.target)
            translated = [[next(found) for _ in line] for line in lines]
            text = "\n".join(  # a line that was not translated keeps its text
                joiner.join(sentence.candidates[0].text for sentence in line).strip() if line else raw
                for line, raw in zip(translated, request.lines, strict=True)
            )
            sentences = [sentence for line in translated for sentence in line]
            self._warn(number, *shortcomings(self.trained, sentences))
            translations.append(Translation(request.text, text, sentences, self._messages[number]))
        return translations

    def _translate(
        self, groups: Iterable[Sequence[list[list[Piece]]]], advance: Callable[[int], object] | None
    ) -> list[Sentence]:
        """Translate the pieces of the lines of groups of texts, and report each text when it is finished.

        CTranslate2 translates one group while the next is made.
        """
        pieces: list[Piece] = []
        owners: list[int] = []  # the number of the text of each piece
        waiting: Counter[int] = Counter()
        count = 0
        advance = advance or (lambda _: None)

        def pieces_of_groups() -> Iterator[list[Piece]]:
            nonlocal count
            for texts in groups:
                new, of = _flatten(texts)
                pieces.extend(new)
                owners.extend(count + i for i in of)
                waiting.update(count + i for i in of)
                count += len(texts)
                advance(len(texts) - len(set(of)))
                yield new

        found: dict[int, Sentence] = {}
        # Closed even if advance raises, so that no thread continues to translate.
        with closing(self._search(pieces_of_groups())) as batches:
            for batch, hypotheses in batches:
                sentences = make_sentences(self.trained, [pieces[k] for k in batch], hypotheses)
                found.update(zip(batch, sentences, strict=True))
                waiting.subtract(owners[k] for k in batch)
                advance(sum(waiting[i] == 0 for i in {owners[k] for k in batch}))
        self._search_again(pieces, found)
        placed = place_terms(self.trained, pieces, [found[k] for k in range(len(pieces))])
        return as_typed(self.trained, pieces, placed)

    def _search_again(self, pieces: list[Piece], sentences: dict[int, Sentence]) -> None:
        """Translate again what is spoilt: with stand-ins for lost numbers, or with a beam if there is not one word.

        A text for which no word is found stays as it is. Without decoding.tolerant, only numbers are looked at.
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
        """Translate other pieces in place of those with the same indices, and keep what is not spoilt."""
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

    def speak(self, text: str | Request, write: Callable[[str], object]) -> Translation:
        """Translate one line and write each sentence of the translation as soon as it is finished."""
        [request] = self._parse([text], 1)
        [lines] = self._encode([request], 1)
        joiner = sentence_joiner(request.direction.target)
        sentences: list[Sentence] = []
        for piece in _flatten([lines])[0]:
            write(joiner if sentences else "")
            sentences += self._translate([[[[piece]]]], None)
            write(sentences[-1].candidates[0].text)
        self._warn(1, *shortcomings(self.trained, sentences))
        translation = joiner.join(sentence.candidates[0].text for sentence in sentences)
        return Translation(request.text, translation, sentences, self._messages[1])

    def score(self, pairs: Sequence[tuple[str | Request, str]], first: int = 1) -> list[Candidate]:
        """Score given translations, each taken as one sentence.

        The score is what a search would rank the translation by, apart from the rounding of `decoding.precision`.
        A word that the vocabulary does not know has the probability of [UNK]. Raises DataError for a pair that is too
        long for the model.
        """
        from dragoman.translation.teacher_forcing import score_pairs

        sources = self._parse([source for source, _ in pairs], first)
        return score_pairs(self.trained, list(zip(sources, [text for _, text in pairs], strict=True)), first)

    def embed(self, texts: Sequence[str | Request], first: int = 1) -> Tensor:
        """A vector for each text, (texts, D): the mean of the model's states of its tokens; zeros for a blank text.

        The states are those of the encoder, or of the source in a decoder-only model, or of the text in a language
        model. Raises ConfigError for an ensemble, whose members have no states in common.
        """
        from dragoman.translation.teacher_forcing import embeddings

        if len(self.trained.shapes) > 1:
            raise ConfigError("only a single model gives vectors: name one checkpoint.")
        pieces, owners = _flatten(self._encode(self._parse(texts, first), first))
        return embeddings(self.trained, [(piece.ids, piece.prefix) for piece in pieces], owners, len(texts))

    def align(self, sentence: Sentence, candidate: Candidate) -> list[int]:
        """The source position that each token of a candidate was made from, [EOS] excluded."""
        [weights] = self.alignments([(sentence, candidate)])
        return candidate.made_from(weights)

    def alignments(self, pairs: Sequence[tuple[Sentence, Candidate]]) -> list[np.ndarray]:
        """How strongly each token of each candidate is aligned with each source token, without [EOS]: (T, S) each.

        It is (0, 0) if one side is empty, as the source of a language model is.
        """
        from dragoman.translation.teacher_forcing import alignments

        return alignments(self.trained, [(sentence.ids, candidate.ids) for sentence, candidate in pairs])

    def with_log_probs(self, translations: Sequence[Translation]) -> list[Translation]:
        """Translations with the log-probability of each token, which CTranslate2 does not report."""
        candidates = [
            (sentence, each) for one in translations for sentence in one.sentences for each in sentence.candidates
        ]
        if not any(each.tokens and not each.log_probs for _, each in candidates):
            return list(translations)
        from dragoman.translation.teacher_forcing import token_log_probs

        found = iter(token_log_probs(self.trained, [(sentence.ids, each.ids) for sentence, each in candidates]))

        def completed(sentence: Sentence) -> Sentence:
            return replace(sentence, candidates=[self._scored(each, next(found)) for each in sentence.candidates])

        return [replace(one, sentences=list(map(completed, one.sentences))) for one in translations]

    def _scored(self, candidate: Candidate, log_probs: list[float]) -> Candidate:
        log_probs = log_probs[: len(candidate.tokens)]
        score = sum(log_probs) / normalizer(len(log_probs), self.config.decoding) if log_probs else candidate.score
        return replace(candidate, log_probs=log_probs, score=score)

    def attention(self, sentence: Sentence, candidate: Candidate) -> Tensor:
        """Where each token of a candidate looked in its source, [EOS] included: (layers, heads, T, S)."""
        from dragoman.translation.teacher_forcing import attention

        target = [*candidate.ids, EOS] if candidate.complete else candidate.ids
        return attention(self.trained, sentence.ids, target)

    def _parse(self, texts: Sequence[str | Request], first: int) -> list[Request]:
        """The texts as requests. Clears the warnings of the last call, and warns of unknown languages."""
        if isinstance(texts, str):
            raise TypeError("give a list of texts, since a string is a sequence of letters")
        self.warnings, self._messages = [], defaultdict(list)
        requests = [self.request(text) if isinstance(text, str) else text for text in texts]
        _check_prefixes(self.trained, requests)
        for number, request in enumerate(requests, first):
            if request.unknown_target:
                self._warn(number, f"this model does not translate to {request.unknown_target}.")
        return requests

    def _encode(self, requests: Sequence[Request], first: int) -> list[list[list[Piece]]]:
        """The pieces of each line of each request."""
        return [
            list(encode_request(self.trained, request, partial(self._warn, number)))
            for number, request in enumerate(requests, first)
        ]

    def _warn(self, number: int, *messages: str) -> None:
        self._messages[number] += messages
        self.warnings += [f"text {number}: {message}" for message in messages]

    def _search(self, groups: Iterable[list[Piece]]) -> Generator[tuple[list[int], list[list[Hypothesis]]], None, None]:
        """Yield the indices, among all groups, and the hypotheses of one batch of pieces after another."""
        # If sentences are split, no piece is longer than the training lines, so none has to be looked at first.
        bounded = self.config.decoding.split_sentences and self.trained.trained_on.longest < POSITIONS
        if self._fast is not None and bounded and self._is_for_ctranslate2([]):
            return self._fast.search_in_batches(self.trained, groups)
        pieces = list(chain.from_iterable(groups))
        if self._fast is not None and self._is_for_ctranslate2(pieces):
            return self._fast.search_in_batches(self.trained, [pieces])
        from dragoman.translation.batch_search import search_in_batches  # slow to import

        return search_in_batches(self.trained, pieces)

    def _is_for_ctranslate2(self, pieces: Sequence[Piece]) -> bool:
        """Whether CTranslate2 can translate these pieces."""
        decoding = self.config.decoding
        return (
            self._fast is not None
            and ctranslate2_engine.unsupported_setting(decoding) is None
            and ctranslate2_engine.fits(pieces, decoding.max_length)
        )


def _check_prefixes(trained: TrainedModel, requests: Sequence[Request]) -> None:
    """Raise ConfigError if there are prefixes and the model cannot start with one."""
    if not any(request.prefix for request in requests):
        return
    if trained.writes_at_once:
        raise ConfigError("this model cannot start with a prefix, because it writes all words at once.")
    if trained.config.is_language_model:
        raise ConfigError("this model takes no prefix, because it continues each text itself.")


def _flatten(texts: Sequence[list[list[Piece]]]) -> tuple[list[Piece], list[int]]:
    """All pieces of the lines of texts, and the index of the text of each piece."""
    found = [(piece, i) for i, lines in enumerate(texts) for line in lines for piece in line]
    return [piece for piece, _ in found], [i for _, i in found]
