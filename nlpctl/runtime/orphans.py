"""No process outlives the one that started it, however that one ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when process `parent`, which started it, is gone (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it went before we asked
        os._exit(1)


def is_alive(process: int) -> bool:
    """Whether `process` still runs; one that ended but was not waited for yet does not."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as stream:
            return stream.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def signal_group(process: int, number: signal.Signals) -> None:
    """Send `number` to the process group that `process` leads, its workers included; none left is no error."""
    try:
        os.killpg(process, number)
    except ProcessLookupError:
        pass
