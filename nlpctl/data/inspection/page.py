"""An inspection as one HTML page."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nlpctl.data.inspection.duplicates import NearPair
from nlpctl.data.inspection.lengths import PERCENTILES
from nlpctl.data.inspection.report import Inspection, SplitProfile, advice, format_labels, format_unknown, shortened
from nlpctl.data.inspection.rows import InspectedRow
from nlpctl.report.language import Later, later, say, say_each
from nlpctl.report.model import (
    BulletList,
    Figure,
    KeyFigures,
    Part,
    Place,
    Report,
    Section,
    SideBySide,
    Table,
    percent,
)
from nlpctl.report.page import html_page
from nlpctl.report.plots import bars, histogram, histogram_edges, short_percent

# -- an inspection as tables, for the terminal and for the page ------------------------------------

SAME, NEAR = later("Texts that occur several times"), later("Texts that are almost the same")
CONFLICTS, NEAR_CONFLICTS = later("The same text, other labels"), later("Almost the same text, other labels")


@dataclass(frozen=True)
class Extent:
    """The extent of a table: at most `rows` rows (or groups, or pairs), and `width` characters of a text.

    `folder` is left out of the places.
    """

    rows: int
    width: int
    folder: str

    def place(self, where: str) -> Place:
        """file:line, without the folder."""
        return Place(where.removeprefix(self.folder))


def current_folder() -> str:
    """The prefix that places on a terminal omit."""
    return str(Path.cwd()) + os.sep


def common_folder(inspection: Inspection) -> str:
    """The folder that all files are in, with a slash at its end; "" where there is none."""
    files = [file for profile in inspection.splits for file in profile.files]
    return os.path.join(os.path.commonpath([os.path.dirname(file) for file in files]), "") if files else ""


def split_table(inspection: Inspection) -> Table:
    """Rows per split."""
    rows = [
        [profile.split, profile.rows, sum(profile.bad.values()), repeats.exact, repeats.near]
        for profile, repeats in zip(inspection.splits, inspection.duplicates.repeats, strict=True)
    ]
    columns = say_each("split", "rows", "unusable", "repeated", "almost repeated")
    return Table(columns, rows, say("Rows"))


def label_table(inspection: Inspection) -> Table:
    """Examples and shares per label and split; for tagging, entities per type."""
    names = list(dict.fromkeys(label for profile in inspection.splits for label in profile.labels))
    columns = [column for profile in inspection.splits for column in (profile.split, "%")]
    rows = [
        [_said(name), *(cell for profile in inspection.splits for cell in _counted(profile, name))] for name in names
    ]
    if any(profile.unlabelled for profile in inspection.splits):
        unlabelled = [(each.unlabelled, percent(each.unlabelled / max(each.rows, 1))) for each in inspection.splits]
        rows.append([say("(rows without any)"), *(cell for cells in unlabelled for cell in cells)])
    return Table([say("label"), *columns], rows, say("Labels"))


def _said(label: str) -> str:
    """A label: in the language of now if it is none of the user's."""
    return say(label) if isinstance(label, Later) else label


def _counted(profile: SplitProfile, name: str) -> tuple[int, str]:
    count = profile.labels.get(name, 0)
    return count, percent(count / max(sum(profile.labels.values()), 1))


def length_table(inspection: Inspection) -> Table:
    """Tokens per row, and how many rows are longer than data.max_seq_length."""
    limit = inspection.limit
    columns = [
        say("split"),
        say("mean"),
        *(f"{share} %" for share in PERCENTILES),
        say("longest"),
        say("in windows at {}", limit) if inspection.in_windows else say("cut at {}", limit),
        say("share"),
    ]
    rows = []
    for profile in inspection.splits:
        of = profile.lengths
        if of is not None:
            ranks = [of.percentiles[share] for share in PERCENTILES]
            share = percent(of.longer / profile.rows)
            rows.append([profile.split, f"{of.mean:.1f}", *ranks, of.longest, of.longer, share])
    return Table(columns, rows, say("Tokens per row, {}", inspection.tokens_by))


def unknown_table(inspection: Inspection) -> Table:
    """Tokens that the tokenizer does not know, and what stands behind them."""
    rows = []
    for profile in inspection.splits:
        of = profile.unknown
        if of.unknown:
            rows.append([profile.split, of.unknown, percent(of.share), say(", ").join(format_unknown(of, 10))])
    columns = say_each("split", "tokens", "share", "most of all")
    return Table(columns, rows, say("Tokens that the tokenizer does not know ([UNK])"))


def overlap_table(inspection: Inspection) -> Table:
    """Rows of one split in another."""
    rows = [
        [say("{} in {}", each.inside, each.other), each.exact, percent(each.exact / max(each.rows, 1)), each.near,
         percent(each.near / max(each.rows, 1))]
        for each in inspection.duplicates.overlaps
    ]  # fmt: skip
    columns = [say("rows of"), say("the same"), "%", say("almost"), "%"]
    return Table(columns, rows, say("Rows of one split in another"))


def group_table(title: Later, groups: Sequence[Sequence[InspectedRow]], extent: Extent) -> Table:
    """Rows with the same texts: a line per row, the text with the first."""
    rows = []
    for group in groups[: extent.rows]:
        for number, row in enumerate(group[:6]):
            text = shortened(row.text, extent.width) if number == 0 else ""
            rows.append([extent.place(row.where), row.split, format_labels(row), text])
        if len(group) > 6:
            rows.append([Place(say("and {} more rows", len(group) - 6)), "", "", ""])
    shown = _counted_title(say(title), len(groups), min(len(groups), extent.rows))
    return _filled(shown, say_each("where", "split", "label", "text"), rows)


def pair_table(title: Later, pairs: Sequence[NearPair], extent: Extent) -> Table:
    """Rows that are almost the same, two lines per pair."""
    rows = []
    for pair in pairs[: extent.rows]:
        for row, similarity in ((pair.first, f"{pair.similarity:.2f}"), (pair.second, "")):
            text = shortened(row.text, extent.width)
            rows.append([similarity, extent.place(row.where), row.split, format_labels(row), text])
    shown = _counted_title(say(title), len(pairs), min(len(pairs), extent.rows))
    return _filled(shown, say_each("similar", "where", "split", "label", "text"), rows)


def suspicion_tables(inspection: Inspection, extent: Extent) -> Iterator[Table]:
    """A table per kind: unusable rows first."""
    for suspicion in inspection.suspicions:
        title = say("Cannot be used: {}" if suspicion.bad else "Suspicious: {}", suspicion.kind)
        rows = [
            [extent.place(where), split, say(details), shortened(text, extent.width)]
            for where, split, details, text in suspicion.first[: extent.rows]
        ]
        columns = say_each("where", "split", "finding|what", "text")
        yield _filled(_counted_title(title, suspicion.count, len(rows)), columns, rows)


def _filled(title: str, columns: list[str], rows: list[list[Any]]) -> Table:
    """A table without the columns that are empty."""
    kept = [i for i in range(len(columns)) if any(row[i] != "" for row in rows)]
    return Table([columns[i] for i in kept], [[row[i] for i in kept] for row in rows], title)


def _counted_title(title: str, count: int, listed: int) -> str:
    if count > listed:
        return say("{} ({:,}, {:,} shown)", title, count, listed)
    return say("{} ({:,})", title, count)


def all_tables(inspection: Inspection, extent: Extent) -> Iterator[Table]:
    """Every table that has rows."""
    same, near = inspection.duplicates.same, inspection.duplicates.near
    tables = [
        split_table(inspection),
        label_table(inspection),
        length_table(inspection),
        unknown_table(inspection),
        overlap_table(inspection),
        group_table(SAME, same, extent),
        pair_table(NEAR, near, extent),
        group_table(CONFLICTS, inspection.duplicates.conflicts, extent),
        pair_table(NEAR_CONFLICTS, inspection.duplicates.near_conflicts, extent),
        *suspicion_tables(inspection, extent),
    ]
    return (each for each in tables if each.rows)


# -- the page --------------------------------------------------------------------------------------

MOST_BARS = 40
WIDTH = 120  # characters of a text


def inspection_page(inspection: Inspection, name: str) -> str:
    """The text of the page; `name` says what was inspected."""
    folder = common_folder(inspection)
    extent = Extent(inspection.shown, WIDTH, folder)
    sections = [
        Section(say("Findings"), _summary(inspection)),
        Section(say("Labels"), list(_labels(inspection))),
        Section(say("Lengths"), list(_lengths(inspection))),
        Section(say("Repetitions"), list(_repetitions(inspection, extent))),
        Section(say("Contradictions"), list(_contradictions(inspection, extent))),
        Section(say("Suspicious rows"), list(suspicion_tables(inspection, extent))),
    ]
    files = [file for profile in inspection.splits for file in profile.files or (profile.source,)]
    names = say(", ").join(map(extent.place, files))
    lead = say("{}: {}", inspection.task, names)
    if folder:
        lead = say("{}: {} in {}", inspection.task, names, folder)
    return html_page(Report(say("Data of {}", name), lead, sections))


def _summary(inspection: Inspection) -> list[Part]:
    remarks = advice(inspection)
    tiles: dict[str, Any] = {say("rows of {}", profile.split): profile.rows for profile in inspection.splits}
    suspicious = sum(suspicion.count for suspicion in inspection.suspicions)
    tiles |= {say("suspicious"): suspicious, say("contradictions"): len(inspection.duplicates.conflicts)}
    for each in inspection.duplicates.overlaps:
        if each.other == "train":
            share = (each.exact + each.near) / max(each.rows, 1)
            tiles[say("{} in {}", each.inside, each.other)] = percent(share)
    return [KeyFigures(tiles), BulletList(remarks) if remarks else say("No findings.")]


def _labels(inspection: Inspection) -> Iterator[Part]:
    table = label_table(inspection)
    if len(table.rows) < 2:  # none, or nothing to compare
        return
    counted = [profile for profile in inspection.splits if profile.labels]
    names = list(dict.fromkeys(label for profile in counted for label in profile.labels))[:MOST_BARS]
    totals = {profile.split: sum(profile.labels.values()) for profile in counted}
    shares = {
        profile.split: [profile.labels.get(name, 0) / totals[profile.split] for name in names] for profile in counted
    }
    plot = bars(list(map(_said, names)), shares, say("share of each label"), value_format=short_percent)
    yield SideBySide([Figure(plot), replace(table, title="")])


def _lengths(inspection: Inspection) -> Iterator[Part]:
    measured = [profile for profile in inspection.splits if profile.lengths is not None]
    all_lengths = [profile.lengths for profile in measured if profile.lengths is not None]
    if not measured:
        return
    last = max(lengths.percentiles[99] for lengths in all_lengths) * 1.25
    longest = max(lengths.longest for lengths in all_lengths)
    edges = histogram_edges(min(max(last, inspection.limit * 1.1), max(longest, inspection.limit)))
    counts = {profile.split: _binned(profile.tokens, edges) for profile in measured}
    marks = {f"max_seq_length {inspection.limit}": inspection.limit}
    yield Figure(histogram(counts, edges, say("tokens"), marks=marks))
    if longest >= edges[-1]:
        yield say("The last column holds the longer rows too, of up to {:,} tokens.", longest)
    yield length_table(inspection)
    if any(profile.unknown.unknown for profile in inspection.splits):
        yield unknown_table(inspection)


def _binned(tokens: tuple[int, ...], edges: list[float]) -> list[int]:
    """The number of rows per bin. The last bin includes all longer rows."""
    step = edges[1] - edges[0]
    counts = [0] * (len(edges) - 1)
    for length in tokens:
        counts[min(int(length / step), len(counts) - 1)] += 1
    return counts


def _repetitions(inspection: Inspection, extent: Extent) -> Iterator[Part]:
    overlaps = overlap_table(inspection) if inspection.duplicates.overlaps else ""
    yield SideBySide([split_table(inspection), overlaps])
    if inspection.duplicates.same:
        yield group_table(SAME, inspection.duplicates.same, extent)
    if inspection.duplicates.near:
        yield pair_table(NEAR, inspection.duplicates.near, extent)


def _contradictions(inspection: Inspection, extent: Extent) -> Iterator[Table]:
    if inspection.duplicates.conflicts:
        yield group_table(CONFLICTS, inspection.duplicates.conflicts, extent)
    if inspection.duplicates.near_conflicts:
        yield pair_table(NEAR_CONFLICTS, inspection.duplicates.near_conflicts, extent)
