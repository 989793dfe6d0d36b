"""The ways a command can fail, and what a failure must say.

Every message names what is wrong, where (file:line or key), and what to do next.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nlpctl.spelling import spelled

EXIT_OK = 0
EXIT_FAILED = 1  # the run failed
EXIT_USER = 2  # the recipe, flags or data are wrong
EXIT_INTERRUPTED = 130


@dataclass(frozen=True)
class Problem:
    """One problem: `where: message`, and the next step on its own line. Options are marked as in spelling.py."""

    message: str
    where: str = ""  # "file:line", "file: key", "@[option]" or ""
    hint: str = ""

    def __post_init__(self) -> None:
        for name in ("message", "where", "hint"):
            object.__setattr__(self, name, spelled(getattr(self, name)))

    def __str__(self) -> str:
        head = f"{self.where}: {self.message}" if self.where else self.message
        return f"{head}\n  -> {self.hint}" if self.hint else head


_REMEDIES = {
    errno.ENAMETOOLONG: "give a shorter name",
    errno.ENOSPC: "free space on this disk",
    errno.EDQUOT: "free space on this disk",
    errno.EROFS: "name a place that can be written",
    errno.EIO: "check the disk or network drive, which failed",
    errno.EMFILE: "allow more open files: ulimit -n",
    errno.ENOMEM: "free memory",
}


# Errors of the machine: the same again may succeed there, and other values would fail in the same way.
OF_THE_MACHINE = _REMEDIES.keys() - {errno.ENAMETOOLONG}


def of_the_machine(error: BaseException | None) -> OSError | None:
    """The error of the machine that `error` came from; None if there is none."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in OF_THE_MACHINE:
            return error
        error = error.__cause__ or error.__context__
    return None


def remedy(error: OSError | MemoryError) -> str:
    """The next step after an error of the system, for hints; where nothing is known of it, a path is wrong."""
    if isinstance(error, MemoryError):
        return _REMEDIES[errno.ENOMEM]
    return _REMEDIES.get(error.errno or 0, "check this path and its rights")


def is_failure(error: BaseException) -> bool:
    """Whether something went wrong; else somebody asked for an end. A panic of a library in Rust is no Exception."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


class NlpctlError(Exception):
    """Base of the errors that are shown as a message, never as a traceback."""

    exit_code = EXIT_FAILED

    def __init__(self, message: str = "", where: str = "", hint: str = "", *, problems: Sequence[Problem] = ()):
        self.problems = tuple(dict.fromkeys(problems)) or (Problem(message, where, hint),)  # the same is told once
        super().__init__("\n".join(str(problem) for problem in self.problems))


class UserError(NlpctlError):
    """The recipe, a flag, the data or a model folder is wrong; the user can fix it. Exit 2."""

    exit_code = EXIT_USER


class NeedsRestart(UserError):
    """This process must be started again with `variables` in its environment. The command line does that, once; the
    message is for Python code that uses nlpctl."""

    def __init__(self, message: str, where: str, hint: str, variables: Mapping[str, str]):
        super().__init__(message, where, hint)
        self.variables = variables


class RunFailed(NlpctlError):
    """The run itself failed (a lost process, a full disk). Exit 1."""

    exit_code = EXIT_FAILED


class Pruned(RunFailed):
    """A trial of a sweep was stopped, since others did better."""


class Interrupted(NlpctlError):
    """The user stopped the run (Ctrl-C or SIGTERM). Exit 130."""

    exit_code = EXIT_INTERRUPTED
