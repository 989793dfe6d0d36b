"""`predict` on millions of lines: speed and memory near the start and at the end, and the order of the answers.

    python scripts/bench_predict.py                                # 5,000,000 lines; 15 minutes or more on 2 cores
    python scripts/bench_predict.py --rows 200000 --json
    python scripts/bench_predict.py --engine paddle                # in Paddle Inference, through an export made first

The model is the quickstart's, barely trained. The input is that of bench_memory.py: short synthetic reviews, one in
four with a new number. The output file is watched while the command runs. Speed is measured over the rows written in
the second and in the last tenth (the first tenth includes the start-up). Memory is the kernel's high-water mark (VmHWM)
after the first tenth and at the end. Afterwards every answer is compared with its input line.

Exit 1 if the last tenth is slower than --slower times the second, memory grows by more than --allowed MB, or an answer
is missing, duplicated or out of place.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path

from bench_common import NLPCTL, Table, conditions, conditions_line, environment, tell
from bench_memory import QUICKSTART, reviews

from nlpctl import console

EVERY = 0.25  # seconds between samples of the output
BLOCK = 1 << 22  # bytes


@dataclass(frozen=True)
class Look:
    """What was there at a moment of the run: seconds since it began, rows written, high-water mark in MB."""

    seconds: float
    rows: int
    peak: float


@dataclass(frozen=True)
class Result:
    """Speeds in rows per second, memory in MB. `engine`: the value of --engine."""

    engine: str
    rows: int
    answered_in_place: int
    seconds: float
    speed_at_start: float
    speed_at_end: float
    speed: float  # from the first answers to the last
    peak_at_start: float
    peak_at_end: float


def main() -> int:
    arguments = parse_arguments()
    if not QUICKSTART.is_file():
        console.warn(f"no quickstart recipe at {QUICKSTART}: run this from a checkout of the repository")
        return 2
    facts = conditions()
    console.note(conditions_line(facts))
    with tempfile.TemporaryDirectory(prefix="bench-predict-", dir=arguments.folder) as name:
        result = measure(Path(name), arguments)
    more = result.peak_at_end - result.peak_at_start
    failures = []
    if result.answered_in_place != result.rows:
        failures.append(f"{result.rows - result.answered_in_place} lines without their answer in the same line")
    if more > arguments.allowed:
        failures.append(f"memory grew by {more:.0f} MB; allowed: {arguments.allowed:.0f}")
    if result.speed_at_end < arguments.slower * result.speed_at_start:
        failures.append(f"slower at the end: {result.speed_at_end:,.0f} rows/s against {result.speed_at_start:,.0f}")
    columns = ("engine", "rows", "in place", "seconds", "rows/s", "2nd tenth", "last tenth", "MB, 1st tenth", "end")
    speeds = (result.speed, result.speed_at_start, result.speed_at_end)
    peaks = (result.peak_at_start, result.peak_at_end)
    cells = (result.engine, *(f"{rows:,}" for rows in (result.rows, result.answered_in_place)))
    cells += (f"{result.seconds:.0f}", *(f"{speed:,.0f}" for speed in speeds), *(f"{peak:.0f}" for peak in peaks))
    table = Table("predict, quickstart model", columns, [cells])
    tell(facts, [table], arguments.json, **asdict(result), failures=failures)
    for failure in failures:
        console.warn(failure)
    return 1 if failures else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--engine", choices=("dygraph", "paddle", "onnxruntime"), default="dygraph")
    parser.add_argument("--allowed", type=float, default=50.0, help="MB of growth allowed after the first tenth")
    parser.add_argument("--slower", type=float, default=0.9, help="least speed of the last tenth, over the second's")
    parser.add_argument("--folder", type=Path, help="folder for input and output, about 250 MB per million rows")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.rows < 20 * 32 * arguments.batch_size:
        parser.error("a tenth of the rows must be several chunks of 32 batches: use a larger --rows")
    return arguments


def measure(folder: Path, arguments: argparse.Namespace) -> Result:
    run, source, output = folder / "model", folder / "input.txt", folder / "answers.jsonl"
    options = ("--max_steps", "20", "--evaluation_strategy", "no", "--save_strategy", "no")
    options += ("--no-load_best_model_at_end", "--set", "data.dev=[]", "--set", "data.test=[]")
    nlpctl("train", str(QUICKSTART), "--output_dir", str(run), "--device", "cpu", *options)
    with source.open("w", encoding="utf-8") as stream:
        stream.writelines(f"{text}\n" for text, _ in reviews(arguments.rows))
    command = ["predict", str(run), str(source), "-o", str(output), "--batch-size", str(arguments.batch_size)]
    command += ["--engine", arguments.engine, "--device", "cpu"]
    looks = watched(command, Path(f"{output}.partial"))
    rows, first = arguments.rows, next(look for look in looks if look.rows)
    last = Look(looks[-1].seconds, rows, looks[-1].peak)
    return Result(
        engine=arguments.engine,
        rows=rows,
        answered_in_place=in_place(source, output),
        seconds=round(last.seconds, 1),
        speed_at_start=speed(at(looks, 0.1 * rows), at(looks, 0.2 * rows)),
        speed_at_end=speed(at(looks, 0.9 * rows), written(looks)),
        speed=speed(first, written(looks)),
        peak_at_start=at(looks, 0.1 * rows).peak,
        peak_at_end=last.peak,
    )


def nlpctl(*command: str) -> None:
    done = subprocess.run((*NLPCTL, *command), env=environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"nlpctl {' '.join(command)} failed:\n{done.stderr[-3000:]}")


def watched(command: list[str], partial: Path) -> list[Look]:
    """Run the command and sample it until it ends."""
    looks: list[Look] = []
    with tempfile.TemporaryFile() as messages:
        started = time.monotonic()
        child = subprocess.Popen((*NLPCTL, *command), env=environment(), stderr=messages)
        counted = rows_written(partial)
        while child.poll() is None:
            peak = high_water(child.pid) or (looks[-1].peak if looks else 0.0)
            looks.append(Look(time.monotonic() - started, next(counted), peak))
            time.sleep(EVERY)
        if child.returncode != 0:
            messages.seek(0)
            sys.exit(f"nlpctl {' '.join(command)} failed:\n{messages.read().decode()[-3000:]}")
    if not looks or not looks[-1].rows:
        sys.exit("predict ended before its output could be sampled: use a larger --rows")
    return looks


def rows_written(path: Path) -> Iterator[int]:
    """The number of lines in `path` so far, at each call; 0 before the file exists."""
    rows, stream = 0, None
    while True:
        if stream is None and path.exists():
            stream = path.open("rb")
        while stream is not None and (block := stream.read(BLOCK)):
            rows += block.count(b"\n")
        yield rows


def high_water(pid: int) -> float:
    """VmHWM in MB; 0 if the process has just ended."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


def at(looks: list[Look], rows: float) -> Look:
    """The first sample with at least that many rows."""
    return next(look for look in looks if look.rows >= rows)


def written(looks: list[Look]) -> Look:
    """The first sample with the most rows: the end of the answers, before the process ends."""
    return at(looks, looks[-1].rows)


def speed(first: Look, second: Look) -> float:
    return round((second.rows - first.rows) / max(second.seconds - first.seconds, EVERY), 1)


def in_place(source: Path, output: Path) -> int:
    """Lines of the input whose answer stands in the same line of the output; none where the lines differ in number."""
    found = 0
    with source.open(encoding="utf-8") as lines, output.open(encoding="utf-8") as answers:
        for line, answer in zip_longest(lines, answers):
            if line is None or answer is None:
                return 0
            found += json.loads(answer)["text"] == line.removesuffix("\n")
    return found


if __name__ == "__main__":
    sys.exit(main())
