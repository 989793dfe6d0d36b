"""Compare contrastive few-shot training with plain fine-tuning of the same encoder, and write a table.

    python scripts/bench_few_shot.py [--data ../shared/data/sst2] [--shots 8 16 32] [--seeds 1 2 3 4 5]
    python scripts/bench_few_shot.py --recipe tnews_e5 --data ../shared/data/tnews_fewshot --model encoders/e5-hf
    nice -n 10 python scripts/bench_few_shot.py --folder /tmp/few_shot --threads 1

For each number of rows per label and each seed, SHOTS training rows of each label are drawn. On these rows the encoder
of a recipe in recipes/few_shot (sst2_contrastive if none is named) is trained by that recipe, and by plain fine-tuning
(sequence_classification) at each rate of --rates. There are no dev rows, and nothing is selected: the last model is
scored once on all test rows.
Only the plain rate of the table is chosen, in favour of plain fine-tuning: per size, by the mean accuracy on test.

A finished run is not repeated, so the same command continues after an interruption. FOLDER/results.json has the
figures.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import yaml
from bench_common import DATA, ROOT, conditions, conditions_line

import nlpctl

RECIPES = ROOT / "recipes" / "few_shot"
CONTRASTIVE = "contrastive"
PLAIN = {
    "num_train_epochs": 20,  # the loss on so few rows is near 0 at the end
    "per_device_train_batch_size": 8,
    "evaluation_strategy": "no",
    "save_strategy": "no",
    "load_best_model_at_end": False,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", choices=("sst2_contrastive", "tnews_e5"), default="sst2_contrastive")
    parser.add_argument("--data", type=Path, default=DATA / "sst2", help="a folder with train and test rows")
    parser.add_argument("--model", type=Path, help="the folder of the encoder, if not the recipe's name for it")
    parser.add_argument("--folder", type=Path, default=Path("outputs/bench_few_shot"))
    parser.add_argument("--shots", type=int, nargs="+", default=[8, 16, 32], help="rows per label")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--rates", nargs="+", default=["5e-5", "2e-4"], help="learning rates of plain fine-tuning")
    parser.add_argument("--layers", type=int, help="few_shot.layers, if not the recipe's; each needs its own --folder")
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    suffix = ".tsv" if options.recipe == "sst2_contrastive" else ".jsonl"
    os.environ["TNEWS_DIR" if suffix == ".jsonl" else "SST2_DIR"] = str(options.data.resolve())
    facts = conditions()
    figures: list[dict[str, Any]] = []
    for shots in options.shots:
        for seed in options.seeds:
            rows = draw(options.data / f"train{suffix}", folder / f"{shots}-{seed}{suffix}", shots, seed)
            for method in (CONTRASTIVE, *options.rates):
                figures.append(figure(folder, rows, method, shots, seed, options))
                (folder / "results.json").write_text(json.dumps({**facts, "runs": figures}, indent=1) + "\n")
    print(conditions_line(facts))
    print(table(figures, options.shots, options.rates))


def draw(source: Path, target: Path, shots: int, seed: int) -> Path:
    """Write `shots` rows of each label of `source` to `target`."""
    lines = source.read_text(encoding="utf-8").splitlines()
    head, rows = ([], lines) if source.suffix == ".jsonl" else (lines[:1], lines[1:])
    random.Random(seed).shuffle(rows)
    of_label: dict[str, list[str]] = {}
    for row in rows:
        label = json.loads(row)["label_desc"] if source.suffix == ".jsonl" else row.rsplit("\t", 1)[1]
        of_label.setdefault(label, []).append(row)
    chosen = [row for label in sorted(of_label) for row in of_label[label][:shots]]
    target.write_text("\n".join([*head, *chosen]) + "\n", encoding="utf-8")
    return target


def figure(
    folder: Path, rows: Path, method: str, shots: int, seed: int, options: argparse.Namespace
) -> dict[str, Any]:
    """The accuracy on test of one run, which is trained if it is not there yet."""
    run = folder / f"{method}-{shots}-{seed}"
    if not (run / "metrics.json").is_file():
        started = time.monotonic()
        train(run, rows, method, seed, options)
        (run / "seconds.json").write_text(f"{time.monotonic() - started:.1f}\n")
    accuracy = json.loads((run / "metrics.json").read_text())["test"]["accuracy"]
    seconds = float((run / "seconds.json").read_text()) if (run / "seconds.json").is_file() else None
    print(f"{shots} rows per label, seed {seed}, {method}: {accuracy:.3f}", flush=True)
    return {"method": method, "shots": shots, "seed": seed, "accuracy": accuracy, "seconds": seconds}


def train(run: Path, rows: Path, method: str, seed: int, options: argparse.Namespace) -> None:
    """By the recipe, or by plain fine-tuning at the rate `method`."""
    recipe: Any = RECIPES / f"{options.recipe}.yaml"
    changes: dict[str, Any] = {
        "data.train": str(rows), "training.output_dir": str(run), "training.seed": seed, "training.report_to": "none",
        "runtime.device": "cpu",
    }  # fmt: skip
    if options.model is not None:
        changes["model.name_or_path"] = str(options.model.resolve())
    if options.threads is not None:
        changes["runtime.threads"] = options.threads
    if method != CONTRASTIVE:
        of_recipe = yaml.safe_load(recipe.read_text(encoding="utf-8"))
        recipe = {"extends": "nlpctl:configs/base.yaml", "task": "sequence_classification", "training": PLAIN}
        recipe |= {section: of_recipe[section] for section in ("model", "data")}
        changes["training.learning_rate"] = method
    elif options.layers is not None:
        changes["few_shot.layers"] = options.layers
    nlpctl.train(recipe, overwrite=True, set=changes)


def table(figures: Sequence[dict[str, Any]], shots: Sequence[int], rates: Sequence[str]) -> str:
    """A row per size: mean and spread over the seeds, of contrastive training and of plain fine-tuning at its best."""
    lines = ["| rows per label | contrastive | plain fine-tuning | gain, in points | gain per seed |"]
    lines.append("|---|---|---|---|---|")
    for count in shots:
        found = {
            method: [each["accuracy"] for each in figures if (each["method"], each["shots"]) == (method, count)]
            for method in (CONTRASTIVE, *rates)
        }
        best = max(rates, key=lambda rate: mean(found[rate]))
        gains = [100 * (ours - theirs) for ours, theirs in zip(found[CONTRASTIVE], found[best], strict=True)]
        told = f"{mean(gains):+.1f} | {', '.join(f'{gain:+.1f}' for gain in gains)}"
        lines.append(f"| {count} | {spread(found[CONTRASTIVE])} | {spread(found[best])} at {best} | {told} |")
    return "\n".join(lines)


def spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation."""
    return f"{mean(values):.3f} ± {stdev(values) if len(values) > 1 else 0:.3f}"


if __name__ == "__main__":
    main()
