"""`nlpctl ui`: the runs of a folder in the browser. Every page is made when it is asked for."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode, urlsplit

from nlpctl import console
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.errors import UserError
from nlpctl.files import parse_json
from nlpctl.models.find import model_fingerprint
from nlpctl.parent import python_until_parent_ends
from nlpctl.runs.report import page_of
from nlpctl.runs.runs import RunRecord, differences, find_runs, open_all, open_run, paired
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.runtime.worker import module_path
from nlpctl.serve.settings import ServeSettings
from nlpctl.serve.starting import bound_socket, url
from nlpctl.ui.pages import REFRESH, answered_section, compare_page, index_page, problem_page, try_section

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request

EVERYWHERE = ("0.0.0.0", "::")
LOCAL = ("127.0.0.1", "localhost", "[::1]")
MOST_MODELS = 3  # in memory at once
_SECONDS = 60.0  # for one answer
_LONGEST = 1024 * 1024  # bytes of a form
_ADDRESS = re.compile(rb"starting on (http://[^ ;]+)")  # what `nlpctl serve` says first
_END = 10.0  # seconds for models to end
_DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy would look for it elsewhere


def show_ui(folder: Path, host: str, port: int) -> None:
    """Show the runs in `folder`, at any depth, until Ctrl-C or SIGTERM.

    UserError if there is no such folder, or the address is not available.
    """
    next(find_runs(folder), None)  # fails early where there is no such folder
    with bound_socket(ServeSettings(host=host, port=port)) as listening:
        from nlpctl.ui.page_server import PageServer

        with TriedModels() as models:
            told = f"showing the runs of {folder} on {url(listening)} (Ctrl-C stops)"
            server = PageServer(make_ui(folder, models, hosts_of(host)), partial(console.note, told))

            async def serve() -> None:
                await server.serve([listening])
                models.close()  # else the end of the loop would wait for an answer that nobody wants any more

            asyncio.run(serve())
    console.note("stopped")


def hosts_of(host: str) -> list[str]:
    """The names that a request to `host` may have for this machine, as they stand in it: [::1]."""
    return ["*"] if host in EVERYWHERE else [f"[{host}]" if ":" in host else host, *LOCAL]


def make_ui(folder: Path, models: TriedModels, hosts: list[str]) -> Starlette:
    """The ASGI application. `hosts`: names of this machine in a request; another site's name for it is refused."""
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import ClientDisconnect
    from starlette.responses import HTMLResponse, RedirectResponse, Response
    from starlette.routing import Route

    def index(request: Request) -> HTMLResponse:
        """All runs."""
        return HTMLResponse(index_page(folder, *open_all(folder)))

    async def run(request: Request) -> HTMLResponse:
        """One run; with values of the form, also what its model answers to them, if it was started."""
        name, given = request.query_params.get("run", ""), request.query_params
        record = await asyncio.to_thread(_record, folder, name)
        keys = required_keys(record)
        row = {key: given[key] for key in keys if given.get(key)}
        first, waiting = [try_section(name, keys, row)], record.state == "running"
        model = models.tried(record.run.path)
        if len(row) == len(keys) > 0 and model is not None:
            answer = await asyncio.to_thread(model.answer, row)
            first.append(answered_section(answer))
            waiting = answer is None
        refresh = REFRESH if waiting else None
        return HTMLResponse(await asyncio.to_thread(page_of, record, first, refresh))

    async def ask(request: Request) -> RedirectResponse:
        """The form: starts the model, which the page then asks."""
        if _of_another_site(request):
            raise UserError("the form is on a page of another web site", hint="open the run here")
        sent = parse_qs((await _body(request)).decode(errors="replace"))
        given = {key: values[0].replace("\r\n", "\n") for key, values in sent.items()}  # as forms send lines
        record = await asyncio.to_thread(_record, folder, given.get("run", ""))
        keys = required_keys(record)
        if keys and all(given.get(key) for key in keys):
            models.open(record.run.path)  # in the main thread, with which the model's process ends
        return RedirectResponse(f"/run?{urlencode(given)}", 303)

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

    def gone(request: Request, error: Exception) -> Response:
        """The client has closed the connection before it sent the whole form: nobody reads an answer."""
        return Response(status_code=400)

    def failed(request: Request, error: Exception) -> HTMLResponse:
        return HTMLResponse(problem_page(f"{type(error).__name__}: {error}"), 500)

    return Starlette(
        routes=[
            Route("/", index),
            Route("/run", run),
            Route("/run", ask, methods=["POST"]),
            Route("/compare", compare),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts)],
        exception_handlers={UserError: refused, ClientDisconnect: gone, HTTPException: not_routed, Exception: failed},
    )


async def _body(request: Request) -> bytes:
    """The body of a request. UserError if it is too long."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LONGEST:
            raise UserError("the text is too long", hint="`nlpctl predict` takes texts of any length from a file")
    return body


def _record(folder: Path, name: str) -> RunRecord:
    """The run of this name, which is its path in `folder`. UserError if there is none, whatever else lies there."""
    for path in find_runs(folder):
        if os.path.relpath(path, folder) == name:
            return open_run(path)
    raise UserError(f"there is no run {name!r} in {folder}", hint="the list has all runs")


def _of_another_site(request: Request) -> bool:
    """Whether a browser sent the form from a page of another web site.

    Over plain HTTP a browser tells nothing but Origin, except to this machine itself.
    """
    origin = request.headers.get("origin")
    elsewhere = origin is not None and urlsplit(origin).netloc != request.headers.get("host")
    return elsewhere or request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none")


def required_keys(record: RunRecord) -> tuple[str, ...]:
    """The keys of a row that the model of a run answers; none if there is no model yet."""
    if not record.run.model.is_dir():
        return ()
    return task_rows(record.recipe.task, record.recipe.data).text_columns()


class TriedModels:
    """The models that were tried last, so that two pages do not end each other's.

    No worker pool: each is a service that is asked by HTTP, is not started again when it is lost, and makes room for
    the next one.
    """

    def __init__(self) -> None:
        self._open: dict[Path, TriedModel] = {}  # the one tried last comes last
        self._ending: list[TriedModel] = []

    def __enter__(self) -> TriedModels:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def open(self, run: Path) -> TriedModel:
        """The service of this run, which is started unless it runs. Returns at once."""
        model = self._open.pop(run, None)
        if model is not None and not (model.running and model.serves(run)):
            self._retire(model)
            model = None
        self._open[run] = model or TriedModel(run)
        while len(self._open) > MOST_MODELS:
            self._retire(self._open.pop(next(iter(self._open))))
        self._ending = [each for each in self._ending if each.running]
        return self._open[run]

    def _retire(self, model: TriedModel) -> None:
        model.terminate()
        self._ending.append(model)

    def tried(self, run: Path) -> TriedModel | None:
        """The service of this run, also one that has failed; None: it was not started, has made room for others, or is
        of a model that has been replaced since."""
        model = self._open.get(run)
        return model if model is not None and model.serves(run) else None

    def close(self) -> None:
        """End all of them."""
        models = [*self._open.values(), *self._ending]
        self._open, self._ending = {}, []
        for model in models:
            model.terminate()
        until = time.monotonic() + _END
        for model in models:
            model.end(max(0.0, until - time.monotonic()))


def _fingerprint(run: Path) -> dict[str, Any] | None:
    """Of the model of a run; None while there is none."""
    with contextlib.suppress(UserError, OSError):
        return model_fingerprint(str(RunDirectory(run).model))
    return None


class TriedModel:
    """A model in an `nlpctl serve` of its own."""

    def __init__(self, run: Path) -> None:
        self._fingerprint = _fingerprint(run)
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            python_until_parent_ends("-m", "nlpctl", "serve", str(run), "--port", "0"),
            env={**os.environ, "PYTHONPATH": module_path()},
            stdout=self._log,
            stderr=self._log,
        )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def serves(self, run: Path) -> bool:
        """Whether it was started with the model that the run has now."""
        return self._fingerprint == _fingerprint(run)

    def terminate(self) -> None:
        """Ask it to end. Returns at once."""
        self._process.terminate()

    def end(self, seconds: float) -> None:
        """Wait for its end; after `seconds` it is killed."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def answer(self, row: Mapping[str, str]) -> dict[str, Any] | None:
        """What the model says to one row; None while it is being loaded. UserError says why it cannot answer."""
        output = self._output()
        address = _ADDRESS.search(output)
        if address is None:
            self._refuse_ended(output)
            return None
        place, body = f"{address[1].decode()}/predict", json.dumps(row).encode()
        request = urllib.request.Request(place, body, {"Content-Type": "application/json"})
        try:
            with _DIRECTLY.open(request, timeout=_SECONDS) as response:
                return parse_json(response.read())
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it starts
                return None
            raise UserError(_reason(error.read())) from None
        except TimeoutError:
            hint = "try a shorter text; `nlpctl predict` waits as long as it takes"
            raise UserError(f"the model has not answered within {_SECONDS:g} s", hint=hint) from None
        except (urllib.error.URLError, ConnectionError):
            self._refuse_ended(self._output())
            return None

    def _output(self) -> bytes:
        """What the service has written; its own writing goes on at the end."""
        return os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size, 0)

    def _refuse_ended(self, output: bytes) -> None:
        """UserError if the service has ended, with the end of its `output`: it will not answer later."""
        if not self.running:
            raise UserError(f"the model cannot be served: {output.decode(errors='replace').strip()[-2000:]}")


def _reason(body: bytes) -> str:
    """The first error of an answer of `nlpctl serve`."""
    try:
        return str(parse_json(body)["errors"][0]["message"])
    except (ValueError, KeyError, IndexError, TypeError):
        return body.decode(errors="replace")
