"""The body of a request: read within limits, and parsed as what it says it is."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from fastapi import HTTPException, Request
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect

from dragoman.server import limits

FIELDS = 20  # of a form


class File(NamedTuple):
    """An uploaded file."""

    name: str
    content: bytes


async def read_body(request: Request, most: int, timeout: float, message: str) -> bytes:
    """Read a body; one that is too long is refused unread, with this message. Raises HTTPException."""
    # Chunks may be one byte each and cost microseconds, so chunked bodies have a smaller limit and are not read on.
    in_chunks = "transfer-encoding" in request.headers
    most = min(most, limits.MAX_CHUNKED) if in_chunks else most
    too_long = HTTPException(413, message, {"Connection": "close"} if in_chunks else None)
    if int(request.headers.get("content-length", 0)) > most:
        raise too_long
    body = bytearray()
    try:
        async with asyncio.timeout(timeout):
            async for part in request.stream():
                body += part
                if len(body) > most:
                    raise too_long
    except TimeoutError:
        raise HTTPException(408, f"the request did not arrive within {timeout:.0f} seconds") from None
    except ClientDisconnect:
        raise HTTPException(400, "the client disconnected") from None
    return bytes(body)


def content_type(request: Request) -> str:
    """The type of a body, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_values(request: Request, body: bytes) -> dict[str, Any]:
    """The values of a JSON object, a form or the address: what clients of LibreTranslate send. Raises HTTPException."""
    values: dict[str, Any] = dict(request.query_params)
    try:
        match content_type(request):
            case "application/json":
                content = json.loads(body)
                values |= content if isinstance(content, dict) else {}
            case "multipart/form-data":
                values |= await _multipart(request, body)
            case _:
                form = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=FIELDS)
                values |= {name: found[-1] for name, found in form.items()}
    except (ValueError, RecursionError, MultiPartException) as error:
        raise HTTPException(400, f"Invalid request: {str(error)[:200]}") from None
    return values


async def _multipart(request: Request, body: bytes) -> dict[str, Any]:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    values: dict[str, Any] = {}
    async with Request(request.scope, receive).form(max_files=1, max_fields=FIELDS) as form:
        for name, value in form.items():
            is_file = isinstance(value, UploadFile)
            values[name] = File(value.filename or "", await value.read()) if is_file else value
    return values
