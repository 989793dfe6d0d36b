"""Other Python processes: asked, ended, lost; Ctrl-C does not meet them unprepared."""

from __future__ import annotations

import errno
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from nlpctl.errors import RunFailed, UserError
from nlpctl.parent import python_until_parent_ends
from nlpctl.runtime import worker as module
from nlpctl.runtime.worker import Worker, call_parent, is_alive, listen_for_interrupts, run_python, undisturbed


def _serve(connection) -> None:
    connection.send("loaded")
    connection.recv()
    try:
        listen_for_interrupts()
        time.sleep(100)
    except KeyboardInterrupt:
        connection.send("told")


def test_an_interrupt_comes_when_the_process_listens(capfd):
    context = multiprocessing.get_context("spawn")
    connection, child = context.Pipe()
    process = context.Process(target=_serve, args=(child,))
    with undisturbed():
        process.start()
    os.kill(process.pid, signal.SIGINT)  # Python itself is not loaded yet
    assert connection.recv() == "loaded"
    connection.send("listen")
    assert connection.poll(60) and connection.recv() == "told"
    process.join()
    assert process.exitcode == 0 and not capfd.readouterr().err


def test_signals_are_taken_as_before_afterwards():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with undisturbed():
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("import json", ""),
        ("raise RuntimeError('first')", "RuntimeError: first"),
        ("import sys; sys.stderr.write('Error: why\\n[Hint]\\n'); sys.exit(3)", "Error: why"),
        ("import os; os.abort()", "killed by SIGABRT"),
        ("raise SystemExit(3)", "exit 3"),
    ],
)
def test_another_process_tells_how_it_failed(code, error):
    assert run_python("-c", code).failure == error


def test_a_process_that_hangs_is_given_up():
    assert run_python("-c", "import time; time.sleep(60)", seconds=0.3).failure == "no answer within 0.3 s"
    code = "print('begun', flush=True); import time; time.sleep(60)"
    assert run_python("-I", "-S", "-c", code, seconds=2).output == "begun"  # which starts in a few milliseconds


def test_what_was_started_ends_with_a_killed_parent():
    """Its standard input is a copy of the parent's, which tells when it has ended."""
    code = "import sys, time; print('begun', file=sys.stderr, flush=True); time.sleep(300)"
    reading, writing = os.pipe()
    begun, told = os.pipe()
    parent = os.fork()
    if parent == 0:
        os.close(reading)
        os.dup2(told, 2)
        subprocess.run(python_until_parent_ends("-c", code), pass_fds=[writing])
        os._exit(0)
    os.close(writing)
    assert os.read(begun, 5) == b"begun"
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    assert select.select([reading], [], [], 60)[0] and os.read(reading, 1) == b""
    for each in (reading, begun, told):
        os.close(each)


def _answering(fault=""):
    listen_for_interrupts()
    if fault:
        raise UserError(fault, "recipe.yaml")

    def answer(asked):
        print("noise of a library")
        if asked == "user":
            raise UserError("the user's", "recipe.yaml", "fix it")
        if asked == "library":
            raise EOFError("a library's own")
        if asked == "abort":
            os.abort()
        if asked == "back":
            return [call_parent(number) for number in range(3)]
        if isinstance(asked, Path):
            while not asked.exists():
                time.sleep(0.01)
            return None
        time.sleep(asked)
        return os.getpid()

    return answer


@pytest.fixture
def started():
    workers = []

    def start(*arguments, daemon=True):
        workers.append(Worker(_answering, *arguments, grace=60, daemon=daemon))
        workers[-1].start()
        return workers[-1]

    yield start
    for worker in workers:
        worker.end(interrupt=True)  # some are left in the middle of a request
        assert not worker.alive


def test_a_worker_answers_tells_errors_and_goes_on(started, capfd):
    worker = started(daemon=False)
    process = worker.ask(0, "here")
    with pytest.raises(UserError, match="recipe.yaml: the user's\n  -> fix it"):
        worker.ask("user", "here")
    with pytest.raises(RunFailed, match="here: EOFError: a library's own"):
        worker.ask("library", "here")
    assert worker.ask(0, "here") == process != os.getpid()
    worker.end()
    assert not is_alive(process) and capfd.readouterr().out == ""


def test_a_worker_that_died_or_could_not_begin(started):
    worker = started()
    for _ in range(2):
        with pytest.raises(RunFailed, match=r"here: its process ended \(killed by SIGABRT\)\n  -> try it"):
            worker.ask("abort", "here", "try it")
    with pytest.raises(UserError, match="recipe.yaml: no model"):
        started("no model").ask(0, "here")


def test_a_worker_asks_back(started):
    """In the middle of a request, as often as it likes; an error of the callback is that of who asked."""
    worker = started()
    assert worker.ask("back", "here", callback=lambda asked: asked * 10) == [0, 10, 20]
    assert worker.ask(0, "here") == worker.pid
    with pytest.raises(ZeroDivisionError):
        worker.ask("back", "here", callback=lambda asked: 1 // asked)


def test_a_full_disk_of_who_asks_is_no_end_of_the_worker(started):
    def full(content):
        raise OSError(errno.ENOSPC, "No space left on device")

    worker = started()
    with pytest.raises(OSError, match="No space left"):
        worker.ask("back", "here", callback=full)
    assert worker.alive


def test_a_worker_that_takes_too_long_is_interrupted(started):
    worker = started()
    process = worker.ask(0, "here")
    with pytest.raises(TimeoutError):
        worker.ask(60, "here", seconds=0.2)
    began = time.monotonic()
    worker.end(interrupt=True)
    assert not is_alive(process) and time.monotonic() - began < 50  # less than the grace


def test_a_worker_that_was_not_started_can_be_ended():
    Worker(_answering, grace=1, daemon=True).end()


def test_threads_that_start_processes_wait_for_each_other():
    """One that was ready first would take the variable away that keeps the current folder off the others' sys.path."""
    seen = []

    def start():
        with undisturbed():
            time.sleep(0.02)
            seen.append(os.environ.get("PYTHONSAFEPATH"))

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert None not in seen and len(seen) == 4


_LOCKED = """
import multiprocessing, os
from nlpctl.runtime.worker import Worker, child_main

def opened():
    child_main()
    lock = multiprocessing.Lock()  # as a bar of tqdm makes, or a queue to a data worker
    return lambda request: lock._semlock.name

if __name__ == "__main__":
    worker = Worker(opened, grace=60.0, daemon=True)
    worker.start()
    print(worker.ask("name", "worker"), flush=True)
    worker.end(interrupt=True)
    print(os.environ.get("PYTHONWARNINGS"))
"""


def test_what_an_interrupted_worker_leaves_is_removed_in_silence(tmp_path):
    (tmp_path / "locked.py").write_text(_LOCKED)
    environment = {**os.environ, "PYTHONPATH": str(Path(module.__file__).parents[2])}
    environment.pop("PYTHONWARNINGS", None)
    command = [sys.executable, str(tmp_path / "locked.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    name, warnings = done.stdout.split()
    assert done.returncode == 0 and not done.stderr, done.stderr  # which the remover of what is left holds to its end
    assert not Path(f"/dev/shm/sem.{name.removeprefix('/')}").exists() and warnings == "None"
