"""HTTP connections: the listening socket, the protocol of each connection, and the uvicorn server."""

from __future__ import annotations

import asyncio
import socket

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from dragoman.errors import ConfigError
from dragoman.server import limits


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 picks a free one. Raises ConfigError if the address cannot be used."""
    try:
        family, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot listen on --host {host} --port {port}: {reason}.") from None


class HttpProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 that closes connections which send no complete request head within READ_TIMEOUT."""

    idle_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Set up a new connection and wait for its first request."""
        # asyncio does this for TCP sockets, but takes one of socket.create_server, with protocol number 0, for another
        # kind. Without it, every further response on a kept-alive connection is 40 ms late: the kernel holds back the
        # body until the client has acknowledged the head.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)
        self._restart_timer()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._restart_timer()

    def _restart_timer(self) -> None:
        if self.idle_timer:
            self.idle_timer.cancel()
        self.idle_timer = self.loop.call_later(limits.READ_TIMEOUT, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self.cycle is None or self.cycle.response_complete:  # else a request is being answered
            self.transport.close()


def make_server(app: ASGIApp) -> uvicorn.Server:
    """A uvicorn server that answers the requests it has accepted before it stops."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=HttpProtocol,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            timeout_graceful_shutdown=int(limits.TRANSLATE_TIMEOUT),
        )
    )
