"""Measures `nlpctl ensemble` on ChnSentiCorp: folds joined to one model, and small networks taught by it.

    python scripts/bench_ensemble.py [--folds 5] [--students 2] [--epochs 4] [--output FOLDER] [--json]

Five folds of a BiLSTM are trained, and joined. The ensemble is compared with its members on the test rows, in the mean
over the members. Then a smaller BiLSTM is taught by the ensemble, and one by a single member, with the same seed N;
in pair N the single teacher is member N, and from pair 6 on the first ones again. Intervals are those of the rows
(paired bootstrap); for the students one of rows and pairs together, too. Finished runs are kept. Needs ../shared/data;
about half an hour on an idle core.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from bench_audit import nlpctl, train
from bench_common import DATA, conditions, conditions_line

from nlpctl.tasks.tallies import load_tallies

CASE = "chnsenticorp"
STUDENT = "{architecture: bilstm, embedding_size: 32, hidden_size: 32, dropout: 0.3}"
RESAMPLES = 10_000


def right(run: Path) -> np.ndarray:
    """Which test rows the model of a run answers right, as float64 [rows]."""
    tallies = load_tallies(run / "tallies" / "test.npz")
    assert tallies is not None, run
    return tallies.right.astype(np.float64)


def student(folder: Path, name: str, teacher: Path, seed: int, epochs: int) -> Path:
    """The run of a network that `teacher` taught; the folder keeps what is there."""
    output = folder / name
    settings = {"distillation.model.from_scratch": STUDENT, "training.seed": seed, "training.num_train_epochs": epochs}
    flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    if not any(output.rglob("tallies/test.npz")):
        nlpctl("compress", teacher, "--strategy", "distill", "-o", output, *flags)
    (found,) = output.rglob("tallies/test.npz")
    return found.parent.parent


def difference(first: list[np.ndarray], second: list[np.ndarray]) -> dict[str, float | list[float]]:
    """The mean accuracy of both groups of models, and of second minus first its interval, rows drawn anew."""
    per_row = np.mean(second, 0) - np.mean(first, 0)
    drawn = np.random.default_rng(95).integers(0, len(per_row), (RESAMPLES, len(per_row)))
    low, high = np.quantile(per_row[drawn].mean(1), [0.025, 0.975])
    means = [float(np.mean(group)) for group in (first, second)]
    return {"first": means[0], "second": means[1], "difference": float(per_row.mean()), "interval": [low, high]}


def over_pairs(first: list[np.ndarray], second: list[np.ndarray]) -> dict[str, list[float]]:
    """The difference of each pair of models, and the interval of their mean, rows and pairs drawn anew.

    One pair less is drawn than there are: as many would understate how pairs vary (McCarthy and Snowden, 1985).
    """
    random, per_row = np.random.default_rng(95), np.stack(second) - np.stack(first)
    pairs, rows = per_row.shape
    draws = ((random.integers(0, pairs, pairs - 1), random.integers(0, rows, rows)) for _ in range(RESAMPLES))
    drawn = [per_row[np.ix_(of_pairs, of_rows)].mean() for of_pairs, of_rows in draws]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return {"of each pair": per_row.mean(1).tolist(), "interval of rows and pairs": [float(low), float(high)]}


def measure(folder: Path, folds: int, students: int, epochs: int) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    series = train(folder, "folds", CASE, DATA / CASE / "train.tsv", 1, epochs, "--folds", str(folds))
    members = [series / f"fold-{number}" for number in range(1, folds + 1)]
    joined = folder / "ensemble"
    if not (joined / "metrics.json").exists():
        nlpctl("ensemble", series, "-o", joined)
    by_one, by_all = [], []
    for number in range(1, students + 1):
        by_one.append(right(student(folder, f"by-member-{number}", members[(number - 1) % folds], number, epochs)))
        by_all.append(right(student(folder, f"by-ensemble-{number}", joined, number, epochs)))
    models = {"members": [right(member) for member in members], "ensemble": [right(joined)]}
    models |= {"students of a member": by_one, "students of the ensemble": by_all}
    found: dict[str, Any] = {name: [float(each.mean()) for each in group] for name, group in models.items()}
    found["ensemble over members"] = difference(models["members"], models["ensemble"])
    if students:
        found["taught by the ensemble over by a member"] = difference(by_one, by_all)
    if students > 1:
        found["taught by the ensemble over by a member"] |= over_pairs(by_one, by_all)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--students", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--output", type=Path, default=Path("outputs/bench_ensemble"))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if not (DATA / CASE).is_dir():
        sys.exit(f"needs {DATA / CASE}")
    found = measure(given.output.resolve(), given.folds, given.students, given.epochs)
    if given.json:
        print(json.dumps({"conditions": conditions(), **found}, indent=2))
        return
    print(conditions_line(conditions()))
    for name, value in found.items():
        if isinstance(value, dict):
            low, high = value["interval"]
            told = f"{value['first']:.4f} to {value['second']:.4f}, {100 * value['difference']:+.2f} points"
            print(f"{name}: {told} ({100 * low:+.2f} to {100 * high:+.2f})")
            if "of each pair" in value:
                each = ", ".join(f"{100 * one:+.1f}" for one in value["of each pair"])
                low, high = value["interval of rows and pairs"]
                print(f"  pairs {each}; of rows and pairs {100 * low:+.2f} to {100 * high:+.2f}")
        else:
            print(f"{name}: {fmean(value):.4f} ({', '.join(f'{each:.3f}' for each in value)})" if value else name)


if __name__ == "__main__":
    main()
