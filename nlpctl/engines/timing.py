"""Statistics of a timed engine: latencies of batches over several rounds.

Rounds of all candidates alternate (modeltools/bench.py), so that other load on the machine affects all of them alike.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from statistics import fmean, median
from typing import Any, TypeVar

from nlpctl.runtime.machine import cpu_info, physical_cores
from nlpctl.runtime.versions import engine_versions

T = TypeVar("T")


@dataclass(frozen=True)
class Figures:
    """Speed of one candidate at one batch size.

    `samples_per_second` is the median over the rounds, `slowest` and `fastest` are the extremes; latencies are of
    batches, over all rounds, in milliseconds.
    """

    samples_per_second: float
    slowest: float
    fastest: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    rounds: int


@dataclass(frozen=True)
class Speed:
    """One candidate at one batch size. `text_samples_per_second`: from raw text to answers; None with fixed lengths."""

    batch_size: int
    engine: Figures
    text_samples_per_second: float | None


@dataclass(frozen=True)
class Timed:
    """One candidate; `engine` with its precision.

    `peak_mb`: of its process, with Paddle where its engine needs it. `size_mb`: its weights and graphs on disk. MB of
    1024 x 1024 bytes.
    """

    model: str
    engine: str
    threads: int
    load_seconds: float
    peak_mb: float
    size_mb: float
    speeds: tuple[Speed, ...]


@dataclass(frozen=True)
class BenchResult:
    """The timed candidates, the failed ones (candidate, reason), and the conditions."""

    timed: tuple[Timed, ...]
    failed: tuple[tuple[str, str], ...]
    conditions: dict[str, Any]


def timed(run: Callable[[T], object], batches: Sequence[T], at_least: float = 0.0) -> list[float]:
    """Seconds that each batch takes, in order: the means of as many passes as take `at_least` seconds together."""
    passes: list[list[float]] = []
    while not passes or sum(map(sum, passes)) < at_least:
        seconds = []
        for batch in batches:
            started = time.perf_counter()
            run(batch)
            seconds.append(time.perf_counter() - started)
        passes.append(seconds)
    return [fmean(each) for each in zip(*passes, strict=True)]


def figures(rounds: Sequence[Sequence[float]], rows: int) -> Figures:
    """`rounds`: seconds of every batch, round by round; `rows`: total rows of a round's batches."""
    speeds = [rows / sum(seconds) for seconds in rounds]
    latencies = sorted(1000 * second for seconds in rounds for second in seconds)
    return Figures(
        median(speeds),
        min(speeds),
        max(speeds),
        percentile(latencies, 0.5),
        percentile(latencies, 0.9),
        percentile(latencies, 0.99),
        rounds=len(rounds),
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest of the rising values that at least `share` of them do not exceed (nearest rank)."""
    return ordered[max(0, -(-len(ordered) * round(share * 1000) // 1000) - 1)]


def conditions() -> dict[str, Any]:
    """The current conditions that speeds depend on: processor, load, package versions."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "processor": cpu_info().model or platform.processor(),
        "cores": physical_cores(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        **engine_versions(),
    }
