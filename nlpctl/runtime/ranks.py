"""Rank and world size, from the environment variables of paddle.distributed.launch, and how the ranks meet."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from nlpctl.errors import RunFailed, UserError

PORT_TAKEN = "port-taken"  # a file in NLPCTL_EXCHANGE, for `launch`
RANK, WORLD_SIZE = "PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM"
WORLD = "NLPCTL_WORLD"  # the launcher's variables for the ranks of all nodes, as JSON


def rank() -> int:
    """Number of this process among all of the run, 0 in a single-process run."""
    return _number(RANK, 0)


def world_size() -> int:
    """Number of processes of the run."""
    return _number(WORLD_SIZE, 1)


def local_size() -> int:
    """Number of processes of the run on this machine."""
    return _number("PADDLE_LOCAL_SIZE", 1)


def _number(variable: str, default: int) -> int:
    """UserError if the variable holds no number."""
    text = os.environ.get(variable, "") or str(default)
    if not text.isdecimal():
        raise UserError(f"{text!r} is not the number of a process", where=variable, hint=f"unset {variable}")
    return int(text)


def is_child() -> bool:
    """True in a process that a launcher started as one of several; it must not launch again."""
    return world_size() > 1


def on_several_nodes() -> bool:
    """True in a launched process whose run has processes on other machines too."""
    return WORLD in os.environ


@contextlib.contextmanager
def meeting() -> Iterator[None]:
    """Around what lets the processes of a run meet at the port that the launcher has chosen.

    RunFailed if another program has taken it since; `launch` then starts all of them again.
    """
    try:
        yield
    except Exception as error:
        if not is_child() or "Bind network" not in str(error):
            raise
        (Path(os.environ["NLPCTL_EXCHANGE"]) / PORT_TAKEN).touch()
        message = "another program has taken the port at which the processes were to meet"
        raise RunFailed(message, hint="they start again, with another port") from None
