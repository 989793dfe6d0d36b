"""The process that makes folders; killing it is in end_to_end/test_compress.py."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from types import SimpleNamespace

import pytest

from nlpctl.compress import steps
from nlpctl.compress.steps import StepProcess, TimeIsUp
from nlpctl.errors import UserError
from nlpctl.export.strategies import CANDIDATES, OrtDynamic, Step
from nlpctl.runtime import worker


class Executor:
    def __init__(self, *_):
        self.folders: list[str] = []

    def make(self, step: Step) -> None:
        if step.name == "ill":
            raise ValueError("a library's own")
        if step.name == "wrong":
            raise UserError("the user's")
        raise UserError(tempfile.mkdtemp())


def test_what_a_process_answers_and_where_its_temporary_files_lie(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", None)  # restored afterwards
    for name in ("child_main", "set_up_process"):
        monkeypatch.setattr(steps, name, lambda *_: None)
    monkeypatch.setattr(worker, "die_with_parent", lambda *_: None)
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    monkeypatch.setattr(steps, "StepExecutor", Executor)
    here, there = multiprocessing.Pipe()
    for name in ("ill", "wrong", "good"):
        here.send(Step(CANDIDATES, name, OrtDynamic()))
    here.send(None)
    worker._serve(there, os.getpid(), steps._open_executor, (str(tmp_path), None, "source", tmp_path))
    ill, wrong, folder = (here.recv() for _ in range(3))
    assert ill.reason == "ValueError: a library's own" and str(wrong) == "the user's"
    assert os.path.dirname(str(folder)) == str(tmp_path)


@pytest.mark.parametrize(
    ("error", "raised", "interrupted"),
    [(UserError("the user's"), UserError, False), (TimeoutError(), TimeIsUp, True), (MemoryError(), MemoryError, True)],
)
def test_only_a_step_that_goes_on_is_interrupted(tmp_path, error, raised, interrupted):
    """A process that is interrupted leaves no time to its libraries, such as for the semaphore of a progress bar."""
    ended = []

    def ask(*_, **__):
        raise error

    def end(interrupt=False):
        ended.append(interrupt)

    worker_ = SimpleNamespace(start=lambda: None, alive=True, ask=ask, end=end)
    with StepProcess(None, "source", tmp_path, make=lambda *_, **__: worker_) as process:
        with pytest.raises(raised):
            process.make(Step(CANDIDATES, "bad", OrtDynamic()), seconds=1.0)
        assert ended == [interrupted]
