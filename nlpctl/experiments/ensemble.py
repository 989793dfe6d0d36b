"""`nlpctl ensemble`: several trained models as one, whose answers are averaged.

    models of one task, with the same labels and reading -> one network with a vocabulary for all -> a run directory
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpctl import console
from nlpctl.checksums import sha256_of
from nlpctl.config.load import Override, load_recipe
from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import known_tasks, task_info
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.training_data import TrainingData, read_training_data
from nlpctl.errors import UserError
from nlpctl.experiments.series import read_series
from nlpctl.files import staged_dir, write_json_atomic
from nlpctl.inference.named_model import load_model_recipe
from nlpctl.inference.open_model import find_model
from nlpctl.inference.seen_rows import MEMBER_RUNS, warn_of_seen_rows
from nlpctl.layout import is_run, is_series, real_path
from nlpctl.models.folder import ModelDescription, read_trained_description, save_model_folder
from nlpctl.models.source import resolve_source
from nlpctl.names import listed
from nlpctl.runs.report import write_report
from nlpctl.runtime.process import set_up_process
from nlpctl.runtime.run_directory import OF_ENSEMBLE, RunDirectory
from nlpctl.training.run_setup import TrainOptions, begin_run

if TYPE_CHECKING:
    from nlpctl.models.load import LoadedModel

LEAST = 2  # models
_FLAG = "RUN"


@dataclass(frozen=True)
class Ensemble:
    """`run`: a run directory whose model is the ensemble, with its `recipe`. `metrics`: its scores by split."""

    run: RunDirectory
    recipe: Recipe
    members: tuple[str, ...]
    metrics: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        members = list(self.members)
        return {"run": self.run.path, "model": self.run.model, "members": members, "metrics": self.metrics}


@dataclass(frozen=True)
class _Part:
    """A trained model: its name, recipe, folder and description."""

    name: str
    recipe: Recipe
    folder: Path
    description: ModelDescription


def ensemble(
    models: Sequence[str],
    output: Path,
    *,
    overwrite: bool = False,
    command: Sequence[str] = (),
    given: Sequence[Override] = (),
) -> Ensemble:
    """Make one model of `models`, in the run directory `output`, and score it on dev and test.

    `given`: changes of their recipes. A folder of folds or seeds stands for its runs. UserError: a model cannot be
    used, or the models differ in their task, their labels, or how they read texts.
    """
    parts = [_part(name, given) for name in _expanded(models)]
    folders = [part.folder for part in parts]
    twice = next((part.name for i, part in enumerate(parts) if part.folder in folders[:i]), None)
    if twice is not None:
        raise UserError("this model is named twice", twice, "name each model once")
    if len(parts) < LEAST:
        hint = "name more, or a folder of nlpctl train --folds"
        raise UserError("an ensemble needs two models or more", _FLAG, hint)
    replaced = next((part.name for part in parts if real_path(part.folder).is_relative_to(real_path(output))), None)
    if replaced is not None:
        raise UserError("the ensemble would replace one of its models", replaced, "name another folder: @[output]")
    info = task_info(parts[0].recipe.task)
    if info.ensemble_average is None:
        known = ", ".join(task.name for task in known_tasks() if task.ensemble_average is not None)
        raise UserError(f"answers of {info.name} cannot be averaged", _FLAG, f"it is for {known}")
    _refuse_unlike(parts)
    recipe = _recipe(parts, models, output, given)
    run = RunDirectory(recipe.run_dir, "name another folder: @[output]")
    run.check(resume=False, overwrite=overwrite)
    setup = set_up_process(recipe)

    from nlpctl.models.ensemble import join

    data = _data(recipe, parts[0].description)
    loaded = [_load(part) for part in parts]
    names, crf = [part.name for part in parts], recipe.model.head == "crf"
    network, tokenizer = join(loaded, names, info.ensemble_average, crf=crf)
    facts = {**OF_ENSEMBLE, "device": setup.device, "processes": 1, "members": names}
    facts[MEMBER_RUNS] = runs = [str(part.folder.parent) for part in parts if is_run(part.folder.parent)]
    begin_run(recipe, run, TrainOptions(overwrite=overwrite, command=command), facts, data)
    with run.recorded():
        # Thresholds and calibration of a member are not those of the mean, which gets its own where there is dev.
        description = replace(parts[0].description, thresholds=None, calibration=None)
        with staged_dir(run.model) as staged:
            save_model_folder(staged, network, tokenizer, description)
        metrics = _score(run, recipe, data, runs)
        write_json_atomic(run.metrics_file, metrics)
    write_report(run.path)
    return Ensemble(run, recipe, tuple(each.name for each in parts), metrics)


def _expanded(models: Sequence[str]) -> Iterator[str]:
    for name in models:
        folder = Path(name)
        if is_series(folder):
            series = read_series(folder)
            if series.state != "finished":  # a sweep lists its trials at its end
                hint = "the command that made the folder goes on with @[resume=true]; or name the runs to be joined"
                raise UserError("the runs of the folder are not finished", name, hint)
            runs = [folder / run for run in series.runs]
            missing = next((run for run in runs if not is_run(run)), None)
            if missing is not None:
                hint = "the command that made the folder makes it again, with @[resume=true]; "
                hint += "or name the runs that are there"
                raise UserError("this run of the folder is not there", str(missing), hint)
            yield from map(str, runs)
        else:
            yield name


def _part(name: str, given: Sequence[Override]) -> _Part:
    recipe = load_model_recipe(name, given, "apply")
    source = resolve_source(find_model(recipe))
    if source.folder is None or source.kind != "nlpctl":
        hint = "name runs, or model folders of nlpctl"
        raise UserError("this is no model that nlpctl trained, or an export of one", name, hint)
    if recipe.model.network is not None:
        raise UserError("networks of a class of your own cannot be joined", name, "leave this model out")
    return _Part(name, recipe, source.folder, read_trained_description(source.folder))


def _refuse_unlike(parts: Sequence[_Part]) -> None:
    """UserError if the models do not answer the same question in the same terms."""
    first = parts[0]
    for other in parts[1:]:
        if other.description.task != first.description.task:
            message = f"this model is of {other.description.task}, and {first.name} of {first.description.task}"
            raise UserError(message, other.name, "name models of one task")
        if other.description.labels != first.description.labels:
            theirs = listed(first.description.labels)
            message = f"its labels are {listed(other.description.labels)}; those of {first.name} {theirs}"
            raise UserError(message, other.name, "train with the same data.labels, in the same order")
        own, wanted = _values(other.description), _values(first.description)
        unlike = [key for key in wanted if own.get(key) != wanted[key]]
        if unlike:
            key = unlike[0]
            values = f"{own.get(key)!r}, not {wanted[key]!r} as {first.name} has"
            raise UserError(f"its {key} is {values}", other.name, "train models that read and answer alike")


def _values(description: ModelDescription) -> dict[str, Any]:
    """What a description says of reading and answering, by dotted key, and the SHA-256 of the files beside it."""
    sections = description.recipe.items()
    said = {f"{section}.{name}": value for section, values in sections for name, value in values.items()}
    return {**said, **{name: sha256_of(Path(path)) for name, path in description.files.items()}}


def _recipe(parts: Sequence[_Part], models: Sequence[str], output: Path, given: Sequence[Override]) -> Recipe:
    """The recipe of the ensemble: that of all its runs where they are of one series, else of the first one."""
    own = parts[0].recipe
    folder = Path(models[0]) if is_series(Path(models[0])) else parts[0].folder.parent.parent
    if len({part.folder.parent.parent for part in parts}) == 1 and is_series(folder):
        own = load_recipe(folder, given, "apply")
    return replace(own, training=replace(own.training, output_dir=os.path.abspath(output)))


def _data(recipe: Recipe, description: ModelDescription) -> TrainingData | None:
    """The rows that the models are scored on, with their labels; None if the models name no data."""
    if not recipe.data.train and recipe.data.dataset is None and recipe.data.reader is None:
        return None
    return read_training_data(task_rows(recipe.task, recipe.data), LabelSet(description.labels))


def _load(part: _Part) -> LoadedModel:
    from nlpctl.tasks.base import task_class

    return task_class(part.recipe.task).class_for(part.recipe).load_trained(part.recipe, str(part.folder))


def _score(
    run: RunDirectory, recipe: Recipe, data: TrainingData | None, members: Sequence[str]
) -> dict[str, Any]:
    from nlpctl.engines.trained import load_network
    from nlpctl.training.final_scores import score_run

    model = load_network(recipe, str(run.model))
    console.note(f"model {run.model}")
    if data is None:
        return {}
    splits = {"dev": data.dev, "test": data.test}
    warn_of_seen_rows(members, data.rows, {name: each for name, each in splits.items() if each is not None})
    return score_run(run, data, model, recipe.training.per_device_eval_batch_size)
