"""The FastAPI application: our own API, LibreTranslate's beside it, documents, and the web page.

Requests that arrive during a translation are translated together afterwards: see `batcher`.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import starlette.exceptions
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route

from dragoman.console import one_line
from dragoman.documents.document import DocumentTask
from dragoman.documents.markup import parse_markup
from dragoman.errors import ConfigError, DataError
from dragoman.server import libretranslate, limits
from dragoman.server.access import Access
from dragoman.server.api_page import api_page
from dragoman.server.batcher import Job
from dragoman.server.bodies import File, content_type, read_body, read_values
from dragoman.server.documents import Documents
from dragoman.server.limits import Limits, Refused
from dragoman.server.metrics import Metrics
from dragoman.server.models import Models
from dragoman.server.schemas import (
    ERRORS,
    DetectedLanguage,
    FileResponse,
    LibreResponse,
    ServerInfo,
    TranslateRequest,
    TranslateResponse,
    request_schema,
    response,
)
from dragoman.server.waiting import RETRY_HEADERS, wait_for
from dragoman.translation.attention_page import TEMPLATES
from dragoman.translation.results import Translation
from dragoman.translation.translator import Translator

STATIC = Path(__file__).parent / "static"
# Scripts and styles are files of their own, so that the content security policy can forbid inline ones.
PAGE_FILES = {
    "/": (STATIC / "index.html", "text/html"),
    "/words.css": (TEMPLATES / "words.css", "text/css"),
    "/style.css": (STATIC / "style.css", "text/css"),
    "/words.js": (TEMPLATES / "words.js", "text/javascript"),
    **{
        f"/{name}.js": (STATIC / f"{name}.js", "text/javascript")
        for name in ("script", "documents", "requests", "sentences", "storage")
    },
    "/icon.svg": (STATIC / "icon.svg", "image/svg+xml"),
}
THEIRS = {"source": "source_lang", "target": "target_lang", "query": "text", "alternatives": "n_best"}


class Api:
    """The operations of both APIs. FastAPI describes each by its signature and docstring."""

    def __init__(self, models: Models, access: Access, metrics: Metrics | None) -> None:
        self.models, self.access, self.metrics = models, access, metrics
        self.budgets = models.batchers[0].limits
        self.documents = Documents()
        self.info = ServerInfo.of(models.batchers[0].translator, models.directions(), self.budgets)

    async def translate(self, request: Request) -> Response:
        """Translate one text or several; with q, source and target as LibreTranslate does."""
        body = await self._body(request)
        is_json = content_type(request) == "application/json"
        if not is_json or b'"q"' in body:
            values = await read_values(request, body)
            if "q" in values or not is_json:
                self.access.admit(request, str(values.get("api_key", "")))
                read = partial(libretranslate.read_request, values, self.models)
                # Detecting the languages of many texts takes time, and a thread takes some for itself.
                asked, detected = await asyncio.to_thread(read) if values.get("source") == "auto" else read()
                translator, results = await self._run(asked, request)
                return JSONResponse(libretranslate.answer(values, detected, results, translator.usual.target))
        asked = read_request(body)
        self.access.admit(request, asked.api_key)
        _, results = await self._run(asked, request)
        # In a thread: the attention weights of a long text are megabytes of JSON, and other clients must not wait.
        return await asyncio.to_thread(lambda: JSONResponse(response(results, asked.attention)))

    async def translate_file(self, request: Request) -> FileResponse:
        """Translate a document. It can then be fetched for 20 minutes."""
        self.access.admit_early(request)
        too_long = f"too long: at most {self.budgets.max_document_bytes:,} bytes (--max-document-bytes) are allowed"
        body = await read_body(request, self.budgets.max_document_bytes, limits.UPLOAD_TIMEOUT, too_long)
        values = await self._values(request, body)
        file, source, target = (values.get(name) for name in ("file", "source", "target"))
        if not isinstance(file, File) or not target:
            missing = "target" if isinstance(file, File) else "file"
            raise HTTPException(400, f"Invalid request: missing {missing} parameter, in a form of file, source, target")
        languages = ("" if source in (None, "auto") else str(source), str(target))
        with refusals():
            batcher = self.models.choose(*languages)
            key = await self.documents.translate(file, batcher, languages, request)
        url = request.url_for("download_file", name=key).replace(scheme=self.access.scheme(request))
        return FileResponse(translatedFileUrl=str(url))

    async def download_file(self, name: str) -> Response:
        """A translated document."""
        content = self.documents.fetch(name)
        if content is None:
            raise HTTPException(404, "there is no such document, or not any more: translate it again")
        headers = {"Content-Disposition": f'attachment; filename="{name.partition(".")[2]}"'}
        return Response(content, media_type="application/octet-stream", headers=headers)

    async def detect(self, request: Request) -> list[DetectedLanguage]:
        """The language of a text, q, with a confidence of 0 to 100."""
        values = await self._values(request, await self._body(request))
        text = values.get("q")
        if not isinstance(text, str) or len(text) > limits.MAX_CHARACTERS:
            raise HTTPException(
                400, f"Invalid request: q must be a text of at most {limits.MAX_CHARACTERS:,} characters"
            )
        return [DetectedLanguage(**await asyncio.to_thread(libretranslate.detect, text, self.models))]

    async def server_info(self) -> ServerInfo:
        """Languages, runs and limits."""
        return self.info

    async def languages(self) -> list[dict[str, Any]]:
        """The languages, and into which each is translated."""
        return libretranslate.languages(self.models)

    async def frontend_settings(self) -> dict[str, Any]:
        """What LibreTranslate's clients ask before they show a page."""
        return libretranslate.settings(self.info, needs_key=bool(self.access.keys))

    async def health(self) -> dict[str, str]:
        """Whether the server answers."""
        return {"status": "ok"}

    async def _body(self, request: Request) -> bytes:
        return await read_body(request, self.budgets.max_bytes, limits.READ_TIMEOUT, too_long(self.budgets))

    async def _values(self, request: Request, body: bytes) -> dict[str, Any]:
        """The values of a request in LibreTranslate's form, if its key is valid. Raises HTTPException."""
        values = await read_values(request, body)
        self.access.admit(request, str(values.get("api_key", "")))
        return values

    async def _run(self, asked: TranslateRequest, request: Request) -> tuple[Translator, list[Translation]]:
        """Translate what was asked for, and return the translator, too. Raises HTTPException."""
        if sum(map(len, asked.texts)) > limits.MAX_CHARACTERS:
            raise HTTPException(413, too_long(self.budgets))
        with refusals():
            batcher = self.models.choose(asked.source_lang or "", asked.target_lang or "")
            translator = batcher.translator
            if self.metrics:
                self.metrics.count_characters(asked, translator)
            # In a thread, like everything else that takes time: other clients must not wait.
            tasks, job = await asyncio.to_thread(make_job, asked, translator)
            results = await wait_for(batcher.submit(job), request, self.budgets.max_wait, "--max-wait")
            if tasks:
                results = await asyncio.to_thread(finish_documents, asked, translator, tasks, results)
            return translator, results


def create_application(models: Models, access: Access | None = None, with_metrics: bool = False) -> FastAPI:
    """Build the application, with the budgets of the models."""
    access, metrics = access or Access(), Metrics(models) if with_metrics else None
    api = Api(models, access, metrics)
    # FastAPI's own documentation pages load scripts from other hosts.
    app = FastAPI(title="Dragoman", version="1", summary="A translator of your own", docs_url=None, redoc_url=None)
    body = request_schema(api.info)
    answer = TranslateResponse | LibreResponse
    app.post("/translate", response_model=answer, responses=ERRORS, openapi_extra=body)(api.translate)
    app.post("/translate_file", responses=ERRORS, openapi_extra=FileResponse.request(api.info))(api.translate_file)
    app.get("/download_file/{name}", response_class=Response, responses=ERRORS)(api.download_file)
    app.post("/detect", responses=ERRORS, openapi_extra=DetectedLanguage.request())(api.detect)
    app.get("/info")(api.server_info)
    app.get("/languages")(api.languages)
    app.get("/frontend/settings")(api.frontend_settings)
    app.get("/health")(api.health)
    app.get("/spec", include_in_schema=False)(app.openapi)
    pages = {path: Response(file.read_bytes(), media_type=kind) for path, (file, kind) in PAGE_FILES.items()}
    pages["/docs"] = Response(api_page(app.openapi()), media_type="text/html")
    for path, page in pages.items():
        app.router.routes.append(Route(path, page, methods=["GET"], include_in_schema=False))
    app.exception_handler(starlette.exceptions.HTTPException)(refused)  # of ours and of the libraries
    app.exception_handler(Exception)(internal_error)
    if metrics:
        app.get("/metrics", include_in_schema=False)(metrics.page)
        app.add_middleware(metrics.middleware([route.path for route in app.router.routes if isinstance(route, Route)]))
    if access.origins:
        allowed = {"allow_origins": access.origins, "allow_methods": ["*"], "allow_headers": ["*"]}
        app.add_middleware(CORSMiddleware, **allowed, expose_headers=["Retry-After"])
    return app


async def refused(_: Request, refusal: Exception) -> JSONResponse:
    """Say why, as our own clients expect it and as LibreTranslate's do."""
    assert isinstance(refusal, starlette.exceptions.HTTPException)
    content = {"detail": refusal.detail, "error": refusal.detail}
    return JSONResponse(content, refusal.status_code, headers=refusal.headers)


async def internal_error(_: Request, __: Exception) -> JSONResponse:
    """Hide the traceback from the client; uvicorn logs it."""
    message = "internal error: see the server's log"
    return JSONResponse({"detail": message, "error": message}, 500)


@contextmanager
def refusals() -> Iterator[None]:
    """Context manager: what a model refuses becomes an answer."""
    try:
        yield
    except Refused as refusal:
        headers = RETRY_HEADERS if refusal.status == 503 else None
        raise HTTPException(refusal.status, str(refusal), headers) from None
    except (DataError, ConfigError) as error:
        raise HTTPException(422, one_line(str(error))) from None


def make_job(asked: TranslateRequest, translator: Translator) -> tuple[list[DocumentTask], Job]:
    """Turn a request into a job for the batcher, and the documents that its texts come from, if they have markup.

    Raises ConfigError for languages that the model does not know, and DataError for faulty markup or a faulty glossary.
    """
    texts = asked.texts or [asked.text]
    to, source = asked.target_lang or "", asked.source_lang or ""
    if asked.glossary:
        own = translator.glossary.terms if translator.glossary else {}
        translator = translator.with_glossary(own | asked.glossary)
    tasks = []
    if asked.format != "text":
        tasks = [DocumentTask.begin(translator, parse_markup(text, asked.format), to, source) for text in texts]
        requests = [request for task in tasks for request in task.requests]
    else:
        requests = [translator.request(text, to, source) for text in texts]
    return tasks, Job(requests, asked.n_best, asked.beam_size, weights=asked.attention or bool(tasks))


def finish_documents(
    asked: TranslateRequest,
    translator: Translator,
    tasks: Sequence[DocumentTask],
    translations: Sequence[Translation],
) -> list[Translation]:
    """One translation for each document instead of one for each of its texts."""
    rest = iter(translations)
    documents = []
    for source, task in zip(asked.texts or [asked.text], tasks, strict=True):
        parts = list(islice(rest, len(task.requests)))
        written, warnings = task.finish(translator, parts)
        sentences = [sentence for part in parts for sentence in part.sentences]
        documents.append(Translation(source, str(written), sentences, warnings))
    return documents


def too_long(budgets: Limits) -> str:
    """Why a request is refused."""
    return (
        f"too long: at most {limits.MAX_CHARACTERS:,} characters and {budgets.max_bytes:,} bytes (--max-bytes) are "
        f"allowed, {limits.MAX_CHUNKED:,} in chunks"
    )


def read_request(body: bytes) -> TranslateRequest:
    """Check a request. Raises HTTPException."""
    try:
        return TranslateRequest.model_validate_json(body)
    except ValidationError as error:
        raise HTTPException(*validation_message(error)) from None


def validation_message(error: ValidationError) -> tuple[int, str]:
    """The status code and a message for an invalid body: the first mistake and the field it is in."""
    first, *_ = error.errors(include_url=False, include_input=False, include_context=False)
    where = ".".join(map(str, first["loc"]))[:100]
    what = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        near = THEIRS.get(where) or next(iter(difflib.get_close_matches(where, TranslateRequest.model_fields, 1)), None)
        what = f"not a field: did you mean {near}?" if near else "not a field: /docs lists them"
    return 400 if first["type"] == "json_invalid" else 422, one_line(f"{where}: {what}" if where else what)
