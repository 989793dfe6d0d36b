"""Connections that are made while listening ends: the kernel has accepted them, so they are answered, by 503."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket

from nlpctl.errors import Problem
from nlpctl.serving.refusal import Refused

_BODY = json.dumps(Refused(503, Problem("the service is stopping", hint="ask another one")).content()).encode()
_ANSWER = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n"
    + b"Content-Length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
)


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
        writer.write(_ANSWER)
        while await asyncio.wait_for(reader.read(65536), seconds):  # closed before it has read all, it would be reset
            pass
