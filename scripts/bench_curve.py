"""Measures `nlpctl data curve`: does the curve of a quarter of the rows foretell the score of all of them?

    python scripts/bench_curve.py [--repeats 3] [--epochs 5] [--output FOLDER] [--json]

On SST-2 with a BiLSTM over words: the curve is fitted to shares up to a quarter, its interval at all rows is compared
with runs on all rows. Both are accuracies on dev. Finished runs are kept. Needs ../shared/data; some 10 minutes on an
idle core.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import fmean

from bench_audit import TRAINING, finished, nlpctl
from bench_common import DATA, conditions, conditions_line

SHARES = "0.03125,0.0625,0.125,0.25"
RECIPE = """\
task: sequence_classification
model: {{from_scratch: {{architecture: bilstm, unit: words, embedding_size: 64, hidden_size: 64, dropout: 0.3}}}}
data: {{train: {data}/train.tsv, dev: {data}/dev.tsv, max_seq_length: 64}}
"""


def measure(folder: Path, repeats: int, epochs: int) -> dict[str, object]:
    folder.mkdir(parents=True, exist_ok=True)
    recipe, curve, whole = folder / "sst2.yaml", folder / "curve", folder / "all-rows"
    values = {"data": DATA / "sst2", "output": whole, "seed": 1, "epochs": epochs, "score": "accuracy"}
    recipe.write_text((RECIPE + TRAINING).format(**values), encoding="utf-8")
    if not finished(curve):
        begun = (curve / "series.json").exists()
        flags = ["--shares", SHARES, "--repeats", str(repeats), *(["--resume"] if begun else [])]
        nlpctl("data", "curve", recipe, "-o", curve, *flags)
    if not finished(whole):
        begun = (whole / "series.json").exists()
        seeds = ",".join(map(str, range(11, 11 + repeats)))
        nlpctl("train", recipe, "--seeds", seeds, *(["--resume"] if begun else []))
    found = json.loads((curve / "curve.json").read_text(encoding="utf-8"))
    runs = sorted(whole.glob("seed-*/metrics.json"))
    scores = [json.loads(file.read_text(encoding="utf-8"))["dev"]["accuracy"] for file in runs]
    low, high = found["foretold"]
    return {
        "points": [{"rows": each["rows"], "scores": each["scores"]} for each in found["points"]],
        "foretold": found["whole"],
        "interval": [low, high],
        "scores of all rows": scores,
        "inside": sum(low <= each <= high for each in scores),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path("outputs/bench_curve"))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if not (DATA / "sst2").is_dir():
        sys.exit(f"needs {DATA / 'sst2'}")
    found = measure(given.output.resolve(), given.repeats, given.epochs)
    if given.json:
        print(json.dumps({"conditions": conditions(), **found}, indent=2))
        return
    print(conditions_line(conditions()))
    for point in found["points"]:
        print(f"{point['rows']:>6,} rows: {', '.join(f'{each:.4f}' for each in point['scores'])}")
    low, high = found["interval"]
    print(f"foretold for all rows: {found['foretold']:.4f}, one run {low:.4f} to {high:.4f}")
    scores = found["scores of all rows"]
    told = ", ".join(f"{each:.4f}" for each in scores)
    print(f"all rows: {fmean(scores):.4f} ({told}); {found['inside']} of {len(scores)} runs inside")


if __name__ == "__main__":
    main()
