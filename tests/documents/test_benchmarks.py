"""The tables of docs/benchmarks.md are those of the results beside it, and are made from results alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOUND = {
    "command": "python scripts/bench_startup.py --json",
    "minutes": 1.5,
    "busy": 0.01,
    "conditions": {
        "date": "2026-11-22", "processor": "a processor", "cores": 2, "load": 0.1, "python": "3.11",
        "paddlepaddle": "2.6.2", "paddlenlp": "2.8.1", "numpy": "1.26.4", "tokenizers": "0.20", "commit": "abc",
    },
    "tables": [{"title": "Seconds", "columns": ["command", "wall"], "rows": [["a | b", "0.1"]], "notes": ["fast"]}],
}  # fmt: skip


@pytest.fixture(scope="module")
def bench_all() -> Any:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import bench_all
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    return bench_all


@pytest.mark.parametrize("file", sorted((ROOT / "docs" / "benchmarks").glob("*.json")), ids=lambda file: file.stem)
def test_the_page_shows_what_was_measured(bench_all: Any, file: Path) -> None:
    page = bench_all.PAGE.read_text(encoding="utf-8")
    assert bench_all.with_tables(page, file.stem, json.loads(file.read_text(encoding="utf-8"))) == page
    assert file.stem in bench_all.BENCHMARKS


def test_a_table_replaces_the_one_before(bench_all: Any) -> None:
    page = bench_all.with_tables("a\n<!-- x -->\nold\n<!-- /x -->\nb\n", "x", FOUND)
    assert page.startswith("a\n<!-- x -->\n`python scripts/bench_startup.py --json`, 1.5 minutes. 2026-11-22")
    assert "Seconds:\n\n| command | wall |\n| --- | --- |\n| a \\| b | 0.1 |\n\n- fast\n<!-- /x -->\nb\n" in page
    assert "old" not in page and "other processes" not in page


def test_a_table_of_a_busy_machine_says_so(bench_all: Any) -> None:
    assert "other processes used 40% of the machine" in bench_all.markdown({**FOUND, "busy": 0.4})


def test_a_result_without_a_place_in_the_page_is_refused(bench_all: Any) -> None:
    with pytest.raises(ValueError, match="no place for x"):
        bench_all.with_tables("a\n", "x", FOUND)


def test_a_busy_machine_is_refused(
    bench_all: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_all, "busy_share", lambda seconds: 0.4)
    monkeypatch.setattr(sys, "argv", ["bench_all.py", "startup"])
    assert bench_all.main() == 2
    assert "other processes use 40% of this machine" in capsys.readouterr().err
