"""Measures `nlpctl data next`: do chosen rows teach a model more than rows drawn at random?

    python scripts/bench_next.py [--seeds 1,2,3] [--rounds 4] [--rows 100] [--pools 10,1] [--output FOLDER]

For each seed a BiLSTM is trained on the same first rows of ChnSentiCorp, drawn at random; then, in each round, on some
more, which are drawn or chosen by the model of the round before. `--pools`: the most uncertain rows among which those
are chosen that are unlike each other, as a multiple of the rows of a round; 1: by doubt alone; 0: all rows, so by their
difference alone. The checkpoint is chosen by dev;
scores are those on test, at equal numbers of labels. Needs ../shared/data.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
from collections import Counter
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from bench_common import DATA, Table, conditions, tell
from scipy.stats import t

import nlpctl
from nlpctl.config.load import load_recipe
from nlpctl.data.predict_input import open_inputs
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.datatools.next import next_rows

DRAWN = "drawn"
RARE = 2  # characters seen less often are unknown


def rows_of(file: Path) -> list[dict[str, str]]:
    """The rows of a table of texts and labels."""
    lines = file.read_text(encoding="utf-8").splitlines()[1:]
    return [dict(zip(("text", "label"), line.rsplit("\t", 1), strict=True)) for line in lines]


def write(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return file


def write_vocabulary(file: Path, rows: list[dict[str, str]]) -> Path:
    """The characters of all texts, labelled or not."""
    counts = Counter(character for row in rows for character in row["text"].lower() if not character.isspace())
    known = sorted(character for character, count in counts.items() if count >= RARE)
    file.write_text("".join(f"{entry}\n" for entry in ("[PAD]", "[UNK]", *known)), encoding="utf-8")
    return file


def trained(folder: Path, rows: list[dict[str, str]], vocabulary: Path, seed: int, steps: int) -> float:
    """Accuracy on test of a model in `folder`, trained on `rows`."""
    scratch = {"architecture": "bilstm", "unit": "characters", "vocabulary": str(vocabulary)}
    scratch |= {"embedding_size": 64, "hidden_size": 64, "num_hidden_layers": 1, "dropout": 0.3}
    folder.mkdir(parents=True)
    recipe = {
        "task": "sequence_classification",
        "model": {"from_scratch": scratch},
        "data": {
            "train": str(write(folder / "train.jsonl", rows)),
            "dev": str(DATA / "chnsenticorp" / "dev.tsv"),
            "test": str(DATA / "chnsenticorp" / "test.tsv"),
            "max_seq_length": 64,
        },
        "training": {
            "output_dir": str(folder / "run"),
            "learning_rate": 5e-3,
            "max_steps": steps,
            "per_device_train_batch_size": 16,
            "seed": seed,
            "evaluation_strategy": "steps",
            "eval_steps": steps // 3,
            "save_strategy": "steps",
            "save_steps": steps // 3,
            "save_total_limit": 1,
            "load_best_model_at_end": True,
            "metric_for_best_model": "accuracy",
        },
        "guards": {"gradient_factor": None},  # few rows, many epochs: the norm of the gradient falls and jumps
        "runtime": {"device": "cpu", "threads": 1},
    }
    return nlpctl.train(recipe).metrics["test"]["accuracy"]


def chosen(run: Path, left: list[dict[str, str]], count: int, pool: int) -> set[str]:
    """The texts that `nlpctl data next` takes of `left`."""
    recipe = load_recipe(str(run), purpose="apply")
    file = write(run.parent / "left.jsonl", left)
    source = open_inputs(task_rows(recipe.task, recipe.data), [str(file)], "auto")
    return {row.values["text"] for row in next_rows(recipe, source, count, pool=pool or len(left)).chosen}


def one_arm(
    folder: Path,
    first: list[dict[str, str]],
    left: list[dict[str, str]],
    vocabulary: Path,
    seed: int,
    pool: int | None,
    given: argparse.Namespace,
) -> list[float]:
    """Accuracy after each round. `pool` None: rows are drawn."""
    labelled, left, scores, draw = list(first), list(left), [], random.Random(seed)
    before = folder.parent / "first" / "run"
    for number in range(given.rounds):
        if pool is None:
            texts = {row["text"] for row in draw.sample(left, given.rows)}
        else:
            texts = chosen(before, left, given.rows, pool * given.rows)
        labelled += [row for row in left if row["text"] in texts]
        left = [row for row in left if row["text"] not in texts]
        place = folder / f"round-{number + 1}"
        scores.append(trained(place, labelled, vocabulary, seed, given.steps))
        before = place / "run"
    return scores


def measure(folder: Path, seed: int, given: argparse.Namespace) -> dict[str, list[float]]:
    """The scores of every arm with one seed; those that are there are kept."""
    kept = folder / "scores.json"
    found = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    rows = list({row["text"]: row for row in rows_of(DATA / "chnsenticorp" / "train.tsv")}.values())
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = write_vocabulary(folder / "vocab.txt", rows)
    random.Random(seed).shuffle(rows)
    first, left = rows[: given.rows], rows[given.rows :]
    if "first" not in found:
        shutil.rmtree(folder / "first", ignore_errors=True)
        found["first"] = [trained(folder / "first", first, vocabulary, seed, given.steps)]
    for name in (DRAWN, *given.pools):
        if name in found:
            continue
        shutil.rmtree(folder / name, ignore_errors=True)
        pool = None if name == DRAWN else int(name)
        found[name] = one_arm(folder / name, first, left, vocabulary, seed, pool, given)
        kept.write_text(json.dumps(found), encoding="utf-8")
        print(f"seed {seed}, {name}: {found[name]}", file=sys.stderr)
    return found


def interval(values: list[float]) -> tuple[float, float, float]:
    """Mean and the 95 % interval of Student's t."""
    mean, count = fmean(values), len(values)
    half = float(t.ppf(0.975, count - 1)) * stdev(values) / count**0.5 if count > 1 else float("inf")
    return mean, mean - half, mean + half


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--steps", type=int, default=180)
    parser.add_argument("--pools", default="10,1")
    parser.add_argument("--output", type=Path, default=Path("outputs/bench_next"))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if not DATA.is_dir():
        sys.exit(f"needs {DATA}")
    given.pools = given.pools.split(",")
    begun, seeds = conditions(), [int(seed) for seed in given.seeds.split(",")]
    found = {seed: measure(given.output.resolve() / f"seed-{seed}", seed, given) for seed in seeds}
    table = []
    for name in (DRAWN, *given.pools):
        by_round = [fmean(found[seed][name][i] for seed in seeds) for i in range(given.rounds)]
        gains = [found[seed][name][i] - found[seed][DRAWN][i] for seed in seeds for i in range(given.rounds)]
        by_seed = [fmean(gains[i * given.rounds : (i + 1) * given.rounds]) for i in range(len(seeds))]
        table.append({"pool": name, "rounds": by_round, "gain": interval(gains), "by_seed": by_seed})
    rows = []
    for row in table:
        mean, low, high = row["gain"]
        scores = [f"{score:.4f}" for score in row["rounds"]]
        by_seed = ", ".join(f"{gain:+.4f}" for gain in row["by_seed"])
        rows.append([row["pool"], *scores, f"{mean:+.4f} ({low:+.4f} to {high:+.4f})", by_seed])
    columns = ["pool", *(f"{(i + 2) * given.rows} rows" for i in range(given.rounds)), "gain (95 %)", "by seed"]
    tell(begun, [Table("Chosen rows beside drawn ones", columns, rows)], given.json, scores=found, measured=table)


if __name__ == "__main__":
    main()
