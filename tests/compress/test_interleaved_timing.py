"""What rounds in turns say of two engines."""

from __future__ import annotations

import pytest

from nlpctl.compress.interleaved_timing import Timing, is_settled, speed_of, timed_in_turns


class Engine:
    """Batches of a size take `seconds`, and `disturbed` as long in every second round."""

    def __init__(self, seconds: dict[int, list[float]], disturbed: float = 1.0):
        self.times, self.disturbed, self.asked = seconds, disturbed, []
        self.opened = self
        self.features = 40

    def seconds(self, batch_size: int) -> list[float]:
        self.asked.append(batch_size)
        factor = self.disturbed if self.asked.count(batch_size) % 2 else 1.0
        return [factor * each for each in self.times[batch_size]]


def test_turns_end_when_nothing_becomes_faster():
    """What disturbs every second round changes nothing; the first round does not count."""
    reference, candidate = Engine({1: [0.2, 0.4], 8: [0.5]}, 3.0), Engine({1: [0.1, 0.2], 8: [0.1]}, 5.0)
    single, many = timed_in_turns(candidate, reference, Timing((1, 8)))
    assert (single.times, many.times) == (pytest.approx(2.0), pytest.approx(5.0))
    assert candidate.asked == reference.asked == [1, 8] * 4
    assert many.samples_per_second == pytest.approx(400)


def test_the_reference_beside_itself_is_timed_once():
    reference = Engine({4: [0.1]})
    (speed,) = timed_in_turns(reference, reference, Timing((4,), rounds=2))
    assert (speed.times, speed.p50_times) == (1.0, 1.0) and len(reference.asked) == 3


def test_a_slow_candidate_has_no_more_rounds_than_there_is_time_for():
    engine = Engine({4: [0.1]})
    timed_in_turns(engine, Engine({4: [0.1]}), Timing((4,), seconds=0.0))
    assert len(engine.asked) == 2


def test_of_every_batch_the_fastest_round_counts():
    """Two batches, two rounds; in each round one of the two was held up by something else."""
    turns = [([0.4, 0.9], [0.1, 0.7]), ([0.8, 0.4], [0.3, 0.1])]
    speed = speed_of(32, turns, features=40)
    assert (speed.times, speed.p50_times) == (pytest.approx(4.0), pytest.approx(4.0))
    assert speed.samples_per_second == pytest.approx(40 / 0.2) and speed.p50_ms == pytest.approx(100)


def test_rounds_go_on_while_something_becomes_faster():
    assert not is_settled([[1.0, 3.0], [1.0, 3.0]])  # too few
    assert is_settled([[1.0, 3.0], [0.99, 3.0], [0.99, 2.98]])
    assert not is_settled([[1.0, 3.0], [1.0, 3.0], [1.0, 2.5]])
    assert is_settled([[9.0, 9.0], [1.0, 2.5], [1.0, 2.5], [1.0, 2.5]])
