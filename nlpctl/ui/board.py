"""`nlpctl runs board`: VisualDL's page of the curves of runs."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpctl import console
from nlpctl.errors import UserError
from nlpctl.extras import require
from nlpctl.runtime.interrupt import sigterm_interrupts
from nlpctl.serve.settings import ServeSettings
from nlpctl.serve.starting import bound_socket, url
from nlpctl.spelling import option
from nlpctl.ui.ui import hosts_of

if TYPE_CHECKING:
    from nlpctl.upstream.visualdl_page import Wsgi

RECORDS = "vdlrecords"  # in the names of VisualDL's files


def show_board(folder: Path, host: str, port: int) -> None:
    """Show the curves of all runs in `folder` until Ctrl-C or SIGTERM; new runs appear by themselves.

    UserError if VisualDL is not installed, there are no curves, or the address is not available.
    """
    require("visualdl")
    _require_curves(folder)
    with bound_socket(ServeSettings(host=host, port=port)) as listening:
        with contextlib.redirect_stdout(sys.stderr):
            from werkzeug.serving import make_server

            from nlpctl.upstream.visualdl_page import make_page

            page = make_page(str(folder))
        for name in ("werkzeug", "vdl_logger"):  # they log every request, and every look into a cache
            logging.getLogger(name).setLevel(logging.ERROR)
        listening.listen()
        address, number = listening.getsockname()[:2]
        server = make_server(address, number, _named(page, hosts_of(host)), fd=listening.fileno())
        console.note(f"VisualDL shows {folder} on {url(listening)}/app (Ctrl-C stops)")
        with sigterm_interrupts():
            server.serve_forever()  # Werkzeug ends it at a KeyboardInterrupt, and closes the server
        console.note("stopped")


def _named(page: Wsgi, hosts: list[str]) -> Wsgi:
    """`page` for requests to one of `hosts`: another site's name for this machine is refused, as by `nlpctl ui`."""

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        name = re.sub(r":\d+$", "", environ.get("HTTP_HOST", "")).lower()
        if "*" in hosts or name in [each.lower() for each in hosts]:
            return page(environ, start_response)
        start_response("400 Bad Request", [("Content-Type", "text/plain")])
        return [f"open it as {' or '.join(hosts)}, or give {option('host')} the name that you use\n".encode()]

    return answer


def _require_curves(folder: Path) -> None:
    if not folder.is_dir():
        raise UserError("there is no such folder", where=str(folder), hint="name a run, or a folder of runs")
    if not any(RECORDS in name for _, _, names in os.walk(folder) for name in names):
        hint = "`nlpctl train` writes curves as it goes, unless training.report_to leaves visualdl out"
        raise UserError("no run in this folder has curves of VisualDL", where=str(folder), hint=hint)
