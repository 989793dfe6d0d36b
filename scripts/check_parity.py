"""Compare exports with their networks: every task with every architecture, in Paddle Inference and ONNX Runtime.

    python scripts/check_parity.py                                # the table, about 10 minutes
    python scripts/check_parity.py --task token --architecture roberta,bigru --results parity.json

Small networks are trained for a few steps on the real data in ../shared/data, or get random weights if so short a
training would not separate rows (parity_models.py). They are exported by `nlpctl export` and compared with their graphs
on real rows and at extreme shapes. A cell shows the largest difference of any output. "N rows!" means that N decisions
changed; "alike!" means that the network made the same decision for all rows, so that agreement means nothing.
--results stores the results, and a second call continues from them.
Exits 1 if a decision changed or an export was refused.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench_common import conditions, conditions_line
from parity_models import ARCHITECTURES, KINDS, Kind, make_run

from nlpctl.errors import NlpctlError, UserError
from nlpctl.export.export import export
from nlpctl.export.request import ExportRequest
from nlpctl.graphs.graph_files import FORMATS
from nlpctl.models.find import find_trained_model

ENGINES = {"paddle": "Paddle Inference", "onnxruntime": "ONNX Runtime"}
Results = dict[str, Any]  # "kind / architecture" -> what was found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="", help="only rows of the table whose name contains this")
    parser.add_argument("--architecture", default=",".join(ARCHITECTURES), help="columns, between commas")
    parser.add_argument("--rows", type=int, default=96, help="rows to compare")
    parser.add_argument("--results", type=Path, help="JSON file with results so far")
    options = parser.parse_args()
    kinds = [kind for kind in KINDS if options.task in kind.name]
    names = [name for name in options.architecture.split(",") if name]
    results: Results = {}
    if options.results is not None and options.results.exists():
        results = json.loads(options.results.read_text(encoding="utf-8"))
    facts = conditions()
    for kind in kinds:
        for name in names:
            key = f"{kind.name} / {name}"
            if key not in results:
                began = time.monotonic()
                results[key] = measured(kind, name, options.rows)
                print(f"{key}: {results[key]} ({time.monotonic() - began:.0f} s)", file=sys.stderr)
                if options.results is not None:
                    options.results.write_text(json.dumps(results, indent=1, ensure_ascii=False), encoding="utf-8")
    print(conditions_line(facts), end="\n\n")
    for engine, title in ENGINES.items():
        print(table(title, engine, kinds, names, results), end="\n\n")
    failed = [key for key, found in results.items() if found["state"] == "failed"]
    changed = [key for key, found in results.items() if found["state"] == "done" and any(found["changed"].values())]
    compared = sum(found["rows"] for found in results.values() if found["state"] == "done")
    print(f"{compared:,} rows compared per engine; decisions changed: {changed or 0}; refused: {failed or 0}")
    return 1 if failed or changed else 0


def measured(kind: Kind, architecture: str, rows: int) -> dict[str, Any]:
    """What became of one export: the largest difference and the changed decisions per engine."""
    with tempfile.TemporaryDirectory(prefix="nlpctl-parity-") as name:
        try:
            recipe = make_run(Path(name), kind, architecture)
        except UserError as error:
            return {"state": "none", "reason": error.problems[0].message}
        try:
            result = export(recipe, find_trained_model(recipe), ExportRequest(FORMATS, rows=rows))
        except NlpctlError as error:
            return {"state": "failed", "reason": str(error)}
        report = json.loads((result.folder / "report.json").read_text(encoding="utf-8"))
        checks = [each for graph in report["graphs"] for each in graph["checks"] if each["precision"] == "fp32"]
        return {
            "state": "done",
            "rows": report["rows"]["count"],
            "decisions": report["rows"]["decisions"],
            "difference": {each["engine"]: each["largest_difference"] for each in checks},
            "changed": {each["engine"]: each["changed"] for each in checks},
        }


def table(title: str, engine: str, kinds: list[Kind], names: list[str], results: Results) -> str:
    """Markdown."""
    lines = [f"| {title} | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    for kind in kinds:
        cells = [_cell(results[f"{kind.name} / {name}"], engine) for name in names]
        lines.append(f"| {kind.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(found: dict[str, Any], engine: str) -> str:
    if found["state"] != "done":
        return {"none": "-", "failed": "refused!"}[found["state"]]
    changed = f", {found['changed'][engine]} rows!" if found["changed"][engine] else ""
    alike = ", alike!" if found["decisions"] < 2 else ""
    return f"{found['difference'][engine]:.0e}{changed}{alike}"


if __name__ == "__main__":
    sys.exit(main())
