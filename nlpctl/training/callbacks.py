"""What watches a training: `standard_callbacks` lists it all; the classes follow in that order."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import paddle
from paddlenlp.trainer import TrainerCallback, TrainingArguments
from paddlenlp.trainer.trainer_callback import TrainerControl, TrainerState

from nlpctl import console
from nlpctl.data.batches.batching import TokenBatchSampler
from nlpctl.errors import Pruned, RunFailed, UserError
from nlpctl.layout import MANIFEST
from nlpctl.names import counted, listed
from nlpctl.runtime.event_log import EventLog
from nlpctl.training.batches import step_seed
from nlpctl.training.checkpoints import record_save
from nlpctl.training.early_stopping import Patience, TrialPruner, patience_of
from nlpctl.training.progress import TRAIN_FIGURES, TrainingProgress, scores_of

if TYPE_CHECKING:
    from nlpctl.training.trainer import RecipeTrainer


def standard_callbacks(
    trainer: RecipeTrainer, progress: TrainingProgress, pruner: TrialPruner | None = None
) -> list[TrainerCallback]:
    """All that watches the training of `trainer`, in the order in which it is called.

    PaddleNLP's own come before these: its control of logs, evaluations and saves, and the curves of VisualDL
    (training.report_to). MLflow is sent by a process of its own, which reads events.jsonl (runs/tracking.py). A
    watchdog, a clock and the wait for memory are around the loop, not in it (training/train.py, training/trainer.py).
    """
    progress.watch(trainer)
    patience = patience_of(trainer.recipe)
    return [
        SeedEveryStep(),
        trainer.guard,  # stops an update by a loss or gradient that is not finite or explodes
        trainer.reached,  # gives a gradient of zeros to what had one in earlier steps
        progress,  # before the next one, which writes the time left
        EventRecorder(trainer.events, progress),
        StepLogger(trainer),
        *([] if patience is None else [EarlyStopping(patience)]),
        *([] if pruner is None else [PruneTrial(pruner)]),
        *trainer.user_code.callbacks,  # the user's own come last: they see, and may change, what the others decided
    ]


class SeedEveryStep(TrainerCallback):
    """Seed Paddle from (seed, step, rank), so that a step's dropout does not depend on its past."""

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        paddle.seed(step_seed(args.seed, state.global_step, args.dataset_rank))


class EventRecorder(TrainerCallback):
    """Write each log, evaluation and save to events.jsonl (process 0 only).

    RunFailed if somebody has deleted the run directory: without its manifest the run could not end.
    """

    def __init__(self, log: EventLog, progress: TrainingProgress):
        self.log, self.progress = log, progress

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.is_world_process_zero and not self.log.path.with_name(MANIFEST).exists():
            hint = "train again: what was saved is gone"
            raise RunFailed("the run directory was deleted, or its manifest", str(self.log.path.parent), hint)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, float],
        **kwargs: Any,
    ) -> None:
        if state.is_world_process_zero and "loss" in logs:
            figures = {name: logs[name] for name in TRAIN_FIGURES if name in logs}
            left = self.progress.left()
            figures |= {} if left is None else {"left": round(left, 3)}
            self.log.append("log", state.global_step, epoch=round(state.epoch, 4), **figures)

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, float],
        **kwargs: Any,
    ) -> None:
        if state.is_world_process_zero:
            figures = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
            self.log.append("evaluate", state.global_step, epoch=round(state.epoch, 4), **figures)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.is_world_process_zero:
            record_save(self.log, state)


class StepLogger(TrainerCallback):
    """Tells at the start how steps are counted, writes it to the manifest, and plans the check of the loss."""

    def __init__(self, trainer: RecipeTrainer):
        self._trainer, self._logged = trainer, False

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        train_dataloader: Any = None,
        **kwargs: Any,
    ) -> None:
        if self._logged:  # it begins again after out-of-memory
            return
        trainer, self._logged = self._trainer, True
        trainer.began_at = state.global_step
        train = trainer.data.train
        count = step_count(args, state, train_dataloader, None if train is None else len(train))
        if trainer.own_schedule:
            count = dataclasses.replace(count, warmup=None)
        if trainer.guard.monitor is not None:
            trainer.guard.monitor.begin(count.total, count.warmup or 0, count.per_epoch)
        if state.is_world_process_zero:
            _warn_of_moved_evaluations(args)
            for line in count.describe():
                console.note(line)
            trainer.directory.update_manifest(steps=count.to_json())


@dataclass(frozen=True)
class StepCount:
    """How the steps of a training are counted, told when it begins and written to its manifest.

    A step is one update of the weights, by `global_batch` rows over all processes.

    `rows`: what batches are made of, windows where a task cuts examples; None for a stream, which counts steps only.
    `examples`: the training examples. `drop_last`: the rest of an epoch, which fills no batch, is left out.
    `batch_tokens`: the limit of a batch per process (data.batch_tokens), which has `per_device` rows in the mean;
    `planned`: then the steps of an epoch, and `dropped` the rows that are left out of it.
    `warmup`: steps; None: a schedule of the user's own decides.
    """

    examples: int | None
    rows: int | None
    per_device: int
    accumulation: int
    processes: int
    drop_last: bool
    epochs: float
    total: int
    warmup: int | None
    batch_tokens: int | None = None
    planned: int | None = None
    dropped: int = 0

    @property
    def global_batch(self) -> int:
        """Rows of a step, of batches by tokens about."""
        return self.per_device * self.accumulation * self.processes

    @property
    def per_epoch(self) -> int | None:
        """Steps of an epoch: rounded up, since a smaller batch ends it, and down with `drop_last`."""
        if self.rows is None or self.planned is not None:
            return self.planned
        whole, rest = divmod(self.rows, self.global_batch)
        return whole + (rest > 0 and not self.drop_last)

    def to_json(self) -> dict[str, Any]:
        """For the manifest."""
        return {**asdict(self), "global_batch": self.global_batch, "per_epoch": self.per_epoch}

    def describe(self) -> list[str]:
        """For the console, line by line."""
        limit = ""
        if self.batch_tokens is not None:
            tokens = self.batch_tokens * self.accumulation * self.processes
            limit = f"at most {tokens:,} tokens with padding, about "
        batch = (
            f"a step is {limit}{counted(self.global_batch, 'rows')} = {self.per_device:,} per device x "
            f"{self.accumulation:,} accumulated x {counted(self.processes, 'processes')}"
        )
        warmup = f"warm-up in the first {self.warmup:,}" if self.warmup else "no warm-up"
        if self.warmup is None:
            warmup = "a schedule of your own"
        if self.per_epoch is None:
            return [batch, f"{counted(self.total, 'steps')} of a stream, {warmup}"]
        assert self.rows is not None and self.examples is not None, "only a stream does not know them"
        cut = "" if self.rows == self.examples else f"{counted(self.examples, 'examples')}, cut into "
        rows = f"{cut}{counted(self.rows, 'rows')}: {counted(self.per_epoch, 'steps')} an epoch{self._rest(self.rows)}"
        epochs = f"{self.epochs:.4g} {'epoch' if self.epochs == 1 else 'epochs'}"
        return [batch, f"{rows}; {epochs}: {counted(self.total, 'steps')}, {warmup}"]

    def _rest(self, rows: int) -> str:
        rest = self.dropped if self.planned is not None else rows % self.global_batch
        if not rest:
            return ""
        left = counted(rest, "rows")
        return f" ({left} left out: dataloader_drop_last)" if self.drop_last else f" (the last of {left})"


def step_count(args: TrainingArguments, state: TrainerState, batches: Any, examples: int | None) -> StepCount:
    """How the Trainer counts the steps of this training. `batches`: as ResumableBatches or ResumableStream."""
    sampler = None if examples is None else batches.sampler
    rows = None if sampler is None else len(sampler.lengths)
    warmup = args.warmup_steps if args.warmup_steps > 0 else int(args.warmup_ratio * state.max_steps)  # as the Trainer
    if args.lr_scheduler_type.value == "constant":
        warmup = 0
    count = StepCount(
        examples,
        rows,
        args.per_device_train_batch_size,
        args.gradient_accumulation_steps,
        max(args.dataset_world_size, 1),
        args.dataloader_drop_last,
        args.num_train_epochs,
        state.max_steps,
        warmup,
        *((sampler.batch_tokens, sampler.updates, sampler.dropped) if isinstance(sampler, TokenBatchSampler) else ()),
    )
    if args.max_steps > 0 and count.per_epoch:
        count = dataclasses.replace(count, epochs=args.max_steps / count.per_epoch)
    return count


def _warn_of_moved_evaluations(args: TrainingArguments) -> None:
    """PaddleNLP's Trainer has lowered eval_steps to have minimum_eval_times evaluations, but not save_steps."""
    if not (args.load_best_model_at_end and args.minimum_eval_times and args.evaluation_strategy.value == "steps"):
        return
    if args.save_steps % args.eval_steps:
        both = math.lcm(args.save_steps, args.eval_steps)
        console.warn(
            f"minimum_eval_times lowers eval_steps to {args.eval_steps}: checkpoints are evaluated, and the best is "
            f"chosen, every {both:,} steps only; set eval_steps and save_steps in its place"
        )


class EarlyStopping(TrainerCallback):
    """Stop after `patience` evaluations without an improvement of more than `min_delta`.

    PaddleNLP's own callback counts in memory and forgets the count on resume; here the count is read from
    the state's log of evaluations, which every checkpoint keeps.
    """

    def __init__(self, patience: Patience):
        self.patience = patience

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.patience.exhausted(state.log_history):
            most = self.patience.section.patience
            assert most is not None, "patience_of gives none without"
            evaluations = counted(most, "evaluations")
            console.note(f"early stopping: {self.patience.metric} has not improved for {evaluations}")
            control.should_training_stop = True


class PruneTrial(TrainerCallback):
    """Raises Pruned after an evaluation whose score says that the trial is not worth going on with.

    After the last evaluation the pruner is asked, so that it knows the score, but nothing would be saved any more.
    """

    def __init__(self, pruner: TrialPruner):
        self.pruner, self.metric = pruner, f"eval_{pruner.metric}"

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, float],
        **kwargs: Any,
    ) -> None:
        if self.metric not in metrics:
            hint = f"the scores are {listed(scores_of(metrics))}"
            raise UserError(f"there is no score {self.pruner.metric!r}", "search.metric", hint)
        number = sum(self.metric in entry for entry in state.log_history)  # a checkpoint keeps this list
        worth = self.pruner.worth(number, float(metrics[self.metric]))
        if not worth and state.global_step < state.max_steps:
            score = f"{self.pruner.metric} {metrics[self.metric]:.4f} at step {state.global_step}"
            raise Pruned(f"{score} is worse than the median of other trials", hint="it is not continued")
