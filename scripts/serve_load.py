"""Load generator for an HTTP service, in one process: keep-alive connections, at a fixed rate or in a closed loop.

Every request ends in exactly one Outcome; LOST is a request that was sent and never answered.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

BUSY_PAUSE = 0.2  # seconds that a sender waits after a 503
LOST, REFUSED = -1, -2  # in place of a status; REFUSED: no connection was made, so nothing was sent


@dataclass(frozen=True)
class Outcome:
    """What became of a request. `status`: HTTP's, LOST or REFUSED. `seconds` until the answer was there."""

    number: int
    status: int
    body: bytes
    seconds: float
    started: float


class Connection(asyncio.Protocol):
    """One connection to the service, one request at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self.reusable = False
        self._received = bytearray()
        self._answer: asyncio.Future[tuple[int, bytes] | None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self.reusable = transport, True

    def connection_lost(self, error: Exception | None) -> None:
        self.reusable = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)

    async def ask(self, request: bytes) -> tuple[int, bytes] | None:
        """(status, body), None where the connection ended without an answer."""
        self._received.clear()
        self._answer = self._loop.create_future()
        self.transport.write(request)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator or self._answer is None or self._answer.done():
            return
        lines = head.lower().split(b"\r\n")
        length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), None)
        if length is None or len(body) < length:
            return
        if b"connection: close" in lines:
            self.reusable = False
        self._answer.set_result((int(lines[0].split()[1]), bytes(body[:length])))


class Client:
    """Requests to one address, over as many connections as needed."""

    def __init__(self, host: str, port: int):
        self.host, self.port = host, port
        self._idle: list[Connection] = []

    async def send(self, number: int, request: bytes) -> Outcome:
        """One request and what became of it."""
        started = time.perf_counter()
        while self._idle and not self._idle[-1].reusable:
            self._idle.pop().transport.close()
        if self._idle:
            connection = self._idle.pop()
        else:
            try:
                _, connection = await asyncio.get_running_loop().create_connection(Connection, self.host, self.port)
            except OSError:
                return Outcome(number, REFUSED, b"", time.perf_counter() - started, started)
        answer = await connection.ask(request)
        status, body = (LOST, b"") if answer is None else answer
        if connection.reusable:
            self._idle.append(connection)
        else:
            connection.transport.close()
        return Outcome(number, status, body, time.perf_counter() - started, started)

    def close(self) -> None:
        for connection in self._idle:
            connection.transport.close()


def post(host: str, body: bytes) -> bytes:
    """A request to POST /predict."""
    head = f"POST /predict HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


async def as_answered(client: Client, requests: list[bytes], connections: int, seconds: float) -> list[Outcome]:
    """`connections` senders, each of which sends again as soon as it is answered: measures the capacity.

    After a 503 a sender waits a little, as requested.
    """
    outcomes: list[Outcome] = []
    ends = time.perf_counter() + seconds

    async def sender(number: int) -> None:
        while time.perf_counter() < ends:
            outcomes.append(await client.send(number, requests[number % len(requests)]))
            if outcomes[-1].status == 503:
                await asyncio.sleep(BUSY_PAUSE)
            number += connections

    await asyncio.gather(*(sender(number) for number in range(connections)))
    return outcomes


async def at_rate(
    client: Client, requests: list[bytes], rate: float, goes_on: Callable[[float], bool]
) -> list[Outcome]:
    """`rate` requests per second, whether the service keeps up or not, while `goes_on(seconds since the start)`."""
    under_way: set[asyncio.Task[Outcome]] = set()
    outcomes: list[Outcome] = []

    def ended(task: asyncio.Task[Outcome]) -> None:
        under_way.discard(task)
        outcomes.append(task.result())

    started = time.perf_counter()
    number = 0
    while goes_on(now := time.perf_counter() - started):
        while number < now * rate:
            task = asyncio.create_task(client.send(number, requests[number % len(requests)]))
            under_way.add(task)
            task.add_done_callback(ended)
            number += 1
        await asyncio.sleep(0.002)
    await gathered(list(under_way))
    return outcomes


SLOW_HEAD = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + b"x" * 600
OPENING = 500  # connections opened at a time


class SlowConnection(asyncio.Protocol):
    """A connection whose sender has asked for nothing yet; `closed` when the service ends it."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.received = bytearray()

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set()


async def slow_wave(host: str, port: int, connections: int, patience: float) -> dict[str, Any]:
    """Open `connections` at once and send a byte of a head per second over each, until the service closes them.

    How they ended, and after how many seconds at most; those that are open after `patience` seconds are `still_open`.
    """
    ends: Counter[str] = Counter()
    longest = 0.0
    opening = asyncio.Semaphore(OPENING)

    async def slow() -> None:
        nonlocal longest
        try:
            async with opening:
                transport, sender = await asyncio.get_running_loop().create_connection(SlowConnection, host, port)
        except OSError:
            ends["no_connection"] += 1
            return
        started = time.perf_counter()
        for sent in range(int(patience)):
            transport.write(SLOW_HEAD[sent : sent + 1])
            try:
                await asyncio.wait_for(sender.closed.wait(), 1)
            except asyncio.TimeoutError:
                continue
            break
        longest = max(longest, time.perf_counter() - started)
        status = bytes(sender.received[9:12]).decode() or "no answer"
        ends[f"closed, {status}" if sender.closed.is_set() else "still_open"] += 1
        transport.close()

    await asyncio.gather(*(slow() for _ in range(connections)))
    return {"ends": dict(ends), "longest_seconds": round(longest, 1)}


async def gathered(tasks: list[Awaitable[Outcome]], seconds: float = 60) -> list[Outcome]:
    """The outcomes of `tasks`. TimeoutError where one never ends."""
    return list(await asyncio.wait_for(asyncio.gather(*tasks), seconds))


def percentile(values: list[float], share: int) -> float:
    """The value that `share` per cent of `values` do not exceed."""
    return quantiles(values, n=100, method="inclusive")[share - 1] if len(values) > 1 else values[0]


def figures(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Counts, rates and latencies: those of answers are of requests with the status 200 alone."""
    statuses = Counter(each.status for each in outcomes)
    first = min(each.started for each in outcomes)
    seconds = max(each.started + each.seconds for each in outcomes) - first
    latencies = [each.seconds * 1000 for each in outcomes if each.status == 200] or [float("nan")]
    busy = [each.seconds * 1000 for each in outcomes if each.status == 503]
    return {
        "sent": len(outcomes),
        "sent_per_second": round(len(outcomes) / seconds, 1),
        "answered": statuses[200],
        "answered_per_second": round(statuses[200] / seconds, 1),
        "rejected_503": statuses[503],
        "other_statuses": {str(key): value for key, value in statuses.items() if key not in (200, 503, LOST, REFUSED)},
        "no_connection": statuses[REFUSED],
        "lost": statuses[LOST],
        "p50_ms": round(percentile(latencies, 50), 1),
        "p99_ms": round(percentile(latencies, 99), 1),
        "rejection_p99_ms": round(percentile(busy, 99), 1) if busy else None,
    }
