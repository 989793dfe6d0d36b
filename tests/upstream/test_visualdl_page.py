"""VisualDL's page: the languages of browsers, and what it leaves behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest
from werkzeug.test import Client

from nlpctl.upstream.visualdl_page import make_page


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory):
    before = signal.getsignal(signal.SIGINT), waiting()
    made = make_page(str(tmp_path_factory.mktemp("curves")))
    assert (signal.getsignal(signal.SIGINT), waiting()) == before
    return made


def waiting() -> set[threading.Thread]:
    """The threads whose end Python waits for."""
    return {thread for thread in threading.enumerate() if not thread.daemon}


@pytest.mark.parametrize(
    ("accepted", "shown"),
    [("de", "en"), ("fr-FR, fr;q=0.5", "en"), ("", "en"), ("zh-CN,zh;q=0.9,en;q=0.8", "zh"), ("en-US", "en")],
)
def test_with_english_as_the_last_language(page, accepted, shown):
    answer = Client(page).get("/app/index", headers={"Accept-Language": accepted})
    assert answer.status_code == 200 and f"vdl_lng={shown}" in answer.headers["Set-Cookie"]


STOCK = """
import signal, threading, os
from visualdl.server.app import create_app
from visualdl.server.args import ParseArgs
from werkzeug.test import Client
page = create_app(ParseArgs(logdir=["."], port=0, telemetry=False))
print(Client(page).get("/app/index", headers={"Accept-Language": "de"}).status_code)
print(signal.getsignal(signal.SIGINT) is signal.SIG_DFL)
print(sum(not thread.daemon for thread in threading.enumerate()))
os._exit(0)
"""


def test_the_stock_page_still_fails_and_still_does_not_end(tmp_path):
    done = subprocess.run([sys.executable, "-uc", STOCK], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split()[-3:] == ["500", "True", "2"], done.stderr
