"""Check that `nlpctl serve` answers correctly and loses no request at four times its capacity, until it is stopped.

    python scripts/check_serve.py MODEL TEXTS [--engine E] [--precision P] [--seconds 20] [--json FILE]
    python scripts/check_serve.py MODEL TEXTS --seconds 600 --slow 10000     # 12 minutes
    python scripts/check_serve.py MODEL TEXTS --serve --workers 2            # after it, options of nlpctl serve

MODEL is an export (or model folder) of a task that takes one text, TEXTS a file with a text per line. The service
runs in a separate process on loopback. This script

1. has `nlpctl predict` answer TEXTS, for the expected answers;
2. measures the capacity of the service: 64 clients, each of which sends again as soon as it is answered;
3. sends four times that load, at a fixed rate, with 22 kinds of malformed requests mixed in, and (`--slow N`) once a
   minute N connections at once, each of which sends a byte of its head per second;
4. continues while the service gets a SIGTERM, until it accepts no more connections.

Give --precision fp32, or an export without int8-dynamic: its answers depend on the rows of a batch, and count as wrong.

Prints requests per second, latencies and the memory of the service by minute of the overload; exits 1 if an
answer is wrong, a request is lost, or a slow connection stays open.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench_common import NLPCTL, conditions, conditions_line, environment
from serve_load import Client, Outcome, as_answered, at_rate, figures, post, slow_wave
from serve_malformed import Kind, kinds, send

from nlpctl.serve.settings import ServeSettings

SENDERS = 64
OVERLOAD = 4
SHORT = 20.0  # seconds of the other phases, at most
WAVE, SLOW_PATIENCE = 60.0, 30.0  # seconds; the service gives a head 10
TOLERANCE = {"fp32": 1e-4, "auto": 0.05}  # of probabilities, which depend on the padding of a batch; others as auto


class Service:
    """`nlpctl serve` in a separate process."""

    def __init__(self, model: str, options: Sequence[str]):
        words = [*NLPCTL, "serve", model, "--port", "0", *options]
        self.process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment())
        self.log: list[str] = []
        for line in self.process.stderr:
            self.log.append(line.rstrip())
            if line.startswith("serving "):
                self.host, _, port = line.split(" on http://")[1].split()[0].rpartition(":")
                self.port = int(port)
                return
        raise SystemExit("the service did not start:\n" + "\n".join(self.log))

    def memory(self, which: str = "VmRSS") -> float:
        """MB that the service and its workers have in memory; with VmHWM, the most that each had."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task").glob("*/children")  # of the thread that started them
        processes = [str(pid), *(child for file in children for child in file.read_text().split())]
        lines = [line for each in processes for line in Path(f"/proc/{each}/status").read_text().splitlines()]
        return round(sum(int(line.split()[1]) for line in lines if line.startswith(which)) / 1024, 1)

    def end(self) -> int:
        """Exit code once the process has ended by itself."""
        self.log += self.process.communicate(timeout=60)[1].splitlines()
        return self.process.returncode


def expected_answers(model: str, texts: Path, options: Sequence[str]) -> list[dict[str, Any]]:
    """What `nlpctl predict` says of every text."""
    done = subprocess.run(
        [*NLPCTL, "predict", model, str(texts), *options], capture_output=True, text=True, env=environment()
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def alike(one: Any, other: Any, tolerance: float) -> bool:
    """Whether two answers are the same, numbers within `tolerance`."""
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= tolerance
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key], tolerance) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(alike(a, b, tolerance) for a, b in zip(one, other, strict=True))
    return one == other


def judged(outcomes: Sequence[Outcome], right: Sequence[dict[str, Any]], tolerance: float) -> dict[str, Any]:
    """The figures of one phase, and how many answers are wrong."""
    answered = [each for each in outcomes if each.status == 200]
    wrong = [
        each for each in answered if not alike(json.loads(each.body), right[each.number % len(right)], tolerance)
    ]
    return {**figures(outcomes), "wrong": len(wrong)}


async def malformed(service: Service, requests: Sequence[Kind], seconds: float) -> dict[str, Any]:
    """Malformed requests spread over `seconds`: how many, and which were answered in another way."""
    surprises: Counter[str] = Counter()
    pause = seconds / len(requests)
    for kind in requests:
        status = await send(service.host, service.port, kind)
        # If the queue is full, the service may answer 503 before it checks anything else.
        if (status is None) != (not kind.statuses) or (status not in (*kind.statuses, 503) and kind.statuses):
            surprises[f"{kind.name}: {status}"] += 1
        await asyncio.sleep(pause)
    kinds_sent = len({kind.name for kind in requests})
    return {"kinds": kinds_sent, "sent": len(requests), "surprises": dict(surprises)}


async def slow_waves(service: Service, connections: int, seconds: float) -> list[dict[str, Any]]:
    """A wave of slow connections a minute, for `seconds`; none where `connections` is 0."""
    waves = []
    started = time.monotonic()
    while connections and (left := started + seconds - time.monotonic()) > SLOW_PATIENCE:
        begun = time.monotonic()
        waves.append(await slow_wave(service.host, service.port, connections, SLOW_PATIENCE))
        await asyncio.sleep(min(left, max(0.0, WAVE - (time.monotonic() - begun))))
    return waves


async def memory_by_minute(service: Service, seconds: float) -> list[float]:
    """MB of the service at the start and after every minute of `seconds`."""
    found = [service.memory()]
    for _ in range(int(seconds / 60)):
        await asyncio.sleep(60)
        found.append(service.memory())
    return found


async def stop(service: Service, after: float) -> float:
    """Send a SIGTERM `after` so many seconds; returns the seconds from it to the end of the process."""
    await asyncio.sleep(after)
    service.process.send_signal(signal.SIGTERM)
    started = time.monotonic()
    await asyncio.to_thread(service.process.wait, 60)
    return time.monotonic() - started


async def load(
    service: Service, requests: list[bytes], right: list[dict[str, Any]], given: argparse.Namespace
) -> dict[str, Any]:
    """Phases 2 to 4, as `given` on the command line."""
    seconds = given.seconds
    tolerance = TOLERANCE.get(given.precision, TOLERANCE["auto"])
    client = Client(service.host, service.port)
    await as_answered(client, requests, SENDERS, min(5.0, seconds))  # warm-up
    short = min(seconds, SHORT)
    alone = judged(await as_answered(client, requests, 1, short / 4), right, tolerance)
    bears = judged(await as_answered(client, requests, SENDERS, short), right, tolerance)
    rate = given.rate or OVERLOAD * bears["answered_per_second"]
    settings = ServeSettings()
    wrong_ones = kinds("text", settings.max_rows, settings.max_body) * given.each
    overloaded, mixed, waves, minutes = await asyncio.gather(
        at_rate(client, requests, rate, lambda now: now < seconds),
        malformed(service, wrong_ones, seconds * 0.8),
        slow_waves(service, given.slow, seconds),
        memory_by_minute(service, seconds),
    )
    memory = {"mb_by_minute": minutes, "mb_after": service.memory(), "peak_mb": service.memory("VmHWM")}
    stopping = asyncio.create_task(stop(service, after=short / 4))
    ending = await at_rate(client, requests, rate, lambda now: now < short / 4 + 4)
    client.close()
    took = await stopping
    return {
        "one_sender": alone,
        f"{SENDERS}_senders": bears,
        "overload": {"rate": rate, **judged(overloaded, right, tolerance)},
        "memory": memory,
        "malformed": mixed,
        "slow_connections": waves,
        "sigterm": {"seconds_to_end": round(took, 2), **judged(ending, right, tolerance)},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("texts", type=Path)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--seconds", type=float, default=20.0, help="of the overload")
    parser.add_argument("--each", type=int, default=10, help="malformed requests of each kind")
    parser.add_argument("--rate", type=float, help="requests per second of the overload; default: 4 times the capacity")
    parser.add_argument("--slow", type=int, default=0, help="slow connections at once, a wave of them a minute")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", nargs=argparse.REMAINDER, default=[], help="further options of nlpctl serve")
    given = parser.parse_args()
    facts = conditions()
    options = ["--engine", given.engine, "--precision", given.precision]
    with tempfile.TemporaryDirectory() as folder:
        texts = [text for text in given.texts.read_text(encoding="utf-8").splitlines() if text.strip()][:2000]
        file = Path(folder, "texts.txt")
        file.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        right = expected_answers(given.model, file, options)
    service = Service(given.model, [*options, *given.serve])
    requests = [post(service.host, json.dumps({"text": text}, ensure_ascii=False).encode()) for text in texts]
    try:
        found = asyncio.run(load(service, requests, right, given))
        code = service.end()
    finally:
        if service.process.poll() is None:
            service.process.kill()
    result = {"conditions": facts, "model": given.model, **found, "exit_code": code, "log": service.log}
    print(conditions_line(facts), file=sys.stderr)
    print(json.dumps(result, indent=2, ensure_ascii=False))
    if given.json is not None:
        given.json.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    phases = [value for value in found.values() if "lost" in value]
    sound = not any(phase["lost"] or phase["wrong"] or phase["other_statuses"] for phase in phases)
    held = any("still_open" in wave["ends"] for wave in found["slow_connections"])
    return 0 if sound and not held and not found["malformed"]["surprises"] and code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
