"""`nlpctl runs board`: VisualDL's page of a trained run."""

from __future__ import annotations

import re
import signal
import socket
import sys
import urllib.error
import urllib.request

import pytest

from nlpctl.errors import UserError
from nlpctl.ui.board import show_board


def test_board(work, base):
    """Its page is served, in a language that VisualDL lacks, and Ctrl-C ends it."""
    process = work.start("runs", "board", base, "--port", "0")
    address = re.search(r"http://\S+/app", process.stderr.readline())[0]
    request = urllib.request.Request(f"{address}/index", headers={"Accept-Language": "de"})
    with urllib.request.urlopen(request, timeout=60) as page:
        assert page.status == 200 and b"<html" in page.read()
    with urllib.request.urlopen(f"{address}/api/runs", timeout=60) as answer:
        assert "visualdl" in answer.read().decode()
    with pytest.raises(urllib.error.HTTPError, match="400"):  # of a page whose name was made to mean this machine
        urllib.request.urlopen(urllib.request.Request(f"{address}/index", headers={"Host": "evil.example"}), timeout=60)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0 and err.strip().endswith("stopped") and "Traceback" not in err


def test_board_refuses_early(work, base):
    taken = socket.create_server(("127.0.0.1", 0))
    ended = work.nlpctl("runs", "board", base, "--port", str(taken.getsockname()[1]))
    taken.close()
    assert ended.returncode == 2 and "--port: cannot listen" in ended.stderr and "use another port" in ended.stderr
    (work / "no-curves").mkdir()
    assert "no run in this folder has curves" in work.nlpctl("runs", "board", work / "no-curves").stderr
    assert "there is no such folder" in work.nlpctl("runs", "board", work / "gone").stderr


def test_without_visualdl(base, monkeypatch):
    monkeypatch.setitem(sys.modules, "visualdl", None)  # as if it were not installed
    with pytest.raises(UserError, match="VisualDL is not installed"):
        show_board(base, "127.0.0.1", 0)
