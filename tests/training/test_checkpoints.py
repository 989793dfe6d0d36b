"""Which checkpoints rotation keeps."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.errors import UserError
from nlpctl.files import remove_leftovers
from nlpctl.training.checkpoints import (
    OPTIMIZER,
    SCALER,
    SCHEDULER,
    STATE,
    SavedTrainerState,
    load_training_state,
    rotate_checkpoints,
)


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    for step in (2, 4, 10, 6, 8):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        (folder / "model_state.pdparams").write_text(str(step))
    return tmp_path


@pytest.mark.parametrize(
    ("keep", "best", "kept"),
    [
        (None, None, {2, 4, 6, 8, 10}),
        (0, None, {2, 4, 6, 8, 10}),
        (9, None, {2, 4, 6, 8, 10}),
        (3, None, {6, 8, 10}),
        (3, 2, {2, 8, 10}),
        (3, 8, {6, 8, 10}),
        (2, 4, {4, 10}),
        (1, None, {10}),
        (1, 4, {4, 10}),  # the best and the newest stay, also where one is allowed
        (1, 10, {10}),
    ],
)
def test_best_and_newest_stay(checkpoints, keep, best, kept):
    rotate_checkpoints(checkpoints, keep, None if best is None else f"/moved/since/checkpoint-{best}")
    assert {int(path.name.removeprefix("checkpoint-")) for path in checkpoints.iterdir()} == kept


def test_a_best_that_is_gone_protects_nothing_else(checkpoints):
    rotate_checkpoints(checkpoints, 2, "/elsewhere/checkpoint-3")
    assert {path.name for path in checkpoints.iterdir()} == {"checkpoint-8", "checkpoint-10"}


def test_what_was_moved_aside_counts_and_goes_first(checkpoints):
    (checkpoints / "damaged-checkpoint-8").mkdir()
    rotate_checkpoints(checkpoints, 6, None)
    assert (checkpoints / "damaged-checkpoint-8").is_dir()
    rotate_checkpoints(checkpoints, 5, None)
    assert {path.name for path in checkpoints.iterdir()} == {f"checkpoint-{step}" for step in (2, 4, 6, 8, 10)}


def test_other_names_are_left_alone(checkpoints):
    (checkpoints / "checkpoint-mine").mkdir()
    rotate_checkpoints(checkpoints, 1, None)
    assert {path.name for path in checkpoints.iterdir()} == {"checkpoint-10", "checkpoint-mine"}


def test_killed_while_deleting(checkpoints, monkeypatch):
    """What is left of a deleted checkpoint is cleaned away, and its files do not reappear."""

    def killed(folder, **_):
        (folder / "more.txt").write_text("")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            rotate_checkpoints(checkpoints, 4, None)
    assert not (checkpoints / "checkpoint-2").exists() and len(list(checkpoints.iterdir())) == 5
    remove_leftovers(checkpoints)
    assert {path.name for path in checkpoints.iterdir()} == {f"checkpoint-{step}" for step in (4, 6, 8, 10)}


def test_a_checkpoint_without_optimizer_state_cannot_be_resumed(checkpoints):
    with pytest.raises(UserError, match="(?s)checkpoint-10: .*ignore_save_lr_and_optim.*--overwrite"):
        load_training_state(checkpoints / "checkpoint-10", None, None, None)


def test_files_are_called_as_paddlenlp_calls_them() -> None:
    from paddlenlp.trainer import trainer

    names = trainer.TRAINER_STATE_NAME, trainer.OPTIMIZER_NAME, trainer.SCHEDULER_NAME, trainer.SCALER_NAME
    assert (STATE, OPTIMIZER, SCHEDULER, SCALER) == names


def test_a_state_is_read_once_until_it_changes(tmp_path: Path) -> None:
    (tmp_path / STATE).write_text('{"global_step": 3}')
    read = SavedTrainerState.of(tmp_path)
    assert SavedTrainerState.of(tmp_path) is read
    (tmp_path / STATE).write_text('{"global_step": 12}')
    assert SavedTrainerState.of(tmp_path).global_step == 12
