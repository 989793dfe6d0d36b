"""An inspection as one HTML page."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nlpctl.data.inspect.duplicates import NearPair
from nlpctl.data.inspect.lengths import PERCENTILES
from nlpctl.data.inspect.report import Inspection, SplitProfile, advice, shortened, told_labels, told_unknown
from nlpctl.data.inspect.rows import Seen
from nlpctl.report.html import Html
from nlpctl.report.page import Section, figures, page, percent, place, side_by_side, table, warnings
from nlpctl.report.plots import bars, histogram, histogram_edges, short_percent

# An inspection as tables, for the terminal and for the page.

SAME, NEAR = "Texts that occur several times", "Texts that are almost the same"
CONFLICTS, NEAR_CONFLICTS = "The same text, other labels", "Almost the same text, other labels"
WHERE = "where"  # the column that holds file:line


@dataclass(frozen=True)
class Table:
    """`title` may be ""."""

    title: str
    columns: list[str]
    rows: list[list[Any]]


@dataclass(frozen=True)
class Shown:
    """The extent of a table: at most `rows` rows (or groups, or pairs), and `width` characters of a text.

    `folder` is left out of the places.
    """

    rows: int
    width: int
    folder: str

    def place(self, where: str) -> str:
        """file:line, without the folder."""
        return where.removeprefix(self.folder)


def current_folder() -> str:
    """The prefix that places on a terminal omit."""
    return str(Path.cwd()) + os.sep


def common_folder(found: Inspection) -> str:
    """The folder that all files are in, with a slash at its end; "" where there is none."""
    files = [file for profile in found.splits for file in profile.files]
    return os.path.join(os.path.commonpath([os.path.dirname(file) for file in files]), "") if files else ""


def split_table(found: Inspection) -> Table:
    """Rows per split."""
    rows = [
        [profile.split, profile.rows, sum(profile.bad.values()), repeats.exact, repeats.near]
        for profile, repeats in zip(found.splits, found.duplicates.repeats, strict=True)
    ]
    return Table("Rows", ["split", "rows", "unusable", "repeated", "almost repeated"], rows)


def label_table(found: Inspection) -> Table:
    """Examples and shares per label and split; for tagging, entities per type."""
    names = list(dict.fromkeys(label for profile in found.splits for label in profile.labels))
    columns = [column for profile in found.splits for column in (profile.split, "%")]
    rows = [[name, *(cell for profile in found.splits for cell in _counted(profile, name))] for name in names]
    if any(profile.unlabelled for profile in found.splits):
        without = [(profile.unlabelled, percent(profile.unlabelled / max(profile.rows, 1))) for profile in found.splits]
        rows.append(["(rows without any)", *(cell for cells in without for cell in cells)])
    return Table("Labels", ["label", *columns], rows)


def _counted(profile: SplitProfile, name: str) -> tuple[int, str]:
    count = profile.labels.get(name, 0)
    return count, percent(count / max(sum(profile.labels.values()), 1))


def length_table(found: Inspection) -> Table:
    """Tokens per row, and how many rows are longer than data.max_seq_length."""
    fate = "in windows" if found.in_windows else "cut"
    columns = [
        "split",
        "mean",
        *(f"{share} %" for share in PERCENTILES),
        "longest",
        f"{fate} at {found.limit}",
        "share",
    ]
    rows = []
    for profile in found.splits:
        of = profile.lengths
        if of is not None:
            ranks = [of.percentiles[share] for share in PERCENTILES]
            share = percent(of.longer / profile.rows)
            rows.append([profile.split, f"{of.mean:.1f}", *ranks, of.longest, of.longer, share])
    return Table(f"Tokens per row, {found.tokens_by}", columns, rows)


def unknown_table(found: Inspection) -> Table:
    """Tokens that the tokenizer does not know, and what stands behind them."""
    rows = []
    for profile in found.splits:
        of = profile.unknown
        if of.unknown:
            rows.append([profile.split, of.unknown, percent(of.share), ", ".join(told_unknown(of, 10))])
    return Table("Tokens that the tokenizer does not know ([UNK])", ["split", "tokens", "share", "most of all"], rows)


def overlap_table(found: Inspection) -> Table:
    """Rows of one split in another."""
    rows = [
        [f"{each.inside} in {each.other}", each.exact, percent(each.exact / max(each.rows, 1)), each.near,
         percent(each.near / max(each.rows, 1))]
        for each in found.duplicates.overlaps
    ]  # fmt: skip
    return Table("Rows of one split in another", ["rows of", "the same", "%", "almost", "%"], rows)


def group_table(title: str, groups: Sequence[Sequence[Seen]], shown: Shown) -> Table:
    """Rows with the same texts: a line per row, the text with the first."""
    rows = []
    for group in groups[: shown.rows]:
        for number, row in enumerate(group[:6]):
            text = shortened(row.text, shown.width) if number == 0 else ""
            rows.append([shown.place(row.where), row.split, told_labels(row), text])
        if len(group) > 6:
            rows.append([f"and {len(group) - 6} more rows", "", "", ""])
    return _filled(_of(title, len(groups), min(len(groups), shown.rows)), [WHERE, "split", "label", "text"], rows)


def pair_table(title: str, pairs: Sequence[NearPair], shown: Shown) -> Table:
    """Rows that are almost the same, two lines per pair."""
    rows = []
    for pair in pairs[: shown.rows]:
        for row, similarity in ((pair.first, f"{pair.similarity:.2f}"), (pair.second, "")):
            text = shortened(row.text, shown.width)
            rows.append([similarity, shown.place(row.where), row.split, told_labels(row), text])
    return _filled(
        _of(title, len(pairs), min(len(pairs), shown.rows)), ["similar", WHERE, "split", "label", "text"], rows
    )


def suspicion_tables(found: Inspection, shown: Shown) -> Iterator[Table]:
    """A table per kind: unusable rows first."""
    for suspicion in found.suspicions:
        title = f"{'Cannot be used' if suspicion.bad else 'Suspicious'}: {suspicion.kind}"
        rows = [
            [shown.place(where), split, details, shortened(text, shown.width)]
            for where, split, details, text in suspicion.first[: shown.rows]
        ]
        yield _filled(_of(title, suspicion.count, len(rows)), [WHERE, "split", "what", "text"], rows)


def _filled(title: str, columns: list[str], rows: list[list[Any]]) -> Table:
    """A table without the columns that are empty."""
    kept = [i for i in range(len(columns)) if any(row[i] != "" for row in rows)]
    return Table(title, [columns[i] for i in kept], [[row[i] for i in kept] for row in rows])


def _of(title: str, count: int, listed: int) -> str:
    return f"{title} ({count:,}, {listed:,} shown)" if count > listed else f"{title} ({count:,})"


def all_tables(found: Inspection, shown: Shown) -> Iterator[Table]:
    """Every table that has rows."""
    same, near = found.duplicates.same, found.duplicates.near
    tables = [
        split_table(found),
        label_table(found),
        length_table(found),
        unknown_table(found),
        overlap_table(found),
        group_table(SAME, same, shown),
        pair_table(NEAR, near, shown),
        group_table(CONFLICTS, found.duplicates.conflicts, shown),
        pair_table(NEAR_CONFLICTS, found.duplicates.near_conflicts, shown),
        *suspicion_tables(found, shown),
    ]
    return (each for each in tables if each.rows)



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
