"""Compare prompts with plain fine-tuning of the same encoder on few examples.

    python scripts/check_few_shot.py sst2 [--data ../shared/data/sst2] [--shots 32] [--seeds 1 2 3] [--folder FOLDER]
    python scripts/check_few_shot.py made [--shots 16 32] ...

Both modes train a language model on text without labels. Then, for each seed, they draw SHOTS examples (the same number
of each label) and train on them twice from that model: few_shot_classification, and sequence_classification for the
same number of steps on the same rows. Nothing is selected, and the test rows are scored once. Prints accuracy and macro
F1 without judging them.

`sst2` is recipes/pretraining/sst2_minilm.yaml and recipes/few_shot/sst2_minilm.yaml. `made` takes seconds and uses
synthetic texts of seven words: one is an adjective out of 32 that decides the label, the others are noise. Its language
model is trained from scratch on 1,000 texts such as "we came by dusty old all day it is bad".
A language model that exists in FOLDER is reused. Other arguments, such as --threads 1, are passed to nlpctl train.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).resolve().parent.parent
LANGUAGE_MODEL = """\
task: masked_language_model
model:
  from_scratch: {architecture: bert, vocab_size: 200, min_frequency: 1, hidden_size: 32, num_hidden_layers: 2,
                 intermediate_size: 64}
  config: {hidden_dropout_prob: 0.0, attention_probs_dropout_prob: 0.0}
data: {train: train.txt, dev: dev.txt, max_seq_length: 24}
masking: {probability: 0.4}
training:
  learning_rate: 6e-3
  num_train_epochs: 16
  per_device_train_batch_size: 16
runtime: {device: cpu}
"""
FEW_SHOT = """\
task: few_shot_classification
prompt: {template: "{'text': 'text'} it is {'mask'}", verbalizer: {neg: bad, pos: good}}
training: {max_steps: 30, learning_rate: 1e-3, per_device_train_batch_size: 8}
runtime: {device: cpu}
"""
PLAIN = """\
task: sequence_classification
data: {max_seq_length: SIZE}
training: {max_steps: STEPS, learning_rate: RATE, per_device_train_batch_size: 8}
"""
NOISE = (
    "we came by train in rain with two bags my wife her sister wanted see old towns talk trade law three days "
    "kids swim play ball all day"
)
ADJECTIVES = {
    "neg": "dirty loud rude cold broken tiny dark stale slow dusty damp shabby noisy grim awful sour",
    "pos": "clean quiet kind warm fresh large bright tasty quick cosy dry smart calm fine lovely sweet",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=["made", "sst2"])
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "sst2")
    parser.add_argument("--shots", type=int, nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--folder", type=Path)
    options, words = parser.parse_known_args()
    started = time.monotonic()
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="few-shot-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if options.set == "made":
        language_model, few_shot, plain = make_made(folder)
    else:
        language_model, few_shot, plain = use_sst2(folder, options.data)
    warmed = folder / "warmed"
    if not (warmed / "metrics.json").is_file():
        train(folder, language_model, warmed, words)
    dev = json.loads((warmed / "metrics.json").read_text())["dev"]
    print(f"language model: perplexity {dev['perplexity']:.1f}, {dev['masked_accuracy']:.3f} of hidden tokens right")
    recipes = {"prompt": few_shot, "plain": plain}
    shots = options.shots or ([16, 32] if options.set == "made" else [32])
    for count in shots:
        compare(folder, recipes, count, options.seeds, words)
    used = sum(resource.getrusage(who).ru_utime for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(f"\n{(time.monotonic() - started) / 60:.1f} minutes, {used / 60:.1f} of CPU time; runs are in {folder}")


def make_made(folder: Path) -> tuple[Path, Path, Path]:
    """Write the data and the recipes of the language model, of the prompt and of plain fine-tuning."""
    for split, count, seed in (("train", 1000, 11), ("dev", 80, 12)):
        texts = [f"{text} it is {'good' if label == 'pos' else 'bad'}" for text, label in phrases(count, seed)]
        (folder / f"{split}.txt").write_text("\n".join(texts) + "\n")
    for split, count, seed in (("train", 400, 13), ("test", 400, 14)):
        rows = "".join(f"{text}\t{label}\n" for text, label in phrases(count, seed))
        (folder / f"{split}.tsv").write_text("text\tlabel\n" + rows)
    recipes = {"language_model": LANGUAGE_MODEL, "few_shot": FEW_SHOT, "plain": plain_recipe(24, 30, "1e-3")}
    for name, recipe in recipes.items():
        (folder / f"{name}.yaml").write_text(recipe)
    return tuple(folder / f"{name}.yaml" for name in recipes)


def phrases(count: int, seed: int) -> list[tuple[str, str]]:
    chance, made = random.Random(seed), []
    for _ in range(count):
        label = chance.choice(("neg", "pos"))
        words = [chance.choice(NOISE.split()) for _ in range(6)]
        words.insert(3, chance.choice(ADJECTIVES[label].split()))
        made.append((" ".join(words), label))
    return made


def use_sst2(folder: Path, data: Path) -> tuple[Path, Path, Path]:
    for split in ("train", "dev", "test"):
        (folder / f"{split}.tsv").write_bytes((data / f"{split}.tsv").read_bytes())
    (folder / "plain.yaml").write_text(plain_recipe(80, 60, "1e-4"))
    recipes = ROOT / "recipes"
    return recipes / "pretraining/sst2_minilm.yaml", recipes / "few_shot/sst2_minilm.yaml", folder / "plain.yaml"


def plain_recipe(size: int, steps: int, rate: str) -> str:
    return PLAIN.replace("SIZE", str(size)).replace("STEPS", str(steps)).replace("RATE", rate)


def compare(
    folder: Path, recipes: dict[str, Path], shots: int, seeds: Sequence[int], words: Sequence[str]
) -> None:
    """Print one line per seed, and the means."""
    print(f"\n{shots} examples  prompt               plain fine-tuning")
    print("seed      accuracy  macro F1   accuracy  macro F1")
    scores: dict[str, list[tuple[float, float]]] = {kind: [] for kind in recipes}
    for seed in seeds:
        draw(folder, shots, seed)
        for kind, recipe in recipes.items():
            run = folder / f"{kind}-{shots}-{seed}"
            paths = {"model.name_or_path": "warmed", "data.train": "few.tsv", "data.test": "test.tsv"}
            more = [word for key, name in paths.items() for word in ("--set", f"{key}={folder / name}")]
            train(folder, recipe, run, [*more, "--seed", str(seed), *words])
            report = json.loads((run / "metrics.json").read_text())["test"]
            scores[kind].append((report["accuracy"], report["macro_f1"]))
        print(row(str(seed), [pairs[-1] for pairs in scores.values()]), flush=True)
    means = [(mean(a for a, _ in pairs), mean(f for _, f in pairs)) for pairs in scores.values()]
    print(row("mean", means))


def row(name: str, pairs: Sequence[tuple[float, float]]) -> str:
    return f"{name:<8}" + "  ".join(f"{accuracy:9.3f} {f1:9.3f}" for accuracy, f1 in pairs)


def draw(folder: Path, shots: int, seed: int) -> None:
    """Write few.tsv: `shots` training rows, the same number of each label."""
    head, *rows = (folder / "train.tsv").read_text(encoding="utf-8").splitlines()
    random.Random(seed).shuffle(rows)
    labels = sorted({line.rsplit("\t", 1)[1] for line in rows})
    chosen = [line for label in labels for line in [r for r in rows if r.rsplit("\t", 1)[1] == label][: shots // 2]]
    (folder / "few.tsv").write_text("\n".join([head, *chosen]) + "\n", encoding="utf-8")


def train(folder: Path, recipe: Path, run: Path, words: Sequence[str]) -> None:
    command = [sys.executable, "-m", "nlpctl", "train", str(recipe), "--output_dir", str(run), "--overwrite", *words]
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths, "SST2_DIR": str(folder)}
    with open(run.with_suffix(".log"), "w") as log:
        done = subprocess.run(command, cwd=folder, env=environment, stdout=log, stderr=log, check=False)
    if done.returncode != 0:
        sys.exit(f"training failed; see {run.with_suffix('.log')}")


if __name__ == "__main__":
    main()
