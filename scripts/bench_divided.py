"""`predict --workers`: memory and processor seconds of the command and of its workers, and what stays serial.

    python scripts/bench_divided.py                            # 100,000 and 1,000,000 lines, 1 and 2 workers
    python scripts/bench_divided.py --rows 5000000 --workers 2 --json
    python scripts/bench_divided.py --rows 65536 --export EXPORT    # the gain on the clock, with a network that costs

The model is the quickstart's, barely trained, in ONNX Runtime with one thread: a network that costs next to nothing, so
what is around it shows. With --export it is the fp32 ONNX graph of that export. The input is that of bench_memory.py.
The output of each run is compared with that of one process. Processor seconds do not depend on what else the machine
does. What the command itself computes is serial: it cuts, keeps the list of shards, and puts the answers together. So
N workers are (S + W) / (S + W / N) times as fast, where S are its seconds and W those of all workers.

Exit 1 if an output differs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from filecmp import cmp
from pathlib import Path

from bench_common import NLPCTL, Table, conditions, environment, tell
from bench_memory import QUICKSTART, reviews
from bench_predict import high_water, nlpctl

EVERY = 0.1  # seconds between samples
TICKS = os.sysconf("SC_CLK_TCK")
PREDICTED = (2, 8, 64)  # workers


@dataclass
class Measured:
    """Seconds of the clock and of processors, and MB. `workers` 0: one process, without --workers."""

    rows: int
    workers: int
    seconds: float
    own_seconds: float
    workers_seconds: float
    own_mb: float
    worker_mb: float
    same: bool


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--folder", type=Path, help="folder for input and output, about 350 MB per million rows")
    parser.add_argument("--export", type=Path, help="an export with an ONNX graph; by default one is made")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    facts = conditions()
    with tempfile.TemporaryDirectory(prefix="bench-divided-", dir=arguments.folder) as name:
        export = arguments.export or quickstart_export(Path(name))
        found = measure(Path(name), export, arguments.rows, arguments.workers)
    gains = [
        f"{each.rows:,} rows, as measured with {each.workers} workers: "
        + ", ".join(f"{n} workers {gain(each, n):.1f} times" for n in PREDICTED)
        for each in found
        if each.workers
    ]
    columns = ("rows", "workers", "seconds", "CPU s", "of workers", "MB", "of a worker", "same")
    rows = [[f"{each.rows:,}", *list(asdict(each).values())[1:]] for each in found]
    title = f"predict --workers, {arguments.export or 'quickstart model'}, ONNX Runtime fp32, 1 thread each"
    tell(facts, [Table(title, columns, rows, gains)], arguments.json, measured=[asdict(each) for each in found])
    return int(not all(each.same for each in found))


def gain(each: Measured, workers: int) -> float:
    """How many times as fast with as many free cores, by the serial and the divided processor seconds."""
    return (each.own_seconds + each.workers_seconds) / (each.own_seconds + each.workers_seconds / workers)


def quickstart_export(folder: Path) -> Path:
    run, export = folder / "model", folder / "export"
    options = ("--max_steps", "20", "--evaluation_strategy", "no", "--save_strategy", "no")
    options += ("--no-load_best_model_at_end", "--set", "data.dev=[]", "--set", "data.test=[]")
    nlpctl("train", str(QUICKSTART), "--output_dir", str(run), "--device", "cpu", *options)
    nlpctl("export", str(run), "-o", str(export), "--format", "onnx", "--precision", "fp32", "--device", "cpu")
    return export


def measure(folder: Path, export: Path, counts: list[int], workers: list[int]) -> list[Measured]:
    found = []
    for rows in counts:
        source, alone = folder / "input.txt", folder / "alone.jsonl"
        with source.open("w", encoding="utf-8") as stream:
            stream.writelines(f"{text}\n" for text, _ in reviews(rows))
        for count in (0, *workers):
            output = folder / "divided.jsonl" if count else alone
            words = ["predict", str(export), str(source), "-o", str(output), "--overwrite", "--threads", "1"]
            words += ["--engine", "onnxruntime", "--precision", "fp32"]
            found.append(watched(rows, count, [*words, *(["--workers", str(count)] if count else [])]))
            found[-1].same = cmp(output, alone, shallow=False)
    return found


def watched(rows: int, workers: int, words: list[str]) -> Measured:
    """Run nlpctl and sample it and its workers until it ends."""
    own, spent, memory, own_memory = 0.0, {}, {}, 0.0
    with tempfile.TemporaryFile() as messages:
        started = time.monotonic()
        child = subprocess.Popen((*NLPCTL, *words), env=environment(), stderr=messages)
        while child.poll() is None:
            for pid in processes_of(child.pid):
                spent[pid] = max(spent.get(pid, 0.0), processor_seconds(pid))
                memory[pid] = max(memory.get(pid, 0.0), high_water(pid))
            own, own_memory = max(own, processor_seconds(child.pid)), max(own_memory, high_water(child.pid))
            time.sleep(EVERY)
        seconds = time.monotonic() - started
        if child.returncode != 0:
            messages.seek(0)
            sys.exit(f"nlpctl {' '.join(words)} failed:\n{messages.read().decode()[-3000:]}")
    shared = (round(own, 2), round(sum(spent.values()), 2), round(own_memory), round(max(memory.values(), default=0)))
    return Measured(rows, workers, round(seconds, 1), *shared, same=False)


def processes_of(pid: int) -> list[int]:
    """The running worker processes of a command."""
    found = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = file.read_text().split()
            found += [int(each) for each in children if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes()]
        except OSError:  # it has just ended
            continue
    return found


def processor_seconds(pid: int) -> float:
    """User and system time of a process, without its children; 0 if it has just ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


if __name__ == "__main__":
    sys.exit(main())
