"""Paddle's own check (FLAGS_check_nan_inf) that finds the operator with a non-finite result."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import paddle

_FOUND = re.compile(r"There are NAN or INF \(num_nan=(\d+), num_inf=(\d+), .*\bop=([^,]*),")


@dataclass(frozen=True)
class NonFinite:
    """An operator whose result holds `nans` and `infinities`."""

    operator: str
    nans: int
    infinities: int


@contextlib.contextmanager
def finite_check() -> Iterator[None]:
    """In the body an operator whose result is not finite raises RuntimeError (FLAGS_check_nan_inf).

    paddlepaddle 2.6.2, phi/kernels/funcs/check_numerics_utils.h:96: beside raising, the check prints a line
    "[PRECISION] [ERROR] in ..." to standard output, where results belong; here it goes nowhere.
    Test: tests/upstream/test_finite_check.py.
    """
    before = paddle.get_flags(["FLAGS_check_nan_inf", "FLAGS_check_nan_inf_level"])
    libc = ctypes.CDLL(None)
    sys.stdout.flush()
    libc.fflush(None)
    # The check prints from C++, so sys.stdout cannot be replaced; file descriptor 1 itself has to point elsewhere.
    kept = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    paddle.set_flags({"FLAGS_check_nan_inf": True, "FLAGS_check_nan_inf_level": 0})
    try:
        yield
    finally:
        # Before the descriptor is restored: what is still buffered belongs to the check.
        paddle.set_flags(before)
        libc.fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def non_finite(error: RuntimeError) -> NonFinite | None:
    """The finding of the check that raised `error`; None if it is another error."""
    found = _FOUND.search(str(error))
    return None if found is None else NonFinite(found[3], int(found[1]), int(found[2]))
