"""The user's code in a training: imported and checked before any work, and tried on a few rows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import paddle
from paddlenlp.trainer import TrainerCallback, TrainingArguments

from nlpctl import console
from nlpctl.config.schema import Recipe
from nlpctl.config.user_code import (
    describe_error,
    import_code,
    kind_of_code,
    module_file,
    named_code,
    names_of,
    user_code_blamed,
)
from nlpctl.data.batches.collate import Batch, Collator, LoaderFailure, failure_batch, raise_failure
from nlpctl.data.text.encoder import TextEncoder
from nlpctl.data.training_data import TrainingData
from nlpctl.errors import UserError
from nlpctl.models.load import LoadedModel
from nlpctl.models.parameters import trains
from nlpctl.models.user_network import user_layer
from nlpctl.runtime.process import ProcessSetup
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.tasks.base import Task, as_tuple
from nlpctl.training.arguments import training_arguments
from nlpctl.training.batches import training_cut
from nlpctl.training.dev_scores import DevScores, UserMetrics
from nlpctl.training.fast_cpu import fast_cpu
from nlpctl.training.user_loss import CRITERION, Loss, user_loss

OPTIMIZER, SCHEDULER = kind_of_code("training.optimizer"), kind_of_code("training.scheduler")
COLLATOR, CALLBACKS = kind_of_code("training.data_collator"), kind_of_code("training.callbacks")
NETWORK = kind_of_code("model.network")
Collate = Callable[[list[dict[str, Any]]], Any]
_ENTRY = "return a dict of arrays, each with an entry per row, or a tensor of it"  # what a collator is to do
_TRIED = 64  # training rows, of which two are used
_SAMPLE = 64  # dev rows
_STEPS = 100  # that a schedule is tried with, where the recipe gives no number


class UserCollator:
    """From features to a batch, through the user's function; never raises, like `Collator`.

    The function gets a dict for each row: what the task's own collator makes of it, not padded, as lists. Its batch
    must hold the labels, and as many rows as it got.
    """

    def __init__(self, name: str, collate: Collate, inner: Collator, needs: Sequence[str]):
        """`needs`: the entries that a batch must have."""
        self.name, self._collate, self._inner, self._needs = name, collate, inner, tuple(needs)

    def __call__(self, features: Sequence[Any]) -> dict[str, Any]:
        try:
            for feature in features:
                if isinstance(feature, LoaderFailure):
                    return failure_batch(feature)
            return self.collate(features)
        except Exception as error:
            return failure_batch(LoaderFailure.from_exception(error))

    def collate(self, features: Sequence[Any]) -> Batch:
        """The batch. UserError: the function fails, or what it returns is no batch of these rows."""
        rows = [self._row(feature) for feature in features]
        try:
            result = self._collate(rows)
        except Exception as error:
            raise UserError(f"{self.name} failed: {describe_error(error, __file__)}", COLLATOR.key, "fix it") from None
        if not isinstance(result, Mapping):
            raise UserError(f"{self.name} returned {type(result).__name__}, not a dict", COLLATOR.key, _ENTRY)
        missing = [name for name in self._needs if name not in result]
        if missing:
            message = f"{self.name} returned a batch without {', '.join(missing)}"
            raise UserError(message, COLLATOR.key, f"keep it; its rows hold {', '.join(rows[0])}")
        batch = {str(name): _array(value) for name, value in result.items()}
        for name, array in batch.items():
            if array.dtype == object or array.ndim == 0 or len(array) != len(rows):
                wrong = "rows of different lengths" if array.dtype == object else f"shape {list(array.shape)}"
                message = f"{self.name} returned {wrong} as {name} for {len(rows)} rows"
                raise UserError(message, COLLATOR.key, _ENTRY)
        return batch

    def _row(self, feature: Any) -> dict[str, Any]:
        made = self._inner.collate([feature])
        if any(len(array) != 1 for array in made.values()):
            hint = "remove training.data_collator"
            raise UserError("a row of this task becomes several in a batch", COLLATOR.key, hint)
        return {name: array[0].tolist() for name, array in made.items()}


def _array(value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        return np.empty(len(value), dtype=object)
    return array.astype(np.int64) if array.dtype.kind in "iu" else array


@dataclass(frozen=True)
class UserCode:
    """What a recipe names; None or nothing: nlpctl's own is used.

    `criterion`: as Task.loss. `collator`: from the tokenizer to a function of features.
    """

    recipe: Recipe
    criterion: Loss | None = None
    metrics: UserMetrics | None = None
    callbacks: tuple[TrainerCallback, ...] = ()
    make_optimizer: Callable[[Any, TrainingArguments], Any] | None = None
    make_scheduler: Callable[[TrainingArguments, int], Any] | None = None
    make_collator: Callable[[Any], Any] | None = None

    def loss(self, task: Task) -> Loss:
        """The loss (network, outputs, labels) in training and on dev."""
        return self.criterion or task.loss

    def training_loss(self, task: Task) -> Callable[..., paddle.Tensor]:
        """The loss of a training batch, as Task.training_loss."""
        if self.criterion is None:
            return task.training_loss
        criterion = self.criterion

        def loss(network: Any, run: Callable[..., Any], inputs: Mapping[str, Any], labels: Mapping[str, Any]) -> Any:
            return criterion(network, as_tuple(run(**inputs)), labels)

        return loss

    def collator(self, task: Task, encoder: TextEncoder) -> Collator | UserCollator:
        """What makes training batches. UserError: the user's cannot be made."""
        inner = task.collator(encoder, labelled=True)
        name = self.recipe.training.data_collator
        if self.make_collator is None or name is None:
            return inner
        with user_code_blamed(self.recipe):
            made = self.make_collator(encoder.tokenizer)
        if not callable(made):
            raise _returned(name, made, COLLATOR.key, "return the function that makes a batch of a list of features")
        return UserCollator(name, made, inner, () if task.masks_inputs else task.label_names)

    def optimizer(self, network: Any, args: TrainingArguments) -> paddle.optimizer.Optimizer:
        """The user's optimizer. UserError: it cannot be made, or is none."""
        name = self.recipe.training.optimizer
        assert self.make_optimizer is not None and name is not None
        with user_code_blamed(self.recipe):
            made = self.make_optimizer(network, args)
        if not isinstance(made, paddle.optimizer.Optimizer):
            raise _returned(name, made, OPTIMIZER.key, "return an optimizer, such as paddle.optimizer.Momentum(...)")
        return made

    def scheduler(self, args: TrainingArguments, steps: int) -> paddle.optimizer.lr.LRScheduler:
        """The user's schedule. UserError: it cannot be made, or is none."""
        name = self.recipe.training.scheduler
        assert self.make_scheduler is not None and name is not None
        with user_code_blamed(self.recipe):
            made = self.make_scheduler(args, steps)
        if not isinstance(made, paddle.optimizer.lr.LRScheduler):
            hint = "return a schedule, such as paddle.optimizer.lr.PolynomialDecay(...)"
            raise _returned(name, made, SCHEDULER.key, hint)
        return made


def load_user_code(recipe: Recipe, task: Task) -> UserCode:
    """Import what `recipe` names, and say so. UserError: it cannot be imported, or takes other arguments."""
    training = recipe.training
    for kind, name in named_code(recipe):
        file = module_file(name)
        console.note(f"{kind.key}: {name}{'' if file is None else f' ({file})'}")
    return UserCode(
        recipe,
        criterion=None if training.criterion is None else user_loss(CRITERION, training.criterion, task),
        metrics=None if training.compute_metrics is None else UserMetrics(recipe, task),
        callbacks=tuple(_callback(recipe, name) for name in names_of(recipe, CALLBACKS.key)),
        make_optimizer=None if training.optimizer is None else import_code(OPTIMIZER, training.optimizer),
        make_scheduler=None if training.scheduler is None else import_code(SCHEDULER, training.scheduler),
        make_collator=_collator_maker(recipe),
    )


def training_collator(recipe: Recipe, task: Task, encoder: TextEncoder) -> Collator | UserCollator:
    """What makes the training batches of `recipe`, whose other code is not imported. UserError as for all of them."""
    return UserCode(recipe, make_collator=_collator_maker(recipe)).collator(task, encoder)


def _collator_maker(recipe: Recipe) -> Callable[[Any], Any] | None:
    name = recipe.training.data_collator
    return None if name is None else import_code(COLLATOR, name)


def _callback(recipe: Recipe, name: str) -> TrainerCallback:
    make = import_code(CALLBACKS, name)
    with user_code_blamed(recipe):
        made = make()
    if not isinstance(made, TrainerCallback):
        hint = "derive the class from paddlenlp.trainer.TrainerCallback"
        raise _returned(name, made, CALLBACKS.key, hint)
    return made


# -- a trial before the run directory is taken --------------------------------------------------


def try_user_code(code: UserCode, setup: ProcessSetup, task: Task, data: TrainingData, model: LoadedModel,
              encoder: TextEncoder) -> None:  # fmt: skip
    """Use all of it once, so that a mistake shows before a run begins. UserError tells it. Changes no weight."""
    recipe, network = code.recipe, model.network
    if all(kind.key.startswith("data.") for kind, _ in named_code(recipe)):
        return
    was_training = network.training
    network.eval()
    try:
        with user_code_blamed(recipe):
            with fast_cpu(recipe, setup.device, network):
                _try_loss(code, task, data, network, encoder)
            if code.metrics is not None and data.dev is not None:
                _try_metrics(code, task, data.dev, network, encoder)
            if setup.world_size == 1:  # TrainingArguments joins the processes, which is for the run itself to do
                _try_optimizer(code, setup, network)
    finally:
        if was_training:
            network.train()


def _try_loss(code: UserCode, task: Task, data: TrainingData, network: Any, encoder: TextEncoder) -> None:
    features = _shortest_and_longest(task, data, encoder)
    collate = code.collator(task, encoder)
    batch = collate(features)
    raise_failure(batch)
    if code.make_collator is not None and code.recipe.training.dataloader_num_workers:
        _refuse_tensors(code, task, encoder, features)
    if task.masks_inputs:
        batch = task.apply_mask(batch, np.random.default_rng(0))
    tensors = {name: paddle.to_tensor(array) for name, array in batch.items()}
    labels = {name: tensors.pop(name) for name in task.label_names}
    outputs = _outputs(code, network, tensors)
    loss = _loss(code, task, network, outputs, labels)
    if loss.stop_gradient and trains(network):
        hint = "compute it with Paddle's functions from the outputs, not from their .numpy() or .detach()"
        raise UserError("the loss has no gradient", _blamed(code), hint)
    if code.recipe.model.network is not None:
        _try_answers(task, outputs, features)


def _shortest_and_longest(task: Task, data: TrainingData, encoder: TextEncoder) -> list[Any]:
    """Two features of the first rows, for a batch with padding. UserError: nothing can be learned from any of them."""
    examples, cut = islice(data.training_examples(), _TRIED), training_cut(task, data, encoder)
    features = [feature for example in examples for feature in cut(example)]
    if not features:
        message = f"the first {_TRIED} rows give nothing to train with"
        raise UserError(message, "data.train", "look at them: nlpctl data show RECIPE")
    features.sort(key=lambda feature: feature.byte_length)
    return [features[0], features[-1]]


def _outputs(code: UserCode, network: Any, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The outputs of a batch. UserError if the user's batch, or the user's network, does not fit the other."""
    try:
        inspect.signature(user_layer(network).forward).bind(**inputs)
    except TypeError as error:
        message = f"the network does not take the batch ({', '.join(inputs)}): {error}"
        key = COLLATOR.key if code.recipe.model.network is None else NETWORK.key
        raise UserError(message, key, "let its forward take these by name") from None
    return as_tuple(network(**inputs))


def _loss(code: UserCode, task: Task, network: Any, outputs: tuple[Any, ...], labels: Mapping[str, Any]) -> Any:
    if code.criterion is not None or code.recipe.model.network is None:
        return code.loss(task)(network, outputs, labels)
    try:
        return task.loss(network, outputs, labels)
    except Exception as error:
        shapes = ", ".join(str(list(each.shape)) for each in outputs if hasattr(each, "shape"))
        lines = str(error).strip().splitlines() or [type(error).__name__]
        reason = lines[0][:200]  # of many, in Paddle's
        given = shapes or type(outputs[0]).__name__
        message = f"{code.recipe.model.network} gives {given}, which {task.name} cannot read: {reason}"
        raise UserError(message, NETWORK.key, _wanted(task)) from None


def _wanted(task: Task) -> str:
    return f"return what the task's own networks return: {', '.join(task.output_names)}, the first axis for the rows"


def _try_answers(task: Task, outputs: tuple[Any, ...], features: Sequence[Any]) -> None:
    """UserError if the outputs of the user's network are not as the task reads them."""
    try:
        task.predictions(tuple(each.numpy() for each in outputs), features)
    except Exception as error:
        message = f"{task.name} cannot read its outputs: {type(error).__name__}: {error}"
        raise UserError(message, NETWORK.key, _wanted(task)) from None
    names = task.labels.names
    first = outputs[0].shape
    if task.head(task.recipe).labelled and names and first[-1] != len(names) and "crf" not in task.recipe.model.head:
        message = f"its first output has the shape {first}, but there are {len(names)} labels"
        raise UserError(message, NETWORK.key, "give the last axis config.num_labels entries")


def _refuse_tensors(code: UserCode, task: Task, encoder: TextEncoder, features: Sequence[Any]) -> None:
    """UserError if the user's collator makes Paddle tensors: they crash the workers of a loader."""
    assert code.make_collator is not None
    made = code.make_collator(encoder.tokenizer)
    inner = task.collator(encoder, labelled=True)
    rows = [{name: array[0].tolist() for name, array in inner.collate([each]).items()} for each in features]
    if any(isinstance(value, paddle.Tensor) for value in made(rows).values()):
        hint = "return NumPy arrays, or set training.dataloader_num_workers: 0"
        raise UserError("Paddle tensors cannot be made in a loader's worker process", COLLATOR.key, hint)


def _try_metrics(code: UserCode, task: Task, dev: Sequence[Any], network: Any, encoder: TextEncoder) -> None:
    """compute_metrics on a sample of dev. A score may need all rows, such as one with both classes: then on all."""
    size = code.recipe.training.per_device_eval_batch_size
    step = max(1, len(dev) // _SAMPLE)
    for examples in (dev[::step], dev):
        try:
            DevScores(task, network, encoder, code.loss(task), code.metrics, alone=True).score(examples, size)
            return
        except UserError:
            if len(examples) == len(dev):
                raise


def _try_optimizer(code: UserCode, setup: ProcessSetup, network: Any) -> None:
    if code.make_optimizer is None and code.make_scheduler is None:
        return
    recipe = code.recipe
    args = training_arguments(recipe, RunDirectory(recipe.run_dir), setup.device)
    if code.make_scheduler is not None:
        schedule = code.scheduler(args, recipe.training.max_steps if recipe.training.max_steps > 0 else _STEPS)
        try:
            schedule.step()
        except TypeError as error:
            message = f"{recipe.training.scheduler}: the Trainer calls its step without arguments: {error}"
            raise UserError(message, SCHEDULER.key, "use a schedule of the number of steps") from None
    if code.make_optimizer is not None:
        code.optimizer(network, args)


def _blamed(code: UserCode) -> str:
    return NETWORK.key if code.criterion is None else CRITERION.key


def _returned(name: str, value: Any, key: str, hint: str) -> UserError:
    return UserError(f"{name} returned {type(value).__name__}", key, hint)
