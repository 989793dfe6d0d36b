"""PaddleNLP's training loop with recovery from out-of-memory, a clean stop, and checks of the loss."""

from __future__ import annotations

import gc
import tempfile
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import paddle
from paddle.nn.layer.norm import _BatchNormBase as BatchNorm
from paddlenlp.trainer import Trainer
from paddlenlp.trainer.trainer import TRAINER_STATE_NAME
from paddlenlp.trainer.trainer_utils import TrainOutput

from nlpctl import console
from nlpctl.config.schema import Recipe
from nlpctl.errors import RunFailed
from nlpctl.layout import checkpoint_path, checkpoint_step, checkpoints_in
from nlpctl.runtime.event_log import EventLog
from nlpctl.runtime.interrupt import StopRequest
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.training.checkpoints import UnloggedLoss, read_state, read_unlogged
from nlpctl.training.guards import StepGuard
from nlpctl.training.oom import Division, OutOfMemory, is_out_of_memory, record_division
from nlpctl.training.time_shares import TimeShares


def moved_by_passes(network: paddle.nn.Layer) -> list[paddle.Tensor]:
    """What a forward pass in training may change: buffers, such as the bounds of simulated int8, and the moving means
    of batch normalisation, which Paddle keeps as parameters."""
    norms = [layer for layer in network.sublayers(include_self=True) if isinstance(layer, BatchNorm)]
    moved = [*network.buffers(), *(each for norm in norms for each in (norm._mean, norm._variance))]
    return [each for each in moved if each._is_initialized()]  # the dropout state of an LSTM is empty on a CPU


class GuardedTrainer(Trainer):
    """The stock training loop with three guards around it.

    - Out of memory in a step: the update is cut into smaller micro-batches and the step is repeated from the weights
      after the last completed step, which are still in memory. Batches and randomness are functions of the step, so
      the run continues like one that used these micro-batches from there on.
    - A request to stop: a checkpoint is saved after everything due at that step (log, evaluation, save), so that a
      resumed run repeats nothing and skips nothing.
    - A loss that is NaN, infinite or exploding: see guards.py.
    """

    recipe: Recipe
    guard: StepGuard
    events: EventLog
    times: TimeShares
    _stop: StopRequest
    _loss_sum: paddle.Tensor | None = None  # the stock loop's, of the steps since the last line of the log
    _carried: UnloggedLoss | None = None  # of the checkpoint, until the first step adds it
    _before: Sequence[tuple[paddle.Tensor, paddle.Tensor]] = ()  # what forward passes change, as it was before the step
    _ended_step = -1  # the step that ended an epoch or the training and was seen once already

    def run(self, checkpoint: Path | None, stop: StopRequest) -> None:
        """Train from `checkpoint`, None: from the start. KeyboardInterrupt if `stop` is due."""
        self._stop = stop
        self.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))

    @abstractmethod
    def place_batches(self, batches: Any, step: int, updates_per_epoch: int) -> None:
        """Start `batches` at the step after `step` completed ones."""

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
        return loss if self._carried is None else self._with_carried(loss)

    def _with_carried(self, loss: paddle.Tensor) -> paddle.Tensor:
        """`loss`, to which the stock loop's empty sum is added, with what the checkpoint had in this sum."""
        carried, self._carried = self._carried, None
        self._globalstep_last_logged = carried.step
        return loss + carried.sum

    def unlogged(self) -> UnloggedLoss | None:
        """For a checkpoint of this step, so that a resumed run logs what an uninterrupted one does. All processes must
        call it."""
        if self._loss_sum is None or self._globalstep_last_logged == self.state.global_step:
            return None
        return UnloggedLoss(self._nested_gather(self._loss_sum).mean().item(), self._globalstep_last_logged)

    def divide(self, division: Division) -> None:
        """Cut every further update by `division`."""
        self.args.per_device_train_batch_size = division.batch_size
        self.args.gradient_accumulation_steps = division.parts

    def _inner_training_loop(self, args, model, batches, length, max_steps, epochs, updates_per_epoch, *rest):
        """Run the stock loop from the checkpoint's step, and again after out-of-memory."""
        rows, checkpoint, ignored = rest
        done = 0
        if checkpoint is not None:
            state = read_state(Path(checkpoint))
            self._carried = read_unlogged(Path(checkpoint))
            done = state.global_step
            if done >= max_steps:  # complete but killed after its last checkpoint; the stock loop would add a step
                self.state = state
                return TrainOutput(done, float("nan"), {})
        with tempfile.TemporaryDirectory(prefix="nlpctl-") as folder, self.times.measured():
            while True:
                if done:
                    self.place_batches(batches, done, updates_per_epoch)
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
                    self.state.save_to_json(f"{folder}/{TRAINER_STATE_NAME}")
                    checkpoint = folder
                # A new loader, because the sampler of the old one has the old micro-batch size.
                batches = self.get_train_dataloader()
                length = None if length is None else len(batches)

    def _divide_further(self, reason: str) -> None:
        """Use smaller micro-batches from this step on; RunFailed if that is disabled or impossible."""
        args, step = self.args, self.state.global_step
        current = Division(args.per_device_train_batch_size, args.gradient_accumulation_steps)
        smaller = current.smaller()
        message = f"out of memory in step {step + 1}, with micro-batch {current.batch_size}"
        if self.recipe.runtime.on_oom == "fail" or smaller is None:
            command = RunDirectory(self.recipe.run_dir).to_go_on("--set runtime.on_oom=halve")
            hint = f"{command} continues with a smaller micro-batch and the same effective batch"
            if smaller is None:
                hint = "shorten data.max_seq_length, set training.recompute: true, or use a smaller model"
            raise RunFailed(f"{message}: {reason.strip()}", where="runtime.on_oom", hint=hint)
        if args.world_size > 1:
            # The other processes wait for this one's gradients, so this process fails; the parent stops and restarts
            # all.
            found = checkpoints_in(Path(args.output_dir))
            record_division(self.events, checkpoint_step(found[-1]) if found else 0, smaller)
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

    def _maybe_log_save_evaluate(self, tr_loss, model, epoch, ignore_keys_for_eval, **kwargs) -> None:
        self._loss_sum = tr_loss
        super()._maybe_log_save_evaluate(tr_loss, model, epoch, ignore_keys_for_eval, **kwargs)
        if self._nothing_due() and self._stop.due(self.state.global_step):
            if not checkpoint_path(Path(self.args.output_dir), self.state.global_step).exists():
                self._save_checkpoint(model)
                self.control = self.callback_handler.on_save(self.args, self.state, self.control)
            raise KeyboardInterrupt

    def _nothing_due(self) -> bool:
        """Whether log, evaluation and save of this step are done.

        The loop calls this after every step, and again at the end of an epoch or of the training. The epoch's own log,
        evaluation and save are due only at the second call.
        """
        control, state = self.control, self.state
        ends = control.should_training_stop or control.should_epoch_stop or float(state.epoch).is_integer()
        seen, self._ended_step = self._ended_step, state.global_step
        return not ends or seen == state.global_step
