"""What a run directory refuses, what becomes of its state, and its events."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.checksums import sha256_of
from nlpctl.errors import Interrupted, RunFailed, UserError
from nlpctl.files import STAGING_PREFIX
from nlpctl.layout import checkpoints_in
from nlpctl.models.source import resolve_source
from nlpctl.runtime import run_directory, work_folder
from nlpctl.runtime.event_log import EventLog
from nlpctl.runtime.lock import take_lock
from nlpctl.runtime.run_directory import RunDirectory, describe_run, seconds_of


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "outputs" / "run")


AB = {"a.csv": "1", "b.csv": "2"}


def facts(data: dict[str, str] | None = None, processes: int = 1, **more: dict[str, str]) -> dict:
    return {"command": ["nlpctl", "train"], "data": data or {"a.tsv": "123"}, "processes": processes, **more}


def begin(run: RunDirectory, *, resume: bool = False, overwrite: bool = False, **changed) -> None:
    run.begin(facts(**changed), "task: x\n", resume=resume, overwrite=overwrite)


def finish(run: RunDirectory) -> None:
    with run.recorded():
        run.model.mkdir()
        run.metrics_file.write_text("{}")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(run: RunDirectory, match: str, **options) -> UserError:
    before = contents(run.path)
    with pytest.raises(UserError, match=match) as caught:
        begin(run, **options)
    assert contents(run.path) == before, "a refusal changes nothing"
    assert str(run.path) in str(caught.value) and "->" in str(caught.value)
    return caught.value


def pretend(run: RunDirectory, **values) -> None:
    run.manifest_file.write_text(json.dumps({**run.read_manifest().content, **values}))


def test_a_new_run(run):
    begin(run)
    manifest = run.read_manifest()
    assert (manifest.state, manifest.pid, manifest.ended) == ("running", os.getpid(), None)
    assert (manifest.resumed, manifest.error, manifest.data) == ((), None, {"a.tsv": "123"})
    assert run.recipe_file.read_text() == "task: x\n" and run.checkpoints.is_dir()


def test_an_empty_folder_and_what_a_kill_leaves_are_taken(run):
    run.path.mkdir(parents=True)
    (run.path / f"{STAGING_PREFIX}manifest.json-abcd_123").write_text("{")  # killed while the manifest was written
    begin(run)
    assert not list(run.path.glob(f"{STAGING_PREFIX}*"))


def test_killed_before_the_recipe_was_written(run):
    """From its first file on the folder passes for a run's."""
    begin(run)
    pretend(run, pid=dead_process())
    run.recipe_file.unlink()
    run.checkpoints.rmdir()
    begin(run, resume=True)
    assert run.recipe_file.exists() and run.checkpoints.is_dir()


def test_a_finished_run_is_kept(run):
    begin(run)
    finish(run)
    error = refused(run, "holds a run that is finished")
    assert "--overwrite" in str(error) and "--resume" not in str(error)
    refused(run, "finished; there is nothing to resume", resume=True)


def test_overwriting_clears_what_a_run_wrote_and_nothing_else(run):
    begin(run)
    finish(run)
    EventLog(run.events_file).append("log", 1)
    (run.checkpoints / "checkpoint-1").mkdir()
    (run.logs).mkdir()
    (run.path / "notes.txt").write_text("mine")
    begin(run, overwrite=True)
    assert sorted(path.name for path in run.path.iterdir()) == [
        "checkpoints", "manifest.json", "notes.txt", "recipe.yaml"
    ]  # fmt: skip
    assert list(run.checkpoints.iterdir()) == [] and run.read_manifest().state == "running"


@pytest.mark.parametrize("steps", range(7))
def test_killed_while_overwriting(run, monkeypatch, steps):
    """However far it came, nothing goes on from the checkpoints of the run before, and another attempt succeeds."""
    begin(run)
    finish(run)
    (run.checkpoints / "checkpoint-1").mkdir()
    for folder in (run.model, run.logs, run.path / "tallies"):
        folder.mkdir(exist_ok=True)
    left = iter(range(steps))

    def may_be_killed(do):
        def step(*arguments):
            if next(left, None) is None:
                raise KeyboardInterrupt
            do(*arguments)

        return step

    with monkeypatch.context() as patched:
        for module, names in {
            run_directory: ("remove_dir", "write_json_atomic", "write_text_atomic"),
            work_folder: ("remove_dir", "remove_leftovers"),
        }.items():
            for name in names:
                patched.setattr(module, name, may_be_killed(vars(module)[name]))
        with pytest.raises(KeyboardInterrupt):
            begin(run, overwrite=True, data={"a.tsv": "new"})
    is_new = run.read_manifest().data == {"a.tsv": "new"}
    assert is_new == (steps > 1) and (run.last_checkpoint() is None or not is_new)
    begin(run, overwrite=True, data={"a.tsv": "new"})
    assert sorted(path.name for path in run.path.iterdir()) == ["checkpoints", "manifest.json", "recipe.yaml"]


def test_resume_and_overwrite_exclude_each_other(run):
    with pytest.raises(UserError, match="cannot be combined"):
        begin(run, resume=True, overwrite=True)
    assert not run.path.exists()


@pytest.mark.parametrize("state", ["failed", "interrupted"])
def test_an_unfinished_run_wants_a_decision(run, state):
    begin(run)
    pretend(run, state=state)
    error = refused(run, f"holds a run that is {state}")
    assert "--resume" in str(error) and "--overwrite" in str(error)
    started = run.read_manifest().started
    begin(run, resume=True)
    manifest = run.read_manifest()
    assert manifest.state == "running" and manifest.started == started
    assert [entry["was"] for entry in manifest.resumed] == [state]


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_killed_run_is_resumed(run):
    begin(run)
    pretend(run, pid=dead_process())
    refused(run, "holds a run that is killed")
    begin(run, resume=True)
    assert [entry["was"] for entry in run.read_manifest().resumed] == ["running"]


@pytest.mark.parametrize("how", [{}, {"resume": True}, {"overwrite": True}])
def test_a_run_in_progress_is_left_alone(run, how):
    begin(run)
    run._folder.release()
    held = take_lock(run.path)  # as another process would hold it
    refused(run, "in progress .process", **how)
    held.release()
    if how:
        begin(run, **how)


def test_a_finished_run_lets_go(run):
    begin(run)
    with run.recorded():
        refused(type(run)(run.path), "in progress")
    begin(type(run)(run.path), overwrite=True)


def test_an_interrupted_beginning_lets_go(run, monkeypatch):
    """In a notebook the process goes on."""
    begin(run)
    finish(run)

    def interrupted(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(run), "_write_beginning", interrupted)
        with pytest.raises(KeyboardInterrupt):
            begin(run, overwrite=True)
    begin(type(run)(run.path), overwrite=True)


def test_a_folder_that_is_not_a_runs(run):
    run.path.mkdir(parents=True)
    (run.path / "thesis.doc").write_text("years of work")
    for how in ({}, {"resume": True}, {"overwrite": True}):
        refused(run, "not a run directory", **how)


def test_changed_data_are_refused(run):
    begin(run)
    pretend(run, state="interrupted")
    refused(run, "data changed since the run began: a.tsv", resume=True, data={"a.tsv": "456"})
    refused(run, "data changed since the run began: b.tsv", resume=True, data={"a.tsv": "123", "b.tsv": "1"})
    begin(run, overwrite=True, data={"a.tsv": "456"})


def test_other_files_that_changed_are_refused(run):
    """A folder of data, of which files may be gone, too; an older run has not noted them."""
    begin(run, further_files={"rows/a.csv": "1", "rows/b.csv": "2"})
    pretend(run, state="interrupted")
    changed = {"a.csv": {"a.csv": "3", "b.csv": "2"}, "b.csv": {"a.csv": "1"}, "c.csv": {**AB, "c.csv": "1"}}
    for told, now in changed.items():
        files = {f"rows/{name}": digest for name, digest in now.items()}
        refused(run, f"data changed since the run began: rows/{told}", resume=True, further_files=files)
    pretend(run, further_files=None)
    older = {name: value for name, value in run.read_manifest().content.items() if name != "further_files"}
    run.manifest_file.write_text(json.dumps(older))
    begin(run, resume=True, further_files={"rows/a.csv": "3"})


def test_a_damaged_manifest(run):
    begin(run)
    run.manifest_file.write_text('{"state": "fini')
    refused(run, "is not valid JSON")


def test_a_place_that_cannot_be_written(run):
    run.path.parent.write_text("a file")
    with pytest.raises(UserError, match="cannot write the run directory"):
        begin(run)
    assert run.path.parent.read_text() == "a file"


# -- during the run -------------------------------------------------------------------


def recorded(run: RunDirectory, error: BaseException) -> None:
    begin(run)
    with run.recorded():
        raise error


def test_finished(run):
    begin(run)
    finish(run)
    manifest = run.read_manifest()
    assert (manifest.state, manifest.error) == ("finished", None)
    assert manifest.started <= manifest.ended


def test_failed(run):
    with pytest.raises(ValueError):
        recorded(run, ValueError("wrong shape"))
    assert (run.read_manifest().state, run.read_manifest().error) == ("failed", "ValueError: wrong shape")


@pytest.mark.parametrize("error", [MemoryError(), OSError(28, "No space left on device")])
def test_what_the_machine_lacks_is_told_as_a_failed_run(run, error):
    with pytest.raises(RunFailed) as caught:
        recorded(run, error)
    assert "--resume" in str(caught.value) and run.read_manifest().state == "failed"


def test_a_network_of_compress_goes_on_with_that_command(run):
    assert run.to_go_on("--set a=b") == f"`nlpctl train {run.path} --resume --set a=b`"  # there is no manifest yet
    assert RunDirectory("my run").to_go_on() == "`nlpctl train 'my run' --resume`"
    run.begin(facts() | {"made_by": "compress"}, "task: x\n", resume=False, overwrite=False)
    assert run.to_go_on("--set a=b") == "the same `nlpctl compress` command with `--set a=b`"
    with pytest.raises(RunFailed, match="then: the same `nlpctl compress` command goes on from the start"):
        with run.recorded():
            raise OSError(28, "No space left on device")
    with pytest.raises(UserError, match="go on with the same `nlpctl compress` command$"):
        resolve_source(str(run.path))


def test_a_full_disk_does_not_hide_what_went_wrong(run, monkeypatch):
    begin(run)

    def full(path, value):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_directory, "write_json_atomic", full)
    with pytest.raises(RunFailed, match="(?s)No space left.*--resume"), run.recorded():
        full(run.path, {})
    with pytest.raises(Interrupted), run.recorded():
        raise KeyboardInterrupt
    with pytest.raises(OSError), run.recorded():
        pass  # a run is not called finished before its manifest says so


def test_a_users_error_stays_one(run):
    with pytest.raises(UserError, match="no such"):
        recorded(run, UserError("no such label"))
    assert run.read_manifest().state == "failed"


def test_interrupted(run):
    with pytest.raises(Interrupted, match="--resume"):
        recorded(run, KeyboardInterrupt())
    assert run.read_manifest().state == "interrupted"


def test_sigterm_interrupts_and_the_handler_is_put_back(run):
    before = signal.getsignal(signal.SIGTERM)
    begin(run)
    with pytest.raises(Interrupted), run.recorded():
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("the signal did not arrive")
    assert run.read_manifest().state == "interrupted" and signal.getsignal(signal.SIGTERM) == before


def test_checkpoints_are_ordered_by_step(run):
    begin(run)
    assert run.last_checkpoint() is None
    unfinished = f"{STAGING_PREFIX}checkpoint-300-x"
    for name in ("checkpoint-9", "checkpoint-100", "checkpoint-20", unfinished, "checkpoint-x"):
        (run.checkpoints / name).mkdir()
    (run.checkpoints / "checkpoint-500").write_text("a file")
    assert [path.name for path in checkpoints_in(run.checkpoints)] == [f"checkpoint-{step}" for step in (9, 20, 100)]
    assert run.last_checkpoint() == run.checkpoints / "checkpoint-100"


# -- facts and events ------------------------------------------------------------------------


def test_facts_of_a_run(tmp_path, monkeypatch):
    file = tmp_path / "a.tsv"
    file.write_bytes(b"abc")
    monkeypatch.chdir(tmp_path)
    described = describe_run(["nlpctl", "train"], 7, [file], {"paddlenlp": "2.8.1"})
    assert described["data"] == {str(file): "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}
    assert described["seed"] == 7 and described["git_commit"] is None
    assert sha256_of(file) == described["data"][str(file)]


def test_commit_and_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    (tmp_path / "file").write_text("1")
    for words in (["init", "-q"], ["add", "file"], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    commit = run_directory.git_commit()
    assert len(commit) == 40 and not commit.endswith("+changes")
    (tmp_path / "file").write_text("2")
    assert run_directory.git_commit() == f"{commit}+changes"
    assert run_directory.git_commit(besides=["file"]) == commit
    assert run_directory.git_commit(besides=["another"]) == f"{commit}+changes"


def test_events_after_a_step_are_forgotten(tmp_path):
    log = EventLog(tmp_path / "events.jsonl")
    log.forget_after(3)  # there is nothing yet
    assert not log.path.exists()
    for step in (1, 2, 3, 3, 4, 5):
        log.append("log", step, text="好")
    with log.path.open("a") as stream:
        stream.write('{"time": 1, "event": "lo')  # killed while writing
    log.forget_after(3)
    events = [json.loads(line) for line in log.path.read_text(encoding="utf-8").splitlines()]
    assert [event["step"] for event in events] == [1, 2, 3, 3]
    assert all(event["text"] == "好" and event["event"] == "log" and event["time"] > 0 for event in events)
    log.append("log", 4)
    log.forget_after(0)
    assert log.path.read_text() == ""


def test_a_run_killed_after_its_last_step_still_tells_its_steps(run):
    """Resumed, it has nothing left to train, and counts no steps anew."""
    begin(run)
    run.update_manifest(steps={"total": 16})
    pretend(run, pid=dead_process())
    begin(run, resume=True)
    assert run.read_manifest().steps == {"total": 16}


def test_pauses_are_no_time_of_a_run(run, monkeypatch):
    """Interrupted after 200 s, killed 30 s into the next day, finished in 28 s on the third."""

    def at(day: int, time: str) -> None:
        monkeypatch.setattr(run_directory, "_now", lambda: f"2026-11-{day:02}T{time}+00:00")

    at(1, "18:00:00")
    begin(run)
    at(1, "18:03:20")
    with pytest.raises(Interrupted), run.recorded():
        raise KeyboardInterrupt
    at(2, "08:00:00")
    begin(run, resume=True)
    run._folder.release()  # killed: nothing is noted but the last event
    killed = datetime(2026, 11, 2, 8, 0, 30, tzinfo=timezone.utc)
    event = {"time": killed.timestamp(), "event": "log", "step": 1}
    run.events_file.write_text(f"{json.dumps(event)}\n")  # now, as in a copy
    assert seconds_of(run.read_manifest().content, killed) == 230.0
    at(3, "09:00:00")
    begin(run, resume=True)
    at(3, "09:00:28")
    finish(run)
    manifest = dict(run.read_manifest().content)
    now = datetime.now(timezone.utc)
    assert seconds_of(manifest, now) == 258.0
    del manifest["seconds_before"]  # of an older version: from the first start
    assert seconds_of(manifest, now) == 2 * 86400 - 9 * 3600 + 28
    assert seconds_of({"started": None}, now) is None
