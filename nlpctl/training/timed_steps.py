"""The first steps of a training, timed: how long all of it takes on this machine, and whether bf16 pays.

    prepared = ready_to_train(recipe)    # training/overfit.py
    timing = time_training(prepared)     # writes a checkpoint into a temporary folder, to time that
"""

from __future__ import annotations

import dataclasses
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddlenlp.trainer import TrainerCallback, TrainingArguments
from paddlenlp.trainer.trainer_callback import TrainerControl, TrainerState

from nlpctl.config.user_code import user_code_blamed
from nlpctl.errors import RunFailed
from nlpctl.runs.time_shares import LOG, SAVE
from nlpctl.runtime.interrupt import StopRequest
from nlpctl.runtime.machine import cpu_info
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.training.callbacks import SeedEveryStep
from nlpctl.training.fast_cpu import fast_cpu
from nlpctl.training.guards import BadStep
from nlpctl.training.prepare import PreparedTraining
from nlpctl.training.progress import TimeLeft, updates_per_epoch
from nlpctl.training.trainer import RecipeTrainer

LEAST_STEPS, MOST_STEPS, SECONDS = 4, 12, 4.0  # of a measurement: it ends after so many seconds, but for these steps
ROUNDS = 2  # measurements of each precision, in turns; the fastest counts, since other programs only slow it down
WORTH_IT = 1.1  # times as fast, from which bf16 pays


@dataclass(frozen=True)
class Measured:
    """Seconds of the whole training, final scores included; processor seconds of a step, which tell two precisions
    apart also where other programs take turns."""

    training: float
    step: float


@dataclass(frozen=True)
class TimedSteps:
    """What a training takes here, without training.bf16 and with it; None where that was not timed, on a GPU or a
    processor that does not compute so."""

    without_bf16: Measured
    with_bf16: Measured | None = None

    @property
    def times_faster(self) -> float:
        """How many times as fast steps are in bf16; 1 where it was not timed."""
        return 1.0 if self.with_bf16 is None else self.without_bf16.step / self.with_bf16.step

    @property
    def bfloat16_pays(self) -> bool:
        """Whether it is to be taken."""
        return self.times_faster >= WORTH_IT

    @property
    def seconds(self) -> float:
        """Of the training in the precision that is to be taken."""
        taken = self.with_bf16 if self.bfloat16_pays else None
        return (taken or self.without_bf16).training


def time_training(prepared: PreparedTraining) -> TimedSteps:
    """Train some steps in this process, in turns with and without bf16 if this is a processor that computes so.

    Moves the weights of the network a little. RunFailed if a step fails.
    """
    kinds = (False, True) if prepared.setup.device == "cpu" and cpu_info().trains_in_bfloat16 else (False,)
    save: list[float] = []  # the seconds that writing a checkpoint takes, once one was written
    rounds = [[_measure(prepared, bfloat16, save) for bfloat16 in kinds] for _ in range(ROUNDS)]
    fastest = (
        Measured(min(each.training for each in kind), min(each.step for each in kind))
        for kind in zip(*rounds, strict=True)
    )
    return TimedSteps(*fastest)


def _measure(prepared: PreparedTraining, bfloat16: bool, save: list[float]) -> Measured:
    """By the first steps, some rows of dev and, while `save` is empty, a checkpoint."""
    training = dataclasses.replace(prepared.recipe.training, bf16=bfloat16, report_to=("none",))
    recipe = dataclasses.replace(prepared.recipe, training=training)
    with tempfile.TemporaryDirectory(prefix="nlpctl-") as folder:

        def callbacks(trainer: RecipeTrainer) -> list[TrainerCallback]:
            return [SeedEveryStep(), trainer.guard, trainer.reached, _FirstSteps(trainer, save)]

        prepared = dataclasses.replace(prepared, recipe=recipe)
        trainer = RecipeTrainer(prepared, RunDirectory(Path(folder)), None, callbacks)
        with user_code_blamed(recipe), fast_cpu(recipe, trainer.args.device, trainer.loaded.network):
            try:
                trainer.run(StopRequest())
            except _Enough as enough:
                return enough.measured
            except (BadStep, RunFailed) as error:  # without advice on how to go on: this is no run
                raise RunFailed(error.problems[0].message if isinstance(error, RunFailed) else str(error)) from error
    raise RunFailed("the training ended before its first step")


class _Enough(Exception):
    """Enough steps were timed."""

    def __init__(self, measured: Measured):
        super().__init__()
        self.measured = measured


class _FirstSteps(TrainerCallback):
    """Ends a training by _Enough after its first steps."""

    def __init__(self, trainer: RecipeTrainer, save: list[float]):
        self._trainer, self._save = trainer, save
        self._of_steps: list[float] = []  # processor seconds of each
        self._left = TimeLeft.of(trainer)

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        train_dataloader: Any = None,
        **kwargs: Any,
    ) -> None:
        self._left.begin(args, 0, state.max_steps, updates_per_epoch(train_dataloader))

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._begun = time.process_time()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        step, times = state.global_step, self._trainer.times
        self._left.after_step(step)
        if step > 1 or state.max_steps == 1:  # the first prepares what is computed with
            self._of_steps.append(time.process_time() - self._begun)
        so_far = times.of_steps()
        if step < min(MOST_STEPS, state.max_steps) and (so_far < SECONDS or step < LEAST_STEPS):
            return
        if self._trainer.data.dev is not None:
            with times.spent(LOG):
                self._left.sampled(*self._trainer.seconds_to_score_a_row())
        training = sum(times.seconds.values()) + (self._left.left(step) or 0.0)
        if self._left.saves and times.usual(SAVE) is None:  # none was among the steps, so that none is counted
            if not self._save:
                self._save.append(self._trainer.seconds_to_save())
            training += self._left.saves * self._save[0]
        raise _Enough(Measured(training, statistics.fmean(self._of_steps)))

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._left.evaluated()
