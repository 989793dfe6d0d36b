"""What a training shows of its course, from the first step to the final scores: a bar or lines, and the time left."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from paddlenlp.trainer import TrainerCallback, TrainingArguments
from paddlenlp.trainer.trainer_callback import TrainerControl, TrainerState

from nlpctl import console
from nlpctl.runs.time_shares import EVALUATE, LOG, SAVE, TimeShares

if TYPE_CHECKING:
    from nlpctl.training.trainer import RecipeTrainer

TRAIN_FIGURES = ("loss", "learning_rate", "interval_samples_per_second", "current_memory_allocated")
_NOT_SCORES = ("eval_loss", "eval_runtime", "eval_samples_per_second", "eval_steps_per_second")
RECENT = 20  # steps whose mean loss and speed a bar shows
_FORWARD = 1 / 3  # the share of a training step that scoring as many rows takes, before that was timed
_SAMPLED_AFTER, _SAMPLED_IF = 3, 30  # steps here until scoring is timed, if there are at least so many to come
# Final scores are computed in 32 bits by Paddle's own functions, scores on dev in a training by training/fast_cpu.py:
# a row took 1.0 and 0.58 processor seconds in bf16, 1.29 and 0.78 ms in fp32.
_FINAL_WITHOUT_FAST_CPU = 1.7


class TimeLeft:
    """The seconds until a training ends and its model is scored: the steps, evaluations and saves to come and the final
    scores, each by what it has taken so far in this process.

    Steps take as long as in the last half of the time, without the first one, which has the longest rows. Before the
    first evaluation, a few rows or a share of a step tell what scoring a row takes; in it, the batches that are scored.
    """

    def __init__(
        self,
        times: TimeShares,
        dev: int,
        test: int,
        fast_cpu: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ):
        """`times`: of this process. `dev`, `test`: the rows of the splits, 0 without one. `fast_cpu`: whether on a CPU
        dev is scored by the faster functions, which do not compute the final scores."""
        self._times, self._dev, self._fast_cpu, self._clock = times, dev, fast_cpu, clock
        self._rows = dev + test  # of the final scores
        self._forward = _FORWARD
        self._evaluated: list[float] = []  # seconds of each evaluation here
        self._trained: float | None = None  # when the last step had ended

    @classmethod
    def of(cls, trainer: RecipeTrainer) -> TimeLeft:
        """Of the training of `trainer`, in this process."""
        dev, test = (0 if split is None else len(split) for split in (trainer.data.dev, trainer.data.test))
        return cls(trainer.times, dev, test, trainer.recipe.training.fast_cpu)

    def begin(self, args: TrainingArguments, begun: int, total: int, per_epoch: int | None) -> None:
        """The training begins at step `begun`; also again after out-of-memory, with other micro-batches."""
        self._args, self.begun, self._total = args, begun, total
        self._pace, self._taken = console.Pace(), self._of_steps()
        self._final = self._rows * (_FINAL_WITHOUT_FAST_CPU if self._fast_cpu and args.device == "cpu" else 1.0)
        self._before = dict(self._times.ended)
        steps = per_epoch, begun, total
        self.evaluations = planned(args.evaluation_strategy.value, args.eval_steps, *steps) if self._dev else 0
        self.saves = planned(args.save_strategy.value, args.save_steps, *steps)

    def after_step(self, step: int) -> None:
        """A step has ended."""
        self._pace.mark(self._of_steps() - self._taken, step)

    def sampled(self, per_row: float, seconds: float) -> None:
        """Scoring a row of dev takes `per_row` seconds; finding that out took `seconds`, which were counted as LOG."""
        pace = self._pace.seconds_each()
        if pace is not None:  # as a share, which stays where other programs make both slower or faster
            self._forward = per_row / pace * self._rows_of_a_step()
        self._taken += seconds

    def evaluated(self) -> None:
        """An evaluation has ended, in its phase."""
        self._evaluated.append(self._times.so_far(EVALUATE) or 0.0)

    def trained(self) -> None:
        """The last step has ended, and all that follows it but the final scores."""
        self._trained = self._clock()

    def left(self, step: int, scored: console.Progress | None = None) -> float | None:
        """The seconds left after `step` completed steps; None before the second of this process. `scored`: the rows of
        the evaluation that goes on, or of the final scores."""
        pace = self._pace.seconds_each()
        if pace is None and self._trained is None:
            return None
        times, args, processes = self._times, self._args, max(self._args.dataset_world_size, 1)
        pace = pace or 0.0
        most = args.max_evaluate_steps * args.eval_batch_size * processes
        rows = (min(self._dev, most) if most > 0 else self._dev) / processes  # of an evaluation, in this process
        going_on = times.so_far(EVALUATE)
        per_row = self._forward * pace / self._rows_of_a_step()
        if self._evaluated and rows:
            per_row = sum(self._evaluated) / len(self._evaluated) / rows
        elif going_on is not None and scored is not None and rows:
            to_come = scored.left()
            per_row = per_row if to_come is None else (going_on + to_come) / rows
        if self._trained is not None:
            of_scores = None if scored is None else scored.left()
            since = self._clock() - self._trained
            return max(0.0, self._final * per_row - since) if of_scores is None else of_scores
        evaluations = self.evaluations - times.ended[EVALUATE] + self._before[EVALUATE]
        saves = self.saves - times.ended[SAVE] + self._before[SAVE]
        expected = max(0, evaluations) * per_row * rows
        if going_on is not None:  # it is one of those to come
            expected -= min(going_on, per_row * rows)
        return (
            pace * (self._total - step)
            + max(0.0, expected)
            + max(0, saves) * (times.usual(SAVE) or 0.0)
            + self._final * per_row
        )

    def _rows_of_a_step(self) -> int:
        """In this process."""
        return self._args.per_device_train_batch_size * self._args.gradient_accumulation_steps

    def _of_steps(self) -> float:
        return self._times.of_steps() + self._times.seconds[LOG]


def scores_of(metrics: Mapping[str, float]) -> dict[str, float]:
    """The scores of an evaluation, by their names without eval_; neither its loss nor its times."""
    return {name[5:]: value for name, value in metrics.items() if name[:5] == "eval_" and name not in _NOT_SCORES}


def updates_per_epoch(batches: Any) -> int | None:
    """The steps of an epoch of these batches; None for a stream."""
    sampler = getattr(batches, "sampler", None)
    return None if sampler is None else sampler.updates


def planned(strategy: str, every: int, per_epoch: int | None, begun: int, total: int) -> int:
    """How many evaluations or saves follow steps after `begun`, up to `total`. `per_epoch`: None for a stream."""
    if strategy == "steps" and every > 0:
        return total // every - begun // every
    if strategy == "epoch" and total > begun:
        return 1 if per_epoch is None else -(-total // per_epoch) - begun // per_epoch  # the last may be cut off
    return 0


class TrainingProgress(TrainerCallback):
    """Shows the course of a training. Use it as a context around the steps and the final scores.

    On a terminal a bar has the step, the epoch, the mean loss and the speed of the last RECENT steps, and the time left
    of all. In a log there is a line per log and evaluation, with the first of the task's scores.
    """

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._bar: console.Progress | None = None
        self._recent: deque[tuple[float, int, float]] = deque(maxlen=RECENT + 1)  # loss, rows, seconds of all steps

    def __enter__(self) -> TrainingProgress:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def watch(self, trainer: RecipeTrainer) -> None:
        """Of this training. The trainer is forgotten when it has ended, so that its memory is free for the scores."""
        self._trainer: RecipeTrainer | None = trainer
        self._left = TimeLeft.of(trainer)

    def left(self) -> float | None:
        """Seconds left of all; None if that is unknown."""
        return None if self._bar is None else self._bar.left()

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        train_dataloader: Any = None,
        **kwargs: Any,
    ) -> None:
        self._left.begin(args, state.global_step, state.max_steps, updates_per_epoch(train_dataloader))
        if self._bar is None:
            bar = console.progress(
                state.max_steps,
                "train",
                "steps",
                begun=state.global_step,
                left=lambda step: self._left.left(step, self._bar and self._bar.part),
                lines=False,
            )
            self._bar = self._stack.enter_context(bar)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        trainer, bar, step = self._trainer, self._bar, state.global_step
        assert trainer is not None and bar is not None, "on_train_begin came before"
        self._left.after_step(step)
        sampled = step == self._left.begun + _SAMPLED_AFTER and state.max_steps - step >= _SAMPLED_IF
        if console.is_main_rank() and sampled:
            with trainer.times.spent(LOG):
                # Without evaluations dev is scored at the end alone, when there is more memory.
                if self._left.evaluations:
                    self._left.sampled(*trainer.seconds_to_score_a_row())
                left = self._left.left(step)
                if left is not None:
                    console.note(f"about {console.duration(left)} from here to the final scores")
        rows = trainer.rows_of(range(step - 1, step))
        loss = trainer.guard.last_loss
        self._recent.append((float("nan") if loss is None else loss, rows, trainer.times.of_steps()))
        figures: dict[str, float] = {"epoch": round(state.epoch, 4)}
        about = [f"epoch {state.epoch:.2f}"]
        if loss is not None:
            recent = list(self._recent)[-RECENT:]
            figures["loss"] = round(sum(each for each, _, _ in recent) / len(recent), 8)
            about.append(f"loss {figures['loss']:.4f}")
        if len(self._recent) > 1:
            seconds = max(self._recent[-1][2] - self._recent[0][2], 1e-9)
            speed = sum(rows for _, rows, _ in list(self._recent)[1:]) / seconds
            figures["interval_samples_per_second"] = round(speed, 4)
            about.append(f"{speed:,.1f} samples/s")
        bar.advance(step - bar.done, "  ".join(about), figures)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, float],
        **kwargs: Any,
    ) -> None:
        if "loss" not in logs or self._bar is None:
            return
        line = (
            f"step {state.global_step}/{state.max_steps}  epoch {state.epoch:.2f}  loss {logs['loss']:.4f}  "
            f"lr {logs['learning_rate']:.2e}  {logs['interval_samples_per_second']:.1f} samples/s  "
            f"{self._bar.left_in_words()}"
        ).rstrip()  # nothing is left to tell before the second step
        figures = {name: logs[name] for name in TRAIN_FIGURES if name in logs}
        self._bar.report(state.global_step, line, figures={"epoch": round(state.epoch, 4), **figures})

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, float],
        **kwargs: Any,
    ) -> None:
        self._left.evaluated()
        if self._bar is not None:
            shown = {"loss": metrics["eval_loss"], **dict(list(scores_of(metrics).items())[:3])}
            told = "  ".join(f"{name} {value:.4f}" for name, value in shown.items())
            figures = {f"eval_{name}": value for name, value in shown.items()}
            self._bar.report(
                state.global_step, f"dev at step {state.global_step}: {told}", lasting=True, figures=figures
            )

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._left.trained()
        self._trainer = None
        if self._bar is not None:
            self._bar.advance(state.global_step - self._bar.done, "scoring the best model")
