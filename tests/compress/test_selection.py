"""Which row of the table is the best."""

from __future__ import annotations

import pytest
from scored import rounds_of, scored, speeds_of

from nlpctl.compress.scores import CandidateScore, Metric
from nlpctl.compress.selection import Objective, indistinct, indistinct_from_best, ordered, select, within

ACCURACY = Metric("accuracy")
REFERENCE = scored("original", 0.880)
FAST_BUT_WRONG = scored("width-0.5", 0.860, 9.0, size_mb=10.0)
FAST = scored("width-0.75+ptq", 0.8755, 4.0, single=1.5, size_mb=40.0)
SINGLE = scored("original+ort-dynamic", 0.878, 2.5, single=5.0, engine="onnxruntime", size_mb=23.0)
ROWS = [REFERENCE, FAST_BUT_WRONG, FAST, SINGLE]
SURE = {"report": {"rows": 1_000_000, "accuracy": 0.0}}  # so many dev rows that every difference of scores counts


def best(
    rows: list[CandidateScore], metric: Metric = ACCURACY, objective: Objective | None = None, last=None
) -> CandidateScore:
    return select(rows, REFERENCE, metric, objective or Objective(), speeds_of(rows, last))


@pytest.mark.parametrize(("target", "expected"), [("throughput", FAST), ("latency", SINGLE), ("size", SINGLE)])
def test_the_best_at_what_is_wanted_among_those_that_lose_little(target, expected):
    assert best(ROWS, objective=Objective(0.5, target)) == expected


def test_what_may_be_lost_is_in_points():
    assert [within(row, REFERENCE, ACCURACY, Objective(0.45)) for row in ROWS] == [True, False, True, True]
    assert [within(row, REFERENCE, ACCURACY, Objective(0.4)) for row in ROWS] == [True, False, False, True]
    assert best(ROWS, objective=Objective(2.0)) == FAST_BUT_WRONG
    assert best(ROWS, objective=Objective(0.0)) == REFERENCE


def test_how_sure_the_loss_is():
    """Within half a point on dev as it is; in 9 of 10 resampled splits only the second."""
    wide = tuple(-1.0 + 2.4 * step / 200 for step in range(201))  # 0.2 in the middle, 1.16 at nine tenths
    narrow = tuple(0.1 + 0.2 * step / 200 for step in range(201))
    unsure, sure = scored("a", 0.878, 4.0, drops=wide), scored("b", 0.878, 2.0, drops=narrow)
    reference = scored("original", 0.880, drops=(0.0,) * 201)
    rows = [reference, unsure, sure]
    assert select(rows, reference, ACCURACY, Objective(), speeds_of(rows)) == unsure
    assert select(rows, reference, ACCURACY, Objective(sure=0.9), speeds_of(rows)) == sure
    assert unsure.likely_drop(0.9) == pytest.approx(1.16)


def test_a_score_of_which_less_is_better():
    falling = Metric("perplexity", greater_is_better=False)
    worse, better = scored("a", 0.90, 3.0), scored("b", 0.85, 2.0)
    assert best([REFERENCE, worse, better], falling, Objective(0.5)) == better


def test_among_speeds_that_are_alike_the_better_score_counts():
    right, fast = scored("a", 0.879, 3.95, **SURE), scored("b", 0.877, 4.0, **SURE)
    faster = scored("c", 0.877, 4.2, **SURE)
    assert best([REFERENCE, fast, right]) == right
    assert best([REFERENCE, right, fast, faster]) == faster


def test_among_graphs_of_one_size_the_faster():
    slow, fast = scored("a", 0.88, 1.0, size_mb=20.0), scored("a", 0.879, 1.8, size_mb=20.0, precision="bf16")
    assert best([REFERENCE, slow, fast], objective=Objective(target="size")) == fast


@pytest.mark.parametrize("target", ["throughput", "latency", "size"])
def test_a_few_bytes_decide_nothing(target):
    fp32 = scored("original", 0.88, 4.0, single=4.0, size_mb=20.0)
    bf16 = scored("original", 0.88, 4.05, single=4.05, size_mb=20.1, precision="bf16")
    larger = scored("original", 0.88, 4.1, single=4.1, size_mb=20.3, engine="onnxruntime")
    assert best([REFERENCE, fp32, larger, bf16], objective=Objective(target=target)) == bf16


def test_the_reference_where_nothing_else_will_do():
    """Also where a score is no number."""
    broken = scored("original+ptq", float("nan"), 9.0)
    assert best([REFERENCE, broken]) == REFERENCE


def test_the_batch_size_that_a_target_is_about():
    sizes = (8, 1, 64)
    assert [Objective(0.5, target, sizes).batch_size for target in ("throughput", "latency")] == [64, 1]


def test_a_table_begins_with_the_best():
    assert ordered(ROWS, Objective(target="latency"), speeds_of(ROWS))[:2] == [FAST_BUT_WRONG, SINGLE]


def test_among_equals_the_simplest():
    """A student that is a little faster and better than the untouched network in bf16, but not by what can be told."""
    bf16 = scored("original", 0.879, 4.0, precision="bf16", size_mb=80.0)
    int8 = scored("original+ptq", 0.880, 4.05, precision="int8", size_mb=40.0)
    student = scored("student+ptq", 0.881, 4.1, precision="int8", size_mb=20.0)
    rows = [REFERENCE, student, int8, bf16]
    assert indistinct_from_best(rows, REFERENCE, ACCURACY, Objective(), speeds_of(rows)) == [student, int8, bf16]
    assert best(rows) == bf16
    assert best([REFERENCE, student, int8]) == int8  # without training
    parts = scored("original+ptq+embeddings", 0.882, 4.1, precision="int8", size_mb=10.0)
    assert best([REFERENCE, parts, int8]) == int8  # of fewer parts
    sure = [scored(row.candidate, row.score, row.speed(32).times, precision=row.precision, **SURE) for row in rows[1:]]
    assert best([REFERENCE, *sure]) == sure[0]  # a score that dev can tell


def test_speeds_are_alike_where_their_spreads_overlap():
    int8, student = scored("original+ptq", 0.880, 3.5), scored("student", 0.880, 4.0)
    rows = [REFERENCE, student, int8]
    quiet = rounds_of(rows, {}, {}, {})
    assert best(rows, last=quiet) == student
    busy = rounds_of(rows, {"student": 0.7}, {}, {"student": 0.8}, {"original+ptq": 0.9})
    assert best(rows, last=busy) == int8


def test_what_dev_can_tell():
    """Of 200 rows 2 are decided differently by each of both: 4 rows, whose sum has a deviation of 2, twice."""
    one, other = scored("a", 0.88, agreement=0.99), scored("b", 0.87, agreement=0.99)
    assert indistinct(one, other) == pytest.approx(100 * 2 * 2 / 200)
    same = scored("c", 0.88, agreement=1.0)
    assert indistinct(same, same) == 0.0
