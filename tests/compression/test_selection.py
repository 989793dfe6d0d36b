"""Which row of the table is the best."""

from __future__ import annotations

import pytest
from scored import scored

from nlpctl.compression.plan.scores import Metric
from nlpctl.compression.plan.selection import Aim, ordered, select, within

ACCURACY = Metric("accuracy")
REFERENCE = scored("original", 0.880)
FAST_BUT_WRONG = scored("width-0.5", 0.860, 9.0, size_mb=10.0)
FAST = scored("width-0.75+ptq", 0.8755, 4.0, single=1.5, size_mb=40.0)
SINGLE = scored("original+ort-dynamic", 0.878, 2.5, single=5.0, engine="onnxruntime", size_mb=23.0)
ROWS = [REFERENCE, FAST_BUT_WRONG, FAST, SINGLE]


@pytest.mark.parametrize(("target", "expected"), [("throughput", FAST), ("latency", SINGLE), ("size", SINGLE)])
def test_the_best_at_what_is_wanted_among_those_that_lose_little(target, expected):
    assert select(ROWS, REFERENCE, ACCURACY, Aim(0.5, target)) == expected


def test_what_may_be_lost_is_in_points():
    assert [within(row, REFERENCE, ACCURACY, Aim(0.45)) for row in ROWS] == [True, False, True, True]
    assert [within(row, REFERENCE, ACCURACY, Aim(0.4)) for row in ROWS] == [True, False, False, True]
    assert select(ROWS, REFERENCE, ACCURACY, Aim(2.0)) == FAST_BUT_WRONG
    assert select(ROWS, REFERENCE, ACCURACY, Aim(0.0)) == REFERENCE


def test_a_score_of_which_less_is_better():
    falling = Metric("perplexity", greater_is_better=False)
    worse, better = scored("a", 0.90, 3.0), scored("b", 0.85, 2.0)
    assert select([REFERENCE, worse, better], REFERENCE, falling, Aim(0.5)) == better


def test_among_speeds_that_are_alike_the_better_score_counts():
    right, fast, faster = scored("a", 0.879, 3.95), scored("b", 0.877, 4.0), scored("c", 0.877, 4.2)
    assert select([REFERENCE, fast, right], REFERENCE, ACCURACY, Aim()) == right
    assert select([REFERENCE, right, fast, faster], REFERENCE, ACCURACY, Aim()) == faster


def test_among_graphs_of_one_size_the_faster():
    slow, fast = scored("a", 0.88, 1.0, size_mb=20.0), scored("a", 0.879, 1.8, size_mb=20.0, precision="bf16")
    assert select([REFERENCE, slow, fast], REFERENCE, ACCURACY, Aim(target="size")) == fast


def test_the_reference_where_nothing_else_will_do():
    """Also where a score is no number."""
    broken = scored("original+ptq", float("nan"), 9.0)
    assert select([REFERENCE, broken], REFERENCE, ACCURACY, Aim()) == REFERENCE


def test_the_batch_size_that_a_target_is_about():
    sizes = (8, 1, 64)
    assert [Aim(0.5, target, sizes).batch_size for target in ("throughput", "latency")] == [64, 1]


def test_a_table_begins_with_the_best():
    assert ordered(ROWS, Aim(target="latency"))[:2] == [FAST_BUT_WRONG, SINGLE]
