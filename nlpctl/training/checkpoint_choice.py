"""Checksums of checkpoints, and the choice of the checkpoint to resume from. Imports no Paddle.

    checkpoint-N/checksums.json    {"model_state.pdparams": {"size": 123, "sha256": "..."}, ...}
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.checksums import damage_of_file, sha256_of
from nlpctl.errors import Problem, UserError
from nlpctl.files import json_of, remove_dir, write_json_atomic
from nlpctl.formats.safe_pickle import load_pdparams, load_state
from nlpctl.layout import checkpoints_in, link_out, real_path
from nlpctl.models.source import WEIGHTS
from nlpctl.runtime.run_directory import RunDirectory

SUMS = "checksums.json"
STATE = "trainer_state.json"  # PaddleNLP's name
_PICKLED = ("*.pdparams", "*.pdopt")
_TOGETHER = ("optimizer.pdopt", "scheduler.pdparams")  # both exist, or neither (training.ignore_save_lr_and_optim)
_ASIDE = "damaged-"


def write_sums(folder: Path) -> None:
    """Write size and SHA-256 of every file in `folder`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    sums = {
        path.relative_to(folder).as_posix(): {"size": path.stat().st_size, "sha256": sha256_of(path)} for path in files
    }
    write_json_atomic(folder / SUMS, sums)


def settle_checkpoints(run: RunDirectory, *, keeps_best: bool) -> None:
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
    """The damaged checkpoints that `settle_checkpoints` has moved aside."""
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
        sums = json_of(checkpoint / SUMS)
        expected = [(name, int(entry["size"]), str(entry["sha256"])) for name, entry in sums.items()]
        sums[WEIGHTS]
    except (ValueError, TypeError, KeyError, AttributeError):
        return f"{SUMS} has an unknown structure"
    _refuse_link_out(checkpoint, sums)
    for name, size, digest in expected:
        if (damage := damage_of_file(checkpoint / name, size, digest)) is not None:
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
    return None if isinstance(_state(checkpoint).get("global_step"), int) else f"{STATE} has an unknown structure"


def _damage_of_best(checkpoint: Path) -> str | None:
    """The damage of the best checkpoint at the time of this intact one; None if there is none."""
    name = _state(checkpoint).get("best_model_checkpoint")
    best = checkpoint if name is None else checkpoint.with_name(Path(name).name)
    if best == checkpoint:
        return None
    damage = damage_of(best)
    return None if damage is None else f"{best.name}, the best checkpoint so far: {damage}"


def _state(checkpoint: Path) -> dict[str, Any]:
    """The trainer state as JSON; {} if it is not valid."""
    try:
        state = json_of(checkpoint / STATE)
    except ValueError:
        return {}
    return state if isinstance(state, dict) else {}


def _nothing_whole(run: RunDirectory, damaged: list[tuple[Path, str]]) -> UserError:
    again = f"delete {run.path}, then run {run.to_go_on()}" if run.is_of_compress else "train again with --overwrite"
    told = [Problem(f"is damaged: {damage}", str(path)) for path, damage in damaged]
    return UserError(problems=[*told, Problem("no checkpoint is intact to resume from", str(run.path), again)])
