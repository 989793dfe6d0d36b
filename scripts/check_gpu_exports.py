"""Do exports answer on a card, by ONNX Runtime and without Paddle, as on the CPU, and how fast? One JSON report.

    python scripts/check_gpu_exports.py EXPORT ROWS [EXPORT ROWS ...] [--output FILE] [--device gpu]
                                        [--transformers FOLDER --torch-python VENV/bin/python]

Needs nlpctl's core and onnxruntime-gpu (docs/gpu.md). Of every export the answers to its rows are compared: on the CPU
in fp32, on the card in fp32 and, where it has such a graph, in fp16. The first one is also timed and served.
`--transformers`: the same network as `nlpctl export --layout transformers` writes it, timed in PyTorch on the same
card, in rows of as many tokens. `--device cpu`: without a card, to try this script. Exits 1 if answers differ.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NLPCTL = [sys.executable, "-m", "nlpctl"]
PRECISIONS = ("fp32", "fp16")
TOLERANCE = {"fp32": 1e-3, "fp16": 3e-2}  # of probabilities and vectors
SAME = {"fp32": 0.999, "fp16": 0.99}  # least share of rows with the same decisions
SIZES, LENGTH = "1,8,32,128", "128"
AT_ONCE = 8  # exports that are compared side by side
CLIENTS, REQUESTS = 32, 400
MOST_SECONDS = 120  # until the service is ready
READY = re.compile(r"^serving .* on http://(\S+) \(", re.MULTILINE)


class Failed(Exception):
    """It did not work; the message says what."""


def run(*words: str | Path) -> str:
    done = subprocess.run([*NLPCTL, *map(str, words)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise Failed(f"{' '.join(map(str, words))} ended with {done.returncode}: {done.stderr[-1500:]}")
    return done.stdout


def attempt(step: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """What a step finds, or why it failed; the others are done all the same."""
    try:
        return step(*arguments)
    except Failed as reason:
        return {"passed": False, "reason": str(reason)}


# -- answers -----------------------------------------------------------------------------------


def compare(export: Path, rows: Path, device: str) -> dict[str, Any]:
    """By precision: the share of rows with the same decisions, and the largest difference of their numbers."""
    graphs = json.loads((export / "export.json").read_text(encoding="utf-8"))["graphs"]
    offered = [each for each in PRECISIONS if any(graph["precision"] == each for graph in graphs)]
    if device == "cpu":  # which has no fp16
        offered = ["fp32"]
    with tempfile.TemporaryDirectory() as folder:
        expected = answers(export, rows, Path(folder) / "cpu", "cpu", "fp32")
        found: dict[str, Any] = {"rows": len(expected)}
        for precision in offered:
            given = answers(export, rows, Path(folder) / precision, device, precision)
            pairs = list(zip(expected, given, strict=True))
            differences = [difference(*pair) for pair in pairs if decisions(pair[0]) == decisions(pair[1])]
            same, largest = len(differences) / len(pairs), max(differences, default=0.0)
            passed = same >= SAME[precision] and largest <= TOLERANCE[precision]
            found[f"{device} {precision}"] = {"same": same, "largest": largest, "passed": passed}
    return found


def answers(export: Path, rows: Path, out: Path, device: str, precision: str) -> list[Any]:
    run("predict", export, rows, "-o", out, "--engine", "onnxruntime", "--precision", precision, "--device", device)
    found = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    if not found:
        raise Failed(f"{rows} has no rows")
    return found


def decisions(answer: Any) -> Any:
    """The answer without its numbers, which may differ by rounding."""
    if isinstance(answer, dict):
        return {key: decisions(value) for key, value in answer.items()}
    if isinstance(answer, list):
        return [decisions(value) for value in answer]
    return None if isinstance(answer, float) else answer


def difference(one: Any, other: Any) -> float:
    """The largest difference of two answers with the same decisions."""
    if isinstance(one, dict):
        return max((difference(one[key], other[key]) for key in one), default=0.0)
    if isinstance(one, list):
        return max(map(difference, one, other), default=0.0)
    if not isinstance(one, float) or one == other:
        return 0.0
    return abs(one - other) if math.isfinite(one) and math.isfinite(other) else math.inf


# -- the service -------------------------------------------------------------------------------


def serve(export: Path, rows: Path, device: str) -> dict[str, Any]:
    """Requests of one row each by several clients: how many a second, how long they take, and that nothing differs."""
    with tempfile.TemporaryDirectory() as folder:
        expected = answers(export, rows, Path(folder) / "answers", device, "fp32")[:REQUESTS]
        log = Path(folder) / "log"
        words = ["serve", str(export), "--port", "0", "--device", device, "--precision", "fp32"]
        texts = [{key: row[key] for key in ("text", "text_pair") if key in row} for row in expected]
        bodies = [json.dumps(each).encode() for each in texts]
        with log.open("w") as stream:
            started = time.perf_counter()
            process = subprocess.Popen([*NLPCTL, *words], stdout=stream, stderr=stream)
        try:
            while (ready := READY.search(log.read_text())) is None:
                if process.poll() is not None or time.perf_counter() - started > MOST_SECONDS:
                    raise Failed(log.read_text())
                time.sleep(0.05)
            address, start = f"http://{ready[1]}/predict", time.perf_counter() - started
            with ThreadPoolExecutor(CLIENTS) as clients:
                list(clients.map(ask, repeat(address), bodies[:CLIENTS]))  # kernels are prepared
                started = time.perf_counter()
                given, seconds = zip(*clients.map(ask, repeat(address), bodies), strict=True)
                whole = time.perf_counter() - started
            process.send_signal(signal.SIGTERM)
            code = process.wait(timeout=30)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Failed(f"{error}\n{log.read_text()}") from None
        finally:
            process.kill()
    # predict also gives the labels of its rows.
    pairs = [({key: one.get(key) for key in other}, other) for one, other in zip(expected, given, strict=True)]
    same = sum(decisions(one) == decisions(other) for one, other in pairs)
    ordered = sorted(seconds)
    return {
        "ready_s": round(start, 2),
        "requests_per_s": round(len(bodies) / whole, 1),
        "ms_p50": round(1000 * ordered[len(ordered) // 2], 1),
        "ms_p99": round(1000 * ordered[len(ordered) * 99 // 100], 1),
        "same": same / len(bodies),
        "exit": code,
        "passed": same >= SAME["fp32"] * len(bodies) and code == 0,
    }


def ask(address: str, body: bytes) -> tuple[Any, float]:
    started = time.perf_counter()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        given = json.load(answer)
    return given, time.perf_counter() - started


# -- all ---------------------------------------------------------------------------------------


def doctor() -> dict[str, Any]:
    checks = json.loads(run("doctor", "--json"))["result"]["checks"]
    return {each["name"]: each["detail"] for each in checks if "device" in each["name"] or "ONNX" in each["name"]}


def bench(export: Path, rows: Path, device: str) -> dict[str, Any]:
    words = ("--batch-size", SIZES, "--length", LENGTH, "--rows", "512", "--rounds", "5", "--device", device)
    return json.loads(run("bench", export, "--data", rows, *words, "--json"))["result"]


def pytorch(python: str, folder: str, device: str) -> dict[str, Any]:
    script = str(ROOT / "scripts" / "bench_loops" / "torch_speeds.py")
    done = subprocess.run([python, script, folder, SIZES, LENGTH, device], capture_output=True, text=True)
    if done.returncode:
        raise Failed(done.stderr[-1500:])
    return json.loads(done.stdout.splitlines()[-1])


def steps(arguments: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    device, pairs = arguments.device, list(zip(arguments.exports[::2], arguments.exports[1::2], strict=True))
    yield "doctor", attempt(doctor)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        compared = list(pool.map(lambda pair: attempt(compare, *pair, device), pairs))
    for (export, _), found in zip(pairs, compared, strict=True):
        yield f"answers of {export.name}", found
    yield "bench", attempt(bench, *pairs[0], device)
    if arguments.transformers:
        yield "pytorch", attempt(pytorch, arguments.torch_python, arguments.transformers, device)
    yield "serve", attempt(serve, *pairs[0], device)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exports", nargs="+", type=Path, metavar="EXPORT ROWS")
    parser.add_argument("--output", type=Path, default=Path("check_gpu_exports.json"))
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--transformers", help="the network of the first export, for PyTorch")
    parser.add_argument("--torch-python", default=sys.executable)
    arguments = parser.parse_args()
    found: dict[str, Any] = {}
    for name, result in steps(arguments):
        found[name] = result
        arguments.output.write_text(json.dumps(found, indent=1), encoding="utf-8")
        print(name, json.dumps(result)[:400], flush=True)
    texts = json.dumps(found)
    return 1 if '"passed": false' in texts else 0


if __name__ == "__main__":
    sys.exit(main())
