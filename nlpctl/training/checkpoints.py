"""Checkpoints: complete or absent, rotated, and sufficient for a bit-exact resume; the best becomes the model.

A checkpoint is a model folder (any command accepts it) plus optimizer, scheduler and trainer state,
under the file names that PaddleNLP's Trainer reads.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import paddle
from paddlenlp.trainer.trainer import OPTIMIZER_NAME, SCALER_NAME, SCHEDULER_NAME, TRAINER_STATE_NAME
from paddlenlp.trainer.trainer_callback import TrainerState

from nlpctl import console
from nlpctl.config.schema import Recipe
from nlpctl.documents import Document
from nlpctl.errors import RunFailed, UserError
from nlpctl.files import remove_dir, staged_dir
from nlpctl.formats.safe_pickle import load_pdparams, load_state
from nlpctl.layout import MANIFEST, checkpoint_path, checkpoint_step, checkpoints_in
from nlpctl.models.folder import ModelCard, save_model_folder
from nlpctl.models.load import LoadedModel
from nlpctl.models.model_manifest import write_model_sums
from nlpctl.models.source import WEIGHTS
from nlpctl.runtime.event_log import EventLog
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.training.checkpoint_choice import SUMS, SavedTrainerState, damage_of, moved_aside, write_sums

MASTER_WEIGHTS = "master_weights"  # in the state of an optimizer of half precision: fp32 copies by parameter

_AGAIN = "train again with @[overwrite=true]"
UNLOGGED, REACHED = "unlogged_loss.json", "reached_parameters.json"

# The files of a checkpoint besides the model folder.
TRAINING_STATE_FILES = frozenset(
    {OPTIMIZER_NAME, SCHEDULER_NAME, SCALER_NAME, TRAINER_STATE_NAME, UNLOGGED, REACHED, SUMS}
)


@dataclass(frozen=True)
class UnloggedLoss(Document):
    """unlogged_loss.json of a checkpoint: the losses of the steps since the last line of the log, their `sum`, and the
    `step` of that line."""

    REPAIR: ClassVar[str] = _AGAIN

    sum: float
    step: int


@dataclass(frozen=True)
class ReachedParameters(Document):
    """reached_parameters.json of a checkpoint: the `names` of the parameters that had a gradient so far."""

    REPAIR: ClassVar[str] = _AGAIN

    names: tuple[str, ...]


def save_checkpoint(
    checkpoints: Path,
    state: TrainerState,
    model: LoadedModel,
    card: ModelCard,
    optimizer_state: Mapping[str, Any] | None,
    scheduler: paddle.optimizer.lr.LRScheduler | None,
    scaler: paddle.amp.GradScaler | None,
    reached: Collection[str],
    unlogged: UnloggedLoss | None = None,
) -> Path:
    """Write checkpoint-N atomically. `optimizer_state`: of `whole_state`; None leaves the training state out.

    `reached`: the parameters that had a gradient. `unlogged`: None if this step was logged.
    """
    final = checkpoint_path(checkpoints, state.global_step)
    # A killed process leaves a staged folder, never half a checkpoint under its final name.
    with staged_dir(final) as folder:
        save_model_folder(folder, model.network, model.tokenizer, card)
        if optimizer_state is not None and scheduler is not None:
            paddle.save(optimizer_state, str(folder / OPTIMIZER_NAME))
            paddle.save(scheduler.state_dict(), str(folder / SCHEDULER_NAME))
            ReachedParameters(tuple(sorted(reached))).save(folder / REACHED)
        if scaler is not None:
            paddle.save(scaler.state_dict(), str(folder / SCALER_NAME))
        state.save_to_json(str(folder / TRAINER_STATE_NAME))
        if unlogged is not None:
            unlogged.save(folder / UNLOGGED)
        write_sums(folder)
    return final


def whole_state(optimizer: paddle.optimizer.Optimizer, sharded: bool) -> Mapping[str, Any]:
    """The state of the optimizer for every parameter.

    `sharded`: each process holds the state of some parameters (training.sharding), so all of them must call this. The
    result is what an optimizer that is not sharded would give: a checkpoint does not depend on the processes.
    """
    state = optimizer.state_dict()
    if not sharded:
        return state
    parts: list[dict[str, Any]] = []
    paddle.distributed.all_gather_object(parts, _arrays(state))
    whole: dict[str, Any] = {}
    for part in parts:
        weights = {**whole.get(MASTER_WEIGHTS, {}), **part.get(MASTER_WEIGHTS, {})}
        whole |= part | ({MASTER_WEIGHTS: weights} if weights else {})
    return _tensors(whole)


def load_weights(checkpoint: Path, network: paddle.nn.Layer) -> None:
    """Load the checkpoint's weights into `network`; the recipe is the same, so the parameters match."""
    missing, unexpected = network.set_state_dict(load_pdparams(checkpoint / WEIGHTS))
    if missing or unexpected:
        raise UserError(
            f"the checkpoint belongs to another network: {', '.join([*missing, *unexpected][:3])}, ...",
            where=str(checkpoint),
            hint="train again with @[overwrite=true]",
        )


def load_training_state(
    checkpoint: Path,
    optimizer: paddle.optimizer.Optimizer,
    scheduler: paddle.optimizer.lr.LRScheduler,
    scaler: paddle.amp.GradScaler | None,
) -> None:
    """Load the checkpoint's state into optimizer, scheduler and scaler, without executing code in pickled files.

    Raises UserError when the checkpoint was saved without it, or a file is damaged.
    """
    if not (checkpoint / OPTIMIZER_NAME).is_file():
        raise UserError(
            "the checkpoint holds no optimizer state (training.ignore_save_lr_and_optim), so it cannot be resumed",
            where=str(checkpoint),
            hint="train again with @[overwrite=true], or start a new run from it: model.name_or_path",
        )
    optimizer.set_state_dict(_tensors(load_state(checkpoint / OPTIMIZER_NAME)))
    scheduler.set_state_dict(load_state(checkpoint / SCHEDULER_NAME))
    if scaler is not None:
        scaler.load_state_dict(load_state(checkpoint / SCALER_NAME))


def _arrays(state: Mapping[str, Any]) -> dict[str, Any]:
    """The reverse of `_tensors`."""
    arrays: dict[str, Any] = {}
    for name, value in state.items():
        if isinstance(value, paddle.Tensor):
            arrays[name] = value.numpy()
        else:
            arrays[name] = _arrays(value) if name == MASTER_WEIGHTS else value
    return arrays


def _tensors(state: dict[str, Any]) -> dict[str, Any]:
    """The arrays of a state as tensors; master weights, a nested dict, keep their names."""
    tensors: dict[str, Any] = {}
    for name, value in state.items():
        if isinstance(value, np.ndarray):
            tensors[name] = paddle.to_tensor(value)
        elif name == MASTER_WEIGHTS:
            tensors[name] = _tensors(value)
        else:
            tensors[name] = value
    return tensors


def read_state(checkpoint: Path) -> TrainerState:
    """The trainer state of a checkpoint: step, epoch, log of losses and evaluations, best so far."""
    return TrainerState(**SavedTrainerState.of(checkpoint).to_json())


def read_unlogged(checkpoint: Path) -> UnloggedLoss | None:
    """What `save_checkpoint` was given; None also for a checkpoint of an older release."""
    return UnloggedLoss.load_if_exists(checkpoint / UNLOGGED)


def read_reached(checkpoint: Path) -> set[str]:
    """The parameters that had a gradient before; none for a checkpoint of an older release, which did not keep them."""
    reached = ReachedParameters.load_if_exists(checkpoint / REACHED)
    return set() if reached is None else set(reached.names)


def rotate_checkpoints(checkpoints: Path, keep: int | None, best: str | None) -> None:
    """Delete checkpoints beyond `keep`, the damaged ones that were moved aside first, then the oldest.

    The best and the newest always stay. The Trainer's own rotation never runs on one process; see nlpctl/upstream and
    docs/upstream.md.
    """
    if keep is None or keep <= 0:
        return
    complete = checkpoints_in(checkpoints)
    # The newest is what a resume needs, the best is what becomes the model.
    protected = {complete[-1].name} | ({Path(best).name} if best is not None else set())
    aside = moved_aside(checkpoints)
    surplus = len(aside) + len(complete) - max(keep, len(protected))
    for path in [*aside, *(path for path in complete if path.name not in protected)][: max(surplus, 0)]:
        remove_dir(path)


def record_save(log: EventLog, state: TrainerState) -> None:
    """Write to events.jsonl that the checkpoint of `state` is there."""
    best = state.best_model_checkpoint
    name = checkpoint_path(Path(), state.global_step).name
    log.append("save", state.global_step, checkpoint=name, best=best and Path(best).name)


def go_on_recording(log: EventLog, state: TrainerState | None) -> None:
    """Restore events.jsonl to the time when the checkpoint of `state` (None: no checkpoint) was saved."""
    log.forget_after(state.global_step if state is not None else 0)
    if state is not None and not log.has("save", state.global_step):
        record_save(log, state)  # killed between saving the checkpoint and logging it


def keep_best_model(
    recipe: Recipe, run: RunDirectory, model: LoadedModel, card: ModelCard, state: TrainerState
) -> None:
    """Write run.model: the files of the best checkpoint if one was chosen, otherwise the current network."""
    best = state.best_model_checkpoint if recipe.training.load_best_model_at_end else None
    with staged_dir(run.model) as folder:
        if best is None:
            console.note(f"kept: the model of the last step, {state.global_step:,}")
            save_model_folder(folder, model.network, model.tokenizer, card)
            return
        checkpoint = run.checkpoints / Path(best).name
        metric = (recipe.training.metric_for_best_model or "loss").removeprefix("eval_")
        score = f"the best by {metric} on dev ({state.best_metric:.4f})"
        console.note(f"kept: the model of step {checkpoint_step(checkpoint):,}, {score}")
        if damage := damage_of(checkpoint):
            hint = f"run {run.to_go_on()} to continue from a checkpoint before it"
            raise RunFailed(f"the best checkpoint is damaged: {damage}", where=str(checkpoint), hint=hint)
        for file in checkpoint.iterdir():
            # The model folder is a checkpoint without what only a resume needs.
            if file.name not in TRAINING_STATE_FILES:
                shutil.copyfile(file, folder / file.name)
        if not (folder / MANIFEST).is_file():  # checkpoints of older versions have none
            write_model_sums(folder)
