"""HTTP with retries: open an address, or read a JSON document.

A server that fails, is slow or cannot be reached is asked RETRIES more times, after 1, 2 and 4 seconds. A refusal, such
as 404, is final.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from dragoman import console, resources
from dragoman.errors import DataError, NetworkError

RETRIES = 3  # without progress in between
TIMEOUT = 30.0  # seconds to wait for the next bytes
PASSING = (408, 425, 429)  # of the refusals of HTTP, those that may soon pass
LARGEST_DOCUMENT = 2**26  # bytes of a JSON document

FAILURES = (OSError, http.client.HTTPException)
Result = TypeVar("Result")
sleep = time.sleep  # tests replace it


def opened(url: str, headers: Mapping[str, str] | None = None) -> http.client.HTTPResponse:
    """Send a GET request. Redirects may lead to other hosts, but only by http and https.

    Raises DataError for other addresses, and one of FAILURES.
    """
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise DataError(f"{url} is no address of the web: it must begin with https:// or http://.")
    opener = urllib.request.OpenerDirector()  # `build_opener` would add file: and ftp:
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.UnknownHandler,
    ):
        opener.add_handler(handler())
    # Without "identity", a server may pack the file, and then ranges and sizes are those of the packed bytes.
    usual = {"User-Agent": f"dragoman/{resources.version()}", "Accept-Encoding": "identity"}
    request = urllib.request.Request(url, headers={**usual, **(headers or {})})  # noqa: S310
    return opener.open(request, timeout=TIMEOUT)


def with_retries(url: str, attempt: Callable[[], Result], size: Callable[[], int] = lambda: 0) -> Result:
    """Call `attempt` until it raises none of FAILURES.

    Args:
        size: how much has been downloaded; while it grows, failures are not counted

    Raises:
        NetworkError: it was refused, or failed too often
    """
    failures, reached = 0, size()
    while True:
        try:
            return attempt()
        except FAILURES as error:
            code = getattr(error, "code", 0)
            failures = 1 if size() > reached else failures + 1
            reached = max(reached, size())
            if failures > RETRIES or (400 <= code < 500 and code not in PASSING):
                raise NetworkError(f"{url} cannot be downloaded: {reason(error)}.") from error
            pause = 2 ** (failures - 1)
            console.warn(f"{url}: {reason(error)}; trying again in {pause} s")
            sleep(pause)


def reason(error: BaseException) -> str:
    """Say in a few words why a request failed."""
    match error:
        case urllib.error.HTTPError():
            return f"the server answers {error.code} {error.reason}"
        case urllib.error.URLError(reason=BaseException() as inner):
            return reason(inner)
        case urllib.error.URLError():
            return str(error.reason)
        case TimeoutError():
            return f"the server sends nothing for {TIMEOUT:g} s"
        case http.client.HTTPException():
            return f"the server breaks off ({str(error) or type(error).__name__})"
        case OSError():
            return error.strerror or str(error) or type(error).__name__
    return str(error)


def get_json(url: str) -> Any:
    """Read a JSON document. Raises DataError; it is a NetworkError if there is no answer."""

    def attempt() -> bytes:
        with opened(url) as response:
            return response.read(LARGEST_DOCUMENT)

    try:
        return json.loads(with_retries(url, attempt))
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{url} does not answer with JSON: {error}.") from error
