"""HTTP connections: the listening socket, the protocol of each connection, and the uvicorn server."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
import struct
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from dragoman.errors import ConfigError
from dragoman.server import limits
from dragoman.server.limits import Limits
from dragoman.server.security import SECURITY_HEADERS


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 picks a free one. Raises ConfigError if the address cannot be used."""
    try:
        family, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, UnicodeError) as error:
        remedy = ""
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            with socket.create_server((host, 0), family=family) as free:
                remedy = f" --port {free.getsockname()[1]} is free."
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot listen on --host {host} --port {port}: {reason}.{remedy}") from None


class Reader(h11.Connection):
    """Reads requests, and refuses bodies in too many chunks."""

    chunks = 0

    def next_event(self) -> Any:
        """The next event. Raises RemoteProtocolError for what is no HTTP, and for too many chunks."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.chunks = 0
        elif isinstance(event, h11.Data):
            self.chunks += 1
            if self.chunks > limits.MAX_CHUNKS:
                raise h11.RemoteProtocolError("too many chunks")
        return event


class HttpProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 with budgets: for the time that a client takes to send and to read, and for connections."""

    budgets = Limits()
    idle_timer: asyncio.TimerHandle | None = None
    answer_timer: asyncio.TimerHandle | None = None
    served = False  # whether it has had an answer
    idle_since = 0.0  # by the clock of the event loop

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Set up a connection that is not made yet; the arguments are uvicorn's."""
        super().__init__(*arguments, **options)
        self.conn = Reader(h11.SERVER, self.conn._max_incomplete_event_size)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Set up a new connection and wait for its first request."""
        # asyncio does this for TCP sockets, but takes one of socket.create_server, with protocol number 0, for another
        # kind. Without it, every further response on a kept-alive connection is 40 ms late: the kernel holds back the
        # body until the client has acknowledged the head.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)
        self._restart_timer()
        if len(self.connections) > self.budgets.max_connections and not self._take_the_place_of_another():
            self._refuse(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{self.budgets.max_connections} connections are in use (--max-connections): try again in a moment",
            )

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        for timer in (self.idle_timer, self.answer_timer):
            if timer:
                timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait until the client has taken the answer, and for the next request."""
        super().on_response_complete()
        self.served = True
        self._restart_timer()
        if self.transport.get_write_buffer_size():
            self._watch_answer(self.loop.time() + self.budgets.max_wait)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, and too many chunks."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # part of an answer has been sent
            self.transport.close()
        elif self.conn.chunks > limits.MAX_CHUNKS:
            detail = f"the body comes in too many chunks: at most {limits.MAX_CHUNKS:,} are allowed"
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
        else:
            self._refuse(HTTPStatus.BAD_REQUEST, "this is not HTTP/1.1")

    def is_replaceable(self) -> bool:
        """Whether nothing is lost by closing: no request has arrived as a whole and is not answered yet."""
        waits = self.cycle is None or self.cycle.response_complete or self.cycle.more_body
        return waits and not self.transport.get_write_buffer_size()

    def _take_the_place_of_another(self) -> bool:
        """Close the connection that is least missed: first those that were never answered, of these the oldest."""
        others = [each for each in self.connections if each is not self and isinstance(each, HttpProtocol)]
        idle = [each for each in others if each.is_replaceable()]
        if idle:
            victim = min(idle, key=lambda each: (each.served, each.idle_since))
            self.connections.discard(victim)  # at once, so that the next new connection finds another one
            victim.abort()
        return bool(idle)

    def abort(self) -> None:
        """Close at once, whatever the client has not read: the kernel need not keep it either."""
        connection = self.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _refuse(self, status: HTTPStatus, detail: str) -> None:
        """Answer with an error and close, whatever has been received."""
        body = json.dumps({"detail": detail}).encode()
        fields = {
            "Content-Type": "application/json",
            "Content-Length": len(body),
            "Connection": "close",
            **({"Retry-After": limits.RETRY_AFTER} if status == HTTPStatus.SERVICE_UNAVAILABLE else {}),
            **SECURITY_HEADERS,
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self.transport.write(f"HTTP/1.1 {status.value} {status.phrase}\r\n{head}\r\n".encode() + body)
        self.transport.close()

    def _restart_timer(self) -> None:
        self.idle_since = self.loop.time()
        if self.idle_timer:
            self.idle_timer.cancel()
        self.idle_timer = self.loop.call_later(limits.READ_TIMEOUT, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self.cycle is None or self.cycle.response_complete:  # else a request is being answered
            self.transport.close()

    def _watch_answer(self, deadline: float, left: float = float("inf")) -> None:
        """Cut the client off if it has taken nothing of its answer since the last look, or not all in time.

        Closing would wait for the client to read the rest.
        """
        size = self.transport.get_write_buffer_size()
        if size and (size >= left or self.loop.time() > deadline):
            self.abort()
        elif size:
            if self.answer_timer:
                self.answer_timer.cancel()
            self.answer_timer = self.loop.call_later(limits.STALL_TIMEOUT, self._watch_answer, deadline, size)


class Server(uvicorn.Server):
    """A uvicorn server that answers the requests it has accepted before it stops, within seconds."""

    def __init__(self, config: uvicorn.Config, give_up: Callable[[], object]) -> None:
        """give_up: called when the requests under way have had their time; it must let all of them be answered."""
        super().__init__(config)
        self.give_up = give_up

    async def shutdown(self, sockets: Sequence[socket.socket] | None = None) -> None:  # type: ignore[override]
        """Answer what has been accepted, but wait for nobody who does not read."""
        loop = asyncio.get_running_loop()
        loop.call_later(limits.FINISH_TIMEOUT, self.give_up)
        loop.call_later(limits.ABORT_TIMEOUT, self.abort_connections)
        await super().shutdown(list(sockets or ()))

    def abort_connections(self) -> None:
        """Cut off all clients that are left."""
        for connection in list(self.server_state.connections):
            connection.abort()  # type: ignore[union-attr]


def make_server(app: ASGIApp, budgets: Limits, give_up: Callable[[], object]) -> Server:
    """The server of an application, see `Server`."""

    class Protocol(HttpProtocol):
        pass

    Protocol.budgets = budgets
    return Server(
        uvicorn.Config(
            app,
            http=Protocol,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            timeout_graceful_shutdown=int(limits.ABORT_TIMEOUT) + 1,
        ),
        give_up,
    )
