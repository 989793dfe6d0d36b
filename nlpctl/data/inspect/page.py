"""An inspection as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator

from nlpctl.data.inspect.advice import advice
from nlpctl.data.inspect.profile import Inspection
from nlpctl.data.inspect.summary import (
    CONFLICTS,
    NEAR,
    NEAR_CONFLICTS,
    SAME,
    WHERE,
    Shown,
    Table,
    common_folder,
    group_table,
    label_table,
    length_table,
    overlap_table,
    pair_table,
    split_table,
    suspicion_tables,
    unknown_table,
)
from nlpctl.report.html import Html
from nlpctl.report.page import Section, figures, page, percent, place, side_by_side, table, warnings
from nlpctl.report.plots import bars, histogram, histogram_edges, short_percent

MOST_BARS = 40
WIDTH = 120  # characters of a text


def inspection_page(found: Inspection, name: str) -> str:
    """The text of the page; `name` says what was inspected."""
    folder = common_folder(found)
    shown = Shown(found.shown, WIDTH, folder)
    sections = [
        Section("Findings", _summary(found)),
        Section("Labels", list(_labels(found))),
        Section("Lengths", list(_lengths(found))),
        Section("Repetitions", list(_repetitions(found, shown))),
        Section("Contradictions", list(_contradictions(found, shown))),
        Section("Suspicious rows", [_drawn(each) for each in suspicion_tables(found, shown)]),
    ]
    sources = ", ".join(shown.place(file) for profile in found.splits for file in profile.files or (profile.source,))
    return page(f"Data of {name}", f"{found.task}: {sources}{f' in {folder}' if folder else ''}", sections)


def _summary(found: Inspection) -> list[Html | str]:
    told = advice(found)
    tiles = {f"rows of {profile.split}": profile.rows for profile in found.splits}
    suspicious = sum(suspicion.count for suspicion in found.suspicions)
    tiles |= {"suspicious": suspicious, "contradictions": len(found.duplicates.conflicts)}
    leaked = [each for each in found.duplicates.overlaps if each.other == "train"]
    tiles |= {f"{each.inside} in train": percent((each.exact + each.near) / max(each.rows, 1)) for each in leaked}
    return [figures(tiles), warnings(told) if told else "No findings."]


def _labels(found: Inspection) -> Iterator[Html]:
    made = label_table(found)
    if len(made.rows) < 2:  # none, or nothing to compare
        return
    counted = [profile for profile in found.splits if profile.labels]
    names = list(dict.fromkeys(label for profile in counted for label in profile.labels))[:MOST_BARS]
    totals = {profile.split: sum(profile.labels.values()) for profile in counted}
    shares = {
        profile.split: [profile.labels.get(name, 0) / totals[profile.split] for name in names] for profile in counted
    }
    drawn = bars(names, shares, "share of each label", value_format=short_percent)
    yield side_by_side(drawn, table(made.columns, made.rows))


def _lengths(found: Inspection) -> Iterator[Html | str]:
    measured = [profile for profile in found.splits if profile.lengths is not None]
    if not measured:
        return
    last = max(profile.lengths.percentiles[99] for profile in measured) * 1.25
    longest = max(profile.lengths.longest for profile in measured)
    edges = histogram_edges(min(max(last, found.limit * 1.1), max(longest, found.limit)))
    counts = {profile.split: _binned(profile.tokens, edges) for profile in measured}
    yield histogram(counts, edges, "tokens", marks={f"max_seq_length {found.limit}": found.limit})
    if longest >= edges[-1]:
        yield f"The last column holds the longer rows too, of up to {longest:,} tokens."
    yield _drawn(length_table(found))
    if any(profile.unknown.unknown for profile in found.splits):
        yield _drawn(unknown_table(found))


def _binned(tokens: tuple[int, ...], edges: list[float]) -> list[int]:
    """The number of rows per bin. The last bin includes all longer rows."""
    step = edges[1] - edges[0]
    counts = [0] * (len(edges) - 1)
    for length in tokens:
        counts[min(int(length / step), len(counts) - 1)] += 1
    return counts


def _repetitions(found: Inspection, shown: Shown) -> Iterator[Html]:
    yield side_by_side(
        _drawn(split_table(found)), _drawn(overlap_table(found)) if found.duplicates.overlaps else Html("")
    )
    if found.duplicates.same:
        yield _drawn(group_table(SAME, found.duplicates.same, shown))
    if found.duplicates.near:
        yield _drawn(pair_table(NEAR, found.duplicates.near, shown))


def _contradictions(found: Inspection, shown: Shown) -> Iterator[Html]:
    if found.duplicates.conflicts:
        yield _drawn(group_table(CONFLICTS, found.duplicates.conflicts, shown))
    if found.duplicates.near_conflicts:
        yield _drawn(pair_table(NEAR_CONFLICTS, found.duplicates.near_conflicts, shown))


def _drawn(made: Table) -> Html:
    """A table of the page; places do not wrap."""
    if WHERE not in made.columns:
        return table(made.columns, made.rows, made.title)
    at = made.columns.index(WHERE)
    rows = [[*row[:at], place(row[at]), *row[at + 1 :]] for row in made.rows]
    return table(made.columns, rows, made.title)
