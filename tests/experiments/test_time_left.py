"""The time left of several trainings, by a clock of its own: what is told before any has ended, and after."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from nlpctl import console
from nlpctl.experiments.time_left import TrainingsLeft, TrainingsProgress
from nlpctl.runs.live_runs import ToldByEvents
from nlpctl.runtime.event_log import EventLog
from nlpctl.runtime.run_directory import RunDirectory


@pytest.mark.parametrize(("count", "workers"), [(5, 1), (6, 2), (5, 2), (3, 4)])
@pytest.mark.parametrize("own", [True, False])
def test_told_and_true(count, workers, own):
    """Trainings of 100 s at a time: exact from the first that tells its own time left, or from the first that ended."""
    now, ends = 0.0, {}

    def told(run: Path, since: float) -> float | None:
        return ends[run] - now if own and now - since >= 10 else None

    left = TrainingsLeft([1.0] * count, workers, told, clock=lambda: now)
    whole, begun = -(-count // workers) * 100.0, 0
    while now < whole:
        for run in [run for run, end in ends.items() if end <= now]:
            left.end(run)
            del ends[run]
        while len(ends) < workers and begun < count:
            run, begun = Path(str(begun)), begun + 1
            left.begin(run)
            ends[run] = now + 100.0
        expected = None if now < (10 if own else 100) else whole - now
        assert left.left() == (None if expected is None else pytest.approx(expected)), now
        now += 5.0


def test_sizes_count():
    """The runs of a learning curve: a run with twice the rows takes twice the time."""
    now = 0.0
    left = TrainingsLeft([100, 200, 400], 1, lambda run, since: None, clock=lambda: now)
    left.begin(Path("a"), 100)
    now = 10.0
    left.end(Path("a"))
    left.begin(Path("b"), 200)
    now = 15.0
    assert left.left() == pytest.approx(15 + 40)
    now = 50.0  # it takes longer than expected, and tells nothing
    assert left.left() == pytest.approx(40)


def test_a_training_elsewhere_tells_by_its_events(tmp_path, monkeypatch):
    now = 1000.0
    monkeypatch.setattr("time.time", lambda: now)
    run, told = tmp_path / "run", ToldByEvents()
    run.mkdir()
    log = EventLog(RunDirectory(run).events_file)
    log.append("log", 1, left=500.0)  # of a process before
    assert told(run, 1001.0) is None
    now = 1010.0
    log.append("log", 2, left=60.0)
    assert told(run, 1001.0) == pytest.approx(60.0)
    now = 1013.0
    assert told(run, 1001.0) == pytest.approx(57.0)


def test_a_training_here_tells_by_its_bar():
    """No more than a budget allows."""
    limit = [10_000.0]
    with TrainingsProgress("sweep", "trials", 4, [1.0] * 3, at_most=lambda: limit[0]) as progress:
        assert progress.left() == 10_000.0 and progress.left_in_words() == ", about 2h46m left"
        progress.begin(Path("a"))
        with console.progress(100, "train", "steps", left=lambda step: 30.0):
            assert progress.left() == pytest.approx(90.0, rel=0.05)
            limit[0] = 50.0
            assert progress.left() == 50.0
        limit[0] = -1.0
        assert progress.left() == 0.0 and progress.left_in_words() == ""
    with TrainingsProgress("sweep", "trials", None, [], at_most=lambda: 70.0) as progress:
        assert progress.left() == 70.0


def test_no_training_that_ends_is_lost_between_threads(monkeypatch):
    """The main thread looks on while others end trainings: each takes its turn."""
    inside, most = 0, 0
    advance = console.Progress.advance

    def slowly(self: console.Progress, *arguments: Any, **more: Any) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        for _ in range(3):
            time.sleep(0)  # another thread may go on here
        advance(self, *arguments, **more)
        inside -= 1

    monkeypatch.setattr(console.Progress, "advance", slowly)
    with TrainingsProgress("sweep", "trials", 400, [1.0] * 400, 4) as progress:
        with ThreadPoolExecutor(4) as threads:
            for number in range(400):
                threads.submit(progress.end, Path(str(number)))
                progress.tick()
        assert most == 1 and progress._bar.done == 400
