"""A benchmark as one HTML page: speed at each batch size as bars, latency, memory and size as tables."""

from __future__ import annotations

from collections.abc import Iterator

from nlpctl.engines.timing import BenchResult, Timed
from nlpctl.report.model import BulletList, Figure, KeyFigures, Part, Report, Section, Table
from nlpctl.report.page import html_page
from nlpctl.report.plots import bars


def bench_page(result: BenchResult) -> str:
    """The text of the page."""
    sizes = dict.fromkeys(speed.batch_size for each in result.timed for speed in each.speeds)
    failed = [f"{name} was not timed: {reason}" for name, reason in result.failed]
    sections = [
        Section("Summary", [KeyFigures(_best(result)), BulletList(failed)]),
        *[Section(f"Batch size {size}", list(_size(result, size))) for size in sizes],
        Section("Loading, memory and size", [_costs(result)]),
        Section("Conditions", [Table(["what", "value"], [[name, str(v)] for name, v in result.conditions.items()])]),
    ]
    lead = "Candidates were timed in alternating rounds, each in its own process."
    return html_page(Report("How fast models answer", lead, sections))


def _best(result: BenchResult) -> dict[str, str]:
    """The fastest candidate at each batch size."""
    fastest = {}
    for each in result.timed:
        for speed in each.speeds:
            best = fastest.get(speed.batch_size)
            if best is None or speed.engine.samples_per_second > best[0]:
                fastest[speed.batch_size] = (speed.engine.samples_per_second, _name(each, result))
    return {f"samples/s, batch {size}: {name}": f"{speed:,.0f}" for size, (speed, name) in fastest.items()}


def _size(result: BenchResult, size: int) -> Iterator[Part]:
    found = [(each, speed) for each in result.timed for speed in each.speeds if speed.batch_size == size]
    found.sort(key=lambda pair: -pair[1].engine.samples_per_second)
    names = [_name(each, result) for each, _ in found]
    series = {"engine": [speed.engine.samples_per_second for _, speed in found]}
    if all(speed.text_samples_per_second is not None for _, speed in found):
        series["from text"] = [speed.text_samples_per_second for _, speed in found]
    yield Figure(bars(names, series, f"samples per second, batch size {size}"))
    rows = [
        [name, round(s.samples_per_second, 1), f"{s.slowest:,.1f} to {s.fastest:,.1f}", s.p50_ms, s.p90_ms, s.p99_ms]
        for name, s in ((name, speed.engine) for name, (_, speed) in zip(names, found, strict=True))
    ]
    yield Table(["candidate", "samples/s", "range", "p50 ms", "p90 ms", "p99 ms"], rows)


def _costs(result: BenchResult) -> Table:
    rows = [
        [_name(each, result), round(each.load_seconds, 2), round(each.peak_mb), round(each.size_mb, 1)]
        for each in result.timed
    ]
    return Table(["candidate", "load s", "peak MB", "disk MB"], rows)


def _name(each: Timed, result: BenchResult) -> str:
    """A short name of a candidate: model and threads appear only if they differ between candidates."""
    parts = [each.engine]
    if len({other.model for other in result.timed}) > 1:
        parts.insert(0, each.model)
    if len({other.threads for other in result.timed}) > 1:
        parts.append(f"{each.threads} threads")
    return ", ".join(parts)
