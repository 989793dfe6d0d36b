"""Trials side by side, with stand-ins for the processes and for the study."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from nlpctl.compress.costs import Clock
from nlpctl.config.load import load_recipe
from nlpctl.config.schema import Recipe
from nlpctl.errors import Interrupted, NlpctlError, Problem, RunFailed, UserError
from nlpctl.experiments import trials as module
from nlpctl.experiments.study import FAILED, FINISHED, PRUNED, RUNNING, Trial, TrialRecord
from nlpctl.experiments.trials import Trials, TrialWorker, train_trial
from nlpctl.runtime import worker_pool
from nlpctl.runtime.lock import take_lock
from nlpctl.runtime.run_directory import RunDirectory, RunManifest
from nlpctl.runtime.worker import NoRoom, ProcessEnded, WorkerKilled, WorkerLost
from nlpctl.runtime.worker_slots import WorkerSlots
from nlpctl.training.oom import OutOfMemory


class Few(Trials):
    """Six trials of one recipe."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ended: dict[int, str] = {}

    def _more_begin(self, promised: int = 0) -> bool:
        return promised < len(self._left)

    def take(self) -> tuple[Trial, Recipe] | None:
        return (self._left.pop(0), self.recipe) if self._left else None

    def done(self, trial: Trial, state: str, reason: str) -> None:
        self.ended[trial.number] = state


class Process:
    """`both`: its first trial begins when that of the other one does, so that each has one; `fails`: what its requests
    raise, one after the other."""

    name, alive = "0.log", True

    def __init__(self, fails: list[BaseException], starts: list[BaseException], both: threading.Barrier | None):
        self.fails, self.starts, self.both, self.asked, self.busy = fails, starts, both, 0, threading.Lock()

    def start(self) -> None:
        if self.starts:
            raise self.starts.pop(0)

    def ask(self, request, where, hint, seconds, callback):
        if self.both is not None and self.asked == 0:
            self.both.wait()
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


def trained(
    tmp_path: Path, fails: list[BaseException], starts: list[BaseException], always: BaseException | None = None
) -> tuple[Few, list[Process]]:
    """The trials, and all processes; the first has `fails`, and those after the second `starts`. `always`: what every
    request raises."""
    (tmp_path / "recipe.yaml").write_text("task: sequence_classification\n")
    recipe = load_recipe(tmp_path / "recipe.yaml", (), "apply")
    six = SimpleNamespace(unfinished=lambda: [Trial(number, {}) for number in range(6)], trials=list)
    trials = Few(recipe, tmp_path, six, None, Clock(None), "accuracy", (), workers=2)
    made: list[Process] = []
    both = threading.Barrier(2, timeout=60)

    def make(*_, grace: float, name: str) -> Process:
        own = fails if not made else []
        fails_now = [always] if always is not None else own
        made.append(Process(fails_now, starts, None) if len(made) >= 2 else Process(fails_now, [], both))
        return made[-1]

    trials.train_side_by_side(WorkerSlots((recipe.runtime,) * 2, False, 2.0, make))
    return trials, made


def test_each_trains_one_at_a_time(tmp_path):
    trials, made = trained(tmp_path, [], [])
    assert trials.ended == dict.fromkeys(range(6), FINISHED)
    assert [process.asked > 0 for process in made] == [True, True] and sum(process.asked for process in made) == 6


class Drawn(Trials):
    """Trials that a study draws, of which each takes 10 s of the clock."""

    def done(self, trial: Trial, state: str, reason: str) -> None:
        self.study.records[trial.number] = TrialRecord(trial.number, {}, state, None, 10.0, reason)
        self.study.now += 10.0


class DrawnStudy:
    def __init__(self, unfinished: int = 0):
        self.now, self.records, self.running_at_draw = 0.0, [], []
        for _ in range(unfinished):
            self.draw()

    def unfinished(self) -> list[Trial]:
        return [Trial(record.number, {}) for record in self.records]

    def trials(self) -> list[TrialRecord]:
        return list(self.records)

    def draw(self) -> Trial:
        self.running_at_draw.append(sum(record.state == RUNNING for record in self.records))
        self.records.append(TrialRecord(len(self.records), {}, RUNNING, None, None, ""))
        return Trial(len(self.records) - 1, {})

    def ended(self) -> int:
        return sum(record.state == FINISHED for record in self.records)


@pytest.mark.parametrize(
    ("wanted", "budget", "unfinished", "begun"),
    [(5, None, 0, 5), (None, 35.0, 0, 3), (None, 35.0, 5, 4), (None, 0.0, 2, 1), (3, 35.0, 1, 3)],
)
def test_a_trial_is_drawn_when_a_worker_is_there_for_it(tmp_path, monkeypatch, wanted, budget, unfinished, begun):
    """There is room for one of two workers. The second trial is drawn when the first has ended, and none after the
    budget; of those that were begun before, one goes on in any case."""
    monkeypatch.setattr(worker_pool, "_AGAIN", 0.01)
    monkeypatch.setattr(worker_pool, "MOST_WAITS", 10_000)
    monkeypatch.setattr(module, "check", lambda *_: [])
    (tmp_path / "recipe.yaml").write_text("task: sequence_classification\n")
    recipe = load_recipe(tmp_path / "recipe.yaml", (), "apply")
    study, made = DrawnStudy(unfinished), []
    clock = Clock(budget, now=lambda: study.now)
    trials = Drawn(recipe, tmp_path, study, wanted, clock, "accuracy", ())

    def make(*_, grace: float, name: str) -> Process:
        made.append(Process([], [NoRoom("none here")] if made else [], None))
        return made[-1]

    trials.train_side_by_side(WorkerSlots((recipe.runtime,) * 2, False, 2.0, make))
    assert study.ended() == begun
    assert study.running_at_draw[unfinished:] == [0] * (begun - unfinished)


def test_what_is_lost_goes_on_in_another_process(tmp_path, monkeypatch, capsys):
    """Also where there is no room for one at first: then another worker takes the trial."""
    monkeypatch.setattr(worker_pool, "_AGAIN", 0.02)
    trials, made = trained(tmp_path, [WorkerLost("its node is gone")], [NoRoom("none here")])
    assert trials.ended == dict.fromkeys(range(6), FINISHED) and sum(process.asked for process in made) == 7
    told = capsys.readouterr().err
    assert "its node is gone; another process goes on" in told and "none here; it is asked for again" in told


def test_ctrl_c_ends_all(tmp_path):
    with pytest.raises(Interrupted, match="interrupted"):
        trained(tmp_path, [KeyboardInterrupt()], [])


def test_lost_nodes_end_the_sweep_and_crashes_are_of_the_trial(tmp_path):
    """A trial over which processes crash has failed; one whose nodes are lost is trained again with --resume."""
    for crash in (ProcessEnded("killed by SIGSEGV"), WorkerKilled("killed by SIGKILL on a node that answers")):
        trials, _ = trained(tmp_path, [], [], always=crash)
        assert trials.ended == dict.fromkeys(range(6), FAILED)
    with pytest.raises(RunFailed, match="(?s)3 processes were lost over it.*its node is gone.*--resume"):
        trained(tmp_path, [], [], always=WorkerLost("its node is gone"))


def test_a_run_that_a_lost_process_still_holds_is_no_failed_trial(tmp_path, monkeypatch):
    recipe = trial_recipe_at(tmp_path)
    recipe.run_dir.mkdir()
    held = take_lock(recipe.run_dir)
    monkeypatch.setattr(module, "LET_GO", 0.0)
    monkeypatch.setattr(module, "train_trial", lambda *_: (FAILED, "the run is in progress"))
    worker = TrialWorker(recipe.runtime)
    try:
        with pytest.raises(RunFailed, match="(?s)still trains this.*--resume goes on"):
            worker.train(recipe, "accuracy", ())
    finally:
        held.release()
    assert worker.train(recipe, "accuracy", ())[0] == FAILED


def caused(error: Exception, by: Exception) -> Exception:
    error.__context__ = by
    return error


FULL = OSError(28, "No space left on device")


@pytest.mark.parametrize(
    "error",
    [
        FULL,
        caused(RunFailed("cannot save"), FULL),
        caused(UserError("cannot write here"), caused(ValueError("half a file"), FULL)),
        MemoryError(),
        OSError(12, "Cannot allocate memory"),
    ],
)
def test_an_error_of_the_machine_is_no_result(tmp_path, monkeypatch, error):
    with pytest.raises(RunFailed) as told:
        one_trial(tmp_path, monkeypatch, error)
    problem = told.value.problems[0]
    assert problem.hint.endswith("--resume goes on; finished runs are kept") and problem.hint.startswith("free ")
    assert problem.message == (error.problems[0].message if isinstance(error, NlpctlError) else told_as(error))


@pytest.mark.parametrize(
    "error",
    [
        RunFailed("the loss is NaN in step 3"),
        UserError("32 units are no multiple of 5 heads"),
        ValueError("a library's"),
        MemoryError("(ResourceExhausted) Out of memory error on GPU 0."),
        OSError("(External) CUBLAS error(3), ALLOC_FAILED"),
        caused(RunFailed("out of memory in step 1"), caused(OutOfMemory("Cannot allocate"), MemoryError())),
        caused(UserError("there is no such model"), FileNotFoundError(2, "No such file")),
    ],
)
def test_what_the_values_cause_is_a_failed_trial(tmp_path, monkeypatch, error):
    state, reason = one_trial(tmp_path, monkeypatch, error)
    told = error.problems[0] if isinstance(error, NlpctlError) else Problem(told_as(error))
    assert (state, reason) == (FAILED, str(told))


@pytest.mark.parametrize(
    ("error", "ends"),
    [(MemoryError("Unable to allocate 9 TiB"), True), (MemoryError("another array"), False), (FULL, False)],
)
def test_the_same_lack_of_memory_twice_is_of_the_values(tmp_path, monkeypatch, error, ends):
    """Else each --resume would end with it. A full disk never is."""
    before = told_as(FULL if error is FULL else MemoryError("Unable to allocate 9 TiB"))
    run = RunDirectory(trial_recipe_at(tmp_path).run_dir)
    run.path.mkdir()
    run.manifest_file.write_text(json.dumps({"format": RunManifest.FORMAT, "state": "failed", "error": before}))
    if ends:
        assert one_trial(tmp_path, monkeypatch, error) == (FAILED, before)
    else:
        with pytest.raises(RunFailed, match="--resume goes on"):
            one_trial(tmp_path, monkeypatch, error)


def told_as(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def one_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> tuple[str, str]:
    def train(*_, **more) -> None:
        raise error

    monkeypatch.setattr(module, "train", train)
    return train_trial(trial_recipe_at(tmp_path), "accuracy", lambda *_: True, ())


def trial_recipe_at(folder: Path) -> Recipe:
    recipe = folder / "recipe.yaml"
    recipe.write_text(f"task: sequence_classification\ntraining: {{output_dir: '{folder / '000'}'}}\n")
    return load_recipe(recipe, (), "apply")


@pytest.mark.parametrize(
    ("seconds", "begins"),
    [([(FINISHED, 100.0), (PRUNED, 10.0), (PRUNED, 10.0)], False), ([(PRUNED, 10.0), (PRUNED, 12.0)], True)],
)
def test_the_time_of_a_trial_is_that_of_whole_ones(tmp_path, seconds, begins):
    """Those that were stopped early took less; they count where no other has ended."""
    told = [TrialRecord(number, {}, state, None, time, "") for number, (state, time) in enumerate(seconds)]
    study = SimpleNamespace(unfinished=list, trials=lambda: told)
    (tmp_path / "recipe.yaml").write_text("task: sequence_classification\n")
    recipe = load_recipe(tmp_path / "recipe.yaml", (), "apply")
    trials = Trials(recipe, tmp_path, study, None, Clock(50.0, now=lambda: 0.0), "accuracy", ())
    assert trials._more_begin() == begins
