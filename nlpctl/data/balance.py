"""Balances training rows by label: undersampling, oversampling, or given counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from nlpctl.config.schema import BalanceSection
from nlpctl.data.rows.examples import ExampleList
from nlpctl.data.rows.labels import LabelSet
from nlpctl.errors import UserError

Counts = dict[str, int]


def balanced(
    examples: ExampleList, labels: LabelSet, balance: BalanceSection, seed: int
) -> tuple[ExampleList, Counts, Counts]:
    """Returns the resampled training rows, and the rows per label before and after.

    undersample: every label has as many rows as the rarest one. oversample: as many as the most frequent one. counts:
    as many as given; labels that are not named keep their rows. Rows are dropped at random, or repeated in whole
    rounds and a random part of a last one. The order of the rows is kept. Deterministic for a `seed`.
    UserError: counts names an unknown label, or is no whole number above 0.
    """
    labelled: Iterable[Any] = examples
    label_of = np.fromiter((example.label for example in labelled), np.int64, len(examples))
    before = Counter(label_of.tolist())
    wanted = _wanted(before, labels, balance)
    random = np.random.default_rng(seed)
    times = np.ones(len(examples), np.int64)
    for label, count in wanted.items():
        rows = np.flatnonzero(label_of == label)
        # Whole rounds first: no row occurs three times before every row of its label occurs twice.
        whole, rest = divmod(count, len(rows))
        times[rows] = whole
        times[random.permutation(rows)[:rest]] += 1
    drawn: Any = ExampleList(example for example, count in zip(examples, times, strict=True) for _ in range(count))
    after = Counter(example.label for example in drawn)
    return drawn, _named(before, labels), _named(after, labels)


def _wanted(before: Counter[int], labels: LabelSet, balance: BalanceSection) -> dict[int, int]:
    """Label id to the number of rows it is to have."""
    if balance.method == "undersample":
        return dict.fromkeys(before, min(before.values()))
    if balance.method == "oversample":
        return dict.fromkeys(before, max(before.values()))
    wanted = {}
    for name, count in balance.counts.items():
        where = f"data.balance.counts.{name}"
        if name not in labels:
            hint = f"the labels are {', '.join(labels.names[:10])}"
            raise UserError(f"there is no label {name!r}", where=where, hint=hint)
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise UserError(f"{count!r} is not a number of rows", where=where, hint="give a whole number from 1 on")
        if not before[labels.id(name)]:
            raise UserError(f"no training row has the label {name!r}", where=where, hint="delete it")
        wanted[labels.id(name)] = count
    return wanted


def _named(counts: Counter[int], labels: LabelSet) -> Counts:
    return {name: counts[labels.id(name)] for name in labels}
