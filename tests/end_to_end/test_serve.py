"""`nlpctl serve` as a process: the answers of predict, an overload, a SIGTERM; and places where it cannot listen."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from nlpctl.runtime.worker import is_alive
from tests.helpers import service
from tests.helpers.service import listening

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check_serve.py"


def workers(parent: int) -> list[int]:
    """The processes that threads of `parent` have started, by age, without multiprocessing's own."""
    files = Path(f"/proc/{parent}/task").glob("*/children")
    found = sorted(int(child) for file in files for child in file.read_text().split())
    return [each for each in found if b"resource_tracker" not in Path(f"/proc/{each}/cmdline").read_bytes()]


def until(condition: Callable[[], object]) -> None:
    ends = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.05)


@pytest.mark.slow
def test_under_load_and_through_a_sigterm(work, base):
    """scripts/check_serve.py with short phases: every answer is that of predict, nothing is lost.

    But for one connection, which the kernel may make between the last accept and the close (serve/server.py).
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
    with socket.create_connection(("127.0.0.1", int(line.split(";")[0].rpartition(":")[2]))) as unfinished:
        unfinished.sendall(b"GET / HT")
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=60)
    assert process.returncode == 0 and "Traceback" not in rest, rest
    assert "stopped" in rest


def test_several_workers(work, exported, tmp_path):
    """The answers of one; a worker that is killed is replaced; and all end when everyone gets the signal, as from a
    service manager."""
    (tmp_path / "keys.txt").write_text("of-both\n")
    (tmp_path / "keys.txt").chmod(0o644)
    engine = ("--engine", "onnxruntime", "--precision", "fp32")
    words = ("--workers", "2", "--port", "0", "--drain", "0.2", "--api-key-file", tmp_path / "keys.txt")
    process = work.start_fresh("serve", exported, *words, *engine)
    url, log = listening(process)
    assert sum("onnxruntime fp32" in line for line in log) == 2, log
    assert sum("can be read by other users" in line for line in log) == 1, log
    asked = [{"text": "good", "id": 7}, {"text": "bad"}]

    def post() -> tuple[int, object]:
        return service.post(url, asked, "of-both")

    def scraped() -> list[tuple[str, str]]:
        """The workers, and the rows that each has answered."""
        request = urllib.request.Request(f"{url}/metrics", headers={"X-API-Key": "of-both"})
        with urllib.request.urlopen(request, timeout=60) as response:
            return re.findall(r'nlpctl_rows_total\{worker="(\d+)"\} (\d+)', response.read().decode())

    lines = "".join(f"{json.dumps(row)}\n" for row in asked)
    alone = work.nlpctl("predict", exported, "-", "--format", "jsonl", *engine, stdin=lines)
    assert post() == (200, [json.loads(line) for line in alone.stdout.splitlines()])
    # Whichever worker answers knows of both; and of the rows of the one that is killed, after its next report.
    until(lambda: len(found := scraped()) == 2 and sum(int(rows) for _, rows in found) == 2)
    first, second = workers(process.pid)
    os.kill(process.pid, signal.SIGSTOP)
    os.kill(process.pid, signal.SIGCONT)
    (tmp_path / "keys.txt").unlink()  # of what was read at the start, the worker that comes next is told
    os.kill(first, signal.SIGKILL)
    assert all(post()[0] == 200 for _ in range(5))
    until(lambda: second in workers(process.pid) and len(workers(process.pid)) == 2)
    until(lambda: len(scraped()) == 2)
    for each in (process.pid, *workers(process.pid)):
        os.kill(each, signal.SIGTERM)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 0, rest
    lost = "a worker was lost, and another one takes its place: worker 0: its process ended (killed by SIGKILL)\n"
    assert rest.count(lost) == 1 and "use fewer --workers" in rest, rest
    assert rest.count("finishing accepted requests") == 1 and rest.endswith("stopped; 12 rows were answered\n"), rest
    assert "Traceback" not in rest and "can be read by other users" not in rest, rest


def test_workers_that_cannot_begin(work, exported, tmp_path):
    """The reason comes once, and nothing is left running; neither is it after a signal in the meantime."""
    shutil.copytree(exported, tmp_path / "cut")
    graph = tmp_path / "cut" / "model.onnx"
    graph.write_bytes(graph.read_bytes()[:-100])
    words = ("--workers", "2", "--port", "0", "--engine", "onnxruntime", "--precision", "fp32")
    refused = work.nlpctl("serve", tmp_path / "cut", *words, "--trust-edits")
    assert refused.returncode == 2 and refused.stderr.count("error:") == 1, refused.stderr
    refused = work.nlpctl("serve", exported, "--workers", "0", "--port", "0")
    assert refused.returncode == 2 and "--workers" in refused.stderr
    for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, 130)):
        process = work.start("serve", exported, *words)
        assert process.stderr.readline().startswith("starting on ")
        until(lambda process=process: workers(process.pid))
        begun = workers(process.pid)
        process.send_signal(number)
        _, rest = process.communicate(timeout=60)
        assert process.returncode == code and "Traceback" not in rest, rest
        until(lambda begun=begun: not any(is_alive(each) for each in begun))


def test_a_signal_lets_workers_finish(work, exported, monkeypatch):
    """Without OMP_NUM_THREADS, where threads of NumPy could take Ctrl-C."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    words = ("--workers", "2", "--port", "0", "--drain", "0.2", "--engine", "onnxruntime", "--precision", "fp32")
    process = work.start_fresh("serve", exported, *words)
    url, _ = listening(process)
    body = b'{"text": "good"}'
    head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as client:
        client.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode() + body[:5])
        assert client.recv(100).startswith(b"HTTP/1.1 100")  # its worker has the head
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        client.sendall(body[5:])
        assert client.recv(100).startswith(b"HTTP/1.1 200")
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 0 and rest.endswith("stopped; 1 row was answered\n"), rest
    assert "interrupted" not in rest and "Traceback" not in rest, rest


@pytest.mark.parametrize("count", [1, 2])
def test_who_reads_the_log_may_go(work, exported, count):
    """As `tee` does at Ctrl-C: what is told then is read by nobody, and the service goes on, and ends as it should."""
    words = ("--workers", str(count), "--port", "0", "--drain", "0.2", "--engine", "onnxruntime", "--precision", "fp32")
    process = work.start("serve", exported, *words)
    url, _ = listening(process)
    process.stderr.close()
    if count == 2:
        first = workers(process.pid)[0]
        os.kill(first, signal.SIGKILL)  # which is told
        until(lambda: first not in workers(process.pid) and len(workers(process.pid)) == 2)
    assert service.post(url, [{"text": "good"}])[0] == 200
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0


@pytest.mark.slow
def test_a_worker_that_does_not_stop_is_killed(work, exported):
    process = work.start_fresh("serve", exported, "--workers", "2", "--port", "0", "--engine", "onnxruntime")
    listening(process)
    os.kill(workers(process.pid)[1], signal.SIGSTOP)
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 1 and "worker 1: it had not stopped after 28 s and was killed" in rest, rest
    assert "out of memory" not in rest and "Traceback" not in rest, rest


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
