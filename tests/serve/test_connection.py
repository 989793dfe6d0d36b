"""Clients that take their time, and too many of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable

import pytest

from nlpctl.serve import server as connection


async def trickle(writer: asyncio.StreamWriter, seconds: float) -> None:
    """A byte each 50 ms, until the connection is closed."""
    with contextlib.suppress(OSError):
        for _ in range(int(seconds / 0.05)):
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)


async def until(condition: Callable[[], object]) -> None:
    async def poll() -> None:
        while not condition():
            await asyncio.sleep(0.001)

    await asyncio.wait_for(poll(), 60)


def test_a_head_that_comes_byte_by_byte(running):
    async def story():
        async with running(head_seconds=0.5) as up:
            began = asyncio.get_running_loop().time()
            reader, writer = await up.connect()
            writer.write(b"GET /health HTTP/1.1\r\nX: ")
            sending = asyncio.create_task(trickle(writer, 100))
            answer = await up.read(reader)
            assert await asyncio.wait_for(reader.read(), 60) == b""
            took = asyncio.get_running_loop().time() - began
            await sending
            return answer, took, (await up.get("/metrics")).body.decode()

    answer, took, metrics = asyncio.run(story())
    assert answer.status == 408 and answer.headers["connection"] == "close" and took < 60
    assert "did not arrive within 0.5 s" in answer.json["errors"][0]["message"]
    assert 'nlpctl_connections_cut_total{reason="too slow"} 1' in metrics


def test_a_second_head_and_a_connection_that_asks_nothing(running):
    """The time of a head begins anew with each request; an open connection between requests stays open."""

    async def story():
        async with running(head_seconds=1.0) as up:
            silent, _ = await up.connect()
            reader, writer = await up.connect()
            for _ in range(2):
                writer.write(up.request(b'{"text": "a"}'))
                assert (await up.read(reader)).status == 200
                await asyncio.sleep(1.2)
            writer.write(b"GET /heal")
            late = await up.read(reader)
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(silent.read(), 60) == b""
            return late

    assert asyncio.run(story()).status == 408


def test_the_rest_of_a_refused_body(running):
    """It is read and dropped, but not for ever."""

    async def story():
        async with running(head_seconds=0.4) as up:
            reader, writer = await up.connect()
            writer.write(up.request(b"", "Content-Type: application/json").replace(b": 0\r\n", b": 900000\r\n"))
            answer = await up.read(reader)
            sending = asyncio.create_task(trickle(writer, 100))
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), 60) == b""
            await sending
            return answer

    assert asyncio.run(story()).status == 413


def test_a_slow_engine_is_not_the_clients_fault(running):
    import time

    def slow(rows):
        time.sleep(1.2)
        return [{} for _ in rows]

    async def story():
        async with running(slow, head_seconds=0.5) as up:
            return await up.post({"text": "a"})

    assert asyncio.run(story()).status == 200


def test_too_many_connections(running, monkeypatch):
    monkeypatch.setattr(connection, "_LINGER", 0.2)

    async def story():
        async with running(max_connections=3, head_seconds=60) as up:
            held = [await up.connect() for _ in range(3)]
            await until(lambda: len(up.server.server_state.connections) == 3)
            refused = [await up.get("/health") for _ in range(4)]
            for _, writer in held:
                writer.close()
            await until(lambda: not up.server.server_state.connections)
            return refused, await up.get("/health"), (await up.get("/metrics")).body.decode()

    refused, after, metrics = asyncio.run(story())
    assert [answer.status for answer in refused] == [503] * 4 and refused[0].headers["retry-after"] == "1"
    assert "3 connections" in refused[0].json["errors"][0]["message"]
    assert after.status == 200 and 'nlpctl_connections_cut_total{reason="too many"} 4' in metrics


def test_a_client_that_is_gone_before_it_is_refused(running):
    """It has closed its connection before the service took it: nothing to tell, and nothing to log."""
    raised = []

    async def story():
        async with running(max_connections=1) as up:
            asyncio.get_running_loop().set_exception_handler(lambda loop, context: raised.append(context))
            _, writer = await up.connect()
            await asyncio.sleep(0.1)
            for _ in range(3):  # this thread is the service's: it takes them when they are gone
                socket.create_connection(writer.get_extra_info("peername")).close()
            await asyncio.sleep(0.2)
            writer.close()
            await asyncio.sleep(0.1)
            return (await up.get("/health")).status

    assert asyncio.run(story()) == 200 and raised == []


def test_characters_of_a_request(running):
    rows = [{"text": "好" * 6}, {"text": "a" * 3, "more": ["b" * 2, {"c": "d"}]}]

    async def story():
        async with running(max_characters=11) as up:
            fits = await up.post(rows[:1])
            return fits, await up.post(rows), await up.post({"text": "a" * 12})

    fits, several, one = asyncio.run(story())
    assert fits.status == 200 and several.status == one.status == 413
    (problem,) = several.json["errors"]
    assert problem["where"] == "body:$[1]" and "12 characters; the limit is 11" in problem["message"]
    assert json.loads(one.body)["errors"][0]["where"] == "body:$" and "shorter" in problem["hint"]


HEAD = b"POST /predict HTTP/1.%d\r\nHost: x\r\nContent-Type: application/json\r\n"
CHUNKED = b'Transfer-Encoding: chunked\r\n\r\nd\r\n{"text": "a"}\r\n0\r\n\r\n'
HIDDEN = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"  # the second request of whoever takes the other length


@pytest.mark.parametrize(
    "sent",
    [HEAD % 1 + b"Content-Length: 3\r\n" + CHUNKED, HEAD % 0 + b"Connection: keep-alive\r\n" + CHUNKED,
     HEAD % 1 + b'Content-Length: 13\r\nContent-Length: 3\r\n\r\n{"text": "a"}',
     HEAD % 1 + b'X: a\rContent-Length: 13\r\n\r\n{"text": "a"}',
     HEAD % 1 + b'Content-Length : 13\r\n\r\n{"text": "a"}'],
    ids=["both", "of HTTP/1.0", "two", "a bare CR", "a space before the colon"],
)  # fmt: skip
def test_a_request_whose_end_is_not_certain(running, sent):
    """Refused, and nothing behind it is taken for a request."""

    async def story():
        async with running() as up:
            reader, writer = await up.connect()
            writer.write(sent + HIDDEN)
            answer = await up.read(reader)
            return answer, await asyncio.wait_for(reader.read(), 60)

    answer, rest = asyncio.run(story())
    assert answer.status == 400 and answer.headers["connection"] == "close"
    assert b"HTTP/1.1 200" not in rest and b"HTTP/1.1" not in rest


def test_a_chunked_request_is_answered_and_the_connection_stays_open(running):
    async def story():
        async with running() as up:
            reader, writer = await up.connect()
            writer.write(HEAD % 1 + CHUNKED + HIDDEN)
            return [await up.read(reader) for _ in range(2)]

    assert [answer.status for answer in asyncio.run(story())] == [200, 200]
