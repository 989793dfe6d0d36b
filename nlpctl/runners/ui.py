"""`nlpctl ui`: the runs of a folder in the browser. Every page is made when it is asked for."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpctl import console
from nlpctl.data.task_rows import task_rows
from nlpctl.errors import UserError
from nlpctl.files import parse_json
from nlpctl.runners.pages.ui import (
    REFRESH,
    answered_section,
    compare_page,
    index_page,
    problem_page,
    try_section,
)
from nlpctl.runners.report import page_of
from nlpctl.runners.runs import RunRecord, differences, find_runs, open_all, open_run, paired
from nlpctl.runtime.worker import die_with_parent
from nlpctl.serving.address import bound_socket, url
from nlpctl.serving.settings import ServeSettings

if TYPE_CHECKING:
    from starlette.applications import Starlette

EVERYWHERE = ("0.0.0.0", "::")
LOCAL = ("127.0.0.1", "localhost", "[::1]")
_SECONDS = 60.0  # for one answer
_DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy would look for it elsewhere


def show_ui(folder: Path, host: str, port: int) -> None:
    """Show the runs in `folder`, at any depth, until Ctrl-C or SIGTERM.

    UserError if there is no such folder, or the address is not available.
    """
    next(find_runs(folder), None)  # fails early where there is no such folder
    with bound_socket(ServeSettings(host=host, port=port)) as listening:
        from nlpctl.serving.page_server import PageServer

        with TriedModel() as model:
            hosts = ["*"] if host in EVERYWHERE else [host, *LOCAL]
            told = f"showing the runs of {folder} on {url(listening)} (Ctrl-C stops)"
            server = PageServer(make_ui(folder, model, hosts), partial(console.note, told))
            asyncio.run(server.serve([listening]))
    console.note("stopped")


def make_ui(folder: Path, model: TriedModel, hosts: list[str]) -> Starlette:
    """The ASGI application. `hosts`: names of this machine in a request; another site's name for it is refused."""
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import HTMLResponse
    from starlette.routing import Route

    def index(request: Request) -> HTMLResponse:
        """All runs."""
        return HTMLResponse(index_page(folder, *open_all(folder)))

    async def run(request: Request) -> HTMLResponse:
        """One run; with values of the form, also what its model answers to them."""
        name, given = request.query_params.get("run", ""), request.query_params
        record = await asyncio.to_thread(_record, folder, name)
        keys = required_keys(record)
        row = {key: given[key] for key in keys if given.get(key)}
        first, waiting = [try_section(name, keys, row)], record.state == "running"
        if len(row) == len(keys) > 0:
            model.open(record.run.path)  # in the main thread, with which the model's process ends
            answer = await asyncio.to_thread(model.answer, row)
            first.append(answered_section(answer))
            waiting = answer is None
        return HTMLResponse(await asyncio.to_thread(page_of, record, first, REFRESH if waiting else None))

    def compare(request: Request) -> HTMLResponse:
        """What differs between runs."""
        names = request.query_params.getlist("run")
        if len(names) < 2:
            raise UserError("a comparison needs two runs or more", hint="mark them in the list")
        records = [_record(folder, name) for name in names]
        pairs = paired(*records) if len(records) == 2 else {}
        return HTMLResponse(compare_page(names, differences(records), pairs))

    def refused(request: Request, error: Exception) -> HTMLResponse:
        return HTMLResponse(problem_page(str(error)), 400)

    def not_routed(request: Request, error: Exception) -> HTMLResponse:
        return HTMLResponse(problem_page(getattr(error, "detail", "")), getattr(error, "status_code", 404))

    def failed(request: Request, error: Exception) -> HTMLResponse:
        return HTMLResponse(problem_page(f"{type(error).__name__}: {error}"), 500)

    return Starlette(
        routes=[Route("/", index), Route("/run", run), Route("/compare", compare)],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts)],
        exception_handlers={UserError: refused, HTTPException: not_routed, Exception: failed},
    )


def _record(folder: Path, name: str) -> RunRecord:
    """The run of this name, which is its path in `folder`. UserError if there is none, whatever else lies there."""
    for path in find_runs(folder):
        if os.path.relpath(path, folder) == name:
            return open_run(path)
    raise UserError(f"there is no run {name!r} in {folder}", hint="the list has all runs")


def required_keys(record: RunRecord) -> tuple[str, ...]:
    """The keys of a row that the model of a run answers; none if there is no model yet."""
    if not record.run.model.is_dir():
        return ()
    return task_rows(record.recipe.task, record.recipe.data).required(labelled=False)


class TriedModel:
    """The model that was tried last, in an `nlpctl serve` of its own, which ends when another model is tried."""

    def __init__(self) -> None:
        self._run: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._log = tempfile.TemporaryFile()

    def __enter__(self) -> TriedModel:
        return self

    def __exit__(self, *error: Any) -> None:
        self._close()
        self._log.close()

    def open(self, run: Path) -> None:
        """Start the service of this run, unless it runs. Returns at once."""
        if run == self._run and self._process is not None and self._process.poll() is None:
            return
        self._close()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._log.seek(0)
        self._log.truncate()
        self._run = run
        self._process = subprocess.Popen(
            [sys.executable, "-m", "nlpctl", "serve", str(run), "--port", str(self._port)],
            stdout=self._log,
            stderr=self._log,
            preexec_fn=partial(die_with_parent, os.getpid()),
        )

    def answer(self, row: Mapping[str, str]) -> dict[str, Any] | None:
        """What the model says to one row; None while it is being loaded. UserError says why it cannot answer."""
        body = json.dumps(row).encode()
        wanted = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/predict", body, {"Content-Type": "application/json"}
        )
        try:
            with _DIRECTLY.open(wanted, timeout=_SECONDS) as response:
                return parse_json(response.read())
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return None
            raise UserError(_told(error.read())) from None
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            if self._process is not None and self._process.poll() is None:
                return None
            self._log.seek(0)
            told = self._log.read().decode(errors="replace").strip()
            raise UserError(f"the model cannot be served: {told[-2000:]}") from None

    def _close(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None


def _told(body: bytes) -> str:
    """The first error of an answer of `nlpctl serve`."""
    try:
        return str(parse_json(body)["errors"][0]["message"])
    except (ValueError, KeyError, IndexError, TypeError):
        return body.decode(errors="replace")
