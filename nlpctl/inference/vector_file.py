"""Writing vectors to a .npy file in constant memory, without knowing beforehand how many there are."""

from __future__ import annotations

from typing import BinaryIO

import numpy as np


class VectorFile:
    """A float32 array [rows, dim] in NumPy's format, written row by row into an empty binary stream.

    NumPy pads the header so that the number of rows can grow in place: it is written first with none, and
    again by `finish`.
    """

    def __init__(self, stream: BinaryIO, dim: int):
        self.stream = stream
        self.dim = dim
        self.rows = 0
        self._start = self._write_header()

    def append(self, vectors: np.ndarray) -> None:
        """Add vectors [n, dim]."""
        if vectors.ndim != 2 or vectors.shape[1] != self.dim:
            raise ValueError(f"vectors of shape {list(vectors.shape)} in a file of width {self.dim}")
        self.stream.write(np.ascontiguousarray(vectors, np.float32).tobytes())
        self.rows += len(vectors)

    def finish(self) -> None:
        """Write the number of rows into the header."""
        self.stream.seek(0)
        if self._write_header() != self._start:
            raise ValueError("the header of the .npy file grew over its first row")

    def _write_header(self) -> int:
        """The header for the rows so far; returns where the first row begins."""
        header = {"descr": "<f4", "fortran_order": False, "shape": (self.rows, self.dim)}
        np.lib.format.write_array_header_1_0(self.stream, header)
        return self.stream.tell()
