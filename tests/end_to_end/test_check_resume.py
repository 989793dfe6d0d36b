"""scripts/check_resume.py, which kills and resumes runs at chosen moments, with few trials."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check_resume.py"


@pytest.mark.slow
def test_killed_during_a_save_and_elsewhere(tmp_path):
    words = [sys.executable, SCRIPT, "--trials", "1", "--folder", tmp_path]
    done = subprocess.run(words, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    # The other kill, at a random moment, may meet a save too.
    assert re.search(r"1 trials, 2 kills, [12] of them during a save; 0 trials differ", done.stdout), done.stdout


def test_a_difference_would_be_found(tmp_path, monkeypatch):
    """One bit of one weight, one event, or a missing file."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import check_resume
    import numpy as np
    import paddle

    for name in ("one", "other"):
        checkpoint = tmp_path / name / "checkpoints" / "checkpoint-3"
        for folder in (checkpoint, tmp_path / name / "model"):
            folder.mkdir(parents=True)
            paddle.save({"w": np.ones(3, "float32")}, str(folder / "model_state.pdparams"))
        paddle.save({"moment": {"w": np.zeros(3, "float32")}}, str(checkpoint / "optimizer.pdopt"))
        paddle.save({"last_epoch": 3}, str(checkpoint / "scheduler.pdparams"))
        (checkpoint / "trainer_state.json").write_text('{"log_history": [], "best_model_checkpoint": null}')
        (tmp_path / name / "metrics.json").write_text("{}")
        (tmp_path / name / "manifest.json").write_text('{"state": "finished"}')
        (tmp_path / name / "events.jsonl").write_text('{"time": 1, "event": "log", "step": 1, "loss": 0.5}\n')
    one, other = tmp_path / "one", tmp_path / "other"
    assert check_resume.compare(one, other) == []

    (other / "events.jsonl").write_text('{"time": 2, "event": "log", "step": 1, "loss": 0.25}\n')
    optimizer = other / "checkpoints" / "checkpoint-3" / "optimizer.pdopt"
    paddle.save({"moment": {"w": np.array([0, 0, -0.0], "float32")}}, str(optimizer))
    (other / "model" / "model_state.pdparams").unlink()
    assert check_resume.compare(one, other) == [
        "model/model_state.pdparams: missing", "checkpoints/checkpoint-3/optimizer.pdopt: moment.w", "events.jsonl"
    ]  # fmt: skip
