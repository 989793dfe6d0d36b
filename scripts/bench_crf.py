"""Compare a CRF with a linear head on the same pretrained encoder, and write a table.

    nice -n 10 python scripts/bench_crf.py [--data ../shared/data/bc5cdr] [--folder FOLDER] [--rows 1000] [--epochs 3]

Trains recipes/tagging/bc5cdr_minilm.yaml with each head and seed on the first ROWS training sentences, and scores the
last model once on the first TEST_ROWS test sentences; no dev data, nothing is selected. Prints entity F1 and the CPU
time of a training step, which is what 30 further steps take. A finished run is not repeated, so the same command
continues after an interruption. FOLDER/results.json has the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from bench_common import DATA, ROOT, conditions, conditions_line

import nlpctl

RECIPE = ROOT / "recipes" / "tagging" / "bc5cdr_minilm.yaml"
HEADS = ("linear", "crf")
FEW, MORE = 10, 40  # steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA / "bc5cdr", help="a folder with train.conll and test.conll")
    parser.add_argument("--folder", type=Path, default=Path("outputs/bench_crf"))
    parser.add_argument("--rows", type=int, default=1000, help="training sentences")
    parser.add_argument("--test-rows", type=int, default=2000, help="test sentences")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", options.rows), ("test", options.test_rows)):
        sentences = (options.data / f"{split}.conll").read_text(encoding="utf-8").strip().split("\n\n")
        (folder / f"{split}.conll").write_text("\n\n".join(sentences[:count]) + "\n", encoding="utf-8")
    os.environ["BC5CDR_DIR"] = str(folder)
    facts, figures = conditions(), []
    for seed in options.seeds:
        for head in HEADS:
            figures.append(figure(folder, head, seed, options))
            (folder / "results.json").write_text(json.dumps({**facts, "runs": figures}, indent=1) + "\n")
    steps = {head: step_seconds(folder, head, options) for head in HEADS}
    print(conditions_line(facts))
    print("| head | entity F1 | CPU seconds per step |\n|---|---|---|")
    for head in HEADS:
        values = [each["f1"] for each in figures if each["head"] == head]
        spread = stdev(values) if len(values) > 1 else 0.0
        print(f"| {head} | {mean(values):.3f} ± {spread:.3f} | {steps[head]:.2f} |")


def figure(folder: Path, head: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """The entity F1 on test of one run, which is trained if it is not there yet."""
    run = folder / f"{head}-{seed}"
    if not (run / "metrics.json").is_file():
        train(run, head, options, {"training.num_train_epochs": options.epochs, "training.seed": seed})
    report = json.loads((run / "metrics.json").read_text())["test"]
    print(f"{head}, seed {seed}: F1 {report['f1']:.3f}", flush=True)
    return {"head": head, "seed": seed, **{name: report[name] for name in ("f1", "precision", "recall")}}


def step_seconds(folder: Path, head: str, options: argparse.Namespace) -> float:
    """CPU seconds of a training step, without what a run does before and after its steps."""
    used = {}
    for steps in (FEW, MORE):
        started = time.process_time()
        train(folder / "steps", head, options, {"data.test": [], "training.max_steps": steps})
        used[steps] = time.process_time() - started
    return (used[MORE] - used[FEW]) / (MORE - FEW)


def train(run: Path, head: str, options: argparse.Namespace, more: dict[str, Any]) -> None:
    changes = {
        "model.head": head, "data.dev": [], "training.output_dir": str(run),
        "training.evaluation_strategy": "no", "training.save_strategy": "no", "training.report_to": "none",
        "training.load_best_model_at_end": False, "training.metric_for_best_model": None, "runtime.device": "cpu",
        **more,
    }  # fmt: skip
    if head != "crf":
        changes["optimizer.groups"] = []
    if options.threads is not None:
        changes["runtime.threads"] = options.threads
    nlpctl.train(RECIPE, overwrite=True, set=changes)


if __name__ == "__main__":
    main()
