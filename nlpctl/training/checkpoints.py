"""Checkpoints: written whole or not at all, rotated, checked before a resume, loaded; the best becomes the model.

    save_checkpoint      checkpoint-N: a model folder (any command accepts it) and the state of the training, under the
                         file names that PaddleNLP's Trainer reads; checksums.json is written last
    rotate_checkpoints   keeps as many as training.save_total_limit says
    set_damaged_aside    before a resume: the newest checkpoint that is intact is the one to go on from
    load_weights, load_training_state, read_state, ...   what a resumed training takes from it, to the same bits
    keep_best_model      at the end

Imports no Paddle but in what writes and loads: the parent of several processes, which checks, must stay without.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nlpctl import console
from nlpctl.checksums import damage_of_file, sha256_of
from nlpctl.config.schema import Recipe
from nlpctl.documents import Count, DamagedDocument, Document, MissingDocument, whole_content
from nlpctl.errors import Problem, RunFailed, UserError
from nlpctl.files import remove_dir, staged_dir
from nlpctl.formats.safe_pickle import load_pdparams, load_state
from nlpctl.layout import (
    DAMAGED,
    checkpoint_path,
    checkpoint_step,
    checkpoints_in,
    link_out,
    moved_aside,
    real_path,
)
from nlpctl.models.source import WEIGHTS
from nlpctl.runtime.event_log import EventLog
from nlpctl.runtime.run_directory import RunDirectory

if TYPE_CHECKING:
    import paddle
    from paddlenlp.trainer.trainer_callback import TrainerState

    from nlpctl.models.folder import ModelDescription
    from nlpctl.models.load import LoadedModel

# The files of a checkpoint besides the model folder. The first four names are PaddleNLP's.
STATE, OPTIMIZER, SCHEDULER, SCALER = "trainer_state.json", "optimizer.pdopt", "scheduler.pdparams", "scaler.pdparams"
UNLOGGED, REACHED = "unlogged_loss.json", "reached_parameters.json"
SUMS = "checksums.json"
TRAINING_STATE_FILES = frozenset({STATE, OPTIMIZER, SCHEDULER, SCALER, UNLOGGED, REACHED, SUMS})
MASTER_WEIGHTS = "master_weights"  # in the state of an optimizer of half precision: fp32 copies by parameter

_AGAIN = "train again with @[overwrite=true]"


# -- the documents of a checkpoint ------------------------------------------------------------------


@dataclass(frozen=True)
class FileSum:
    """Size in bytes and SHA-256 of a file."""

    size: Count
    sha256: str


@dataclass(frozen=True)
class CheckpointSums(Document):
    """checksums.json: size and SHA-256 of every other file of a checkpoint, by path; written last, read by --resume."""

    files: Mapping[str, FileSum] = whole_content()

    def __post_init__(self) -> None:
        if WEIGHTS not in self.files:
            raise ValueError(f"does not list {WEIGHTS}")


@dataclass(frozen=True)
class SavedTrainerState(Document):
    """trainer_state.json, PaddleNLP's name for where a training stands: written with a checkpoint by its TrainerState,
    whose entries these are, and read when the training goes on.

    `global_step`, `max_steps`: updates done, and planned; `log_history`: an entry per log and evaluation, oldest first;
    `best_metric`, `best_model_checkpoint`: of the best evaluation so far.
    """

    REPAIR: ClassVar[str] = _AGAIN
    LARGEST: ClassVar[int] = 256 << 20  # some 270 bytes a log entry: a million entries

    global_step: Count
    epoch: float | None = None
    max_steps: int = 0
    num_train_epochs: int | float = 0  # not made a float: it is written again as it was read
    total_flos: int | float = 0
    log_history: tuple[Mapping[str, Any], ...] = ()
    best_metric: int | float | None = None
    best_model_checkpoint: str | None = None
    is_local_process_zero: bool = True
    is_world_process_zero: bool = True
    trial_name: str | None = None
    trial_params: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        scores = ((name, value) for entry in self.log_history for name, value in entry.items() if name[:5] == "eval_")
        for name, value in scores:
            if value is not None and not isinstance(value, int | float):
                raise ValueError(f"log_history holds a score that is no number ({name[:40]})")

    @classmethod
    def of(cls, checkpoint: Path) -> SavedTrainerState:
        """That of a checkpoint. DamagedDocument: it cannot be read."""
        file = checkpoint / STATE
        try:
            status = file.stat()
        except OSError:
            return cls.load(file)  # which says what is wrong
        return _read_once(file, status.st_ino, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=1)
def _read_once(file: Path, *version: int) -> SavedTrainerState:
    """A long log takes a second to read, and a resume asks for it while it checks, restores and begins."""
    return SavedTrainerState.load(file)


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


# -- writing ----------------------------------------------------------------------------------------


def save_checkpoint(
    checkpoints: Path,
    state: TrainerState,
    model: LoadedModel,
    description: ModelDescription,
    optimizer_state: Mapping[str, Any] | None,
    scheduler: paddle.optimizer.lr.LRScheduler | None,
    scaler: paddle.amp.GradScaler | None,
    reached: Collection[str],
    unlogged: UnloggedLoss | None = None,
) -> Path:
    """Write checkpoint-N atomically. `optimizer_state`: of `whole_state`; None leaves the training state out.

    `reached`: the parameters that had a gradient. `unlogged`: None if this step was logged.
    """
    import paddle

    from nlpctl.models.folder import save_model_folder

    final = checkpoint_path(checkpoints, state.global_step)
    # A killed process leaves a staged folder, never half a checkpoint under its final name.
    with staged_dir(final) as folder:
        save_model_folder(folder, model.network, model.tokenizer, description)
        if optimizer_state is not None and scheduler is not None:
            paddle.save(optimizer_state, str(folder / OPTIMIZER))
            paddle.save(scheduler.state_dict(), str(folder / SCHEDULER))
            ReachedParameters(tuple(sorted(reached))).save(folder / REACHED)
        if scaler is not None:
            paddle.save(scaler.state_dict(), str(folder / SCALER))
        state.save_to_json(str(folder / STATE))
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
    import paddle

    parts: list[dict[str, Any]] = []
    paddle.distributed.all_gather_object(parts, _arrays(state))
    whole: dict[str, Any] = {}
    for part in parts:
        weights = {**whole.get(MASTER_WEIGHTS, {}), **part.get(MASTER_WEIGHTS, {})}
        whole |= part | ({MASTER_WEIGHTS: weights} if weights else {})
    return _tensors(whole)


def write_sums(folder: Path) -> None:
    """Write size and SHA-256 of every file in `folder`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    sums = {path.relative_to(folder).as_posix(): FileSum(path.stat().st_size, sha256_of(path)) for path in files}
    CheckpointSums(sums).save(folder / SUMS)


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


# -- checking, before a resume ----------------------------------------------------------------------


def set_damaged_aside(run: RunDirectory, *, keeps_best: bool) -> None:
    """Move damaged newest checkpoints aside, with a warning, so that `run.last_checkpoint()` is intact.

    The holder of the run directory calls this once, before any process of a resumed run looks for its checkpoint.
    `keeps_best`: the best checkpoint so far, named in the newest, will become the model, so it must be intact too.
    UserError: there are checkpoints, and none is intact; then nothing is moved.
    """
    damaged: list[tuple[Path, str]] = []
    for checkpoint in reversed(checkpoints_in(run.checkpoints)):
        damage = damage_of(checkpoint)
        if damage is None and not (checkpoint / STATE).is_file():
            damage = "it is a model alone, the best of the run that this one continues"
        if damage is None and keeps_best:
            damage = _damage_of_best(checkpoint)
        if damage is None:
            break
        damaged.append((checkpoint, damage))
    else:
        if damaged:
            raise _nothing_whole(run, damaged)
        return
    for path, damage in damaged:
        aside = path.with_name(f"{DAMAGED}{path.name}")
        console.warn(f"{path} is damaged: {damage}; moved to {aside.name}; the run continues from {checkpoint.name}")
        remove_dir(aside)
        os.replace(path, aside)


def damage_of(checkpoint: Path) -> str | None:
    """The first damage found in the files of a checkpoint; None if it is intact.

    UserError: a link leads out of the run to a file without a checksum, which may be any.
    """
    try:
        sums = CheckpointSums.load(checkpoint / SUMS).files
    except MissingDocument:
        return f"{SUMS} is missing"
    except DamagedDocument as error:
        return f"{SUMS} {error.problems[0].message}"
    _refuse_link_out(checkpoint, sums)
    for name, expected in sums.items():
        try:
            damage = damage_of_file(checkpoint / name, expected.size, expected.sha256)
        except OSError as error:
            damage = f"cannot be read ({error.strerror or error})"
        if damage is not None:
            return f"{name} {damage}"
    return None


def _refuse_link_out(checkpoint: Path, sums: Collection[str]) -> None:
    """UserError if a file that has no checksum is a link out of the run. A large file may be moved and linked."""
    if (link := link_out(checkpoint, sums)) is not None:
        hint = f"put the file itself in its place, if you trust it: {real_path(link)}"
        raise UserError("is a link out of the run, to a file without a checksum", str(link), hint)


def _damage_of_best(checkpoint: Path) -> str | None:
    """The damage of the best checkpoint at the time of this intact one; None if there is none."""
    try:
        name = SavedTrainerState.of(checkpoint).best_model_checkpoint
    except UserError:
        name = None
    best = checkpoint if name is None else checkpoint.with_name(Path(name).name)
    if best == checkpoint:
        return None
    damage = damage_of(best)
    return None if damage is None else f"{best.name}, the best checkpoint so far: {damage}"


def _nothing_whole(run: RunDirectory, damaged: list[tuple[Path, str]]) -> UserError:
    again = _AGAIN
    if run.is_of_compress:
        again = f"delete {run.path}, then run {run.to_go_on()}"
    problems = [Problem(f"is damaged: {damage}", str(path)) for path, damage in damaged]
    return UserError(problems=[*problems, Problem("no checkpoint is intact to resume from", str(run.path), again)])


# -- loading ----------------------------------------------------------------------------------------


def load_weights(checkpoint: Path, network: paddle.nn.Layer) -> None:
    """Load the checkpoint's weights into `network`; the recipe is the same, so the parameters match."""
    missing, unexpected = network.set_state_dict(load_pdparams(checkpoint / WEIGHTS))
    if missing or unexpected:
        raise UserError(
            f"the checkpoint belongs to another network: {', '.join([*missing, *unexpected][:3])}, ...",
            where=str(checkpoint),
            hint=_AGAIN,
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
    if not (checkpoint / OPTIMIZER).is_file():
        raise UserError(
            "the checkpoint holds no optimizer state (training.ignore_save_lr_and_optim), so it cannot be resumed",
            where=str(checkpoint),
            hint="train again with @[overwrite=true], or start a new run from it: model.name_or_path",
        )
    optimizer.set_state_dict(_tensors(load_state(checkpoint / OPTIMIZER)))
    scheduler.set_state_dict(load_state(checkpoint / SCHEDULER))
    if scaler is not None:
        scaler.load_state_dict(load_state(checkpoint / SCALER))


def _arrays(state: Mapping[str, Any]) -> dict[str, Any]:
    """The reverse of `_tensors`."""
    import paddle

    arrays: dict[str, Any] = {}
    for name, value in state.items():
        if isinstance(value, paddle.Tensor):
            arrays[name] = value.numpy()
        else:
            arrays[name] = _arrays(value) if name == MASTER_WEIGHTS else value
    return arrays


def _tensors(state: dict[str, Any]) -> dict[str, Any]:
    """The arrays of a state as tensors; master weights, a nested dict, keep their names."""
    import paddle

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
    from paddlenlp.trainer.trainer_callback import TrainerState

    return TrainerState(**SavedTrainerState.of(checkpoint).to_json())


def read_unlogged(checkpoint: Path) -> UnloggedLoss | None:
    """What `save_checkpoint` was given."""
    return UnloggedLoss.load_if_exists(checkpoint / UNLOGGED)


def read_reached(checkpoint: Path) -> set[str]:
    """The parameters that had a gradient before."""
    return set(ReachedParameters.load(checkpoint / REACHED).names)


# -- the model of the run ---------------------------------------------------------------------------


def keep_best_model(
    recipe: Recipe, run: RunDirectory, model: LoadedModel, description: ModelDescription, state: TrainerState
) -> None:
    """Write run.model: the files of the best checkpoint if one was chosen, otherwise the current network."""
    from nlpctl.models.folder import save_model_folder

    best = state.best_model_checkpoint if recipe.training.load_best_model_at_end else None
    with staged_dir(run.model) as folder:
        if best is None:
            console.note(f"kept: the model of the last step, {state.global_step:,}")
            save_model_folder(folder, model.network, model.tokenizer, description)
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
