"""Run everything that docs/gpu.md lists on this machine's card, and write one report; scripts/check_gpu.sh starts it.

    python scripts/check_gpu.py [--device gpu] [--output outputs/check_gpu] [--minutes 15] [--epochs 10]
                                [--only NAME,...] [--torch-python VENV/bin/python]

Every step has a time limit, and none keeps another from running. What a machine cannot do (one card, a package that is
not installed) is left out, with the reason. `--device cpu` runs stand-ins for what needs a card. report.md and
report.json tell versions, cards, and per step whether it passed, how long it took and what it found; logs/ has the
output of every command. Exits 1 if a step failed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench_common import NLPCTL, ROOT, environment
from check_gpu_report import Outcome, machine, write

from nlpctl.report.model import Table
from nlpctl.report.text import aligned
from nlpctl.runtime.device import ask_driver, usable_gpu
from nlpctl.runtime.versions import engine_versions

RECIPE = ROOT / "recipes" / "quickstart" / "quickstart.yaml"
TEXTS = ROOT / "recipes" / "quickstart" / "test.tsv"
POINTS = 0.03  # by which scores of two trainings may differ: 2 points, and one for half precision
MEMORY_MB, LARGE_BATCH = 1000, 1500
ORT_GPU = "onnxruntime-gpu==1.18.1"  # the newest on PyPI for CUDA 11.8 and cuDNN 8
# Steps, so that a run of one epoch has a checkpoint to be resumed from.
EVERY = "--save_strategy steps --save_steps 50 --evaluation_strategy steps --eval_steps 50".split()
DETERMINISTIC = ("--set", "runtime.deterministic=true", *EVERY)
READY = re.compile(r"^serving .* on http://(\S+) \(", re.MULTILINE)  # what serve says when it answers
SHOWN = 12  # last lines of a failing command, in the report


class LeftOut(Exception):
    """This machine cannot do it; the message says why."""


class Failed(Exception):
    """It did not work as it should; the message says what."""


class Bench:
    """The folder of a check, and the commands that it runs."""

    def __init__(self, arguments: argparse.Namespace):
        self.device: str = arguments.device
        self.on_card = self.device == "gpu"
        self.epochs: int = arguments.epochs
        self.torch_python: str | None = arguments.torch_python
        self.folder: Path = arguments.output.absolute()
        self.logs = self.folder / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.cards = usable_gpu().count if self.on_card else 0
        self.ends = time.monotonic() + 60 * arguments.minutes
        self.machine = machine(self.on_card)
        self.limit = 0.0  # when the step that runs now must be over

    def nlpctl(self, *words: str | Path, code: int = 0, device: str | None = None) -> str:
        """What a command prints. Failed unless it ends with `code`."""
        return self.run([*NLPCTL, *map(str, words), "--device", device or self.device], code)

    def run(self, command: Sequence[str], code: int = 0) -> str:
        with self.started(command) as process:
            try:
                output = process.communicate(timeout=max(1.0, self.limit - time.monotonic()))[0]
            except subprocess.TimeoutExpired:
                raise Failed(f"no end within the time of this step: {' '.join(command[1:])}") from None
        if process.returncode != code:
            raise Failed(f"{' '.join(command[1:])} ended with {process.returncode}, not {code}\n{self.last_lines()}")
        return output

    @contextmanager
    def started(self, command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
        """A command in a process group of its own, of which nothing is left behind."""
        with (self.logs / f"{self.step}.log").open("a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(command)}\n")
            log.flush()
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
            try:
                yield process
            finally:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.wait()

    def last_lines(self) -> str:
        lines = (self.logs / f"{self.step}.log").read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-SHOWN:])

    def begin(self, step: str, seconds: float) -> None:
        self.step, self.limit = step, min(self.ends, time.monotonic() + seconds)

    # -- what several steps use ----------------------------------------------------------------

    def train(self, name: str, *words: str, code: int = 0, device: str | None = None) -> dict[str, float]:
        """The scores of a run of the quickstart on dev and test, by split; {} if it should fail."""
        run = self.folder / name
        epochs = ("--num_train_epochs", str(self.epochs))
        overwrite = () if "--resume" in words else ("--overwrite",)
        self.nlpctl("train", RECIPE, "--output_dir", run, *epochs, *overwrite, *words, code=code, device=device)
        if code:
            return {}
        scores = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
        return {split: scores[split]["accuracy"] for split in ("dev", "test")}

    def needed(self, name: str) -> Path:
        """The folder that an earlier step made. LeftOut without it."""
        path = self.folder / name
        if not path.is_dir():
            raise LeftOut(f"{name} is missing: the step that makes it failed, or was not run")
        return path

    def weights(self, name: str) -> dict[str, str]:
        """SHA-256 of the weights of a run, by file."""
        files = sorted((self.needed(name) / "model").glob("model_state.*"))
        return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}

    def same_weights(self, one: str, other: str) -> dict[str, Any]:
        if not self.weights(one) or self.weights(one) != self.weights(other):
            raise Failed(f"the weights of {one} and {other} differ")
        return {"sha256": self.weights(one)}

    def answers(self, name: str, *words: str) -> list[dict[str, Any]]:
        """The answers to the texts of the quickstart's test split."""
        out = self.folder / f"{self.step}.jsonl"
        self.nlpctl("predict", self.needed(name), TEXTS, "-o", out, "--overwrite", *words)
        return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]

    def agreement(self, *words: str) -> dict[str, Any]:
        """How many answers of the export are those of the network on this device. Failed below 98 %."""
        expected, given = self.answers("gpu"), self.answers("export", *words)
        same = sum(one["label"] == other["label"] for one, other in zip(expected, given, strict=True))
        if same < 0.98 * len(expected):
            raise Failed(f"only {same} of {len(expected)} answers are those of the network")
        return {"rows": len(expected), "same": same}


def near(found: dict[str, float], expected: dict[str, float]) -> dict[str, Any]:
    """Both, if they differ by at most POINTS. Failed else."""
    far = [split for split in found if abs(found[split] - expected[split]) > POINTS]
    if far:
        raise Failed(f"scores differ by more than {POINTS:.0%}: {found} against {expected}")
    return {"scores": found, "expected": expected}


# -- the steps, in this order --------------------------------------------------------------------


def doctor(bench: Bench) -> dict[str, Any]:
    answer = json.loads(bench.run([*NLPCTL, "doctor", "--json"]))
    checks = answer["result"]["checks"]
    return {check["name"]: check["detail"] for check in checks if check["status"] != "ok" or "CUDA" in check["name"]}


def train(bench: Bench) -> dict[str, Any]:
    on_card = bench.train("gpu")
    return near(on_card, bench.train("cpu", device="cpu"))


def determinism(bench: Bench) -> dict[str, Any]:
    for name in ("same_1", "same_2"):
        bench.train(name, *DETERMINISTIC)
    return bench.same_weights("same_1", "same_2")


def half_precision(name: str) -> Callable[[Bench], dict[str, Any]]:
    def run(bench: Bench) -> dict[str, Any]:
        if not bench.on_card:  # refused there, which is what this step finds
            return bench.train(name, f"--{name}", code=2) or {"refused on the CPU": True}
        if name == "bf16" and min(ask_driver(os.environ).capabilities) < (8, 0):
            raise LeftOut("bf16 needs compute capability 8.0")
        return near(bench.train(name, f"--{name}"), scores_of(bench, "gpu"))

    return run


def two_cards(bench: Bench) -> dict[str, Any]:
    if bench.on_card and bench.cards < 2:
        raise LeftOut("there is one card")
    words = ("--devices", "0,1") if bench.on_card else ("--nproc", "2")
    scores = bench.train("two_cards", *words, "--per_device_train_batch_size", "16")
    logs = sorted(path.name for path in (bench.folder / "two_cards" / "logs").iterdir())
    if not {"rank-0.log", "rank-1.log"} <= set(logs):
        raise Failed(f"no log per process: {logs}")
    return near(scores, scores_of(bench, "gpu"))


def resume(bench: Bench) -> dict[str, Any]:
    """Interrupted once it has a checkpoint, and resumed: the weights of the uninterrupted deterministic run."""
    run = bench.folder / "stopped"
    shutil.rmtree(run, ignore_errors=True)
    more = ["--num_train_epochs", str(bench.epochs), "--device", bench.device, *DETERMINISTIC]
    with bench.started([*NLPCTL, "train", str(RECIPE), "--output_dir", str(run), *more]) as process:
        while process.poll() is None and not any(run.glob("checkpoints/checkpoint-*")):
            if time.monotonic() > bench.limit:
                raise Failed("no checkpoint within the time of this step")
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        code = process.wait()
    stopped = code == 130
    if stopped:
        bench.train("stopped", *DETERMINISTIC, "--resume")
    elif code != 0:
        raise Failed(f"the interrupted run ended with {code}\n{bench.last_lines()}")
    return {"interrupted": stopped, **bench.same_weights("same_1", "stopped")}


def out_of_memory(bench: Bench) -> dict[str, Any]:
    if not bench.on_card:
        raise LeftOut("a CPU has no FLAGS_gpu_memory_limit_mb")
    limit = f"runtime.flags.FLAGS_gpu_memory_limit_mb={MEMORY_MB}"
    large = ("--per_device_train_batch_size", str(LARGE_BATCH), "--max_steps", "4", "--set", limit)
    bench.train("little_memory", *large)
    log = (bench.folder / "little_memory" / "events.jsonl").read_text(encoding="utf-8")
    incidents = [event for event in map(json.loads, log.splitlines()) if event["event"] == "out_of_memory"]
    if not incidents:
        raise Failed(f"nothing ran out of memory: {LARGE_BATCH} rows fit into {MEMORY_MB} MB")
    return {"incidents": incidents}


def export(bench: Bench) -> dict[str, Any]:
    """Every graph is compared with the network on this device."""
    words = ("-o", bench.folder / "export", "--precision", "fp32,fp16", "--overwrite")
    bench.nlpctl("export", bench.needed("gpu"), *words)
    report = json.loads((bench.folder / "export" / "report.json").read_text(encoding="utf-8"))
    told = ("engine", "precision", "largest_difference", "agreement")
    checks = [
        {"file": graph["files"][0], **{key: check[key] for key in told}}
        for graph in report["graphs"]
        for check in graph["checks"]
    ]
    return {"checks": checks, "refused": report["refused"]}


def paddle_fp16(bench: Bench) -> dict[str, Any]:
    return bench.agreement("--engine", "paddle", "--precision", "fp16" if bench.on_card else "fp32")


def tensorrt(bench: Bench) -> dict[str, Any]:
    """Rows of many lengths, so that its shapes are dynamic."""
    if not bench.on_card:
        words = ("predict", bench.needed("export"), TEXTS, "--set", "inference.tensorrt=true")
        bench.nlpctl(*words, code=2)
        return {"refused on the CPU": True}
    found = {}
    for precision in ("fp32", "fp16"):
        words = ("--engine", "paddle", "--precision", precision, "--set", "inference.tensorrt=true")
        found[precision] = bench.agreement(*words)
    return found


def onnx_runtime(precision: str) -> Callable[[Bench], dict[str, Any]]:
    def run(bench: Bench) -> dict[str, Any]:
        words = ("--engine", "onnxruntime", "--precision", precision)
        if bench.on_card and "onnxruntime-gpu" not in engine_versions():
            raise LeftOut(f"onnxruntime has no CUDA: pip uninstall -y onnxruntime && pip install '{ORT_GPU}'")
        if not bench.on_card and precision == "fp16":
            bench.nlpctl("predict", bench.needed("export"), TEXTS, *words, code=2)
            return {"refused on the CPU": True}
        return bench.agreement(*words)

    return run


def compress(bench: Bench) -> dict[str, Any]:
    """A table of candidates, scored and timed on this device."""
    output = bench.folder / "compressed"
    shutil.rmtree(output, ignore_errors=True)
    strategy = "dynabert" if bench.on_card else "ort-dynamic"
    short = ("--num_train_epochs", "1") if bench.on_card else ()
    bench.nlpctl("compress", bench.needed("gpu"), "-o", output, "--strategy", strategy, "--budget", "3m", *short)
    return {"table": (output / "report.md").read_text(encoding="utf-8")}


def bench_here(bench: Bench) -> dict[str, Any]:
    words = ("--rounds", "2", *(() if bench.on_card else ("--rows", "32")))
    answer = bench.nlpctl("bench", bench.needed("gpu"), bench.needed("export"), "--json", *words)
    return {"bench": json.loads(answer)["result"]}


def against_pytorch(bench: Bench) -> dict[str, Any]:
    """The same encoder in Paddle and in PyTorch, in turns."""
    script = str(ROOT / "scripts" / "bench_loops" / "encoder.py")
    words = ["--device", bench.device, *([] if bench.on_card else ["--layers", "2", "--hidden", "128", "--steps", "3"])]
    pythons = {"paddle": sys.executable, "torch": bench.torch_python or sys.executable}
    found: dict[str, list[Any]] = {library: [] for library in pythons}
    for _ in range(2):
        for library, python in pythons.items():
            if library == "torch" and subprocess.run([python, "-c", "import torch"], capture_output=True).returncode:
                continue
            found[library].append(json.loads(bench.run([python, script, library, *words]).splitlines()[-1]))
    if not found["torch"]:
        found["torch"] = [f"{pythons['torch']} has no PyTorch: --torch-python names one that has"]
    return found


def serve(bench: Bench) -> dict[str, Any]:
    """A service on this device gives the answers of predict, and stops when it is told to."""
    expected = bench.answers("export")
    command = [*NLPCTL, "serve", str(bench.needed("export")), "--port", "0", "--device", bench.device]
    with bench.started(command) as process:
        log = bench.logs / f"{bench.step}.log"
        while (ready := READY.search(log.read_text(encoding="utf-8").rpartition("$ ")[2])) is None:
            if process.poll() is not None or time.monotonic() > bench.limit:
                raise Failed(f"the service did not start\n{bench.last_lines()}")
            time.sleep(0.1)
        texts = [line.split("\t")[0] for line in TEXTS.read_text(encoding="utf-8").splitlines()[1:33]]
        body = json.dumps([{"text": text} for text in texts]).encode()
        request = urllib.request.Request(f"http://{ready[1]}/predict", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            given = json.load(answer)
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=30)
    labels = [row["label"] for row in given]
    if labels != [row["label"] for row in expected[: len(labels)]]:
        raise Failed("the service answers otherwise than predict")
    if code:
        raise Failed(f"the service ended with {code}")
    return {"rows": len(labels)}


def scores_of(bench: Bench, name: str) -> dict[str, float]:
    scores = json.loads((bench.needed(name) / "metrics.json").read_text(encoding="utf-8"))
    return {split: scores[split]["accuracy"] for split in ("dev", "test")}


STEPS: dict[str, tuple[Callable[[Bench], dict[str, Any]], int]] = {  # name: what to do, and the most seconds for it
    "doctor": (doctor, 120),
    "train": (train, 240),
    "determinism": (determinism, 120),
    "fp16": (half_precision("fp16"), 90),
    "bf16": (half_precision("bf16"), 90),
    "two cards": (two_cards, 120),
    "resume": (resume, 120),
    "out of memory": (out_of_memory, 90),
    "export": (export, 120),
    "paddle fp16": (paddle_fp16, 60),
    "tensorrt": (tensorrt, 180),
    "onnx runtime fp32": (onnx_runtime("fp32"), 60),
    "onnx runtime fp16": (onnx_runtime("fp16"), 60),
    "serve": (serve, 90),
    "bench": (bench_here, 120),
    "against pytorch": (against_pytorch, 120),
    "compress": (compress, 240),
}


def check(bench: Bench, names: Sequence[str]) -> list[Outcome]:
    outcomes = []
    for name in names:
        run, seconds = STEPS[name]
        started = time.monotonic()
        bench.begin(name.replace(" ", "_"), seconds if bench.on_card else 4 * seconds)  # they are chosen for cards
        outcome = Outcome(name, "passed", 0.0)
        try:
            if started >= bench.ends:
                raise LeftOut("the time of the check was over: --minutes")
            outcome.found = run(bench)
        except LeftOut as reason:
            outcome.status, outcome.reason = "left out", str(reason)
        except Failed as reason:
            outcome.status, outcome.reason = "failed", str(reason)
        except Exception:
            outcome.status, outcome.reason = "failed", traceback.format_exc()
        outcome.seconds = round(time.monotonic() - started, 1)
        print(f"{outcome.status:9}{name} ({outcome.seconds:.0f} s) {outcome.reason.partition(chr(10))[0]}", flush=True)
        outcomes.append(outcome)
        write(bench.folder, bench.device, bench.machine, outcomes)  # so that a machine that dies leaves what was found
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--output", type=Path, default=Path("outputs/check_gpu"))
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--only", default="", help=f"of {', '.join(STEPS)}")
    parser.add_argument("--torch-python", help="a Python with PyTorch")
    arguments = parser.parse_args()
    names = [name.strip() for name in arguments.only.split(",") if name.strip()] or list(STEPS)
    unknown = [name for name in names if name not in STEPS]
    if unknown:
        parser.error(f"there is no step {unknown[0]!r}, but {', '.join(STEPS)}")
    bench = Bench(arguments)
    outcomes = check(bench, names)
    counts = {status: sum(each.status == status for each in outcomes) for status in ("passed", "failed", "left out")}
    print(aligned(Table(list(counts), [list(counts.values())])))
    print(bench.folder / "report.md")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
