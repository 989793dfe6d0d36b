"""Trials side by side, with stand-ins for the processes and for the study."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from nlpctl.config.load import load_recipe
from nlpctl.config.schema import Recipe
from nlpctl.errors import Interrupted
from nlpctl.runners.many.study import FINISHED, Trial
from nlpctl.runners.many.trials import Trials
from nlpctl.runners.side_by_side import Posts
from nlpctl.runtime import crew
from nlpctl.runtime.crew import NoRoom
from nlpctl.runtime.worker import WorkerLost


class Few(Trials):
    """Six trials of one recipe."""

    def __post_init__(self) -> None:
        self._left = [Trial(number, {}) for number in range(6)]
        self.ended: dict[int, str] = {}

    def take(self) -> tuple[Trial, Recipe] | None:
        with self._lock:
            return (self._left.pop(0), self.recipe) if self._left else None

    def done(self, trial: Trial, state: str, reason: str) -> None:
        self.ended[trial.number] = state


class Process:
    """Takes a while to start, as a real one; `fails`: what its requests raise, one after the other."""

    def __init__(self, fails: list[BaseException], starts: list[BaseException]):
        self.fails, self.starts, self.asked, self.busy = fails, starts, 0, threading.Lock()

    def start(self) -> None:
        time.sleep(0.1)
        if self.starts:
            raise self.starts.pop(0)

    def ask(self, job, where, hint, counsel):
        assert self.busy.acquire(blocking=False), "two trials in one process"
        time.sleep(0.02)
        self.busy.release()
        self.asked += 1
        if self.fails:
            raise self.fails.pop(0)
        return FINISHED, ""

    def send_signal(self, number: int) -> None:
        pass

    def end(self, interrupt: bool) -> None:
        pass


def trained(tmp_path: Path, fails: list[BaseException], starts: list[BaseException]) -> tuple[Few, list[Process]]:
    """The trials, and all processes; the first has `fails`, and those after the second `starts`."""
    (tmp_path / "recipe.yaml").write_text("task: sequence_classification\n")
    recipe = load_recipe(tmp_path / "recipe.yaml", (), "apply")
    trials = Few(recipe, tmp_path, SimpleNamespace(), None, SimpleNamespace(), "accuracy", ())
    made: list[Process] = []

    def make(*_, grace: float) -> Process:
        made.append(Process(fails if not made else [], starts if len(made) >= 2 else []))
        return made[-1]

    trials.train_side_by_side(Posts((recipe.runtime,) * 2, False, 2.0, make))
    return trials, made


def test_each_trains_one_at_a_time(tmp_path):
    trials, made = trained(tmp_path, [], [])
    assert trials.ended == dict.fromkeys(range(6), FINISHED)
    assert [process.asked > 0 for process in made] == [True, True] and sum(process.asked for process in made) == 6


def test_what_is_lost_goes_on_in_another_process(tmp_path, monkeypatch, capsys):
    """Also where there is no room for one at first: then another worker takes the trial."""
    monkeypatch.setattr(crew, "_AGAIN", 0.02)
    trials, made = trained(tmp_path, [WorkerLost("its node is gone")], [NoRoom("none here")])
    assert trials.ended == dict.fromkeys(range(6), FINISHED) and sum(process.asked for process in made) == 7
    told = capsys.readouterr().err
    assert "its node is gone; another process goes on" in told and "none here; it is asked for again" in told


def test_ctrl_c_ends_all(tmp_path):
    with pytest.raises(Interrupted, match="interrupted"):
        trained(tmp_path, [KeyboardInterrupt()], [])
