"""Where a service listens, and how it ends: what it accepted is answered."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
import time
from types import SimpleNamespace

import pytest

from nlpctl.config.schema import DataSection
from nlpctl.data.rows.text_rows import TextRows
from nlpctl.errors import UserError
from nlpctl.serve import serve
from nlpctl.serve.batcher import Batcher
from nlpctl.serve.requests import BodyReader
from nlpctl.serve.secrets import Secrets
from nlpctl.serve.server import QUIET
from nlpctl.serve.service import Service
from nlpctl.serve.settings import ServeSettings
from nlpctl.serve.starting import bound_socket, cannot_listen, url
from tests.serve.conftest import SETTINGS, Running


@pytest.fixture(autouse=True)
def patient(running, monkeypatch):
    """It waits for requests that are on their way, unlike in the tests of other files."""
    monkeypatch.setattr("nlpctl.serve.server.QUIET", QUIET)


class Gate:
    """An engine that answers when told."""

    def __init__(self):
        self.go, self.rows = threading.Event(), 0

    def __call__(self, rows):
        self.go.wait(60)
        self.rows += len(rows)
        return [{"text": row.text} for row in rows]


async def until(condition):
    async def poll():
        while not condition():
            await asyncio.sleep(0.001)

    await asyncio.wait_for(poll(), 60)


def test_stopping_answers_what_was_accepted(running):
    gate = Gate()

    async def story():
        async with running(gate, drain=0.3) as up:
            idle_reader, idle_writer = await up.connect()
            idle_writer.write(up.request(b"", method="GET", path="/health"))
            assert (await up.read(idle_reader)).status == 200
            accepted = [asyncio.create_task(up.post({"text": "0"}))]
            await until(lambda: up.service.batcher._computed_rows)
            accepted += [asyncio.create_task(up.post({"text": str(i)})) for i in range(1, 7)]
            await until(lambda: up.service.batcher._waiting_rows == 6)
            up.server.handle_exit(signal.SIGTERM, None)
            await until(lambda: up.service.stopping)
            health = await up.get("/health")
            during = asyncio.create_task(up.post({"text": "during"}))  # still listening: answered too
            await until(lambda: up.service.batcher._waiting_rows == 7)
            await until(lambda: not up.server.servers[0].is_serving())
            with pytest.raises(OSError):
                await up.connect()
            idle_writer.write(up.request(b'{"text": "last call"}'))  # on an open connection
            await until(lambda: up.service.batcher._waiting_rows == 8)
            assert not any(task.done() for task in accepted)
            gate.go.set()
            return health, await asyncio.gather(*accepted), await during, await up.read(idle_reader)

    health, accepted, during, last = asyncio.run(story())
    assert health.status == 503 and health.json["status"] == "stopping" and health.headers["connection"] == "close"
    assert [response.json for response in accepted] == [{"text": str(i)} for i in range(7)]
    assert during.json == {"text": "during"} and last.json == {"text": "last call"}
    assert last.headers["connection"] == "close" and gate.rows == 9


@pytest.mark.parametrize("answered", [True, False])
def test_what_is_running_has_all_of_the_longest_stop(running, monkeypatch, capsys, answered):
    """Not only what connections that were never busy left of it."""
    gate = Gate()
    monkeypatch.setattr(ServeSettings, "longest_stop", 6.0)  # of which the last batch may need half

    async def story():
        async with running(gate, drain=0.1) as up:
            accepted = asyncio.create_task(up.post({"text": "a"}))
            await until(lambda: up.service.batcher._computed_rows)
            up.server.handle_exit(signal.SIGTERM, None)
            asyncio.get_running_loop().call_later(2.0 if answered else 5.0, gate.go.set)
            return await accepted

    response = asyncio.run(story())
    if answered:
        assert (response.status, response.json) == (200, {"text": "a"})
    else:
        assert response.status == 503 and response.json["errors"][0]["message"] == "the service is stopping"
        assert "1 request not finished in time after the signal to stop" in capsys.readouterr().err


def test_a_shared_socket_is_left_to_others_in_between(running):
    """asyncio accepts one connection at a time then, and the kernel still lets many wait."""

    async def story():
        async with running(shared=True, queue=50) as up:
            connections = await asyncio.gather(*(up.connect() for _ in range(50)))
            for _, writer in connections:
                writer.close()
            answers = await asyncio.gather(*(up.post({"text": str(i)}) for i in range(50)))
            return up.server.config.backlog, answers

    backlog, answers = asyncio.run(story())
    assert backlog == 1 and [each.json["text"] for each in answers] == [str(i) for i in range(50)]


def test_a_second_signal_ends_it_at_once(running):
    gate = Gate()

    async def story():
        async with running(gate, drain=20) as up:
            waiting = asyncio.create_task(up.post({"text": "a"}))
            await until(lambda: up.service.batcher._computed_rows)
            up.server.handle_exit(signal.SIGINT, None)
            assert not up.server.force_exit
            up.server.handle_exit(signal.SIGINT, None)
            assert up.server.force_exit
            gate.go.set()
            await asyncio.gather(waiting, return_exceptions=True)

    asyncio.run(asyncio.wait_for(story(), 10))


@pytest.mark.parametrize("signals, code, told", [(1, 0, "stopped; 0 rows were answered"), (2, 130, "interrupted")])
def test_the_process_ends_though_its_engine_hangs(monkeypatch, capsys, signals, code, told):
    gate, ended = Gate(), []
    monkeypatch.setattr("nlpctl.serve.server.QUIET", 0.01)
    monkeypatch.setattr("nlpctl.serve.server.LAST_BATCH", 0.01)
    monkeypatch.setattr(ServeSettings, "longest_stop", 1.0)
    monkeypatch.setattr(os, "_exit", ended.append)
    batcher = Batcher(gate, lambda row: 0, SETTINGS, ended.append)
    reader = BodyReader(TextRows(DataSection()), 6, 1000)
    service = Service(reader, batcher, SETTINGS, dict, ("text",), ended.append)

    def ask_and_stop() -> None:
        """Called once the service listens."""
        with socket.create_connection(listening.getsockname()) as connection:
            connection.sendall(Running.request(b'{"text": "a"}'))
            for signalled in range(signals):
                while not (service.stopping if signalled else batcher._computed_rows):
                    time.sleep(0.001)
                os.kill(os.getpid(), signal.SIGTERM)
            connection.recv(1)

    service.find_faster = ask_and_stop
    monkeypatch.setattr(serve, "set_up_to_serve", lambda *words: None)
    monkeypatch.setattr(serve, "make_service", lambda *words: service)
    with bound_socket(SETTINGS) as listening, contextlib.suppress(KeyboardInterrupt):
        serve._serve_alone(SimpleNamespace(task="test"), "export", SETTINGS, Secrets(), listening)
    assert ended == [code] and told in capsys.readouterr().err
    gate.go.set()


def test_under_a_steady_load_nothing_is_lost(running, monkeypatch):
    """New connections all the while: each is answered, or was never made."""
    from pathlib import Path

    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "scripts"))
    from serve_load import LOST, REFUSED, Client, at_rate, post

    async def story():
        async with running(queue=50, drain=0.2) as up:
            client = Client("127.0.0.1", up.port)
            asyncio.get_running_loop().call_later(0.5, up.server.stop)
            return await at_rate(client, [post("x", b'{"text": "a"}')], 400, lambda now: now < 2)

    statuses = [outcome.status for outcome in asyncio.run(story())]
    # How many of each depends on the load of the machine.
    assert statuses.count(LOST) == 0 and statuses.count(200) and statuses.count(REFUSED)
    assert set(statuses) <= {200, 503, REFUSED}


def test_an_address_that_cannot_be_had():
    with bound_socket(ServeSettings(port=0)) as taken:
        taken.listen()
        assert url(taken) == f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UserError, match="--port: cannot listen .*Address already in use"):
            with bound_socket(ServeSettings(port=taken.getsockname()[1])):
                pass
    with pytest.raises(UserError, match="--host: "):
        with bound_socket(ServeSettings(host="192.0.2.1", port=0)):  # of no machine (RFC 5737)
            pass
    with pytest.raises(UserError, match="--host: there is no address for 'no such host'"):
        with bound_socket(ServeSettings(host="no such host")):
            pass
    assert "administrator" in str(cannot_listen(OSError(13, "Permission denied"), ServeSettings(port=80)))


def test_ipv6():
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        with bound_socket(ServeSettings(host="::1", port=0)) as found:
            assert url(found).startswith("http://[::1]:")
    except UserError:
        pytest.skip("no IPv6 loopback here")


def test_settings_out_of_range():
    with pytest.raises(UserError) as wrong:
        ServeSettings(port=70000, batch_size=0, queue=5, max_rows=6, batch_wait=-1)
    places = [problem.where for problem in wrong.value.problems]
    assert places == ["--batch-size", "--batch-wait", "--port", "--max-rows"]


def test_the_service_ends_whatever_fails_as_it_stops(running):
    async def story():
        async with running(drain=5) as up:

            def broken():
                raise OSError("nobody reads what is told")

            up.server._stops = broken
            up.server.handle_exit(signal.SIGTERM, None)
            await until(lambda: up.server.should_exit)

    asyncio.run(story())


def test_connections_that_came_too_late_are_turned_away():
    from nlpctl.serve.server import turn_away, waiting_connections

    async def story():
        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.setblocking(False)
            address = listening.getsockname()
            senders = [await asyncio.open_connection(*address) for _ in range(4)]
            late = waiting_connections(listening)
            with pytest.raises(OSError):
                await asyncio.open_connection(*address)
        assert len(late) == 4
        leaving = [asyncio.create_task(turn_away(each, 0.3)) for each in late]
        senders[0][1].write(b"POST /predict HTTP/1.1\r\nContent-Length: 300000\r\n\r\n" + b"x" * 300_000)
        senders[1][1].close()
        senders[2][1].write(b"GET / HTTP/1.1\r\nX: " + b"x" * 200_000)  # more than a head may have
        answer = await asyncio.wait_for(senders[0][0].read(), 10)  # to its end
        await asyncio.wait_for(asyncio.gather(*leaving), 10)
        return answer

    head, _, body = asyncio.run(story()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ") and b"Connection: close" in head and b"stopping" in body
