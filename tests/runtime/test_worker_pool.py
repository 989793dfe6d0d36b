"""Workers that take jobs from one list, and what happens when they end."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing import util
from pathlib import Path
from typing import Any

import pytest

from nlpctl.errors import RunFailed, UserError
from nlpctl.runtime import worker_pool as module
from nlpctl.runtime.worker import ProcessEnded, Worker, listen_for_interrupts
from nlpctl.runtime.worker_pool import LocalWorker, NoRoom, WorkerPool, answering


def opened(held: str) -> Callable[[Any], Any]:
    listen_for_interrupts()
    return answering(held)


def join(held: str, text: str) -> str:
    return held + text


def die_once(held: str, file: Path) -> int:
    """Kills its process the first time; afterwards the number of the process."""
    if not file.exists():
        file.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def die(held: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuse(held: str) -> None:
    raise UserError("not this", "here.txt:7")


def hire(number: int) -> LocalWorker:
    return LocalWorker(opened, f"worker {number} ")


def test_jobs_are_done_by_those_who_are_free() -> None:
    with WorkerPool(hire, 2) as crew:
        found = sorted(crew.results((join, str(i)) for i in range(20)))
        assert [number for number, _, _ in found] == list(range(20))
        assert all(text == f"worker {worker} {number}" for number, text, worker in found)
        assert sum(share.jobs for share in crew.shares) == 20
        assert list(crew.results([(join, "again")]))[0][1].endswith("again")


def test_the_job_of_a_killed_worker_is_done_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with WorkerPool(hire, 1) as crew:
        jobs = [(join, "a"), (die_once, tmp_path / "died"), (join, "b")]
        found = {number: result for number, result, _ in crew.results(jobs)}
    assert found[0] == "worker 0 a" and found[2] == "worker 0 b" and isinstance(found[1], int)
    assert crew.shares[0].losses == 1 and "killed by SIGKILL" in capfd.readouterr().err


def test_a_job_that_kills_every_worker_ends_all() -> None:
    with pytest.raises(RunFailed, match="3 workers were lost over the same piece"), WorkerPool(hire, 2) as crew:
        list(crew.results([(die,), *[(join, "x")] * 3]))


def test_an_error_is_raised_as_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match=r"here\.txt:7: not this"), WorkerPool(hire, 2) as crew:
        list(crew.results([(join, "x"), (refuse,), (join, "y")]))
    assert "Traceback" not in capfd.readouterr().err


def slow_to_end() -> Callable[[Any], Any]:
    listen_for_interrupts()
    util.Finalize(None, time.sleep, args=(0.5,), exitpriority=1)
    return str


def test_an_interrupt_while_a_process_ends_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    worker = Worker(slow_to_end, grace=10, daemon=False)
    worker.start()
    assert worker.ask(1, "here") == "1"
    worker.line.send(None)
    time.sleep(0.25)
    worker.send_signal(signal.SIGINT)
    assert worker.code() == 0
    worker.end()
    assert "Traceback" not in capfd.readouterr().err


def test_where_there_is_no_room_others_do_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AGAIN", 0.02)
    monkeypatch.setattr(module, "MOST_WAITS", 1000)

    def only_one(number: int) -> LocalWorker:
        if number == 0:
            raise NoRoom("none here")
        return hire(number)

    with WorkerPool(only_one, 2) as crew:
        assert {worker for _, _, worker in crew.results((join, str(i)) for i in range(5))} == {1}
    monkeypatch.setattr(module, "MOST_WAITS", 3)
    with pytest.raises(NoRoom, match="none here"), WorkerPool(only_one, 1) as crew:
        list(crew.results([(join, "x")]))


def test_others_wait_for_room_as_long_as_one_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long its job takes; when it is lost, they are asked for as often as at the beginning."""
    monkeypatch.setattr(module, "_AGAIN", 0.01)
    monkeypatch.setattr(module, "MOST_WAITS", 20)
    asked = []

    class Lost:
        def ask(self, job: Any) -> Any:
            if len(asked) == 1:
                time.sleep(0.6)  # the other worker is asked for some sixty times
                raise ProcessEnded("its node is gone")
            return "done"

        def end(self, interrupt: bool) -> None:
            pass

    def room_again_later(number: int) -> Lost:
        if number or (asked and time.monotonic() - asked[0] < 0.65):
            raise NoRoom("none here")
        asked.append(time.monotonic())
        return Lost()

    with WorkerPool(room_again_later, 2) as crew:
        assert [result for _, result, _ in crew.results([(join, "x"), (join, "y")])] == ["done", "done"]


class Unplaced:
    """Lost its place in the middle of its first job."""

    def __init__(self, asked: list[int]):
        self._asked = asked

    def ask(self, job: Any) -> int:
        self._asked.append(len(self._asked))
        if len(self._asked) == 1:
            raise NoRoom("none here")
        return len(self._asked)

    def end(self, interrupt: bool) -> None:
        pass


def test_a_worker_without_a_place_is_hired_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AGAIN", 0.02)
    asked: list[int] = []
    hired: list[int] = []

    def hire_one(number: int) -> Unplaced:
        hired.append(number)
        return Unplaced(asked)

    with WorkerPool(hire_one, 1) as crew:
        assert [result for _, result, _ in crew.results([(join, "x")])] == [2]
    assert hired == [0, 0]


class Slow:
    """Ends once all were asked to end."""

    def __init__(self, number: int, begun: threading.Barrier, asked: threading.Barrier):
        self._number, self._begun, self._asked, self._over = number, begun, asked, threading.Event()

    def ask(self, job: Any) -> None:
        self._begun.wait(10)
        if self._number == 0:
            raise UserError("not this")
        self._over.wait(20)

    def end(self, interrupt: bool) -> None:
        if interrupt:
            self._asked.wait(10)
        self._over.set()


def test_all_are_asked_to_end_before_one_is_waited_for() -> None:
    begun, asked = threading.Barrier(4), threading.Barrier(4)
    with pytest.raises(UserError, match="not this"), WorkerPool(lambda number: Slow(number, begun, asked), 4) as crew:
        list(crew.results([(join, "x")] * 4))
    assert not asked.broken
