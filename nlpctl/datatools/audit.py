"""`nlpctl data audit`: what is probably wrong in the training data of folds.

predictions of rows that no model saw -> wrong labels | rows that contradict each other | outliers -> findings
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from nlpctl.data.readers.packed import packing
from nlpctl.data.readers.row import place
from nlpctl.data.rows.tag_scheme import detect_scheme
from nlpctl.datatools.corrections import (
    CONFLICT,
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
        chosen = [each for each in self.findings if each.kind == kind]
        rows_found = {(each.edit.file, each.edit.row) if each.edit else each.where for each in chosen}
        return len(rows_found) / max(self.rows, 1)

    @property
    def changes(self) -> list[tuple[str, str, int]]:
        """What was given, what is proposed, and how often, the most frequent first; wrong labels only."""
        pairs = Counter(
            (format_label(each.given), format_label(each.proposed)) for each in self.findings if each.kind == WRONG
        )
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
        return {"folder": self.folder, "rows": self.rows, "found": self.counts, **trust, **files}


def format_label(label: Any) -> str:
    """A label, or several, for people."""
    return " ".join(map(str, label)) if isinstance(label, list) else "" if label is None else str(label)


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
    useless = {name: reason for name, reason in reasons.items() if reason is not None}
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
        self._targets = list(_targets(rows, task_class(recipe.task).independent))

    def findings(self) -> tuple[list[Finding], list[Worth]]:
        """Wrong labels, then contradictions, then outliers; and what the first wrong labels are worth."""
        tags = task_info(self._recipe.task).tags
        pairs = list(self._wrong_tags() if tags else self._wrong_labels())
        worth = []
        if not tags and not task_class(self._recipe.task).independent:
            worth = worth_of_first(self._gold(), np.concatenate(self._shares), [row for row, _ in pairs])
        wrong = [finding for _, finding in pairs]
        # Of a sentence those at its first word. Lines alone do not tell: a json document may stand on one.
        by_row = {(row, finding.where): i for i, (row, finding) in enumerate(pairs)}
        conflicts = []
        for row, finding in self._conflicts():
            if (row, finding.where) in by_row:  # the same row: one finding, with both reasons
                i = by_row[row, finding.where]
                wrong[i] = replace(wrong[i], other=finding.other, other_label=finding.other_label)
            else:
                conflicts.append(finding)
        return [*wrong, *conflicts, *self._outliers()], worth

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
        where = self._lines[row]["where"]
        return Finding(kind, where, text, given, proposed, edit=self._targets[row], **shares, **more)

    def _given(self, row: int) -> Any:
        """The label as the file has it."""
        return self._rows.read.rows[row].values[self._rows.rows.label_column]

    def _wrong_tags(self) -> Iterator[tuple[int, Finding]]:
        labels = self._rows.labels
        gold = [np.asarray(example.tags) for example in self._examples]
        answers = [np.array([labels.id(tag) for tag in line["tags"]]) for line in self._lines]
        scheme = detect_scheme(labels.names, "the tags")
        for each in wrong_tags(gold, answers, self._shares, labels.names, scheme):
            inside, row, example = slice(each.start, each.end), self._rows.read.rows[each.row], self._examples[each.row]
            target = self._targets[each.row]
            given = self._given(each.row)
            yield (
                each.row,
                Finding(
                    WRONG,
                    place(row.source, row.line_of(each.start)),
                    _in_context(example.words(), each.start, each.end),
                    list(given[inside]),
                    [labels.name(tag) for tag in answers[each.row][inside]],
                    _rounded(each.given),
                    edit=None if target is None else replace(target, word=each.start),
                ),
            )

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

    def _outliers(self) -> Iterator[Finding]:
        texts = ["\n".join(texts.values()) for texts in self._rows.read.passages]
        for row, distance in find_outliers(texts):
            yield self._finding(OUTLIER, row, self._given(row), None, None, None, distance=round(distance, 4))


def _pairs(groups: Sequence[Sequence[InspectedRow]]) -> Iterator[tuple[InspectedRow, InspectedRow]]:
    """Of each group with equal texts, the rows that differ from most, each with one of these."""
    for group in groups:
        most = Counter(row.target for row in group).most_common(1)[0][0]
        usual = next(row for row in group if row.target == most)
        yield from ((row, usual) for row in group if row.target != most)


def _targets(rows: TrainingRows, several: bool) -> Iterator[Target | None]:
    """Where the label of each row is; None for rows that are in no file of a kind that can be changed, and for all of
    them if data.map makes the labels, for the names of labels are not those of the file then. `several`: as in Target.
    """
    source, label = unmapped_source(rows.source), rows.rows.label_column
    column = source.named.get(label, label) if isinstance(source, FileRows) else label
    pairs = zip(rows.read.unmapped, rows.read.rows, strict=True)
    if (
        not isinstance(source, FileRows)
        or source.label_names is not None
        or not all(_same(given.values.get(column), row.values[label]) for given, row in pairs)
    ):
        yield from (None for _ in rows.read.rows)
        return
    formats = {str(path): kind for path, kind in zip(source.files, source.formats, strict=True)}
    sums = {name: sha256_of(Path(name)) for name in formats}
    for row, at in zip(rows.read.rows, rows.read.places, strict=True):
        kind = formats[row.source]
        known = kind in FORMATS and packing(row.source) is None
        fields = (row.source, sums[row.source], at, kind, source.header, column) if known else None
        yield None if fields is None else Target(*fields, several=several or None)


def _same(one: Any, other: Any) -> bool:
    """Whether a file writes both alike; 1 is not "1", and not true."""
    return type(one) is type(other) and one == other


def _in_context(words: Sequence[str], start: int, end: int) -> str:
    before, after = words[max(0, start - AROUND) : start], words[end : end + AROUND]
    between = "" if all(len(word) == 1 for word in words) else " "
    return between.join([*before, f"[{between.join(words[start:end])}]", *after])


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
        summary.append(Table(say_each("given", "proposed", "times"), audit.changes[:_MOST_CHANGES]))
    if len(findings) > MOST:
        told = say("The page shows the first {:,} of {:,} findings; findings.jsonl has all.", MOST, len(findings))
        summary.append(told)
    summary.append(_save_button(listed) if listed else say("Nothing was found."))
    sections = [Section(say("Summary"), summary)]
    sections += [Section(say(_TITLES[kind]), list(_findings_of_kind(listed, kind))) for kind in KINDS]
    lead = say("Tick what is right, then save the ticks.")
    return html_page(Report(say("Audit of {}", name), lead, sections))


def _save_button(findings: Sequence[Finding]) -> Html:
    """The button, its script, and the findings that it writes with the ticks."""
    content = json.dumps([finding.to_json() for finding in findings], ensure_ascii=False)
    # A text of the data could end the script, or, by a line separator, a line of it.
    content = content.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return Html(_SAVE % (say("Save the ticks"), say("writes ticked.jsonl; then:"), content))


def _findings_of_kind(findings: Sequence[Finding], kind: str) -> Iterator[Part]:
    """A row with a box for each. The script finds the box of a finding by its number in the whole list."""
    rows = []
    for i, each in enumerate(findings):
        if each.kind != kind:
            continue
        possible = each.edit is not None and (each.proposed is not None or kind == OUTLIER)
        box = Html(f'<input type="checkbox" id="tick{i}"{" checked" if each.apply else ""}>') if possible else ""
        row: list[Any] = [box, Place(each.where), each.text, _label_text(each.given)]
        if kind == OUTLIER:
            row.append(each.distance)
        else:
            row += [_label_text(each.proposed), each.given_probability]
            other = element("span", each.other, class_="place")
            row.append("" if each.other is None else element("span", other, " ", _label_text(each.other_label)))
        rows.append(row)
    if rows:
        yield say(_LEADS[kind])
        last = [say("distance")]
        if kind != OUTLIER:
            last = say_each("proposed", "probability of the given", "contradicts")
        yield Table(["", *say_each("row", "text", "given"), *last], rows)


def _label_text(label: object) -> str:
    """A label, or several, as a cell; a number as pages write it."""
    if isinstance(label, list):
        return " ".join(map(str, label))
    return "" if label is None else str(format_value(label))
