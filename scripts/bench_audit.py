"""Measures `nlpctl data audit`: labels are changed by a seed, and are to be found again.

    python scripts/bench_audit.py [--data chnsenticorp|msra_ner] [--seeds 1,2,3] [--noise 0.1] [--folds 5]
                                  [--epochs 4] [--trainings 1] [--output FOLDER] [--json]

chnsenticorp: labels of reviews are turned round (a BiLSTM, accuracy). msra_ner: entities get another type, or none (a
BiGRU, F1 of entities). For each seed: the score on test of a network trained on the clean rows, on the changed ones,
and on those that the audit corrected (all of them, the surest third, or those that a person would who knows the right
labels) or dropped; and which share of the first findings are changed labels. --trainings: so many networks for each
score, each with a seed of its own, since the score of one differs from seed to seed by more than what the labels cost.
Finished runs are kept, so the script goes on where it was stopped. Needs ../shared/data; about 20 minutes per seed on
an idle core, 6 for each further training.
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
    """The lines of each entity (BIO); an I- that follows no tag begins one, too."""
    found: list[range] = []
    for i, line in enumerate(lines):
        if "\tI-" in line and found and found[-1].stop == i:
            found[-1] = range(found[-1].start, i + 1)
        elif "\tB-" in line or "\tI-" in line:
            found.append(range(i, i + 1))
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


def measure(
    folder: Path, name: str, seed: int, noise: float, folds: int, epochs: int, trainings: int
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """All figures of one seed, and the score of each training."""
    folder.mkdir(parents=True, exist_ok=True)
    case, clean = CASES[name], DATA / name / CASES[name].train
    lines, wrong = case.change(clean.read_text(encoding="utf-8").splitlines(), noise, seed)
    noisy = folder / f"noisy{clean.suffix}"
    noisy.write_text("\n".join(lines) + "\n", encoding="utf-8")

    each_score: dict[str, list[float]] = {}

    def trained(what: str, rows: Path) -> float:
        first = what if what in ("clean", "noisy") else f"{what}_run"
        names = [first, *(f"{first}-{number}" for number in range(2, trainings + 1))]
        runs = [train(folder, run, name, rows, seed + 100 * number, epochs) for number, run in enumerate(names)]
        each_score[what] = [score(run, case.score) for run in runs]
        return fmean(each_score[what])

    before, damaged = trained("clean", clean), trained("noisy", noisy)
    of_folds = train(folder, "folds", name, noisy, seed, epochs, "--folds", str(folds))
    nlpctl("data", "audit", of_folds, "--overwrite")
    findings = of_folds / "audit" / "findings.jsonl"
    nlpctl("data", "apply", findings, "--all", "-o", folder / "corrected", "--overwrite")
    nlpctl("data", "apply", findings, "--all", "--drop", "-o", folder / "dropped", "--overwrite")
    found = [json.loads(line) for line in findings.read_text(encoding="utf-8").splitlines()]
    found = [each for each in found if each["kind"] == "wrong label"]
    nlpctl("data", "apply", findings, "--first", str(len(found) // 3), "-o", folder / "surest", "--overwrite")
    hits, truth = hit(found, wrong), clean.read_text(encoding="utf-8").splitlines()
    wrong_ones = [each for each, touched in zip(found, hits, strict=True) if touched]
    ticks = [{**each, "apply": True, "proposed": right(each, truth)} for each in wrong_ones]
    reviewed = folder / "reviewed.jsonl"
    reviewed.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in ticks), encoding="utf-8")
    nlpctl("data", "apply", reviewed, "-o", folder / "reviewed", "--overwrite")
    ways = ("corrected", "surest", "dropped", "reviewed")
    scores = {each: trained(each, folder / each / noisy.name) for each in ways}
    lost = before - damaged
    back = {f"{each}: share of the loss": (new - damaged) / lost if lost > 0 else 0.0 for each, new in scores.items()}
    figures = {
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
    return figures, each_score


def lines_of(finding: dict[str, Any]) -> range:
    first = int(finding["where"].rpartition(":")[2]) - 1
    return range(first, first + (len(finding["given"]) if isinstance(finding["given"], list) else 1))


def right(finding: dict[str, Any], clean: Sequence[str]) -> str | list[str]:
    """The labels that the clean file has at the lines of a finding."""
    labels = [clean[i].rpartition("\t")[2] for i in lines_of(finding)]
    return labels if isinstance(finding["given"], list) else labels[0]


def hit(findings: Sequence[dict[str, Any]], wrong: Sequence[range]) -> list[set[int]]:
    """For each finding the changed labels that it touches."""
    of_line = {line: number for number, lines in enumerate(wrong) for line in lines}
    found = []
    for each in findings:
        found.append({of_line[line] for line in lines_of(each) if line in of_line})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=tuple(CASES), default="chnsenticorp")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--noise", type=float, default=0.1)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--trainings", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("outputs/bench_audit"))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if not (DATA / given.data).is_dir():
        sys.exit(f"needs {DATA / given.data}")
    seeds = [int(seed) for seed in given.seeds.split(",")]
    folder = given.output.resolve() / given.data
    plan = (given.noise, given.folds, given.epochs, given.trainings)
    both = {seed: measure(folder / f"seed-{seed}", given.data, seed, *plan) for seed in seeds}
    measured, trained = ({seed: each[i] for seed, each in both.items()} for i in (0, 1))
    if given.json:
        setting = {"data": given.data, "noise": given.noise, "folds": given.folds, "trainings": given.trainings}
        print(json.dumps({**setting, "seeds": measured, "scores of each training": trained}, indent=2))
        return
    print("| figure |", " | ".join(f"seed {seed}" for seed in seeds), "| mean |")
    print("|---|" + "---|" * (len(seeds) + 1))
    for name in measured[seeds[0]]:
        values = [measured[seed][name] for seed in seeds]
        print(f"| {name} |", " | ".join(f"{value:.4g}" for value in values), f"| {fmean(values):.4g} |")


if __name__ == "__main__":
    main()
