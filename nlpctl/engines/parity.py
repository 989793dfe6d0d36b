"""Compare an engine with the network: on real rows, and at the smallest and largest shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

import numpy as np

from nlpctl.data.batches.collate import Batch, raise_failure
from nlpctl.data.text.encoder import TextEncoder
from nlpctl.data.text.units import special_ids
from nlpctl.tasks.base import Task

Run = Callable[[Batch], tuple[np.ndarray, ...]]

SMALL_BATCHES, LARGEST_BATCH = (1, 7), 32
EACH_SIZE = 4  # small batches of every size; the remaining rows form large ones
EDGE_ROWS = (1, 3)  # batch sizes at extreme lengths


@dataclass(frozen=True)
class Case:
    """A padded batch of features. `places`: (example, part) of each row."""

    batch: Batch
    features: tuple[Any, ...]
    places: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Difference:
    """`largest`: the largest absolute difference of any floating-point output; NaN for a value that is NaN or missing.
    `relative`: the same relative to the output's largest value if that is above 1. `agreement`: share of rows with the
    same decision; `changed`: the other rows.
    """

    largest: float
    relative: float
    agreement: float
    changed: tuple[int, ...]


class Parity:
    """The network's own outputs for a set of batches, to compare engines with."""

    def __init__(self, task: Task, encoder: TextEncoder, examples: Sequence[Any], network: Run):
        self.task = task
        self.examples = examples
        self.cases = list(_cases(task, encoder, examples))
        self.edges = list(_edges(self.cases, task, encoder))
        self._expected = [network(case.batch) for case in self.cases]
        self._expected_edges = [network(batch) for batch in self.edges]
        self._decisions = self._decided(self._expected)

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Rows and length of every batch."""
        ids = [batch["input_ids"] for batch in (*(case.batch for case in self.cases), *self.edges)]
        return sorted({(each.shape[0], each.shape[1]) for each in ids})

    @property
    def distinct_decisions(self) -> int:
        """The number of distinct decisions of the network; with 1, agreement has no meaning."""
        return len({repr(decision) for decision in self._decisions})

    def difference(self, run: Run) -> Difference:
        """Compare the outputs of `run` for the same batches."""
        outputs = [run(case.batch) for case in self.cases]
        edges = [run(batch) for batch in self.edges]
        pairs = [
            (np.asarray(one), np.asarray(other))
            for expected, given in zip((*self._expected, *self._expected_edges), (*outputs, *edges), strict=True)
            for one, other in zip(expected, given, strict=True)
        ]
        if any(one.shape != other.shape for one, other in pairs):
            return Difference(math.nan, math.nan, 0.0, tuple(range(len(self.examples))))
        sizes = [output_difference(one, other) for one, other in pairs]
        # Python's max() may ignore NaN, NumPy's does not
        largest, relative = (float(np.max([size[i] for size in sizes])) for i in range(2))
        both = zip(self._decisions, self._decided(outputs), strict=True)
        changed = tuple(row for row, (expected, given) in enumerate(both) if expected != given)
        return Difference(largest, relative, 1 - len(changed) / len(self.examples), changed)

    def _decided(self, outputs: Sequence[tuple[np.ndarray, ...]]) -> list[Any]:
        parts: list[dict[int, Any]] = [{} for _ in self.examples]
        for case, given in zip(self.cases, outputs, strict=True):
            for (row, part), prediction in zip(case.places, self.task.predictions(given, case.features), strict=True):
                parts[row][part] = prediction
        return self.task.decisions(self.examples, [[by_part[i] for i in sorted(by_part)] for by_part in parts])


def output_difference(expected: np.ndarray, given: np.ndarray) -> tuple[float, float]:
    """The largest absolute difference of two outputs of one shape, and the same relative to the largest value if above
    1."""
    if expected.dtype.kind != "f" or not expected.size:  # ids, such as predicted words, are compared as decisions
        return 0.0, 0.0
    largest = float(np.abs(expected.astype(np.float64) - given.astype(np.float64)).max())
    return largest, largest / max(1.0, float(np.abs(expected).max()))


def _cases(task: Task, encoder: TextEncoder, examples: Sequence[Any]) -> Iterator[Case]:
    """The features of the examples in batches of several sizes."""
    collate = task.collator(encoder, labelled=False)
    features = [
        (feature, (row, part))
        for row, example in enumerate(examples)
        for part, feature in enumerate(task.features(example, encoder))
    ]
    # Several batch sizes, because kernels differ by shape and masks only matter beside longer rows.
    sizes = chain.from_iterable([size] * EACH_SIZE for size in SMALL_BATCHES)
    start = 0
    for size in chain(sizes, repeat(LARGEST_BATCH)):
        chosen = features[start : start + size]
        if not chosen:
            return
        batch = collate([feature for feature, _ in chosen])
        raise_failure(batch)
        yield Case(batch, tuple(each for each, _ in chosen), tuple(place for _, place in chosen))
        start += size


def batches_of(task: Task, encoder: TextEncoder, examples: Sequence[Any], size: int) -> Iterator[Batch]:
    """The features of the examples as padded batches without labels."""
    collate = task.collator(encoder, labelled=False)
    features = [feature for example in examples for feature in task.features(example, encoder)]
    for start in range(0, len(features), size):
        batch = collate(features[start : start + size])
        raise_failure(batch)
        yield batch


def _edges(cases: Sequence[Case], task: Task, encoder: TextEncoder) -> Iterator[Batch]:
    """Batches of length 1 and of the maximum length, made from the first rows of the largest batch."""
    largest = max((case.batch for case in cases), key=lambda batch: batch["input_ids"].size)
    for rows in EDGE_ROWS:
        chosen = {name: array[:rows] for name, array in largest.items()}
        if task.shortens:
            yield resized(chosen, 1, encoder)
        yield resized(chosen, task.data.max_seq_length, encoder)


def resized(batch: Batch, length: int, encoder: TextEncoder) -> Batch:
    """The batch cut to `length` tokens, or extended with its own tokens."""
    ids = batch["input_ids"]
    words = ids[~np.isin(ids, sorted(special_ids(encoder.tokenizer)))]
    if not words.size:
        words = ids.reshape(-1)
    resized = {}
    for name, array in batch.items():
        if array.shape != ids.shape or name == "masked_positions":
            resized[name] = np.minimum(array, length - 1)  # position ids
        elif length <= ids.shape[1]:
            resized[name] = array[:, :length]
        else:
            more = (len(ids), length - ids.shape[1])
            filling = np.resize(words, more) if name == "input_ids" else np.zeros(more, array.dtype)
            padding = ids == encoder.pad_id
            whole = np.where(padding, np.resize(words, ids.shape), array) if name == "input_ids" else array
            resized[name] = np.concatenate([whole, filling.astype(array.dtype)], axis=1)
    return resized
