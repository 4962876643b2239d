"""A trained model for everyone who has a browser: a page that translates while one types, and a JSON API behind it.

    python serve.py --run runs/phrasebook                        # then open http://127.0.0.1:8000
    curl -H "Content-Type: application/json" -d '{"text": "Where is the station?"}' http://127.0.0.1:8000/translate

/openapi.json describes the API. What is asked while others are being translated is translated together (`batching`).

It is made for this computer, or for a network of people who trust each other: there is no password, and no encryption.
Ctrl-C and SIGTERM let what has been accepted be answered, then it ends.
Exit codes: 2 wrong arguments, 4 no usable checkpoint, 130 and 143 ended by Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import math
import socket
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import closing
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from dragoman import console, errors
from dragoman.console import one_line
from dragoman.device import choose_device, tune_device
from dragoman.errors import DataError
from dragoman.server import assets
from dragoman.server.batcher import Answer, Batcher, Full, Order
from dragoman.translation.loading import newest_run
from dragoman.translation.results import Candidate, Sentence
from dragoman.translation.translator import Translator

CHARACTERS = 5_000  # in a request at most
TEXTS = 32  # likewise
BODY = 900_000  # bytes: far more than such texts take, so that most of what is wrong is read, and named
MOST_BEST = MOST_BEAM = 10
READING = 10.0  # seconds that a client may take to send the head of a request, and then the rest of it
TRANSLATING = 60.0  # seconds that a request may take from then on
AGAIN = {"Retry-After": "2"}  # seconds after which a client that was sent away may come back
# Scripts and styles are files of their own, so that none within a page need be allowed.
SAFE = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",  # what people translate is theirs
}


# ------------------------------------------------------------------------------------------- what is asked and answered


def whole(value: object) -> object:
    """JSON has one kind of number, of which 7.0 is as whole as 7."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class Ask(BaseModel):
    """What to translate, and how: either `text` or `texts`."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"oneOf": [{"required": ["text"]}, {"required": ["texts"]}]}
    )
    text: Annotated[str, Field(max_length=CHARACTERS)] = Field(default_factory=str, examples=["Where is the station?"])
    texts: list[Annotated[str, Field(max_length=CHARACTERS)]] = Field(
        default_factory=list,
        min_length=1,
        max_length=TEXTS,
        description=f"several texts, of {CHARACTERS:,} characters together at most",
    )
    n_best: Annotated[int | None, BeforeValidator(whole)] = Field(
        None,
        ge=1,
        le=MOST_BEST,
        description="different translations of each sentence, so many at most; null: as the server is set",
    )
    beam_size: Annotated[int | None, BeforeValidator(whole)] = Field(
        None,
        ge=1,
        le=MOST_BEAM,
        description="translations followed at a time, at least n_best; null: as the server is set; "
        "without effect where the model writes all words at once or draws by probability",
    )
    target_lang: Annotated[str, Field(max_length=100)] | None = Field(
        None, description="of a model of several directions: the language to translate into; null: the usual one"
    )
    source_lang: Annotated[str, Field(max_length=100)] | None = Field(None, description="likewise, of the texts")
    attention: bool = Field(False, description="whether to tell how much each token looked at each source token")

    @model_validator(mode="after")
    def _one_of_both(self) -> Ask:
        if len(self.model_fields_set & {"text", "texts"}) != 1:
            raise ValueError("give text or texts, and not both")
        return self

    def order(self, translator: Translator) -> Order:
        """The same for a batcher. Raises ConfigError for languages that the translator does not know."""
        texts = self.texts or [self.text]
        if self.target_lang or self.source_lang:
            texts = [translator.request(text, self.target_lang or "", self.source_lang or "") for text in texts]
        return Order(texts, self.n_best, self.beam_size)


class CandidateTold(BaseModel):
    """One translation of a sentence."""

    translation: str
    score: float | None = Field(description="log-probability by length; null: the rules of the search left nothing")
    complete: bool = Field(description="false: cut off by a limit of length")
    tokens: list[str] = Field(description='of a copied word the word itself; the last one is "[EOS]" if complete')
    log_probs: list[float] = Field(description="of each token, in nats")
    copied: dict[int, int] = Field(description="position of a token that was copied: that of its source token")
    alignment: list[int] = Field(description="for each token but [EOS], the source token that it is made from")
    attention: list[list[float]] | None = Field(
        description="for each token but [EOS], how much it looked at each source token but [EOS]; mean of all heads"
    )


class SentenceTold(BaseModel):
    """A piece of a text that was translated as a whole."""

    source: str
    tokens: list[str] = Field(description='the last one is "[EOS]"')
    unknown: list[int] = Field(description="positions of the tokens that the vocabulary does not know")
    candidates: list[CandidateTold] = Field(description="best first")


class TextTold(BaseModel):
    """A text and its translation."""

    source: str
    translation: str
    warnings: list[str] = Field(description="what a reader of the translation alone could not see")
    sentences: list[SentenceTold]


class Told(BaseModel):
    """The translations, in the order of the texts."""

    translations: list[TextTold]


class DirectionTold(BaseModel):
    """From which language into which."""

    source_lang: str
    target_lang: str


class Info(BaseModel):
    """What answers here."""

    status: Literal["ok"] = "ok"
    source_lang: str | None = Field(description="null: a language model, which goes on with a text")
    target_lang: str
    directions: list[DirectionTold] = Field(description="all, if there are several; the languages above: the usual one")
    run: str
    step: int
    characters: int = Field(default=CHARACTERS, description="of a request at most")
    n_best: int = Field(description="the most different translations of a sentence that can be had")


class Refusal(BaseModel):
    """Why there is no answer, for a person to read."""

    detail: str


def told(answers: Sequence[Answer], attention: bool) -> Told:
    """The answers in the words of the API."""
    return Told(
        translations=[
            TextTold(
                source=answer.translation.source,
                translation=answer.translation.text,
                warnings=answer.warnings,
                sentences=[
                    _sentence(sentence, weights, attention)
                    for sentence, weights in zip(answer.translation.sentences, answer.weights, strict=True)
                ],
            )
            for answer in answers
        ]
    )


def _sentence(sentence: Sentence, weights: Sequence[Any], attention: bool) -> SentenceTold:
    return SentenceTold(
        source=sentence.source,
        tokens=sentence.tokens,
        unknown=sentence.unknown,
        candidates=[_candidate(*each, attention) for each in zip(sentence.candidates, weights, strict=True)],
    )


def _candidate(candidate: Candidate, weights: Any, attention: bool) -> CandidateTold:
    return CandidateTold(
        translation=candidate.text,
        score=round(candidate.score, 4) if math.isfinite(candidate.score) else None,
        complete=candidate.complete,
        tokens=candidate.tokens,
        log_probs=[round(each, 4) for each in candidate.log_probs],
        copied=candidate.copied,
        alignment=candidate.made_from(weights),
        attention=[[round(each, 4) for each in row] for row in weights.tolist()] if attention else None,
    )


# ---------------------------------------------------------------------------------------------------------- the program


async def read(request: Request) -> Ask:
    """What a request asks for. Raises HTTPException; what is too long is refused before it is read."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, "send JSON, with Content-Type: application/json")
    too_long = HTTPException(413, f"too long: {CHARACTERS:,} characters and {BODY:,} bytes are the most")
    if int(request.headers.get("content-length", 0)) > BODY:
        raise too_long
    body = bytearray()
    try:
        async with asyncio.timeout(READING):
            async for part in request.stream():
                body += part
                if len(body) > BODY:
                    raise too_long
    except TimeoutError:
        raise HTTPException(408, f"the request had not arrived after {READING:.0f} seconds") from None
    except ClientDisconnect:
        raise HTTPException(400, "the client left") from None
    try:
        ask = Ask.model_validate_json(bytes(body))
    except ValidationError as error:
        raise HTTPException(*mistake(error)) from None
    if sum(map(len, ask.texts)) > CHARACTERS:
        raise too_long
    return ask


def mistake(error: ValidationError) -> tuple[int, str]:
    """The status and the words for what is wrong with a body: the first mistake that was found, and where it is."""
    first, *_ = error.errors(include_url=False, include_input=False, include_context=False)
    where = ".".join(map(str, first["loc"]))[:100]
    what = first["msg"].removeprefix("Value error, ")
    return 400 if first["type"] == "json_invalid" else 422, one_line(f"{where}: {what}" if where else what)


async def awaited(answers: Future[list[Answer]], request: Request, seconds: float) -> list[Answer]:
    """The answers, unless that takes too long or the client goes away: then nobody will work for it any more.

    Raises HTTPException, and what the batcher found wrong.
    """
    here = asyncio.wrap_future(answers)
    gone = asyncio.ensure_future(request.receive())  # after the body, that is the end of the connection
    try:
        await asyncio.wait({here, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if here.cancelled():  # by the batcher
            raise HTTPException(503, "the server is about to end", AGAIN)
        if here.done():
            return here.result()
        if gone.done():
            raise HTTPException(400, "the client left")
        raise HTTPException(504, f"not translated after {seconds:.0f} seconds: send less at a time")
    finally:
        gone.cancel()
        here.cancel()


REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": Refusal, "description": "Not JSON"},
    408: {"model": Refusal, "description": "The request did not arrive in time"},
    413: {"model": Refusal, "description": "Too long"},
    415: {"model": Refusal, "description": "Another type than application/json"},
    422: {"model": Refusal, "description": "JSON, but not what is described here; or a text that cannot be translated"},
    503: {
        "model": Refusal,
        "description": "Too many requests wait",
        "headers": {"Retry-After": {"description": "seconds to wait", "schema": {"type": "integer"}}},
    },
    504: {"model": Refusal, "description": "Not translated in time"},
}


def asked(info: Info) -> dict[str, Any]:
    """What OpenAPI is told of a request, with the languages that this model has."""
    schema = Ask.model_json_schema()
    directions = [info, *info.directions]
    for side in ("source_lang", "target_lang"):
        known = {language: None for each in directions if (language := getattr(each, side))}
        schema["properties"][side]["anyOf"] = [{"enum": [*known, None]}]
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def application(batcher: Batcher, info: Info, seconds: float = TRANSLATING) -> FastAPI:
    """The API and the page, over a batcher."""
    # FastAPI's own pages of documentation would load their scripts from elsewhere.
    app = FastAPI(title="Dragoman", version="1", summary="A translator of your own", docs_url=None, redoc_url=None)

    @app.post("/translate", response_model=Told, responses=REFUSALS, openapi_extra=asked(info))
    async def translate(request: Request) -> Response:
        """Translate a text, or several."""
        ask = await read(request)
        try:
            answers = await awaited(batcher.submit(ask.order(batcher.translator)), request, seconds)
        except Full:
            raise HTTPException(503, "too many are waiting: come back in a moment", AGAIN) from None
        except (DataError, errors.ConfigError) as error:
            raise HTTPException(422, one_line(str(error))) from None
        # In a thread, for attention makes of a long text megabytes, and others are to be answered meanwhile.
        text = await asyncio.to_thread(lambda: told(answers, ask.attention).model_dump_json())
        return Response(text, media_type="application/json")

    @app.get("/info")
    async def about() -> Info:
        """Languages, run and limits; also a sign of life."""
        return info

    @app.exception_handler(Exception)
    async def fault(_: Request, __: Exception) -> JSONResponse:
        """Of a fault of the program the server's log tells more, and the client nothing."""
        return JSONResponse({"detail": "the server has a fault, and its log tells which"}, 500)

    def file(path: str, kind: str, text: str) -> None:
        async def give() -> Response:
            return Response(text, media_type=kind)

        app.get(path, include_in_schema=False)(give)

    file("/", "text/html", assets.PAGE)
    file("/page.css", "text/css", assets.STYLE)
    file("/page.js", "text/javascript", assets.SCRIPT)
    file("/icon.svg", "image/svg+xml", assets.ICON)
    return app


def guarded(app: ASGIApp, loopback: bool) -> ASGIApp:
    """The application with headers that keep a browser safe on every answer.

    loopback: it refuses every host but this computer. Otherwise any page could read what is translated here, once its
    own name leads to 127.0.0.1, which is called DNS rebinding.
    """

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(SAFE)
            await send(message)

        hosts = [value.decode("latin-1") for name, value in scope.get("headers", []) if name == b"host"]
        if scope["type"] == "http" and loopback and not (hosts and all(map(is_loopback, hosts))):
            refused = JSONResponse({"detail": "this server answers to 127.0.0.1 and localhost alone"}, 421)
            await refused(scope, receive, send_safely)
        else:
            await app(scope, receive, send_safely)

    return guard


def is_loopback(host: str) -> bool:
    """Whether a host, with or without a port, is this computer as it calls itself."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """A socket at that address. Raises ConfigError if there can be none."""
    try:
        family, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise errors.ConfigError(f"--host {host} --port {port}: cannot listen there: {why}.") from None


def main(options: argparse.Namespace) -> None:
    """Serve what the command line names."""
    with listen(options.host, options.port) as listening:
        tune_device(choose_device(options.device))
        translator = Translator(options.checkpoint or options.run or newest_run(), options.device, options.overrides)
        translator.translate(["."])  # makes ready what all searches share, or fails before anyone is told to come
        info = introduce(translator)
        host, port = listening.getsockname()[:2]
        host = f"[{host}]" if ":" in host else host
        if not is_loopback(host):
            console.warn("warning: whoever reaches this computer over the network can use this: there is no password")
        languages = " to ".join(filter(None, (info.source_lang, info.target_lang)))
        languages = ", ".join(f"{each.source_lang} to {each.target_lang}" for each in info.directions) or languages
        console.warn(f"http://{host}:{port} translates {languages} (run {info.run}, step {info.step}); Ctrl-C ends")
        with closing(Batcher(translator)) as batcher:
            server(guarded(application(batcher, info), is_loopback(host))).run(sockets=[listening])


def introduce(translator: Translator) -> Info:
    """What the server says of itself."""
    settings = translator.config
    return Info(
        source_lang=settings.data.source_lang,
        target_lang=settings.data.target_lang,
        directions=[DirectionTold(source_lang=a, target_lang=b) for a, b in settings.data.several],
        run=settings.run.name,
        step=translator.step,
        n_best=1 if settings.model.architecture == "encoder-only" else MOST_BEST,
    )


class Patient(H11Protocol):
    """HTTP as uvicorn speaks it, but whoever has not sent the head of a request within READING is cut off."""

    waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def on_response_complete(self) -> None:
        """Wait for the next one."""
        super().on_response_complete()
        self._wait()

    def _wait(self) -> None:
        if self.waiting:
            self.waiting.cancel()
        self.waiting = self.loop.call_later(READING, self._give_up)

    def _give_up(self) -> None:
        if self.cycle is None or self.cycle.response_complete:  # else it is the answer that takes its time
            self.transport.close()


def server(app: ASGIApp) -> uvicorn.Server:
    """What speaks HTTP for an application. Asked to end, it answers what it has taken in."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=Patient,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            timeout_graceful_shutdown=int(TRANSLATING),
        )
    )
