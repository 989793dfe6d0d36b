"""`run_python` for modules of nlpctl that a command runs in a process of its own, forked from one with Paddle imported.

Every export converts and times its graphs in such processes, and each would import Paddle first, which takes longer
than its work. What a process reads when it imports Paddle, its environment, is the same, or it gets a new interpreter.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping

from nlpctl.runtime import worker
from nlpctl.runtime.worker import Answer

MODULES = ("nlpctl.graphs.onnx_process", "nlpctl.engines.speeds")
IMPORTED = (*MODULES, "paddle2onnx", "onnx", "nlpctl.engines.samples")  # what a server of these has imported
READ_AT_IMPORT = ("FLAGS_", "OMP_", "MKL_", "KMP_", "CUDA_", "PADDLE_", "GLOG_")  # beginnings of variables
SET_BY_IMPORTS = ("KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK")  # a library sets them when a test imports PaddleNLP

new_interpreter = worker.run_python


def read_at_import(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that Paddle and its libraries read when they are loaded, and not again."""
    found = {name: value for name, value in environ.items() if name.startswith(READ_AT_IMPORT)}
    return {name: value for name, value in found.items() if name not in SET_BY_IMPORTS}


def use_warm_python(address: Callable[[], str]) -> None:
    """From now on `run_python` asks the process at `address()` to fork, for MODULES. Before they are imported, by which
    `run_python` becomes theirs."""

    def run_python(*arguments: str, environ: dict[str, str] | None = None, seconds: float | None = None) -> Answer:
        if arguments[:1] == ("-m",) and arguments[1] in MODULES:
            answer = _ask(address(), arguments[1:], {**os.environ, **(environ or {})}, seconds)
            if answer is not None:
                return answer
        return new_interpreter(*arguments, environ=environ, seconds=seconds)

    worker.run_python = run_python


def _ask(address: str, words: tuple[str, ...], env: Mapping[str, str], seconds: float | None) -> Answer | None:
    """None: its environment was another one when it imported Paddle."""
    job = {"words": words, "folder": os.getcwd(), "env": dict(env), "paths": sys.path}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server, contextlib.ExitStack() as stack:
        files = [os.memfd_create(name) for name in ("job", "stdout", "stderr")]
        for file in files:
            stack.callback(os.close, file)
        os.pwrite(files[0], json.dumps(job).encode(), 0)
        server.connect(address)
        socket.send_fds(server, [b"run"], files)
        server.settimeout(seconds)
        try:
            said = server.recv(64)
        except TimeoutError:
            said = b"late"
        if said == b"no":
            return None
        output, errors = (os.pread(file, 1 << 26, 0).decode("utf-8", errors="replace").strip() for file in files[1:])
        if said == b"late":  # closing the connection ends the process
            return Answer(output, f"no answer within {seconds:g} s", None)
        return Answer(output, errors, int(said))


def address_of(pid: int) -> str:
    """Of a socket that is no file, and needs no short path."""
    return f"\0nlpctl-tests-{pid}"


def listen(address: str) -> socket.socket:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.bind(address)
    server.listen(16)
    return server


def serve_one(listening: socket.socket) -> None:
    """Fork a process for the next request, and another one between that ends it with who asks."""
    asking, _ = listening.accept()
    with asking:
        if os.fork() == 0:
            listening.close()
            _attend(asking)


def _attend(asking: socket.socket) -> None:
    """Never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with contextlib.suppress(OSError):
        _, files, _, _ = socket.recv_fds(asking, 64, 3)
        job = json.loads(os.pread(files[0], 1 << 26, 0))
        if read_at_import(job["env"]) != read_at_import(os.environ):
            asking.send(b"no")
            os._exit(0)
        child = os.fork()
        if child == 0:
            asking.close()
            _run(job, files[1:])
        select.select([asking, ended := os.pidfd_open(child)], [], [])
        if not select.select([ended], [], [], 0)[0]:
            os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        asking.send(str(code).encode())
    os._exit(0)


def _run(job: dict, streams: list[int]) -> None:
    """As `python -m`. Never returns."""
    code = 1
    try:
        null = os.open(os.devnull, os.O_RDONLY)
        for number, stream in enumerate((null, *streams)):
            os.dup2(stream, number)
        sys.stdin, sys.stdout = open(0, encoding="utf-8", closefd=False), open(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = open(2, "w", buffering=1, encoding="utf-8", closefd=False)
        os.environ.clear()
        os.environ.update(job["env"])
        os.chdir(job["folder"])
        sys.path[:], sys.argv = job["paths"], list(job["words"])
        sys.modules.pop(job["words"][0])
        with warnings.catch_warnings():
            runpy.run_module(job["words"][0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as left:
        if left.code is not None and not isinstance(left.code, int):
            print(left.code, file=sys.stderr)
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
