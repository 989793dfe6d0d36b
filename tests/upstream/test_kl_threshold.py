"""Ours gives what Paddle's gives; the day that PostTrainingQuantization calls another function, ours can go."""

import numpy as np
import pytest
from paddle.static.quantization import post_training_quantization
from paddle.static.quantization.cal_kl_threshold import cal_kl_threshold

from nlpctl.upstream.kl_threshold import fast_kl, kl_threshold

DRAW = np.random.default_rng(0)
VALUES = {
    "normal": np.abs(DRAW.normal(size=20000)),
    "heavy": np.abs(DRAW.standard_cauchy(5000)),
    "few": DRAW.uniform(0, 1, 60),
    "two far apart": np.array([0.0, 0.0, 1.0]),
}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_same_bound(values):
    hist, edges = np.histogram(values, bins=512)
    assert kl_threshold(hist, edges[1], 8) == pytest.approx(cal_kl_threshold(hist, edges[1], 8), rel=1e-9)


def test_only_for_a_while():
    with fast_kl():
        assert post_training_quantization.cal_kl_threshold is kl_threshold
    assert post_training_quantization.cal_kl_threshold is cal_kl_threshold
    method = post_training_quantization.PostTrainingQuantization._calculate_kl_hist_threshold
    assert "cal_kl_threshold" in method.__code__.co_names
