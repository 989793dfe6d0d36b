"""`nlpctl serve` as a process: the answers of predict, an overload, a SIGTERM; and places where it cannot listen."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.helpers import service
from tests.helpers.service import listening

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check_serve.py"


@pytest.mark.slow
def test_under_load_and_through_a_sigterm(work, base):
    """scripts/check_serve.py with short phases: every answer is that of predict, nothing is lost.

    But for one connection, which the kernel may make between the last accept and the close (serving/server.py).
    """
    texts = [line.split("\t")[0] for line in (work / "train.tsv").read_text().splitlines()[1:]]
    (work / "served.txt").write_text("".join(f"{text}\n" for text in texts))
    words = [sys.executable, SCRIPT, base, work / "served.txt", "--engine", "dygraph", "--precision", "fp32"]
    words += ["--seconds", "1", "--each", "1", "--rate", "400"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert done.returncode == (1 if found["sigterm"]["lost"] else 0), done.stdout + done.stderr
    assert found["64_senders"]["answered"] > 64 and found["overload"]["answered"] > 64
    assert found["overload"]["lost"] == found["overload"]["wrong"] == 0
    assert found["malformed"] == {"kinds": 23, "sent": 23, "surprises": {}}
    assert found["sigterm"]["lost"] <= 1 and found["sigterm"]["wrong"] == 0 and found["sigterm"]["answered"] > 0
    assert found["exit_code"] == 0 and found["log"][-1].startswith("stopped; ")
    assert not [line for line in found["log"] if "Traceback" in line or "Warning" in line]


def test_pairs_and_lists_and_ctrl_c(work, base):
    (work / "keys.txt").write_text("# ours\nnot-to-be-shown\n")
    words = ("serve", "base/model", "--port", "0", "--drain", "0", "--api-key-file", "keys.txt")
    process = work.start(*words, "--set", "data.on_bad_row=skip")
    url, log = listening(process)

    def post(value, key: str = "not-to-be-shown") -> tuple[int, object]:
        return service.post(url, value, key)

    status, (good, blank, bad) = post([{"text": "good"}, {"text": " "}, {"text": "bad"}])
    assert status == 200 and good["label"] == "pos" and bad["label"] == "neg"
    assert blank == {"error": "body:$[1]: blank text"}
    assert post({"text": "good"}) == (200, good)
    more = {"id": 7, "label": "neg", "half": "\ud800"}  # what a row holds comes back, as from predict
    assert post({"text": "good", **more}) == (200, {**good, "id": 7, "given_label": "neg", "half": "\ud800"})
    assert post({"txt": "good"})[0] == 422
    assert post({"text": "good"}, "another")[0] == 401
    with urllib.request.urlopen(f"{url}/health", timeout=60) as response:
        health = json.load(response)
    assert health == {"status": "ok", "task": "sequence_classification", "engine": "dygraph", "precision": "fp32"}

    taken = url.rpartition(":")[2]
    refused = work.nlpctl("serve", "base", "--port", taken)
    assert refused.returncode == 2 and f"cannot listen on 127.0.0.1 port {taken}" in refused.stderr, refused.stderr

    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 0 and "stopped; 5 rows were answered" in rest, rest
    assert "not-to-be-shown" not in "".join(log) + rest
    with socket.socket() as gone:
        assert gone.connect_ex(("127.0.0.1", int(taken))) != 0


def test_a_service_answers_from_the_start_and_stops_in_it(work, base):
    """503 with the reason before Paddle is imported; SIGTERM then is no failure."""
    process = work.start("serve", "base/model", "--port", "0")
    line = process.stderr.readline()
    assert line.startswith("starting on http://127.0.0.1:"), line
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 0 and "Traceback" not in rest, rest
    assert "stopped" in rest


@pytest.mark.slow  # a process of its own: the others begin with Paddle imported
@pytest.mark.parametrize("seconds", [0.3, 2])
def test_stopped_while_paddle_is_imported(work, base, seconds):
    words = [sys.executable, "-m", "nlpctl", "serve", base / "model", "--port", "0"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert process.stderr.readline().startswith("starting on ")
    time.sleep(seconds)
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 0 and rest.endswith("stopped while starting\n"), rest
