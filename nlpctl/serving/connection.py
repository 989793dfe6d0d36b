"""A connection of the service: uvicorn's, with limits on what it may hold.

uvicorn limits neither the number of connections nor the time in which a head must arrive: a client that sends a byte a
second would keep its place for ever, and each is an open file.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from nlpctl.errors import Problem
from nlpctl.serving.app import Service
from nlpctl.serving.refused import Refused, last_response

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

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
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
