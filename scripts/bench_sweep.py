"""Measures `nlpctl sweep`: TPE beside random search, the same number of trials of a BiLSTM on ChnSentiCorp.

    python scripts/bench_sweep.py [--seeds 1,2,3] [--trials 24] [--rows 1600] [--dev 800] [--epochs 3] [--output FOLDER]
        [--json]

For each seed: the best score on dev after each trial, of both samplers, without a pruner. The first ten trials of TPE
are random, too. A sweep that is there goes on, so the script continues where it was stopped. Needs ../shared/data and
the extra `sweep`; with the settings above some 30 minutes on an idle core.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import fmean

from bench_common import DATA, NLPCTL, Table, conditions, environment, tell

SAMPLERS = ("tpe", "random")
RECIPE = """\
task: sequence_classification
model: {{from_scratch: {{architecture: bilstm, embedding_size: 64, hidden_size: 64, dropout: 0.3}}}}
data: {{train: {folder}/train.tsv, dev: {folder}/dev.tsv, max_seq_length: 64}}
search:
  sampler: {sampler}
  pruner: none
  trials: {trials}
  space:
    training.learning_rate: {{log: [1e-5, 1e-1]}}
    training.per_device_train_batch_size: [8, 16, 32, 64]
    training.weight_decay: {{log: [1e-5, 1]}}
    training.warmup_ratio: {{uniform: [0, 0.5]}}
    model.from_scratch.dropout: {{uniform: [0, 0.7]}}
    model.from_scratch.embedding_size: {{log: [16, 128]}}
training:
  output_dir: {folder}/run
  num_train_epochs: {epochs}
  seed: {seed}
  evaluation_strategy: epoch
  save_strategy: epoch
  load_best_model_at_end: true
  metric_for_best_model: accuracy
  save_total_limit: 1
runtime: {{device: cpu, threads: 1}}
"""


def swept(folder: Path, sampler: str, seed: int, trials: int, epochs: int) -> list[float]:
    """The scores of the trials, in order; those that failed as 0."""
    output = folder / f"{sampler}-{seed}"
    recipe = folder / f"{sampler}-{seed}.yaml"
    values = {"folder": folder, "sampler": sampler, "seed": seed, "trials": trials, "epochs": epochs}
    recipe.write_text(RECIPE.format(**values), encoding="utf-8")
    if not (output / "sweep.json").exists():
        more = ["--resume"] if (output / "series.json").exists() else []
        words = [*NLPCTL, "sweep", str(recipe), "-o", str(output), *more]
        if subprocess.run(words, env=environment(), stdout=sys.stderr).returncode:
            sys.exit(f"failed: {' '.join(words)}")
    found = json.loads((output / "sweep.json").read_text(encoding="utf-8"))
    return [each["score"] or 0.0 for each in found["trials"]]


def cut(folder: Path, rows: int, dev: int) -> None:
    """The first rows of each split: few, so that a trial takes seconds."""
    for split, count in (("train", rows), ("dev", dev)):
        lines = (DATA / "chnsenticorp" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()
        (folder / f"{split}.tsv").write_text("\n".join(lines[: count + 1]) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1,2,3")
    for name, default in (("trials", 24), ("rows", 1600), ("dev", 800), ("epochs", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--output", type=Path, default=Path("outputs/bench_sweep"))
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    folder = wanted.output.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    cut(folder, wanted.rows, wanted.dev)
    before, found = conditions(), {}
    for seed in map(int, wanted.seeds.split(",")):
        for sampler in SAMPLERS:
            scores = swept(folder, sampler, seed, wanted.trials, wanted.epochs)
            found[f"{sampler}, seed {seed}"] = {
                "best": max(scores),
                "best of the first 10": max(scores[:10]),
                "mean of the others": fmean(scores[10:]) if scores[10:] else None,
                "scores": scores,
            }
            print(f"{sampler}, seed {seed}: best {max(scores):.4f}", file=sys.stderr, flush=True)
    means = {
        name: {
            part: fmean(each[part] for key, each in found.items() if key.startswith(name))
            for part in ("best", "mean of the others")
        }
        for name in SAMPLERS
    }
    shown = ("best", "best of the first 10", "mean of the others")
    rows = []
    for name, each in found.items():
        rows.append([name, *("" if each[part] is None else f"{each[part]:.4f}" for part in shown)])
    table = Table("Scores on dev", ["sampler", *shown], rows)
    tell(before, [table], wanted.json, trials=wanted.trials, sweeps=found, means=means)
    return 0


if __name__ == "__main__":
    sys.exit(main())
