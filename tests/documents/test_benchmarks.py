"""The tables of docs/benchmarks.md are those of the results beside it, and are made from results alone."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
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


def script(name: str) -> Any:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / "scripts"))


@pytest.fixture(scope="module")
def bench_all() -> Any:
    return script("bench_all")


@pytest.mark.parametrize("file", sorted((ROOT / "docs" / "benchmarks").glob("*.json")), ids=lambda file: file.stem)
def test_the_page_shows_what_was_measured(bench_all: Any, file: Path) -> None:
    page = bench_all.PAGE.read_text(encoding="utf-8")
    assert bench_all.with_tables(page, file.stem, json.loads(file.read_text(encoding="utf-8"))) == page
    name = bench_all.benchmark_of(file.stem)
    assert name in bench_all.BENCHMARKS
    assert (name != file.stem) == (name in bench_all.BY_PROCESSOR)  # its kind of processor is in its name


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


@pytest.mark.parametrize("kind", ["zen4", "vnni", "without_vnni"])
def test_tables_of_other_kinds_of_processors_stay(bench_all: Any, kind: str) -> None:
    page = "a\n<!-- x_zen3 -->\nold\n<!-- /x_zen3 -->\nb\n<!-- x_y_zen3 -->\n<!-- /x_y_zen3 -->\n"
    again = bench_all.with_tables(page, f"x_{kind}", FOUND)
    assert f"old\n<!-- /x_zen3 -->\n\n<!-- x_{kind} -->\n`python" in again
    assert again.endswith(f"<!-- /x_{kind} -->\nb\n<!-- x_y_zen3 -->\n<!-- /x_y_zen3 -->\n")
    assert bench_all.with_tables(again, f"x_{kind}", FOUND) == again


@pytest.mark.parametrize(
    "vendor, family, sets, kind",
    [
        ("AuthenticAMD", "26", ("avx_vnni", "avx512_vnni"), "zen5"),
        ("AuthenticAMD", "25", ("avx512_vnni",), "zen4"),
        ("AuthenticAMD", "25", ("avx2",), "zen3"),
        ("AuthenticAMD", "23", ("avx2",), "without_vnni"),
        ("GenuineIntel", "6", ("avx512_vnni",), "vnni"),
    ],
)
def test_kinds_of_processors(bench_all: Any, vendor: str, family: str, sets: tuple[str, ...], kind: str) -> None:
    assert bench_all.kind(bench_all.CpuInfo(vendor, "", sets, family)) == kind
    assert kind in bench_all.KINDS and bench_all.benchmark_of(f"inference_wide_{kind}") == "inference_wide"


def test_a_busy_machine_is_refused(
    bench_all: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_all, "busy_share", lambda seconds: 0.4)
    monkeypatch.setattr(sys, "argv", ["bench_all.py", "startup"])
    assert bench_all.main() == 2
    assert "other processes use 40% of this machine" in capsys.readouterr().err


@pytest.mark.parametrize("code, kept", [(0, True), (1, True), (2, False)])
def test_a_benchmark_that_fails_leaves_its_file(
    bench_all: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, kept: bool
) -> None:
    """1: a target was missed. The load is that before this benchmark, not before the first one."""
    words = ["-c", f"import sys; print('{{\"tables\": []}}'); sys.exit({code})"]
    monkeypatch.setattr(bench_all, "RESULTS", tmp_path)
    monkeypatch.setattr(bench_all, "busy_share", lambda seconds: 0.25)
    monkeypatch.setitem(bench_all.BENCHMARKS, "startup", lambda needs: ["fails.py", *words])
    run = subprocess.run
    monkeypatch.setattr(bench_all.subprocess, "run", lambda line, **more: run([line[0], *line[2:]], **more))
    needs = bench_all.Needs(tmp_path, None)
    assert bench_all.measure("startup", needs, anyway=True) == (code == 0)
    file = tmp_path / "startup.json"
    assert file.exists() == kept and (not kept or json.loads(file.read_text())["busy"] == 0.25)
    file.unlink(missing_ok=True)
    assert not bench_all.measure("startup", needs, anyway=False) and not file.exists()


def test_what_a_benchmark_needs_is_made_when_it_asks(
    bench_all: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = []
    monkeypatch.setattr(bench_all, "nlpctl", lambda *words: made.append(words[0]))
    needs = bench_all.Needs(tmp_path, "torch/python")
    assert bench_all.BENCHMARKS["memory"](needs) == ["bench_memory.py", "--json"] and made == []
    words = bench_all.BENCHMARKS["inference"](needs)
    assert made == ["train"] and needs.short(words[1]) == "RUN" and needs.short(words[-1]) == "VENV/bin/python"
    (tmp_path / "sst2_minilm").mkdir()
    (tmp_path / "sst2_minilm" / "metrics.json").touch()
    assert needs.short(bench_all.BENCHMARKS["startup"](needs)[-1]) == "EXPORT" and made == ["train", "export"]

    def fails(*words: str) -> None:
        raise subprocess.CalledProcessError(2, words)

    monkeypatch.setattr(bench_all, "nlpctl", fails)
    assert not bench_all.measure("startup", needs, anyway=True)
    assert "what startup needs cannot be made" in capsys.readouterr().err


def test_failed_requests_are_no_speed() -> None:
    bench_serve = script("bench_serve")
    from serve_load import LOST, Outcome

    answered = [Outcome(number, 200, b"", 0.5, number / 2) for number in range(4)]
    refused = [Outcome(number, 503, b"", 0.001, number / 2) for number in range(4)]
    assert bench_serve.line("x", 1, [answered]) == bench_serve.line("x", 1, [answered + refused])
    assert bench_serve.failed({"x": {1: [answered], 8: [answered, [*refused, Outcome(9, LOST, b"", 1, 1)]]}}) == [
        "x, 8 clients: {503: 4, -1: 1}"
    ]


def test_a_service_that_does_not_answer_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the connection, and says nothing."""
    bench_serve = script("bench_serve")
    monkeypatch.setattr(bench_serve, "WAIT", 1)
    code = "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); time.sleep(60)"
    service = bench_serve.Service(lambda port: [sys.executable, "-c", code, str(port)])
    with pytest.raises(SystemExit, match="does not answer"), service:
        pass
    assert service._process.poll() is not None


def test_what_scripts_take_from_each_other_is_there() -> None:
    """Those that take hours are run by no test."""
    scripts = {file.stem: ast.parse(file.read_text(encoding="utf-8")) for file in (ROOT / "scripts").glob("*.py")}
    for name, tree in scripts.items():
        for taken in (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module in scripts):
            known = set(_names(scripts[taken.module]))
            assert {each.name for each in taken.names} <= known, f"{name}.py imports from {taken.module}.py"


def _names(tree: ast.Module) -> Iterator[str]:
    """What a module defines or imports at its top level."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (each.asname or each.name for each in node.names)
        else:
            stored = (each for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
            yield from (each.id for each in stored)
