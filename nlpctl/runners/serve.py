"""`nlpctl serve`: a trained model as an HTTP service."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from nlpctl import console
from nlpctl.config.schema import Recipe
from nlpctl.data.row import BadRow
from nlpctl.data.task_rows import task_rows
from nlpctl.names import subject
from nlpctl.runners.open_model import find_model, open_trained_model, set_up_to_answer
from nlpctl.runners.predict import answers
from nlpctl.runtime.interrupt import STOP_SECONDS, sigterm_waits
from nlpctl.runtime.process import ProcessSetup
from nlpctl.serving.address import bound_socket, url
from nlpctl.serving.secrets import Secrets
from nlpctl.serving.settings import ServeSettings
from nlpctl.serving.starting import Starting, Stopped, sigterm_stops

if TYPE_CHECKING:
    from nlpctl.inference.switch import Switch
    from nlpctl.inference.trained import TrainedModel
    from nlpctl.serving.app import Service
    from nlpctl.serving.server import Server
    from nlpctl.tasks.base import Task

# A lone client sends its next request within a millisecond. Waking the engine's threads for it cost a quarter of the
# requests per second (int8, two cores).
SPIN_US = 1000


def serve(recipe: Recipe, settings: ServeSettings, secrets: Secrets) -> None:
    """Answer requests until SIGTERM or Ctrl-C; then finish the accepted requests and return.

    The address is taken first. Until the model is ready every request gets 503; SIGTERM then ends the command.

    Raises UserError if the address is not available or there is no trained model; KeyboardInterrupt at the second
    request to stop.
    """
    source = find_model(recipe)
    with bound_socket(settings) as listening:
        try:
            with sigterm_stops():
                server = _started(recipe, source, settings, secrets, listening)
                asyncio.run(server.run_on(listening))
        except Stopped:
            console.note("stopped while starting")
            return
    if server.force_exit:
        raise KeyboardInterrupt
    rows = round(server.service.batcher.rows.value())
    console.note(f"stopped; {subject(rows, 'rows', 'was', 'were')} answered")


def _started(
    recipe: Recipe, source: str, settings: ServeSettings, secrets: Secrets, listening: socket.socket
) -> Server:
    """The server, with its model loaded; meanwhile requests on the same address get 503."""
    address = url(listening, secrets.tls is not None)
    with Starting(listening, settings, secrets.tls) as starting:
        console.note(f"starting on {address}; every request gets 503 until the model is ready")
        starting.stage = "preparing the process"
        with sigterm_waits():
            setup = replace(set_up_to_answer(recipe, source), spin_us=SPIN_US)
        starting.stage = "loading the model and choosing its engine"
        service = make_service(recipe, setup, source, settings)
        service.access = secrets.access
        from nlpctl.serving.app import make_app
        from nlpctl.serving.server import Server

        def listens() -> None:
            console.note(f"serving {recipe.task} on {address} (Ctrl-C stops)")
            if service.settle is not None:  # a daemon: the end of the service does not wait for it
                threading.Thread(target=service.settle, name="settle", daemon=True).start()

        return Server(make_app(service), service, STOP_SECONDS, listens, secrets.tls)


def _settle(settle: Callable[[], TrainedModel | None], engine: Switch, read: Callable[[Task], None]) -> None:
    """Time the engines next to the service, and go over to the fastest. `read`: takes the task that reads it."""
    try:
        faster = settle()
    except Exception as error:  # the service goes on as it is
        console.warn(f"auto: timing the engines failed: {error}")
        return
    if faster is not None:
        engine.use(faster.predictor)
        read(faster.task)
        console.note(f"now answering with {engine.engine} {engine.precision}")


def make_service(recipe: Recipe, setup: ProcessSetup, source: str, settings: ServeSettings) -> Service:
    """The service of the model that `find_model` found as `source`; its batcher is not started yet."""
    from nlpctl.inference.pipeline import answering
    from nlpctl.inference.switch import Switch
    from nlpctl.serving.app import Service
    from nlpctl.serving.batcher import Batcher
    from nlpctl.serving.body import BodyReader

    model = open_trained_model(recipe, setup, source, settings.batch_size)
    engine = Switch(model.predictor)
    pipeline = answering(model.task, model.encoder, engine)
    rows = task_rows(recipe.task, recipe.data)

    task = model.task

    def read_by(other: Task) -> None:
        nonlocal task
        task = other

    def answer(read: Sequence[Any]) -> list[dict[str, Any]]:
        return answers(rows, task, read, pipeline.predictions(read, settings.batch_size))

    def size(row: Any) -> int:
        return 0 if isinstance(row, BadRow) else row.byte_length

    def report(error: BaseException) -> None:
        console.warn(f"a request failed: {type(error).__name__}: {error}")

    def facts() -> dict[str, str]:
        return {"task": recipe.task, "engine": engine.engine, "precision": engine.precision}

    return Service(
        BodyReader(rows, settings.max_rows, settings.max_characters),
        Batcher(answer, size, settings, report),
        settings,
        facts,
        rows.required(labelled=False),
        report,
        settle=None if model.settle is None else partial(_settle, model.settle, engine, read_by),
    )
