"""Measures `nlpctl data audit`: labels are changed by a seed, and are to be found again.

    python scripts/bench_audit.py [--data chnsenticorp|msra_ner] [--seeds 1,2,3] [--noise 0.1] [--folds 5]
                                  [--epochs 4] [--output FOLDER] [--json]

chnsenticorp: labels of reviews are turned round (a BiLSTM, accuracy). msra_ner: entities get another type, or none (a
BiGRU, F1 of entities). For each seed: the score on test of a network trained on the clean rows, on the changed ones,
and on those that the audit corrected (all of them, or the surest third) or dropped; and which share of the first
findings are changed labels. Finished runs are kept, so the script continues where it was stopped. Needs ../shared/data;
about 20 minutes per seed on an idle core.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from bench_common import DATA, NLPCTL, environment

REVIEWS = """\
task: sequence_classification
model: {{from_scratch: {{architecture: bilstm, embedding_size: 64, hidden_size: 64, dropout: 0.3}}}}
data: {{train: {train}, dev: {data}/dev.tsv, test: {data}/test.tsv, max_seq_length: 128}}
"""
NAMES = """\
task: lexical_analysis
model:
  from_scratch: {{architecture: bigru, vocab_size: 8000, min_frequency: 2, embedding_size: 128, hidden_size: 128,
                  num_hidden_layers: 2, dropout: 0.3}}
  head: linear
data: {{train: {train}, dev: {data}/dev.txt, test: {data}/test.txt, max_seq_length: 256}}
"""
TRAINING = """\
training:
  output_dir: {output}
  learning_rate: 2e-3
  num_train_epochs: {epochs}
  per_device_train_batch_size: 32
  seed: {seed}
  evaluation_strategy: epoch
  save_strategy: epoch
  load_best_model_at_end: true
  metric_for_best_model: {score}
  save_total_limit: 1
runtime: {{device: cpu, threads: 1}}
"""
Changed = tuple[list[str], list[range]]  # the lines of a file, and those of each label that is another


@dataclass(frozen=True)
class Case:
    """Data whose labels are changed: the recipe, the training file, the score, and how the labels are changed."""

    recipe: str
    train: str
    score: str
    change: Callable[[list[str], float, int], Changed]


def turned_round(lines: list[str], share: float, seed: int) -> Changed:
    """A share of the reviews with the other label."""
    wrong = sorted(random.Random(seed).sample(range(1, len(lines)), round(share * (len(lines) - 1))))
    changed = [line[:-1] + "10"[int(line[-1])] if i in set(wrong) else line for i, line in enumerate(lines)]
    return changed, [range(i, i + 1) for i in wrong]


def other_types(lines: list[str], share: float, seed: int) -> Changed:
    """A share of the entities with another type, or with none: each of these as likely as the others."""
    chance, entities = random.Random(seed), list(entities_of(lines))
    types = sorted({lines[entity.start].split("\t")[1][2:] for entity in entities})
    wrong = sorted(chance.sample(entities, round(share * len(entities))), key=lambda entity: entity.start)
    changed = list(lines)
    for entity in wrong:
        old = lines[entity.start].split("\t")[1][2:]
        new = chance.choice([*(name for name in types if name != old), None])
        for i in entity:
            word, tag = lines[i].split("\t")
            changed[i] = f"{word}\t{'O' if new is None else tag[:2] + new}"
    return changed, wrong


def entities_of(lines: Sequence[str]) -> list[range]:
    """The lines of each entity (BIO)."""
    found: list[range] = []
    for i, line in enumerate(lines):
        if "\tB-" in line:
            found.append(range(i, i + 1))
        elif "\tI-" in line:
            found[-1] = range(found[-1].start, i + 1)
    return found


CASES = {
    "chnsenticorp": Case(REVIEWS, "train.tsv", "accuracy", turned_round),
    "msra_ner": Case(NAMES, "train.txt", "f1", other_types),
}


def nlpctl(*words: str | Path) -> None:
    """Run a command line; its output goes to this script's log. Ends the script if it fails."""
    command = [*NLPCTL, *map(str, words)]
    code = subprocess.run(command, env=environment(), stdout=sys.stderr).returncode
    if code:  # one that is killed says nothing itself
        how = f"exit {code}" if code > 0 else f"killed by {signal.Signals(-code).name}"
        sys.exit(f"failed ({how}): nlpctl {' '.join(map(str, words))}")


def train(folder: Path, name: str, case: str, rows: Path, seed: int, epochs: int, *more: str) -> Path:
    """The run `name`, trained on `rows`; one that is there is kept."""
    run, recipe, chosen = folder / name, folder / f"{name}.yaml", CASES[case]
    if not finished(run):
        values = {"train": rows, "data": DATA / case, "output": run, "seed": seed, "epochs": epochs}
        recipe.write_text((chosen.recipe + TRAINING).format(**values, score=chosen.score), encoding="utf-8")
        begun = (run / "manifest.json").exists() or (run / "series.json").exists()
        nlpctl("train", recipe, *more, *(["--resume"] if begun else []))
    return run


def finished(run: Path) -> bool:
    for name in ("series.json", "manifest.json"):
        if (run / name).exists():
            return json.loads((run / name).read_text(encoding="utf-8"))["state"] == "finished"
    return False


def score(run: Path, name: str) -> float:
    return json.loads((run / "metrics.json").read_text(encoding="utf-8"))["test"][name]


def measure(folder: Path, name: str, seed: int, noise: float, folds: int, epochs: int) -> dict[str, float]:
    """All figures of one seed."""
    folder.mkdir(parents=True, exist_ok=True)
    case, clean = CASES[name], DATA / name / CASES[name].train
    lines, wrong = case.change(clean.read_text(encoding="utf-8").splitlines(), noise, seed)
    noisy = folder / f"noisy{clean.suffix}"
    noisy.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def trained(run: str, rows: Path) -> float:
        return score(train(folder, run, name, rows, seed, epochs), case.score)

    before, damaged = trained("clean", clean), trained("noisy", noisy)
    of_folds = train(folder, "folds", name, noisy, seed, epochs, "--folds", str(folds))
    nlpctl("data", "audit", of_folds, "--overwrite")
    findings = of_folds / "audit" / "findings.jsonl"
    nlpctl("data", "apply", findings, "--all", "-o", folder / "corrected", "--overwrite")
    nlpctl("data", "apply", findings, "--all", "--drop", "-o", folder / "dropped", "--overwrite")
    found = [json.loads(line) for line in findings.read_text(encoding="utf-8").splitlines()]
    found = [each for each in found if each["kind"] == "wrong label"]
    nlpctl("data", "apply", findings, "--first", str(len(found) // 3), "-o", folder / "surest", "--overwrite")
    ways = ("corrected", "surest", "dropped")
    scores = {each: trained(f"{each}_run", folder / each / noisy.name) for each in ways}
    lost = before - damaged
    back = {f"{each}: share of the loss": (new - damaged) / lost if lost > 0 else 0.0 for each, new in scores.items()}
    hits = hit(found, wrong)
    return {
        "clean": before,
        "noisy": damaged,
        **scores,
        **back,
        "changed": len(wrong),
        "flagged": len(hits),
        "right in the first tenth flagged": fmean(map(bool, hits[: max(1, len(hits) // 10)])),
        "right in as many as are changed": fmean(map(bool, hits[: len(wrong)])),
        "right of all flagged": fmean(map(bool, hits)),
        "found of all changed": len(set().union(*hits)) / len(wrong),
    }


def hit(findings: Sequence[dict[str, Any]], wrong: Sequence[range]) -> list[set[int]]:
    """For each finding the changed labels that it touches."""
    of_line = {line: number for number, lines in enumerate(wrong) for line in lines}
    found = []
    for each in findings:
        first = int(each["where"].rpartition(":")[2]) - 1
        lines = range(first, first + (len(each["given"]) if isinstance(each["given"], list) else 1))
        found.append({of_line[line] for line in lines if line in of_line})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=tuple(CASES), default="chnsenticorp")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--noise", type=float, default=0.1)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--output", type=Path, default=Path("outputs/bench_audit"))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if not (DATA / given.data).is_dir():
        sys.exit(f"needs {DATA / given.data}")
    seeds = [int(seed) for seed in given.seeds.split(",")]
    folder = given.output.resolve() / given.data
    plan = (given.noise, given.folds, given.epochs)
    measured = {seed: measure(folder / f"seed-{seed}", given.data, seed, *plan) for seed in seeds}
    if given.json:
        print(json.dumps({"data": given.data, "noise": given.noise, "folds": given.folds, "seeds": measured}, indent=2))
        return
    print("| figure |", " | ".join(f"seed {seed}" for seed in seeds), "| mean |")
    print("|---|" + "---|" * (len(seeds) + 1))
    for name in measured[seeds[0]]:
        values = [measured[seed][name] for seed in seeds]
        print(f"| {name} |", " | ".join(f"{value:.4g}" for value in values), f"| {fmean(values):.4g} |")


if __name__ == "__main__":
    main()
