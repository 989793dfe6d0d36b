"""In which order candidates are tried, and what still fits into the time.

What needs no training comes first: what has paid off on another network, then what is cheapest. Then come trainings,
wide networks before narrow ones, by what their graphs are likely to gain: what 8 bits gained on another network is
known, what a width gains is guessed. What lost too much elsewhere comes last. Imports no Paddle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from nlpctl.compression.plan.costs import Costs
from nlpctl.compression.plan.scores import Metric, Row
from nlpctl.compression.plan.selection import Aim
from nlpctl.compression.strategies.base import ORIGINAL, Step

SAFETY = 1.2  # what a step is taken to need, as a multiple of what is expected


@dataclass(frozen=True)
class Option:
    """A folder of the table, with all that must be made for it, in order, and the seconds this should take."""

    step: Step
    missing: tuple[Step, ...]
    seconds: float

    @property
    def trains(self) -> bool:
        return any(step.trains for step in self.missing)


@dataclass
class Explorer:
    """What to make next, given what is there."""

    steps: Mapping[str, Step]  # by their folders, each after those that it needs
    reference: Row
    metric: Metric
    aim: Aim
    costs: Costs

    def options(self, made: set[str], lost: set[str], rows: Sequence[Row]) -> list[Option]:
        """What could be made, the most promising first. `made`, `lost`: folders that are there, or cannot be made."""
        found = []
        for step in self.steps.values():
            missing = self._missing(step, made)
            if step.scored and missing and not any(each.folder in lost for each in missing):
                seconds = SAFETY * sum(self.costs.of(each) for each in missing)
                found.append(Option(step, missing, seconds))
        gains = self._gains(rows)
        return sorted(found, key=lambda option: self._rank(option, gains))

    def _missing(self, step: Step, made: set[str]) -> tuple[Step, ...]:
        if step.folder in made:
            return ()
        before = [each for name in step.needs for each in self._missing(self.steps[name], made)]
        return (*dict.fromkeys(before), step)

    def _gains(self, rows: Sequence[Row]) -> dict[str, tuple[float, float]]:
        """By the name of a candidate: its best gain beside the reference, and the points that it lost with it."""
        found: dict[str, tuple[float, float]] = {}
        least = self.aim.gain(self.reference)
        for row in rows:
            gain = self.aim.gain(row) / least
            if row.candidate not in found or gain > found[row.candidate][0]:
                found[row.candidate] = gain, self.metric.drop(row.score, self.reference.score)
        return found

    def _rank(self, option: Option, gains: Mapping[str, tuple[float, float]]) -> tuple[float, ...]:
        """Lower is earlier."""
        network, _, made_by = option.step.name.partition("+")
        known = self._method_gains(made_by, gains)
        lost_too_much = any(loss > self.aim.max_drop for _, loss in known) or self._too_narrow(network, gains)
        gain = median(ratio for ratio, _ in known) if known else option.step.made_by.gain
        doubt = float(lost_too_much)
        if option.trains:
            return 1.0, doubt, -self._width(network), -gain, option.seconds
        return 0.0, doubt, float(not known), -gain if known else 0.0, option.seconds

    def _method_gains(self, made_by: str, gains: Mapping[str, tuple[float, float]]) -> list[tuple[float, float]]:
        """What the same did to other networks: the gain as a multiple of theirs, and points lost beside them."""
        found = []
        for name, (gain, loss) in gains.items():
            network, _, method = name.partition("+")
            if made_by and method == made_by and network in gains:
                found.append((gain / gains[network][0], loss - gains[network][1]))
        return found

    def _too_narrow(self, network: str, gains: Mapping[str, tuple[float, float]]) -> bool:
        """Whether the network, or a wider one, lost too much in fp32 already."""
        width = self._width(network)
        tried = {network} - {ORIGINAL}
        if width < 1:
            networks = {step.name for step in self.steps.values() if step.width is not None}
            tried |= {name for name in networks if self._width(name) >= width}
        return any(gains[name][1] > self.aim.max_drop for name in tried if name in gains)

    def _width(self, network: str) -> float:
        step = next((each for each in self.steps.values() if each.name == network and each.width is not None), None)
        return 1.0 if step is None or step.width is None else float(step.width)
