"""Rank and world size, from the environment variables of paddle.distributed.launch."""

from __future__ import annotations

import os


def rank() -> int:
    """Number of this process among all of the run, 0 in a single-process run."""
    return int(os.environ.get("PADDLE_TRAINER_ID", "0"))


def world_size() -> int:
    """Number of processes of the run."""
    return int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))


def local_size() -> int:
    """Number of processes of the run on this machine."""
    return int(os.environ.get("PADDLE_LOCAL_SIZE", "1"))


def is_child() -> bool:
    """True in a process that a launcher started as one of several; it must not launch again."""
    return world_size() > 1
