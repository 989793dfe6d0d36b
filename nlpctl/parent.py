"""Processes that end with the process that started them, also after SIGKILL, when no code of that one runs any more.

    python parent.py PARENT ARGUMENTS...     `python ARGUMENTS...`, which the kernel ends with the process PARENT
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

# A new Python would look in the current folder first, even for json: in a stranger's folder, for a json.py of his. An
# option and no variable, which processes of the user's own code would inherit, and then miss the modules beside their
# scripts. Python 3.10 does not know it.
SAFE_PATH = ("-P",) if sys.version_info >= (3, 11) else ()
_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when the thread of `parent` that started it ends (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the call
        os._exit(1)


def python_until_parent_ends(*arguments: str) -> list[str]:
    """The command line of `python ARGUMENTS`, in a process that ends with this one.

    The new process sees to it itself. A preexec_fn would run Python between fork and exec, beside locks that threads of
    this process may have held, and would have the system copy the tables of all its memory.
    """
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *arguments]


def main(argv: Sequence[str]) -> None:
    die_with_parent(int(argv[0]))
    os.execv(sys.executable, [sys.executable, *SAFE_PATH, *argv[1:]])  # which keeps what the kernel was asked


if __name__ == "__main__":
    main(sys.argv[1:])
