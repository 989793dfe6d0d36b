"""Compare remedies for imbalanced classes: the same network on the same data, seed by seed.

    python scripts/compare_imbalance.py DATA_FOLDER [--recipe RECIPE] [--seeds 1 2 3] [--work FOLDER]

DATA_FOLDER holds train.tsv, dev.tsv and test.tsv (header text, label). Everything is selected on dev; the table shows
accuracy and macro F1 on test, as mean and range over the seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

VARIANTS = {
    "nothing": [],
    "class weights, balanced": ["--set", "loss.class_weights=balanced"],
    "focal loss, gamma 2": ["--set", "loss.focal_gamma=2.0"],
    "focal loss, gamma 2, alpha 0.3": ["--set", "loss.focal_gamma=2.0", "--set", "loss.focal_alpha=0.3"],
    "label smoothing 0.1": ["--set", "loss.label_smoothing=0.1"],
    "oversampling": ["--set", "data.balance.method=oversample"],
    "undersampling": ["--set", "data.balance.method=undersample"],
    "threshold searched on dev": ["--set", "decode.tune=macro_f1"],
    "class weights and threshold": ["--set", "loss.class_weights=balanced", "--set", "decode.tune=macro_f1"],
}
NETWORK = [
    "--set", "model.from_scratch={architecture: bag_of_embeddings, unit: words}",
    "--metric_for_best_model", "macro_f1", "--learning_rate", "2e-3", "--num_train_epochs", "6",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--work", type=Path, default=Path("outputs/imbalance"))
    given = parser.parse_args()
    recipe = write_recipe(given.data.resolve(), given.work)
    print(f"| remedy | macro F1 (test, {len(given.seeds)} seeds) | range | accuracy |\n|---|---|---|---|", flush=True)
    for name, words in VARIANTS.items():
        reports = [train(recipe, given.work, name, words, seed) for seed in given.seeds]
        f1 = [100 * report["macro_f1"] for report in reports]
        accuracy = statistics.mean(100 * report["accuracy"] for report in reports)
        print(f"| {name} | {statistics.mean(f1):.1f} | {min(f1):.1f} to {max(f1):.1f} | {accuracy:.1f} |", flush=True)


def write_recipe(data: Path, work: Path) -> Path:
    work.mkdir(parents=True, exist_ok=True)
    files = ", ".join(f"{split}: {data / split}.tsv" for split in ("train", "dev", "test"))
    text = f"extends: nlpctl:configs/base.yaml\ntask: sequence_classification\ndata: {{{files}, max_seq_length: 256}}\n"
    (work / "recipe.yaml").write_text(text, encoding="utf-8")
    return work / "recipe.yaml"


def train(recipe: Path, work: Path, name: str, words: list[str], seed: int) -> dict:
    """The test report of one run, trained unless it already exists."""
    run = work / f"{name.replace(' ', '_').replace(',', '')}-{seed}"
    if not (run / "metrics.json").exists():
        command = [sys.executable, "-m", "nlpctl", "train", str(recipe), "--overwrite", "--seed", str(seed)]
        command += ["--output_dir", str(run), *NETWORK, *words]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ})
        if done.returncode:
            raise SystemExit(f"{name}, seed {seed}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads((run / "metrics.json").read_text(encoding="utf-8"))["test"]


if __name__ == "__main__":
    main()
