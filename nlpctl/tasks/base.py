"""The interface of tasks. A new task is a module here and a description in config/tasks.

example --features--> features that fit the window --collator--> batch --network--> outputs
outputs --predictions--> one per feature --answer, report--> answer of an example, scores of a split
"""

from __future__ import annotations

import copy
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import load_class, task_info
from nlpctl.data.batches.collate import Batch, Collator
from nlpctl.data.rows.examples import FeatureList
from nlpctl.data.rows.labels import LabelSet, given_labels
from nlpctl.data.text.encoder import TextEncoder
from nlpctl.data.text.tokenizers import build_encoder
from nlpctl.errors import UserError
from nlpctl.models.calibration import Calibration
from nlpctl.models.families import Head
from nlpctl.models.folder import read_trained_description
from nlpctl.models.head_labels import wanted_labels
from nlpctl.models.tokenizer import export_tokenizer
from nlpctl.tasks.confidence import Confidences
from nlpctl.tasks.tallies import Tallies

if TYPE_CHECKING:
    import paddle
    from typing_extensions import Self  # of Python 3.11 in typing; annotations alone use it

    from nlpctl.models.load import LoadedModel


# -- the mistakes of a model, ordered for inspection ------------------------------------------------------------------


@dataclass(frozen=True)
class Mistake:
    """An example with a wrong answer. `row`: its index among the examples; `size`: how wrong, comparable within one
    task only; `expected` and `given` are for people."""

    row: int
    size: float
    expected: str
    given: str


def worst(mistakes: list[Mistake], most: int) -> list[Mistake]:
    """The `most` largest mistakes, the largest first; equal ones in the order of their rows."""
    return sorted(mistakes, key=lambda mistake: (-mistake.size, mistake.row))[:most]


Texts = Callable[[], Iterable[str]]


class Task(ABC):
    """One kind of problem: converts examples to batches, and outputs to a loss, scores and answers.

    The network is called with the entries of a batch that are not in `label_names`. Its outputs are a tuple.
    """

    label_names: tuple[str, ...] = ("labels",)  # the entries of a batch that the network does not take
    masks_inputs: bool = False  # whether labelled batches pass through `apply_mask`
    graph_scores: bool = True  # whether an export, which takes what batches without labels hold, can be scored
    shortens: bool = True  # whether the network accepts a single token; False: inputs need a whole template
    output_names: tuple[str, ...] = ("logits",)  # of the network's outputs for batches without labels
    fitted_layers: tuple[str, ...] = ()  # layers that `fit_layers` sets, so that no gradient trains them
    answer_keys: tuple[str, ...] = ()  # of what `answer` returns; null where a line holds no text
    independent: bool = False  # whether the labels of a text are decided one by one
    graph_tolerance: float = 1e-4  # most that an fp32 graph's outputs may differ; a share of them where above 1
    int8_agreement: float = 0.9  # least share of rows on which an int8 graph must decide like the network
    calibration: Calibration | None = None  # how probable its answers are; no decision depends on it
    measures: bool = False  # whether predictions keep what `confidences` needs

    def __init__(self, recipe: Recipe, labels: LabelSet, thresholds: tuple[float, ...] | None = None):
        """`thresholds`: what `tune` found for this model, one per label."""
        self.recipe = recipe
        self.data = recipe.data
        self.labels = labels
        self.thresholds = thresholds

    @property
    def name(self) -> str:
        """As recipes write it."""
        return self.recipe.task

    @classmethod
    def class_for(cls, recipe: Recipe) -> type[Task]:
        """The class that does what `recipe` asks for, where a task has several methods."""
        return cls

    def calibrated(self, calibration: Calibration | None) -> Self:
        """This task with the probabilities of another calibration, or with those of the network."""
        other = copy.copy(self)
        other.calibration = calibration
        return other

    def measured(self) -> Self:
        """This task with predictions that can be `confidences`."""
        other = copy.copy(self)
        other.measures = True
        return other

    # -- the network -------------------------------------------------------------------------

    @staticmethod
    @abstractmethod
    def head(recipe: Recipe) -> Head:
        """The head that the task puts on the encoder."""

    def build_model(self, texts: Texts | None) -> LoadedModel:
        """The network to train, by recipe.model. `texts` returns the training texts, to build a vocabulary from."""
        from nlpctl.models.load import load_to_train

        recipe = self.recipe
        head, seed = self.built_head(recipe), recipe.training.seed
        labels, tag_map = self.labels.names, recipe.data.tag_map
        model = load_to_train(recipe.model, head, labels, vocabulary_texts=texts, seed=seed, tag_map=tag_map)
        return replace(model, tokenizer=self.adapt_tokenizer(recipe, model.tokenizer))

    @classmethod
    def load_trained(cls, recipe: Recipe, source: str | Path) -> LoadedModel:
        """A trained network from a model folder or the hub; UserError when its head was never trained.

        Labels of a model that is not nlpctl's are those that the recipe gives (models/head_labels.py).
        """
        from nlpctl.models.load import load_trained

        named = given_labels(recipe.data) is not None
        model = load_trained(
            source, cls.built_head(recipe), lambda own: wanted_labels(recipe, own, str(source)), named=named
        )
        return replace(model, tokenizer=cls.adapt_tokenizer(recipe, model.tokenizer))

    @classmethod
    def adapt_tokenizer(cls, recipe: Recipe, tokenizer: Any) -> Any:
        """The tokenizer as `recipe` wants it to read texts. UserError: it cannot."""
        return tokenizer

    @classmethod
    def built_head(cls, recipe: Recipe) -> Head:
        """The head, or the class of the user's own in its place. UserError: the task needs a head of its own."""
        head, user_class = cls.head(recipe), recipe.model.network
        if user_class is not None and head.adapt is not None:
            message = f"{recipe.task} puts a head of its own on an encoder, so {user_class} cannot take its place"
            raise UserError(message, recipe.where("model.network"), "remove model.network")
        return head if user_class is None else replace(head, user_class=user_class)

    def collect_statistics(self, examples: Sequence[Any]) -> None:
        """Collect statistics of the training examples for the loss; called before training, never for a stream."""
        return None

    def constant_loss(self, examples: Sequence[Any]) -> float | None:
        """The loss of the best answer that is the same for every example; None: unknown.

        A network that costs as much has learned nothing from the texts.
        """
        return None

    def fit_layers(self, network: paddle.nn.Layer, encoder: TextEncoder) -> None:
        """Set what no gradient trains, such as a head that is fitted to the encoder's vectors of the training examples.

        Called in training before the network is scored or saved, in every process; a function of the parameters.
        """
        return

    # -- from examples to batches ------------------------------------------------------------

    def check_data(self, split: str, examples: Sequence[Any], encoder: TextEncoder) -> None:
        """UserError if examples of "train", "dev" or "test" do not fit the window. Called before a run begins."""
        return

    def features(self, example: Any, encoder: TextEncoder) -> Sequence[Any]:
        """The parts of an example that each fit the window; for most tasks the example itself.

        Every part has `byte_length`, by which batches are sorted.
        """
        return (example,)

    def overhead(self, encoder: TextEncoder, pair: bool) -> int:
        """The number of tokens around a text, or a pair of texts, which data.max_seq_length leaves no room for."""
        return encoder.overhead(pair)

    def training_cut(self, examples: Sequence[Any], encoder: TextEncoder) -> Callable[[Any], Sequence[Any]]:
        """From one of `examples`, the training examples, to what batches are made of in training with the task's own
        loss; not called for a stream."""
        return functools.partial(self.features, encoder=encoder)

    def training_features(self, examples: Sequence[Any], encoder: TextEncoder) -> FeatureList:
        """The `training_cut` of all examples."""
        return FeatureList(examples, self.training_cut(examples, encoder))

    @abstractmethod
    def collator(self, encoder: TextEncoder, *, labelled: bool) -> Collator:
        """From features to a padded NumPy batch: a picklable object.

        Its `encodings` tokenises features and its `arrays` pads them, which the pipeline does apart; a call does both.
        """

    def apply_mask(self, batch: Batch, generator: np.random.Generator | None) -> Batch:
        """Mask a labelled batch, for tasks with `masks_inputs`.

        `generator` is seeded from (seed, step, rank); None: an evaluation, whose masks depend on the row alone.
        """
        return batch

    # -- from outputs to answers -------------------------------------------------------------

    @abstractmethod
    def loss(
        self, network: paddle.nn.Layer, outputs: tuple[paddle.Tensor, ...], batch: Mapping[str, paddle.Tensor]
    ) -> paddle.Tensor:
        """The mean loss of a batch, a scalar. `batch` holds the entries named by `label_names`.

        A mean over the rows makes several processes, or accumulation steps, equal to one large batch.
        """

    def training_loss(
        self,
        network: paddle.nn.Layer,
        run: Callable[..., Any],
        inputs: Mapping[str, paddle.Tensor],
        labels: Mapping[str, paddle.Tensor],
    ) -> paddle.Tensor:
        """The scalar loss of a training batch; distillation overrides it. `run`: the network in its Trainer wrapper."""
        return self.loss(network, as_tuple(run(**inputs)), labels)

    @abstractmethod
    def predictions(self, outputs: tuple[np.ndarray, ...], features: Sequence[Any]) -> list[Any]:
        """One prediction per feature, without padding. Keep it small: those of a whole split are held in memory."""

    @abstractmethod
    def report(self, examples: Sequence[Any], predictions: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """The full score of one split, as written to metrics.json; predictions[i] are those of examples[i]'s features.

        Holds "rows" and every figure that config/tasks.py names for this task but "loss".
        """

    def tallies(self, examples: Sequence[Any], predictions: Sequence[Sequence[Any]]) -> Tallies | None:
        """What each row adds to the scores of `report`, for their intervals and for paired comparisons.

        None: the scores get no intervals.
        """
        return None

    @abstractmethod
    def mistakes(self, examples: Sequence[Any], predictions: Sequence[Sequence[Any]]) -> list[Mistake]:
        """The labelled examples with a wrong answer, in any order."""

    @abstractmethod
    def answer(self, example: Any, predictions: Sequence[Any]) -> dict[str, Any]:
        """The JSON-ready answer to one example."""

    def answers(self, examples: Sequence[Any], predictions: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
        """The answer to every example. Tasks that are faster on many examples at once override it."""
        return [self.answer(example, parts) for example, parts in zip(examples, predictions, strict=True)]

    def labelled_answers(self, examples: Sequence[Any], predictions: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
        """The answer to every example of labelled data, in the terms of its labels where these say more."""
        return self.answers(examples, predictions)

    def probabilities(self, outputs: tuple[np.ndarray, ...], features: Sequence[Any]) -> list[np.ndarray] | None:
        """Per feature how likely each label is for each of its units, the text or its words: float32 [units, labels].

        None: the task gives no labels.
        """
        return None

    def label_probabilities(self, predictions: Sequence[Any]) -> dict[str, float] | None:
        """The probability of each label of one example, calibrated if the task is; None: its answers give none."""
        return None

    def prediction_from(self, probabilities: np.ndarray) -> Any:
        """The prediction for an example in one part, by `probabilities` [units, labels] of its labels."""
        raise NotImplementedError(f"{self.name} gives no labels")

    def decision(self, example: Any, predictions: Sequence[Any]) -> Any:
        """The decision in an answer, without its scores; two engines agree if their decisions are equal (==)."""
        return without_scores(self.answer(example, predictions))

    def decisions(self, examples: Sequence[Any], predictions: Sequence[Sequence[Any]]) -> list[Any]:
        """The decision of every example. Tasks whose decisions depend on other examples override it."""
        return [self.decision(example, parts) for example, parts in zip(examples, predictions, strict=True)]

    def scored_outputs(self, run: Callable[[Batch], tuple[np.ndarray, ...]], batch: Batch) -> tuple[np.ndarray, ...]:
        """The outputs for a labelled batch, from an engine whose inputs are those of batches without labels."""
        return run({name: array for name, array in batch.items() if name not in self.label_names})

    # -- how probable answers are ------------------------------------------------------------

    def confidences(self, examples: Sequence[Any], predictions: Sequence[Sequence[Any]]) -> Confidences | None:
        """The decisions for labelled examples, with their confidence in answers.

        `predictions` are of a `measured` task. None: it has no decisions that are right or wrong, with a probability.
        """
        return None

    def fit_calibration(self, examples: Sequence[Any], predictions: Sequence[Sequence[Any]]) -> Calibration | None:
        """What makes the confidence of this task honest on the examples. None: they are too few, or have
        none.

        `predictions` as for `confidences`; the task's own calibration does not count.
        """
        return None

    def abstain(self, answer: dict[str, Any], least: float) -> dict[str, Any]:
        """`answer` without what is less sure than `least`; for tasks that read inference.min_confidence."""
        raise NotImplementedError(f"answers of {self.name} have no confidence")

    # -- what dev decides --------------------------------------------------------------------

    def tune(self, examples: Sequence[Any], predictions: Sequence[Sequence[Any]]) -> tuple[float, ...] | None:
        """The thresholds per label with the best score on the dev examples; None for tasks without thresholds."""
        return None

    def tuned(self, examples: Sequence[Any], predictions: Sequence[Sequence[Any]]) -> Task:
        """This task with the thresholds that `tune` finds on dev; the task itself if there is nothing to tune."""
        thresholds = self.tune(examples, predictions)
        return self if thresholds is None else type(self)(self.recipe, self.labels, thresholds)


class Predictions(list[list[Any]]):
    """Per example the predictions of its features.

    `truncated`: the examples, by their places, of which the network did not read all, as they have more than
    data.max_seq_length tokens.
    """

    def __init__(self, predictions: Iterable[list[Any]] = (), truncated: Iterable[int] = ()):
        super().__init__(predictions)
        self.truncated = set(truncated)

    def add(self, further: Predictions) -> None:
        """Append the predictions of the examples that come after these."""
        self.truncated.update(len(self) + place for place in further.truncated)
        self.extend(further)


def task_class(name: str) -> type[Task]:
    """The class of the task called `name`; the recipe's checks have made sure that it exists."""
    return load_class(task_info(name).task)


def make_task(
    recipe: Recipe,
    labels: LabelSet,
    thresholds: tuple[float, ...] | None = None,
    calibration: Calibration | None = None,
) -> Task:
    """The task that `recipe` names."""
    return task_class(recipe.task).class_for(recipe)(recipe, labels, thresholds).calibrated(calibration)


def trained_task(
    recipe: Recipe, labels: LabelSet, thresholds: tuple[float, ...] | None, calibration: Calibration | None
) -> Task:
    """The task of a model that answers. A decode.threshold that a flag of this command gives goes before the thresholds
    that were tuned for the model."""
    key = "decode.threshold"
    if task_info(recipe.task).reads(key) and recipe.set_by_flag(key):
        thresholds = None
    return make_task(recipe, labels, thresholds, calibration)


def task_and_encoder(folder: Path, recipe: Recipe) -> tuple[Task, TextEncoder]:
    """The task and the text encoder of an export. UserError if a file is damaged."""
    description = read_trained_description(folder)
    tokenizer = export_tokenizer(folder)
    task = trained_task(recipe, LabelSet(description.labels), description.thresholds, description.calibration)
    return task, build_encoder(task.adapt_tokenizer(recipe, tokenizer))


def as_tuple(outputs: paddle.Tensor | tuple[paddle.Tensor, ...]) -> tuple[paddle.Tensor, ...]:
    """The outputs of a network as a tuple, even if it returns a single tensor."""
    # PaddleNLP's classifiers return a bare tensor, its encoders a tuple, a static graph a list.
    return tuple(outputs) if isinstance(outputs, tuple | list) else (outputs,)


def without_scores(answer: Any) -> Any:
    """A JSON-ready answer without its fractional numbers."""
    if isinstance(answer, Mapping):
        return {name: without_scores(value) for name, value in answer.items() if not isinstance(value, float)}
    if isinstance(answer, list):
        return [without_scores(value) for value in answer if not isinstance(value, float)]
    return answer
