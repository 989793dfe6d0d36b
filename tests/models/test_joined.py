"""Networks joined to one: what is averaged."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from nlpctl.models.networks.ensemble import ODDS, SCORES, SHARES, mean, pooled
from nlpctl.tasks.sequence_classification import softmax


@pytest.fixture
def logits():
    random = np.random.default_rng(3)
    return [random.normal(size=(4, 5, 3)).astype(np.float32) * 4 for _ in range(3)]


def averaged(logits, pool):
    return pooled([paddle.to_tensor(each) for each in logits], pool).numpy()


def test_probabilities(logits):
    expected = np.mean([softmax(each) for each in logits], axis=0)
    found = averaged(logits, SHARES)
    assert np.allclose(softmax(found), expected, atol=1e-6)
    assert np.allclose(found.mean(-1), 0, atol=1e-5)


def test_odds(logits):
    expected = np.mean([1 / (1 + np.exp(-each)) for each in logits], axis=0)
    assert np.allclose(1 / (1 + np.exp(-averaged(logits, ODDS))), expected, atol=1e-6)


def test_scores(logits):
    assert np.allclose(averaged(logits, SCORES), np.mean(logits, axis=0), atol=1e-6)
    assert np.allclose(mean([paddle.to_tensor(each) for each in logits]).numpy(), np.mean(logits, axis=0), atol=1e-6)
