"""Documents over HTTP: a file is translated a part at a time, like a long text, and kept for a while."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import PurePath
from typing import NamedTuple

from fastapi import HTTPException, Request

from dragoman.documents.document import DocumentTask
from dragoman.documents.files import parse_file
from dragoman.server import limits
from dragoman.server.batcher import Batcher, Job
from dragoman.server.bodies import File
from dragoman.server.waiting import RETRY_HEADERS, wait_for
from dragoman.translation.request import Request as Text
from dragoman.translation.results import Translation


class Kept(NamedTuple):
    """A translated document."""

    content: bytes
    until: float  # in seconds of the monotonic clock


class Documents:
    """Translates documents, a few at a time, and keeps the results until they are too old."""

    def __init__(self) -> None:
        self._kept: dict[str, Kept] = {}
        self._under_way = 0

    async def translate(self, file: File, batcher: Batcher, languages: tuple[str, str], request: Request) -> str:
        """Translate a file. Returns a name for `fetch`, which cannot be guessed and ends with that of the translation.

        Raises HTTPException, DataError, ConfigError and what `wait_for` raises.
        """
        if self._under_way >= limits.DOCUMENTS_AT_ONCE:
            raise HTTPException(503, "other documents are being translated: try again in a minute", RETRY_HEADERS)
        self._under_way += 1
        try:
            content = await _translated(file, batcher, languages, request)
        finally:
            self._under_way -= 1
        self._forget()
        name, (source, target) = PurePath(file.name), languages
        translated = re.sub(
            r"[^\w.-]", "_", f"{name.stem.removesuffix(f'.{source}')}.{target}{name.suffix}", flags=re.ASCII
        )
        key = f"{secrets.token_urlsafe(16)}.{translated}"
        self._kept[key] = Kept(content, time.monotonic() + limits.KEEP_DOCUMENT)
        return key

    def fetch(self, key: str) -> bytes | None:
        """A translated document, or None."""
        self._forget()
        kept = self._kept.get(key)
        return kept.content if kept else None

    def _forget(self) -> None:
        """Drop what is too old, and the oldest of what is too much."""
        now = time.monotonic()
        self._kept = {key: kept for key, kept in self._kept.items() if kept.until > now}
        while sum(len(kept.content) for kept in self._kept.values()) > limits.KEPT_BYTES:
            self._kept.pop(next(iter(self._kept)))


async def _translated(file: File, batcher: Batcher, languages: tuple[str, str], request: Request) -> bytes:
    """The translation of a file; a part after another, so that other clients get their turn."""
    translator, (source, target) = batcher.translator, languages
    document = await asyncio.to_thread(parse_file, file.content, file.name, target)
    task = DocumentTask.begin(translator, document, target, source)
    translations: list[Translation] = []
    deadline = time.monotonic() + batcher.limits.max_document_wait
    for requests, weights in parts(task.requests, [bool(inline.spans) for inline in document.inlines]):
        job = batcher.submit(Job(requests, weights=weights))
        translations += await wait_for(job, request, deadline - time.monotonic(), "--max-document-wait")
    written, _ = await asyncio.to_thread(task.finish, translator, translations)
    assert isinstance(written, bytes)
    return written


def parts(requests: list[Text], spanned: list[bool]) -> Iterator[tuple[list[Text], bool]]:
    """Split the texts of a document into jobs, those with spans apart, since these need weights."""
    part: list[Text] = []
    work = 0
    for number, request in enumerate(requests):
        part.append(request)
        work += len(request.text) + 10
        is_last = number + 1 == len(requests) or spanned[number + 1] != spanned[number]
        if is_last or work > limits.DOCUMENT_PART:
            yield part, spanned[number]
            part, work = [], 0
