"""Writing an array to a .npy file in constant memory, with an unknown number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

import numpy as np


class ArrayFile:
    """An array [rows, *shape] in NumPy's format, written row by row into an empty binary stream.

    NumPy pads the header so that the number of rows can grow in place: it is written first with none, and
    again by `finish`.
    """

    def __init__(self, stream: BinaryIO, shape: Sequence[int], dtype: np.dtype | type):
        """`shape`: of one row."""
        self.stream = stream
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self.rows = 0
        self._start = self._write_header()

    def append(self, rows: np.ndarray) -> None:
        """Add rows [n, *shape]."""
        if rows.shape[1:] != self.shape:
            raise ValueError(f"rows of shape {list(rows.shape[1:])} in a file of {list(self.shape)}")
        self.stream.write(np.ascontiguousarray(rows, self.dtype).tobytes())
        self.rows += len(rows)

    def finish(self) -> None:
        """Write the number of rows into the header."""
        self.stream.seek(0)
        if self._write_header() != self._start:
            raise ValueError("the header of the .npy file grew over its first row")

    def _write_header(self) -> int:
        """Write the header for the rows so far; returns the offset of the first row."""
        header = {
            "descr": np.lib.format.dtype_to_descr(self.dtype),
            "fortran_order": False,
            "shape": (self.rows, *self.shape),
        }
        np.lib.format.write_array_header_1_0(self.stream, header)
        return self.stream.tell()
