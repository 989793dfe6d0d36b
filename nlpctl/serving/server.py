"""Listening and stopping: uvicorn, told to stop so that nothing it accepted is lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import resource
import socket
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

import uvicorn

from nlpctl import console
from nlpctl.errors import Problem
from nlpctl.serving.address import cannot_listen
from nlpctl.serving.app import Service
from nlpctl.serving.refused import Refused

KEEP_ALIVE = 75  # seconds; longer than most load balancers keep an idle connection (60), so that they close it
QUIET = 0.5  # seconds without a request, after which open connections are taken to be idle
FRESH = 5.0  # seconds, at the most, for the first request of a connection
LAST_CALLS = 15.0  # seconds, at the most, until open connections are idle; each has one more answer

_STOPPING = json.dumps(Refused(503, Problem("the service is stopping", hint="ask another one")).content()).encode()
_TURNED_AWAY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n"
    + b"Content-Length: %d\r\n\r\n%s" % (len(_STOPPING), _STOPPING)
)


def allow_many_connections() -> None:
    """Each connection is an open file: allow as many as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Server(uvicorn.Server):
    """uvicorn with a graceful shutdown.

    Stopping: /health says 503 and every answer ends its connection, so that clients and load balancers go
    elsewhere; after `drain` seconds, in which requests are still answered, listening ends; open connections are
    answered until they are idle; then what is under way is answered. A second signal, or the end of `stop_seconds`,
    ends it at once.
    """

    def __init__(
        self,
        app: Callable[..., Awaitable[None]],
        service: Service,
        stop_seconds: float,
        listens: Callable[[], None] = lambda: None,
    ):
        """`listens` is called once requests are welcome and signals are heeded."""
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=max(1, int(stop_seconds - service.settings.drain - LAST_CALLS)),
        )
        super().__init__(config)
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # a malformed request is no news
        self._service, self._listens = service, listens
        self._stopping: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listening: socket.socket | None = None
        self._late: list[asyncio.Task[None]] = []

    async def run_on(self, listening: socket.socket) -> None:
        """Serve until told to stop. UserError where the address was taken meanwhile."""
        self._loop, self._listening = asyncio.get_running_loop(), listening
        self._loop.set_exception_handler(self._unhandled)
        allow_many_connections()
        self._service.batcher.start()
        try:
            await self.serve([listening])
        except OSError as error:
            if self.started:
                raise
            raise cannot_listen(error, self._service.settings) from None
        finally:
            await self._service.batcher.close()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._listens()

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What goes wrong outside of a request, such as a connection that cannot be accepted: told in one line."""
        error = context.get("exception")
        console.warn(f"{context['message']} ({error})" if error is not None else context["message"])

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal came (in the main thread, between any two instructions)."""
        if self._service.stopping or self._loop is None:
            self.force_exit = self.should_exit = True
        else:
            self._service.stopping = True
            self._loop.call_soon_threadsafe(self.stop)

    def stop(self) -> None:
        """Begin to stop. Call it in the event loop."""
        self._service.stopping = True
        self._stopping = asyncio.get_running_loop().create_task(self._stop())

    async def _stop(self) -> None:
        console.note("stopping: what was accepted is answered (once more: stop at once)")
        await asyncio.sleep(self._service.settings.drain)
        self._end_listening()
        await self._last_calls()
        await asyncio.gather(*self._late)
        self.should_exit = True

    def _end_listening(self) -> None:
        """Close the socket; what waits in it, and would be reset, is turned away."""
        kept = self._listening.dup()
        for server in self.servers:
            server.close()
        self._late = [asyncio.create_task(turn_away(each, LAST_CALLS)) for each in waiting_connections(kept)]

    async def _last_calls(self) -> None:
        """Wait until no request comes any more: one that is on its way into a closed connection would be lost."""
        began = self._loop.time()
        while (waited := self._loop.time() - began) < LAST_CALLS:
            seen = self._service.arrived
            await asyncio.sleep(QUIET)
            # made just before listening ended, and nothing asked yet
            fresh = waited < FRESH and any(each.cycle is None for each in self.server_state.connections)
            if seen == self._service.arrived and not fresh:
                return


# Connections that are made while listening ends: the kernel has accepted them, so they are answered, by 503.


def waiting_connections(listening: socket.socket) -> list[socket.socket]:
    """Accept what waits in a socket that nobody else listens to any more, and close it at once.

    A connection that the kernel makes between the last accept and the close is reset, whatever we do. With a queue of
    length 0 there is at most one; the others are not made, which their clients see as a server that is gone.
    """
    found: list[socket.socket] = []
    with listening, contextlib.suppress(OSError):
        listening.listen(0)
        while True:
            found.append(listening.accept()[0])
    return found


async def turn_away(connection: socket.socket, seconds: float) -> None:
    """Answer the request of a connection, if it comes within `seconds`, and wait until its sender has the answer."""
    connection.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=connection)
    with contextlib.closing(writer), contextlib.suppress(OSError, ValueError, EOFError, asyncio.TimeoutError):
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), seconds)
        writer.write(_TURNED_AWAY)
        while await asyncio.wait_for(reader.read(65536), seconds):  # closed before it has read all, it would be reset
            pass
