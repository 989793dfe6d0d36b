"""The result of a sweep: its trials, the best, and how sure that is; as JSON and as a page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpctl.config.recipe_text import value_text
from nlpctl.config.schema import SearchSection
from nlpctl.experiments.study import FAILED, FINISHED, PRUNED, TrialRecord
from nlpctl.layout import REPORT, TRIALS
from nlpctl.report.html import element
from nlpctl.report.language import Later, later, say, say_counted, say_each
from nlpctl.report.model import Code, Figure, KeyFigures, Number, Part, Report, Section, Table
from nlpctl.report.page import html_page
from nlpctl.report.plots import Dot, bars, lines, scatter, short_percent
from nlpctl.report.score_tables import single_scores

if TYPE_CHECKING:
    from nlpctl.tasks.intervals import Comparison

BEST = "best.yaml"


def short_names(keys: Sequence[str]) -> list[str]:
    """The last parts of dotted keys, where these differ; else the keys."""
    names = [key.rpartition(".")[2] for key in keys]
    return names if len(set(names)) == len(names) else list(keys)


@dataclass(frozen=True)
class SweepResult:
    """What a sweep found. `trials`: all, in order; `ranking`: the finished ones, the best first. `importance`: by key.

    `against_second`: the best minus the second on the same rows of dev; None where rows cannot be compared. `test`: the
    report of the best on the test split, None without one.
    """

    folder: Path
    metric: str
    greater_is_better: bool
    space: SearchSection
    trials: tuple[TrialRecord, ...]
    ranking: tuple[TrialRecord, ...]
    importance: Mapping[str, float]
    against_second: Comparison | None
    test: Mapping[str, Any] | None

    @property
    def best(self) -> TrialRecord:
        return self.ranking[0]

    def run(self, trial: TrialRecord) -> Path:
        return self.folder / TRIALS / trial.name

    @property
    def told(self) -> Later:
        """How sure it is that the best is the best, in a sentence."""
        if self.against_second is None:
            return later("Whether the best is better than the second cannot be told: there are no rows to compare.")
        low, high = self.against_second.interval
        apart = later("{:+.4f} ({:+.4f} to {:+.4f} with 95 %)", self.against_second.difference, low, high)
        what = later("On the same rows of dev the best differs from the second by {}", apart)
        if low <= 0 <= high:
            return later("{}: the choice of the rows may explain that, so either will do.", what)
        return later("{}: the choice of the rows does not explain that.", what)

    def to_json(self) -> dict[str, Any]:
        trials = [
            {
                "trial": each.name,
                "run": self.run(each),
                "state": each.state,
                "score": each.score,
                "values": dict(each.values),
                "seconds": each.seconds,
                "reason": each.reason,
            }
            for each in self.trials
        ]
        return {
            "folder": self.folder,
            "metric": self.metric,
            "trials": trials,
            "best": self.best.name,
            "second": self.ranking[1].name if len(self.ranking) > 1 else None,
            "difference": None if self.against_second is None else vars(self.against_second),
            "told": self.told,
            "importance": dict(self.importance),
            "test": self.test,
            "recipe": self.folder / BEST,
            "report": self.folder / REPORT,
        }


def sweep_page(result: SweepResult, best_recipe: str, swept_recipe: str) -> str:
    """The result as one HTML page. The recipes are the texts of best.yaml and of the one that was swept."""
    trials, best = result.trials, result.best
    numbers: dict[str, object] = {
        say("best {} on dev", result.metric): best.score,
        say("its trial"): best.name,
    }
    if result.test is not None:
        numbers[say("its {} on test", result.metric)] = single_scores(result.test).get(result.metric)
    states = [trial.state for trial in trials]
    numbers |= {say(state): states.count(state) for state in (FINISHED, PRUNED, FAILED) if state in states}
    values = [[key, value_text(value), result.space.space[key].text] for key, value in best.values.items()]
    caption = say("The score on dev is the best of many, and so a little too high; that on test is not.")
    columns = say_each("key", "best value", "tried")
    sections = [
        Section(say("Best"), [KeyFigures(numbers), say(result.told), Table(columns, values, caption)]),
        Section(say("Course"), [_course(result)]),
        Section(say("Importance"), list(_importance(result))),
        Section(say("Trials"), [_trial_table(result)]),
        Section(say("Keys"), list(_key_plots(result))),
        Section(say("Best recipe: {}", BEST), [Code(best_recipe)]),
        Section(say("Recipe"), [Code(swept_recipe)]),
    ]
    lead = say("{}, compared by {} on dev: {}", say_counted(len(trials), "trials"), result.metric, result.folder)
    return html_page(Report(say("Sweep {}", result.folder.name), lead, sections))


def _course(result: SweepResult) -> Figure:
    """The scores in the order of the trials, and the best so far, which a trial without a score leaves as it is."""
    scored = [(trial.number, trial.score) for trial in result.trials if trial.score is not None]
    better = max if result.greater_is_better else min
    best, so_far = None, []
    for trial in result.trials:
        if trial.score is not None:
            best = trial.score if best is None else better(best, trial.score)
        if best is not None:
            so_far.append((trial.number, best))
    return Figure(lines({say("best so far"): so_far, say("each trial"): scored}, say("trial"), result.metric))


def _importance(result: SweepResult) -> Iterator[Part]:
    """How much the score depends on each key; see study.py for how that is told."""
    if not result.importance:
        yield say("Too few trials finished, or all with the same score, to tell which key mattered.")
        return
    shares = {say("share of the variance of the scores"): list(result.importance.values())}
    yield Figure(bars(list(result.importance), shares, say("share"), value_format=short_percent))
    yield say(
        "How much of what the scores of finished trials differ by goes with each key (fANOVA), by trees that were "
        "fitted to them; with few trials this is a rough guess."
    )
    left = [name for name in result.space.space if name not in result.importance]
    if left:
        yield say("Not told, since only some trials have it, or all the same value: {}.", say(", ").join(left))


def _trial_table(result: SweepResult) -> Table:
    """All trials: the finished ones by their score, then the others."""
    keys = list(result.space.space)
    rows = []
    for trial in (*result.ranking, *(trial for trial in result.trials if trial.score is None)):
        # Only a trial with a score has a page of its own.
        scored = trial.score is not None
        link = element("a", trial.name, href=f"{TRIALS}/{trial.name}/{REPORT}") if scored else trial.name
        values = [value_text(trial.values[key]) if key in trial.values else "" for key in keys]
        seconds = None if trial.seconds is None else Number(f"{trial.seconds:.0f}")
        rows.append([link, say(trial.state), trial.score, *values, seconds, trial.reason.split("\n")[0]])
    return Table([*say_each("trial", "state"), result.metric, *short_names(keys), *say_each("seconds", "why")], rows)


def _key_plots(result: SweepResult) -> Iterator[Figure]:
    """The scores over each key that is a number, on a logarithmic axis where the search has one."""
    for key, axis in result.space.space.items():
        log = axis.log is not None
        best, others = say("best"), say("trials")
        dots: dict[str, list[Dot]] = {best: [], others: []}
        for trial in result.ranking:
            value = trial.values.get(key)
            if isinstance(value, int | float) and not isinstance(value, bool) and trial.score is not None:
                dot = Dot(math.log10(value) if log else value, trial.score, trial.name)
                dots[best if trial is result.best else others].append(dot)
        if sum(map(len, dots.values())) > 1:
            yield Figure(scatter(dots, say("log10 of {}", key) if log else key, result.metric))
