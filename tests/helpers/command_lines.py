"""Command lines in processes of their own, forked from one that has made the imports already.

Importing Paddle takes seconds, and hundreds of commands pay for it once. Every command still has its own working
folder, environment, standard streams and exit code, and leaves nothing behind for the next.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import warm_python

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = 300  # a command that hangs is killed, and its test fails
MARK = re.compile(r"@\[[a-z]{2}[\w.-]*[=\]]")  # of nlpctl/spelling.py; nobody is to see it
TOO_LATE = "Paddle is already imported, too late"

# Nothing is downloaded: every request is refused at once. No byte code, which would look like a file written.
ENVIRONMENT = {"HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": ""}
PATHS = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
ENVIRONMENT |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": PATHS}


@dataclass(frozen=True)
class Ended:
    """What became of a command line. `paddle`: whether it ended with Paddle imported; `seconds` of all cores; `peak`:
    memory in bytes, that of the process it was forked from included."""

    code: int
    out: str
    err: str
    paddle: bool
    seconds: float = 0.0
    peak: int = 0


class Started:
    """A command line that runs: what the tests use of subprocess.Popen, under the same names.

    Popen itself can wait for its own children alone. This process is a grandchild of another.
    """

    def __init__(self, pid: int, args: Sequence[str], pipes: Sequence[int], status: int):
        self.pid, self.args, self.returncode = pid, list(args), None
        self.seconds, self.peak = 0.0, 0
        self.stdin = open(pipes[0], "w", encoding="utf-8")
        self.stdout, self.stderr = (open(pipe, encoding="utf-8") for pipe in pipes[1:])
        self._status = open(status, encoding="utf-8")

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; negative for a signal. subprocess.TimeoutExpired after `timeout` seconds."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout)
            with self._status:
                code, seconds, peak = self._status.readline().split()
            self.returncode, self.seconds, self.peak = int(code), float(seconds), int(peak)
        return self.returncode

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, input: str = "", timeout: float | None = None) -> tuple[str, str]:
        """Write `input`, read both streams to their ends, and wait; on a timeout the process is killed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with ThreadPoolExecutor(3) as threads:
            texts = [threads.submit(stream.read) for stream in (self.stdout, self.stderr)]
            threads.submit(self._write, input)
            try:
                read = [each.result(None if deadline is None else deadline - time.monotonic()) for each in texts]
            except TimeoutError:
                self.kill()
                raise subprocess.TimeoutExpired(self.args, timeout) from None
        self.stdout.close()
        self.stderr.close()
        self.wait(60)
        for text in read:
            assert not MARK.search(text), f"a name that was not spelled (nlpctl/spelling.py): {text}"
        return read[0], read[1]

    def _write(self, text: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            with self.stdin:
                self.stdin.write(text)


class CommandLines:
    """Runs `nlpctl WORDS...` in processes forked from one server. `python`: its address for warm_python.py."""

    def __init__(self, server: socket.socket, scratch: Path, python: str):
        self._server, self._scratch, self.python = server, scratch, python

    def start(
        self, words: Sequence[str], folder: Path, env: Mapping[str, str] | None = None, paddle: Path | None = None
    ) -> Started:
        """Start in `folder`, with `env` added to the environment.

        `paddle`: a file that the process makes when it ends with Paddle imported.
        """
        job = {"words": list(words), "folder": str(folder), "env": dict(env or {}), "paddle": str(paddle or os.devnull)}
        pipes = [os.pipe() for _ in range(4)]  # standard input, output, errors, and the exit code
        ours = [pipes[0][1], *(pipe[0] for pipe in pipes[1:])]
        theirs = [pipes[0][0], *(pipe[1] for pipe in pipes[1:])]
        file = self._scratch / "job.json"
        file.write_text(json.dumps(job), encoding="utf-8")
        socket.send_fds(self._server, [os.fsencode(file)], theirs)
        for pipe in theirs:
            os.close(pipe)
        pid = int(self._server.recv(64))
        return Started(pid, ["nlpctl", *words], ours[:3], ours[3])

    def run(
        self,
        words: Sequence[str],
        folder: Path,
        stdin: str = "",
        env: Mapping[str, str] | None = None,
        timeout: float = SECONDS + 10,
    ) -> Ended:
        """Run to its end in `folder`, with `stdin` as standard input and `env` added to the environment.

        subprocess.TimeoutExpired after `timeout` seconds.
        """
        paddle = self._scratch / "paddle"
        paddle.unlink(missing_ok=True)
        started = self.start(words, folder, env, paddle)
        out, err = started.communicate(stdin, timeout)
        return Ended(started.returncode, out, err, paddle.exists(), started.seconds, started.peak)


def run_in_a_new_interpreter(words: Sequence[str], folder: Path, env: Mapping[str, str], timeout: float) -> Ended:
    """As `CommandLines.run`, but all that libraries read when they are imported is that of `env`. It takes seconds."""
    given = {name: value for name, value in os.environ.items() if name != "NLPCTL_TASKS"} | ENVIRONMENT | dict(env)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        words = [sys.executable, "-m", "nlpctl", *words]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=folder, env=given)
        late = threading.Event()
        killer = threading.Timer(timeout, lambda: (late.set(), process.kill()))
        killer.start()
        _, status, used = os.wait4(process.pid, 0)
        killer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        if late.is_set():
            raise subprocess.TimeoutExpired(words, timeout)
        for file in (out, err):
            file.seek(0)
        texts = [file.read().decode(errors="replace") for file in (out, err)]
    return Ended(process.returncode, *texts, False, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def needs_a_fresh_interpreter(ended: Ended) -> bool:
    """Whether a command with Paddle imported asks for threads, flags or cards other than those of its process."""
    return ended.code == 2 and TOO_LATE in ended.err


@contextlib.contextmanager
def command_lines(scratch: Path, *modules: str) -> Iterator[CommandLines]:
    """A CommandLines whose processes find `modules` imported; `scratch` is a folder for its own files.

    Paddle is imported as a recipe for the CPU has it imported, with nlpctl's own defaults.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, __file__, str(theirs.fileno()), str(SECONDS), *modules],
        stdin=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
        # Without what a test has made known that happens to be the first to need this process.
        env={name: value for name, value in os.environ.items() if name != "NLPCTL_TASKS"} | ENVIRONMENT,
        cwd=scratch,
    )
    theirs.close()
    try:
        ours.recv(64)  # it is ready
        yield CommandLines(ours, scratch, warm_python.address_of(process.pid))
    finally:
        ours.close()
        process.terminate()
        process.wait()


def _serve(server: socket.socket, modules: Sequence[str]) -> None:
    """One job per message: the path of its file, and four pipes. The answer is the number of the process."""
    import nlpctl  # noqa: F401  (before Paddle)

    reading: list[socket.socket] = [server]
    if any(module.startswith("paddle") for module in modules):
        from nlpctl.config.schema import RuntimeSection
        from nlpctl.runtime.process import configure_paddle, prepare_process

        configure_paddle(prepare_process(RuntimeSection(device="cpu"), seed=0), seed=0)
        if set(warm_python.IMPORTED) <= set(modules):
            address = warm_python.address_of(os.getpid())
            warm_python.use_warm_python(lambda: address)
            reading.append(warm_python.listen(address))
    for module in modules:
        importlib.import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait for the commands
    server.send(b"ready")
    while True:
        if server not in select.select(reading, [], [])[0]:
            warm_python.serve_one(reading[1])
            continue
        message, pipes, _, _ = socket.recv_fds(server, 4096, 4)
        if not message:
            return
        job = json.loads(Path(os.fsdecode(message)).read_text(encoding="utf-8"))
        if os.fork() == 0:
            _start_and_wait(server, job, pipes)
        for pipe in pipes:
            os.close(pipe)


def _start_and_wait(server: socket.socket, job: dict, pipes: Sequence[int]) -> None:
    """In a process between the server and the command, which can be waited for by its parent alone. Never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child == 0:
        server.close()
        os.close(pipes[3])
        _run(job, pipes[:3])
    for pipe in pipes[:3]:
        os.close(pipe)  # held here, the reader of the command's output would wait for two ends
    server.send(str(child).encode())
    server.close()
    _, status, used = os.wait4(child, 0)
    seconds, peak = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
    os.write(pipes[3], f"{os.waitstatus_to_exitcode(status)} {seconds:.3f} {peak}\n".encode())
    os._exit(0)


def _run(job: dict, streams: Sequence[int]) -> None:
    """In the forked process: become the command line, and never return."""
    signal.alarm(SECONDS)
    code = 99  # main() lets nothing through, not even SystemExit
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        # The streams of the server know whether its own files can seek and are terminals; these are pipes.
        sys.stdin, sys.stdout = open(0, encoding="utf-8", closefd=False), open(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = open(2, "w", buffering=1, encoding="utf-8", closefd=False)
        os.environ.update(job["env"])
        os.chdir(job["folder"])
        sys.argv = ["nlpctl", *job["words"]]
        from nlpctl.cli.app import main

        code = main()
        sys.stdout.flush()
        if "paddle" in sys.modules and job["paddle"] != os.devnull:
            Path(job["paddle"]).touch()
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()  # os._exit leaves them out, and they end the helpers that hold the run's lock
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    SECONDS = int(sys.argv[2])
    _serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[3:])
