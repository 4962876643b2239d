"""Protection for browsers: security headers, and a check of the Host header."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
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


def only_for(app: ASGIApp, names: Collection[str] = ()) -> ASGIApp:
    """Wrap an application: refuse requests whose Host header names neither this computer nor one of these names.

    This stops DNS rebinding: any web page could otherwise read the translations, by making its own host name resolve to
    127.0.0.1.
    """

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        known = " and ".join(["127.0.0.1", "localhost", *names])
        message = f"this server only answers to {known}: a name under which others reach it is set by --public-name"
        refusal = JSONResponse({"detail": message, "error": message}, 421)
        is_known = hosts and all(is_loopback(host) or host_name(host) in names for host in hosts)
        await (app if is_known else refusal)(scope, receive, send)

    return checked


def host_name(host: str) -> str:
    """The name in a Host header, without a port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether a host, with or without a port, is a name or address of this computer for itself."""
    name = host_name(host)
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
