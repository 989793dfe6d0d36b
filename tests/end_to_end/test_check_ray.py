"""scripts/check_ray.py, which kills parts of a Ray cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check_ray.py"


@pytest.mark.slow
def test_a_kill_of_each_kind(tmp_path):
    words = [sys.executable, SCRIPT, "--kills", "1", "--rows", "50000", "--folder", tmp_path, "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    kills = json.loads(done.stdout)["kills"]
    assert [(each["kind"], each["same"]) for each in kills] == [("worker", True), ("raylet", True), ("driver", True)]


def test_a_difference_would_be_found(tmp_path, monkeypatch):
    """A row that is lost, one that is there twice, one that has moved, and what was left behind."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import check_ray

    whole = [json.dumps({"id": i, "label": "a"}) for i in range(5)] + [json.dumps({"error": "b.txt:3: not JSON"})]
    (tmp_path / "whole.jsonl").write_text("".join(f"{line}\n" for line in whole))
    check = check_ray.Check.__new__(check_ray.Check)
    check.folder, check.output, check.shards = tmp_path, tmp_path / "answers.jsonl", tmp_path / "answers.jsonl.shards"

    def compared(lines: list[str]) -> check_ray.Kill:
        check.output.write_text("".join(f"{line}\n" for line in lines))
        kill = check_ray.Kill("worker", f"0/worker/{len(list(tmp_path.glob('failed/*')))}")
        check._compare(kill, tidy=True)
        return kill

    assert compared(whole).same and not (tmp_path / "failed").exists()
    found = [compared(lines) for lines in (
        whole[:-1], [*whole, whole[-1]], [whole[1], whole[0], *whole[2:]], [*whole[:4], whole[3], whole[5]],
    )]  # fmt: skip
    assert [(kill.lost, kill.doubled, kill.moved) for kill in found] == [(1, 0, 0), (0, 1, 0), (0, 0, 2), (1, 1, 1)]
    assert not any(kill.same for kill in found) and len(list(tmp_path.glob("failed/*/answers.jsonl"))) == 4
    assert (tmp_path / "failed/0-worker-3/differing.tsv").read_text().startswith("5\t")
    check.shards.mkdir()
    kill = compared(whole)
    assert kill.same and kill.told == ["answers.jsonl.shards is left behind"]
