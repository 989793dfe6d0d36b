"""A sweep as one HTML page: the best, how sure it is, what mattered, every trial, and the recipe."""

from __future__ import annotations

import math
from collections.abc import Iterator

from nlpctl.config.recipe_text import value_text
from nlpctl.experiments.study import FAILED, FINISHED, PRUNED, TrialRecord
from nlpctl.experiments.sweep_result import BEST, TRIALS, SweepResult, short_names
from nlpctl.layout import REPORT
from nlpctl.names import counted
from nlpctl.report.html import element
from nlpctl.report.model import Code, Figure, KeyFigures, Number, Part, Report, Section, Table
from nlpctl.report.page import html_page
from nlpctl.report.plots import Dot, bars, lines, scatter
from nlpctl.report.score_tables import figures as single_scores


def sweep_page(found: SweepResult, best: str, recipe: str) -> str:
    """The text of the page. `best`, `recipe`: the texts of the best recipe and of the one that was swept."""
    sections = [
        Section("Best", [KeyFigures(_tiles(found)), found.told, _values(found)]),
        Section("Course", list(_course(found))),
        Section("Importance", list(_importance(found))),
        Section("Trials", [_table(found)]),
        Section("Keys", list(_keys(found))),
        Section(f"Best recipe: {BEST}", [Code(best)]),
        Section("Recipe", [Code(recipe)]),
    ]
    lead = f"{counted(len(found.trials), 'trials')}, compared by {found.metric} on dev: {found.folder}"
    return html_page(Report(f"Sweep {found.folder.name}", lead, sections))


def _tiles(found: SweepResult) -> dict[str, object]:
    tiles: dict[str, object] = {f"best {found.metric} on dev": found.best.score, "its trial": found.best.name}
    if found.test is not None:
        tiles[f"its {found.metric} on test"] = single_scores(found.test).get(found.metric)
    states = [each.state for each in found.trials]
    return tiles | {state: states.count(state) for state in (FINISHED, PRUNED, FAILED) if state in states}


def _values(found: SweepResult) -> Table:
    rows = [[key, value_text(value), found.space.space[key].told] for key, value in found.best.values.items()]
    caption = "The score on dev is the best of many, and so a little too high; that on test is not."
    return Table(["key", "best value", "tried"], rows, caption)


def _course(found: SweepResult) -> Iterator[Figure]:
    """The scores in the order of the trials, and the best so far."""
    scored = [each for each in found.trials if each.score is not None]
    best, so_far = None, []
    for each in found.trials:
        if each.score is not None:
            best = each.score if best is None or _beats(found, each.score, best) else best
        if best is not None:
            so_far.append((each.number, best))
    points = [(each.number, each.score) for each in scored]
    yield Figure(lines({"best so far": so_far, "each trial": points}, "trial", found.metric))


def _beats(found: SweepResult, score: float, other: float) -> bool:
    return score > other if found.greater_is_better else score < other


def _importance(found: SweepResult) -> Iterator[Part]:
    if not found.importance:
        yield "Too few trials finished, or all with the same score, to tell which key mattered."
        return
    names = list(found.importance)
    shares = {"share of the variance of the scores": [found.importance[name] for name in names]}
    yield Figure(bars(names, shares, "share"))
    yield (
        "How much of what the scores of finished trials differ by goes with each key (fANOVA), by trees that were "
        "fitted to them; with few trials this is a rough guess."
    )
    left = [name for name in found.space.space if name not in found.importance]
    if left:
        yield f"Not told, since only some trials have it, or all the same value: {', '.join(left)}."


def _table(found: SweepResult) -> Table:
    """All trials: the finished ones by their score, then the others."""
    others = [each for each in found.trials if each.score is None]
    keys = list(found.space.space)
    rows = []
    for each in (*found.ranking, *others):
        link = element("a", each.name, href=f"{TRIALS}/{each.name}/{REPORT}") if each.score is not None else each.name
        values = [value_text(each.values[key]) if key in each.values else "" for key in keys]
        seconds = None if each.seconds is None else Number(f"{each.seconds:.0f}")
        rows.append([link, each.state, each.score, *values, seconds, each.reason.split("\n")[0]])
    return Table(["trial", "state", found.metric, *short_names(keys), "seconds", "why"], rows)


def _keys(found: SweepResult) -> Iterator[Figure]:
    """The scores over each key that is a number."""
    for key, axis in found.space.space.items():
        dots = {
            "best": [Dot(_place(axis.log is not None, found.best.values[key]), found.best.score, found.best.name)]
            if _is_number(found.best, key) else [],
            "trials": [
                Dot(_place(axis.log is not None, each.values[key]), each.score, each.name)
                for each in found.ranking[1:] if _is_number(each, key)
            ],
        }  # fmt: skip
        if sum(map(len, dots.values())) > 1:
            yield Figure(scatter(dots, f"log10 of {key}" if axis.log is not None else key, found.metric))


def _is_number(trial: TrialRecord, key: str) -> bool:
    value = trial.values.get(key)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _place(log: bool, value: float) -> float:
    return math.log10(value) if log else value
