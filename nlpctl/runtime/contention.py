"""How much of the processors other programs take while something is timed.

Not the load average, which tells of the last minute, and counts programs that wait for a disk. Not the time that the
threads of this process waited for a processor: those of two engines, which spin after a batch, wait for each other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nlpctl.runtime.machine import allowed_cores, allowed_processors

_IDLE = (3, 4)  # columns of /proc/stat that are no work: idle, and waiting for a disk
_STOLEN = 7  # the last column before those of guests, which are part of others: what the machine's host gave to others


@dataclass(frozen=True)
class Spent:
    """Seconds of the processors that this process may use, of all programs and of this process; `at`: the clock."""

    at: float
    by_all: float
    by_this: float


def spent(root: Path = Path("/")) -> Spent | None:
    """Since the machine started; None where the system does not tell (not Linux)."""
    names = {f"cpu{number}" for number in allowed_processors()}
    ticks = 0
    try:
        lines = [line.split() for line in (root / "proc/stat").read_text(encoding="ascii").splitlines()]
        for line in lines:
            if line and line[0] in names:
                ticks += sum(int(each) for i, each in enumerate(line[1 : _STOLEN + 2]) if i not in _IDLE)
    except (OSError, ValueError):
        return None
    return Spent(time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"), time.process_time()) if ticks else None


class Contention:
    """What other programs take of the processors from here on, where this process has work for `threads`."""

    def __init__(self, threads: int, measure: Callable[[], Spent | None] = spent, cores: int | None = None):
        self._measure, self._cores = measure, cores or allowed_cores()
        self._wanted = min(threads, self._cores)
        self._began = measure()

    def share(self) -> float:
        """The share of the processors that were wanted which others took, 0 to 1; 0 where the system does not tell."""
        began, ended = self._began, self._measure()
        if began is None or ended is None or ended.at <= began.at:
            return 0.0
        others = (ended.by_all - began.by_all) - (ended.by_this - began.by_this)
        free = self._cores - max(0.0, others) / (ended.at - began.at)
        return min(1.0, max(0.0, 1 - free / self._wanted))
