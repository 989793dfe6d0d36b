"""Timing of all training loops: one JSON line {"step", "time"} every ten steps, as in nlpctl's events.jsonl."""

from __future__ import annotations

import json
import time
from pathlib import Path

LOG_EVERY = 10


class StepTimes:
    """Call `after_step` with the number of updates done so far."""

    def __init__(self, path: str):
        self.path = Path(path)

    def after_step(self, step: int) -> None:
        if step % LOG_EVERY == 0:
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({"event": "log", "step": step, "time": time.time()}) + "\n")
