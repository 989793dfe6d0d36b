"""What a sweep found: its trials, the best, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpctl.config.schema import SearchSection
from nlpctl.experiments.study import TrialRecord
from nlpctl.layout import REPORT

if TYPE_CHECKING:
    from nlpctl.tasks.intervals import Comparison

TRIALS, BEST = "trials", "best.yaml"


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
