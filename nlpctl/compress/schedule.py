"""What is made next, and beside what, within the budget (costs.py). Imports no Paddle.

A `CandidateOrder` puts the candidates that are missing into order, and finds smaller forms of what does not fit. A
`StepSchedule` keeps account of what is begun, made, and not scored yet.

Candidates without training come first: those that paid off on another network, then the cheapest. Trainings follow,
wide networks before narrow ones, by the expected gain of their graphs: the gain of 8 bits is known from other networks,
the gain of a width is an estimate. Candidates that lost too much elsewhere come last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from nlpctl.compress.costs import SAFETY, Costs
from nlpctl.compress.scores import CandidateScore, Metric
from nlpctl.compress.selection import Objective
from nlpctl.export.strategies import ORIGINAL, Step


@dataclass(frozen=True)
class MissingCandidate:
    """A folder of the table, with the steps that are missing for it, in order, and their expected seconds."""

    step: Step
    missing: tuple[Step, ...]
    seconds: float

    @property
    def trains(self) -> bool:
        return any(step.trains for step in self.missing)


@dataclass
class CandidateOrder:
    """Puts what is missing into order, given what exists. `add_smaller_form` changes `steps`."""

    steps: dict[str, Step]  # key: folder; each step after the steps that it needs
    reference: CandidateScore
    metric: Metric
    objective: Objective
    costs: Costs

    def missing(self, made: set[str], lost: set[str], rows: Sequence[CandidateScore]) -> list[MissingCandidate]:
        """What could be made, the most promising first. `made`, `lost`: folders that exist, or that cannot be made."""
        candidates = []
        for step in self.steps.values():
            missing = self._missing(step, made)
            if step.scored and missing and not any(each.folder in lost for each in missing):
                seconds = SAFETY * sum(self.costs.total(each) for each in missing)
                candidates.append(MissingCandidate(step, missing, seconds))
        gains = self._gains(rows)
        return sorted(candidates, key=lambda candidate: self._rank(candidate, gains))

    def add_smaller_form(
        self,
        candidates: Sequence[MissingCandidate],
        forms: Callable[[Step], Iterable[Step]],
        is_made: Callable[[Step], bool],
        seconds: float,
    ) -> tuple[Step, Step] | None:
        """A step that takes too long and its largest form that fits into `seconds`; None if there is none. The form,
        and every step that needs it, are candidates from now on.

        `candidates`: those that do not fit, in their order. `forms`: returns the smaller forms of a step, the largest
        first. A form that is smaller than one that `is_made` is not taken.
        """
        for candidate in candidates:
            step = max(candidate.missing, key=self.costs.total)
            for form in forms(step):
                if is_made(form):
                    break
                smaller = with_form(candidate.missing, step, form)
                cost = SAFETY * sum(self.costs.total(each) for each in smaller)
                if form.folder not in self.steps and cost <= seconds:
                    self.steps.update({each.folder: each for each in with_form(self.steps.values(), step, form)})
                    return step, form
        return None

    def _missing(self, step: Step, made: set[str]) -> tuple[Step, ...]:
        if step.folder in made:
            return ()
        before = [each for name in step.needs for each in self._missing(self.steps[name], made)]
        return (*dict.fromkeys(before), step)

    def _gains(self, rows: Sequence[CandidateScore]) -> dict[str, tuple[float, float]]:
        """By candidate name: its best gain over the reference, and the points lost with it."""
        gains: dict[str, tuple[float, float]] = {}
        of_reference = self.objective.gain(self.reference)
        for row in rows:
            gain = self.objective.gain(row) / of_reference
            if row.candidate not in gains or gain > gains[row.candidate][0]:
                gains[row.candidate] = gain, self.metric.drop(row.score, self.reference.score)
        return gains

    def _rank(self, candidate: MissingCandidate, gains: Mapping[str, tuple[float, float]]) -> tuple[float, ...]:
        """Sort key; lower comes first. The first number is 1 for what has to be trained, the second 1 for what is
        likely to lose too much."""
        network, _, made_by = candidate.step.name.partition("+")
        known = self._method_gains(made_by, gains)
        lost_too_much = any(loss > self.objective.max_drop for _, loss in known) or self._too_narrow(network, gains)
        gain = median(ratio for ratio, _ in known) if known else candidate.step.made_by.gain
        doubt = float(lost_too_much)
        if candidate.trains:
            return 1.0, doubt, -self._width(network), -gain, candidate.seconds
        return 0.0, doubt, float(not known), -gain if known else 0.0, candidate.seconds

    def _method_gains(self, made_by: str, gains: Mapping[str, tuple[float, float]]) -> list[tuple[float, float]]:
        """The effect of the same change on other networks: gain as a factor, and points lost."""
        effects = []
        for name, (gain, loss) in gains.items():
            network, _, method = name.partition("+")
            if made_by and method == made_by and network in gains:
                effects.append((gain / gains[network][0], loss - gains[network][1]))
        return effects

    def _too_narrow(self, network: str, gains: Mapping[str, tuple[float, float]]) -> bool:
        """Whether the network, or a wider one, already lost too much in fp32."""
        width = self._width(network)
        tried = {network} - {ORIGINAL}
        if width < 1:
            networks = {step.name for step in self.steps.values() if step.width is not None}
            tried |= {name for name in networks if self._width(name) >= width}
        return any(gains[name][1] > self.objective.max_drop for name in tried if name in gains)

    def _width(self, network: str) -> float:
        """Share of the source's width; 1 also for networks that were not pruned, such as a student."""
        step = next((each for each in self.steps.values() if each.name == network and each.width is not None), None)
        return 1.0 if step is None or step.width is None else float(step.width)


def with_form(steps: Iterable[Step], step: Step, form: Step) -> tuple[Step, ...]:
    """The steps, in their order, with `form` in the place of `step`, and with other names for those that need it."""
    renamed: dict[str, Step] = {}  # by the folder of the step in whose place it comes
    replaced = []
    for each in steps:
        if each == step:
            renamed[each.folder] = form
        elif any(name in renamed for name in each.needs):
            needs = tuple(renamed[name].folder if name in renamed else name for name in each.needs)
            name = form.name + each.name.removeprefix(step.name)
            renamed[each.folder] = replace(each, name=name, needs=needs)
        replaced.append(renamed.get(each.folder, each))
    return tuple(replaced)


@dataclass
class _RunningCandidate:
    """A candidate that is being made: its `steps` that are not done, the first of which `runs` or is next."""

    steps: list[Step]
    runs: bool = False


@dataclass
class StepSchedule:
    """The candidates that are being made, at most `size`, and what is made and not scored yet."""

    size: int
    costs: Costs
    _running: list[_RunningCandidate] = field(default_factory=list)
    _unscored: list[Step] = field(default_factory=list)

    def next_step(self, candidates: Sequence[MissingCandidate], left: float | None, reserve: float) -> Step | None:
        """The next step to begin, of a running candidate or of the first that fits into `left` seconds; None: none.

        `candidates`: the most promising first. One that needs what is being made waits. `reserve`: seconds for the end.
        """
        waiting = next((each for each in self._running if not each.runs), None)
        if waiting is None and len(self._running) < self.size:
            claimed = {step.folder for each in self._running for step in each.steps}
            free = (each for each in candidates if not claimed & {step.folder for step in each.missing})
            candidate = next((each for each in free if left is None or self._seconds(each) + reserve <= left), None)
            if candidate is not None:
                waiting = _RunningCandidate(list(candidate.missing))
                self._running.append(waiting)
        if waiting is None:
            return None
        waiting.runs = True
        return waiting.steps[0]

    def done(self, step: Step) -> None:
        """A step is made."""
        candidate = self._candidate_of(step)
        del candidate.steps[0]
        candidate.runs = False
        if not candidate.steps:
            self._running.remove(candidate)
        if step.scored:
            self._unscored.append(step)

    def drop(self, step: Step) -> None:
        """A step cannot be made, and so no other of its candidate."""
        self._running.remove(self._candidate_of(step))

    def take_unscored(self) -> list[Step]:
        """The steps that are made and not scored; the caller scores them now."""
        steps, self._unscored = self._unscored, []
        return steps

    def others_to_score(self, step: Step) -> float:
        """Seconds to score what is made, or is being made beside the candidate of `step`."""
        others = (other for each in self._running if each is not self._candidate_of(step) for other in each.steps)
        return SAFETY * sum(map(self.costs.to_score, (*self._unscored, *others)))

    def _seconds(self, candidate: MissingCandidate) -> float:
        """Seconds until the candidate is made beside the others, and all are scored one by one."""
        making = [each.steps for each in self._running] + [candidate.missing]
        to_score = (step for steps in (self._unscored, *making) for step in steps)
        longest = max(sum(map(self.costs.making, steps)) for steps in making)
        return SAFETY * (longest + sum(map(self.costs.to_score, to_score)))

    def _candidate_of(self, step: Step) -> _RunningCandidate:
        """The running candidate whose current step this is."""
        return next(each for each in self._running if each.steps[0] == step)
