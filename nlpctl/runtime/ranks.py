"""Rank and world size, from the environment variables of paddle.distributed.launch."""

from __future__ import annotations

import os

from nlpctl.errors import UserError

RANK, WORLD_SIZE = "PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM"


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
