"""Messages between the nodes of a run: lines of JSON over TCP, each with bytes behind it if it says so.

Every node is connected with node 0. Both sides send a sign of life every BEAT_SECONDS; a side that hears nothing for
LOST_SECONDS counts the other as lost. A message is only data: nothing that a node sends is run.
"""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

BEAT_SECONDS = 2.0
LOST_SECONDS = 20.0
ALIVE_SECONDS = 8.0  # in which a node that runs gives several signs of life
_TICK = 0.05
CHUNK = 1 << 20  # bytes of a file per message
_LONGEST_LINE = 8 << 20
_LARGEST = 16 << 20

BEAT, LOST = "beat", "lost"


@dataclass(frozen=True)
class Message:
    """One message; `sender` is the number of the node that it came from."""

    kind: str
    values: Mapping[str, Any] = field(default_factory=dict)
    payload: bytes = b""
    sender: int = -1


class BadMessage(Exception):
    """What arrived is not of nlpctl."""


class Link:
    """A connection with one other node. Messages that arrive go to `inbox`, and last of all one of the kind LOST."""

    def __init__(self, connection: socket.socket, rank: int, host: str, inbox: queue.Queue[Message]):
        """`rank` and `host`: of the other node."""
        self.rank, self.host = rank, host
        self._socket, self._inbox = connection, inbox
        self._sending = threading.Lock()
        self._closed = threading.Event()
        self.dropped = False
        self.heard = time.monotonic()  # when the last sign of life came
        connection.settimeout(LOST_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self) -> None:
        """Listen, and give signs of life, from now on."""
        for work in (self._listen, self._beat):
            threading.Thread(target=work, daemon=True, name=f"node {self.rank}").start()

    @property
    def addresses(self) -> tuple[str, str]:
        """The addresses of this end and of the other."""
        return self._socket.getsockname()[0], self._socket.getpeername()[0]

    def send(self, kind: str, payload: bytes = b"", **values: Any) -> bool:
        """Whether it could be sent. Where not, nothing is sent any more, and LOST arrives sooner or later."""
        with self._sending:
            try:
                write_message(self._socket, Message(kind, values, payload))
            except OSError:  # perhaps in the middle of it: nothing may be written behind
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_WR)  # what the other node said before is still read
                return False
        return True

    def goes_on(self) -> bool:
        """Whether a sign of life comes within ALIVE_SECONDS; that of a node that runs comes every BEAT_SECONDS."""
        asked = time.monotonic()
        while time.monotonic() < asked + ALIVE_SECONDS:
            if self._closed.wait(_TICK):
                return False
            if self.heard > asked:
                return True
        return False

    def drop(self) -> None:
        """End the connection, as if the other node had; LOST is in the inbox then."""
        self.dropped = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._closed.wait()

    def close(self) -> None:
        """End the connection; what was sent still arrives."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def _listen(self) -> None:
        reason = "its connection ended"
        try:
            with self._socket.makefile("rb") as stream:
                while (message := read_message(stream)) is not None:
                    self.heard = time.monotonic()
                    if message.kind != BEAT:
                        self._inbox.put(Message(message.kind, message.values, message.payload, self.rank))
        except TimeoutError:
            reason = f"no sign of life for {LOST_SECONDS:g} s"
        except (OSError, BadMessage) as error:
            reason = f"its connection broke: {error}"
        self._inbox.put(Message(LOST, {"reason": reason}, sender=self.rank))
        self._closed.set()
        self._socket.close()

    def _beat(self) -> None:
        while not self._closed.wait(BEAT_SECONDS):
            self.send(BEAT)


def write_message(connection: socket.socket, message: Message) -> None:
    """Send one message whole. OSError."""
    head = {"kind": message.kind, "size": len(message.payload), "values": message.values}
    connection.sendall(json.dumps(head, ensure_ascii=False, default=str).encode() + b"\n" + message.payload)


def read_message(stream: BinaryIO) -> Message | None:
    """The next message; None at the end. OSError, BadMessage."""
    line = stream.readline(_LONGEST_LINE)
    if not line:
        return None
    try:
        head = json.loads(line)
        kind, size, values = head["kind"], head["size"], head["values"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise BadMessage("it does not speak as nlpctl does") from None
    if not (isinstance(kind, str) and isinstance(values, dict) and type(size) is int and 0 <= size <= _LARGEST):
        raise BadMessage("it does not speak as nlpctl does")
    payload = stream.read(size)
    if len(payload) < size:
        raise BadMessage("it ended in the middle of a message")
    return Message(kind, values, payload)
