"""Protection for browsers: security headers, and a check of the Host header."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

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


def only_for_this_computer(app: ASGIApp) -> ASGIApp:
    """Wrap an application: refuse requests whose Host header does not name this computer.

    This stops DNS rebinding: any web page could otherwise read the translations, by making its own host name resolve to
    127.0.0.1.
    """

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        refusal = JSONResponse({"detail": "this server only answers to 127.0.0.1 and localhost"}, 421)
        answer = app if hosts and all(map(is_loopback, hosts)) else refusal
        await answer(scope, receive, send)

    return checked


def is_loopback(host: str) -> bool:
    """Whether a host, with or without a port, is a name or address of this computer for itself."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
