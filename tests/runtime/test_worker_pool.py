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

from nlpctl.errors import EXIT_INTERRUPTED, RunFailed, UserError
from nlpctl.runtime import worker_pool as module
from nlpctl.runtime.worker import (
    NoRoom,
    ProcessEnded,
    Worker,
    WorkerLost,
    call_parent,
    child_main,
    is_alive,
    listen_for_interrupts,
)
from nlpctl.runtime.worker_pool import Job, WorkerPool, answering


def opened(held: str, log: Path | None = None) -> Callable[[Any], Any]:
    child_main(log)
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


def process(held: str) -> int:
    return os.getpid()


def refuse(held: str) -> None:
    raise UserError("not this", "here.txt:7")


def sleep(held: str, seconds: float, begun: Path | None = None) -> None:
    if begun is not None:
        begun.write_text(str(os.getpid()))
    time.sleep(seconds)


def wait_for(held: str, file: Path) -> None:
    while not file.exists():
        time.sleep(0.01)


def ask_twice(held: str) -> list[Any]:
    print("said on standard output")
    return [call_parent(1), call_parent(2)]


def make(number: int) -> Worker:
    return Worker(opened, f"worker {number} ", grace=5.0, daemon=True)


def test_jobs_are_done_by_those_who_are_free() -> None:
    with WorkerPool(make, 2) as pool:
        found = sorted(pool.results((join, str(i)) for i in range(20)))
        assert [number for number, _, _ in found] == list(range(20))
        assert all(text == f"worker {worker} {number}" for number, text, worker in found)
        assert sum(each.jobs for each in pool.stats) == 20
        assert list(pool.results([(join, "again")]))[0][1].endswith("again")


def test_jobs_one_by_one() -> None:
    """Each keeps its result, or its error; after an error the next job has another process."""
    with WorkerPool(make, 1) as pool:
        first, wrong, last = Job(process), Job(refuse), Job(process)
        for job in (first, wrong, last):
            pool.submit(job)
        assert pool.open_jobs == (first, wrong, last) and pool.size == 1
        assert [pool.next_ended() for _ in range(3)] == [first, wrong, last] and pool.open_jobs == ()
        assert isinstance(wrong.error, UserError) and first.error is None is last.error
        assert first.value != last.value and not is_alive(first.value) and first.seconds > 0 == first.losses


def test_a_job_may_have_a_process_of_its_own() -> None:
    with WorkerPool(make, 1) as pool:
        jobs = [Job(process), Job(process, own_process=True), Job(process), Job(process)]
        for job in jobs:
            pool.submit(job)
            pool.next_ended()
        one, own, two, again = (job.value for job in jobs)
        assert len({one, own, two}) == 3 and two == again and not is_alive(one) and not is_alive(own)


def test_a_job_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    with WorkerPool(make, 1) as pool:
        assert list(pool.results([(join, "x")]))  # the process is there
        late = Job(sleep, (60.0, tmp_path / "begun"), deadline=time.monotonic() + 2.0)
        pool.submit(late)
        assert isinstance(pool.next_ended().error, TimeoutError)
        assert not is_alive(int((tmp_path / "begun").read_text()))
        assert list(pool.results([(join, "x")])) == [(0, "worker 0 x", 0)]


def test_a_job_is_killed_wherever_it_is(tmp_path: Path) -> None:
    """At work, or waiting for it; neither is done again."""
    begun = tmp_path / "begun"
    with WorkerPool(make, 1) as pool:
        working, waiting = Job(sleep, (60.0, begun)), Job(sleep, (60.0, tmp_path / "never"))
        pool.submit(working)
        pool.submit(waiting)
        while not begun.exists():
            time.sleep(0.01)
        pool.kill(waiting)
        pool.kill(working)
        assert [pool.next_ended(), pool.next_ended()] == [working, waiting]
        assert isinstance(working.error, ProcessEnded) and isinstance(waiting.error, ProcessEnded)
        assert not (tmp_path / "never").exists() and list(pool.results([(join, "x")])) == [(0, "worker 0 x", 0)]


def test_a_job_asks_back(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    with WorkerPool(lambda number: Worker(opened, "", log, grace=5.0, daemon=True), 1) as pool:
        asking = Job(ask_twice, answer=lambda asked: asked * 10)
        pool.submit(asking)
        assert pool.next_ended().value == [10, 20]
    assert "said on standard output" in log.read_text()


def test_the_job_of_a_killed_worker_is_done_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with WorkerPool(make, 1) as pool:
        jobs = [(join, "a"), (die_once, tmp_path / "died"), (join, "b")]
        found = {number: result for number, result, _ in pool.results(jobs)}
    assert found[0] == "worker 0 a" and found[2] == "worker 0 b" and isinstance(found[1], int)
    assert pool.stats[0].losses == 1
    told = "worker 0 was lost (its process ended (killed by SIGKILL)); another one takes its place"
    assert told in capfd.readouterr().err


def test_a_worker_that_ends_between_two_jobs_is_no_loss_of_the_next(capfd: pytest.CaptureFixture[str]) -> None:
    """Also where a loss is the job's error at once."""
    with WorkerPool(make, 1, retried=WorkerLost) as pool:
        ((_, idle, _),) = pool.results([(process,)])
        os.kill(idle, signal.SIGKILL)
        while is_alive(idle):
            time.sleep(0.01)
        job = Job(join, ("x",), "this")
        pool.submit(job)
        assert pool.next_ended().value == "worker 0 x" and job.losses == 0
    assert pool.stats[0].losses == 1 and "this: its process ended" in capfd.readouterr().err


def test_a_job_that_kills_every_worker_ends_all() -> None:
    with pytest.raises(RunFailed, match="3 workers were lost over the same piece"), WorkerPool(make, 2) as pool:
        list(pool.results([(die,), *[(join, "x")] * 3]))


def test_only_some_losses_are_worth_another_worker() -> None:
    with WorkerPool(make, 1, retried=WorkerLost) as pool:
        job = Job(die, name="this", where="log")
        pool.submit(job)
        assert pool.next_ended() is job and job.losses == 1
        assert isinstance(job.error, ProcessEnded) and str(job.error).startswith("log: its process ended")


def test_an_error_is_raised_as_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match=r"here\.txt:7: not this"), WorkerPool(make, 2) as pool:
        list(pool.results([(join, "x"), (refuse,), (join, "y")]))
    assert "Traceback" not in capfd.readouterr().err


def test_ctrl_c_ends_a_job_at_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), WorkerPool(make, 2) as pool:
        for number in range(2):
            pool.submit(Job(sleep, (600.0, tmp_path / str(number))))
        while not all((tmp_path / str(number)).exists() for number in range(2)):
            time.sleep(0.01)
        raise KeyboardInterrupt
    assert time.monotonic() - began < 60 and capfd.readouterr().err == ""


@pytest.mark.parametrize("when", ["make", "start"])
def test_ctrl_c_while_a_process_starts_ends_it(when: str) -> None:
    """Whatever the worker's thread does meanwhile, no job is begun."""
    stopping, made = threading.Event(), []

    class Slow(Worker):
        def start(self) -> None:
            if when == "start":
                stopped()
            super().start()

    def stopped() -> None:
        stopping.set()
        while not pool._stopped.is_set():
            time.sleep(0.01)
        time.sleep(0.1)  # the pool has interrupted all processes that it knew of

    def slow(number: int) -> Slow:
        if when == "make":
            stopped()
        made.append(Slow(opened, "", grace=5.0, daemon=True))
        return made[-1]

    pool = WorkerPool(slow, 1)
    with pytest.raises(KeyboardInterrupt), pool:
        pool.submit(Job(sleep, (60.0,)))
        assert stopping.wait(60)
        raise KeyboardInterrupt
    assert not made[0].alive and made[0].code() == EXIT_INTERRUPTED


def slow_to_end(folder: Path) -> Callable[[Any], Any]:
    listen_for_interrupts()

    def end() -> None:
        (folder / "ending").touch()
        wait_for("", folder / "interrupted")

    util.Finalize(None, end, exitpriority=1)
    return str


def test_an_interrupt_while_a_process_ends_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    worker = Worker(slow_to_end, tmp_path, grace=60, daemon=False)
    worker.start()
    assert worker.ask(1, "here") == "1"
    worker.channel.send(None)
    wait_for("", tmp_path / "ending")
    worker.send_signal(signal.SIGINT)
    (tmp_path / "interrupted").touch()
    assert worker.code() == 0
    worker.end()
    assert "Traceback" not in capfd.readouterr().err


class Elsewhere:
    """A process that is none. `does`: called for each request; `starts`: for its start."""

    name, alive = "a worker of the cluster", True

    def __init__(self, does: Callable[[], Any], starts: Callable[[], None] = lambda: None):
        self._does, self._starts = does, starts

    def start(self) -> None:
        self._starts()

    def ask(self, *request: Any) -> Any:
        return self._does()

    def end(self, interrupt: bool = False) -> None:
        pass


def no_room() -> None:
    raise NoRoom("none here")


def test_where_there_is_no_room_others_do_the_work(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "_AGAIN", 0.02)
    monkeypatch.setattr(module, "MOST_WAITS", 1000)

    def only_one(number: int) -> Any:
        return Elsewhere(str, no_room) if number == 0 else make(number)

    with WorkerPool(only_one, 2) as pool:
        assert {worker for _, _, worker in pool.results((join, str(i)) for i in range(5))} == {1}
    monkeypatch.setattr(module, "MOST_WAITS", 3)
    with pytest.raises(NoRoom, match="none here"), WorkerPool(only_one, 1) as pool:
        list(pool.results([(join, "x")]))
    assert "worker 0: none here; it is asked for again" in capfd.readouterr().err


def test_two_that_are_asked_for_at_once_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for room for a while, in which the other one is no worker either."""
    monkeypatch.setattr(module, "_AGAIN", 0.01)
    monkeypatch.setattr(module, "MOST_WAITS", 5)

    def full() -> None:
        time.sleep(0.05)
        no_room()

    with pytest.raises(NoRoom, match="none here"), WorkerPool(lambda _: Elsewhere(str, full), 2) as pool:
        list(pool.results([(join, "x"), (join, "y")]))


def test_others_wait_for_room_as_long_as_one_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long its job takes; when it is lost, they are asked for as often as at the beginning."""
    monkeypatch.setattr(module, "_AGAIN", 0.01)
    monkeypatch.setattr(module, "MOST_WAITS", 20)
    begun: list[float] = []

    def lost_once() -> str:
        if len(begun) == 1:
            time.sleep(0.6)  # the other worker is asked for some sixty times
            raise ProcessEnded("its node is gone")
        return "done"

    def room_for_one(number: int) -> Elsewhere:
        def start() -> None:
            if number or (begun and time.monotonic() - begun[0] < 0.65):
                no_room()
            begun.append(time.monotonic())

        return Elsewhere(lost_once, start)

    with WorkerPool(room_for_one, 2) as pool:
        assert [result for _, result, _ in pool.results([(join, "x"), (join, "y")])] == ["done", "done"]


def test_all_are_asked_to_end_before_one_is_waited_for() -> None:
    begun, asked = threading.Barrier(4), threading.Barrier(3)

    class Slow(Elsewhere):
        """Ends once all that still work were asked to."""

        def __init__(self, number: int):
            super().__init__(lambda: self.work(number))
            self.over = threading.Event()

        def work(self, number: int) -> None:
            begun.wait(60)
            if number == 0:
                raise UserError("not this")
            self.over.wait(120)

        def end(self, interrupt: bool = False) -> None:
            if interrupt:
                asked.wait(60)
            self.over.set()

    with pytest.raises(UserError, match="not this"), WorkerPool(Slow, 4) as pool:
        list(pool.results([(join, "x")] * 4))
    assert not asked.broken
