"""The user's own parts as they are tried before a training."""

from __future__ import annotations

import pytest

from nlpctl.data.training_data import TrainingData
from nlpctl.errors import UserError


class NothingToLearn:
    """A task that finds nothing in a row."""

    def training_cut(self, examples, encoder):
        return lambda example: ()


def test_rows_without_anything_to_learn_are_told():
    from nlpctl.training.user_code import _shortest_and_longest

    data = TrainingData(None, None, None, None, train=["a", "b"], dev=None, test=None, files=(), skipped={})
    with pytest.raises(UserError, match="data.train: the first 64 rows give nothing to train with"):
        _shortest_and_longest(NothingToLearn(), data, None)
