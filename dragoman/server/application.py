"""The FastAPI application: POST /translate, GET /info, and the web page.

Requests that arrive during a translation are translated together afterwards: see `batcher`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from itertools import islice
from pathlib import Path

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.requests import ClientDisconnect
from starlette.routing import Route

from dragoman.console import one_line
from dragoman.documents.document import DocumentTask
from dragoman.documents.markup import parse_markup
from dragoman.errors import ConfigError, DataError
from dragoman.server import limits
from dragoman.server.batcher import Batcher, Job
from dragoman.server.limits import Limits, Refused
from dragoman.server.schemas import (
    ERRORS,
    ServerInfo,
    TranslateRequest,
    TranslateResponse,
    request_schema,
    response,
)
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
RETRY_HEADERS = {"Retry-After": str(limits.RETRY_AFTER)}


def create_application(batcher: Batcher, info: ServerInfo) -> FastAPI:
    """Build the application, with the budgets of the batcher."""
    budgets = batcher.limits
    # FastAPI's own documentation pages load scripts from other hosts.
    app = FastAPI(title="Dragoman", version="1", summary="A translator of your own", docs_url=None, redoc_url=None)

    @app.post("/translate", response_model=TranslateResponse, responses=ERRORS, openapi_extra=request_schema(info))
    async def translate(request: Request) -> Response:
        """Translate one text or several."""
        asked = await read_request(request, budgets)
        translator = batcher.translator
        try:
            # In a thread, like everything else that takes time: other clients must not wait.
            tasks, job = await asyncio.to_thread(make_job, asked, translator)
            results = await wait_for(batcher.submit(job), request, budgets.max_wait)
            if tasks:
                results = await asyncio.to_thread(finish_documents, asked, translator, tasks, results)
        except Refused as refusal:
            headers = RETRY_HEADERS if refusal.status == 503 else None
            raise HTTPException(refusal.status, str(refusal), headers) from None
        except (DataError, ConfigError) as error:
            raise HTTPException(422, one_line(str(error))) from None
        # In a thread: the attention weights of a long text are megabytes of JSON, and other clients must not wait.
        return await asyncio.to_thread(lambda: JSONResponse(response(results, asked.attention)))

    @app.get("/info")
    async def server_info() -> ServerInfo:
        """Languages, run and limits; also a health check."""
        return info

    @app.exception_handler(Exception)
    async def internal_error(_: Request, __: Exception) -> JSONResponse:
        """Hide the traceback from the client; uvicorn logs it."""
        return JSONResponse({"detail": "internal error: see the server's log"}, 500)

    for path, (file, media_type) in PAGE_FILES.items():
        page_file = Response(file.read_bytes(), media_type=media_type)
        app.router.routes.append(Route(path, page_file, methods=["GET"], include_in_schema=False))
    return app


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


async def read_request(request: Request, budgets: Limits) -> TranslateRequest:
    """Read and check the body of a request; a body that is too long is refused unread. Raises HTTPException."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise HTTPException(415, "send JSON, with Content-Type: application/json")
    # Chunks may be one byte each and cost microseconds, so chunked bodies have a smaller limit and are not read on.
    in_chunks = "transfer-encoding" in request.headers
    most = min(budgets.max_bytes, limits.MAX_CHUNKED) if in_chunks else budgets.max_bytes
    too_long = HTTPException(
        413,
        f"too long: at most {limits.MAX_CHARACTERS:,} characters and {budgets.max_bytes:,} bytes (--max-bytes) are "
        f"allowed, {limits.MAX_CHUNKED:,} in chunks",
        {"Connection": "close"} if in_chunks else None,
    )
    if int(request.headers.get("content-length", 0)) > most:
        raise too_long
    body = bytearray()
    try:
        async with asyncio.timeout(limits.READ_TIMEOUT):
            async for part in request.stream():
                body += part
                if len(body) > most:
                    raise too_long
    except TimeoutError:
        raise HTTPException(408, f"the request did not arrive within {limits.READ_TIMEOUT:.0f} seconds") from None
    except ClientDisconnect:
        raise HTTPException(400, "the client disconnected") from None
    try:
        asked = TranslateRequest.model_validate_json(bytes(body))
    except ValidationError as error:
        raise HTTPException(*validation_message(error)) from None
    if sum(map(len, asked.texts)) > limits.MAX_CHARACTERS:
        raise too_long
    return asked


def validation_message(error: ValidationError) -> tuple[int, str]:
    """The status code and a message for an invalid body: the first mistake and the field it is in."""
    first, *_ = error.errors(include_url=False, include_input=False, include_context=False)
    where = ".".join(map(str, first["loc"]))[:100]
    what = first["msg"].removeprefix("Value error, ")
    return 400 if first["type"] == "json_invalid" else 422, one_line(f"{where}: {what}" if where else what)


async def wait_for(results: Future[list[Translation]], request: Request, timeout: float) -> list[Translation]:
    """Wait for the results of a job. On timeout, or when the client disconnects, cancel the job.

    Raises HTTPException, and whatever the job raised.
    """
    job = asyncio.wrap_future(results)
    disconnect = asyncio.ensure_future(request.receive())  # the body has been read, so the next message is the last
    try:
        await asyncio.wait({job, disconnect}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if job.cancelled():  # by the batcher
            raise HTTPException(503, "the server is shutting down", RETRY_HEADERS)
        if job.done():
            return job.result()
        if disconnect.done():
            raise HTTPException(400, "the client disconnected")
        raise HTTPException(504, f"not translated within {timeout:g} seconds (--max-wait): send less text at a time")
    finally:
        disconnect.cancel()
        job.cancel()
