"""Fine-tune a real encoder on real Chinese data with nlpctl and with Hugging Face's Trainer: scores and speed.

    python scripts/bench_encoder.py --model encoders/e5-hf --torch-python VENV/bin/python [--tasks bustm chnsenticorp]
    python scripts/bench_encoder.py --model encoders/e5-zh --seeds 1 --folder /tmp/zh --json

The recipes are those for multilingual-e5-small (recipes/*/*_e5.yaml; scripts/make_e5.py makes the encoder); on a
processor that computes in bf16 both train in bf16. Of each task and seed both train in turns, on the same rows with the
same settings. Nothing is selected: the last model answers the test rows once. `crf` is msra_ner with model.head: crf,
which the Trainer does not have.

Speed is that of further runs of 60 steps, in turns: rows per second from the tenth step on, without evaluations. Only
these need an idle machine, so `--only scores` and `--only speeds` do them apart.

A finished run is not repeated, so the same command continues after an interruption; with --finished it trains nothing,
and shows what there is.
"""

from __future__ import annotations

import argparse
import json
import operator
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any

from bench_common import DATA, NLPCTL, ROOT, Table, conditions, environment, tell
from bench_train import LOOPS, runtime_variables

from nlpctl import console
from nlpctl.config.dump import recipe_values, to_yaml
from nlpctl.config.load import load_recipe
from nlpctl.runtime.machine import cpu_info

FIRST, LAST = 10, 60  # the steps between which speed is counted; 50 are one of the blocks that the Trainer sorts
TIMED = 3  # short runs of each, in turns


@dataclass(frozen=True)
class Setting:
    recipe: str
    data: str
    score: str
    changes: dict[str, Any] = field(default_factory=dict)
    in_transformers: bool = True


_CRF = {
    "model.head": "crf",
    "optimizer.groups": [{"match": part, "learning_rate": 0.01} for part in ("classifier", "crf")],
}
TASKS = {
    "bustm": Setting("matching/bustm_e5", "bustm", "accuracy"),
    "chnsenticorp": Setting("sentiment/chnsenticorp_e5", "chnsenticorp", "accuracy"),
    "msra_ner": Setting("tagging/msra_ner_e5", "msra_ner", "f1"),
    "crf": Setting("tagging/msra_ner_e5", "msra_ner", "f1", _CRF, in_transformers=False),
    "cmrc2018": Setting("reading/cmrc2018_e5", "cmrc2018", "f1"),
}
VARIABLES = {"bustm": "BUSTM_DIR", "chnsenticorp": "CHNSENTICORP_DIR", "msra_ner": "MSRA_DIR", "cmrc2018": "CMRC_DIR"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="a folder that scripts/make_e5.py wrote")
    parser.add_argument("--torch-python", type=Path, help="a Python with torch, transformers, accelerate and pyyaml")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=[*TASKS])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--epochs", type=int, help="of both, in place of the recipe's")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--folder", type=Path, default=Path("outputs/bench_encoder"))
    parser.add_argument("--only", choices=("scores", "speeds"))
    parser.add_argument("--finished", action="store_true", help="train nothing; show the runs that there are of both")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    facts, bf16 = conditions(), cpu_info().computes("bf16")
    model, data = options.model.resolve(), options.data.resolve()
    bench = Bench(model, options.torch_python, data, options.folder, bf16, options.epochs)
    measured: dict[str, dict[str, list[dict[str, Any]]]] = {}
    shorter = "" if options.epochs is None else f"-epochs-{options.epochs}"
    for task in options.tasks:
        found = measured[task] = {"scores": [], "speeds": []}
        runs = [("scores", seed, f"{task}{shorter}-{seed}") for seed in options.seeds]
        runs += [("speeds", seed, f"{task}-speed-{seed}") for seed in range(1, TIMED + 1)]
        for kind, seed, name in runs:
            if options.only in (None, kind) and (not options.finished or bench.has_both(task, name)):
                found[kind].append({"seed": seed, **bench.compare(kind, task, name, seed)})
                console.note(f"{task}: {json.dumps(found[kind][-1])}")
    tell(facts, tables(measured, "bf16" if bf16 else "fp32", options.epochs), options.json, runs=measured)
    return 0


@dataclass(frozen=True)
class Bench:
    model: Path
    torch_python: Path | None
    data: Path
    folder: Path
    bf16: bool
    epochs: int | None = None

    def finished(self, name: str) -> bool:
        """Whether the run `name`, or that of the Trainer where it is `name`-transformers, came to its end."""
        return (self.folder / f"{name}.log").is_file()

    def has_both(self, task: str, name: str) -> bool:
        names = (name, f"{name}-transformers") if TASKS[task].in_transformers else (name,)
        return all(map(self.finished, names))

    def compare(self, kind: str, task: str, name: str, seed: int) -> dict[str, Any]:
        """Of the run `name`: the scores of both, or their rows per second."""
        ours = self.train(task, name, seed, timed=kind == "speeds")
        recipe = recipe_values(load_recipe(ours / "recipe.yaml"), everything=True)
        theirs = self.train_theirs(task, name, recipe) if TASKS[task].in_transformers and self.torch_python else None
        if kind == "speeds":
            found = {"speed": speed(ours / "events.jsonl", recipe)}
            return found if theirs is None else {**found, "their_speed": speed(theirs / "times.jsonl", recipe)}
        metrics = json.loads((ours / "metrics.json").read_text(encoding="utf-8"))
        report, measure = metrics["test"] if "test" in metrics else metrics["dev"], TASKS[task].score
        found = {"score": report[measure], "interval": report["intervals"][measure]}
        if theirs is None:
            return found
        given = [json.loads(line) for line in (theirs / "answers.jsonl").read_text(encoding="utf-8").splitlines()]
        return {**found, "their_score": score(task, given)}

    def train(self, task: str, name: str, seed: int, timed: bool) -> Path:
        """The run of nlpctl, which is trained where it is not finished. `timed`: LAST steps, and no scores."""
        ours, setting = self.folder / name, TASKS[task]
        if not self.finished(name):
            changes = {
                "model.name_or_path": self.model, "training.bf16": self.bf16, "training.seed": seed,
                "training.logging_steps": FIRST, "training.evaluation_strategy": "no", "training.save_strategy": "no",
                "training.load_best_model_at_end": False, "training.report_to": "none", **setting.changes,
            }  # fmt: skip
            if self.epochs is not None:
                changes["training.num_train_epochs"] = self.epochs
            if timed:
                changes |= {"training.max_steps": LAST, "data.dev": "null", "data.test": "null"}
            words = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
            recipe = str(ROOT / "recipes" / f"{setting.recipe}.yaml")
            command = [*NLPCTL, "train", recipe, "--output_dir", str(ours), "--device", "cpu", "--overwrite", *words]
            self.call(command, task, name)
        return ours

    def train_theirs(self, task: str, name: str, recipe: dict[str, Any]) -> Path:
        """The run of Hugging Face's Trainer, by nlpctl's recipe."""
        theirs = self.folder / f"{name}-transformers"
        if not self.finished(f"{name}-transformers"):
            theirs.mkdir(parents=True, exist_ok=True)
            (theirs / "times.jsonl").unlink(missing_ok=True)
            answered = recipe["data"].get("test") or recipe["data"].get("dev")
            plain = {**recipe, "data": {**recipe["data"], "test": answered}}
            (theirs / "recipe.yaml").write_text(to_yaml(plain), encoding="utf-8")
            files = [str(theirs / each) for each in ("recipe.yaml", "times.jsonl", "answers.jsonl")]
            command = [str(self.torch_python), str(LOOPS / "huggingface.py"), *files[: 3 if answered else 2]]
            self.call(command, task, f"{name}-transformers")
        return theirs

    def call(self, command: list[str], task: str, name: str) -> None:
        """Run `command`; its output is NAME.log once it has ended well."""
        log, data = self.folder / f"{name}.log", TASKS[task].data
        variables = {
            **environment(),
            **runtime_variables(),
            VARIABLES[data]: str(self.data / data),
            "NLPCTL_PROGRESS": "json",
        }
        unfinished = log.with_suffix(".unfinished")
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("w", encoding="utf-8") as stream:
            done = subprocess.run(command, env=variables, stdout=stream, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} failed; see {unfinished}")
        unfinished.rename(log)


def speed(times: Path, recipe: dict[str, Any]) -> float:
    """Rows per second between the first and the last logged step."""
    events = [json.loads(line) for line in times.read_text(encoding="utf-8").splitlines()]
    steps = [(event["step"], event["time"]) for event in events if event["event"] == "log" and event["step"] >= FIRST]
    (first, begun), (last, ended) = steps[0], steps[-1]
    return (last - first) * recipe["training"]["per_device_train_batch_size"] / (ended - begun)


def score(task: str, answers: list[dict[str, Any]]) -> float:
    """What the answers of Transformers are worth, by the measure that nlpctl reports."""
    expected, given = ([each[name] for each in answers] for name in ("expected", "given"))
    if task == "cmrc2018":
        from nlpctl.tasks.question_answering import Judgement, squad_report

        pairs = zip(expected, given, strict=True)
        judged = [Judgement(asked["question"], tuple(asked["texts"]), answer) for asked, answer in pairs]
        return float(squad_report(judged)["f1"])
    if task == "msra_ner":
        from seqeval.metrics import f1_score

        return float(f1_score(expected, given))
    return mean(map(operator.eq, expected, given))


def tables(measured: dict[str, dict[str, list[dict[str, Any]]]], precision: str, epochs: int | None) -> list[Table]:
    """One of scores and one of speeds, of the tasks that have some."""
    scored = {task: found["scores"] for task, found in measured.items() if found["scores"]}
    timed = {task: found["speeds"] for task, found in measured.items() if found["speeds"]}
    made = []
    if scored:
        of_all = "" if epochs is None else f", after {epochs} epoch{'s' * (epochs != 1)}"
        title = f"multilingual-e5-small in {precision}{of_all}: scores on test, mean (each seed)"
        columns = ("task", "score", "nlpctl", "95 % of the first seed", "Trainer")
        rows = []
        for task, found in scored.items():
            interval = " to ".join(f"{end:.3f}" for end in found[0]["interval"])
            rows.append((task, TASKS[task].score, of_seeds(found, "score"), interval, of_seeds(found, "their_score")))
        made.append(Table(title, columns, rows))
    if timed:
        title = f"multilingual-e5-small in {precision}: rows per second of training, medians"
        columns = ("task", "nlpctl", "Trainer", "nlpctl is times", "run by run")
        rows = []
        for task, found in timed.items():
            times = [each["speed"] / each["their_speed"] for each in found if "their_speed" in each]
            shown = (f"{median(times):.2f}", ", ".join(f"{each:.2f}" for each in times)) if times else ("-", "-")
            rows.append((task, middle(found, "speed"), middle(found, "their_speed"), *shown))
        made.append(Table(title, columns, rows))
    return made


def of_seeds(found: list[dict[str, Any]], name: str) -> str:
    """"mean (each seed)"."""
    values = [each[name] for each in found if name in each]
    return f"{mean(values):.3f} ({', '.join(f'{value:.3f}' for value in values)})" if values else "-"


def middle(found: list[dict[str, Any]], name: str) -> str:
    values = [each[name] for each in found if name in each]
    return f"{median(values):.1f}" if values else "-"


if __name__ == "__main__":
    sys.exit(main())
