"""`nlpctl runs ls --watch`: what trains now."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nlpctl.runtime.event_log import EventLog

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def running(made):
    """A run in progress, of which two of a hundred steps take a second."""
    run = made("deep/now")
    run.update_manifest(steps={"total": 100})
    run.events_file.unlink()
    log, now = EventLog(run.events_file), time.time()
    for step in (10, 20, 30):
        log.append("log", step, loss=1 / step, left=34.5)
    lines = [json.loads(line) for line in run.events_file.read_text().splitlines()]
    for seconds, line in zip((-10, -5, 0), lines, strict=True):
        line["time"] = now + seconds
    run.events_file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    log.append("evaluate", 30, eval_accuracy=0.75)
    return run


def test_in_a_pipe_once(nlpctl, made, running, tmp_path):
    made("done", dev=0.5)
    gone = made("gone")
    gone.update_manifest(pid=2**30)
    far = made("far")
    far.update_manifest(pid=2**30, host="elsewhere")
    ended = nlpctl("runs", "ls", tmp_path / "outputs", "--watch")
    assert ended.code == 0 and ended.err == "", ended.err
    rows = {line.split()[0]: re.split(r" {2,}", line)[1:] for line in ended.out.splitlines()[2:]}
    assert rows.keys() == {"deep/now", "far"} and rows["far"][0] == "running on elsewhere"
    assert rows["deep/now"][:6] == ["running", "30/100", "30%", "0.0333", "accuracy", "0.7500"]
    assert rows["deep/now"][6] in ("0:00:33", "0:00:34", "0:00:35")
    listed = json.loads(nlpctl("runs", "ls", tmp_path / "outputs", "--watch", "--json").out)["result"]
    assert [(each["step"], each["total"]) for each in listed] == [(30, 100), (8, None)]


def test_nothing_runs(nlpctl, made, tmp_path):
    made("done", dev=0.5)
    assert nlpctl("runs", "ls", tmp_path / "outputs", "--watch").out.splitlines()[0].startswith("run")
    assert nlpctl("runs", "ls", tmp_path / "nowhere", "--watch").code == 2


def read_until(terminal: int, wanted: str, seconds: float = 120) -> str:
    """What is written to the terminal up to `wanted`."""
    text, deadline = "", time.monotonic() + seconds
    while wanted not in text:
        assert time.monotonic() < deadline, f"never told {wanted!r}: {text}"
        if select.select([terminal], [], [], 0.2)[0]:
            text += os.read(terminal, 65536).decode("utf-8", errors="replace")
    return text


def test_on_a_terminal_until_ctrl_c(running, tmp_path):
    """A run that goes on is seen to, and one that ends is shown with its end."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120", "TERM": "xterm"}
    words = [sys.executable, "-m", "nlpctl", "runs", "ls", str(tmp_path / "outputs"), "--watch"]
    process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=environment, text=True)
    try:
        read_until(ours, "30/100")
        EventLog(running.events_file).append("log", 50, loss=0.25)
        read_until(ours, "50/100")
        running.metrics_file.write_text(json.dumps({"dev": {"accuracy": 0.875}}))
        with running.recorded():
            pass
        assert "0.8750" in read_until(ours, "finished") + read_until(ours, "\n")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0 and process.stderr.read() == ""
    finally:
        process.kill()
        process.stderr.close()
        os.close(ours)
        os.close(theirs)
