"""The process that makes folders; killing it is in end_to_end/test_compress.py."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from nlpctl.compress import steps
from nlpctl.compress.steps import StepPool, TimeIsUp
from nlpctl.config.load import recipe_of_values
from nlpctl.config.schema import RuntimeSection
from nlpctl.errors import NlpctlError, UserError
from nlpctl.export.strategies import OrtDynamic, Step
from nlpctl.layout import CANDIDATES
from nlpctl.runtime import worker
from nlpctl.runtime.worker_slots import WorkerSlots


class Executor:
    def __init__(self, recipe, setup, source, output):
        self.output = output

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
        here.send((steps.make_step, (Step(CANDIDATES, name, OrtDynamic()),)))
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

    process = SimpleNamespace(name="p", start=lambda: None, alive=True, ask=ask, end=end)
    recipe = recipe_of_values({"task": "sequence_classification"})
    slots = WorkerSlots((RuntimeSection(),), False, 1.0, lambda *_, **__: process)
    with StepPool(recipe, "source", tmp_path, slots, slots._worker) as pool:
        pool.begin(Step(CANDIDATES, "bad", OrtDynamic()), seconds=1.0)
        with nullcontext() if issubclass(raised, NlpctlError) else pytest.raises(raised):
            assert isinstance(pool.wait().error, raised)
        assert ended == [interrupted]
