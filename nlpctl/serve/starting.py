"""What a service answers while it starts: 503, with the reason. It listens from the first moment.

An address that is bound but not listened on can be taken by another process, whose answers would pass for those of the
service. Connections that arrive while the service takes over wait in the same socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any

from nlpctl import console
from nlpctl.errors import Problem, UserError
from nlpctl.runtime.interrupt import sigterm_is_held
from nlpctl.serve.requests import Refused, last_response
from nlpctl.serve.settings import ServeSettings

# -- the address of a service. It is bound before the model is loaded, which takes seconds. --------

BACKLOG = 2048  # connections that the kernel lets wait


@contextlib.contextmanager
def bound_socket(settings: ServeSettings) -> Iterator[socket.socket]:
    """A socket bound to the address that does not listen yet. UserError if the address is not available."""
    host, port = settings.host, settings.port
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError):
        message = f"there is no address for {host!r}"
        raise UserError(message, "@[host]", "use a name or address of this machine, or 0.0.0.0 for all") from None
    with socket.socket(family, kind, protocol) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(address)
        except OSError as error:
            raise cannot_listen(error, settings) from None
        yield listening


def cannot_listen(error: OSError, settings: ServeSettings) -> UserError:
    """The UserError for an OSError of bind or listen."""
    message = f"cannot listen on {settings.host} port {settings.port}: {error.strerror}"
    if error.errno == errno.EADDRINUSE:
        return UserError(message, "@[port]", "stop that process, or use another port; 0 chooses a free one")
    if error.errno == errno.EACCES:
        return UserError(message, "@[port]", "ports below 1024 need administrator rights: use a higher one")
    return UserError(message, "@[host]", "use a name or address of this machine, or 0.0.0.0 for all")


def url(listening: socket.socket, tls: bool = False) -> str:
    """The URL of the service."""
    scheme = "https" if tls else "http"
    host, port = listening.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def limit_handshake(
    going_on: set[asyncio.Task[Any]], most: int, seconds: float, cut: Callable[[str], object] = lambda reason: None
) -> asyncio.Task[Any]:
    """Close a connection without an answer where `most` are going on, or if it shakes no hands within `seconds`.

    asyncio makes a protocol in a task that then does TLS's handshake, and only then tells the protocol of its
    connection. Call this where the protocol is made. Returns the task, which is in `going_on` until it ends. `cut` is
    told the reason.
    """
    task = asyncio.current_task()
    assert task is not None

    def end(reason: str) -> None:
        cut(reason)
        task.cancel()

    def ended(_: object) -> None:
        timer.cancel()
        going_on.discard(task)

    if len(going_on) >= most:
        end("too many")
        return task
    going_on.add(task)
    timer = asyncio.get_running_loop().call_later(seconds, end, "too slow")
    task.add_done_callback(ended)
    return task


# What comes of a sender that leaves, takes too long, or sends no request.
NO_REQUEST = (OSError, ValueError, EOFError, asyncio.TimeoutError, asyncio.LimitOverrunError)

HEALTH = ("/health", "/health/ready")
_MOST = 65_536  # bytes of a request's head
_SECONDS = 5.0  # for a request to arrive, and for its sender to read the answer
_LAST = 1.0  # seconds for open requests when the service takes over
_POLL = 0.1


class Starting:
    """Answers on a bound socket from its own thread, inside the context. `stage` says what is going on."""

    def __init__(self, listening: socket.socket, settings: ServeSettings, tls: ssl.SSLContext | None = None):
        self.stage = "starting"
        self._listening, self._settings, self._tls = listening, settings, tls
        self._over, self._began = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="starting", daemon=True)

    def __enter__(self) -> Starting:
        """UserError if another process listens on the address."""
        try:
            self._listening.listen(BACKLOG)
        except OSError as error:
            raise cannot_listen(error, self._settings) from None
        self._thread.start()
        self._began.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    async def _serve(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # this thread must never take the signal
        open_requests: set[asyncio.Task[None]] = set()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            open_requests.add(task)
            try:
                await self._answer(reader, writer)
            except asyncio.CancelledError:  # at the end, of a request that has not arrived; asyncio would log it
                pass
            finally:
                open_requests.discard(task)

        def accepted() -> asyncio.StreamReaderProtocol:
            limit_handshake(open_requests, self._settings.max_connections, _SECONDS)
            return asyncio.StreamReaderProtocol(asyncio.StreamReader(_MOST), answer)

        # A duplicate: closing the server must not close the socket, in which the next connections wait.
        listening = self._listening.dup()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(accepted, sock=listening, backlog=BACKLOG, ssl=self._tls)
        self._began.set()
        while not self._over.is_set():
            await asyncio.sleep(_POLL)
            # While it is held nothing is there to be cleaned up, and the import may take long. Otherwise it is pending
            # until the main thread, which has a temporary export to remove, gets a processor.
            if sigterm_is_held.is_set() and signal.SIGTERM in signal.sigpending():
                console.note_at_once("stopped while starting")
                os._exit(0)
        server.close()
        if open_requests:
            await asyncio.wait(set(open_requests), timeout=_LAST)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request with 503 and close its connection."""
        with contextlib.closing(writer), contextlib.suppress(*NO_REQUEST):
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _SECONDS)
            target = head.partition(b" ")[2].partition(b" ")[0]
            writer.write(self._response(target.partition(b"?")[0].decode("latin-1")))
            if writer.can_write_eof():  # not with TLS
                writer.write_eof()
            while await asyncio.wait_for(reader.read(_MOST), _SECONDS):  # closing with unread data would reset it
                pass

    def _response(self, path: str) -> bytes:
        problem = Problem(f"the service is starting: {self.stage}", hint="try again after 1 s")
        refused = Refused(503, problem, headers={"Retry-After": "1"})
        return last_response(refused, {"status": "starting", "reason": self.stage} if path in HEALTH else None)


class Stopped(BaseException):
    """SIGTERM while the service starts. No Exception, so that no library takes it for a failure of its own."""


@contextlib.contextmanager
def sigterm_stops() -> Iterator[None]:
    """Inside the context SIGTERM raises Stopped, in the main thread; in another one nothing changes.

    Paddle's import sets a handler of its own; `configure_paddle` restores this one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        raise Stopped

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except Exception:
        if asked:  # a library made another error of the exception, as an import does
            raise Stopped from None
        raise
    finally:
        signal.signal(signal.SIGTERM, previous)
    if asked:  # a bare except of a library took the exception
        raise Stopped
