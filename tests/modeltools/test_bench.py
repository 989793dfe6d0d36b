"""Figures of a benchmark, against values computed by hand."""

from __future__ import annotations

import pytest

from nlpctl.modeltools.bench import (
    BenchResult,
    Speed,
    Timed,
    answer,
    bench_page,
    details_table,
    figures,
    percentile,
    remarks,
    short_table,
)
from nlpctl.report.language import in_language


def timed(engine: str, single: float, batch: float, doubt: str | None = None, model: str = "export") -> Timed:
    """A row of `single` texts per second in batches of 1, and of `batch` in batches of 32."""
    speeds = tuple(
        Speed(size, figures([[size / speed] * 4] * 3, size), None) for size, speed in ((1, single), (32, batch))
    )
    return Timed(model, engine, 2, 0.5, 200.0, 10.0, speeds, doubt)


NETWORK = timed("dygraph fp32", 100, 400, model="run")
ONNX, BF16 = timed("onnxruntime fp32", 500, 800), timed("paddle bf16", 200, 1000)
INT8 = timed("paddle int8 (ptq)", 300, 1500, "decided 90.00% of the rows like the network")


def test_what_to_take_is_the_fastest_without_doubt_at_each_batch_size():
    found = BenchResult((NETWORK, ONNX, BF16, INT8), (), {})
    assert answer(found).splitlines() == [
        "Of run take dygraph fp32: 400 samples/s in batches of 32 and 10 ms for a single sample.",
        "Of export take paddle bf16: 1,000 samples/s in batches of 32, 1.25 times as fast as onnxruntime fp32; "
        "onnxruntime fp32: 2 ms for a single sample.",
        "The fastest: export in paddle bf16: 1,000 samples/s in batches of 32, 2.50 times as fast as run in dygraph "
        "fp32; export in onnxruntime fp32: 2 ms for a single sample, 5.00 times as fast as run in dygraph fp32.",
    ]
    first, second = remarks(found)
    assert first == (
        "export in paddle int8 (ptq) is 1.50 times as fast as export in paddle bf16, but decided 90.00% of the rows "
        "like the network."
    )
    assert "engine" in second and second.endswith("asks for export in paddle bf16.")
    assert [row[:2] for row in short_table(found).rows] == [
        ["! export", "paddle int8 (ptq)"],
        ["export", "paddle bf16"],
        ["export", "onnxruntime fp32"],
        ["run", "dygraph fp32"],
    ]
    assert found.to_json()["fastest"]["32"] == {"model": "export", "engine": "paddle bf16", "threads": 2}
    page = bench_page(found)
    assert answer(found) in page and page.count("<svg") == 2 and "paddle bf16, export" in page
    doubted = BenchResult((INT8,), (), {})
    assert answer(doubted) == (
        "Take paddle int8 (ptq): 1,500 samples/s in batches of 32 and 3.33 ms for a single sample."
    )
    other = timed("paddle fp32", 100, 900, model="other")  # slower than the fastest, and the best of its own model
    assert [row.partition(":")[0] for row in answer(BenchResult((BF16, other), (), {})).splitlines()] == [
        "Of export take paddle bf16", "Of other take paddle fp32", "The fastest"
    ]  # fmt: skip
    assert remarks(BenchResult((NETWORK,), (("x", "died"),), {}))[1:] == ["x was not timed: died"]


def test_factors_in_chinese_are_one_sentence():
    with in_language("zh"):
        told = answer(BenchResult((NETWORK, BF16), (), {}))
        assert told.endswith("速度是 run（dygraph fp32） 的 2.50 倍和 2.00 倍。")


def test_the_figures_of_a_row_agree():
    """One slow batch is seen in the mean, which is of the same round as the samples per second."""
    slow = Speed(1, figures([[0.001] * 9 + [0.011]], 1), 400.0)
    found = BenchResult((Timed("run", "dygraph fp32", 1, 0.5, 200.0, 1.0, (slow,)),), (), {})
    (row,) = details_table(found).rows
    assert dict(zip(details_table(found).columns, row, strict=True)) == {
        **{"model": "run", "engine": "dygraph fp32", "threads": 1, "batch": 1, "samples/s": "500.0"},
        **{"range": "500.0 to 500.0", "from text (own rounds)": "400.0"},
        **{"mean ms": "2", "p50 ms": "1", "p90 ms": "1", "p99 ms": "11", "load s": "0.50"},
    }
    assert short_table(found).rows[0][3] == "2"


def test_rounds_that_differ_much_are_told():
    speed = Speed(8, figures([[0.1], [0.1], [0.2]], 8), None)
    found = BenchResult((Timed("run", "paddle fp32", 1, 0.5, 200.0, 1.0, (speed,)),), (), {})
    assert "The rounds of paddle fp32 differ by 2.0 times, as on a busy machine" in remarks(found)[1]


def test_percentiles_are_by_nearest_rank():
    values = [float(value) for value in range(1, 101)]
    assert [percentile(values, share) for share in (0.5, 0.9, 0.99)] == [50, 90, 99]
    assert percentile([7.0], 0.99) == 7.0
    assert percentile([1.0, 2.0, 3.0], 0.5) == 2.0
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.0


def test_speed_is_the_median_round_and_latencies_are_of_all_rounds():
    rounds = [[0.1, 0.3], [0.2, 0.2], [0.5, 0.5]]  # 0.4 s, 0.4 s and 1 s for 8 rows
    found = figures(rounds, 4)
    assert found.samples_per_second == pytest.approx(20)
    assert (found.slowest, found.fastest) == (pytest.approx(8), pytest.approx(20))
    assert (found.p50_ms, found.p99_ms) == (pytest.approx(200), pytest.approx(500))
    assert found.rounds == 3
