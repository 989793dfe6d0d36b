"""PaddleNLP's Trainer, with exact resume, atomic checkpoints, and batches by length.

    trainer = RecipeTrainer(prepared, run, checkpoint, callbacks)
    if trainer.go_on():                  # as the run did before: its micro-batches, its log; False: nothing to train
        trainer.run(stop)                # PaddleNLP's loop, from the checkpoint
    trainer.fit_layers()                 # the best checkpoint is named in trainer.state
"""

from __future__ import annotations

import contextlib
import functools
import gc
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle.nn.layer.norm import _BatchNormBase as BatchNorm
from paddle.optimizer.lr import LRScheduler
from paddlenlp.trainer import PrinterCallback, Trainer, TrainerCallback, TrainingArguments
from paddlenlp.trainer.trainer_callback import TrainerControl
from paddlenlp.trainer.trainer_utils import TrainOutput, speed_metrics

from nlpctl import console
from nlpctl.config.tasks import task_info
from nlpctl.data.batches.batching import CheckedDataLoader, LengthGroupedBatchSampler, rounded, token_lengths
from nlpctl.data.batches.streaming import StreamingExamples
from nlpctl.data.rows.examples import ExampleList, FeatureList
from nlpctl.data.sample_rows import spread
from nlpctl.engines.pipeline import tokens_of_batches
from nlpctl.errors import RunFailed, UserError
from nlpctl.layout import checkpoint_path, checkpoint_step, checkpoints_in
from nlpctl.models.folder import make_description
from nlpctl.models.parameters import named, trains
from nlpctl.names import counted
from nlpctl.runs.time_shares import EVALUATE, LOG, SAVE, TimeShares, is_sound, summary
from nlpctl.runtime.event_log import EventLog
from nlpctl.runtime.interrupt import StopRequest
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.training.arguments import training_arguments
from nlpctl.training.batches import ResumableBatches, ResumableStream, batch_sampler
from nlpctl.training.checkpoints import (
    STATE,
    SavedTrainerState,
    UnloggedLoss,
    go_on_recording,
    load_training_state,
    load_weights,
    read_reached,
    read_state,
    read_unlogged,
    rotate_checkpoints,
    save_checkpoint,
    whole_state,
)
from nlpctl.training.dev_scores import DevScores
from nlpctl.training.early_stopping import patience_of
from nlpctl.training.fast_cpu import in_32_bits
from nlpctl.training.guards import StepGuard
from nlpctl.training.oom import MicroBatching, OutOfMemory, is_out_of_memory, record_division, recorded_division
from nlpctl.training.optimizer import ZeroMissingGradients, build_optimizer
from nlpctl.training.plateau import Fall, LossMonitor, Plateau, take_back, warn_not_learning
from nlpctl.training.prepare import PreparedTraining, can_recompute, fitted_parameters
from nlpctl.training.run_setup import planned_processes
from nlpctl.upstream.late_parameters import take_late_parameters

ROOM_TO_SAVE = 8  # times the bytes of the weights; a checkpoint has the moments of Adam too, three times as many
# (network, network as the Trainer wraps it, inputs, labels): as Task.training_loss
TrainingLoss = Callable[
    [paddle.nn.Layer, Callable[..., Any], Mapping[str, paddle.Tensor], Mapping[str, paddle.Tensor]], paddle.Tensor
]


def moved_by_passes(network: paddle.nn.Layer) -> list[paddle.Tensor]:
    """What a forward pass in training may change: buffers, such as the bounds of simulated int8, and the moving means
    of batch normalisation, which Paddle keeps as parameters."""
    norms = [layer for layer in network.sublayers(include_self=True) if isinstance(layer, BatchNorm)]
    moved = [*network.buffers(), *(each for norm in norms for each in (norm._mean, norm._variance))]
    return [each for each in moved if each._is_initialized()]  # the dropout state of an LSTM is empty on a CPU


class RecipeTrainer(Trainer):
    """Trains one task's network as a recipe says.

    What differs from the stock Trainer, and why:
    - batches: length-grouped; their order is a pure function of (seed, epoch), so a resumed run sees the
      same ones, and N processes see the same global batches as one (data/batches/batching.py);
    - randomness: Paddle is seeded from (seed, step) at the start of every step, so dropout does not depend
      on what ran before in the process;
    - checkpoints: complete or absent, and rotated also on one process (training/checkpoints.py);
    - loss: the task's own, or a given one such as a distillation loss; a batch that is cut unevenly between processes
      or accumulation steps still gives the mean over its examples;
    - optimizer: a learning rate and a weight decay per parameter if the recipe gives them;
    - the user's code (training/user_code.py), which is called as the stock Trainer calls it;
    - evaluation: through the task, as `nlpctl eval` does it;
    - out of memory in a step: the update is cut into smaller micro-batches and the step is repeated from the weights
      after the last completed step, which are still in memory. Batches and randomness are functions of the step, so
      the run continues like one that used these micro-batches from there on;
    - a request to stop: a checkpoint is saved after everything due at that step (log, evaluation, save), so that a
      resumed run repeats nothing and skips nothing;
    - a loss that is NaN, infinite or exploding: see guards.py.
    """

    control: TrainerControl  # this and the next two are PaddleNLP's, whose Trainer makes them before the first step
    lr_scheduler: LRScheduler | None
    optimizer: Any
    _stop: StopRequest
    _loss_sum: paddle.Tensor | None = None  # the stock loop's, of the steps since the last line of the log
    _carried: UnloggedLoss | None = None  # of the checkpoint, until the first step adds it
    _before: Sequence[tuple[paddle.Tensor, paddle.Tensor]] = ()  # what forward passes change, as it was before the step
    _ended_step = -1  # the step that ended an epoch or the training and was seen once already

    def __init__(
        self,
        prepared: PreparedTraining,
        run: RunDirectory,
        checkpoint: Path | None,
        callbacks: Callable[[RecipeTrainer], Sequence[TrainerCallback]],
        loss: TrainingLoss | None = None,
    ):
        """`checkpoint`: the one to go on from; None: from the start. `callbacks`: makes what watches this trainer
        (callbacks.standard_callbacks). `loss`: replaces the task's own, as in a compression."""
        recipe, task, code, model = prepared.recipe, prepared.task, prepared.user_code, prepared.model
        self.recipe, self.task, self.user_code, self.data = recipe, task, code, prepared.data
        self.loaded = model
        self.encoder = prepared.encoder
        self.directory = run
        self.checkpoint = checkpoint
        self.description = make_description(recipe, task.labels.names)
        self.training_loss = loss or code.training_loss(task)
        self.fits_layers = loss is None  # another loss trains all of the network
        self.own_schedule = code.make_scheduler is not None  # or one that the user's optimizer comes with
        self.label_loss = code.loss(task)  # of outputs and labels
        self.events = EventLog(run.events_file)
        self.guard = StepGuard(recipe.guards, self._loss_monitor(prepared, loss), self._tell_of_loss)
        self.reached = ZeroMissingGradients(model.network)
        self.times = TimeShares()
        self.began_at = 0  # the completed steps when the training began in this process
        self.timed = 0, 0.0  # the completed steps at the last line of the log, and what steps had taken
        args = training_arguments(recipe, run, prepared.setup.device)
        train = self._training_features(prepared, own_loss=loss is None)
        if recipe.data.batch_tokens is not None:
            self.token_lengths = token_lengths(train, task.collator(prepared.encoder, labelled=True), task.label_names)
            # The Trainer reports speeds by the rows per batch, and out-of-memory divides them: about their mean.
            sampler = batch_sampler(recipe, self.token_lengths, processes=args.dataset_world_size)
            args.per_device_train_batch_size = rounded(sampler.mean_rows)
        super().__init__(
            model=model.network,
            args=args,
            data_collator=code.collator(task, prepared.encoder),
            train_dataset=train,
            eval_dataset=prepared.data.dev,
            tokenizer=model.tokenizer,
            callbacks=callbacks(self),
        )
        self.remove_callback(PrinterCallback)  # progress.py prints instead, through nlpctl's console

    @staticmethod
    def _training_features(prepared: PreparedTraining, own_loss: bool) -> ExampleList | StreamingExamples:
        """What batches are made of: the examples, cut into windows if the task does so. `own_loss`: those that the
        task's own loss is made for."""
        recipe, task, data = prepared.recipe, prepared.task, prepared.data
        if data.train is not None and own_loss:
            return task.training_features(data.train, prepared.encoder)
        if data.train is not None:
            return FeatureList(data.train, functools.partial(task.features, encoder=prepared.encoder))
        go_on = RunDirectory(recipe.run_dir).to_go_on()
        return StreamingExamples(
            data.source,
            data.reader,
            features=functools.partial(task.features, encoder=prepared.encoder),
            batch_size=recipe.training.per_device_train_batch_size,
            shuffle_buffer=recipe.data.shuffle_buffer,
            seed=recipe.training.seed,
            on_bad_row=recipe.data.on_bad_row,
            world_size=prepared.setup.world_size,
            rank=prepared.setup.rank,
            rows=data.streamed,
            fix=f"restore the training data, then run {go_on} to continue from the last checkpoint",
        )

    # -- around the loop ---------------------------------------------------------------------

    def run(self, stop: StopRequest) -> None:
        """Train, from the checkpoint if there is one. KeyboardInterrupt if `stop` is due; BadStep: see guards.py."""
        self._stop = stop
        self.train(resume_from_checkpoint=None if self.checkpoint is None else str(self.checkpoint))

    def go_on(self) -> bool:
        """Restore how the run went until the checkpoint: its log, and how its updates were divided. False: no step is
        left to train."""
        state = None if self.checkpoint is None else read_state(self.checkpoint)
        self._divide_as_before(recorded_division(self.events, 0 if state is None else state.global_step))
        if self.is_world_process_zero():
            go_on_recording(self.events, state)
        if not trains(self.loaded.network):
            console.note("the encoder is fixed (model.freeze): no step is trained, the rest is fitted to its vectors")
            return False
        patience = patience_of(self.recipe)
        if state is not None and patience is not None and patience.exhausted(state.log_history):
            self.state = state  # early stopping had ended the run, which was killed before its model was written
            return False
        return True

    def _divide_as_before(self, recorded: MicroBatching | None) -> None:
        """Divide every update as after an earlier lack of memory (`recorded`), and among the processes that there are.
        """
        processes = max(self.args.dataset_world_size, 1)
        planned = planned_processes(self.directory.read_manifest())
        given = MicroBatching(self.args.per_device_train_batch_size, self.args.gradient_accumulation_steps)
        # What was recorded may be of another number of processes: only its micro-batch is known to fit.
        division = given.among(planned, processes, None if recorded is None else recorded.batch_size)
        if division is None or division == given:
            return
        why = "after out-of-memory" if processes == planned else f"planned for {counted(planned, 'processes')}"
        console.note(f"{why}: micro-batch {division.batch_size}, accumulation {division.parts}")
        self.divide(division)

    @contextlib.contextmanager
    def facts_recorded(self) -> Iterator[None]:
        """Around the training: in any case the manifest says where the time went, and which parameters no gradient
        reached or the task itself fitted. Every process has to come out of it, or none."""
        shares = [self.times.seconds]
        try:
            yield
            if paddle.distributed.get_world_size() > 1:
                gathered: list[dict[str, float]] = []
                paddle.distributed.all_gather_object(gathered, self.times.seconds)  # fails if another process is lost
                shares = gathered
        finally:
            if self.is_world_process_zero():
                with contextlib.suppress(OSError, UserError):  # on a full disk, what ended the training is to be told
                    self._record_facts(shares)

    def _record_facts(self, shares: Sequence[dict[str, float]]) -> None:
        facts: dict[str, Any] = {}
        fitted = fitted_parameters(self.task, self.loaded.network)
        timed = sum(shares[0].values()) > 0
        if not timed and not fitted:
            return
        manifest = self.directory.read_manifest()
        if timed:
            before = manifest.time
            steps = self.state.global_step - self.began_at
            facts["time"] = summary(shares, steps, before if is_sound(before) else None)
        about = {} if self.guard.unreached is None else {"unreached": self.guard.unreached}
        about |= {"fitted": fitted} if fitted else {}
        if about:
            facts["parameters"] = {**manifest.parameters, **about}
        self.directory.update_manifest(**facts)

    # -- out of memory -----------------------------------------------------------------------

    def training_step(self, model: paddle.nn.Layer, inputs: Mapping[str, paddle.Tensor]) -> paddle.Tensor:
        """Loss and gradients of one micro-batch of an update. Raises OutOfMemory."""
        self.guard.begin_part(inputs)
        if self.guard.part == 0:
            self._before = [(each, each.clone()) for each in moved_by_passes(model)]
        try:
            loss = super().training_step(model, inputs)
        # Paddle's allocator raises MemoryError; cuDNN and cuBLAS report theirs as OSError.
        except (MemoryError, OSError) as error:
            if "(External) KeyboardInterrupt" in str(error):  # raised in the gradient of a PyLayer
                raise KeyboardInterrupt from error
            if not is_out_of_memory(error):
                raise
            raise OutOfMemory(str(error)) from error
        self.guard.end_part(loss)
        return loss if self._carried is None else self._with_carried(loss, self._carried)

    def _with_carried(self, loss: paddle.Tensor, carried: UnloggedLoss) -> paddle.Tensor:
        """`loss`, to which the stock loop's empty sum is added, with what the checkpoint had in this sum."""
        self._carried = None
        self._globalstep_last_logged = carried.step
        return loss + carried.sum

    def unlogged(self) -> UnloggedLoss | None:
        """For a checkpoint of this step, so that a resumed run logs what an uninterrupted one does. All processes must
        call it."""
        if self._loss_sum is None or self._globalstep_last_logged == self.state.global_step:
            return None
        return UnloggedLoss(self._nested_gather(self._loss_sum).mean().item(), self._globalstep_last_logged)

    def divide(self, division: MicroBatching) -> None:
        """Cut every further update by `division`."""
        self.args.per_device_train_batch_size = division.batch_size
        self.args.gradient_accumulation_steps = division.parts
        if isinstance(self.train_dataset, StreamingExamples):
            self.train_dataset.batch_size = division.batch_size

    def _inner_training_loop(
        self,
        args: TrainingArguments,
        model: paddle.nn.Layer,
        batches: Any,
        length: int | None,
        max_steps: int,
        epochs: int,
        updates_per_epoch: int,
        *rest: Any,
    ) -> TrainOutput:
        """Run the stock loop from the checkpoint's step, and again after out-of-memory."""
        rows, checkpoint, ignored = rest
        done = 0
        if checkpoint is not None:
            saved = SavedTrainerState.of(Path(checkpoint))
            self._carried = read_unlogged(Path(checkpoint))
            done = saved.global_step
            if done >= max_steps:  # complete but killed after its last checkpoint; the stock loop would add a step
                self.state = read_state(Path(checkpoint))
                return TrainOutput(done, float("nan"), {})
        with tempfile.TemporaryDirectory(prefix="nlpctl-") as folder, self.times.measured():
            while True:
                if done:
                    self._place_batches(batches, done, updates_per_epoch)
                facts = (length, max_steps, epochs, updates_per_epoch, rows, checkpoint, ignored)
                try:
                    return super()._inner_training_loop(args, model, batches, *facts)
                except OutOfMemory as failure:
                    self._divide_further(str(failure))
                # Outside the `except`: only here the traceback no longer keeps the tensors of the failed step alive.
                self._forget_step()
                done = self.state.global_step
                if done:
                    # Weights and optimizer are still in memory. The stock loop reads only this file of a checkpoint,
                    # and so resumes at the right step without restoring anything else.
                    self.state.save_to_json(f"{folder}/{STATE}")
                    checkpoint = folder
                # A new loader, because the sampler of the old one has the old micro-batch size.
                batches = self.get_train_dataloader()
                length = None if length is None else len(batches)

    def _divide_further(self, reason: str) -> None:
        """Use smaller micro-batches from this step on; RunFailed if that is disabled or impossible."""
        args, step = self.args, self.state.global_step
        current = MicroBatching(args.per_device_train_batch_size, args.gradient_accumulation_steps)
        smaller = current.smaller()
        message = f"out of memory in step {step + 1}, with micro-batch {current.batch_size}"
        if self.recipe.runtime.on_oom == "fail" or smaller is None:
            command = RunDirectory(self.recipe.run_dir).to_go_on("--set runtime.on_oom=halve")
            hint = f"{command} continues with a smaller micro-batch and the same effective batch"
            if smaller is None:
                recompute = can_recompute(self.loaded.network) and not args.recompute
                more = "set training.recompute: true, " if recompute else ""
                hint = f"shorten data.max_seq_length, {more}or use a smaller model"
            raise RunFailed(f"{message}: {reason.strip()}", where="runtime.on_oom", hint=hint)
        if args.world_size > 1:
            # The other processes wait for this one's gradients, so this process fails; the parent stops and restarts
            # all.
            saved = checkpoints_in(Path(args.output_dir))
            record_division(self.events, checkpoint_step(saved[-1]) if saved else 0, smaller)
            raise RunFailed(message, hint=f"the run continues from its checkpoint with batch {smaller.batch_size}")
        console.warn(
            f"{message}: continuing with micro-batch {smaller.batch_size} and accumulation {smaller.parts} instead of "
            f"{current.parts}; effective batch and learning rate stay"
        )
        record_division(self.events, step, smaller)
        self.divide(smaller)

    def _forget_step(self) -> None:
        """Free the remains of a failed step: gradients, batches, cached memory; undo what its forward pass changed."""
        self.guard.begin_step()
        for tensor, value in self._before:
            tensor.set_value(value)
        self.optimizer.clear_grad()
        gc.collect()
        if self.args.device == "gpu":
            paddle.device.cuda.empty_cache()

    # -- stopping ----------------------------------------------------------------------------

    def _maybe_log_save_evaluate(
        self,
        tr_loss: paddle.Tensor,
        model: paddle.nn.Layer,
        epoch: int,
        ignore_keys_for_eval: list[str] | None,
        **kwargs: Any,
    ) -> None:
        self._loss_sum = tr_loss
        super()._maybe_log_save_evaluate(tr_loss, model, epoch, ignore_keys_for_eval, **kwargs)
        if self._step_is_over() and self._stop.due(last=self.control.should_training_stop):
            if not checkpoint_path(Path(self.args.output_dir), self.state.global_step).exists():
                self._save_checkpoint(model)
                self.control = self.callback_handler.on_save(self.args, self.state, self.control)
            raise KeyboardInterrupt

    def _step_is_over(self) -> bool:
        """Whether log, evaluation and save of this step are done, too.

        The loop calls this after every step, and again at the end of an epoch or of the training. The epoch's own log,
        evaluation and save are due only at the second call.
        """
        control, state = self.control, self.state
        ends = control.should_training_stop or control.should_epoch_stop or float(state.epoch).is_integer()
        seen, self._ended_step = self._ended_step, state.global_step
        return not ends or seen == state.global_step

    # -- whether the loss falls --------------------------------------------------------------

    def _loss_monitor(self, prepared: PreparedTraining, loss: TrainingLoss | None) -> LossMonitor | None:
        """What watches whether the loss falls; None: nothing does, or it is not known how far it should."""
        if self.directory.is_of_compress or prepared.recipe.guards.not_learning == "ignore" or loss is not None:
            return None
        if prepared.setup.rank != 0:
            return None
        own = prepared.user_code.criterion is not None  # what a guess costs by a loss of the user's own is not known
        constant = None if prepared.data.train is None or own else prepared.task.constant_loss(prepared.data.train)
        # The first steps of new parameters are a guess.
        parameters = named(prepared.model.network)
        new = any(name in parameters and not parameters[name].stop_gradient for name in prepared.model.fresh)
        return LossMonitor(constant, from_start=new and self.checkpoint is None, dev=self._dev_scores)

    def _dev_scores(self) -> list[float]:
        """The scores of all evaluations on dev that a model is chosen by, turned so that higher ones are better."""
        metric = f"eval_{(self.args.metric_for_best_model or 'loss').removeprefix('eval_')}"
        sign = 1.0 if self.args.greater_is_better else -1.0
        return [sign * entry[metric] for entry in self.state.log_history if metric in entry]

    def _tell_of_loss(self, verdict: Plateau | Fall) -> None:
        if isinstance(verdict, Fall):
            take_back(self.events, verdict)
            return
        args, plateau = self.args, verdict
        warn_not_learning(
            self.recipe,
            self.events,
            plateau,
            learning_rate=self.optimizer.get_lr(),
            batch=args.per_device_train_batch_size * args.gradient_accumulation_steps * max(args.dataset_world_size, 1),
            gradient=self.guard.usual_gradient,
            frozen=bool(self.loaded.changes.frozen),
        )

    # -- batches -----------------------------------------------------------------------------

    def get_train_dataloader(self) -> ResumableBatches | ResumableStream:
        workers = self.args.dataloader_num_workers
        if isinstance(self.train_dataset, StreamingExamples):
            self.batches: ResumableBatches | ResumableStream
            loader = CheckedDataLoader(
                self.train_dataset,
                batch_size=self.args.per_device_train_batch_size,
                collate_fn=self.data_collator,
                num_workers=workers,
                drop_last=True,
            )
            self.batches = ResumableStream(loader, self.train_dataset, self.times.waiting)
        else:
            sampler = self._sampler()
            loader = CheckedDataLoader(
                self.train_dataset, batch_sampler=sampler, collate_fn=self.data_collator, num_workers=workers
            )
            self.batches = ResumableBatches(loader, sampler, self.times.waiting)
        return self.batches

    def _sampler(self) -> LengthGroupedBatchSampler:
        args, by_tokens = self.args, self.recipe.data.batch_tokens is not None
        lengths = self.token_lengths if by_tokens else self.train_dataset.lengths()
        division = MicroBatching(args.per_device_train_batch_size, args.gradient_accumulation_steps)
        world, rank = args.dataset_world_size, args.dataset_rank
        return batch_sampler(self.recipe, lengths, division, processes=world, rank=rank)

    def _place_batches(self, batches: ResumableBatches | ResumableStream, step: int, updates_per_epoch: int) -> None:
        """Start `batches` at the step after `step` completed ones."""
        self.timed = step, self.times.of_steps()
        epoch, updates = divmod(step, updates_per_epoch)
        batches.start_at(epoch, updates * self.args.gradient_accumulation_steps)

    # -- learning rate and optimizer ---------------------------------------------------------

    def create_scheduler(self, num_training_steps: int) -> LRScheduler:
        """The learning rate of each step. The stock Trainer calls this first, then `create_optimizer`."""
        self.planned_steps = num_training_steps
        if self.lr_scheduler is None and self.user_code.make_scheduler is not None:
            self.lr_scheduler = self.user_code.scheduler(self.args, num_training_steps)
        # Here training.learning_rate becomes a number of the training: PaddleNLP's get_scheduler makes a schedule of
        # args.lr_scheduler_type with args.learning_rate as its peak.
        return super().create_scheduler(num_training_steps)

    def create_optimizer(self, lr_scheduler: LRScheduler | None = None) -> paddle.optimizer.Optimizer:
        if self.optimizer is not None:
            return self.optimizer
        scheduler = self.lr_scheduler if lr_scheduler is None else lr_scheduler
        if self.user_code.make_optimizer is None:
            self.optimizer = build_optimizer(self.loaded.network, self.recipe.optimizer, self.args, scheduler)
            take_late_parameters(self.optimizer)
            return self.optimizer
        self.optimizer = self.user_code.optimizer(self.loaded.network, self.args)
        take_late_parameters(self.optimizer)
        own = self.optimizer._learning_rate  # a number, or a schedule that the user gave it
        if isinstance(own, LRScheduler) and self.user_code.make_scheduler is None:
            self.lr_scheduler, self.own_schedule = own, True
        else:
            self.optimizer.set_lr_scheduler(scheduler)
        return self.optimizer

    # -- loss --------------------------------------------------------------------------------

    def compute_loss(
        self, model: paddle.nn.Layer, inputs: dict[str, paddle.Tensor], return_outputs: bool = False
    ) -> paddle.Tensor:
        if self.task.masks_inputs:
            inputs = self._hidden(inputs)
        # The network's forward does not know these names.
        labels = {name: inputs.pop(name) for name in self.task.label_names}
        loss = self.training_loss(self.loaded.network, model, inputs, labels)
        weight = self.guard.parts[-1].weight = self.batches.loss_weight(self.state.global_step, self.guard.part)
        return loss if weight == 1.0 else loss * weight

    def _hidden(self, inputs: Mapping[str, paddle.Tensor]) -> dict[str, paddle.Tensor]:
        """The batch with this step's masks. The parts of an accumulated step differ by their count."""
        numbers = [self.args.seed, self.state.global_step, self.args.dataset_rank, self.guard.part]
        generator = np.random.default_rng(numbers)
        batch = self.task.apply_mask({name: tensor.numpy() for name, tensor in inputs.items()}, generator)
        return {name: paddle.to_tensor(array) for name, array in batch.items()}

    def fit_layers(self) -> None:
        """Fit the layers that no gradient trains, as the task does, to what the network computes in 32 bits."""
        if self.fits_layers:
            with in_32_bits():
                self.task.fit_layers(self.loaded.network, self.encoder)

    # -- evaluation --------------------------------------------------------------------------

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Score the dev examples as `nlpctl eval` does, each process a share of them.

        The stock loop gathers padded arrays of logits, which cannot represent spans or tag paths.
        """
        with self.times.spent(EVALUATE):
            return self._evaluate()

    def _evaluate(self) -> dict[str, float]:
        started = time.time()
        examples = self._dev_examples()
        self.fit_layers()
        scorer = DevScores(self.task, self.loaded.network, self.encoder, self.label_loss, self.user_code.metrics)
        share = -(-len(examples) // max(self.args.dataset_world_size, 1))  # of this process
        with console.progress(share, "dev", lines=False) as bar:
            predictions, loss, own = scorer.score(examples, self.args.per_device_eval_batch_size, bar.advance)
        report = self.task.tuned(examples, predictions).report(examples, predictions)  # as in the final model
        figures = (name for name in task_info(self.task.name).metrics if name in report)
        # A task whose loss is not a mean over rows reports it itself.
        metrics = {"eval_loss": loss} | {f"eval_{name}": value for name, value in own.items()}
        metrics |= {f"eval_{name}": report[name] for name in figures if name not in own}
        steps = math.ceil(len(examples) / (self.args.eval_batch_size * self.args.dataset_world_size))
        metrics |= speed_metrics("eval", started, num_samples=len(examples), num_steps=steps)
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def seconds_to_score_a_row(self) -> tuple[float, float]:
        """What a row of dev takes in an evaluation, by two batches of rows from all over dev that this process scores;
        and what finding that out takes."""
        dev, size = self.data.dev, self.args.per_device_eval_batch_size
        assert dev is not None
        rows = spread(dev, 2 * size)
        scorer = DevScores(self.task, self.loaded.network, self.encoder, self.label_loss, None, alone=True)
        started = time.perf_counter()
        scorer.score(rows, size)
        seconds = time.perf_counter() - started
        # A batch of an evaluation has rows of more similar lengths, the neighbours among all of dev: less padding.
        lengths = sorted(length for each in scorer.pipeline.lengths(rows) for length in each)
        alike = max(1, round(size * len(rows) / len(dev)))
        less = sum(tokens_of_batches(lengths, alike)) / sum(tokens_of_batches(lengths, size))
        return seconds * less / len(rows), time.perf_counter() - started

    def seconds_to_save(self) -> float:
        """What a checkpoint takes, by one that is written into the run directory; 0 where there is no room for it."""
        weights = sum(each.size * each.element_size() for each in self.loaded.network.parameters())
        if shutil.disk_usage(self.directory.path).free < ROOM_TO_SAVE * weights:
            return 0.0
        started = time.perf_counter()
        self._write_checkpoint(None)
        return time.perf_counter() - started

    def _dev_examples(self) -> ExampleList:
        limit, dev = self.args.max_evaluate_steps, self.data.dev
        assert dev is not None, "config/checks.py refuses evaluations without dev data"
        if limit <= 0:
            return dev
        rows = limit * self.args.eval_batch_size * max(self.args.dataset_world_size, 1)
        return ExampleList(spread(dev, rows))  # a file may be sorted by label

    # -- checkpoints and resume --------------------------------------------------------------

    def log(self, logs: dict[str, float], **kwargs: Any) -> None:
        with self.times.spent(LOG):
            super().log(logs | self._speed() if "loss" in logs else logs, **kwargs)

    def _speed(self) -> dict[str, float]:
        """The Trainer's figures of speed since the last line of the log, of training steps alone: its own are of all
        the time, with evaluations and saves, and take every step for a full one."""
        (before, began), self.timed = self.timed, (self.state.global_step, self.times.of_steps())
        steps, seconds = self.state.global_step - before, max(self.times.of_steps() - began, 1e-9)
        rows = self.rows_of(range(before, self.state.global_step))
        figures = {"runtime": seconds, "samples_per_second": rows / seconds, "steps_per_second": steps / seconds}
        return {f"interval_{name}": round(value, 4) for name, value in figures.items()}

    def rows_of(self, steps: range) -> int:
        """The rows of these steps, over all processes."""
        args = self.args
        if isinstance(self.batches, ResumableStream):  # its batches are always full
            return len(steps) * args.train_batch_size * args.gradient_accumulation_steps * args.dataset_world_size
        return sum(self.batches.sampler.rows_of(step) for step in steps)

    def _save_checkpoint(self, model: paddle.nn.Layer, metrics: dict[str, float] | None = None) -> None:
        with self.times.spent(SAVE):
            self._write_checkpoint(metrics)

    def _write_checkpoint(self, metrics: dict[str, float] | None) -> None:
        checkpoints = Path(self.args.output_dir)
        self._note_best(checkpoint_path(checkpoints, self.state.global_step), metrics)
        self.fit_layers()
        training_state = not self.args.ignore_save_lr_and_optim
        state = whole_state(self.optimizer, bool(self.args.sharding)) if training_state else None
        unlogged = self.unlogged()
        if self.args.should_save:
            save_checkpoint(
                checkpoints,
                self.state,
                self.loaded,
                self.description,
                optimizer_state=state,
                scheduler=self.lr_scheduler if training_state else None,
                scaler=self.scaler if self.do_grad_scaling else None,
                reached=self.reached.names,
                unlogged=unlogged,
            )
            rotate_checkpoints(checkpoints, self.args.save_total_limit, self.state.best_model_checkpoint)
        if self.args.world_size > 1:
            # No process may go on, and perhaps stop the run, before process 0 has written the checkpoint.
            paddle.distributed.barrier()

    def _note_best(self, checkpoint: Path, metrics: dict[str, float] | None) -> None:
        """Record `checkpoint` in the state as the best if its watched metric is better than all before."""
        watched = self.args.metric_for_best_model
        if metrics is None or watched is None:
            return
        value = metrics[f"eval_{watched.removeprefix('eval_')}"]
        # NaN compares false with everything: as the first value it would stay the best for ever.
        if math.isnan(value):
            return
        best = self.state.best_metric
        if best is None or (value > best if self.args.greater_is_better else value < best):
            self.state.best_metric = value
            self.state.best_model_checkpoint = str(checkpoint)

    def _load_from_checkpoint(self, resume_from_checkpoint: str | None = None) -> None:
        if resume_from_checkpoint is not None:
            load_weights(Path(resume_from_checkpoint), self.model)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """The stock method unpickles arbitrary objects; this one reads arrays and numbers only."""
        if checkpoint is not None:
            scaler = self.scaler if self.do_grad_scaling else None
            load_training_state(Path(checkpoint), self.optimizer, self.lr_scheduler, scaler)
            self.reached.names |= read_reached(Path(checkpoint))
            if SavedTrainerState.of(Path(checkpoint)).max_steps != self.planned_steps:
                # A continued run has more steps, so the checkpoint's rate is that of another schedule.
                assert self.lr_scheduler is not None, "create_scheduler has made it"
                LRScheduler.step(self.lr_scheduler, self.lr_scheduler.last_epoch)

    def _load_rng_state(self, checkpoint: str) -> None:
        """Nothing to restore: SeedEveryStep derives all randomness from (seed, step)."""
