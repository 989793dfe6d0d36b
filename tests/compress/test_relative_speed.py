"""The speeds of a table on one scale, and where they come from."""

from __future__ import annotations

import pytest
from scored import paced, rounds_of, scored

from nlpctl.compress.relative_speed import finalists, read_last_round, write_last_round
from nlpctl.compress.strategies import simplicity

ONNX = {"engine": "onnxruntime"}
REFERENCE = scored("original", 0.88, 1.0, agreement=1.0)
BF16 = scored("original", 0.88, 2.0, single=1.5, precision="bf16")
ORT = scored("original", 0.88, 1.2, single=4.0, **ONNX)
STUDENT = scored("student", 0.88, 2.2, single=2.0)
STUDENT_ORT = scored("student", 0.88, 2.4, single=8.0, **ONNX)
DYNAMIC = scored("student+ort-dynamic", 0.87, 4.0, single=13.6, precision="int8", method="dynamic", **ONNX)
ROWS = [REFERENCE, BF16, ORT, STUDENT, STUDENT_ORT, DYNAMIC]


def test_one_baseline_per_batch_size_the_fastest_uncompressed():
    paces = paced(ROWS)
    assert paces.baselines == {1: ORT.name, 32: BF16.name}
    assert paces.of(DYNAMIC, 1).times == pytest.approx(3.4) and paces.of(DYNAMIC, 32).times == pytest.approx(2.0)
    assert paces.of(REFERENCE, 1).times == pytest.approx(1 / 4) and paces.of(BF16, 32).times == 1.0
    assert paces.of(DYNAMIC, 1).p50_times == pytest.approx(3.4)


def test_a_baseline_decides_alike():
    wrong = scored("original", 0.88, 9.0, precision="bf16", agreement=0.98)
    assert set(paced([REFERENCE, wrong, ORT]).baselines.values()) == {ORT.name}
    assert set(paced([REFERENCE, wrong]).baselines.values()) == {REFERENCE.name}


def test_the_parts_of_a_speed_multiply_to_the_whole():
    paces = paced(ROWS)
    pace = paces.of(DYNAMIC, 1)
    assert (pace.engine, pace.compression, pace.precision) == pytest.approx((4.0, 2.0, 1.7))
    for row in ROWS:
        for size in (1, 32):
            pace = paces.of(row, size)
            assert pace.engine * pace.precision * pace.compression == pytest.approx(pace.whole)
            assert pace.whole == pytest.approx(row.speed(size).times)
    pace = paces.of(BF16, 32)
    assert (pace.engine, pace.precision, pace.compression) == pytest.approx((1.0, 2.0, 1.0))
    alone = paced([REFERENCE, DYNAMIC]).of(DYNAMIC, 1)  # no fp32 graph of its network ran
    assert alone.whole == pytest.approx(13.6) and (alone.engine, alone.precision, alone.compression) == (None,) * 3


def test_the_last_round_puts_all_rows_on_one_scale():
    """The student was timed under a load that slowed the reference down, so it looked twice as fast as it is."""
    rows = [REFERENCE, BF16, DYNAMIC]
    last = rounds_of(rows, {DYNAMIC.candidate: 0.5}, {DYNAMIC.candidate: 0.4}, {DYNAMIC.candidate: 0.5})
    paces = paced([*rows, STUDENT], last)
    pace = paces.of(DYNAMIC, 32)
    assert (pace.times, pace.low, pace.high) == pytest.approx((1.0, 0.9, 1.0)) and paces.rounds == 3
    assert pace.samples_per_second == pytest.approx(1000) and pace.p50_ms == pytest.approx(1000 * 100 / 1000)
    found = [paces.of(row, 32) for row in (*rows, STUDENT)]
    assert [pace.samples_per_second / pace.times for pace in found] == pytest.approx([1000] * 4)  # the columns agree
    assert paces.of(STUDENT, 32).whole == pytest.approx(2.2) and paces.of(STUDENT, 32).low is None


def test_who_takes_part_in_the_last_round():
    """The uncompressed in every way, the fastest of every candidate, and the fp32 graph of its network."""
    wrong = scored("student", 0.5, 9.0, precision="bf16")
    rows = [*ROWS, wrong]
    assert finalists(rows, REFERENCE, ROWS) == [REFERENCE, BF16, ORT, STUDENT_ORT, DYNAMIC]
    assert finalists([REFERENCE, wrong, STUDENT], REFERENCE, [REFERENCE]) == [REFERENCE, wrong, STUDENT]


def test_rounds_are_kept(tmp_path):
    last = rounds_of(ROWS, {}, {"student": 0.5})
    file = tmp_path / "last.json"
    write_last_round(file, "key", last)
    assert read_last_round(file, "key") == last and read_last_round(file, "other") is None
    file.write_text("{")
    assert read_last_round(file, "key") is None


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("original", (0, 0)),
        ("original+ort-dynamic original+ptq-avg-32x16 fewer-words", (1, 1)),
        ("original+ptq-avg-32x16+embeddings fewer-words+ort-static-32x16", (1, 2)),
        ("width-0.75 student original+qat somebody-elses", (2, 1)),
        ("student+ort-static-32xall fewer-words-width-0.75", (2, 2)),
    ],
)
def test_what_is_simpler(names, expected):
    assert {simplicity(name) for name in names.split()} == {expected}
