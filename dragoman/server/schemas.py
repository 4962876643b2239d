"""Requests and responses of the API. FastAPI turns these classes into /openapi.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from dragoman.corpora.formats.file_formats import DOCUMENTS
from dragoman.server.limits import MAX_BEAM_SIZE, MAX_CHARACTERS, MAX_N_BEST, MAX_TERM, MAX_TERMS, MAX_TEXTS, Limits
from dragoman.translation.results import Candidate, Translation
from dragoman.translation.translator import Translator


def _to_int(value: object) -> object:
    """Turn 7.0 into 7: JSON has only one type of number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _no_truth(value: object) -> object:
    """Refuse true and false, which pydantic would turn into numbers."""
    if isinstance(value, bool):
        raise ValueError("Input should be a number")
    return value


Text = Annotated[str, Field(max_length=MAX_CHARACTERS)]
TermText = Annotated[str, Field(max_length=MAX_TERM)]
Language = Annotated[str, Field(max_length=100)]
Count = Annotated[int | None, BeforeValidator(_to_int)]


class TranslateRequest(BaseModel):
    """What to translate, and how: either `text` or `texts`."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"oneOf": [{"required": ["text"]}, {"required": ["texts"]}]}
    )
    text: Text = Field(default_factory=str, description="one text", examples=["Where is the station?"])
    texts: list[Text] = Field(
        default_factory=list,
        min_length=1,
        max_length=MAX_TEXTS,
        description=f"several texts, with at most {MAX_CHARACTERS:,} characters in total",
    )
    n_best: Count = Field(
        default=None,
        ge=1,
        le=MAX_N_BEST,
        description="maximum number of alternative translations of each sentence; null: the server's setting",
    )
    beam_size: Count = Field(
        default=None,
        ge=1,
        le=MAX_BEAM_SIZE,
        description="beam size, raised to n_best if smaller; null: the server's setting; "
        "ignored by models that predict all words at once, and when sampling",
    )
    target_lang: Language | None = Field(
        default=None,
        description="language to translate into, for a model of several directions; null: the default direction",
    )
    source_lang: Language | None = Field(
        default=None,
        description="language of the texts, for a model of several directions; null: the default direction",
    )
    glossary: dict[TermText, TermText] = Field(
        default_factory=dict,
        max_length=MAX_TERMS,
        description="from source terms to the target terms that the translation must contain, in addition to those of "
        "the server; an empty target copies its source",
        examples=[{"station": "fermata", "Zoltan": ""}],
    )
    format: Literal["text", "html", "xml", "markdown"] = Field(
        default="text",
        description="what the texts are; tags of html, xml and markdown go around the same words of the translation",
    )
    api_key: str = Field(default="", description="if the server needs one; or in the header Authorization")
    attention: bool = Field(
        default=False, description="whether to return what is known of each token: log_probs, alignment and attention"
    )

    @model_validator(mode="after")
    def _check_text_or_texts(self) -> TranslateRequest:
        if len(self.model_fields_set & {"text", "texts"}) != 1:
            raise ValueError("give text or texts, and not both")
        return self


class LibreRequest(BaseModel):
    """A request to translate, as LibreTranslate's clients send it; also as a form, or in the address."""

    q: Text | Annotated[list[Text], Field(min_length=1, max_length=MAX_TEXTS)] = Field(
        description="one text or several", examples=["Where is the station?"]
    )
    source: Language = Field(description='language of the texts, or "auto"', examples=["auto"])
    target: Language = Field(description="language to translate into")
    format: Literal["text", "html"] = Field(default="text", description="what the texts are")
    alternatives: Annotated[int, BeforeValidator(_no_truth)] = Field(
        default=0, ge=0, le=MAX_N_BEST - 1, description="other translations to return"
    )
    api_key: str = Field(default="", description="if the server needs one")


class CandidateResponse(BaseModel):
    """One translation of a sentence."""

    translation: str
    score: float | None = Field(
        description="log-probability normalised by length; null: the search settings allowed no translation"
    )
    complete: bool = Field(description="false: cut off by a length limit")
    tokens: list[str] = Field(description='a copied word appears as itself; the last token is "[EOS]" if complete')
    log_probs: list[float] | None = Field(description="log-probability of each token, in nats")
    copied: dict[int, int] = Field(description="position of each copied token, and of the source token it copies")
    alignment: list[int] | None = Field(
        default=None, description="source token that each token except [EOS] is translated from"
    )
    attention: list[list[float]] | None = Field(
        default=None,
        description="one row per token, one column per source token, without [EOS]; mean over all heads",
    )


class SentenceResponse(BaseModel):
    """A part of a text that was translated in one piece."""

    source: str
    read_as: str = Field(description="the source as the model read it: usual capitals, final mark, typos corrected")
    tokens: list[str] = Field(description='the last token is "[EOS]"')
    unknown: list[int] = Field(description="positions of tokens that are not in the vocabulary")
    warnings: list[str] = Field(description="problems of this sentence that its translation does not show")
    candidates: list[CandidateResponse] = Field(description="best first")


class TextResponse(BaseModel):
    """A text and its translation."""

    source: str
    translation: str
    warnings: list[str] = Field(description="problems that the translation alone does not show")
    sentences: list[SentenceResponse]


class TranslateResponse(BaseModel):
    """The translations, in the order of the texts."""

    translations: list[TextResponse]


class DirectionInfo(BaseModel):
    """A pair of languages that a model translates between."""

    source_lang: str | None = Field(description="null: a language model, which continues a text")
    target_lang: str
    run: str
    step: int
    examples: list[str] = Field(default_factory=list, description="sentences of the validation set of the run")


class ServerInfo(BaseModel):
    """The models behind this server, and its limits."""

    status: Literal["ok"] = "ok"
    source_lang: str | None = Field(description="of the default direction; null: a language model")
    target_lang: str
    directions: list[DirectionInfo] = Field(description="all directions; the default one is first")
    run: str
    step: int
    characters: int = Field(default=MAX_CHARACTERS, description="maximum in one request")
    n_best: int = Field(description="maximum number of alternative translations of a sentence")
    terms: int = Field(default=MAX_TERMS, description="maximum in the glossary of one request")
    documents: list[str] = Field(description="endings of the documents that are translated")
    budgets: Limits = Field(
        description="what else is limited, by the options of the same names: bytes of a request; its work, which is "
        "its characters and 10 for each line, times the beam size, times 4 for attention or markup; seconds of "
        "computing for it, and of waiting; requests that wait; connections; bytes and seconds of a document"
    )

    @classmethod
    def of(cls, translator: Translator, directions: Sequence[DirectionInfo], budgets: Limits) -> ServerInfo:
        """Describe a server whose default is this translator."""
        config = translator.config
        return cls(
            source_lang=config.data.source_lang,
            target_lang=config.data.target_lang,
            directions=list(directions),
            run=config.run.name,
            step=translator.step,
            n_best=1 if config.model.architecture == "encoder-only" else MAX_N_BEST,
            documents=list(DOCUMENTS),
            budgets=budgets,
        )


class DetectedLanguage(BaseModel):
    """The language of a text."""

    language: str
    confidence: float = Field(description="from 0 to 100")

    @staticmethod
    def request() -> dict[str, Any]:
        """The OpenAPI description of the request."""
        schema = {"type": "object", "required": ["q"], "properties": {"q": {"type": "string", "description": "a text"}}}
        types = ("application/json", "application/x-www-form-urlencoded")
        return {"requestBody": {"required": True, "content": {each: {"schema": schema} for each in types}}}


class LibreResponse(BaseModel):
    """The translations as LibreTranslate returns them; each is a list if `q` was one."""

    translatedText: str | list[str]  # noqa: N815
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None  # noqa: N815
    alternatives: list[str] | list[list[str]] | None = None


class FileResponse(BaseModel):
    """Where a translated document can be fetched."""

    translatedFileUrl: str  # noqa: N815  (as LibreTranslate's clients read it)

    @staticmethod
    def request(info: ServerInfo) -> dict[str, Any]:
        """The OpenAPI description of the request."""
        sources, targets = languages_of(info).values()
        properties: dict[str, dict[str, Any]] = {
            "file": {"type": "string", "format": "binary", "description": f"a document: {', '.join(DOCUMENTS)}"},
            "source": {"enum": [*sources, "auto"], "description": 'its language; "auto" or nothing: that of the model'},
            "target": {"enum": targets, "description": "language to translate into"},
        }
        schema = {"type": "object", "required": ["file", "target"], "properties": properties}
        return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


class ErrorResponse(BaseModel):
    """Why the request failed, for a person to read, under two names: ours and LibreTranslate's."""

    detail: str
    error: str


ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorResponse, "description": "Not JSON, or a request that lacks something"},
    403: {"model": ErrorResponse, "description": "An API key is needed"},
    404: {"model": ErrorResponse, "description": "There is no such document"},
    408: {"model": ErrorResponse, "description": "The request did not arrive in time"},
    413: {"model": ErrorResponse, "description": "Too long, or too much work"},
    422: {"model": ErrorResponse, "description": "JSON that does not match the schema, or an untranslatable text"},
    429: {"model": ErrorResponse, "description": "Too many requests in a minute"},
    503: {
        "model": ErrorResponse,
        "description": "Too many requests are waiting",
        "headers": {"Retry-After": {"description": "seconds to wait", "schema": {"type": "integer"}}},
    },
    504: {"model": ErrorResponse, "description": "Not translated in time, or computed for too long"},
}


def languages_of(info: ServerInfo) -> dict[str, list[str]]:
    """The languages that can be translated from and into."""
    sides = {side: [getattr(each, f"{side}_lang") for each in info.directions] for side in ("source", "target")}
    return {side: [language for language in dict.fromkeys(of) if language] for side, of in sides.items()}


def request_schema(info: ServerInfo) -> dict[str, Any]:
    """The OpenAPI description of a request, with the languages of this model as the only choices."""
    schema = TranslateRequest.model_json_schema()
    theirs = LibreRequest.model_json_schema()
    for side, choices in languages_of(info).items():
        schema["properties"][f"{side}_lang"]["anyOf"] = [{"enum": [*choices, None]}]
        theirs["properties"][side] |= {"enum": [*choices, "auto"] if side == "source" else choices}
    content = {"application/json": {"schema": {"anyOf": [schema, theirs]}}}
    return {"requestBody": {"required": True, "content": content}}


def response(translations: Sequence[Translation], attention: bool) -> dict[str, Any]:
    """A `TranslateResponse` as a dictionary, with what is known of each token if asked for."""

    def of_candidate(candidate: Candidate) -> dict[str, Any]:
        content = candidate.as_dict()
        if not attention:
            return content | dict.fromkeys(("log_probs", "alignment", "attention"))
        assert candidate.weights is not None
        return content | {"attention": candidate.weights.astype(np.float64).round(4).tolist()}

    return {"translations": [translation.as_dict(of_candidate) for translation in translations]}
