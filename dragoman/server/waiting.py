"""Wait for the translating thread without keeping other clients waiting."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

from fastapi import HTTPException, Request

from dragoman.server import limits
from dragoman.translation.results import Translation

RETRY_HEADERS = {"Retry-After": str(limits.RETRY_AFTER)}


async def wait_for(
    results: Future[list[Translation]], request: Request, timeout: float, option: str
) -> list[Translation]:
    """Wait for the results of a job. On timeout, or when the client disconnects, cancel the job.

    option: the one that sets the timeout, for the message

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
        raise HTTPException(504, f"not translated within {timeout:g} seconds ({option}): send less text at a time")
    finally:
        disconnect.cancel()
        job.cancel()
