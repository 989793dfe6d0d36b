"""`nlpctl train RUN --continue N`: a finished run goes on for more epochs, in a run directory of its own.

The new run takes over the last checkpoint of the finished one (and the best one, if another), with the optimizer, the
count of steps and the log. From then on it is an ordinary run: it is resumed like any other, and needs the finished
run no more. The finished run is only read.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.config.load import Override, load_recipe
from nlpctl.config.recipe_of import recipe_of
from nlpctl.config.schema import Recipe
from nlpctl.errors import UserError
from nlpctl.files import staged_dir, write_text_atomic
from nlpctl.layout import CALIBRATION, checkpoint_step
from nlpctl.models.model_manifest import check_model_sums, parts_of, write_model_sums
from nlpctl.runtime.lock import held
from nlpctl.runtime.run_directory import ContinuedRun, RunDirectory
from nlpctl.spelling import option
from nlpctl.training.checkpoints import OPTIMIZER, SavedTrainerState, damage_of, write_sums
from nlpctl.training.early_stopping import patience_of

FACT = "continues"  # in the manifest of the new run
_NEW = "a new run can start from its model: model.name_or_path"
_TOTAL = re.compile(r"-[\d.]+-(epochs|steps)$")  # at the end of the name of a continued run


@dataclass(frozen=True)
class Finished:
    """A finished run that can go on: its recipe, and its last checkpoint, intact and with optimizer state."""

    run: RunDirectory
    recipe: Recipe
    checkpoint: Path
    best: str | None  # the name of the best checkpoint, where it will be needed

    @property
    def step(self) -> int:
        """Completed steps at the checkpoint."""
        return checkpoint_step(self.checkpoint)

    def fact(self) -> dict[str, Any]:
        """What the new run's manifest says."""
        return {"run": str(self.run.path.resolve()), "step": self.step, "checkpoint": self.checkpoint.name,
                "best": self.best}  # fmt: skip


def began_with(run: RunDirectory, resume: bool, origin: Finished | None) -> Recipe | None:
    """The recipe of what goes on: of `run` on `resume`, or of `origin`; None of a new run."""
    if origin is not None:
        return origin.recipe
    return recipe_of(run.path) if resume and run.recipe_file.exists() else None


def require_finished(run: RunDirectory) -> None:
    """UserError if there is no finished training in the folder."""
    path = run.path
    if run.made_by is not None:
        hint = "to train it further, name it as model.name_or_path of a recipe"
        raise UserError(f"this network was made by `nlpctl {run.made_by}`", where=str(path), hint=hint)
    if not run.manifest_file.is_file():
        hint = "give the run directory of a finished run, or its recipe"
        raise UserError("there is no finished run to continue", where=str(path), hint=hint)
    if not run.is_finished:
        state = run.read_manifest().state
        raise UserError(f"the run is {state}", where=str(path), hint=f"finish it first: {run.to_go_on()}")


def finished_run(run: RunDirectory, recipe: Recipe) -> Finished:
    """The finished `run`, trained by `recipe`. UserError: it cannot go on."""
    checkpoint = _last_checkpoint(run)
    state = SavedTrainerState.of(checkpoint)
    if stops_at(checkpoint, recipe):
        hint = "to train further all the same, start a new run from its model: model.name_or_path"
        step, planned = state.global_step, state.max_steps
        raise UserError(f"early stopping ended the run at step {step} of {planned}", where=str(run.path), hint=hint)
    best = state.best_model_checkpoint if recipe.training.load_best_model_at_end else None
    if best is not None and Path(best).name != checkpoint.name:
        _refuse_damaged_best(run, Path(best).name)
    return Finished(run, recipe, checkpoint, None if best is None else Path(best).name)


def _refuse_damaged(checkpoint: Path) -> None:
    if damage := damage_of(checkpoint):
        raise UserError(f"the checkpoint is damaged: {damage}", where=str(checkpoint), hint=_NEW)


def _refuse_damaged_best(run: RunDirectory, name: str) -> None:
    """The best checkpoint of a finished run may be gone, since model/ has its files."""
    if (run.checkpoints / name).is_dir():
        _refuse_damaged(run.checkpoints / name)
    else:
        check_model_sums(run.model)


def _last_checkpoint(run: RunDirectory) -> Path:
    checkpoint = run.last_checkpoint()
    if checkpoint is None:
        hint = f"it was trained with save_strategy: no, or they were deleted; {_NEW}"
        raise UserError("the run has no checkpoint, so its optimizer is lost", where=str(run.path), hint=hint)
    _refuse_damaged(checkpoint)
    if not (checkpoint / OPTIMIZER).is_file():
        why = "the checkpoint holds no optimizer state (training.ignore_save_lr_and_optim)"
        raise UserError(why, where=str(checkpoint), hint=_NEW)
    return checkpoint


def stops_at(checkpoint: Path, recipe: Recipe) -> bool:
    """Whether early stopping, as `recipe` has it, ends the run at this checkpoint, and would at once again."""
    patience = patience_of(recipe)
    return patience is not None and patience.exhausted(SavedTrainerState.of(checkpoint).log_history)


def take_over(run: RunDirectory) -> bool:
    """Copy checkpoints and log of the run that the begun `run` continues; False if it continues none.

    Does nothing if they were taken over already. UserError: the finished run is gone or has changed.
    """
    fact = run.read_manifest().continues
    if fact is None:
        return False
    last = run.last_checkpoint()
    if last is not None and checkpoint_step(last) >= fact.step:
        copied = last.name == fact.checkpoint
        if not copied or damage_of(last) is None:
            return True
    source = RunDirectory(Path(fact.run))
    console.note(f"continuing {source.path} after step {fact.step:,}")
    with held(source.path, wait=True) if source.path.is_dir() else nullcontext():  # `runs clean` waits for the copies
        _copy(source, run, fact)
    return True


def _copy(source: RunDirectory, run: RunDirectory, fact: ContinuedRun) -> None:
    checkpoint = source.checkpoints / fact.checkpoint
    if damage := damage_of(checkpoint):
        hint = "restore that run, or start a new one from a model: model.name_or_path"
        raise UserError(f"the checkpoint to continue from is damaged: {damage}", where=str(checkpoint), hint=hint)
    if fact.best is not None:
        _refuse_damaged_best(source, fact.best)
    if source.events_file.is_file():
        write_text_atomic(run.events_file, source.events_file.read_text(encoding="utf-8", errors="replace"))
    names = [name for name in (fact.best, fact.checkpoint) if name is not None]
    for name in dict.fromkeys(names):  # the last one comes last: if it is there, everything is
        with staged_dir(run.checkpoints / name) as folder:
            if (source.checkpoints / name).is_dir():
                shutil.copytree(source.checkpoints / name, folder, dirs_exist_ok=True)
            else:
                _copy_model(source.model, folder)


def _copy_model(model: Path, checkpoint: Path) -> None:
    """Copy a finished run's model as its best checkpoint: without calibration. Nothing can go on from it."""
    for file in parts_of(model):
        if file.name != CALIBRATION:
            shutil.copyfile(file, checkpoint / file.name)
    write_model_sums(checkpoint)
    write_sums(checkpoint)


# -- the recipe of the longer run --------------------------------------------------------------------


def run_to_continue(source: str) -> tuple[Finished, Recipe | None]:
    """The finished run that `source` names: a run directory, or a recipe, whose training.output_dir it is.

    With the recipe, if it is one.
    """
    folder = Path(source)
    recipe = None if folder.is_dir() else load_recipe(source, purpose="apply")
    run = RunDirectory(folder if recipe is None else recipe.run_dir)
    require_finished(run)
    return finished_run(run, recipe_of(run.path)), recipe


def overrides_for_more_epochs(recipe: Recipe, run: Path, more: int) -> list[Override]:
    """The changes of the recipe of `run` for `more` epochs; more steps where it counts steps (training.max_steps).

    The folder of the new run is named after the total: outputs/quickstart-13-epochs.
    """
    if more < 1:
        raise UserError(f"{more} is no number of epochs", where="@[continue]", hint="give 1 or more")
    training = recipe.training
    if training.max_steps > 0:
        name, unit, total = "max_steps", "steps", str(training.max_steps + more)
    else:
        name, unit, total = "num_train_epochs", "epochs", f"{training.num_train_epochs + more:.12g}"
    folder = _TOTAL.sub("", os.path.abspath(run)) + f"-{total}-{unit}"
    asked_by = option("continue")
    return [Override(f"training.{name}", total, asked_by), Override("training.output_dir", folder, asked_by)]
