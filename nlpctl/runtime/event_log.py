"""events.jsonl: what happened in a run, one JSON object per line."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from nlpctl.runtime.files import write_text_atomic


class EventLog:
    """events.jsonl: one JSON object per line, appended and flushed at once."""

    def __init__(self, path: Path):
        self.path = path

    def append(self, event: str, step: int, **values: Any) -> None:
        """Add one event. `step` counts optimizer updates since the start of training."""
        line = json.dumps({"time": round(time.time(), 3), "event": event, "step": step, **values}, ensure_ascii=False)
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")

    def has(self, event: str, step: int) -> bool:
        """Whether `event` of `step` was noted. Call `forget_after` first: a killed run may leave a cut line."""
        if not self.path.exists():
            return False
        noted = [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]
        return any(each["event"] == event and each["step"] == step for each in noted)

    def forget_after(self, step: int) -> None:
        """Drop events later than `step`: a resumed run writes them again."""
        if not self.path.exists():
            return
        kept = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue  # the last line of a killed run may be cut
            if event["step"] <= step:
                kept.append(line + "\n")
        write_text_atomic(self.path, "".join(kept))
