"""Measures `nlpctl data audit`: labels of ChnSentiCorp are flipped by a seed, and are to be found again.

    python scripts/bench_audit.py [--seeds 1,2,3] [--noise 0.1] [--folds 5] [--output FOLDER]

For each seed: the score on test of a BiLSTM trained on the clean rows, on the rows with flipped labels, and on the rows
that the audit corrected, or dropped; and which share of the first rows it flags was flipped. Finished runs are kept, so
the script continues where it was stopped. Needs ../shared/data; about 20 minutes per seed on an idle core.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from statistics import fmean

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data" / "chnsenticorp"
RECIPE = """\
task: sequence_classification
model: {{from_scratch: {{architecture: bilstm, embedding_size: 64, hidden_size: 64, dropout: 0.3}}}}
data: {{train: {train}, dev: {data}/dev.tsv, test: {data}/test.tsv, max_seq_length: 128}}
training:
  output_dir: {output}
  learning_rate: 2e-3
  num_train_epochs: {epochs}
  per_device_train_batch_size: 32
  seed: {seed}
  evaluation_strategy: epoch
  save_strategy: epoch
  load_best_model_at_end: true
  metric_for_best_model: accuracy
  save_total_limit: 1
runtime: {{device: cpu, threads: 1}}
"""


def nlpctl(*words: str | Path) -> None:
    """Run a command line; its output goes to this script's log. Ends the script if it fails."""
    command = [sys.executable, "-m", "nlpctl", *map(str, words)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=sys.stderr)
    if done.returncode:
        sys.exit(f"failed: nlpctl {' '.join(map(str, words))}")


def train(folder: Path, name: str, rows: Path, seed: int, epochs: int, *more: str) -> Path:
    """The run `name`, trained on `rows`; one that is there is kept."""
    run, recipe = folder / name, folder / f"{name}.yaml"
    if not finished(run):
        recipe.write_text(RECIPE.format(train=rows, data=DATA, output=run, seed=seed, epochs=epochs), encoding="utf-8")
        begun = (run / "manifest.json").exists() or (run / "series.json").exists()
        nlpctl("train", recipe, *more, *(["--resume"] if begun else []))
    return run


def finished(run: Path) -> bool:
    for name in ("series.json", "manifest.json"):
        if (run / name).exists():
            return json.loads((run / name).read_text(encoding="utf-8"))["state"] == "finished"
    return False


def flipped(lines: list[str], share: float, seed: int) -> set[int]:
    """The places of the rows whose label is turned round."""
    return set(random.Random(seed).sample(range(len(lines)), round(share * len(lines))))


def accuracy(run: Path) -> float:
    return json.loads((run / "metrics.json").read_text(encoding="utf-8"))["test"]["accuracy"]


def measure(folder: Path, seed: int, noise: float, folds: int, epochs: int) -> dict[str, float]:
    """All figures of one seed."""
    folder.mkdir(parents=True, exist_ok=True)
    header, *lines = (DATA / "train.tsv").read_text(encoding="utf-8").splitlines()
    wrong = flipped(lines, noise, seed)
    turned = [line[:-1] + "10"[int(line[-1])] if i in wrong else line for i, line in enumerate(lines)]
    noisy = folder / "noisy.tsv"
    noisy.write_text("\n".join([header, *turned]) + "\n", encoding="utf-8")
    clean = accuracy(train(folder, "clean", DATA / "train.tsv", seed, epochs))
    damaged = accuracy(train(folder, "noisy", noisy, seed, epochs))
    of_folds = train(folder, "folds", noisy, seed, epochs, "--folds", str(folds))
    nlpctl("data", "audit", of_folds, "--overwrite")
    findings = of_folds / "audit" / "findings.jsonl"
    found = [json.loads(line) for line in findings.read_text(encoding="utf-8").splitlines()]
    places = [int(each["where"].rpartition(":")[2]) - 2 for each in found if each["kind"] == "wrong label"]
    tenth = places[: max(1, len(places) // 10)]
    rows = places[: round(0.1 * len(lines))]
    nlpctl("data", "apply", findings, "--all", "-o", folder / "corrected", "--overwrite")
    nlpctl("data", "apply", findings, "--all", "--drop", "-o", folder / "dropped", "--overwrite")
    scores = {
        name: accuracy(train(folder, f"{name}_run", folder / name / "noisy.tsv", seed, epochs))
        for name in ("corrected", "dropped")
    }
    lost = clean - damaged
    back = {f"{name}: share of the loss": (each - damaged) / lost if lost > 0 else 0.0 for name, each in scores.items()}
    return {
        "clean": clean,
        "noisy": damaged,
        **scores,
        **back,
        "flagged": len(places),
        "right in the first tenth flagged": fmean(place in wrong for place in tenth),
        "right in the first 10 % of rows": fmean(place in wrong for place in rows),
        "right of all flagged": fmean(place in wrong for place in places),
        "found of all flipped": len(wrong & set(places)) / len(wrong),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--noise", type=float, default=0.1)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--output", type=Path, default=Path("outputs/bench_audit"))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if not DATA.is_dir():
        sys.exit(f"needs {DATA}")
    seeds = [int(seed) for seed in given.seeds.split(",")]
    output = given.output.resolve()
    measured = {
        seed: measure(output / f"seed-{seed}", seed, given.noise, given.folds, given.epochs) for seed in seeds
    }
    if given.json:
        print(json.dumps({"noise": given.noise, "folds": given.folds, "seeds": measured}, indent=2))
        return
    print("| figure |", " | ".join(f"seed {seed}" for seed in seeds), "| mean |")
    print("|---|" + "---|" * (len(seeds) + 1))
    for name in measured[seeds[0]]:
        values = [measured[seed][name] for seed in seeds]
        print(f"| {name} |", " | ".join(f"{value:.4g}" for value in values), f"| {fmean(values):.4g} |")


if __name__ == "__main__":
    main()
