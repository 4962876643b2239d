"""The listening socket, the limits of its connections, and the uvicorn server.

uvicorn has no time limit for a client that sends nothing or does not read its answer. So the listening socket keeps a
list of its connections, an ASGI middleware notes what each is doing, and a connection that meets a limit is cut off at
its socket.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import h11
import uvicorn
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dragoman.errors import ConfigError
from dragoman.server import limits
from dragoman.server.limits import Limits
from dragoman.server.security import SECURITY_HEADERS


@dataclass(eq=False)
class Connection:
    """A connection to a client."""

    socket: socket.socket
    is_busy: bool = False  # a whole request has arrived, and its answer has not been sent
    served: bool = False  # whether it has had an answer
    idle_since: float = field(default_factory=time.monotonic)

    def cut(self) -> None:
        """Close at once; with SO_LINGER 0, the kernel does not keep what the client has not read."""
        with suppress(OSError):  # the client has closed it
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.socket.shutdown(socket.SHUT_RDWR)


class Listener(socket.socket):
    """A listening socket that limits its connections, in number and in the time that their clients take."""

    def __init__(self, bound: socket.socket, max_connections: int) -> None:
        """Take over a bound socket."""
        # asyncio sets TCP_NODELAY for sockets with this protocol number only, and `socket.create_server` gives 0.
        # Without it, the second and further responses on a connection are 40 ms late.
        super().__init__(bound.family, bound.type, socket.IPPROTO_TCP, bound.detach())
        self.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.RECEIVE_BUFFER)
        self.max_connections = max_connections
        self.connections: dict[tuple[str, int], Connection] = {}  # by the client's address, as in an ASGI scope

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection. If there are too many, it takes the place of an idle one.

        Connections that were never answered go first, of these the one that has been idle longest.
        """
        accepted, address = super().accept()
        self.connections = {key: known for key, known in self.connections.items() if known.socket.fileno() >= 0}
        idle = {key: known for key, known in self.connections.items() if not known.is_busy}
        if len(self.connections) >= self.max_connections and idle:
            least = min(idle, key=lambda key: (idle[key].served, idle[key].idle_since))
            self.connections.pop(least).cut()
        self.connections[address[:2]] = Connection(accepted)
        return accepted, address

    def enforce_limits(self, app: ASGIApp) -> ASGIApp:
        """Wrap an application: refuse requests while all connections are busy, and cut off clients that do not read."""

        async def limited_app(scope: Scope, receive: Receive, send: Send) -> None:
            await asyncio.sleep(0)  # let uvicorn close connections with a malformed body
            connection = self.connections.get(tuple(scope["client"]))
            if connection is None or sum(known.is_busy for known in self.connections.values()) >= self.max_connections:
                detail = f"{self.max_connections} connections are in use (--max-connections): try again in a moment"
                headers = {"Connection": "close", "Retry-After": str(limits.RETRY_AFTER)}
                await JSONResponse({"detail": detail}, 503, headers)(scope, receive, send)
                return

            async def receive_and_note() -> Message:
                message = await receive()
                connection.is_busy = not message.get("more_body", False)
                return message

            async def send_or_cut(message: Message) -> None:
                try:
                    async with asyncio.timeout(limits.STALL_TIMEOUT):
                        await send(message)
                except TimeoutError:
                    connection.cut()

            async def send_in_chunks(message: Message) -> None:
                # uvicorn buffers whole messages, so send small ones.
                body = message.get("body", b"")
                for start in range(0, len(body), limits.CHUNK_BYTES):
                    part = body[start : start + limits.CHUNK_BYTES]
                    await send_or_cut({**message, "body": part, "more_body": True})
                await send_or_cut({**message, "body": b""} if body else message)

            try:
                await app(scope, receive_and_note, send_in_chunks)
            finally:
                connection.is_busy, connection.served, connection.idle_since = False, True, time.monotonic()

        return limited_app

    def cut_idle(self, seconds: float) -> None:
        """Cut off the clients that have been idle, or have not read the end of an answer, for this long."""
        for connection in self.connections.values():
            if not connection.is_busy and time.monotonic() - connection.idle_since > seconds:
                connection.cut()


def listen(host: str, port: int, max_connections: int = Limits.max_connections) -> Listener:
    """Open a listening socket; port 0 picks a free one. Raises ConfigError if the address cannot be used."""
    try:
        family, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return Listener(socket.create_server((host, port), family=family), max_connections)
    except (OSError, UnicodeError) as error:
        remedy = ""
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            with socket.create_server((host, 0), family=family) as free:
                remedy = f" --port {free.getsockname()[1]} is free."
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot listen on --host {host} --port {port}: {reason}.{remedy}") from None


def make_server(app: ASGIApp, listener: Listener) -> uvicorn.Server:
    """The server of an application, for `serve`."""
    return uvicorn.Server(
        uvicorn.Config(
            listener.enforce_limits(app),
            loop="asyncio",  # uvloop would not call `Listener.accept`
            http="h11",
            ws="none",
            lifespan="off",
            headers=list(SECURITY_HEADERS.items()),
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=int(limits.ABORT_TIMEOUT) + 1,
        )
    )


async def serve(server: uvicorn.Server, listener: Listener, give_up: Callable[[], object]) -> None:
    """Serve until the server is asked to stop, then answer the requests it has accepted, within seconds.

    give_up: called when the requests under way have had their time; it must let all of them be answered.
    """
    asyncio.get_running_loop().set_exception_handler(_log_failure)
    watching = asyncio.create_task(_watch(server, listener, give_up))
    await server.serve([listener])
    watching.cancel()


async def _watch(server: uvicorn.Server, listener: Listener, give_up: Callable[[], object]) -> None:
    """Cut off clients that take too long, also when the server stops."""
    while not server.should_exit:
        await asyncio.sleep(limits.WATCH_INTERVAL)
        listener.cut_idle(limits.READ_TIMEOUT)
    await asyncio.sleep(limits.FINISH_TIMEOUT)
    give_up()
    await asyncio.sleep(limits.ABORT_TIMEOUT - limits.FINISH_TIMEOUT)
    for connection in listener.connections.values():
        connection.cut()


def _log_failure(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log a failure of the event loop, except if uvicorn cannot answer a client whose request is not HTTP."""
    if not isinstance(context.get("exception"), h11.LocalProtocolError):
        loop.default_exception_handler(context)
