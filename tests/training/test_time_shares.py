"""Where the time goes: phases within phases, waits, sums over processes and resumed parts, and what is advised."""

from __future__ import annotations

import pytest

from nlpctl.config.load import recipe_of_values
from nlpctl.training.time_shares import (
    COMPUTE,
    DATA,
    EVALUATE,
    LOG,
    SAVE,
    TimeShares,
    advice,
    is_sound,
    rows_of,
    summary,
)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_every_second_counts_once(clock):
    times = TimeShares(clock)

    def batches():
        for _ in range(3):
            clock.now += 2  # reading
            yield object()

    with times.spent(SAVE):
        clock.now += 50  # outside the loop: not counted
    with times.measured():
        for _ in times.waiting(batches()):
            clock.now += 10  # computing
            with times.spent(EVALUATE):
                clock.now += 3
                with times.spent(LOG):
                    clock.now += 1
        clock.now += 5
    clock.now += 1000
    assert times.seconds == {DATA: 6, COMPUTE: 35, EVALUATE: 9, LOG: 3, SAVE: 0}


def test_an_error_ends_its_phases(clock):
    times = TimeShares(clock)
    with pytest.raises(ZeroDivisionError), times.measured(), times.spent(SAVE):
        clock.now += 4
        raise ZeroDivisionError
    with times.measured():  # again, as after out-of-memory
        clock.now += 1
    assert times.seconds[SAVE] == 4 and times.seconds[COMPUTE] == 1


def shares(**seconds):
    return {DATA: 0.0, COMPUTE: 0.0, LOG: 0.0, EVALUATE: 0.0, SAVE: 0.0} | seconds


def test_processes_and_resumed_parts_add_up():
    first = summary([shares(compute=10, data=2), shares(compute=6, data=6)], 100, None)
    assert first["seconds"]["compute"] == 8 and first["longest_wait"] == 6 and first["steps"] == 100
    both = summary([shares(compute=2)], 20, first)
    assert both["seconds"]["compute"] == 10 and both["steps"] == 120 and is_sound(both)
    assert dict((title, share) for title, _, share in rows_of(both))["computing"] == pytest.approx(10 / 14)
    for damaged in (None, 3, {}, {"seconds": {}}, {**both, "steps": "x"}, {**both, "seconds": {"data": 1}}):
        assert not is_sound(damaged)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (shares(compute=60, data=1), None),
        (shares(compute=10, data=9), None),  # too short to say
        (shares(compute=60, data=20), "waited for data 25% of the time: set training.dataloader_num_workers: 2"),
        (shares(compute=60, evaluate=40), "Evaluating took 40%"),
        (shares(compute=60, save=20), "Saving took 25%"),
        (shares(compute=60, log=10), "raise training.logging_steps (now 500)"),
    ],
)
def test_what_is_advised(seconds, said):
    recipe = recipe_of_values({"task": "sequence_classification"})
    told = advice(summary([seconds], 10, None), recipe, "cpu")
    assert (not told) if said is None else (len(told) == 1 and said in told[0])


def test_one_process_that_waits_holds_up_the_others():
    recipe = recipe_of_values({"task": "sequence_classification", "training": {"dataloader_num_workers": 3}})
    told = advice(summary([shares(compute=60), shares(compute=40, data=20)], 10, None), recipe, "gpu:0")
    assert "33%" in told[0] and "dataloader_num_workers to 6 (now 3)" in told[0] and "nvidia-smi" in told[1]
