"""`nlpctl serve`: a trained model as an HTTP service."""

from __future__ import annotations

import asyncio
import os
import socket
import threading

from nlpctl import console
from nlpctl.config.schema import Recipe
from nlpctl.errors import EXIT_INTERRUPTED, EXIT_OK
from nlpctl.inference.open_model import find_model
from nlpctl.names import subject
from nlpctl.runtime.machine import refuse_processes
from nlpctl.serve.secrets import Secrets
from nlpctl.serve.service import make_service, note_serving, note_starting, note_stopping, set_up_to_serve
from nlpctl.serve.settings import ServeSettings
from nlpctl.serve.starting import Starting, Stopped, bound_socket, sigterm_stops, url
from nlpctl.serve.workers import serve_side_by_side


def serve(recipe: Recipe, settings: ServeSettings, secrets: Secrets) -> None:
    """Answer requests until SIGTERM or Ctrl-C; then finish the accepted requests and return.

    The address is taken first. Until the model is ready every request gets 503; SIGTERM then ends the command.

    Raises UserError if the address is not available or there is no trained model; KeyboardInterrupt at the second
    request to stop.
    """
    refuse_processes(settings.workers, "@[workers]")
    source = find_model(recipe)
    with console.unread_dropped():
        with bound_socket(settings) as listening:
            try:
                with sigterm_stops():
                    if settings.workers > 1:
                        rows = serve_side_by_side(recipe, source, settings, secrets, listening)
                    else:
                        rows = _serve_alone(recipe, source, settings, secrets, listening)
            except Stopped:
                console.note("stopped while starting")
                return
        console.note(_stopped(rows))


def _serve_alone(
    recipe: Recipe, source: str, settings: ServeSettings, secrets: Secrets, listening: socket.socket
) -> int:
    """Answer in this process; returns the number of rows. Until the model is loaded requests get 503."""
    address = url(listening, secrets.tls is not None)
    with Starting(listening, settings, secrets.tls) as starting:
        note_starting(address)
        starting.stage = "preparing the process"
        setup = set_up_to_serve(recipe, source)
        starting.stage = "loading the model and choosing its engine"
        service = make_service(recipe, setup, source, settings, secrets.access)
        from nlpctl.serve.app import make_app
        from nlpctl.serve.server import Server

        def listens() -> None:
            note_serving(recipe, address)
            if service.find_faster is not None:  # a daemon: the end of the service does not wait for it
                threading.Thread(target=service.find_faster, name="find faster", daemon=True).start()

        server = Server(make_app(service), service, listens, secrets.tls, note_stopping)
    asyncio.run(server.run_on(listening))
    rows = round(service.batcher.rows.value())
    if not server.engine_ended:  # Python would wait for its thread
        console.note("interrupted" if server.force_exit else _stopped(rows))
        console.drop_unwritten()
        os._exit(EXIT_INTERRUPTED if server.force_exit else EXIT_OK)
    if server.force_exit:
        raise KeyboardInterrupt
    return rows


def _stopped(rows: int) -> str:
    return f"stopped; {subject(rows, 'rows', 'was', 'were')} answered"
