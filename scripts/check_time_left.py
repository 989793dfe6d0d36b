"""What train, predict, compress and sweep say that they have left, beside what was true.

    python scripts/check_time_left.py FOLDER [train predict compress sweep] [--epochs 5]

Trains the quickstart in FOLDER, answers its texts many times, compresses the model and tries four learning rates, with
new results in each call. Nothing else should run. Of events (docs/json.md) it takes what was told at each tenth of the
time from the first one of the command to its last line; Python's own end is shown apart. Exit 1 if any was more than a
fifth off.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "recipes" / "quickstart" / "quickstart.yaml"
OFF = 0.2  # of the truth
LEAST = 3.0  # seconds: less is no deviation; some a command takes to write at its end

COMMANDS = {
    "train": "train {recipe} --num_train_epochs {epochs} --output_dir {folder}/model --overwrite",
    "predict": "predict {folder}/model {folder}/texts.txt -o {folder}/answers.jsonl --engine dygraph --overwrite",
    "compress": "compress {folder}/model --strategy ort-dynamic,ptq,distill+ort-dynamic "
    "--output {folder}/compressed --overwrite",
    "sweep": "sweep {folder}/sweep.yaml --trials 4 --output {folder}/sweep --overwrite",
}
SWEEP = """\
extends: {recipe}
training: {{num_train_epochs: {epochs}}}
search: {{sampler: grid, pruner: none, space: {{training.learning_rate: [5e-4, 1e-3, 2e-3, 4e-3]}}}}
"""


def told_by(command: str, folder: Path, epochs: int) -> tuple[list[tuple[float, float]], float, float, float]:
    """The seconds left at each time, as `command` told; the times of its first event, its last line and its end."""
    words = COMMANDS[command].format(recipe=RECIPE, folder=folder, epochs=epochs).split()
    environment = {**os.environ, "NLPCTL_PROGRESS": "json", "PYTHONPATH": str(ROOT)}
    with (folder / f"{command}.jsonl").open("w+", encoding="utf-8") as log:
        subprocess.run([sys.executable, "-m", "nlpctl", *words], stdout=2, stderr=log, env=environment, check=True)
        ended = time.time()
        log.seek(0)
        events = [json.loads(line) for line in log if line.startswith("{")]
    own = [event for event in events if event.get("what") == command]
    told = [(each["time"], each["left"]) for each in own if each["left"] is not None]
    return told, own[0]["time"], events[-1]["time"], ended


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("commands", nargs="*", default=[*COMMANDS], help=", ".join(COMMANDS))
    parser.add_argument("--epochs", type=int, default=5)
    arguments = parser.parse_args()
    if unknown := {*arguments.commands} - {*COMMANDS}:
        parser.error(f"no such command: {', '.join(unknown)}")
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    rows = (RECIPE.parent / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]
    (folder / "texts.txt").write_text("".join(row.split("\t")[0] + "\n" for row in rows * 100), encoding="utf-8")
    (folder / "sweep.yaml").write_text(SWEEP.format(recipe=RECIPE, epochs=arguments.epochs), encoding="utf-8")
    wrong = 0
    for command in arguments.commands:
        told, begun, end, ended = told_by(command, folder, arguments.epochs)
        print(f"{command}: {end - begun:.0f} s, and {ended - end:.0f} s until Python had ended", flush=True)
        for tenth in range(1, 10):
            now = begun + tenth * (end - begun) / 10
            before = [each for each in told if each[0] <= now]
            if not before:
                print(f"  {tenth / 10:.0%}  nothing told")
                wrong += 1
                continue
            at, left = before[-1]
            true = end - at
            off = left / true - 1
            bad = abs(off) > OFF and abs(left - true) > LEAST
            wrong += bad
            print(f"  {tenth / 10:.0%}  told {left:6.1f} s  true {true:6.1f} s  {off:+.0%}{'  <--' if bad else ''}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
