"""The start of one rank: `python -m nlpctl.launch.rank_main PROGRAM...` runs `python PROGRAM...` in place.

It adds a log per rank (rank 0's stdout goes to the pipe that `launch` reads), files with process id and exit code for
`launch`, and termination together with the launcher.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from pathlib import Path

from nlpctl.parent import die_with_parent
from nlpctl.runtime.ranks import EXCHANGE, rank


def main() -> None:
    die_with_parent(int(os.environ["NLPCTL_PARENT"]))
    exchange = Path(os.environ[EXCHANGE])
    _open_log(exchange)
    _leave(exchange / f"{rank()}.pid", os.getpid())
    _mend_environment()
    code = _run(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    _leave(exchange / f"{rank()}.exit", code)
    sys.exit(code)


def _run(program: list[str]) -> int:
    """Run `-m module args...` or `script.py args...` as Python would; returns the exit code."""
    try:
        if program[0] == "-m":
            sys.argv = program[1:]
            runpy.run_module(program[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = program
            runpy.run_path(program[0], run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _open_log(exchange: Path) -> None:
    """Redirect stderr (and stdout, except for rank 0) to this rank's log."""
    log = Path(os.environ["NLPCTL_LOG_DIR"]) / f"rank-{rank()}.log"
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(handle, 2)
    os.dup2(os.open(exchange / "stdout", os.O_WRONLY) if rank() == 0 else handle, 1)
    # Python's streams cached whether the old files are seekable; the new ones may differ.
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)


def _mend_environment() -> None:
    """Undo changes of the environment by Paddle's launcher."""
    for name in ("http_proxy", "https_proxy"):  # the launcher removes proxies, which downloads need
        if f"NLPCTL_{name}" in os.environ:
            os.environ[name] = os.environ[f"NLPCTL_{name}"]
    if os.environ["NLPCTL_ON_CPU"] == "1":  # its GPU numbers are placeholders
        os.environ.pop("FLAGS_selected_gpus", None)
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def _leave(path: Path, number: int) -> None:
    staged = path.with_suffix(".new")
    staged.write_text(str(number), encoding="ascii")
    staged.rename(path)


if __name__ == "__main__":
    main()
