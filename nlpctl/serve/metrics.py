"""Counters, gauges and histograms in Prometheus' text format (version 0.0.4).

Not Prometheus' own client: it writes 1.0 and le="1.0" where this writes 1 and le="1", by which dashboards know these
series, and it joins several processes through files, without a label for each.

All counting happens in the thread of the event loop, so no locks are needed.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_STARTED = time.time()
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metric(Protocol):
    """One metric. `kind`: counter, gauge or histogram."""

    name: str
    help: str
    kind: str

    def samples(self) -> Iterator[str]:
        """Its sample lines, without help and type."""
        ...


class Counter:
    """A number that only grows, one per combination of `labels`' values."""

    kind = "counter"

    def __init__(self, name: str, help: str, labels: Sequence[str] = ()):
        self.name, self.help, self._labels = name, help, tuple(labels)
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0}

    def add(self, amount: float = 1, *values: str) -> None:
        """`values`: the label values, in order."""
        self._values[values] = self._values.get(values, 0) + amount

    def value(self, *values: str) -> float:
        return self._values.get(values, 0)

    def samples(self) -> Iterator[str]:
        for values, amount in sorted(self._values.items()):
            yield f"{self.name}{format_labels(dict(zip(self._labels, values, strict=True)))} {_number(amount)}"


class Gauge:
    """A number that is computed when the metrics are read."""

    kind = "gauge"

    def __init__(self, name: str, help: str, read: Callable[[], float], labels: Mapping[str, str] | None = None):
        self.name, self.help, self._read, self._labels = name, help, read, dict(labels or {})

    def samples(self) -> Iterator[str]:
        yield f"{self.name}{format_labels(self._labels)} {_number(self._read())}"


class Histogram:
    """Counts of values up to each of `bounds`, the total count, and the sum."""

    kind = "histogram"

    def __init__(self, name: str, help: str, bounds: Sequence[float]):
        self.name, self.help, self._bounds = name, help, tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self.sum = 0.0

    @property
    def count(self) -> int:
        return sum(self._counts)

    def observe(self, value: float) -> None:
        # le means less or equal, so a value on a bound counts in its bucket: bisect_left.
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def samples(self) -> Iterator[str]:
        total = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            # Buckets are cumulative in Prometheus.
            total += count
            yield f'{self.name}_bucket{{le="{_number(bound)}"}} {total}'
        yield f"{self.name}_sum {_number(self.sum)}"
        yield f"{self.name}_count {total}"


@dataclass(frozen=True)
class Snapshot:
    """A metric at one moment, as it goes from one process to another. `samples`: its lines."""

    name: str
    help: str
    kind: str
    samples: tuple[str, ...]


def snapshots(metrics: Sequence[Metric]) -> list[Snapshot]:
    """The metrics as they are now."""
    return [Snapshot(each.name, each.help, each.kind, tuple(each.samples())) for each in metrics]


def join_workers(by_worker: Mapping[int, Sequence[Snapshot]]) -> list[Snapshot]:
    """The metrics of several processes as one list: each sample has the label `worker`, its process's number."""
    together: dict[str, Snapshot] = {}
    for number, metrics in sorted(by_worker.items()):
        for each in metrics:
            samples = tuple(_with_label(sample, f'worker="{number}"') for sample in each.samples)
            before = together.get(each.name)
            together[each.name] = replace(each, samples=samples if before is None else before.samples + samples)
    return list(together.values())


def exposition(metrics: Sequence[Snapshot]) -> str:
    """The metrics in Prometheus' text format."""
    lines: list[str] = []
    for metric in metrics:
        lines += [f"# HELP {metric.name} {_escaped(metric.help)}", f"# TYPE {metric.name} {metric.kind}"]
        lines += metric.samples
    return "\n".join(lines) + "\n"


def format_labels(labels: Mapping[str, str]) -> str:
    """Labels in the syntax after a metric's name; "" without labels."""
    if not labels:
        return ""
    pairs = ",".join(f'{name}="{_escaped(value, quotes=True)}"' for name, value in labels.items())
    return f"{{{pairs}}}"


def _with_label(sample: str, label: str) -> str:
    name, labels, rest = sample.partition("{")
    if labels:
        return f"{name}{{{label},{rest}"
    name, _, value = sample.partition(" ")
    return f"{name}{{{label}}} {value}"


def _escaped(text: str, quotes: bool = False) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quotes else text


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(round(float(value), 9))


def process_metrics() -> list[Metric]:
    """The standard process metrics of Prometheus' clients, with current values."""
    processor = Counter("process_cpu_seconds_total", "Processor time, user and system.")
    processor.add(time.process_time())
    return [
        processor,
        Gauge("process_resident_memory_bytes", "Resident memory.", _resident_bytes),
        Gauge("process_open_fds", "Open files and connections.", lambda: len(os.listdir("/proc/self/fd"))),
        Gauge("process_start_time_seconds", "When the process started, in Unix time.", lambda: _STARTED),
    ]


def _resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
