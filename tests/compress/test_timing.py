"""How candidates are timed: in turns with the reference, in a last round, and on one scale; with stand-ins."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scored import rounds_of, scored, speeds_of

from nlpctl.compress import timing
from nlpctl.compress.scores import Timed
from nlpctl.compress.timing import (
    MIN_ROUNDS,
    Finalists,
    Timing,
    choose_finalists,
    groups,
    is_complete,
    is_settled,
    read_last_round,
    speed_from_rounds,
    time_against_reference,
    time_last_round,
    write_last_round,
)
from nlpctl.errors import RunFailed


class Engine:
    """Batches of a size take `seconds`, and `disturbed` as long in every second round."""

    def __init__(self, seconds: dict[int, list[float]], disturbed: float = 1.0):
        self.times, self.disturbed, self.asked = seconds, disturbed, []

    def seconds(self, batch_size: int) -> list[float]:
        self.asked.append(batch_size)
        factor = self.disturbed if self.asked.count(batch_size) % 2 else 1.0
        return [factor * each for each in self.times[batch_size]]


def test_turns_end_when_nothing_becomes_faster():
    """What disturbs every second round changes nothing; the first round does not count."""
    reference, candidate = Engine({1: [0.2, 0.4], 8: [0.5]}, 3.0), Engine({1: [0.1, 0.2], 8: [0.1]}, 5.0)
    single, many = time_against_reference(candidate, reference, Timing((1, 8)))
    assert (single.times, many.times) == (pytest.approx(2.0), pytest.approx(5.0))
    assert candidate.asked == reference.asked == [1, 8] * 4
    assert many.samples_per_second == pytest.approx(80)


def test_the_reference_beside_itself_is_timed_once():
    reference = Engine({4: [0.1]})
    (speed,) = time_against_reference(reference, reference, Timing((4,), rounds=2))
    assert (speed.times, speed.p50_times) == (1.0, 1.0) and len(reference.asked) == 3


def test_a_slow_candidate_has_no_more_rounds_than_there_is_time_for():
    engine = Engine({4: [0.1]})
    time_against_reference(engine, Engine({4: [0.1]}), Timing((4,), seconds=0.0))
    assert len(engine.asked) == 2


def test_of_every_batch_the_fastest_round_counts():
    """Two batches, two rounds; in each round one of the two was held up by something else."""
    turns = [([0.4, 0.9], [0.1, 0.7]), ([0.8, 0.4], [0.3, 0.1])]
    speed = speed_from_rounds(32, turns)
    assert (speed.times, speed.p50_times) == (pytest.approx(4.0), pytest.approx(4.0))
    assert speed.samples_per_second == pytest.approx(64 / 0.2) and speed.p50_ms == pytest.approx(100)


def test_rounds_go_on_while_something_becomes_faster():
    assert not is_settled([[1.0, 3.0], [1.0, 3.0]])  # too few
    assert is_settled([[1.0, 3.0], [0.99, 3.0], [0.99, 2.98]])
    assert not is_settled([[1.0, 3.0], [1.0, 3.0], [1.0, 2.5]])
    assert is_settled([[9.0, 9.0], [1.0, 2.5], [1.0, 2.5], [1.0, 2.5]])


# The last round.

UNCOMPRESSED = scored("original", 0.88, agreement=1.0)
UNCOMPRESSED_BF16 = scored("original", 0.88, 2.0, precision="bf16")
INT8 = scored("original+ptq", 0.88, 3.0, precision="int8")
FAST_STUDENT = scored("student", 0.88, 4.0)
FINALISTS = Finalists((UNCOMPRESSED, UNCOMPRESSED_BF16), (INT8, FAST_STUDENT))


class Process:
    """Answers a batch in a tenth of a second; dies after `passes` passes."""

    def __init__(self, name: str, asked: list[str], passes: float):
        self.name, self.asked, self.left = name, asked, passes

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def open(self):
        return True

    def seconds(self, size: int, at_least: float) -> list[float]:
        assert at_least == timing.MIN_PASS
        self.left -= 1
        if self.left < 0:
            raise RunFailed("its process ended", self.name)
        self.asked.append(self.name)
        return [0.1] * (4 if size == 32 else 128)


@pytest.fixture
def played(tmp_path, monkeypatch):
    """Plays with the rows of FINALISTS; `passes`: by candidate, after how many passes its process dies."""
    monkeypatch.setattr(timing, "available_mb", lambda: 1e9)

    def call(key: str = "key", **passes: float):
        asked: list[str] = []
        file = tmp_path / "last.json"
        kept = read_last_round(file, key)

        def open_process(row):
            return Process(row.name, asked, passes.get(row.candidate, 1e9))

        return time_last_round(FINALISTS, open_process, file, key, kept), asked

    return call


def test_every_row_has_its_turn_in_every_round(played):
    last, asked = played()
    assert len(last.rounds) == MIN_ROUNDS and is_complete(FINALISTS, last)
    assert all(set(round) == {row.name for row in FINALISTS.rows} for round in last.rounds)
    assert asked[:4] == [row.name for row in FINALISTS.rows]
    second = asked[8:12]  # by turns forwards and backwards
    assert second == asked[:4][::-1]


def test_an_interrupted_last_round_goes_on(played, tmp_path):
    with pytest.raises(RunFailed, match="its process ended"):
        played(original=7)  # the warm-up, two rounds and a half
    kept = read_last_round(tmp_path / "last.json", "key")
    assert len(kept.rounds) == 2 and not is_complete(FINALISTS, kept)
    last, asked = played()
    assert last.rounds[:2] == kept.rounds and len(last.rounds) == MIN_ROUNDS
    assert len(asked) == 2 * 4 * (1 + MIN_ROUNDS - 2)


def test_a_row_that_dies_is_left_out(played, capsys):
    last, _ = played(student=6)
    assert len(last.rounds) == MIN_ROUNDS and last.failed == (FAST_STUDENT.name,)
    assert [FAST_STUDENT.name in round for round in last.rounds] == [True] * 2 + [False] * (MIN_ROUNDS - 2)
    assert "student, paddle fp32 is left out of the last round" in capsys.readouterr().err


@pytest.mark.parametrize("passes", [0, 6])
def test_a_row_that_failed_costs_no_more_rounds(played, tmp_path, passes):
    """The repeated command finds a complete last round; one that is interrupted goes on without the row."""
    last, _ = played(student=passes)
    assert is_complete(FINALISTS, last) and read_last_round(tmp_path / "last.json", "key") == last
    again, asked = played(student=passes)
    assert again == last and asked == []


def test_what_does_not_fit_into_memory_plays_in_groups():
    """Each row takes 700 MB; the uncompressed play in every group."""
    assert groups(FINALISTS, 1e9) == [FINALISTS.rows]
    assert groups(FINALISTS, 2200.0) == [(*FINALISTS.uncompressed, INT8), (*FINALISTS.uncompressed, FAST_STUDENT)]
    assert groups(FINALISTS, 100.0) == [
        (*FINALISTS.uncompressed, INT8),
        (*FINALISTS.uncompressed, FAST_STUDENT),
    ]  # as few as there can be


def test_the_uncompressed_take_part_in_every_round(played):
    assert (
        choose_finalists([UNCOMPRESSED_BF16, INT8, UNCOMPRESSED, FAST_STUDENT], UNCOMPRESSED, [UNCOMPRESSED])
        == FINALISTS
    )
    assert FINALISTS.seconds(128) > 4 * 6


# Relative speeds.

ONNX = {"engine": "onnxruntime"}
REFERENCE = scored("original", 0.88, 1.0, agreement=1.0)
BF16 = scored("original", 0.88, 2.0, single=1.5, precision="bf16")
ORT = scored("original", 0.88, 1.2, single=4.0, **ONNX)
STUDENT = scored("student", 0.88, 2.2, single=2.0)
STUDENT_ORT = scored("student", 0.88, 2.4, single=8.0, **ONNX)
DYNAMIC = scored("student+ort-dynamic", 0.87, 4.0, single=13.6, precision="int8", method="dynamic", **ONNX)
ROWS = [REFERENCE, BF16, ORT, STUDENT, STUDENT_ORT, DYNAMIC]


def test_one_baseline_per_batch_size_the_fastest_uncompressed():
    speeds = speeds_of(ROWS)
    assert speeds.baselines == {1: ORT.name, 32: BF16.name}
    assert speeds.speed(DYNAMIC, 1).times == pytest.approx(3.4)
    assert speeds.speed(DYNAMIC, 32).times == pytest.approx(2.0)
    assert speeds.speed(REFERENCE, 1).times == pytest.approx(1 / 4) and speeds.speed(BF16, 32).times == 1.0
    assert speeds.speed(DYNAMIC, 1).p50_times == pytest.approx(3.4)


def test_a_baseline_decides_alike():
    wrong = scored("original", 0.88, 9.0, precision="bf16", agreement=0.98)
    assert set(speeds_of([REFERENCE, wrong, ORT]).baselines.values()) == {ORT.name}
    assert set(speeds_of([REFERENCE, wrong]).baselines.values()) == {REFERENCE.name}


def test_the_parts_of_a_speed_multiply_to_the_whole():
    speeds = speeds_of(ROWS)
    speed = speeds.speed(DYNAMIC, 1)
    assert (speed.engine, speed.compression, speed.precision) == pytest.approx((4.0, 2.0, 1.7))
    for row in ROWS:
        for size in (1, 32):
            speed = speeds.speed(row, size)
            assert speed.engine * speed.precision * speed.compression == pytest.approx(speed.whole)
            assert speed.whole == pytest.approx(row.speed(size).times)
    speed = speeds.speed(BF16, 32)
    assert (speed.engine, speed.precision, speed.compression) == pytest.approx((1.0, 2.0, 1.0))
    alone = speeds_of([REFERENCE, DYNAMIC]).speed(DYNAMIC, 1)  # no fp32 graph of its network ran
    assert alone.whole == pytest.approx(13.6) and (alone.engine, alone.precision, alone.compression) == (None,) * 3


def test_the_last_round_puts_all_rows_on_one_scale():
    """The student was timed under a load that slowed the reference down, so it looked twice as fast as it is."""
    rows = [REFERENCE, BF16, DYNAMIC]
    last = rounds_of(rows, {DYNAMIC.candidate: 0.5}, {DYNAMIC.candidate: 0.4}, {DYNAMIC.candidate: 0.5})
    speeds = speeds_of([*rows, STUDENT], last)
    speed = speeds.speed(DYNAMIC, 32)
    assert (speed.times, speed.low, speed.high) == pytest.approx((1.0, 0.9, 1.0)) and speeds.rounds == 3
    assert speed.samples_per_second == pytest.approx(1000) and speed.p50_ms == pytest.approx(1000 * 32 / 1000)
    found = [speeds.speed(row, 32) for row in (*rows, STUDENT)]
    assert [speed.samples_per_second / speed.times for speed in found] == pytest.approx([1000] * 4)  # the columns agree
    assert speeds.speed(STUDENT, 32).whole == pytest.approx(2.2) and speeds.speed(STUDENT, 32).low is None


def test_who_takes_part_in_the_last_round():
    """The uncompressed in every way, the fastest of every candidate, and the fp32 graph of its network."""
    wrong = scored("student", 0.5, 9.0, precision="bf16")
    rows = [*ROWS, wrong]
    assert list(choose_finalists(rows, REFERENCE, ROWS).rows) == [REFERENCE, BF16, ORT, STUDENT_ORT, DYNAMIC]
    chosen = choose_finalists([REFERENCE, wrong, STUDENT], REFERENCE, [REFERENCE])
    assert list(chosen.rows) == [REFERENCE, wrong, STUDENT]


def test_rounds_are_kept(tmp_path):
    last = rounds_of(ROWS, {}, {"student": 0.5})
    file = tmp_path / "last.json"
    last = replace(last, timed=Timed("2026-11-27T08:00:00+00:00", 0.5, "vm"))
    write_last_round(file, "key", last)
    assert read_last_round(file, "key") == last and read_last_round(file, "other") is None
    file.write_text("{")
    assert read_last_round(file, "key") is None
