"""Who may use a server, and how much: keys, a limit of requests a minute, other origins, the names it answers to."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from fastapi import HTTPException, Request

from dragoman import reading
from dragoman.errors import DataError
from dragoman.server.bodies import content_type
from dragoman.server.security import host_name

REMEMBERED = 10_000  # clients whose requests are counted; of more, the one that has been away longest is forgotten


@dataclass
class Access:
    """What the options of `dragoman serve` allow. By default everyone may do everything."""

    keys: list[bytes] = field(default_factory=list)  # their sha256; none: no key is needed
    rate: int | None = None  # requests a minute, for each key or address
    names: Sequence[str] = ()  # under which a proxy offers the server; it says whose a request is, in X-Forwarded-For
    origins: Sequence[str] = ()  # of other pages that may use the API; *: all
    _left: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def admit(self, request: Request, key: str | None = None) -> None:
        """Let a request in. Raises HTTPException: 403 without a valid key, 429 above the rate.

        A form on another page can be sent without asking the server first, unlike JSON; so its origin is checked here.

        Args:
            key: of the body; else it is in the header Authorization, after "Bearer ", or is the parameter api_key
        """
        self._check_origin(request)
        key = key or request.headers.get("authorization", "").removeprefix("Bearer ")
        key = key or request.query_params.get("api_key", "")
        if self.keys:
            self._check(key)
        self._count(_digest(key).hex() if self.keys else self.address(request))

    def _check_origin(self, request: Request) -> None:
        origin = request.headers.get("origin", "")
        place = urlsplit(origin).netloc
        is_own = place == request.headers.get("host") or host_name(place) in self.names
        is_allowed = is_own or origin in self.origins or "*" in self.origins
        if origin and not is_allowed and content_type(request) != "application/json":
            raise HTTPException(403, f"pages of {origin[:100]} may not use this server: --cors allows it")

    def _check(self, key: str) -> None:
        digest = _digest(key)
        if not sum(hmac.compare_digest(digest, known) for known in self.keys):  # all of them, in constant time
            raise HTTPException(403, "an API key is needed, and this is not one: ask who runs this server for one")

    def admit_early(self, request: Request) -> None:
        """Refuse an upload before it is read, if its key would have come before the body. Raises HTTPException."""
        if self.keys and "authorization" in request.headers:
            self._check(request.headers["authorization"].removeprefix("Bearer "))

    def address(self, request: Request) -> str:
        """The address of a client."""
        address = request.client.host if request.client else ""
        forwarded = request.headers.get("x-forwarded-for", "")
        return forwarded.rpartition(",")[2].strip() if self.names and forwarded else address

    def scheme(self, request: Request) -> str:
        """http or https, as the client sees it."""
        forwarded = request.headers.get("x-forwarded-proto")
        return "https" if self.names and forwarded == "https" else request.url.scheme

    def _count(self, client: str) -> None:
        """Take one of the client's requests, of which it gets `rate` a minute and may save up as many."""
        if self.rate is None:
            return
        now = time.monotonic()
        left, before = self._left.pop(client, (float(self.rate), now))
        left = min(self.rate, left + (now - before) * self.rate / 60)
        self._left[client] = (max(0.0, left - 1), now)
        if len(self._left) > REMEMBERED:
            self._left.popitem(last=False)
        if left < 1:
            seconds = str(1 + int((1 - left) * 60 / self.rate))
            message = f"more than {self.rate} requests a minute (--rate): try again in {seconds} seconds"
            raise HTTPException(429, message, {"Retry-After": seconds})


def read_keys(path: Path) -> list[bytes]:
    """Read the file of --api-key: a key a line, or a name, a colon and the key; # begins a comment.

    Raises DataError.
    """
    try:
        lines = reading.read(path, reading.NOTE).decode().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}.") from None
    keys = [line.rpartition(":")[2].strip() for line in lines if line.strip() and not line.startswith("#")]
    if not keys:
        raise DataError(f"{path} has no key: write one a line.")
    if weak := [number for number, key in enumerate(keys, 1) if len(key) < 8]:
        raise DataError(
            f"{path}: key {weak[0]} has fewer than 8 characters, so it can be guessed: choose a longer one."
        )
    return list(map(_digest, keys))


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
