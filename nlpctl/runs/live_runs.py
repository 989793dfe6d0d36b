"""What trains now, anywhere in a folder: how far it is, its loss and last score, and the time left."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from nlpctl.errors import UserError
from nlpctl.layout import MANIFEST
from nlpctl.runs.run_files import sound_manifest
from nlpctl.runs.runs import RunRecord, find_runs, open_run
from nlpctl.runtime.event_log import EventLog
from nlpctl.runtime.run_directory import RunDirectory

RUNNING = "running"
_READ_AGAIN = 5.0  # seconds until the events of a run are read again


@dataclass(frozen=True)
class LiveRun:
    """A run in progress, or one that was when it was last asked about. `left`: seconds, None if unknown."""

    path: Path
    state: str
    host: str | None
    step: int
    total: int | None
    loss: float | None
    metric: str
    score: float | None
    left: float | None

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "path": str(self.path)}


@dataclass
class LiveRuns:
    """The runs of `folder` that are in progress. Those that were at an earlier call stay in the list, as they ended."""

    folder: Path
    _seen: dict[Path, None] = field(default_factory=dict)

    def now(self) -> list[LiveRun]:
        """The runs, the first started first. UserError if the folder does not exist."""
        found = []
        for path in find_runs(self.folder):
            # Of the many that ended before, nothing but the manifest is read.
            if path not in self._seen and sound_manifest(path / MANIFEST, [])["state"] != RUNNING:
                continue
            try:
                record = open_run(path)
            except UserError:  # it is just being written, or is not there any more
                continue
            if record.state == RUNNING:
                self._seen[path] = None
            if path in self._seen:
                found.append((record.manifest["started"] or "", str(path), _live(record)))
        return [live for _, _, live in sorted(found, key=lambda each: each[:2])]


def _live(record: RunRecord) -> LiveRun:
    steps = record.manifest.get("steps")
    total = steps.get("total") if isinstance(steps, Mapping) else None
    total = total if isinstance(total, int) else None
    metric = record.metric
    score = record.score("dev", metric)
    return LiveRun(
        record.run.path,
        record.shown_state,
        record.manifest["host"],
        record.step,
        total,
        record.last("log", "loss"),
        metric,
        record.last("evaluate", f"eval_{metric}") if score is None else score,
        _left(record.events, _resumed(record), time.time()) if record.state == RUNNING else None,
    )


def _resumed(record: RunRecord) -> float:
    """When the run was resumed last, in seconds since 1970: what it told before is out of date. 0: it was not."""
    resumed = record.manifest["resumed"]
    return datetime.fromisoformat(resumed[-1]["at"]).timestamp() if resumed else 0.0


def _left(events: Sequence[Mapping[str, Any]], since: float, now: float) -> float | None:
    """Seconds to the end, by what the last log of `events` since then said; None if none did."""
    logs = (each for each in events if each["event"] == "log")
    told = [each for each in logs if all(isinstance(each.get(name), int | float) for name in ("time", "left"))]
    if not told or told[-1]["time"] < since:
        return None
    return max(0.0, told[-1]["left"] - (now - told[-1]["time"]))


class ToldByEvents:
    """What a training in another process says that it has left."""

    def __init__(self) -> None:
        self._read: dict[Path, tuple[float, float | None]] = {}  # when, and when it will have ended

    def __call__(self, run: Path, since: float) -> float | None:
        """Seconds, by the last log of its events; None: none since then, in seconds since 1970. Read every 5 s."""
        now = time.time()
        if now - self._read.get(run, (0.0, None))[0] > _READ_AGAIN:
            events = EventLog(RunDirectory(run).events_file).read()
            left = _left(events, since, now)
            self._read[run] = now, None if left is None else now + left
        ends = self._read[run][1]
        return None if ends is None else max(0.0, ends - now)
