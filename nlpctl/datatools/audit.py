"""`nlpctl data audit`: what is probably wrong in the training data of folds.

predictions of rows that no model saw -> wrong labels | rows that contradict each other | outliers -> findings
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from nlpctl import console
from nlpctl.checksums import sha256_of
from nlpctl.config.load import Override, load_recipe
from nlpctl.config.schema import SPLITS, Recipe
from nlpctl.config.tasks import known_tasks, task_info
from nlpctl.data.changed_rows import unmapped_source
from nlpctl.data.inspection.duplicates import find_duplicates
from nlpctl.data.inspection.lengths import EstimatedTokens
from nlpctl.data.inspection.report import shortened
from nlpctl.data.inspection.rows import InspectedRow, inspect_split
from nlpctl.data.open_split import FileRows, has_split, open_split
from nlpctl.data.readers.annotated import Mark
from nlpctl.data.readers.annotation_rows import SPANS, file_records
from nlpctl.data.readers.packed import packing
from nlpctl.data.readers.row import Row, place
from nlpctl.data.readers.spans import TEXT as SPANNED
from nlpctl.data.readers.spans import list_of, mark_of
from nlpctl.data.rows.tag_scheme import Span, detect_scheme
from nlpctl.data.rows.tagged_rows import TaggedExample
from nlpctl.datatools.corrections import (
    CONFLICT,
    ELSEWHERE,
    FINDINGS,
    FORMATS,
    KINDS,
    OUTLIER,
    WRONG,
    Finding,
    Target,
    write_findings,
)
from nlpctl.datatools.wrong_labels import (
    Worth,
    WrongTags,
    find_outliers,
    worth_of_first,
    wrong_classes,
    wrong_label_sets,
    wrong_tags,
)
from nlpctl.errors import Problem, UserError
from nlpctl.experiments.held_out import (
    HELD,
    PREDICTIONS,
    PROBABILITIES,
    SCORES,
    HeldOutProbabilities,
    read_lines,
    read_probabilities,
)
from nlpctl.experiments.series import SeriesFile, TrainingRows, read_rows, read_series
from nlpctl.files import read_json, write_text_atomic, writing
from nlpctl.names import counted
from nlpctl.outputs import refuse_below_file, refuse_output
from nlpctl.report.html import Html, element
from nlpctl.report.language import Later, later, say, say_each
from nlpctl.report.model import KeyFigures, Part, Place, Report, Section, Table, format_value, percent
from nlpctl.report.page import html_page
from nlpctl.runs.run_files import is_score
from nlpctl.tasks.base import task_class
from nlpctl.tasks.degenerate import degenerate_reason
from nlpctl.tasks.multi_label_classification import consistent

FOLDER, PAGE = "audit", "findings.html"
TEXT = 160  # characters of a text in a finding
AROUND = 12  # words on either side of those in question
_BLANKS = re.compile(r"\s+")
DOUBTFUL = 0.3  # share of wrong labels beyond which the models have not learned what they judge
_ELSEWHERE = "name another folder: @[output]"


@dataclass(frozen=True)
class Audit:
    """`rows`: how many were audited; `findings`: the surest first within each kind.

    `scores`: `metric` of each run on the rows that it did not see, by the labels as they are. `useless`: why, of runs
    that have learned nothing. `worth`: whether the first wrong labels may be taken without a look; empty if it cannot
    be told, as of several labels a row, of tags, and of few rows.
    """

    folder: Path
    rows: int
    findings: list[Finding]
    metric: str
    scores: dict[str, float]
    useless: dict[str, str]
    worth: list[Worth]

    @property
    def counts(self) -> dict[str, int]:
        """Findings per kind."""
        return dict(Counter(finding.kind for finding in self.findings))

    def share(self, kind: str) -> float:
        """The share of rows with findings of a kind; a sentence may have several."""
        return self.rows_of(kind) / max(self.rows, 1)

    def rows_of(self, kind: str) -> int:
        """How many rows have findings of a kind, copies among them."""
        chosen = [each for each in self.findings if each.kind == kind]
        found = {(each.edit.file, each.edit.row) if each.edit else each.where: each.rows for each in chosen}
        return sum(found.values())

    @property
    def changes(self) -> list[tuple[str, str, int]]:
        """What was given, what is proposed, and how often, the most frequent first; wrong labels only."""
        pairs = Counter(_change(each) for each in self.findings if each.kind == WRONG)
        return [(*pair, count) for pair, count in pairs.most_common()]

    @property
    def trust(self) -> Later:
        """How well the models answer rows that they did not see, as a sentence."""
        values = self.scores.values()
        spread = later(" ({:.3f} to {:.3f})", min(values), max(values)) if len(values) > 1 else ""
        told = (self.metric, fmean(values), spread)
        return later("the models score {} {:.3f}{} on rows that they did not see", *told)

    @property
    def doubt(self) -> str:
        """Which models have learned nothing, as a sentence; "" if all have learned something."""
        if not self.useless:
            return ""
        counts = len(self.useless), len(self.scores)
        return later("{} of {} models have learned nothing: what they call wrong says nothing of the labels", *counts)

    def to_json(self) -> dict[str, Any]:
        files = {"findings": self.folder / FINDINGS, "page": self.folder / PAGE}
        worth = [{**each._asdict(), "pays": each.pays} for each in self.worth]
        trust = {"metric": self.metric, "scores": self.scores, "useless": self.useless, "worth": worth}
        found = {"found": self.counts, "rows_found": {kind: self.rows_of(kind) for kind in self.counts}}
        return {"folder": self.folder, "rows": self.rows, **found, **trust, **files}


def format_label(label: Any) -> str:
    """A label, or several, for people; spans with their texts."""
    if _are_spans(label):
        return ", ".join(f"{span['label']}: {span['text']}" for span in label)
    return " ".join(map(str, label)) if isinstance(label, list) else "" if label is None else str(label)


def format_text(finding: Finding, length: int | None = None) -> str:
    """The text of a finding, cut to `length`, and how many rows have it."""
    text = finding.text if length is None else shortened(finding.text, length)
    return text if finding.rows == 1 else say("{} ({:,} rows)", text, finding.rows)


def _are_spans(label: Any) -> bool:
    return isinstance(label, list) and bool(label) and all(isinstance(each, dict) for each in label)


def _change(finding: Finding) -> tuple[str, str]:
    """What is given and proposed, without the texts of spans, which differ from row to row."""
    sides = (finding.given, finding.proposed)
    if finding.edit is None or finding.edit.format != SPANS:
        return format_label(finding.given), format_label(finding.proposed)
    given, proposed = (", ".join(span["label"] for span in side) for side in sides)
    return given, later("{} with other bounds", proposed) if given == proposed else proposed


def _told_change(change: tuple[str, str, int]) -> tuple[str, str, int]:
    """In the language of now; labels, which may be called like words of nlpctl, stay."""
    given, proposed, times = change
    return given, say(proposed) if isinstance(proposed, Later) else proposed, times


def audit(
    folder: Path, output: Path | None = None, *, overwrite: bool = False, given: Sequence[Override] = ()
) -> Audit:
    """Look for mistakes in the training data of the folds in `folder`; write them to `output`, by default a folder
    there. `given`: changes of the recipe of the folds.

    UserError: `folder` holds no finished folds, the data changed since, or the task has no labels.
    """
    target = folder / FOLDER if output is None else output
    recipe, began = _folds(folder, given)
    refuse_below_file(target, str(target))
    if target.is_dir() and any(target.iterdir()) and not (target / FINDINGS).exists():
        raise UserError("the folder is not empty and holds no findings", str(target), _ELSEWHERE)
    for name in (FINDINGS, PAGE):  # a person may have ticked there
        refuse_output(target / name, overwrite, exists="the file exists", elsewhere=_ELSEWHERE)
    rows = read_rows(recipe)
    changed = sorted(
        name for name, sum_ in began.data.items() if not (Path(name).is_file() and sha256_of(Path(name)) == sum_)
    )
    if changed:
        hint = "restore the file, or train the folds again: nlpctl train RECIPE --folds N --overwrite"
        raise UserError("the data changed since the folds were trained", changed[0], hint)
    shares, labels = read_probabilities(folder / PROBABILITIES)
    lines = read_lines(folder / PREDICTIONS)
    if labels != rows.labels.names or len(shares.ends) != len(rows) or not _fit(lines, rows, shares):
        hint = "train the folds again with @[overwrite=true]"
        raise UserError("the predictions are not those of the training rows", str(folder / PREDICTIONS), hint)
    metric = task_info(recipe.task).metrics[0]
    reports = {name: _report(folder / HELD / name / SCORES, metric) for name in began.runs}
    scores = {name: float(report[metric]) for name, report in reports.items()}
    reasons = {name: degenerate_reason(recipe.task, report) for name, report in reports.items()}
    useless: dict[str, str] = {name: reason for name, reason in reasons.items() if reason is not None}
    console.note(f"looking for wrong labels in {counted(len(rows), 'rows')}")
    auditor = _Auditor(recipe, rows, shares, lines)
    findings, worth = auditor.findings()
    with writing(target, _ELSEWHERE):
        write_findings(target / FINDINGS, findings)
        result = Audit(target, len(rows), findings, metric, scores, useless, worth)
        write_text_atomic(target / PAGE, audit_page(result, str(folder)))
    if useless:
        hint = "train them longer, or another model; docs/guards.md says what to check"
        console.warn(str(Problem(f"{result.doubt} ({', '.join(map(': '.join, useless.items()))})", hint=hint)))
    elif result.share(WRONG) > DOUBTFUL:
        console.warn(f"so many rows are called wrong that the models are in doubt, not the labels: {result.trust}")
    return result


def _folds(folder: Path, given: Sequence[Override]) -> tuple[Recipe, SeriesFile]:
    """The recipe of the folds, and what they began with."""
    began = read_series(folder)
    again = "train the folds: nlpctl train RECIPE --folds 5"
    if not began.plan.get("folds"):
        raise UserError("these runs saw all rows: there are no predictions of unseen ones", str(folder), again)
    if began.state != "finished":
        hint = "finish them: the same nlpctl train command with --resume"
        raise UserError("the folds are not finished", str(folder), hint)
    recipe = load_recipe(folder, given, "apply")
    if not task_info(recipe.task).labelled:
        known = ", ".join(task.name for task in known_tasks() if task.labelled)
        raise UserError(f"rows of {recipe.task} have no labels to audit", str(folder), f"it is for {known}")
    return recipe, began


def _report(file: Path, metric: str) -> Mapping[str, Any]:
    """The scores of a run on the rows that it did not see, as far as they are whole. UserError without `metric`."""
    content = read_json(file)
    report = {name: value for name, value in content.items() if is_score(name, value, content)}
    if metric not in report:
        raise UserError(f"is damaged: it has no {metric}", str(file), "train the folds again with @[overwrite=true]")
    return report


def _fit(lines: Sequence[Any], rows: TrainingRows, shares: HeldOutProbabilities) -> bool:
    """Whether the lines of the predictions are those of the rows."""
    if len(lines) != len(rows):
        return False
    places = (place(row.source, row.line) for row in rows.read.rows)
    units = np.diff(shares.ends, prepend=0).tolist()
    return all(
        isinstance(line, dict)
        and line.get("where") == where
        and ("tags" not in line or (len(line["tags"]) == count and set(line["tags"]) <= {*rows.labels.names}))
        for line, where, count in zip(lines, places, units, strict=True)
    )


class _Auditor:
    """Turns rows and predictions into findings."""

    def __init__(
        self, recipe: Recipe, rows: TrainingRows, shares: HeldOutProbabilities, lines: Sequence[dict[str, Any]]
    ):
        self._recipe, self._rows, self._lines = recipe, rows, lines
        self._shares = shares.rows()
        self._examples = rows.examples(range(len(rows)))
        self._spans: dict[int, list[Any]] = {}  # of the rows of files of spans
        self._targets = list(_targets(rows, task_class(recipe.task).independent, self._spans))
        self._group, self._members = self._equal_rows()

    def _equal_rows(self) -> tuple[list[int], dict[int, list[int]]]:
        """Of each row the first one with equal texts and labels; and of each such one all of them."""
        first: dict[Any, int] = {}
        group, members = [], defaultdict(list)
        tags = task_info(self._recipe.task).tags
        for row, (texts, example) in enumerate(zip(self._rows.read.passages, self._examples, strict=True)):
            words = tuple(example.words()) if tags else ()
            group.append(first.setdefault((*texts.values(), words, repr(self._given(row))), row))
            members[group[row]].append(row)
        return group, members

    def findings(self) -> tuple[list[Finding], list[Worth]]:
        """Wrong labels, then contradictions, then outliers; and what the first wrong labels are worth."""
        tags = task_info(self._recipe.task).tags
        pairs = list(self._merged(self._wrong_tags() if tags else self._wrong_labels()))
        worth = []
        if not tags and not task_class(self._recipe.task).independent:
            worth = worth_of_first(self._gold(), np.concatenate(self._shares), [row for row, _ in pairs])
        wrong = [finding for _, finding in pairs]
        # Of a sentence those at its first word. Lines alone do not tell: a json document may stand on one.
        first = ((i, row, finding) for i, (row, finding) in enumerate(pairs) if finding.where == self._where(row))
        by_group = {self._group[row]: i for i, row, _ in first}
        conflicts = []
        for row, finding in self._merged(self._conflicts()):
            if (i := by_group.get(self._group[row])) is not None:  # the same row: one finding, with both reasons
                wrong[i] = replace(wrong[i], other=finding.other, other_label=finding.other_label)
            else:
                conflicts.append(finding)
        return [*wrong, *conflicts, *(finding for _, finding in self._merged(self._outliers()))], worth

    def _where(self, row: int) -> str:
        return str(self._lines[row]["where"])

    def _merged(self, findings: Iterator[tuple[int, Finding]]) -> Iterator[tuple[int, Finding]]:
        """Findings about rows with equal texts and labels are those of the first of them that has any, about all."""
        spoken: dict[int, int] = {}
        for row, finding in findings:
            group = self._group[row]
            if spoken.setdefault(group, row) == row:
                members = self._members[group]
                targets = [target for target in map(self._targets.__getitem__, members) if target is not None]
                edit, copies = finding.edit, None
                if edit is None and targets and not task_info(self._recipe.task).tags:
                    edit = targets[0]  # the first row is in a file that cannot be changed, this one is not
                if edit is not None:
                    # Files of spans and of tags say the same in other words: the finding has those of one kind.
                    alike = [each for each in targets if (each.format == SPANS) == (edit.format == SPANS)]
                    others = [each for each in alike if (each.file, each.row) != (edit.file, edit.row)]
                    copies = tuple(_at(each, edit) for each in others) or None
                yield row, replace(finding, edit=edit, rows=len(members), copies=copies)

    def _gold(self) -> np.ndarray:
        """The label of each row, int [rows], where rows have one."""
        return np.array([example.label for example in self._examples])

    # -- wrong labels ----------------------------------------------------------------------------------

    def _wrong_labels(self) -> Iterator[tuple[int, Finding]]:
        names = self._rows.labels.names
        shares = np.concatenate(self._shares)
        several = task_class(self._recipe.task).independent
        if several:
            gold = np.zeros(shares.shape, bool)
            for row, example in enumerate(self._examples):
                gold[row, list(example.labels)] = True
            suspects = wrong_label_sets(gold, shares)
        else:
            suspects = wrong_classes(self._gold(), shares)
        for each in suspects:
            given = self._given(each.row)
            if several:
                wanted = np.zeros((1, len(names)), bool)
                wanted[0, list(each.label)] = True
                chosen = np.flatnonzero(consistent(wanted, names)[0])
                same = {*chosen.tolist()} == {*self._examples[each.row].labels}
                proposed = self._joined([names[i] for i in chosen], given)
            else:
                same = each.label == self._examples[each.row].label
                proposed = _alike(names[each.label], given)
            if not same:  # not by their spelling: "a, b" is "a,b"
                yield each.row, self._finding(WRONG, each.row, given, proposed, each.given, each.proposed)

    def _joined(self, labels: list[str], given: Any) -> Any:
        """Labels as the file writes several."""
        return labels if isinstance(given, list) else self._recipe.data.label_separator.join(labels)

    def _finding(
        self, kind: str, row: int, given: Any, proposed: Any, own: float | None, best: float | None, **more: Any
    ) -> Finding:
        text = shortened(" ∥ ".join(self._rows.read.passages[row].values()), TEXT)
        shares: dict[str, Any] = {"given_probability": _rounded(own), "proposed_probability": _rounded(best)}
        return Finding(kind, self._where(row), text, given, proposed, edit=self._targets[row], **shares, **more)

    def _given(self, row: int) -> Any:
        """The label as the file has it: of a file of spans the spans, as objects."""
        return self._spans.get(row, self._tags(row))

    def _wrong_tags(self) -> Iterator[tuple[int, Finding]]:
        labels = self._rows.labels
        gold = [np.asarray(example.tags) for example in self._examples]
        answers = [np.array([labels.id(tag) for tag in line["tags"]]) for line in self._lines]
        scheme = detect_scheme(labels.names, "the tags")
        for each in wrong_tags(gold, answers, self._shares, labels.names, scheme):
            row, example, target = self._rows.read.rows[each.row], self._examples[each.row], self._targets[each.row]
            answer = [labels.name(tag) for tag in answers[each.row]]
            given, proposed = ([*names[each.start : each.end]] for names in ([*map(labels.name, example.tags)], answer))
            start = each.start
            if each.row in self._spans:
                start, given, proposed = self._spans_at(each, scheme.entities(answer))
            yield (
                each.row,
                Finding(
                    WRONG,
                    place(row.source, row.line_of(each.start)),
                    _in_context(example, each.start, each.end),
                    given,
                    proposed,
                    _rounded(each.given),
                    edit=None if target is None else replace(target, word=start),
                ),
            )

    def _tags(self, row: int) -> Any:
        """The label as the task has it."""
        return self._rows.read.rows[row].values[self._rows.rows.label_column]

    def _spans_at(self, wrong: WrongTags, entities: Sequence[Span]) -> tuple[int, list[Any], list[Any]]:
        """Where the words in doubt begin in the text of the file, and the spans that are there: as given, and those of
        `entities` in place of them."""
        text, bounds = self._text_of_file(wrong.row)
        start, end = bounds[wrong.start][0], bounds[wrong.end - 1][1]
        given = [span for span in self._given(wrong.row) if span["start"] < end and span["end"] > start]
        inside = (span for span in entities if wrong.start <= span.start and span.end <= wrong.end)
        found = (Mark(bounds[span.start][0], bounds[span.end - 1][1], span.type) for span in inside)
        return start, given, [_span(text, mark) for mark in found]

    def _text_of_file(self, row: int) -> tuple[str, list[tuple[int, int]]]:
        """The text of a row of a file of spans, and the bounds of its words there; data.map may have changed it."""
        text: str = self._rows.read.unmapped[row].values[SPANNED]
        bounds, position = [], 0
        for word in self._examples[row].words():
            start = text.index(word, position)
            position = start + len(word)
            bounds.append((start, position))
        return text, bounds

    # -- contradictions and outliers -------------------------------------------------------------------

    def _conflicts(self) -> Iterator[tuple[int, Finding]]:
        """Rows that say the same, or almost, and have different labels: within the training data and across splits."""
        splits = [split for split in SPLITS if has_split(self._recipe.data, split)]
        rows, labels = self._rows.rows, self._rows.labels
        rows_of_splits: list[InspectedRow] = []
        for split in splits:
            source = open_split(rows, split)
            rows_of_splits += inspect_split(source, split, rows, labels, EstimatedTokens(), most=None, shown=1).good
        duplicates = find_duplicates(rows_of_splits, splits, symmetric=rows.symmetric)
        row_of = {id(each): row for row, each in enumerate(each for each in rows_of_splits if each.split == "train")}
        done: set[int] = set()
        for first, second in [
            *_pairs(duplicates.conflicts),
            *((each.first, each.second) for each in duplicates.near_conflicts),
        ]:
            one, other = sorted((first, second), key=lambda each: self._own_share(row_of.get(id(each)), each))
            row = row_of.get(id(one))
            if row is None or row in done:
                continue
            done.add(row)
            yield row, self._conflict(row, other)

    def _own_share(self, row: int | None, seen: InspectedRow) -> float:
        """How likely the row's label is; of a row that was not held out more than any."""
        if row is None:
            return 2.0
        names = self._rows.labels.names
        own = self._shares[row][0]
        one = len(self._shares[row]) == 1 and len(seen.labels) == 1
        return float(own[names.index(seen.labels[0])]) if one else 1.0

    def _conflict(self, row: int, other: InspectedRow) -> Finding:
        given, labels = self._given(row), list(other.labels)
        where = f"{other.where} ({other.split})"
        proposed, own, best = None, None, None
        if len(labels) == 1 and not isinstance(given, list):
            share = self._shares[row][0]
            best_label = int(share.argmax())
            if self._rows.labels.names[best_label] == labels[0]:  # its model agrees with the other row
                proposed, best = _alike(labels[0], given), float(share[best_label])
        return self._finding(CONFLICT, row, given, proposed, own, best, other=where, other_label=labels)

    def _outliers(self) -> Iterator[tuple[int, Finding]]:
        texts = ["\n".join(texts.values()) for texts in self._rows.read.passages]
        for row, distance in find_outliers(texts):
            yield row, self._finding(OUTLIER, row, self._given(row), None, None, None, distance=round(distance, 4))


def _pairs(groups: Sequence[Sequence[InspectedRow]]) -> Iterator[tuple[InspectedRow, InspectedRow]]:
    """Of each group with equal texts, the rows that differ from most, each with one of these."""
    for group in groups:
        most = Counter(row.target for row in group).most_common(1)[0][0]
        usual = next(row for row in group if row.target == most)
        yield from ((row, usual) for row in group if row.target != most)


def _at(target: Target, other: Target) -> Target:
    """The same words, or spans, of another row."""
    return replace(target, word=other.word)


def _targets(
    rows: TrainingRows, several: bool, given_spans: dict[int, list[Any]] | None = None
) -> Iterator[Target | None]:
    """Where the label of each row is; None for rows that are in no file of a kind that can be changed, and for all of
    them if data.map makes the labels, for the names of labels are not those of the file then. `several`: as in Target.
    `given_spans` gets those of the rows of files of spans.
    """
    source, label = unmapped_source(rows.source), rows.rows.label_column
    column = source.named.get(label, label) if isinstance(source, FileRows) else label
    pairs = list(zip(rows.read.unmapped, rows.read.rows, strict=True))
    if (
        not isinstance(source, FileRows)
        or source.label_names is not None
        or not all(_same(given.values.get(column), row.values[label]) for given, row in pairs)
    ):
        yield from (None for _ in rows.read.rows)
        return
    formats = {str(path): kind for path, kind in zip(source.files, source.formats, strict=True)}
    sums = {name: sha256_of(Path(name)) for name in formats}
    packed = {name for name in formats if packing(name) is not None}
    records = {name: _span_records(name) for name, kind in formats.items() if kind == SPANS and name not in packed}
    words = rows.rows.data.columns.tokens
    for number, ((given, row), at) in enumerate(zip(pairs, rows.read.places, strict=True)):
        name, kind, own = row.source, formats[row.source], column
        known = kind in FORMATS and name not in packed
        if known and kind == SPANS:
            known = row.line in records[name] and _same(given.values.get(words), row.values.get(words))
            if known:
                at, own, spans = records[name][row.line]
                if given_spans is not None:
                    given_spans[number] = spans
        yield Target(name, sums[name], at, kind, source.header, own, several=several or None) if known else None


def _span_records(file: str) -> dict[int | str, tuple[int, str, list[Any]]]:
    """Of the rows of a file of spans, by their lines: the place among all, the key of the spans, and these as objects.
    Empty: the file is of a shape that cannot be changed."""
    shape, records = file_records(file)
    found: dict[int | str, tuple[int, str, list[Any]]] = {}
    for at, row in enumerate(records if shape in ("lines", "array") else ()):
        key = list_of(row.values) if isinstance(row, Row) else None
        if isinstance(row, Row) and key is not None:
            with contextlib.suppress(ValueError):  # a bad row, of which there is no finding
                marks = sorted({mark_of(row.values[SPANNED], span) for span in row.values[key]})
                found[row.line] = at, key, [_span(row.values[SPANNED], mark) for mark in marks]
    return found


def _span(text: str, mark: Mark) -> dict[str, Any]:
    return {**mark._asdict(), SPANNED: text[mark.start : mark.end]}


def _same(one: Any, other: Any) -> bool:
    """Whether a file writes both alike; 1 is not "1", and not true."""
    return type(one) is type(other) and one == other


def _in_context(example: TaggedExample, start: int, end: int) -> str:
    """The words [start, end) in brackets, as they stand in the text, with some on either side."""
    bounds, first, last = example.spans(), max(0, start - AROUND), min(len(example), end + AROUND)
    places = bounds[first][0], bounds[start][0], bounds[end - 1][1], bounds[last - 1][1]
    before, inside, after = (_BLANKS.sub(" ", example.text[one:other]) for one, other in pairwise(places))
    return f"{'…' if first else ''}{before}[{inside}]{after}{'…' if last < len(example) else ''}"


def _alike(name: str, given: Any) -> Any:
    """A label as the file writes it, where it may be a number or a truth value."""
    if isinstance(given, bool):
        return name.lower() == "true"
    if isinstance(given, int | float):
        with contextlib.suppress(ValueError):
            number = json.loads(name)
            if isinstance(number, int | float) and str(number) == name:  # labels of numbers are called as Python does
                return number
    return name


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 6)


# --------------------------------------------------------------------------------------------------
# The findings as a page on which a person ticks what is to be applied. It is the only page with a script, which writes
# the ticks into a file that the browser saves. Nothing is sent anywhere.

MOST = 2_000  # findings on the page; all are in findings.jsonl
_MOST_CHANGES = 20

_TITLES = {
    WRONG: later("Labels that are probably wrong"),
    CONFLICT: later("The same text with another label"),
    OUTLIER: later("Texts that are like no others"),
}
_LEADS = {
    WRONG: later("By folds that did not see the row. A tick puts the proposed label in its place."),
    CONFLICT: later("A tick puts the proposed label in its place; without one there is nothing to apply."),
    OUTLIER: later("A tick leaves the row out."),
}
_SAVE = """
<p><button type="button" id="save">%s</button> %s
<code>nlpctl data apply ticked.jsonl -o FOLDER</code></p>
<script type="application/json" id="findings">%s</script>
<script>
document.getElementById("save").onclick = function () {
  var lines = JSON.parse(document.getElementById("findings").textContent).map(function (finding, i) {
    var box = document.getElementById("tick" + i);
    if (box) { finding.apply = box.checked; }
    return JSON.stringify(finding) + "\\n";
  });
  var link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(lines, {type: "application/jsonl"}));
  link.download = "ticked.jsonl";
  link.click();
};
</script>
"""


def audit_page(audit: Audit, name: str) -> str:
    """The text of the page. `name`: of the folds."""
    findings, listed = audit.findings, audit.findings[:MOST]
    numbers = {
        say("rows"): audit.rows,
        say("probably wrong labels"): sum(finding.kind == WRONG for finding in findings),
        say("share of the rows"): percent(audit.share(WRONG)),
        say("{} of the folds", audit.metric): fmean(audit.scores.values()),
    }
    summary: list[Part] = [KeyFigures(numbers)]
    if audit.useless:
        summary.append(say(audit.doubt))
    if audit.changes:
        changes = list(map(_told_change, audit.changes[:_MOST_CHANGES]))
        summary.append(Table(say_each("given", "proposed", "times"), changes))
    if len(findings) > MOST:
        told = say("The page shows the first {:,} of {:,} findings; findings.jsonl has all.", MOST, len(findings))
        summary.append(told)
    # Where no label is in a file that can be changed, nothing that is ticked could be applied.
    apply = any(each.edit is not None for each in findings)
    if not listed:
        summary.append(say("Nothing was found."))
    elif apply:
        summary.append(_save_button(listed))
    sections = [Section(say("Summary"), summary)]
    sections += [Section(say(_TITLES[kind]), list(_findings_of_kind(listed, kind, apply))) for kind in KINDS]
    lead = say("Tick what is right, then save the ticks.")
    if findings and not apply:
        lead = say("These labels can only be corrected where they come from: {}.", say(ELSEWHERE))
    return html_page(Report(say("Audit of {}", name), lead, sections))


def _save_button(findings: Sequence[Finding]) -> Html:
    """The button, its script, and the findings that it writes with the ticks."""
    content = json.dumps([finding.to_json() for finding in findings], ensure_ascii=False)
    # A text of the data could end the script, or, by a line separator, a line of it.
    content = content.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return Html(_SAVE % (say("Save the ticks"), say("writes ticked.jsonl; then:"), content))


def _findings_of_kind(findings: Sequence[Finding], kind: str, apply: bool) -> Iterator[Part]:
    """A row for each, with a box where some can be applied. The script finds the box of a finding by its number in the
    whole list."""
    rows = []
    for i, each in enumerate(findings):
        if each.kind != kind:
            continue
        possible = each.edit is not None and (each.proposed is not None or kind == OUTLIER)
        box = Html(f'<input type="checkbox" id="tick{i}"{" checked" if each.apply else ""}>') if possible else ""
        row: list[Any] = [*([box] if apply else []), Place(each.where), format_text(each), _label_text(each.given)]
        if kind == OUTLIER:
            row.append(each.distance)
        else:
            row += [_label_text(each.proposed), each.given_probability]
            other = element("span", each.other, class_="place")
            row.append("" if each.other is None else element("span", other, " ", _label_text(each.other_label)))
        rows.append(row)
    if rows:
        if apply:
            yield say(_LEADS[kind])
        last = [say("distance")]
        if kind != OUTLIER:
            last = say_each("proposed", "probability of the given", "contradicts")
        yield Table([*([""] if apply else []), *say_each("row", "text", "given"), *last], rows)


def _label_text(label: object) -> str:
    """A label, or several, as a cell; a number as pages write it."""
    if isinstance(label, list):
        return format_label(label)
    return "" if label is None else str(format_value(label))
