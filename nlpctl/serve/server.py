"""Running uvicorn with a graceful shutdown, in which no accepted request is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from nlpctl import console
from nlpctl.errors import Problem
from nlpctl.names import counted
from nlpctl.serve.requests import Refused, last_response, stopping
from nlpctl.serve.service import Service
from nlpctl.serve.settings import LAST_BATCH, LAST_CALLS
from nlpctl.serve.starting import BACKLOG, NO_REQUEST, cannot_listen, limit_handshake

# --------------------------------------------------------------------------------------------------
# A connection of the service: uvicorn's, with limits on what it may hold.
#
# uvicorn limits neither the number of connections nor the time in which a head must arrive: a client that sends a
# byte a second would keep its place for ever, and each is an open file. With TLS a connection begins with a handshake,
# in which it counts already.

_LINGER = 1.0  # seconds in which the sender can take the last answer
_HEAD, _IDLE, _REST = "head", "idle", "rest"  # what is waited for: a request's head, any request, a refused body's rest


class Connection(H11Protocol):
    """uvicorn's connection, refused beyond `max_connections` and closed when its sender takes too long.

    The time of a body that is being read is limited by the application, and an idle connection by uvicorn.
    """

    def __init__(self, service: Service, **uvicorn: Any):
        super().__init__(**uvicorn)
        self._service = service
        self._refused = False
        self._awaited: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._handshake: asyncio.Task[Any] | None = None
        if self.config.ssl is not None:
            most = service.settings.max_connections - len(self.connections)
            seconds, cut = service.settings.head_seconds, partial(service.cut.add, 1)
            self._handshake = limit_handshake(service.handshakes, most, seconds, cut)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if self._handshake is not None:
            self._service.handshakes.discard(self._handshake)
        limit = self._service.settings.max_connections
        if len(self.connections) < limit:
            super().connection_made(transport)
            self._watch()
            return
        self._refused, self.transport = True, transport
        self._service.cut.add(1, "too many")
        problem = Problem(f"the service has {limit} connections, its limit", hint="try again after 1 s")
        self._end(last_response(Refused(503, problem, headers={"Retry-After": "1"})))

    def data_received(self, data: bytes) -> None:
        if not self._refused:
            super().data_received(data)
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Start the time of what is waited for, where that has changed: further bytes of a head give no more time."""
        awaited = None if self.transport.is_closing() else self._waits_for()
        if awaited == self._awaited:
            return
        self._cancel()
        self._awaited = awaited
        if awaited is not None:
            seconds = self.timeout_keep_alive if awaited == _IDLE else self._service.settings.head_seconds
            self._timer = self.loop.call_later(seconds, self._too_slow)

    def _waits_for(self) -> str | None:
        if self.conn.their_state is h11.IDLE:
            return _HEAD if self.cycle is None or self.conn.trailing_data[0] else _IDLE
        answered = self.cycle is not None and self.cycle.response_complete
        return _REST if answered and self.conn.their_state is h11.SEND_BODY else None

    def _too_slow(self) -> None:
        if self.transport.is_closing():
            return
        answer = b""
        if self._awaited != _IDLE:
            self._service.cut.add(1, "too slow")
        if self._awaited == _HEAD and self.conn.trailing_data[0]:
            message = f"the head of the request did not arrive within {self._service.settings.head_seconds:g} s"
            answer = last_response(Refused(408, Problem(message, hint="send it again")))
        self._refused = True  # what still comes is read and dropped
        self._end(answer)

    def _end(self, answer: bytes) -> None:
        """Send `answer` and close. With bytes of the sender unread that would reset the connection: wait a little."""
        if not answer:
            self.transport.abort()
            return
        self.transport.write(answer)
        with contextlib.suppress(OSError):  # the sender has gone already
            if self.transport.can_write_eof():
                self.transport.write_eof()
        self.loop.call_later(_LINGER, self.transport.abort)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._awaited = None


KEEP_ALIVE = 75  # seconds; longer than most load balancers keep an idle connection (60), so that they close it
QUIET = 0.5  # seconds without a request after which open connections count as idle
FRESH = 5.0  # most seconds to wait for the first request of a connection

_TURNED_AWAY = last_response(stopping())


def allow_many_connections() -> None:
    """Each connection is an open file, so raise the limit as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Server(uvicorn.Server):
    """uvicorn with a graceful shutdown.

    1. /health returns 503 and every answer closes its connection, so that clients and load balancers go elsewhere.
    2. After `drain` seconds, in which requests are still answered, listening ends.
    3. Open connections are answered until they are idle, then running requests are finished.

    A second signal, or the end of `ServeSettings.longest_stop`, stops at once.
    """

    def __init__(
        self,
        app: Callable[..., Awaitable[None]],
        service: Service,
        listens: Callable[[], None] = lambda: None,
        tls: ssl.SSLContext | None = None,
        stops: Callable[[], None] = lambda: None,
        shared: bool = False,
    ):
        """`listens` is called once requests and signals are handled, `stops` when the service begins to stop. `tls`:
        HTTPS only. `shared`: other processes accept connections from the same socket.
        """
        config = uvicorn.Config(
            app,
            http=partial(Connection, service),  # type: ignore[arg-type]
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE,
            # asyncio accepts up to `backlog` connections at once, and would leave none to the other processes.
            backlog=1 if shared else BACKLOG,
        )
        config.load()
        config.ssl = tls  # made and checked before the address was bound
        super().__init__(config)
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # do not log malformed requests
        self.service, self._listens, self._stops = service, listens, stops
        self._stopping: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listening: socket.socket | None = None
        self._tls = tls
        self.engine_ended = True  # False after `run_on`: as of `Batcher.close`
        self._late: list[asyncio.Task[None]] = []

    async def run_on(self, listening: socket.socket) -> None:
        """Serve until a signal to stop. UserError if the address was taken in the meantime."""
        self._loop, self._listening = asyncio.get_running_loop(), listening
        self._loop.set_exception_handler(self._unhandled)
        allow_many_connections()
        self.service.batcher.start()
        try:
            await self.serve([listening])
        except OSError as error:
            if self.started:
                raise
            raise cannot_listen(error, self.service.settings) from None
        finally:
            # Meanwhile the cancelled requests are answered.
            self.engine_ended = await self.service.batcher.close(0 if self.force_exit else LAST_BATCH)
            if self.service.unfinished and not self.force_exit:
                count = counted(self.service.unfinished, "requests")
                console.warn(f"{count} not finished in time after the signal to stop, and answered with 503")

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        assert self._listening is not None
        self._listening.listen(BACKLOG)  # how many the kernel lets wait, which asyncio has set to `backlog`
        self._listens()

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Report errors outside of requests, such as a connection that cannot be accepted, in one line."""
        error = context.get("exception")
        console.warn(f"{context['message']} ({error})" if error is not None else context["message"])

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The signal handler (runs in the main thread, between any two instructions)."""
        if self.service.stopping or self._loop is None:
            self.force_exit = self.should_exit = True
        else:
            self.service.stopping = True
            self._loop.call_soon_threadsafe(self.stop)

    def stop(self) -> None:
        """Start to stop. Call it in the event loop."""
        self.service.stopping = True
        self._stopping = asyncio.get_running_loop().create_task(self._stop())

    async def _stop(self) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + self.service.settings.longest_stop
        try:
            self._stops()
            await asyncio.sleep(self.service.settings.drain)
            self._end_listening()
            await self._last_calls()
            if self._late:
                await asyncio.wait(self._late)  # not gather, which one failure would end for all
        finally:  # whatever failed, the service must end
            # uvicorn reads it next, and cancels the requests that are still running then: they get 503.
            left = max(end - LAST_BATCH - loop.time(), 1.0)
            self.config.timeout_graceful_shutdown = left  # type: ignore[assignment]
            self.should_exit = True

    def _end_listening(self) -> None:
        """Close the listening socket; connections that wait in it are refused with 503 instead of reset."""
        assert self._listening is not None
        # A duplicate keeps the socket, and the connections in it, when uvicorn closes its own.
        kept = self._listening.dup()
        for server in self.servers:
            server.close()
        self._late = [asyncio.create_task(turn_away(each, LAST_CALLS, self._tls)) for each in waiting_connections(kept)]

    async def _last_calls(self) -> None:
        """Wait until no more requests arrive: a request sent into a closed connection would be lost."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while (waited := loop.time() - began) < LAST_CALLS:
            seen = self.service.arrived
            await asyncio.sleep(QUIET)
            # accepted just before listening ended, with no request yet
            connections = [each for each in self.server_state.connections if isinstance(each, Connection)]
            fresh = waited < FRESH and any(each.cycle is None for each in connections)
            if seen == self.service.arrived and not fresh:
                return


# --------------------------------------------------------------------------------------------------
# Connections made while listening ends: the kernel has accepted them, so they get an answer, 503.


def waiting_connections(listening: socket.socket) -> list[socket.socket]:
    """Accept the connections that wait in a socket without other listeners, and close it at once.

    A connection that the kernel accepts between the last accept and the close is always reset. With a backlog of 0
    there is at most one; further connections are refused, as by a stopped server.
    """
    connections: list[socket.socket] = []
    with listening, contextlib.suppress(OSError):
        listening.listen(0)
        while True:
            connections.append(listening.accept()[0])
    return connections


async def turn_away(connection: socket.socket, seconds: float, tls: ssl.SSLContext | None = None) -> None:
    """Answer the request of a connection, and wait until the sender has the answer; all within `seconds`."""
    with contextlib.suppress(*NO_REQUEST):
        await asyncio.wait_for(_turn_away(connection, tls), seconds)


async def _turn_away(connection: socket.socket, tls: ssl.SSLContext | None) -> None:
    connection.setblocking(False)
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    transport, protocol = await loop.connect_accepted_socket(
        lambda: asyncio.StreamReaderProtocol(reader), connection, ssl=tls
    )
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    with contextlib.closing(writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(_TURNED_AWAY)
        while await reader.read(65536):  # closing with unread data would reset it
            pass
