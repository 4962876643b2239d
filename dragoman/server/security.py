"""Protection for browsers: security headers on every response, and a check of the Host header."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from fastapi.responses import JSONResponse
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",  # translations are private
}


def secure(app: ASGIApp, loopback: bool) -> ASGIApp:
    """Wrap an application: add the security headers to every response, errors included.

    With `loopback`, refuse requests whose Host header does not name this computer. This stops DNS rebinding: any web
    page could otherwise read the translations, by making its own host name resolve to 127.0.0.1.
    """

    async def secured(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(SECURITY_HEADERS)
            await send(message)

        hosts = [value.decode("latin-1") for name, value in scope.get("headers", []) if name == b"host"]
        if scope["type"] == "http" and loopback and not (hosts and all(map(is_loopback, hosts))):
            refusal = JSONResponse({"detail": "this server only answers to 127.0.0.1 and localhost"}, 421)
            await refusal(scope, receive, send_with_headers)
        else:
            await app(scope, receive, send_with_headers)

    return secured


def is_loopback(host: str) -> bool:
    """Whether a host, with or without a port, is a name or address of this computer for itself."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
