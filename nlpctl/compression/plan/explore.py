"""The order in which candidates are tried, and which of them still fit the budget.

Candidates without training come first: those that paid off on another network, then the cheapest. Trainings follow,
wide networks before narrow ones, by the expected gain of their graphs: the gain of 8 bits is known from other networks,
the gain of a width is an estimate. Candidates that lost too much elsewhere come last. Imports no Paddle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from nlpctl.compression.plan.costs import Costs
from nlpctl.compression.plan.scores import Metric, Row
from nlpctl.compression.plan.selection import Aim
from nlpctl.compression.strategies.base import ORIGINAL, Step

SAFETY = 1.2  # safety factor on the expected time of a step


@dataclass(frozen=True)
class Option:
    """A folder of the table, with the steps that are missing for it, in order, and their expected seconds."""

    step: Step
    missing: tuple[Step, ...]
    seconds: float

    @property
    def trains(self) -> bool:
        return any(step.trains for step in self.missing)


@dataclass
class Explorer:
    """Chooses what to make next, given what exists."""

    steps: dict[str, Step]  # key: folder; each step after the steps that it needs
    reference: Row
    metric: Metric
    aim: Aim
    costs: Costs

    def options(self, made: set[str], lost: set[str], rows: Sequence[Row]) -> list[Option]:
        """What could be made, the most promising first. `made`, `lost`: folders that exist, or that cannot be made."""
        found = []
        for step in self.steps.values():
            missing = self._missing(step, made)
            if step.scored and missing and not any(each.folder in lost for each in missing):
                seconds = SAFETY * sum(self.costs.of(each) for each in missing)
                found.append(Option(step, missing, seconds))
        gains = self._gains(rows)
        return sorted(found, key=lambda option: self._rank(option, gains))

    def shrink(
        self,
        options: Sequence[Option],
        forms: Callable[[Step], Iterable[Step]],
        is_made: Callable[[Step], bool],
        seconds: float,
    ) -> tuple[Step, Step] | None:
        """A step that takes too long and its largest form that fits into `seconds`; None if there is none. The form,
        and every step that needs it, are options from now on.

        `options`: those that do not fit, in their order. `forms`: returns the smaller forms of a step, the largest
        first. A form that is smaller than one that `is_made` is not taken.
        """
        for option in options:
            step = max(option.missing, key=self.costs.of)
            for form in forms(step):
                if is_made(form):
                    break
                smaller = with_form(option.missing, step, form)
                cost = SAFETY * sum(self.costs.of(each) for each in smaller)
                if form.folder not in self.steps and cost <= seconds:
                    self.steps.update({each.folder: each for each in with_form(self.steps.values(), step, form)})
                    return step, form
        return None

    def _missing(self, step: Step, made: set[str]) -> tuple[Step, ...]:
        if step.folder in made:
            return ()
        before = [each for name in step.needs for each in self._missing(self.steps[name], made)]
        return (*dict.fromkeys(before), step)

    def _gains(self, rows: Sequence[Row]) -> dict[str, tuple[float, float]]:
        """By candidate name: its best gain over the reference, and the points lost with it."""
        found: dict[str, tuple[float, float]] = {}
        least = self.aim.gain(self.reference)
        for row in rows:
            gain = self.aim.gain(row) / least
            if row.candidate not in found or gain > found[row.candidate][0]:
                found[row.candidate] = gain, self.metric.drop(row.score, self.reference.score)
        return found

    def _rank(self, option: Option, gains: Mapping[str, tuple[float, float]]) -> tuple[float, ...]:
        """Sort key; lower comes first."""
        network, _, made_by = option.step.name.partition("+")
        known = self._method_gains(made_by, gains)
        lost_too_much = any(loss > self.aim.max_drop for _, loss in known) or self._too_narrow(network, gains)
        gain = median(ratio for ratio, _ in known) if known else option.step.made_by.gain
        doubt = float(lost_too_much)
        if option.trains:
            return 1.0, doubt, -self._width(network), -gain, option.seconds
        return 0.0, doubt, float(not known), -gain if known else 0.0, option.seconds

    def _method_gains(self, made_by: str, gains: Mapping[str, tuple[float, float]]) -> list[tuple[float, float]]:
        """The effect of the same change on other networks: gain as a factor, and points lost."""
        found = []
        for name, (gain, loss) in gains.items():
            network, _, method = name.partition("+")
            if made_by and method == made_by and network in gains:
                found.append((gain / gains[network][0], loss - gains[network][1]))
        return found

    def _too_narrow(self, network: str, gains: Mapping[str, tuple[float, float]]) -> bool:
        """Whether the network, or a wider one, already lost too much in fp32."""
        width = self._width(network)
        tried = {network} - {ORIGINAL}
        if width < 1:
            networks = {step.name for step in self.steps.values() if step.width is not None}
            tried |= {name for name in networks if self._width(name) >= width}
        return any(gains[name][1] > self.aim.max_drop for name in tried if name in gains)

    def _width(self, network: str) -> float:
        step = next((each for each in self.steps.values() if each.name == network and each.width is not None), None)
        return 1.0 if step is None or step.width is None else float(step.width)


def with_form(steps: Iterable[Step], step: Step, form: Step) -> tuple[Step, ...]:
    """The steps, in their order, with `form` in the place of `step`, and with other names for those that need it."""
    renamed: dict[str, Step] = {}
    found = []
    for each in steps:
        if each == step:
            renamed[each.folder] = form
        elif any(name in renamed for name in each.needs):
            needs = tuple(renamed[name].folder if name in renamed else name for name in each.needs)
            name = form.name + each.name.removeprefix(step.name)
            renamed[each.folder] = replace(each, name=name, needs=needs)
        found.append(renamed.get(each.folder, each))
    return tuple(found)
