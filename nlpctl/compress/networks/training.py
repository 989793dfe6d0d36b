"""The trainings of a compression: ordinary runs that start from a trained network.

    run = RunDirectory(.../networks/NAME)
    recipe.yaml manifest.json events.jsonl checkpoints/ model/ metrics.json mistakes.json   as of any run
    start/    the model folder that the network started from, once it was made

A killed training resumes from its last checkpoint; a finished one is not repeated.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import paddle

from nlpctl.config.schema import ModelSection, Recipe, TrainingKeys
from nlpctl.config.tasks import scores
from nlpctl.data.open_split import has_split
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.training_data import TrainingData, read_training_data
from nlpctl.errors import UserError
from nlpctl.files import remove_dir, staged_dir, staged_file
from nlpctl.formats.safe_pickle import load_pdparams
from nlpctl.models.folder import make_description, save_model_folder
from nlpctl.models.load import LoadedModel
from nlpctl.models.model_manifest import changing
from nlpctl.models.source import WEIGHTS
from nlpctl.runtime.process import ProcessSetup
from nlpctl.runtime.run_directory import OF_COMPRESS, RunDirectory
from nlpctl.tasks.base import Task, task_class
from nlpctl.training.checkpoints import set_damaged_aside
from nlpctl.training.prepare import prepare_training
from nlpctl.training.run_setup import TrainOptions, begin_run
from nlpctl.training.train import train_and_score
from nlpctl.training.trainer import TrainingLoss
from nlpctl.upstream.parameter_names import fresh_parameter_names

START = "start"


def network_recipe(recipe: Recipe, run: RunDirectory, model: str, labels: tuple[str, ...]) -> Recipe:
    """`recipe` for a training in `run` that starts from the model folder `model`, trained on `labels`.

    Section model and data.tag_map were already applied to the source, so only the kind of head stays. If there is dev
    data, the best checkpoint on dev is kept, even if the recipe does not ask for it. Of the user's own parts, the loss
    stays.
    """
    keep = recipe.training.save_total_limit or 1
    training = replace(without_user_code(recipe.training), output_dir=str(run.path), save_total_limit=keep)
    if has_split(recipe.data, "dev"):
        if not training.load_best_model_at_end:
            training = replace(
                training, evaluation_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True
            )
        if (training.metric_for_best_model or "").removeprefix("eval_") not in (*scores(recipe.task), "loss"):
            training = replace(training, metric_for_best_model=scores(recipe.task)[0], greater_is_better=None)
    return replace(
        recipe,
        model=ModelSection(name_or_path=model, head=recipe.model.head),
        data=replace(recipe.data, labels=labels or recipe.data.labels, tag_map={}),
        training=training,
    )


def without_user_code(training: Any) -> Any:
    """Section training without the user's own parts but their loss: the others are of the source's own training."""
    kept = ("criterion", "fast_cpu")
    own = {field.name: field.default for field in fields(TrainingKeys) if field.name not in kept}
    return replace(training, **own)


def read_data(recipe: Recipe, source: LoadedModel) -> TrainingData:
    """The rows of `recipe`, with the labels that `source` was trained on. UserError: no training rows, or bad ones."""
    if not recipe.data.train and recipe.data.dataset is None:
        hint = "use the run instead of its model folder, or the recipe that it was trained with"
        raise UserError("no training data: this strategy trains a network", recipe.where("data.train"), hint)
    labels = source.labels or None
    return read_training_data(task_rows(recipe.task, replace(recipe.data, labels=labels)))


def load_source(recipe: Recipe, source: str) -> LoadedModel:
    """The trained network to compress, in evaluation mode. UserError: it cannot be loaded."""
    model = task_class(recipe.task).class_for(recipe).load_trained(recipe, source)
    model.network.eval()
    return model


def train_network(
    recipe: Recipe,
    run: RunDirectory,
    setup: ProcessSetup,
    data: TrainingData,
    task: Task,
    start: Callable[[], LoadedModel] | None,
    *,
    loss: TrainingLoss | None = None,
    drop: str | None = None,
) -> Path:
    """Train in `run` by `recipe` (from `network_recipe`), and return the folder of the best model.

    `start` builds the initial network. It is called once, and the network is saved to the folder that
    recipe.model.name_or_path names, where every training, resumed or not, starts. None: start from the recipe's model.
    `loss`: replaces the task's own. `drop`: a layer that the network has only during training. Seeds Paddle's
    generator. UserError, RunFailed and Interrupted as in `nlpctl train`.
    """
    if run.is_finished:
        return run.model
    begin_network(recipe, run, setup, data)
    with run.recorded(), fresh_parameter_names():
        if start is not None:
            with fresh_parameter_names():  # the names in a resumed training, which skips `start`, must be the same
                _write_start(recipe, start)
        paddle.seed(recipe.training.seed)
        set_damaged_aside(run, keeps_best=bool(recipe.training.load_best_model_at_end))
        prepared = prepare_training(recipe, setup, task, data, own_loss=loss is None)
        finish = None if drop is None else functools.partial(drop_parameters, layer=drop)
        train_and_score(prepared, run, from_checkpoint=True, loss=loss, finish=finish)
    remove_dir(run.checkpoints)  # no command goes on with this network
    return run.model


def begin_network(recipe: Recipe, run: RunDirectory, setup: ProcessSetup, data: TrainingData) -> None:
    """Create or resume `run` for a network of this command; only this command can resume it. UserError as in
    `RunDirectory.begin`."""
    facts = {**OF_COMPRESS, "device": setup.device, "processes": setup.world_size}
    begin_run(recipe, run, TrainOptions(resume=run.manifest_file.exists()), facts, data)


def drop_parameters(folder: Path, layer: str) -> None:
    """Remove the parameters of `layer` from the weights of a model folder."""
    file = folder / WEIGHTS
    weights = load_pdparams(file)
    kept = {name: paddle.to_tensor(array) for name, array in weights.items() if not name.startswith(f"{layer}.")}
    if len(kept) < len(weights):
        stream = io.BytesIO()
        paddle.save(kept, stream)
        with changing(folder, WEIGHTS), staged_file(file) as staged:
            staged.write(stream.getvalue())


def _write_start(recipe: Recipe, start: Callable[[], LoadedModel]) -> None:
    assert recipe.model.name_or_path is not None, "network_recipe sets it"
    folder = Path(recipe.model.name_or_path)
    if folder.is_dir():
        return
    model = start()
    description = make_description(recipe, model.labels, model.thresholds)
    with staged_dir(folder) as staged:
        save_model_folder(staged, model.network, model.tokenizer, description)
