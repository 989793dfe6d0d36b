"""Whether a training learns: whether its loss falls, in spite of the noise, and whether its model is of any use; and
what to check if not. Imports no Paddle.

The mean loss of the recent steps is compared with what a guess costs: the best constant answer, where the task knows
it, or else the first steps of a network with new parameters. The verdict waits until the noise allows one:

    fall = (guess - recent mean) / guess
    learning   the fall is above LEAST_FALL by more than CERTAINTY standard errors
    plateau    it is below LEAST_FALL by more than CERTAINTY standard errors, and the score on dev does not rise

A plateau is taken back when the loss has fallen after all.
"""

from __future__ import annotations

import math
import shlex
import statistics
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from nlpctl import console
from nlpctl.config.schema import Recipe
from nlpctl.errors import Problem, RunFailed
from nlpctl.layout import RECIPE
from nlpctl.names import counted
from nlpctl.runtime.event_log import EventLog
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.tasks.degenerate import useless_on

NOT_LEARNING, LEARNING, USELESS = "not_learning", "learning", "useless"  # in events.jsonl

LEAST_FALL = 0.05  # share of the guess; a network that learns anything passes it within its first epoch or two
CERTAINTY = 3.0  # standard errors
EARLIEST = 100  # steps
AFTER_WARMUP = 50  # steps at the full learning rate
LATEST = 1000  # a long epoch need not be over
FIRST, RECENT = 25, 500  # losses that stand for the start, and those of whose later half the mean is compared with it
EVERY = 25  # steps between two looks
RISING = 3  # evaluations, each better than the one before, that show a slow start: by chance one time in six


@dataclass(frozen=True)
class Plateau:
    """A loss that does not fall: the mean over the last `steps` steps up to `step`, and what a guess costs.

    `constant`: whether that is the best constant answer; else it is the mean of the first steps. `jumps`: the losses
    vary by more than a tenth of the guess.
    """

    step: int
    steps: int
    mean: float
    guess: float
    constant: bool
    jumps: bool


@dataclass(frozen=True)
class Fall:
    """A loss that falls: the mean of the recent steps up to `step`, and what a guess costs."""

    step: int
    mean: float
    guess: float


def is_rising(scores: Sequence[float]) -> bool:
    """Whether the last RISING scores of dev, higher ones being better, rise one by one."""
    last = scores[-RISING:]
    return len(last) == RISING and all(before < after for before, after in pairwise(last))


class LossMonitor:
    """The losses of a training, step by step, and the verdict on them."""

    def __init__(self, constant: float | None, from_start: bool, dev: Callable[[], Sequence[float]] = tuple):
        """`constant`: the loss of the best constant answer; None: unknown. `from_start`: whether the first steps may
        stand for a guess, which needs new parameters and no earlier steps. `dev`: returns the scores of the
        evaluations so far, higher ones being better."""
        self.constant = constant
        self.dev = dev
        self.from_start = from_start
        self.learning: bool | None = None  # None: not decided
        self._first: list[float] = []
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._earliest = math.inf

    def begin(self, total: int, warmup: int, per_epoch: int | None) -> None:
        """The plan of the training, in steps: when it is fair to expect that the loss has fallen."""
        shares = [total // 4, LATEST] if per_epoch is None else [max(total // 4, per_epoch), LATEST]
        self._earliest = max(EARLIEST, warmup + AFTER_WARMUP, min(shares))

    def add(self, step: int, loss: float) -> Plateau | Fall | None:
        """The loss of a step, counted from 1. Returns a plateau once, when it is certain, and a fall once, be it before
        or after that."""
        if self.learning or (self.constant is None and not self.from_start):
            return None
        if len(self._first) < FIRST:
            self._first.append(loss)
        self._recent.append(loss)
        if step < self._earliest or (step - int(self._earliest)) % EVERY:
            return None
        return self._judge(step)

    def _judge(self, step: int) -> Plateau | Fall | None:
        recent = list(self._recent)[-max(FIRST, len(self._recent) // 2) :]
        mean, error = statistics.fmean(recent), _error(recent)
        if self.constant is not None:
            guess = self.constant
        else:
            guess, error = statistics.fmean(self._first), math.hypot(error, _error(self._first))
        if not guess > 0 or not math.isfinite(mean):
            return None
        fall, error = (guess - mean) / guess, error / guess
        if fall - CERTAINTY * error > LEAST_FALL:
            self.learning = True
            return Fall(step, mean, guess)
        if self.learning is None and fall + CERTAINTY * error < LEAST_FALL and not is_rising(self.dev()):
            self.learning = False
            jumps = statistics.pstdev(recent) > 0.1 * guess
            return Plateau(step, len(recent), mean, guess, self.constant is not None, jumps)
        return None


def _error(losses: Sequence[float]) -> float:
    """The standard error of the mean."""
    return statistics.stdev(losses) / math.sqrt(len(losses)) if len(losses) > 1 else math.inf


def describe(plateau: Plateau) -> str:
    """The verdict in one sentence."""
    guess = "always giving the same answer costs" if plateau.constant else "it began with"
    return (
        f"the loss does not fall: {plateau.mean:.4f} over the last {plateau.steps} steps up to step {plateau.step}, "
        f"where {guess} {plateau.guess:.4f}"
    )


def checks(
    plateau: Plateau | None, run: str, *, learning_rate: float, batch: int, gradient: float | None, frozen: bool
) -> list[str]:
    """What to check, in order. `plateau`: None where the scores alone are bad. `run`: as the command line names it.
    `batch`: rows of a step. `gradient`: the usual norm; None: unknown. `frozen`: whether parameters are."""
    if plateau is None:
        rate = f"learning rate, {learning_rate:.3g} at its highest: try a tenth and ten times more"
    else:
        moves = "jump, so a tenth" if plateau.jumps else "hardly move, so ten times more"
        rate = f"learning rate, {learning_rate:.3g} at this step: the losses {moves} may do"
    norm = "" if gradient is None else f", usually {gradient:.2g}"
    return [
        f"labels and texts: does every row say what its label says? `nlpctl data inspect {shlex.quote(run)}`",
        f"one batch: can the network learn it by heart? `nlpctl train {shlex.quote(run)} --overfit-batch`; if not, "
        "start from a recipe that learns, such as quickstart, and change one thing at a time",
        f"{rate}, and look at the warm-up and the optimizer",
        f"batch, {counted(batch, 'rows')} a step: a small one is noisy; more by per_device_train_batch_size or "
        "accumulation",
        f"gradient{norm}, and initial values: `nlpctl params ls {shlex.quote(f'{run}/{RECIPE}')}` shows what is trained"
        + ("; some parameters are frozen" if frozen else ""),
    ]


def warn_not_learning(
    recipe: Recipe,
    events: EventLog,
    plateau: Plateau,
    *,
    learning_rate: float,
    batch: int,
    gradient: float | None,
    frozen: bool,
) -> None:
    """Warn of a loss that does not fall, with what to check; also an event. The rest as for `checks`.

    RunFailed if the recipe wants to stop then (guards.not_learning).
    """
    run = RunDirectory(recipe.run_dir)
    events.append(NOT_LEARNING, plateau.step, loss=round(plateau.mean, 6), guess=round(plateau.guess, 6))
    listed = checks(
        plateau, str(run.path), learning_rate=learning_rate, batch=batch, gradient=gradient, frozen=frozen
    )
    lines = [f"  {number}. {check}" for number, check in enumerate(listed, 1)]
    if recipe.guards.not_learning == "stop":
        hint = f"check, in this order, what is below; or go on: {run.to_go_on('--set guards.not_learning=ignore')}"
        raise RunFailed(problems=[Problem(describe(plateau), hint=hint), *map(Problem, lines)])
    console.warn(f"{describe(plateau)}; check, in this order:")
    for line in lines:
        console.note(line)


def take_back(events: EventLog, fall: Fall) -> None:
    """Say, and note as an event, that the loss falls after all; nothing if no plateau was told since the last time."""
    told = [each["event"] for each in events.read() if each["event"] in (NOT_LEARNING, LEARNING)]
    if told and told[-1] == NOT_LEARNING:
        events.append(LEARNING, fall.step, loss=round(fall.mean, 6), guess=round(fall.guess, 6))
        now = f"{fall.mean:.4f} up to step {fall.step}, where a guess costs {fall.guess:.4f}"
        console.note(f"the loss falls now: {now}")


def warn_if_useless(recipe: Recipe, run: RunDirectory, reports: Mapping[str, Any], *, batch: int, frozen: bool) -> None:
    """Warn of a trained model whose first report says that it is of no use, with what to check; also an event.

    `batch`: rows of a step. `frozen`: whether parameters are.
    """
    useless = useless_on(recipe, reports)
    if useless is None:
        return
    split, reason = useless
    log = EventLog(run.events_file)
    before = log.read()
    step = before[-1]["step"] if before else 0
    if not log.has(USELESS, step):  # else it was killed after this, and is resumed
        log.append(USELESS, step, split=split, told=reason)
    short = f"{run.path}: this model is of no use on {split}: {reason}"
    if run.is_of_compress:  # its recipe is not the user's
        console.warn(short)
        return
    if run.is_of_series:  # the others may be of no use either, for the same reason
        console.warn(str(Problem(short, hint="docs/guards.md says what to check")))
        return
    console.warn(f"this model is of no use on {split}: {reason}; check, in this order:")
    rate = recipe.training.learning_rate
    listed = checks(None, str(run.path), learning_rate=rate, batch=batch, gradient=None, frozen=frozen)
    for number, check in enumerate(listed, 1):
        console.note(f"  {number}. {check}")
