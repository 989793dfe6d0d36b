"""Processes that Ctrl-C does not meet unprepared."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time

from nlpctl.runtime.child import listen_for_interrupts, undisturbed


def _serve(connection) -> None:
    connection.send("loaded")
    connection.recv()
    try:
        listen_for_interrupts()
        time.sleep(20)
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
    assert connection.poll(15) and connection.recv() == "told"
    process.join()
    assert process.exitcode == 0 and not capfd.readouterr().err


def test_signals_are_taken_as_before_afterwards():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with undisturbed():
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
