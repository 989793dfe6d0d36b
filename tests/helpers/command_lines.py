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
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = 300  # a command that hangs is killed, and its test fails
TOO_LATE = "Paddle is already imported, too late"
READ_AT_IMPORT = ("FLAGS_", "OMP_", "MKL_", "KMP_", "CUDA_", "PADDLE_", "GLOG_")  # beginnings of variables
SET_BY_IMPORTS = ("KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK")  # a library sets them when a test imports PaddleNLP

# Nothing is downloaded: every request is refused at once. No byte code, which would look like a file written.
ENVIRONMENT = {"HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": ""}
ENVIRONMENT |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(ROOT)}


@dataclass(frozen=True)
class Ended:
    """What became of a command line. `paddle`: whether it ended with Paddle imported."""

    code: int
    out: str
    err: str
    paddle: bool


class CommandLines:
    """Runs `nlpctl WORDS...` as a new process, one at a time."""

    def __init__(self, process: subprocess.Popen[str], scratch: Path):
        self._process, self._scratch = process, scratch

    def run(self, words: Sequence[str], folder: Path, stdin: str = "", env: Mapping[str, str] | None = None) -> Ended:
        """Run in `folder`, with `stdin` as standard input and `env` added to the environment."""
        files = {name: self._scratch / name for name in ("in", "out", "err", "paddle")}
        for file in files.values():
            file.write_text(stdin if file.name == "in" else "", encoding="utf-8")
        paths = {name: str(file) for name, file in files.items()}
        job = {"words": list(words), "folder": str(folder), "env": dict(env or {}), **paths}
        print(json.dumps(job), file=self._process.stdin, flush=True)
        code = int(self._process.stdout.readline())
        texts = {name: file.read_text(encoding="utf-8") for name, file in files.items()}
        return Ended(code, texts["out"], texts["err"], bool(texts["paddle"]))


def needs_a_fresh_interpreter(ended: Ended) -> bool:
    """Whether a command with Paddle imported asks for threads, flags or cards other than those of its process."""
    return ended.code == 2 and TOO_LATE in ended.err


def read_at_import(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that Paddle and its libraries read when they are loaded, and not again."""
    found = {name: value for name, value in environ.items() if name.startswith(READ_AT_IMPORT)}
    return {name: value for name, value in found.items() if name not in SET_BY_IMPORTS}


@contextlib.contextmanager
def command_lines(scratch: Path, *modules: str) -> Iterator[CommandLines]:
    """A CommandLines whose processes find `modules` imported; `scratch` is a folder for its own files.

    Paddle is imported as a recipe for the CPU has it imported, with nlpctl's own defaults.
    """
    process = subprocess.Popen(
        [sys.executable, __file__, *modules],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **ENVIRONMENT},
        cwd=scratch,
    )
    try:
        yield CommandLines(process, scratch)
    finally:
        process.stdin.close()
        process.terminate()  # the end of its stdin may not reach it: processes forked since hold the pipe too
        process.wait()


def _serve(modules: Sequence[str]) -> None:
    """One job per line of stdin; its exit code is the answer. Negative: killed by that signal."""
    import nlpctl  # noqa: F401  (before Paddle)

    if any(module.startswith("paddle") for module in modules):
        from nlpctl.config.schema import RuntimeSection
        from nlpctl.runtime.process import configure_paddle, prepare_process

        configure_paddle(prepare_process(RuntimeSection(device="cpu"), seed=0), seed=0)
    for module in modules:
        importlib.import_module(module)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _run(json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _run(job: dict) -> None:
    """In the forked process: become the command line, and never return."""
    signal.alarm(SECONDS)
    code = 99  # main() lets nothing through, not even SystemExit
    try:
        for number, name in enumerate(("in", "out", "err")):
            os.dup2(os.open(job[name], os.O_RDONLY if name == "in" else os.O_WRONLY | os.O_APPEND), number)
        os.environ.update(job["env"])
        os.chdir(job["folder"])
        sys.argv = ["nlpctl", *job["words"]]
        from nlpctl.cli.app import main

        code = main()
        sys.stdout.flush()
        Path(job["paddle"]).write_text("yes" if "paddle" in sys.modules else "", encoding="utf-8")
    finally:
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()  # os._exit leaves them out, and they end the helpers that hold the run's lock
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(sys.argv[1:])
