"""Which rows teach a model most: those that it is unsure of, and that are unlike each other.

probabilities --doubts--> the most uncertain rows --spread_out--> rows that stand for the others
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import paddle

from nlpctl.data.batches.collate import Batch
from nlpctl.errors import UserError
from nlpctl.inference.layer_hooks import token_counts
from nlpctl.tasks.base import Task
from nlpctl.tasks.token_classification import TokenClassification


@dataclass(frozen=True)
class Doubt:
    """How unsure a model is of a row, 0 to 1, and the probability of what it answers, both where it is least sure."""

    uncertainty: float
    confidence: float


def _margins(shares: np.ndarray) -> np.ndarray:
    """1 minus the lead of the likeliest label over the second, of each row of [..., labels]."""
    two = np.partition(shares, -2)[..., -2:]
    return 1 - (two[..., 1] - two[..., 0])


def _entropies(shares: np.ndarray) -> np.ndarray:
    """Entropy as a share of the largest, that of labels equally likely."""
    return -(shares * np.log(np.maximum(shares, 1e-12))).sum(-1) / np.log(shares.shape[-1])


MEASURES: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {"margin": _margins, "entropy": _entropies}


def doubt(task: Task, shares: np.ndarray, measure: str) -> Doubt:
    """How unsure a model is of one row, by the `probabilities` [units, labels] of its task.

    Of several labels the least sure counts, of a tagged text the least sure entity, or word outside of entities, with
    the mean of its words: the mean of the whole text would hide a doubt about one name.
    """
    uncertainty = MEASURES[measure]
    if task.independent:
        pairs = np.stack([shares[0], 1 - shares[0]], axis=-1)
        unsure, best = uncertainty(pairs), pairs.max(-1)
    else:
        unsure, best = uncertainty(shares), shares.max(-1)
    parts = doubtful_parts(task, shares)
    means = [float(unsure[start:end].mean()) for start, end in parts]
    least = int(np.argmax(means))
    start, end = parts[least]
    return Doubt(means[least], float(best[start:end].mean()))


def doubtful_parts(task: Task, shares: np.ndarray) -> list[tuple[int, int]]:
    """What can be doubted one by one, by the `probabilities` [units, labels] of a task: [start, end) of each part.

    Parts of a tagged text are its entities and the words outside of these, counted in words. Where labels are decided
    one by one, each label is a part; else the text is the only one.
    """
    if not isinstance(task, TokenClassification):
        return [(i, i + 1) for i in range(shares.shape[1] if task.independent else len(shares))]
    spans = task.scheme.entities([task.labels.names[tag] for tag in shares.argmax(-1)])
    covered = {i for span in spans for i in range(span.start, span.end)}
    outside = [(i, i + 1) for i in range(len(shares)) if i not in covered]
    return sorted([*((span.start, span.end) for span in spans), *outside])


@dataclass(frozen=True)
class Spread:
    """`chosen`: indexes in the order of the choice. `stands_for`: of each, how many rows are nearer to it than to any
    other chosen one, itself included."""

    chosen: list[int]
    stands_for: list[int]


def spread_out(vectors: np.ndarray, uncertainty: Sequence[float], count: int) -> Spread:
    """Greedy k-centre (Gonzalez, 1985): the most uncertain row, then always the row farthest from all chosen ones.

    `vectors`: [rows, width], compared by their directions. Of equally far rows the more uncertain is chosen, of equally
    uncertain ones the first. Rows with the direction of a chosen one are chosen last.
    """
    count = min(count, len(vectors))
    if not count:
        return Spread([], [])
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    points = vectors / np.where(lengths > 0, lengths, 1)
    order = np.argsort(-np.asarray(uncertainty), kind="stable")
    points = points[order]
    nearest, owner = np.full(len(points), np.inf), np.zeros(len(points), np.int64)
    chosen: list[int] = []
    free = np.ones(len(points), bool)
    for number in range(count):
        place = int(np.where(free, nearest, -1).argmax())  # the first of equals, so the most uncertain
        chosen.append(place)
        free[place] = False
        distance = np.maximum(2 - 2 * (points @ points[place]), 0)  # squared
        distance = np.where(distance < 1e-6, 0, distance)  # rounding
        distance[place] = -1  # its own, also where another chosen one has the same direction
        closer = distance < nearest
        nearest[closer], owner[closer] = distance[closer], number
    counts = np.bincount(owner, minlength=count)
    return Spread([int(order[place]) for place in chosen], counts.tolist())


# -- the vectors by which a network decides: what its last linear layer is given --------------------------------------


class HeadVectors:
    """Catches the input of the linear layer that runs last, in its context.

    Of a classifier that is the pooled vector of a text, of a tagger one of each token. Of an ensemble it is that of the
    last member.
    """

    def __init__(self, network: paddle.nn.Layer):
        """UserError: there is no linear layer, as a network of the user's own may have it."""
        self._pad_id = getattr(getattr(network, "config", None), "pad_token_id", 0)
        self._layers = [layer for layer in network.sublayers() if isinstance(layer, paddle.nn.Linear)]
        if not self._layers:
            message = "this network has no linear layer, whose input would be the vector of a text"
            raise UserError(message, where="MODEL", hint="give it one as its head: paddle.nn.Linear")
        self._handles: list[Any] = []
        self._caught: paddle.Tensor | None = None

    def __enter__(self) -> HeadVectors:
        self._handles = [layer.register_forward_pre_hook(self._keep) for layer in self._layers]
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for handle in self._handles:
            handle.remove()

    def _keep(self, layer: paddle.nn.Layer, inputs: tuple[paddle.Tensor, ...]) -> None:
        self._caught = inputs[0]

    def read(self, batch: Batch) -> np.ndarray:
        """The vectors of the batch that the network has just read, float32 [rows, width]; of tokens their mean."""
        assert self._caught is not None, "the network was not called"
        vectors = self._caught.numpy().astype(np.float32)
        if vectors.ndim == 2:
            return vectors
        vectors = vectors.reshape(vectors.shape[0], -1, vectors.shape[-1])
        if vectors.shape[1] != batch["input_ids"].shape[1]:
            return vectors.mean(1)
        lengths = token_counts(batch, self._pad_id)
        inside = np.arange(vectors.shape[1]) < lengths[:, None]
        return (vectors * inside[..., None]).sum(1) / np.maximum(lengths, 1)[:, None]
