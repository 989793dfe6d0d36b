"""`nlpctl serve` under load, beside a FastAPI service written by hand and the engine without a service.

    python scripts/bench_serve.py EXPORT TEXTS                   # EXPORT: a classifier with ONNX graphs
    python scripts/bench_serve.py EXPORT TEXTS --precision int8 --seconds 10 --rounds 3 --json

TEXTS has a text per line. Every service runs in its own process on loopback, with as many threads as there are cores,
or in as many processes with a thread each; 1, 8 or 64 clients each send the next request as soon as the last one is
answered. Services alternate round by round. The clients are one process on the same machine, so their work is in every
figure. The script by hand answers each request alone, in a pool of threads. "The engine alone" answers the same texts
in one process without HTTP: with a batch size of 1, and at its best batch size, which no service can exceed.

Exit 1, without a table, if a request is lost or not answered.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median
from typing import Any

from bench_common import NLPCTL, Table, conditions, environment, tell
from bench_inference import BATCH_SIZES, LOOPS, Loop
from serve_load import Client, Outcome, as_answered, figures, post

from nlpctl import console
from nlpctl.models.export_folder import read_manifest
from nlpctl.runtime.machine import cpu_info, physical_cores

HOST = "127.0.0.1"
CLIENTS = (1, 8, 64)
FILES = {"fp32": "model.onnx", "int8": "model.int8-dynamic.onnx"}
WAIT = 60  # seconds for a service to start
WARM = 1.0  # seconds before each measurement

Start = Callable[[int], list[str]]  # a port to the words of a command


def main() -> int:
    given = options()
    facts, cores = conditions(), physical_cores()
    texts = [text for text in given.texts.read_text(encoding="utf-8").splitlines() if text.strip()]
    requests = [post(HOST, json.dumps({"text": text}, ensure_ascii=False).encode()) for text in texts]
    spec = {"texts": texts[:400], "folder": str(given.export.resolve()), "file": FILES[given.precision],
            "threads": cores, "max_length": read_manifest(given.export).max_seq_length,
            "exact": not cpu_info().computes("int8")}  # fmt: skip
    chosen = ("--engine", "onnxruntime", "--precision", given.precision)
    with tempfile.TemporaryDirectory(prefix="nlpctl-bench-") as name, ExitStack() as stack:
        file = Path(name) / "spec.json"
        file.write_text(json.dumps(spec), encoding="utf-8")
        services: dict[str, Start] = {
            f"nlpctl serve, onnxruntime {given.precision}": lambda port: serve(given.export, port, *chosen),
            "nlpctl serve, auto": lambda port: serve(given.export, port),
            f"nlpctl serve --workers {cores}, onnxruntime {given.precision}": lambda port: serve(
                given.export, port, *chosen, "--workers", str(cores)
            ),
            f"FastAPI by hand, onnxruntime {given.precision}": lambda port: by_hand(file, port, 1),
            f"FastAPI by hand, {cores} processes, onnxruntime {given.precision}": lambda port: by_hand(
                file, port, cores
            ),
        }
        ports = {title: stack.enter_context(Service(start)).port for title, start in services.items()}
        found: dict[str, dict[int, list[list[Outcome]]]] = {title: {many: [] for many in CLIENTS} for title in ports}
        for number in range(1, given.rounds + 1):
            for many in CLIENTS:
                for title, port in ports.items():
                    found[title][many].append(asyncio.run(load(port, requests, many, given.seconds)))
            console.note(f"round {number} of {given.rounds}")
        alone = engine_alone(spec, Path(name))
    if told := failed(found):  # the speed of what does not answer is none
        sys.exit("requests failed (-1: lost, -2: not connected)\n" + "\n".join(told))
    rows = [line(title, many, rounds) for title, each in found.items() for many, rounds in each.items()]
    speeds = f"{alone[1]:,.0f} rows per second with a batch size of 1, {max(alone.values()):,.0f} at its best"
    notes = [f"The engine alone, onnxruntime {given.precision}: {speeds}"]
    columns = ("service", "clients", "requests/s", "p50, ms", "p99, ms")
    title = f"{given.seconds:g} s per round, medians of {given.rounds} rounds"
    tell(facts, [Table(title, columns, rows, notes)], given.json, engine_alone=alone)
    return 0


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("export", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--precision", choices=tuple(FILES), default="fp32", help="of ONNX Runtime")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def serve(export: Path, port: int, *more: str) -> list[str]:
    return [*NLPCTL, "serve", str(export), "--device", "cpu", "--port", str(port), *more]


def by_hand(spec: Path, port: int, workers: int) -> list[str]:
    return [sys.executable, str(LOOPS / "fastapi_by_hand.py"), str(spec), str(port), str(workers)]


class Service:
    """A service in a process of its own, which starts when this is entered, and answers then."""

    def __init__(self, start: Start):
        with socket.socket() as free:
            free.bind((HOST, 0))
            self.port = free.getsockname()[1]
        self._words = start(self.port)
        self._log = tempfile.TemporaryFile()

    def __enter__(self) -> Service:
        words = {"stderr": self._log, "stdout": self._log, "env": environment(), "start_new_session": True}
        self._process = subprocess.Popen(self._words, **words)
        try:
            self._await()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _await(self) -> None:
        ends = time.monotonic() + WAIT
        while self._process.poll() is None and (left := ends - time.monotonic()) > 0:
            with suppress(TimeoutError, asyncio.TimeoutError):  # two classes before Python 3.11
                probe = load(self.port, [post(HOST, b'{"text": "a"}')], 1, 0)
                (outcome,) = asyncio.run(asyncio.wait_for(probe, left))
                if outcome.status == 200:
                    return
            time.sleep(0.1)
        self._log.seek(0)
        sys.exit(f"{' '.join(self._words)} does not answer:\n{self._log.read().decode()[-3000:]}")

    def __exit__(self, *error: Any) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # also the processes that it started
        self._process.wait()


async def load(port: int, requests: list[bytes], clients: int, seconds: float) -> list[Outcome]:
    """What became of the requests of `seconds`, after a warm-up; of one request if `seconds` is 0."""
    client = Client(HOST, port)
    if seconds:
        await as_answered(client, requests, clients, WARM)
        outcomes = await as_answered(client, requests, clients, seconds)
    else:
        outcomes = [await client.send(0, requests[0])]
    client.close()
    return outcomes


def line(title: str, clients: int, rounds: list[list[Outcome]]) -> list[Any]:
    """A row of the table: medians over the rounds."""
    found = [figures(outcomes) for outcomes in rounds]
    speed, middle, slow = (median(each[key] for each in found) for key in ("answered_per_second", "p50_ms", "p99_ms"))
    return [title, clients, f"{speed:,.0f}", f"{middle:.1f}", f"{slow:.1f}"]


def failed(found: Mapping[str, Mapping[int, Sequence[Sequence[Outcome]]]]) -> list[str]:
    """Each service and number of clients with requests that were not answered; how many, by status."""
    told = []
    for title, each in found.items():
        for many, rounds in each.items():
            statuses = Counter(one.status for outcomes in rounds for one in outcomes if one.status != 200)
            told += [f"{title}, {many} clients: {dict(statuses)}"] if statuses else []
    return told


def engine_alone(spec: dict[str, Any], folder: Path) -> dict[int, float]:
    """Rows per second of the engine in a process without HTTP, by batch size; the better of two rounds."""
    with Loop(sys.executable, "onnx_by_hand.py", spec, folder) as loop:
        loop.ask(BATCH_SIZES[-1])
        return {size: len(spec["texts"]) / min(loop.ask(size), loop.ask(size)) for size in BATCH_SIZES}


if __name__ == "__main__":
    sys.exit(main())
