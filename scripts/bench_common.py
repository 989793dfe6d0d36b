"""Shared by the benchmarks: paths, how nlpctl is started, and the conditions of a measurement."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# What benchmarks write, one after the other.
RESULTS, PAGE = ROOT / "docs" / "benchmarks", ROOT / "docs" / "benchmarks.md"
DATA = ROOT.parent / "shared" / "data"
sys.path.insert(0, str(ROOT))

from nlpctl import console  # noqa: E402
from nlpctl.console import json_ready  # noqa: E402
from nlpctl.report import model as report  # noqa: E402
from nlpctl.report.text import show_table  # noqa: E402
from nlpctl.runtime.machine import cpu_info, physical_cores  # noqa: E402
from nlpctl.runtime.run_directory import git_commit  # noqa: E402
from nlpctl.runtime.versions import installed_version  # noqa: E402

NLPCTL = (sys.executable, "-m", "nlpctl")
PACKAGES = ("paddlepaddle", "paddlenlp", "numpy", "tokenizers", "onnxruntime")


def environment() -> dict[str, str]:
    """The environment of a child process: ours, with this checkout's nlpctl first on the path."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


@dataclass(frozen=True)
class Table:
    """What a benchmark shows; scripts/bench_all.py puts it into docs/benchmarks.md. `notes`: lines below it."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str] = ()


def tell(facts: dict[str, Any], tables: Sequence[Table], as_json: bool, **measured: Any) -> None:
    """Print the tables, or for programs one JSON document of them, the conditions and the bare figures `measured`."""
    if as_json:
        shown = [{**vars(table), "rows": [[str(cell) for cell in row] for row in table.rows]} for table in tables]
        print(json.dumps(json_ready({"conditions": facts, "tables": shown, **measured}), ensure_ascii=False, indent=2))
        return
    console.result(conditions_line(facts))
    for table in tables:
        show_table(report.Table(table.columns, table.rows, table.title), apart=True)
        for line in table.notes:
            console.result(line)


def conditions() -> dict[str, Any]:
    """When, where and with what was measured. `load` is the 1-minute load average right now."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "processor": str(cpu_info()),  # with its instruction sets: the name alone may mean several
        "cores": physical_cores(),
        "load": round(os.getloadavg()[0], 2),
        "python": sys.version.split()[0],
        **{package: installed_version(package) for package in PACKAGES},
        "commit": git_commit(besides=[str(path.relative_to(ROOT)) for path in (RESULTS, PAGE)]),
    }


def conditions_line(facts: dict[str, Any]) -> str:
    """`conditions()` in one line."""
    packages = ", ".join(f"{package} {facts[package]}" for package in PACKAGES if package in facts)
    return (
        f"{facts['date']}, {facts['processor']}, {facts['cores']} cores, load {facts['load']} at the start; "
        f"Python {facts['python']}, {packages}; commit {facts['commit']}"
    )


def middle_and_range(values: list[float], digits: int = 1) -> str:
    """"median (smallest to largest)"."""
    return f"{median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"
