"""Check that a run that was killed and resumed ends with the same bits as an uninterrupted one.

    python scripts/check_resume.py [--trials 10] [--seed 0] [--folder FOLDER]

Each trial trains a tiny network with dropout, kills it one to three times with SIGKILL, resumes it, and compares
weights, optimizer, scheduler, trainer state, scores and events with those of an uninterrupted run, bit by bit.
The kills come at random moments (before the first step too), right at the end of an epoch, and while a checkpoint
is being written. Prints a table; exits 1 on any difference.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ROWS, BATCH, EPOCHS = 203, 8, 3  # 26 updates per epoch, the last one of 3 rows
UPDATES = -(-ROWS // BATCH)
STEPS = UPDATES * EPOCHS
CLOCKS = ("interval_samples_per_second", "eval_runtime", "eval_samples_per_second", "eval_steps_per_second", "time")

RECIPE = """\
task: sequence_classification
model:
  from_scratch: {vocab_size: 300, min_frequency: 1, hidden_size: 32, num_hidden_layers: 2, intermediate_size: 64}
  config: {hidden_dropout_prob: 0.2, attention_probs_dropout_prob: 0.1}
data: {train: train.tsv, dev: dev.tsv, max_seq_length: 24}
training:
  learning_rate: 5e-3
  warmup_ratio: 0.1
  weight_decay: 0.01
  num_train_epochs: 3
  per_device_train_batch_size: 8
  logging_steps: 1
  save_total_limit: 3
runtime: {device: cpu}
"""
VARIANTS = {
    # Checkpoints within epochs; 26 is not a multiple of 3.
    "steps": "--save_strategy steps --save_steps 3 --evaluation_strategy no",
    # Checkpoints at the ends of epochs, the best of them kept.
    "epoch": "--save_strategy epoch --evaluation_strategy epoch --load_best_model_at_end --metric_for_best_model loss",
    # Both combined, with accumulation 2, ended within an epoch.
    "accumulate": "--save_strategy steps --save_steps 2 --evaluation_strategy steps --eval_steps 2 --max_steps 61 "
    "--load_best_model_at_end --metric_for_best_model loss --gradient_accumulation_steps 2 "
    "--per_device_train_batch_size 4",
}


@dataclass(frozen=True)
class Moment:
    """When to kill: once step `after` is logged, then `kind` says what to wait for; `delay` in seconds follows."""

    kind: str  # "random", "epoch end" or "save"
    after: int
    delay: float


@dataclass(frozen=True)
class Kill:
    """State at one kill: the last logged step, files of an unfinished checkpoint, the checkpoint to resume from."""

    moment: Moment
    step: int
    unfinished_files: int | None  # None: no checkpoint was being written
    resumes_from: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="seed for choosing the moments")
    parser.add_argument("--folder", type=Path, help="working folder; default: a temporary folder")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="check-resume-"))
    folder.mkdir(parents=True, exist_ok=True)
    write_data(folder)
    trials = list(plan(options.trials, random.Random(options.seed)))
    for variant in {variant for variant, _ in trials}:
        finish(start(folder, variant, f"reference-{variant}"))
    results = []
    for number, (variant, moments) in enumerate(trials, start=1):
        kills = run_trial(folder, variant, f"trial-{number}", moments)
        differences = compare(folder / f"reference-{variant}", folder / f"trial-{number}")
        results.append((number, variant, kills, differences))
        print(f"trial {number}: {'identical' if not differences else differences}", file=sys.stderr, flush=True)
    print_table(results)
    if options.folder is None:
        shutil.rmtree(folder)
    wrong = sum(bool(differences) for _, _, _, differences in results)
    saves = sum(kill.unfinished_files is not None for _, _, kills, _ in results for kill in kills)
    total = sum(len(kills) for _, _, kills, _ in results)
    print(f"{len(results)} trials, {total} kills, {saves} of them during a save; {wrong} trials differ")
    return 1 if wrong else 0


def plan(trials: int, chance: random.Random) -> Iterator[tuple[str, list[Moment]]]:
    """Variant and moments of each trial; the first kinds alternate so that few trials meet all of them."""
    variants = list(VARIANTS)
    for number in range(trials):
        variant = variants[number % len(variants)]
        last = 61 if variant == "accumulate" else STEPS
        moments, after = [], 0
        for i in range(chance.randint(1, 3)):
            kind = ("save", "random", "epoch end")[(number // len(variants) + number + i) % 3]
            after = chance.randint(after, max(after, last - 4))
            if kind == "random" and i == 0 and chance.random() < 0.5:
                after = 0  # in the start-up
            elif kind == "epoch end":
                after = min(-(-max(after, 1) // UPDATES) * UPDATES, UPDATES * (EPOCHS - 1))
            elif kind == "save" and variant == "epoch":
                after = min(after, last - UPDATES)  # at least one more checkpoint comes
            moments.append(Moment(kind, after, chance.random() * 0.03))
        yield variant, moments


def run_trial(folder: Path, variant: str, name: str, moments: list[Moment]) -> list[Kill]:
    """Train to the end, killed at each moment and resumed. A moment that is already past is skipped."""
    kills: list[Kill] = []
    for moment in moments:
        run = folder / name
        before = events_file_id(run)
        process = start(folder, variant, name, resume=bool(kills))
        if not kill_at(process, run, moment, before):
            return kills
        unfinished = list(run.glob("checkpoints/.staging-checkpoint-*"))
        files = len(list(unfinished[0].iterdir())) if unfinished else None
        kills.append(Kill(moment, last_step(run), files, newest_checkpoint(run)))
    finish(start(folder, variant, name, resume=True))
    return kills


def start(folder: Path, variant: str, name: str, resume: bool = False) -> subprocess.Popen[str]:
    words = ["train", "recipe.yaml", "--set", f"training.output_dir={name}", *VARIANTS[variant].split()]
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-m", "nlpctl", *words, *(["--resume"] if resume else [])],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> None:
    error = process.communicate()[1]
    if process.returncode != 0:
        raise SystemExit(f"nlpctl train ended with {process.returncode}:\n{error}")


def kill_at(process: subprocess.Popen[str], run: Path, moment: Moment, before: int | None) -> bool:
    """SIGKILL at `moment`; False where the run ended before. A resumed run begins with new events.jsonl: not `before`.

    Without that the events and the unfinished checkpoint of its predecessor would be taken for its own.
    """
    in_start_up = moment.kind == "random" and moment.after == 0
    while not in_start_up and (events_file_id(run) == before or last_step(run) < moment.after):
        if process.poll() is not None:
            finish(process)
            return False
        time.sleep(0.001)
    while moment.kind == "save":
        if process.poll() is not None:
            finish(process)
            return False
        if any(run.glob("checkpoints/.staging-checkpoint-*")):
            time.sleep(moment.delay / 10)
            process.send_signal(signal.SIGSTOP)  # so that the save cannot end between the check and the kill
            if any(run.glob("checkpoints/.staging-checkpoint-*")):
                break
            process.send_signal(signal.SIGCONT)
    if moment.kind == "random":
        # Before the first step it is the start-up, of some seconds, that is cut somewhere.
        time.sleep(moment.delay * (100 if in_start_up else 1))
    process.kill()
    process.communicate()
    return True


def last_step(run: Path) -> int:
    """The last step in events.jsonl, 0 where there is none."""
    try:
        lines = (run / "events.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return 0
    steps = [json.loads(line)["step"] for line in lines if line.endswith("}")]
    return max(steps, default=0)


def events_file_id(run: Path) -> int | None:
    try:
        return (run / "events.jsonl").stat().st_ino
    except FileNotFoundError:
        return None


def newest_checkpoint(run: Path) -> str:
    steps = [int(path.name[11:]) for path in run.glob("checkpoints/checkpoint-*")]
    return str(max(steps)) if steps else "start"


def compare(reference: Path, trial: Path) -> list[str]:
    """The differences between two finished runs; there should be none."""
    differences = []
    last = f"checkpoints/checkpoint-{newest_checkpoint(reference)}"
    for file in (
        "model/model_state.pdparams",
        f"{last}/model_state.pdparams",
        f"{last}/optimizer.pdopt",
        f"{last}/scheduler.pdparams",
    ):
        differences += [f"{file}: {name}" for name in different_values(reference / file, trial / file)]
    for file, read in (("metrics.json", read_json), (f"{last}/trainer_state.json", state), ("events.jsonl", events)):
        if read(reference / file) != read(trial / file):
            differences.append(file)
    if read_json(trial / "manifest.json")["state"] != "finished":
        differences.append("manifest.json")
    checkpoints = [sorted(path.name for path in (run / "checkpoints").iterdir()) for run in (reference, trial)]
    if checkpoints[0] != checkpoints[1]:
        differences.append(f"checkpoints {checkpoints[1]} instead of {checkpoints[0]}")
    return differences


def different_values(reference: Path, trial: Path) -> list[str]:
    sys.path.insert(0, str(ROOT))
    import nlpctl  # noqa: F401, I001  before paddle
    import paddle

    if not trial.exists():
        return ["missing"]
    first, second = (flat(paddle.load(str(file), return_numpy=True)) for file in (reference, trial))
    common = first.keys() & second.keys()
    differing = {name for name in common if bits(first[name]) != bits(second[name])}
    return sorted(differing | (first.keys() ^ second.keys()))


def flat(values: Any, prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def bits(value: Any) -> Any:
    import numpy

    return (value.dtype, value.shape, value.tobytes()) if isinstance(value, numpy.ndarray) else value


def read_json(file: Path) -> Any:
    return json.loads(file.read_text())


def state(file: Path) -> Any:
    """The trainer state without clocks and folder."""
    content = read_json(file)
    content["log_history"] = [without_clocks(entry) for entry in content["log_history"]]
    content["best_model_checkpoint"] = Path(content["best_model_checkpoint"] or "").name
    return content


def events(file: Path) -> list[dict[str, Any]]:
    return [without_clocks(json.loads(line)) for line in file.read_text().splitlines()]


def without_clocks(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name not in CLOCKS and not name.startswith("interval_")}


def print_table(results: list[tuple[int, str, list[Kill], list[str]]]) -> None:
    head = ("trial", "variant", "moment", "step at kill", "during save?", "resumed from", "identical?")
    rows = [head]
    for number, variant, kills, differences in results:
        verdict = "yes" if not differences else f"NO: {', '.join(differences[:3])}"
        for kill in kills:
            moment = f"{kill.moment.kind} after step {kill.moment.after}"
            saving = "no" if kill.unfinished_files is None else f"yes ({kill.unfinished_files} files)"
            rows.append((str(number), variant, moment, str(kill.step), saving, kill.resumes_from, verdict))
        if not kills:
            rows.append((str(number), variant, "ended before", "", "", "", verdict))
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def write_data(folder: Path) -> None:
    """Sentences whose one telling word decides the label, a tenth of them mislabelled."""
    chance = random.Random(7)
    filler = [f"w{i}" for i in range(60)]
    for name, count in (("train", ROWS), ("dev", 40)):
        lines = ["text\tlabel"]
        for _ in range(count):
            label = chance.choice(("neg", "pos"))
            words = chance.choices(filler, k=chance.randint(1, 20)) + [{"neg": "bad", "pos": "good"}[label]]
            chance.shuffle(words)
            label = chance.choice(("neg", "pos")) if chance.random() < 0.1 else label
            lines.append(f"{' '.join(words)}\t{label}")
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    (folder / "recipe.yaml").write_text(RECIPE)


if __name__ == "__main__":
    sys.exit(main())
