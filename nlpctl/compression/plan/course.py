"""Which steps are made side by side: those of different options, as far as the budget goes. Imports no Paddle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nlpctl.compression.plan.costs import Costs
from nlpctl.compression.plan.explore import SAFETY, Option
from nlpctl.compression.strategies.base import Step


@dataclass
class _Begun:
    """An option that is being made: its steps that are not done, the first of which runs or is next."""

    steps: list[Step]
    runs: bool = False


@dataclass
class Course:
    """The options that are being made, at most `size`, and what is made and not scored yet."""

    size: int
    costs: Costs
    _begun: list[_Begun] = field(default_factory=list)
    _unscored: list[Step] = field(default_factory=list)

    def next_step(self, options: Sequence[Option], left: float | None, reserve: float) -> Step | None:
        """The next step to begin, of a begun option or of the first that fits into `left` seconds; None: none now.

        `options`: the most promising first. One that needs what is being made waits. `reserve`: seconds for the end.
        """
        waiting = next((each for each in self._begun if not each.runs), None)
        if waiting is None and len(self._begun) < self.size:
            claimed = {step.folder for each in self._begun for step in each.steps}
            free = (each for each in options if not claimed & {step.folder for step in each.missing})
            option = next((each for each in free if left is None or self._needs(each) + reserve <= left), None)
            if option is not None:
                waiting = _Begun(list(option.missing))
                self._begun.append(waiting)
        if waiting is None:
            return None
        waiting.runs = True
        return waiting.steps[0]

    def done(self, step: Step) -> None:
        """A step is made."""
        begun = self._of(step)
        del begun.steps[0]
        begun.runs = False
        if not begun.steps:
            self._begun.remove(begun)
        if step.scored:
            self._unscored.append(step)

    def drop(self, step: Step) -> None:
        """A step cannot be made, and so no other of its option."""
        self._begun.remove(self._of(step))

    def taken_to_score(self) -> list[Step]:
        """What is made and not scored, which is scored now."""
        found, self._unscored = self._unscored, []
        return found

    def others_to_score(self, step: Step) -> float:
        """Seconds to score what is made, or is being made beside the option of `step`."""
        others = (other for each in self._begun if each is not self._of(step) for other in each.steps)
        return SAFETY * sum(map(self.costs.to_score, (*self._unscored, *others)))

    def _needs(self, option: Option) -> float:
        """Seconds until the option is made beside the others, and all are scored one by one."""
        making = [each.steps for each in self._begun] + [option.missing]
        to_score = (step for steps in (self._unscored, *making) for step in steps)
        longest = max(sum(map(self.costs.making, steps)) for steps in making)
        return SAFETY * (longest + sum(map(self.costs.to_score, to_score)))

    def _of(self, step: Step) -> _Begun:
        return next(each for each in self._begun if each.steps[0] == step)
