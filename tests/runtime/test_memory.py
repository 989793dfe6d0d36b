"""Processes that the memory cannot hold are refused before one is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from nlpctl.errors import UserError
from nlpctl.runtime.machine import refuse_processes


def machine(root: Path, gigabytes: int) -> Path:
    (root / "proc").mkdir()
    (root / "proc" / "meminfo").write_text(f"MemTotal: {gigabytes << 20} kB\nMemAvailable: 1 kB\n")
    return root


def test_processes_that_fit_and_one_more(tmp_path):
    root = machine(tmp_path, gigabytes=2)
    refuse_processes(10, "--workers", root)
    with pytest.raises(UserError, match=r"--workers: 11 processes (.|\n)* at most 10"):
        refuse_processes(11, "--workers", root)


def test_an_unknown_memory_refuses_nothing(tmp_path):
    refuse_processes(10_000, "--workers", tmp_path)
