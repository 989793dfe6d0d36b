"""Detects swapped byte order by the values of an array; lengths and types in the file do not reveal it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nlpctl.errors import UserError

_LOOKED_AT = 4096
_ENOUGH = 16  # different values; fewer may look plausible the other way round by chance


def check_byte_order(file: Path, name: str, array: np.ndarray) -> None:
    """UserError when the values of a float32 or float64 array make sense with their bytes swapped, and only so.

    Weights lie between 1e-20 and 1e20. With swapped bytes the low bits of the mantissa become the exponent, so that
    about half of them do not. Of a constant, such as the 1 of a layer norm, only what is no normal number counts:
    a mask may well be -1e30.
    """
    if array.dtype.name not in ("float32", "float64"):
        return
    values = array.reshape(-1)[:_LOOKED_AT]
    values = values[values != 0]  # NaN stays
    if values.size < _ENOUGH:
        return
    # A layer norm of ones swapped is denormal throughout; any other constant could be meant.
    if len(np.unique(values)) < _ENOUGH:
        strange = bool((np.abs(values) < np.finfo(values.dtype).tiny).all())
    else:
        strange = _plausible(values) < 0.9
    if strange and _plausible(values.byteswap()) == 1.0:
        raise UserError(
            f"the byte order of {name} is swapped: its values make sense the other way round only",
            where=str(file),
            hint="write it on a little-endian machine, or swap it with NumPy: array.byteswap()",
        )


def _plausible(values: np.ndarray) -> float:
    """The share of values in the usual range of weights."""
    with np.errstate(invalid="ignore"):
        size = np.abs(values.astype(np.float64))
    return float(np.mean((size > 1e-20) & (size < 1e20)))
