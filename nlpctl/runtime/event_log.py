"""events.jsonl: the events of a run, one JSON object per line."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nlpctl.files import regular, write_text_atomic


class EventLog:
    """events.jsonl: one JSON object per line, appended and flushed at once."""

    def __init__(self, path: Path):
        self.path = path

    def append(self, event: str, step: int, **values: Any) -> None:
        """Add one event. `step` counts optimizer updates since the start of training."""
        line = json.dumps({"time": round(time.time(), 3), "event": event, "step": step, **values}, ensure_ascii=False)
        # One short write in append mode, so that a killed process can cut the last line only.
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")

    def read(self) -> list[dict[str, Any]]:
        """All events, oldest first; none where there is no file."""
        return [event for event, _ in self._lines()]

    def lines(self) -> dict[int, dict[str, Any] | None]:
        """Line number, from 1, to event, for every line that is not empty; None for a line that holds no event.

        OSError if the file cannot be read.
        """
        return {number: _parse_event(raw) for number, raw in enumerate(self._raw_lines(), 1) if raw.strip()}

    def has(self, event: str, step: int) -> bool:
        """Whether `event` of `step` was logged."""
        return any(each["event"] == event and each["step"] == step for each in self.read())

    def forget_after(self, step: int) -> None:
        """Drop events later than `step`: a resumed run writes them again."""
        if self.path.exists():
            write_text_atomic(self.path, "".join(line for event, line in self._lines() if event["step"] <= step))

    def _lines(self) -> Iterator[tuple[dict[str, Any], str]]:
        """Each event with the text of its line."""
        if not self.path.exists():
            return
        for raw in self._raw_lines():
            event = _parse_event(raw)
            if event is not None:  # the last line of a killed run may be cut, also inside a character
                yield event, raw.decode("utf-8") + "\n"

    def _raw_lines(self) -> list[bytes]:
        return regular(self.path).read_bytes().split(b"\n")  # not splitlines: a text may hold U+2028


def _parse_event(raw: bytes) -> dict[str, Any] | None:
    """The event in a line; None if it is no JSON object with a name and a step."""
    try:
        event = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    sound = isinstance(event, dict) and isinstance(event.get("event"), str) and type(event.get("step")) is int
    return event if sound else None
