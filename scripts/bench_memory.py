"""Peak memory of `predict` and of streaming training, with a small input and with one of a million rows.

    python scripts/bench_memory.py                      # all of it; half an hour or more on 2 cores
    python scripts/bench_memory.py --only predict
    python scripts/bench_memory.py --rows 100000 --json

The model is the quickstart's. The input is synthetic: short reviews from the quickstart's characters. One row in four
ends in a new number, so word tables meet new words to the end. Training consumes the file once, with ten evaluations
and checkpoints. Every command is a new process. Its peak is the kernel's figure at its end (ru_maxrss, the largest
process if there are several). The resident memory of it and its children, read every second, shows whether it grows.
Exit 1 if the large input takes more than --allowed MB above the small one.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench_common import NLPCTL, ROOT, Table, conditions, conditions_line, environment, tell

from nlpctl import console

QUICKSTART = ROOT / "recipes" / "quickstart" / "quickstart.yaml"
LABELS = ("好评", "差评")
BATCH = 64
MB = 1024 * 1024


@dataclass(frozen=True)
class Row:
    """One command. Memory in MB; `course`: resident memory at each tenth of the run."""

    command: str
    rows: int
    seconds: float
    peak: float
    course: list[float]


def main() -> int:
    arguments = parse_arguments()
    if not QUICKSTART.is_file():
        console.warn(f"no quickstart recipe at {QUICKSTART}: run this from a checkout of the repository")
        return 2
    facts = conditions()
    console.note(conditions_line(facts))
    found: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="bench-memory-") as name:
        folder = Path(name)
        for job in ("predict", "train") if arguments.only is None else (arguments.only,):
            for rows in (arguments.small, arguments.rows):
                found.append(predict(folder, rows) if job == "predict" else train(folder, rows))
                console.note(f"{job}, {rows:,} rows: {found[-1].peak:.0f} MB, {found[-1].seconds:.0f} s")
    report(found, facts, arguments)
    return 0 if all(more <= arguments.allowed for more in differences(found).values()) else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the large input")
    parser.add_argument("--small", type=int, default=10_000, help="rows of the small input")
    parser.add_argument("--allowed", type=float, default=100.0, help="MB allowed above the small input")
    parser.add_argument("--only", choices=("predict", "train"))
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def predict(folder: Path, rows: int) -> Row:
    """Label a plain text file of `rows` lines."""
    run, source, output = folder / "model", folder / "input.txt", folder / "answers.jsonl"
    if not run.exists():  # the quality of the model does not matter
        options = ("--max_steps", "20", "--evaluation_strategy", "no", "--save_strategy", "no")
        options += ("--no-load_best_model_at_end", "--set", "data.dev=[]", "--set", "data.test=[]")
        nlpctl("train", str(QUICKSTART), "--output_dir", str(run), "--device", "cpu", *options)
    with source.open("w", encoding="utf-8") as stream:
        stream.writelines(f"{text}\n" for text, _ in reviews(rows))
    command = ("predict", str(run), str(source), "-o", str(output), "--overwrite", "--device", "cpu")
    row = nlpctl(*command, rows=rows)
    with output.open("rb") as stream:
        answers = sum(1 for _ in stream)
    if answers != rows:
        sys.exit(f"{rows} lines but {answers} answers")
    return row


def train(folder: Path, rows: int) -> Row:
    """Train for one epoch on a streamed tsv file of `rows` rows."""
    source, steps = folder / "train.tsv", rows // BATCH
    with source.open("w", encoding="utf-8") as stream:
        stream.write("text\tlabel\n")
        stream.writelines(f"{text}\t{label}\n" for text, label in reviews(rows))
    every = str(max(1, steps // 10))
    return nlpctl(
        "train", str(QUICKSTART), "--output_dir", str(folder / f"train-{rows}"), "--device", "cpu",
        "--set", f"data.train={source}", "--set", "data.streaming=true", "--set", f"data.labels=[{','.join(LABELS)}]",
        "--max_steps", str(steps), "--per_device_train_batch_size", str(BATCH),
        "--evaluation_strategy", "steps", "--eval_steps", every, "--save_strategy", "steps", "--save_steps", every,
        rows=rows,
    )  # fmt: skip


def reviews(count: int):
    """`count` pairs of a short text and a label, the same ones every time, one at a time."""
    lines = (QUICKSTART.parent / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]
    characters = sorted({character for line in lines for character in line.split("\t")[0]})
    draw = random.Random(0)
    for i in range(count):
        text = "".join(draw.choices(characters, k=draw.randint(4, 12)))
        yield (f"{text} {i}" if i % 4 == 0 else text), draw.choice(LABELS)


def nlpctl(*command: str, rows: int = 0) -> Row:
    """Run nlpctl and measure it. Its stderr goes to a file: a pipe nobody reads would stop it."""
    with tempfile.TemporaryFile() as messages:
        started = time.monotonic()
        child = subprocess.Popen((*NLPCTL, *command), env=environment(), stdout=subprocess.DEVNULL, stderr=messages)
        samples: list[float] = []
        over = threading.Event()
        watcher = threading.Thread(target=watch, args=(child.pid, samples, over))
        watcher.start()
        _, status, usage = os.wait4(child.pid, 0)
        over.set()
        watcher.join()
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            messages.seek(0)
            sys.exit(f"nlpctl {' '.join(command)} failed:\n{messages.read().decode()[-3000:]}")
    course = [round(samples[len(samples) * tenth // 10], 1) for tenth in range(10)]
    return Row(command[0], rows, round(time.monotonic() - started, 1), usage.ru_maxrss / 1024, [*course, samples[-1]])


def watch(pid: int, samples: list[float], over: threading.Event) -> None:
    """Append the resident memory of `pid` and its descendants, in MB, every second until `over`."""
    page = os.sysconf("SC_PAGE_SIZE")
    while True:
        samples.append(round(sum(resident_pages(each) for each in family(pid)) * page / MB, 1))
        if over.wait(1.0):
            return


def family(pid: int) -> list[int]:
    """`pid` and those of its descendants that still run."""
    found = [pid]
    for parent in found:
        try:
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text()
        except OSError:
            continue
        found += [int(child) for child in children.split()]
    return found


def resident_pages(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):  # it has just ended
        return 0


def differences(rows: Sequence[Row]) -> dict[str, float]:
    """MB that each command takes more with its large input."""
    return {
        small.command: round(large.peak - small.peak, 1) for small, large in zip(rows[::2], rows[1::2], strict=True)
    }


def report(rows: Sequence[Row], facts: dict[str, Any], arguments: argparse.Namespace) -> None:
    more = differences(rows)
    columns = ("command", "rows", "seconds", "peak", "more", "resident at 10, 30, 50, 70, 90 %")
    cells = [
        (row.command, f"{row.rows:,}", f"{row.seconds:.0f}", f"{row.peak:.0f}",
         f"{more[row.command]:+.0f}" if i % 2 else "", ", ".join(f"{row.course[t]:.0f}" for t in (1, 3, 5, 7, 9)))
        for i, row in enumerate(rows)
    ]  # fmt: skip
    runs = [asdict(row) for row in rows]
    table = Table("Peak memory, MB", columns, cells)
    tell(facts, [table], arguments.json, runs=runs, more=more, allowed=arguments.allowed)


if __name__ == "__main__":
    sys.exit(main())
