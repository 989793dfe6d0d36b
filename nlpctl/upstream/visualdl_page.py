"""VisualDL's page, for browsers of any language and in a program that ends."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Wsgi = Callable[[dict[str, Any], Any], Iterable[bytes]]


def make_page(logdir: str) -> Wsgi:
    """VisualDL's page of the curves in a folder, a WSGI application. It sends nothing to its makers."""
    from visualdl.server import app
    from visualdl.server.args import ParseArgs

    with _same_interrupt(), _daemon_threads(app):
        return with_a_language(app.create_app(ParseArgs(logdir=[logdir], host="127.0.0.1", port=0, telemetry=False)))


def with_a_language(application: Wsgi) -> Wsgi:
    """`application` with English as the last language that each browser accepts.

    visualdl 2.5.3, server/app.py:77: for a browser that accepts neither zh nor en the language is None, which it writes
    into a cookie; Werkzeug 3 raises AttributeError, and the browser gets status 500.
    Test: tests/upstream/test_visualdl_page.py.
    """

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        accepted = environ.get("HTTP_ACCEPT_LANGUAGE", "")
        environ["HTTP_ACCEPT_LANGUAGE"] = f"{accepted}, en;q=0.001" if accepted else "en"
        return application(environ, start_response)

    return answer


@contextlib.contextmanager
def _daemon_threads(app: Any) -> Iterator[None]:
    """The thread that VisualDL's profiler starts does not outlive the program.

    visualdl 2.5.3, component/profiler/profiler_reader.py:73: it waits for a queue for ever, and Python waits for it. A
    thread inherits `daemon` from the thread that starts it.
    """
    stock = app.create_profiler_api_call

    def in_a_daemon(*args: Any) -> Any:
        made: list[Any] = []
        thread = threading.Thread(target=lambda: made.append(stock(*args)), daemon=True)
        thread.start()
        thread.join()
        return made[0]

    app.create_profiler_api_call = in_a_daemon
    try:
        yield
    finally:
        app.create_profiler_api_call = stock


@contextlib.contextmanager
def _same_interrupt() -> Iterator[None]:
    """Ctrl-C does after the block what it did before (visualdl 2.5.3, server/app.py:80: it ends the process)."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
