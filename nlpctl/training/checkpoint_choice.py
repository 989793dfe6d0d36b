"""Checksums of checkpoints, and the choice of the checkpoint to resume from. Imports no Paddle.

    checkpoint-N/checksums.json    {"model_state.pdparams": {"size": 123, "sha256": "..."}, ...}
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from nlpctl import console
from nlpctl.checksums import damage_of_file, sha256_of
from nlpctl.documents import Count, DamagedDocument, Document, whole_content
from nlpctl.errors import Problem, UserError
from nlpctl.files import remove_dir
from nlpctl.formats.safe_pickle import load_pdparams, load_state
from nlpctl.layout import checkpoints_in, link_out, real_path
from nlpctl.models.source import WEIGHTS
from nlpctl.runtime.run_directory import RunDirectory

SUMS = "checksums.json"
STATE = "trainer_state.json"  # PaddleNLP's name
_PICKLED = ("*.pdparams", "*.pdopt")
_TOGETHER = ("optimizer.pdopt", "scheduler.pdparams")  # both exist, or neither (training.ignore_save_lr_and_optim)
_ASIDE = "damaged-"


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

    REPAIR: ClassVar[str] = "train again with @[overwrite=true]"
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
        return cls.load(checkpoint / STATE)


def write_sums(folder: Path) -> None:
    """Write size and SHA-256 of every file in `folder`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    sums = {path.relative_to(folder).as_posix(): FileSum(path.stat().st_size, sha256_of(path)) for path in files}
    CheckpointSums(sums).save(folder / SUMS)


def set_damaged_aside(run: RunDirectory, *, keeps_best: bool) -> None:
    """Move damaged newest checkpoints aside, with a warning, so that `run.last_checkpoint()` is intact.

    The holder of the run directory calls this once, before any process of a resumed run looks for its checkpoint.
    `keeps_best`: the best checkpoint so far, named in the newest, will become the model, so it must be intact too.
    UserError: there are checkpoints, and none is intact; then nothing is moved.
    """
    damaged: list[tuple[Path, str]] = []
    for checkpoint in reversed(checkpoints_in(run.checkpoints)):
        damage = damage_of(checkpoint) or (_damage_of_best(checkpoint) if keeps_best else None)
        if damage is None:
            break
        damaged.append((checkpoint, damage))
    else:
        if damaged:
            raise _nothing_whole(run, damaged)
        return
    for path, damage in damaged:
        aside = path.with_name(f"{_ASIDE}{path.name}")
        console.warn(f"{path} is damaged: {damage}; moved to {aside.name}; the run continues from {checkpoint.name}")
        remove_dir(aside)
        os.replace(path, aside)


def moved_aside(checkpoints: Path) -> list[Path]:
    """The damaged checkpoints that `set_damaged_aside` has moved aside."""
    return sorted(path for path in checkpoints.glob(f"{_ASIDE}*") if path.is_dir())


def damage_of(checkpoint: Path) -> str | None:
    """The first damage found in the files of a checkpoint; None if it is intact.

    A checkpoint of an older version, without checksums, is intact if it can be loaded. UserError: a link leads out of
    the run to a file without a checksum, which may be any.
    """
    try:
        if not (checkpoint / SUMS).exists():
            _refuse_link_out(checkpoint)
            return _loading(checkpoint)
        return _differing(checkpoint)
    except OSError as error:
        return f"{Path(error.filename or checkpoint).name} cannot be read ({error.strerror or error})"


def _differing(checkpoint: Path) -> str | None:
    try:
        sums = CheckpointSums.load(checkpoint / SUMS).files
    except DamagedDocument as error:
        return f"{SUMS} {error.problems[0].message}"
    _refuse_link_out(checkpoint, sums)
    for name, expected in sums.items():
        if (damage := damage_of_file(checkpoint / name, expected.size, expected.sha256)) is not None:
            return f"{name} {damage}"
    return None


def _refuse_link_out(checkpoint: Path, sums: Collection[str] = ()) -> None:
    """UserError if a file that has no checksum is a link out of the run. A large file may be moved and linked."""
    if (link := link_out(checkpoint, sums)) is not None:
        hint = f"put the file itself in its place, if you trust it: {real_path(link)}"
        raise UserError("is a link out of the run, to a file without a checksum", str(link), hint)


def _loading(checkpoint: Path) -> str | None:
    needed = [WEIGHTS, STATE]
    if any((checkpoint / name).exists() for name in _TOGETHER):
        needed += _TOGETHER
    for name in needed:
        if not (checkpoint / name).is_file():
            return f"{name} is missing"
    for file in sorted(path for pattern in _PICKLED for path in checkpoint.glob(pattern)):
        try:
            (load_pdparams if file.name == WEIGHTS else load_state)(file)
        except UserError as error:
            return f"{file.name} {error.problems[0].message}"
    try:
        SavedTrainerState.of(checkpoint)
    except DamagedDocument as error:
        return f"{STATE} {error.problems[0].message}"
    return None


def _damage_of_best(checkpoint: Path) -> str | None:
    """The damage of the best checkpoint at the time of this intact one; None if there is none."""
    state = SavedTrainerState.load_if_valid(checkpoint / STATE)
    name = None if state is None else state.best_model_checkpoint
    best = checkpoint if name is None else checkpoint.with_name(Path(name).name)
    if best == checkpoint:
        return None
    damage = damage_of(best)
    return None if damage is None else f"{best.name}, the best checkpoint so far: {damage}"


def _nothing_whole(run: RunDirectory, damaged: list[tuple[Path, str]]) -> UserError:
    again = "train again with @[overwrite=true]"
    if run.is_of_compress:
        again = f"delete {run.path}, then run {run.to_go_on()}"
    problems = [Problem(f"is damaged: {damage}", str(path)) for path, damage in damaged]
    return UserError(problems=[*problems, Problem("no checkpoint is intact to resume from", str(run.path), again)])
