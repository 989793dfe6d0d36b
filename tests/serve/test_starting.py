"""A service that starts: it listens at once, and answers 503 until another takes the same socket over."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading

import pytest

from nlpctl.errors import UserError
from nlpctl.runtime.interrupt import sigterm_waits
from nlpctl.serve.settings import ServeSettings
from nlpctl.serve.starting import Starting, bound_socket

SETTINGS = ServeSettings(port=0)


def ask(port: int, request: str) -> tuple[str, dict]:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(request.encode())
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = received.decode().partition("\r\n\r\n")
    assert "Retry-After: 1" in head and "Connection: close" in head
    return head.split("\r\n")[0], json.loads(body)


def test_it_says_why_and_hands_over():
    with bound_socket(SETTINGS) as listening:
        port = listening.getsockname()[1]
        with Starting(listening, SETTINGS) as starting:
            starting.stage = "loading the model"
            status, told = ask(port, "GET /health/ready?full HTTP/1.1\r\nHost: x\r\n\r\n")
            assert status.startswith("HTTP/1.1 503") and told == {"status": "starting", "reason": "loading the model"}
            body = json.dumps([{"text": "a"}] * 5000)
            _, told = ask(port, f"POST /predict HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n{body}")
            assert told["errors"][0]["message"] == "the service is starting: loading the model"
            with socket.socket() as other:
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                with pytest.raises(OSError, match="in use"):  # no other process can answer in its place
                    other.bind(("127.0.0.1", port))
            quiet = socket.create_connection(("127.0.0.1", port))  # asks nothing; must not hold it up
        with quiet, socket.create_connection(("127.0.0.1", port)) as late:
            late.sendall(b"hello")
            listening.setblocking(True)
            accepted, _ = listening.accept()
            with accepted:
                assert accepted.recv(5) == b"hello"
    assert not [thread for thread in threading.enumerate() if thread.name == "starting"]


def test_what_is_no_request_is_no_failure(capfd):
    with bound_socket(SETTINGS) as listening, Starting(listening, SETTINGS):
        port = listening.getsockname()[1]
        assert ask(port, "GARBAGE\r\n\r\n")[0].startswith("HTTP/1.1 503")
        with socket.create_connection(("127.0.0.1", port), timeout=60) as sender, contextlib.suppress(ConnectionError):
            sender.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 200_000)
            assert sender.recv(1) == b""
    assert capfd.readouterr().err == ""


def test_too_many_connections():
    settings = ServeSettings(port=0, max_connections=1)
    with bound_socket(settings) as listening, Starting(listening, settings):
        address = listening.getsockname()
        with socket.create_connection(address), socket.create_connection(address, timeout=3) as second:
            assert second.recv(1) == b""  # the first one has 5 s


def test_an_address_that_another_process_listens_on():
    with bound_socket(SETTINGS) as first:
        taken = ServeSettings(port=first.getsockname()[1])
        with bound_socket(taken) as second:  # allowed, as neither listens
            first.listen(1)
            with pytest.raises(UserError, match="cannot listen"), Starting(second, taken):
                pass


def test_a_signal_that_is_not_held_is_left_to_the_main_thread(monkeypatch):
    """Which may have a temporary export to remove, and on a busy machine takes the signal late."""
    ended = threading.Event()
    monkeypatch.setattr(signal, "sigpending", lambda: {signal.SIGTERM})
    monkeypatch.setattr(os, "_exit", lambda code: ended.set())
    monkeypatch.setattr("nlpctl.serve.starting._POLL", 0.01)
    with bound_socket(SETTINGS) as listening, Starting(listening, SETTINGS):
        assert not ended.wait(0.2)
        with sigterm_waits():
            assert ended.wait(60)
