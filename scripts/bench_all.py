"""Runs benchmarks one after the other on an idle machine and puts their tables into docs/benchmarks.md.

    python scripts/bench_all.py --torch-python VENV/bin/python     # all; scripts/bench_all.sh makes VENV
    python scripts/bench_all.py startup serve                      # these alone
    python scripts/bench_all.py --write                            # measure nothing, only write the tables again

Each benchmark is its own script, called with --json. What it prints is kept in docs/benchmarks/NAME.json, with the
commit, the processor and the load; the tables between <!-- NAME --> and <!-- /NAME --> in docs/benchmarks.md are made
from that file, so no figure there was typed. A benchmark that fails leaves its file as it was; the others still run.

Exit 1 if one failed, missed a target or found the machine busy, 2 if the machine is not idle at the start.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_common import DATA, NLPCTL, PAGE, RESULTS, ROOT, conditions_line, environment

from nlpctl import console
from nlpctl.files import write_json_atomic, write_text_atomic
from nlpctl.runtime.machine import CpuInfo, cpu_info

SST2 = DATA / "sst2"
RECIPE = ROOT / "recipes" / "sentiment" / "sst2_minilm.yaml"
IDLE = 0.05  # share of all cores that others may use
LOOK = 3.0  # seconds
# A result for each kind of processor:
BY_PROCESSOR = ("train", "train_wide", "encoder_scores", "encoder_speeds", "inference", "inference_wide")
KINDS = ("zen3", "zen4", "zen5", "vnni", "without_vnni")
MISSED = 1  # exit code of a benchmark that measured, and missed a target; one that failed prints no result


class Needs:
    """What benchmarks are given, made when one asks for it, unless a former call has: training takes minutes.

    `torch`: the flag that names a Python with PyTorch, if there is one.
    """

    def __init__(self, folder: Path, torch: str | None):
        self.torch = ["--torch-python", torch] if torch else []
        self._folder = folder
        shown = {"sst2_minilm": "RUN", "export": "EXPORT", "texts.txt": "TEXTS", "e5-hf": "E5"}
        self._names = {str(folder / name): word for name, word in shown.items()}

    @property
    def run(self) -> Path:
        """MiniLM trained on SST-2."""
        run = self._folder / "sst2_minilm"
        if not (run / "metrics.json").is_file():
            resumed = ["--resume"] if run.is_dir() else []
            nlpctl("train", str(RECIPE), "--device", "cpu", "--output_dir", str(run), *resumed)
        return run

    @property
    def export(self) -> Path:
        """Its export."""
        export = self._folder / "export"
        if not export.is_dir():
            nlpctl("export", str(self.run), "-o", str(export), "--precision", "fp32,int8", "--device", "cpu")
        return export

    @property
    def encoder(self) -> Path:
        """multilingual-e5-small."""
        encoder = self._folder / "e5-hf"
        if not encoder.is_dir():
            raise FileNotFoundError(f"{encoder}: scripts/make_e5.py {self._folder} makes it")
        return encoder

    @property
    def texts(self) -> Path:
        """A file with a sentence per line."""
        texts = self._folder / "texts.txt"
        if not texts.is_file():
            rows = (SST2 / "test.tsv").read_text(encoding="utf-8").splitlines()
            place = rows[0].split("\t").index("text")
            write_text_atomic(texts, "".join(f"{row.split(chr(9))[place]}\n" for row in rows[1:]))
        return texts

    def short(self, word: str) -> str:
        """An argument as a reader would give it."""
        return "VENV/bin/python" if word in self.torch[1:] else self._names.get(word, word)


Words = Callable[[Needs], list[str]]

# Name of the benchmark (scripts/bench_NAME.py, unless the words say otherwise) and its arguments.
BENCHMARKS: dict[str, Words] = {
    "startup": lambda needs: ["bench_startup.py", "--json", "--export", str(needs.export)],
    "tokenize": lambda needs: ["bench_tokenize.py", "--json"],
    "train": lambda needs: ["bench_train.py", "--only", "loop", "--json", *needs.torch],
    "train_wide": lambda needs: [
        "bench_train.py", "--only", "wide", "--rounds", "2", "--steps", "10", "--json", *needs.torch,
    ],
    "encoder_scores": lambda needs: [
        "bench_encoder.py", "--model", str(needs.encoder), "--only", "scores", "--json", *needs.torch,
    ],
    "encoder_speeds": lambda needs: [
        "bench_encoder.py", "--model", str(needs.encoder), "--only", "speeds", "--json", *needs.torch,
    ],
    "inference": lambda needs: ["bench_inference.py", str(needs.run), "--only", "small", "--json", *needs.torch],
    "inference_wide": lambda needs: ["bench_inference.py", str(needs.run), "--only", "wide", "--json", *needs.torch],
    "serve": lambda needs: ["bench_serve.py", str(needs.export), str(needs.texts), "--json"],
    "serve_int8": lambda needs: [
        "bench_serve.py", str(needs.export), str(needs.texts), "--precision", "int8", "--json",
    ],
    "lac": lambda needs: ["bench_lac.py", "--json"],
    "divided": lambda needs: ["bench_divided.py", "--json"],
    "predict": lambda needs: ["bench_predict.py", "--engine", "paddle", "--json"],
    "memory": lambda needs: ["bench_memory.py", "--json"],
}  # fmt: skip


def main() -> int:
    given = options()
    if given.write:
        write_page()
        return 0
    if not given.busy and too_busy(busy_share(LOOK)):
        return 2
    given.folder.mkdir(parents=True, exist_ok=True)
    needs = Needs(given.folder.resolve(), given.torch_python)
    failed = [name for name in given.names if not measure(name, needs, given.busy)]
    write_page()
    if failed:
        console.warn(f"failed, or missed a target: {', '.join(failed)}")
    return int(bool(failed))


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(BENCHMARKS), metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--torch-python", help="a Python with torch, transformers and accelerate, to compare with")
    parser.add_argument("--folder", type=Path, default=Path("outputs/bench_all"), help="what is trained and exported")
    parser.add_argument("--busy", action="store_true", help="measure although others use the machine")
    parser.add_argument("--write", action="store_true", help="measure nothing; write the tables into the page again")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    return given


def too_busy(busy: float) -> bool:
    """Whether others use too much of the machine, and tell so."""
    if busy > IDLE:
        console.error(f"other processes use {busy:.0%} of this machine: speeds would be wrong")
        console.note(f"wait until it is idle (below {IDLE:.0%}), or measure anyway with --busy")
    return busy > IDLE


def busy_share(seconds: float) -> float:
    """The share of all cores that was in use during `seconds`, of the kernel's counters."""
    first = cpu_times()
    time.sleep(seconds)
    spent = [after - before for before, after in zip(first, cpu_times(), strict=True)]
    return 1 - (spent[3] + spent[4]) / sum(spent)  # idle, and waiting for a disk


def cpu_times() -> list[int]:
    return [int(each) for each in Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0].split()[1:9]]


def nlpctl(*words: str) -> None:
    subprocess.run([*NLPCTL, *words], env={"SST2_DIR": str(SST2), **environment()}, cwd=ROOT, check=True)


def measure(name: str, needs: Needs, anyway: bool) -> bool:
    """Run one benchmark and keep what it printed, unless it failed; whether it met its targets.

    `anyway`: also on a busy machine.
    """
    try:
        script, *words = BENCHMARKS[name](needs)
    except (subprocess.CalledProcessError, OSError) as error:
        console.warn(f"what {name} needs cannot be made: {error}")
        return False
    busy = busy_share(LOOK)
    if not anyway and too_busy(busy):
        return False
    shown = f"python scripts/{script} {' '.join(needs.short(word) for word in words)}"
    console.note(f"\n{shown}")
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / script), *words], env=environment(), stdout=subprocess.PIPE, text=True
    )
    try:
        found = json.loads(done.stdout) if done.returncode in (0, MISSED) else None
    except json.JSONDecodeError:
        found = None
    if found is None:
        console.warn(f"{name} ended with {done.returncode} and printed no result")
        return False
    minutes = round((time.monotonic() - started) / 60, 1)
    RESULTS.mkdir(exist_ok=True)
    name += f"_{kind(cpu_info())}" if name in BY_PROCESSOR else ""
    write_json_atomic(RESULTS / f"{name}.json", {"command": shown, "minutes": minutes, "busy": round(busy, 3), **found})
    return done.returncode == 0


def kind(cpu: CpuInfo) -> str:
    """One of KINDS, whose processors have like ratios between engines: the design if it is AMD's Zen, or VNNI."""
    if cpu.is_amd and cpu.family == "26":
        return "zen5"
    if cpu.is_amd and cpu.family == "25":
        return "zen4" if cpu.computes("int8") else "zen3"
    return "vnni" if cpu.computes("int8") else "without_vnni"


def benchmark_of(name: str) -> str:
    """The benchmark of a result: its name without the kind of processor."""
    # Of "vnni" and "without_vnni" the longer one, which leaves the shorter name.
    return min((name.removesuffix(f"_{each}") for each in KINDS), key=len)


def write_page() -> None:
    """Put the tables of all results into the page."""
    page = PAGE.read_text(encoding="utf-8")
    for file in sorted(RESULTS.glob("*.json")):
        page = with_tables(page, file.stem, json.loads(file.read_text(encoding="utf-8")))
    write_text_atomic(PAGE, page)


def with_tables(page: str, name: str, found: dict[str, Any]) -> str:
    """`page` with what stands between the marks of `name` replaced; a further kind of processor follows the others.

    ValueError where it has no such marks.
    """
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    others = list(re.finditer(rf"<!-- /{benchmark_of(name)}_({'|'.join(KINDS)}) -->\n", page))
    if begin not in page and others:
        place = others[-1].end()
        page = f"{page[:place]}\n{begin}{end}{page[place:]}"
    before, _, rest = page.partition(begin)
    _, mark, after = rest.partition(end)
    if not mark:
        raise ValueError(f"{PAGE} has no place for {name}: {begin.strip()} and {end.strip()}")
    return f"{before}{begin}{markdown(found)}{end}{after}"


def markdown(found: dict[str, Any]) -> str:
    """The tables of one benchmark, with the command and its conditions."""
    busy = f"; other processes used {found['busy']:.0%} of the machine" if found["busy"] > IDLE else ""
    parts = [f"`{found['command']}`, {found['minutes']:g} minutes. {conditions_line(found['conditions'])}{busy}.\n"]
    for table in found["tables"]:
        rows = [table["columns"], ["---"] * len(table["columns"]), *table["rows"]]
        parts.append(f"{table['title']}:\n")
        parts.append("".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n" for row in rows))
        if table["notes"]:
            parts.append("".join(f"- {note}\n" for note in table["notes"]))
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
