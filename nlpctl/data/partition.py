"""Assigns the rows of a data set to train, dev and test."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nlpctl.config.input_formats import INPUT_FORMATS
from nlpctl.config.schema import DataSection
from nlpctl.data.changed_rows import rows_before_and_after
from nlpctl.data.near_duplicates import near_rows, row_key
from nlpctl.data.open_split import FileRows
from nlpctl.data.readers.row import BadRow, Row, RowSource, group_name
from nlpctl.data.records import article_of
from nlpctl.data.rows.examples import BadRowLog, ExampleReader
from nlpctl.data.rows.labels import LabelSet, warn_of_twins
from nlpctl.data.rows.task_rows import TaskRows
from nlpctl.errors import UserError
from nlpctl.names import and_more, counted, did_you_mean, listed

# -- stratified splitting of groups of rows: every label has its share in each part -----------------------------------
#
# Iterative stratification (Sechidis, Tsoumakas, Vlahavas: On the stratification of multi-label data, 2011): labels
# are handed out from the rarest on, each group to the part whose turn it is. With one label per row this is the usual
# stratified split. Groups, here, are rows that have to stay together.
#
# Groups are handed out from the largest on, so that small ones even out the sizes. The turns of groups of several rows
# are those of Webster's method for seats: the next one is of the part with the most share / (taken + half of what is
# handed out). By what a part lacks, train would get nearly all large groups: dev and test would have none of the long
# texts with many questions, and none of the busy authors. Single rows go where their label is lacking most.


@dataclass(frozen=True)
class Group:
    """Rows that stay together: their indexes, and how often they have each label."""

    rows: tuple[int, ...]
    labels: Counter[str]


def group_rows(keys: Sequence[Iterable[Hashable]], labels: Sequence[Sequence[str]]) -> list[Group]:
    """Rows that share any key are one group, also by way of a third row; groups in the order of their first row."""
    parents = list(range(len(keys)))

    def root(i: int) -> int:
        while parents[i] != i:
            # Path halving keeps union-find nearly linear; a data set may have a million rows.
            parents[i] = parents[parents[i]]
            i = parents[i]
        return i

    first: dict[Hashable, int] = {}
    for i, own in enumerate(keys):
        for key in own:
            earlier = root(first.setdefault(key, i))
            parents[root(i)] = earlier
    members: dict[int, list[int]] = defaultdict(list)
    for i in range(len(keys)):
        members[root(i)].append(i)
    return [Group(tuple(rows), Counter(label for i in rows for label in labels[i])) for rows in members.values()]


def stratify(groups: Sequence[Group], targets: Sequence[int], seed: int) -> list[list[int]]:
    """Row indexes per part, sorted. `targets`: rows wanted in each part; less than all leaves rows out.

    Equal arguments give equal parts. A part gets more or less than wanted only where groups do not fit into it.

    Before all others come large groups that are more than a part's share of their label (`_large`): a frequent label
    is handed out last, when the smaller parts are nearly full, and the largest part would become too large.
    """
    total = sum(len(group.rows) for group in groups)
    targets = [*targets, max(total - sum(targets), 0)]  # the last part is what is left out
    order = list(groups)
    random.Random(seed).shuffle(order)
    # Stable: groups of one size keep their random order.
    order.sort(key=lambda group: -len(group.rows))  # while there is room everywhere
    parts = _Parts(targets, sum((group.labels for group in groups), Counter()), total)
    by_label: dict[str, list[int]] = defaultdict(list)
    for i, group in enumerate(order):
        for label in group.labels:
            by_label[label].append(i)
    waiting = Counter({label: sum(order[i].labels[label] for i in members) for label, members in by_label.items()})
    placed: dict[int, int] = {}
    for i in sorted(_large(order, targets, total)):
        placed[i] = parts.take(order[i], min(order[i].labels, key=lambda label: (waiting[label], label), default=None))
    if placed:
        for i in placed:
            waiting -= order[i].labels
        parts.share_out(waiting)
    while waiting:
        rarest = min(waiting, key=lambda label: (waiting[label], label))
        del waiting[rarest]
        for i in by_label[rarest]:
            if i not in placed:
                placed[i] = parts.take(order[i], rarest)
                for label in order[i].labels.keys() & waiting.keys():
                    waiting[label] -= order[i].labels[label]
    for i, group in enumerate(order):
        if i not in placed:
            placed[i] = parts.take(group, None)
    rows: list[list[int]] = [[] for _ in targets]
    for i, part in placed.items():
        rows[part].extend(order[i].rows)
    return [sorted(each) for each in rows[:-1]]


def _large(groups: Sequence[Group], targets: Sequence[int], total: int) -> set[int]:
    """The places of groups with more than a percent of all rows, of labels whose groups fit into no part's share.

    `groups`: the largest first. Rows without labels count as those of one label.
    """
    shares = [target / max(total, 1) for target in targets]
    members: dict[str | None, list[tuple[int, int]]] = defaultdict(list)
    for i, group in enumerate(groups):
        for label, count in group.labels.items() if group.labels else [(None, len(group.rows))]:
            members[label].append((count, i))
    large: set[int] = set()
    for own in members.values():
        lacking = [share * sum(count for count, _ in own) for share in shares]
        fits = True
        for count, _ in sorted(own, reverse=True):
            most = max(range(len(lacking)), key=lacking.__getitem__)
            lacking[most] -= count
            fits = fits and lacking[most] > -1
        if not fits:
            large.update(i for _, i in own if len(groups[i].rows) > max(total / 100, 1))
    return large


class _Parts:
    """The number of rows, and of examples of each label, that each part wants and has taken."""

    def __init__(self, targets: Sequence[int], labels: Counter[str], total: int):
        self._shares = [target / max(total, 1) for target in targets]
        self._wanted: dict[str | None, list[float]] = {
            label: [count * share for share in self._shares] for label, count in labels.items()
        }
        self._wanted[None] = list(targets)  # of rows
        self._taken = {label: [0] * len(targets) for label in self._wanted}

    def take(self, group: Group, label: str | None) -> int:
        """Put `group` into the part whose turn it is for `label`, among those that have room; returns the part."""
        size = len(group.rows)
        lacking = self._lacking(None)
        fits = [part for part, rows in enumerate(lacking) if rows >= size]
        room = [part for part, rows in enumerate(lacking) if rows > 0 and 2 * rows >= size]
        candidates = fits or room or range(len(lacking))
        if size == 1:  # what is left, evens out what larger groups could not
            turns = self._lacking(label)
        else:
            half = (size if label is None else group.labels[label]) / 2
            pairs = zip(self._wanted[label], self._taken[label], strict=True)
            turns = [wanted / (taken + half) for wanted, taken in pairs]
        chosen = max(candidates, key=lambda part: (turns[part], lacking[part], -part))
        self._taken[None][chosen] += size
        for name, count in group.labels.items():
            self._taken[name][chosen] += count
        return chosen

    def share_out(self, waiting: Mapping[str, int]) -> None:
        """Let the parts want the examples `waiting` of each label by the rows that they have room for now."""
        rows = self._lacking(None)
        room = [max(each, 0) / share if share else 0.0 for each, share in zip(rows, self._shares, strict=True)]
        for label in [label for label in self._wanted if label is not None]:
            lacking = [max(each, 0.0) * space for each, space in zip(self._lacking(label), room, strict=True)]
            total = sum(lacking)
            if total:
                self._wanted[label] = [waiting.get(label, 0) * each / total for each in lacking]
                self._taken[label] = [0] * len(lacking)

    def _lacking(self, label: str | None) -> list[float]:
        return [wanted - taken for wanted, taken in zip(self._wanted[label], self._taken[label], strict=True)]


@dataclass(frozen=True)
class SplitRows:
    """The good rows of a source with their texts and labels, and the summary of the bad ones.

    `unmapped`: the rows as they were before data.map. `starts`: file to the lines on which its rows begin, those of bad
    rows and of rows that data.filter leaves out too. `places`: which of the rows of its file each good one is, from 0;
    lines do not tell, for a json document may stand on one.
    """

    rows: list[Row]
    unmapped: list[Row]
    passages: list[dict[str, str]]
    labels: list[tuple[str, ...]]
    skipped: dict[str, Any]
    starts: dict[str, list[int]]
    places: list[int]


def read_split_rows(source: RowSource, rows: TaskRows, labels: LabelSet) -> SplitRows:
    """All good rows. UserError: bad rows (by data.on_bad_row)."""
    reader, log = ExampleReader(rows, labels), BadRowLog(rows.data.on_bad_row)
    good: list[Row] = []
    unmapped: list[Row] = []
    passages: list[dict[str, str]] = []
    names: list[tuple[str, ...]] = []
    starts: dict[str, list[Any]] = defaultdict(list)
    places: list[int] = []
    for before, row in rows_before_and_after(source):
        # Of every row, also of one that is bad or left out: Records needs it as the end of the row before.
        starts[before.source].append(before.line)
        if row is None:
            continue
        example = reader.read(row)
        if isinstance(example, BadRow):
            log.add(example)
            continue
        assert isinstance(row, Row) and isinstance(before, Row), "of a bad row there is no example"
        good.append(row)
        unmapped.append(before)
        places.append(len(starts[before.source]) - 1)
        passages.append(rows.passages(example))
        names.append(rows.label_names(example, labels))
    log.finish()
    return SplitRows(good, unmapped, passages, names, log.summary(), dict(starts), places)


def as_written(source: RowSource, read: SplitRows, data: DataSection) -> list[Row]:
    """The rows of `read`, before data.map, as `source` holds them: labels as data.numbered_labels finds them, columns
    as data.by_split calls them. A recipe that reads copies of them names both again.

    Rows of files whose lines are copied stay as they are.
    """
    plain: Any = None
    if isinstance(source, FileRows):
        chosen = [i for i, kind in enumerate(source.formats) if INPUT_FORMATS[kind].copied in ("array", "jsonl")]
        if chosen and (source.named or source.label_names is not None):
            files, formats = tuple(source.files[i] for i in chosen), tuple(source.formats[i] for i in chosen)
            required = source.own_required
            plain = replace(source, files=files, formats=formats, required=required, named={}, label_names=None)
    elif data.numbered_labels is not None:
        changed: Any = source  # FunctionRows or NamedRows, whose module imports the data set libraries
        plain = replace(changed, label_names=None)
    if plain is None:
        return read.unmapped
    held: dict[str, list[Any]] = defaultdict(list)
    for row in plain:
        held[row.source].append(row)
    rows = zip(read.unmapped, read.places, strict=True)
    return [held[row.source][place] if row.source in held else row for row, place in rows]


def cut(
    read: SplitRows,
    targets: Mapping[str, int],
    seed: int,
    *,
    together: str | None = None,
    group_by: str | None = None,
    near: float | None = None,
) -> dict[str, list[int]]:
    """Row indexes per part, stratified by label.

    Rows stay together that have the same texts, or are questions of one article; further those with the same text
    in the column `together`, the same value of the column `group_by`, or a similarity of `near`: in that column if
    there is one, else in all of their texts, in whatever order.
    """
    groups = _groups(read, together, group_by, near, "@[group-by]")
    parts = stratify(groups, list(targets.values()), seed)
    for (name, target), chosen in zip(targets.items(), parts, strict=True):
        if target and not chosen:
            kept = max(len(group.rows) for group in groups)
            raise no_row_left(name, f"up to {kept:,} rows have to stay together")
    return dict(zip(targets, parts, strict=True))


def fold_rows(
    read: SplitRows,
    count: int,
    seed: int,
    *,
    together: str | None = None,
    group_by: str | None = None,
    near: float | None = None,
) -> list[list[int]]:
    """Row indexes per fold, stratified by label; every row is in one fold.

    What stays together: as for `cut`. UserError if fewer than `count` folds would hold a row.
    """
    groups = _groups(read, together, group_by, near, "data.columns.group")
    total = len(read.rows)
    if len(groups) < count:
        message = f"{total:,} rows cannot be cut into {count} folds: {len(groups):,} groups of rows stay together"
        raise UserError(message, where="@[folds]", hint="ask for fewer folds")
    folds = stratify(groups, [total // count + (i < total % count) for i in range(count)], seed)
    placed = {row for fold in folds for row in fold}
    for group in groups:
        if group.rows[0] not in placed:  # it fits into no fold
            min(folds, key=len).extend(group.rows)
    if not all(folds):
        kept = max(len(group.rows) for group in groups)
        message = f"a fold would be empty: up to {kept:,} of {total:,} rows have to stay together"
        raise UserError(message, where="@[folds]", hint="ask for fewer folds")
    return [sorted(fold) for fold in folds]


def no_row_left(part: str, why: str) -> UserError:
    """The error for a part that would be empty."""
    return UserError(f"no row is left for {part}: {why}", where=f"@[{part}]", hint="ask for more rows")


@dataclass(frozen=True)
class Lack:
    """A label, None: rows without any, that is in no row of some `parts`, though it has `rows` enough for each of them.

    `copies`: of its distinct `texts` it has too few.
    """

    label: str | None
    parts: list[str]
    rows: int
    texts: int
    copies: bool


def lacks(
    labels: Sequence[Sequence[str]], passages: Sequence[Sequence[str]], parts: Mapping[str, Sequence[int]]
) -> Iterator[Lack]:
    """`labels`, `passages`: of each row; rows without labels count as those of one. `parts`: rows, by their places."""
    part_of = {i: part for part, chosen in parts.items() for i in chosen}
    members: dict[str | None, list[int]] = defaultdict(list)
    for i in part_of:
        for label in dict.fromkeys(labels[i]) or [None]:
            members[label].append(i)
    for label, rows in members.items() if len(members) > 1 else ():
        wanted = [part for part, chosen in parts.items() if len(rows) * len(chosen) >= len(part_of)]
        absent = [part for part in wanted if part not in {part_of[i] for i in rows}]
        if absent:
            texts = len({row_key(passages[i]) for i in rows})
            copies = any(texts * len(parts[part]) < len(part_of) for part in absent)
            yield Lack(label, absent, len(rows), texts, copies)


def absent_kinds(read: SplitRows, parts: Mapping[str, Sequence[int]], unlabelled: str, grouped: bool) -> str:
    """Which labels are in no row of some part because rows stay together, as a sentence; "" if there are none.

    `unlabelled`: what rows without labels are called. `grouped`: whether rows with other texts stay together, too.
    """
    told = []
    for each in lacks(read.labels, [tuple(texts.values()) for texts in read.passages], parts):
        if grouped or each.copies:
            why = f"are copies of {counted(each.texts, 'texts')}" if each.copies else "stay together with others"
            what = f"row {unlabelled}" if each.label is None else f"row of {each.label}"
            told.append(f"no {what} in {' and '.join(each.parts)} ({counted(each.rows, 'rows')} {why})")
    return f"rows that belong together stay in one part, so there is {and_more(told)}" if told else ""


def label_counts(read: SplitRows, chosen: Sequence[int]) -> dict[str, int]:
    """Examples per label among the rows `chosen`, the most frequent first."""
    counts = Counter(label for i in chosen for label in read.labels[i])
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _groups(read: SplitRows, together: str | None, group_by: str | None, near: float | None, key: str) -> list[Group]:
    """`key`: what names the column `group_by`, for messages."""
    keys: list[list[Hashable]] = [
        list(_keys(row, texts, together, group_by, key)) for row, texts in zip(read.rows, read.passages, strict=True)
    ]
    if group_by is not None:
        names = {group_name(row.values[group_by]) for row in read.rows}
        warn_of_twins((name for name in names if name is not None), key, "groups")
    if near is not None:
        compared = [tuple(texts.values()) if together is None else (texts[together],) for texts in read.passages]
        for i, j, _ in near_rows(compared, near):
            # Both rows get the key of the pair; group_rows joins whatever shares a key, also in chains.
            keys[j].append(("near", i))
            keys[i].append(("near", i))
    return group_rows(keys, read.labels)


def _keys(
    row: Row, texts: Mapping[str, str], together: str | None, group_by: str | None, key: str
) -> Iterator[Hashable]:
    yield "text", row_key(tuple(texts.values()))
    article = article_of(row)
    if article is not None:
        yield "article", article
    if together is not None:
        yield "together", row_key((texts[together],))
    if group_by is not None:
        if group_by not in row.values:
            hint = f"the columns are {listed(row.values)}{did_you_mean(group_by, row.values)}"
            raise UserError(f"no column {group_by!r}", where=key, hint=hint)
        if (name := group_name(row.values[group_by])) is not None:
            yield "value", name
