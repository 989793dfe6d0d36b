"""Start-up time of nlpctl commands that compute nothing, and a check that they import no heavy module.

    python scripts/bench_startup.py [--runs 10] [--json] [--export EXPORT [--engine onnxruntime ...]]

With --export, which comes last, also the time to the first answer: of `predict` with one text on standard input, and of
`serve` from its start. Neither may import PaddleNLP. Flags after EXPORT are passed on to both.

Measures the wall time of whole processes after one warm-up, their CPU time, which depends less on other load, and the
modules that must not be imported. For a profile: python -X importtime -m nlpctl --help
Exit 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from bench_common import NLPCTL, ROOT, Table, conditions, environment, middle_and_range, tell

HEAVY = ("paddle", "paddlenlp", "numpy", "tokenizers", "sklearn", "visualdl")
# The command and its target in seconds.
COMMANDS = (
    (("--help",), 0.3),
    (("train", "--help"), 0.5),
    (("recipe", "validate", "recipes/quickstart/quickstart.yaml"), 0.5),
    (("recipe", "ls"), 0.5),
)
TEXT = "a lovely film"
PREDICT, SERVE = 1.5, 3.0  # targets in seconds to the first answer of an export
PORT = 18765
PROBE = """
import sys
from nlpctl.cli.app import main
sys.argv = ["nlpctl", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    code = end.code
else:
    code = 0
heavy = sorted({name.partition(".")[0] for name in sys.modules} & set(%r))
print("code", code or 0, "heavy", *heavy, file=sys.stderr)
"""


@dataclass(frozen=True)
class Row:
    """One command; times in seconds."""

    command: str
    seconds: list[float]
    processor_seconds: list[float]
    target: float
    heavy_modules: list[str]

    @property
    def good(self) -> bool:
        return median(self.seconds) <= self.target and not self.heavy_modules


def main() -> int:
    arguments = parse_arguments()
    facts = conditions()
    rows = [measure(command, target, arguments.runs) for command, target in COMMANDS]
    bare = Row("python -c pass, for comparison", *timed((sys.executable, "-c", "pass"), arguments.runs), 0.0, [])
    if arguments.export:
        rows += first_answers(arguments.export, arguments.runs)
    report(rows, bare, facts, arguments.json)
    return 0 if all(row.good for row in rows) else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--export", nargs=argparse.REMAINDER, default=[], metavar="EXPORT [FLAG ...]")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def measure(command: tuple[str, ...], target: float, runs: int) -> Row:
    heavy = heavy_modules(command)  # also warms the file cache
    wall, processor = timed((*NLPCTL, *command), runs)
    return Row(" ".join(("nlpctl", *command)), wall, processor, target, heavy)


def first_answers(words: list[str], runs: int) -> list[Row]:
    """An export with its flags: the first answers of `predict` and `serve`."""
    words = [os.path.abspath(words[0]), *words[1:]]
    command = ("predict", *words)
    heavy = [name for name in heavy_modules(command, TEXT) if name == "paddlenlp"]
    told = " ".join(["EXPORT", *words[1:]])
    rows = [Row(f"echo TEXT | nlpctl predict {told}", *timed((*NLPCTL, *command), runs, TEXT), PREDICT, heavy)]
    served = [served_in(("serve", *words, "--port", str(PORT))) for _ in range(runs)]
    wall, processor = ([each[kind] for each in served] for kind in range(2))
    return [*rows, Row(f"nlpctl serve {told}, first answer", wall, processor, SERVE, [])]


def served_in(command: tuple[str, ...]) -> tuple[float, float]:
    """Wall and CPU seconds from the start of a service to its first answer."""
    body, url = json.dumps({"text": TEXT}).encode(), f"http://127.0.0.1:{PORT}/predict"
    started = time.perf_counter()
    process = subprocess.Popen([*NLPCTL, *command], env=environment(), cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            try:
                urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": "application/json"})).close()
                wall = time.perf_counter() - started
                with open(f"/proc/{process.pid}/stat", encoding="utf-8") as stream:
                    ticks = stream.read().rpartition(")")[2].split()[11:15]
                return wall, sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.01)
        sys.exit(f"nlpctl {' '.join(command)} ended with {process.returncode}")
    finally:
        process.terminate()
        process.wait()


def timed(command: tuple[str, ...], runs: int, stdin: str = "") -> tuple[list[float], list[float]]:
    """Wall and CPU seconds of each run."""
    wall, processor = [], []
    for _ in range(runs):
        started, before = time.perf_counter(), os.times()
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL if stdin else None}
        subprocess.run(command, env=environment(), cwd=ROOT, input=stdin.encode(), check=True, **quiet)
        ended, after = time.perf_counter(), os.times()
        wall.append(ended - started)
        processor.append(
            after.children_user - before.children_user + after.children_system - before.children_system
        )
    return wall, processor


def heavy_modules(command: tuple[str, ...], stdin: str = "") -> list[str]:
    """Which of HEAVY the command has imported when it ends."""
    probe = (sys.executable, "-c", PROBE % (HEAVY,), *command)
    done = subprocess.run(probe, env=environment(), cwd=ROOT, capture_output=True, text=True, input=stdin)
    words = done.stderr.split("\n")[-2].split() if done.stderr else []
    if words[:3] != ["code", "0", "heavy"]:
        sys.exit(f"nlpctl {' '.join(command)} failed:\n{done.stderr}")
    return words[3:]


def report(rows: list[Row], bare: Row, facts: dict[str, Any], as_json: bool) -> None:
    cells = [
        (f"`{row.command}`", middle_and_range(row.seconds, 3), middle_and_range(row.processor_seconds, 2),
         "-" if row is bare else row.target, ", ".join(row.heavy_modules) or "none")
        for row in (*rows, bare)
    ]  # fmt: skip
    title = f"Seconds, median (range) of {len(bare.seconds)} runs"
    found = [{**asdict(row), "median": median(row.seconds), "good": row.good} for row in rows]
    table = Table(title, ("command", "wall", "processor", "target", "heavy modules"), cells)
    tell(facts, [table], as_json, bare_python=asdict(bare), commands=found)


if __name__ == "__main__":
    sys.exit(main())
