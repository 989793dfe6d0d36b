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
from nlpctl.names import counted
from nlpctl.report.html import element
from nlpctl.report.model import Code, Figure, KeyFigures, Number, Part, Report, Section, Table
from nlpctl.report.page import html_page
from nlpctl.report.plots import Dot, bars, lines, scatter
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
    def told(self) -> str:
        """How sure it is that the best is the best, in a sentence."""
        if self.against_second is None:
            return "Whether the best is better than the second cannot be told: there are no rows to compare."
        low, high = self.against_second.interval
        apart = f"{self.against_second.difference:+.4f} ({low:+.4f} to {high:+.4f} with 95 %)"
        what = f"On the same rows of dev the best differs from the second by {apart}"
        if low <= 0 <= high:
            return f"{what}: the choice of the rows may explain that, so either will do."
        return f"{what}: the choice of the rows does not explain that."

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
    numbers: dict[str, object] = {f"best {result.metric} on dev": best.score, "its trial": best.name}
    if result.test is not None:
        numbers[f"its {result.metric} on test"] = single_scores(result.test).get(result.metric)
    states = [trial.state for trial in trials]
    numbers |= {state: states.count(state) for state in (FINISHED, PRUNED, FAILED) if state in states}
    values = [[key, value_text(value), result.space.space[key].text] for key, value in best.values.items()]
    caption = "The score on dev is the best of many, and so a little too high; that on test is not."
    sections = [
        Section("Best", [KeyFigures(numbers), result.told, Table(["key", "best value", "tried"], values, caption)]),
        Section("Course", [_course(result)]),
        Section("Importance", list(_importance(result))),
        Section("Trials", [_trial_table(result)]),
        Section("Keys", list(_key_plots(result))),
        Section(f"Best recipe: {BEST}", [Code(best_recipe)]),
        Section("Recipe", [Code(swept_recipe)]),
    ]
    lead = f"{counted(len(trials), 'trials')}, compared by {result.metric} on dev: {result.folder}"
    return html_page(Report(f"Sweep {result.folder.name}", lead, sections))


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
    return Figure(lines({"best so far": so_far, "each trial": scored}, "trial", result.metric))


def _importance(result: SweepResult) -> Iterator[Part]:
    """How much the score depends on each key; see study.py for how that is told."""
    if not result.importance:
        yield "Too few trials finished, or all with the same score, to tell which key mattered."
        return
    shares = {"share of the variance of the scores": list(result.importance.values())}
    yield Figure(bars(list(result.importance), shares, "share"))
    yield (
        "How much of what the scores of finished trials differ by goes with each key (fANOVA), by trees that were "
        "fitted to them; with few trials this is a rough guess."
    )
    left = [name for name in result.space.space if name not in result.importance]
    if left:
        yield f"Not told, since only some trials have it, or all the same value: {', '.join(left)}."


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
        rows.append([link, trial.state, trial.score, *values, seconds, trial.reason.split("\n")[0]])
    return Table(["trial", "state", result.metric, *short_names(keys), "seconds", "why"], rows)


def _key_plots(result: SweepResult) -> Iterator[Figure]:
    """The scores over each key that is a number, on a logarithmic axis where the search has one."""
    for key, axis in result.space.space.items():
        log = axis.log is not None
        dots: dict[str, list[Dot]] = {"best": [], "trials": []}
        for trial in result.ranking:
            value = trial.values.get(key)
            if isinstance(value, int | float) and not isinstance(value, bool) and trial.score is not None:
                dot = Dot(math.log10(value) if log else value, trial.score, trial.name)
                dots["best" if trial is result.best else "trials"].append(dot)
        if sum(map(len, dots.values())) > 1:
            yield Figure(scatter(dots, f"log10 of {key}" if log else key, result.metric))
