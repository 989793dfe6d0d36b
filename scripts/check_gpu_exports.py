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
import asyncio
import json
import math
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench_common import NLPCTL, ROOT, environment
from check_serve import SENDERS, Service, judged
from serve_load import Client, Outcome, as_answered, post

PRECISIONS = ("fp32", "fp16")
TOLERANCE = {"fp32": 1e-3, "fp16": 3e-2}  # of probabilities and vectors
SAME = {"fp32": 0.999, "fp16": 0.99}  # least share of rows with the same decisions
SIZES, LENGTH = "1,8,32,128", "128"
AT_ONCE = 8  # exports that are compared side by side
SERVED = 5.0  # seconds


class Failed(Exception):
    """It did not work; the message says what."""


def output(*command: str | Path) -> str:
    """What a command prints."""
    words = [*map(str, command)]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment())
    if done.returncode:
        raise Failed(f"{' '.join(words)} ended with {done.returncode}: {done.stderr[-1500:]}")
    return done.stdout


def attempt(step: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """What a step finds, or why it failed; the others are done all the same."""
    try:
        return step(*arguments)
    except (Failed, SystemExit) as reason:  # the latter of a service that does not start
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
    words = ("--engine", "onnxruntime", "--precision", precision, "--device", device)
    output(*NLPCTL, "predict", export, rows, "-o", out, *words)
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


# -- the other steps ---------------------------------------------------------------------------


def doctor() -> dict[str, Any]:
    checks = json.loads(output(*NLPCTL, "doctor", "--json"))["result"]["checks"]
    return {each["name"]: each["detail"] for each in checks if "device" in each["name"] or "ONNX" in each["name"]}


def bench(export: Path, rows: Path, device: str) -> dict[str, Any]:
    words = ("--batch-size", SIZES, "--length", LENGTH, "--rows", "512", "--rounds", "5", "--device", device)
    return json.loads(output(*NLPCTL, "bench", export, "--data", rows, *words, "--json"))["result"]


def pytorch(python: str, folder: str, device: str) -> dict[str, Any]:
    script = ROOT / "scripts" / "bench_loops" / "torch_speeds.py"
    return json.loads(output(python, script, folder, SIZES, LENGTH, device).splitlines()[-1])


def serve(export: Path, rows: Path, device: str) -> dict[str, Any]:
    """The figures of requests of one row each by SENDERS clients, whose answers are those of `nlpctl predict`."""
    with tempfile.TemporaryDirectory() as folder:
        given = answers(export, rows, Path(folder) / "answers", device, "fp32")
    # predict also gives the labels of its rows.
    right = [{key: value for key, value in row.items() if not key.startswith("given_")} for row in given]
    texts = [{key: row[key] for key in ("text", "text_pair") if key in row} for row in right]
    service = Service(str(export), ["--device", device, "--precision", "fp32"])
    requests = [post(service.host, json.dumps(each).encode()) for each in texts]
    try:
        outcomes = asyncio.run(_asked(service, requests))
        service.process.send_signal(signal.SIGTERM)
        code = service.end()
    finally:
        if service.process.poll() is None:
            service.process.kill()
    found = judged(outcomes, right, TOLERANCE["fp32"])
    refused = found["sent"] - found["answered"]
    passed = code == 0 and refused == 0 and found["wrong"] <= (1 - SAME["fp32"]) * found["answered"]
    return {**found, "exit": code, "passed": passed}


async def _asked(service: Service, requests: list[bytes]) -> list[Outcome]:
    client = Client(service.host, service.port)
    await as_answered(client, requests, SENDERS, SERVED)  # kernels are prepared
    outcomes = await as_answered(client, requests, SENDERS, SERVED)
    client.close()
    return outcomes


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
