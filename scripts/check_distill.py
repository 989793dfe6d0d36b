"""Distil a transformer into a word-level BiLSTM, and compare the student alone, the distilled student and the teacher.

    python scripts/check_distill.py RUN [--work FOLDER] [--copies 6] [--seconds 600]

RUN is the teacher (recipes/sentiment/sst2_minilm.yaml, trained). The student's recipe is the same both times: alone it
learns from the labels; distilled, from the teacher's logits, also for texts generated from the training texts.
Everything is selected on dev. Existing results are reused, and a stopped training is resumed (--seconds stops it, for a
busy machine). Published for BERT to a BiLSTM on all of SST-2: 85.4 alone, 88.8 distilled, teacher 93.0. Target: a gain
of 3 points.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from bench_common import NLPCTL, conditions, conditions_line, environment

from nlpctl.config.load import load_recipe

POINTS = 3.0
STUDENT = """\
task: sequence_classification
model:
  from_scratch: {{architecture: bilstm, unit: words, vocab_size: 30000, min_frequency: 1, embedding_size: 128,
                 hidden_size: 128, dropout: 0.3}}
data: {{train: {train}, dev: {dev}, test: {test}, max_seq_length: 64}}
training:
  output_dir: {alone}
  learning_rate: 2e-3
  num_train_epochs: 5
  per_device_train_batch_size: 64
  evaluation_strategy: epoch
  save_strategy: epoch
  save_total_limit: 1
  load_best_model_at_end: true
  metric_for_best_model: accuracy
  weight_decay: 0.01
  report_to: none
runtime: {{device: cpu}}
"""
# Runs in a separate process, which may be stopped, and resumes when it is started again.
TEACH = """
import sys
from pathlib import Path
from nlpctl.config.load import Override, load_recipe
from nlpctl.config.recipe_of import with_student
from nlpctl.models.find import find_trained_model
from nlpctl.runtime.process import set_up_process
from nlpctl.runtime.run_directory import RunDirectory
source, run, *settings = sys.argv[1:]
recipe = with_student(load_recipe(source, [Override(*setting.split("=", 1), "--set") for setting in settings]))
setup = set_up_process(recipe)
from nlpctl.compress.networks.distill import train_student
train_student(recipe, find_trained_model(recipe), RunDirectory(Path(run)), setup)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("teacher", type=Path)
    parser.add_argument("--work", type=Path, default=Path("outputs/distill"))
    parser.add_argument("--copies", type=int, default=6, help="new texts per training text")
    parser.add_argument("--seconds", type=float, default=None, help="stop a training after this many seconds")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    student, alone, taught = given.work / "student.yaml", given.work / "alone", given.work / "taught"
    data = load_recipe(given.teacher, purpose="apply").data
    files = {split: vars(data)[split][0] for split in ("train", "dev", "test")}
    student.write_text(STUDENT.format(**files, alone=alone.resolve()), encoding="utf-8")
    if not finished(alone):
        resume = ["--resume"] if alone.exists() else []
        call([*NLPCTL, "train", str(student), *resume], given.seconds)
    if not finished(taught):
        settings = (f"distillation.student={student.resolve()}", f"distillation.generate.copies={given.copies}")
        call([sys.executable, "-c", TEACH, str(given.teacher), str(taught), *settings], given.seconds)
    runs = {"student alone": alone, "student taught": taught, "teacher": given.teacher}
    scores = {name: evaluated(run, files) for name, run in runs.items()}
    speeds = timed({name: exported(run, given.work) for name, run in runs.items()}, files["dev"])
    gain = {split: scores["student taught"][split] - scores["student alone"][split] for split in ("dev", "test")}
    facts = conditions()
    if given.json:
        print(json.dumps({"scores": scores, "speeds": speeds, "gain": gain, "conditions": facts}))
    else:
        print(table(scores, speeds))
        print(f"gain: {gain['dev']:+.1f} points on dev, {gain['test']:+.1f} on test")
        print(conditions_line(facts))
    return 0 if min(gain.values()) >= POINTS else 1


def finished(run: Path) -> bool:
    manifest = run / "manifest.json"
    return manifest.is_file() and json.loads(manifest.read_text(encoding="utf-8"))["state"] == "finished"


def call(command: list[str], seconds: float | None) -> None:
    """Run a training; SystemExit if it fails or had to be stopped."""
    process = subprocess.Popen(command, env=environment())
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.terminate()  # it saves a checkpoint
        process.wait()
        raise SystemExit("stopped; run this again to continue") from None
    if code:
        raise SystemExit(code)


def evaluated(run: Path, files: dict[str, str]) -> dict[str, float]:
    """Accuracy in points on dev and test."""
    command = [*NLPCTL, "eval", str(run), "--json", "--set", f"data.dev={files['dev']}"]
    command += ["--set", f"data.test={files['test']}"]
    told = subprocess.run(command, env=environment(), check=True, capture_output=True, text=True).stdout
    metrics = json.loads(told)
    return {split: 100 * metrics["result"]["metrics"][split]["accuracy"] for split in ("dev", "test")}


def exported(run: Path, work: Path) -> Path:
    """The fp32 graph of a run, for Paddle Inference."""
    folder = work / "exports" / run.resolve().name
    if not folder.exists():
        call([*NLPCTL, "export", str(run), "-o", str(folder), "--precision", "fp32", "--format", "paddle"], None)
    return folder


def timed(runs: dict[str, Path], rows: str) -> dict[str, dict[str, float]]:
    """Samples per second at batch sizes 1 and 32, in Paddle Inference, in alternating rounds."""
    command = [*NLPCTL, "bench", *map(str, runs.values()), "--engine", "paddle", "--precision", "fp32", "--json"]
    command += ["--data", rows, "--rounds", "3", "--rows", "128"]
    told = subprocess.run(command, env=environment(), check=True, capture_output=True, text=True).stdout
    return {
        name: {str(speed["batch_size"]): speed["engine"]["samples_per_second"] for speed in entry["speeds"]}
        for name, entry in zip(runs, json.loads(told)["result"]["timed"], strict=True)
    }


def table(scores: dict[str, dict[str, float]], speeds: dict[str, dict[str, float]]) -> str:
    lines = ["| network | dev | test | samples/s, 32 at a time | one at a time |", "|---|---|---|---|---|"]
    for name, score in scores.items():
        speed = speeds[name]
        lines.append(f"| {name} | {score['dev']:.1f} | {score['test']:.1f} | {speed['32']:,.0f} | {speed['1']:,.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
