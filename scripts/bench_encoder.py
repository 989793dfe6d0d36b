"""Fine-tune a real encoder on real Chinese data with nlpctl and with Hugging Face's Trainer: scores and speed.

    python scripts/bench_encoder.py --model encoders/e5-hf --torch-python VENV/bin/python [--tasks bustm chnsenticorp]
    python scripts/bench_encoder.py --model encoders/e5-zh --seeds 1 --folder /tmp/zh --json

The recipes are those for multilingual-e5-small (recipes/*/*_e5.yaml; scripts/make_e5.py makes the encoder); on a
processor that computes in bf16 both train in bf16. Of each task and seed both train in turns, on the same rows with the
same settings. Nothing is selected: the last model answers the test rows once. Rows per second are counted from the
tenth step to the last one, from start to end of the training loop, without evaluations. `crf` is msra_ner with
model.head: crf, which Transformers does not have.

A finished run is not repeated, so the same command continues after an interruption; with --finished it trains nothing,
and shows what there is. Needs an idle machine.
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

FIRST = 10  # step from which speed is counted


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
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--folder", type=Path, default=Path("outputs/bench_encoder"))
    parser.add_argument("--finished", action="store_true", help="train nothing; show the seeds that have both runs")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    facts, bf16 = conditions(), cpu_info().computes("bf16")
    measured: dict[str, list[dict[str, Any]]] = {}
    for task in options.tasks:
        for seed in options.seeds:
            if options.finished and not (options.folder / f"{task}-{seed}-transformers" / "answers.jsonl").is_file():
                continue
            found = {"seed": seed, **compare(task, seed, bf16, options)}
            measured.setdefault(task, []).append(found)
            console.note(f"{task}: {json.dumps(found)}")
    title = f"multilingual-e5-small in {'bf16' if bf16 else 'fp32'}: scores on test (each seed), rows per second"
    columns = ("task", "score", "nlpctl", "95 % of the first seed", "Trainer", "rows/s", "Trainer's rows/s", "times")
    rows = [row(task, found) for task, found in measured.items()]
    tell(facts, [Table(title, columns, rows)], options.json, runs=measured)
    return 0


def compare(task: str, seed: int, bf16: bool, options: argparse.Namespace) -> dict[str, Any]:
    """Scores and rows per second of one seed."""
    setting, ours, theirs = TASKS[task], *(options.folder / f"{task}-{seed}{end}" for end in ("", "-transformers"))
    variables = {
        **environment(),
        **runtime_variables(),
        VARIABLES[setting.data]: str((options.data / setting.data).resolve()),
        "NLPCTL_PROGRESS": "json",
    }
    if not (ours / "metrics.json").is_file():
        changes = {
            "model.name_or_path": options.model.resolve(), "training.bf16": bf16, "training.seed": seed,
            "training.logging_steps": FIRST, "training.evaluation_strategy": "no", "training.save_strategy": "no",
            "training.load_best_model_at_end": False, "training.report_to": "none", **setting.changes,
        }  # fmt: skip
        words = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
        recipe = ROOT / "recipes" / f"{setting.recipe}.yaml"
        call(
            [*NLPCTL, "train", str(recipe), "--output_dir", str(ours), "--device", "cpu", "--overwrite", *words],
            variables,
            options.folder / f"{task}-{seed}.log",
        )
    recipe = recipe_values(load_recipe(ours / "recipe.yaml"), everything=True)
    metrics = json.loads((ours / "metrics.json").read_text(encoding="utf-8"))
    report = metrics["test"] if "test" in metrics else metrics["dev"]
    found = {
        "score": report[setting.score],
        "interval": report["intervals"][setting.score],
        "speed": speed(ours / "events.jsonl", recipe),
    }
    if not setting.in_transformers or options.torch_python is None:
        return found
    answers = theirs / "answers.jsonl"
    if not answers.is_file():
        theirs.mkdir(parents=True, exist_ok=True)
        (theirs / "times.jsonl").unlink(missing_ok=True)
        plain = {**recipe, "data": {**recipe["data"], "test": recipe["data"].get("test") or recipe["data"]["dev"]}}
        (theirs / "recipe.yaml").write_text(to_yaml(plain), encoding="utf-8")
        files = [str(theirs / name) for name in ("recipe.yaml", "times.jsonl", "answers.jsonl")]
        command = [str(options.torch_python), str(LOOPS / "huggingface.py"), *files]
        call(command, variables, options.folder / f"{task}-{seed}-transformers.log")
    given = [json.loads(line) for line in answers.read_text(encoding="utf-8").splitlines()]
    return {
        **found,
        "their_score": score(task, given),
        "their_speed": speed(theirs / "times.jsonl", recipe),
    }


def call(command: list[str], variables: dict[str, str], log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as stream:
        done = subprocess.run(command, env=variables, stdout=stream, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed; see {log}")


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


def row(task: str, found: list[dict[str, Any]]) -> tuple[str, ...]:
    low, high = found[0]["interval"]
    cells = [task, TASKS[task].score, scores(found, "score"), f"{low:.3f} to {high:.3f}"]
    speeds = median(each["speed"] for each in found)
    if "their_score" not in found[0]:
        return (*cells, "-", f"{speeds:.1f}", "-", "-")
    theirs = median(each["their_speed"] for each in found)
    times = median(each["speed"] / each["their_speed"] for each in found)
    return (*cells, scores(found, "their_score"), f"{speeds:.1f}", f"{theirs:.1f}", f"{times:.2f}")


def scores(found: list[dict[str, Any]], name: str) -> str:
    """"mean (each seed)"."""
    values = [each[name] for each in found]
    return f"{mean(values):.3f} ({', '.join(f'{value:.3f}' for value in values)})"


if __name__ == "__main__":
    sys.exit(main())
