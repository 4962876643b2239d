"""Figures for Prometheus, at /metrics if --metrics is given."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

from fastapi import Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dragoman.server.models import Models
from dragoman.server.schemas import TranslateRequest
from dragoman.translation.translator import Translator


class Metrics:
    """Counts requests by path and answer, their seconds, and the characters of each direction."""

    def __init__(self, models: Models) -> None:
        self.registry = CollectorRegistry()
        by_path = ["path", "status"]
        self.requests = Counter("dragoman_requests", "Requests", by_path, registry=self.registry)
        self.seconds = Histogram("dragoman_request_seconds", "Seconds of an answer", ["path"], registry=self.registry)
        self.characters = Counter(
            "dragoman_characters", "Characters to translate", ["source", "target"], registry=self.registry
        )
        waiting = Gauge("dragoman_waiting_requests", "Requests that wait for a model", registry=self.registry)
        waiting.set_function(lambda: sum(batcher.waiting for batcher in models.batchers))

    def count_characters(self, asked: TranslateRequest, translator: Translator) -> None:
        """Count the characters of a request."""
        languages = (asked.source_lang or translator.usual.source, asked.target_lang or translator.usual.target)
        self.characters.labels(*languages).inc(sum(map(len, asked.texts or [asked.text])))

    async def page(self) -> Response:
        """What Prometheus reads."""
        return Response(generate_latest(self.registry), media_type="text/plain")

    def middleware(self, paths: Collection[str]) -> Any:
        """ASGI middleware that counts; other paths than these are "other", so that nobody can make up new ones."""

        def counting(app: ASGIApp) -> ASGIApp:
            async def counted(scope: Scope, receive: Receive, send: Send) -> None:
                path = scope["path"] if scope["path"] in paths else "other"
                started, status = time.perf_counter(), 500

                async def note_status(message: Message) -> None:
                    nonlocal status
                    status = message.get("status", status)
                    await send(message)

                try:
                    await app(scope, receive, note_status)
                finally:
                    self.requests.labels(path, status).inc()
                    self.seconds.labels(path).observe(time.perf_counter() - started)

            return counted

        return counting
