"""The pages of `nlpctl ui`, but for that of a run, which is its report."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from nlpctl.report.html import Html, as_it_is, element, joined
from nlpctl.report.language import say, say_counted, say_each
from nlpctl.report.model import Code, Part, Report, Section, Table, format_moment
from nlpctl.report.page import draw, html_page
from nlpctl.runs.comparison import changed_rows, comparison_table, differences_table
from nlpctl.runs.runs import Difference, RunRecord, UnreadableRun

if TYPE_CHECKING:
    from nlpctl.tasks.intervals import Paired

REFRESH = 5  # seconds, while a run goes on or a model is loaded


def index_page(folder: Path, records: Sequence[RunRecord], unreadable: Sequence[UnreadableRun]) -> str:
    """All runs, the newest first, each with a box to compare it."""
    records = sorted(records, key=lambda record: record.manifest["started"] or "", reverse=True)
    rows = [_row(record, os.path.relpath(record.run.path, folder)) for record in records]
    columns = say_each("compare", "run", "state", "task", "model", "step", "started", "time", "metric", "dev", "test")
    nothing = [None] * (len(columns) - 3)
    rows += [["", os.path.relpath(each.path, folder), say(each.shown_state), *nothing] for each in unreadable]
    listed: Part = say("There are no runs in {} yet: `nlpctl train` makes one.", folder)
    if rows:
        button = element("button", say("compare the marked runs")) if len(records) > 1 else ""
        listed = element("form", draw(Table(columns, rows)), button, action="/compare")
    going = any(record.state == "running" for record in records)
    lead = say("{} in {}", say_counted(len(rows), "runs"), folder.resolve())
    title = say("Runs")
    return html_page(Report(title, lead, [Section(title, [listed])]), REFRESH if going else None)


def _row(record: RunRecord, name: str) -> list[Any]:
    started = format_moment(record.manifest["started"])
    scores = [record.score(split, record.metric) for split in ("dev", "test")]
    box = element("input", type="checkbox", name="run", value=as_it_is(name))
    known = [say(record.shown_state), record.recipe.task, say(record.model), record.step, started, record.duration]
    return [box, _link(name), *known, record.metric, *scores]


def _link(name: str) -> Html:
    return element("a", name, href=f"/run?{urlencode({'run': name}, errors='replace')}")


def try_section(run: str, keys: Sequence[str], row: Mapping[str, str]) -> Section:
    """A form with a field for each key of a row, filled with `row`; without keys there is no model to try."""
    back = element("p", element("a", say("all runs"), href="/"))
    if not keys:
        return Section(say("Try it"), [back, say("There is no model yet.")])
    boxes = [element("textarea", as_it_is(row.get(key, "")), name=key, rows=2, cols=80) for key in keys]
    fields = [element("p", element("label", key, " ", box)) for key, box in zip(keys, boxes, strict=True)]
    hidden = element("input", type="hidden", name="run", value=as_it_is(run))
    form = element("form", hidden, *fields, element("button", say("answer")), action="/run", method="post")
    return Section(say("Try it"), [back, form])


def answered_section(answer: Mapping[str, Any] | None) -> Section:
    """What the model says; None: it is being loaded."""
    if answer is None:
        return Section(say("Answer"), [say("The model is being loaded; this page asks again by itself.")])
    return Section(say("Answer"), [Code(json.dumps(answer, ensure_ascii=False, indent=2))])


def compare_page(
    names: Sequence[str], differences: Mapping[str, Sequence[Difference]], pairs: Mapping[str, Paired | str]
) -> str:
    """What differs between runs, as `nlpctl runs diff` tells it."""
    sections = [Section(say("Compared row by row"), list(_pairs(names, pairs)))]
    for group, listed in differences.items():
        table = [differences_table(group, listed, names)] if listed else []
        sections.append(Section(say(group.capitalize()), table))
    links = joined(element("a", say("all runs"), href="/"), *(_link(name) for name in names), between=", ")
    return html_page(Report(say("Runs compared"), links, sections))


def _pairs(names: Sequence[str], pairs: Mapping[str, Paired | str]) -> Iterator[Part]:
    for split, each in pairs.items():
        if isinstance(each, str):
            yield say("{}: no paired comparison, since {}.", split, say(each))
            continue
        yield comparison_table(split, names, each)
        yield changed_rows(each)


def problem_page(message: str) -> str:
    """What went wrong."""
    back = element("a", say("all runs"), href="/")
    return html_page(Report(say("This does not work"), back, [Section(say("Why"), [Code(message)])]))
