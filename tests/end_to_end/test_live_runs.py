"""What trains now, and the time left."""

from __future__ import annotations

import json
import os
import shutil
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest

from nlpctl.runs.live_runs import LiveRuns


@pytest.fixture
def running(base: Path, tmp_path: Path) -> Path:
    """A run that this process seems to train: 10 steps of 1 s, ten hours of pause, 10 more of 1 s, of 40; then
    an evaluation of 5 s."""
    run = Path(shutil.copytree(base, tmp_path / "going"))
    now = time.time()
    times = [now - 36_020 + step for step in range(10)] + [now - 10 + step for step in range(10)]
    logs = [
        {"time": at, "event": "log", "step": step, "loss": 1.0, "left": 45.0 - step} for step, at in enumerate(times, 1)
    ]
    (run / "events.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in logs))
    resumed = [{"at": datetime.fromtimestamp(now - 11, timezone.utc).isoformat(), "was": "killed"}]
    manifest = json.loads((run / "manifest.json").read_text())
    facts = {"state": "running", "ended": None, "pid": os.getpid(), "resumed": resumed, "steps": {"total": 40}}
    (run / "manifest.json").write_text(json.dumps({**manifest, **facts}))
    return run


def test_a_pause_is_no_pace(running: Path) -> None:
    (live,) = LiveRuns(running.parent).now()
    assert live.step == 20 and live.left == pytest.approx(24, abs=2)
