"""Checks a file of faiss before faiss reads it, which trusts its numbers: a length that lies fills the memory, and a
neighbour that is not there is memory of something else.

Little-endian throughout, as faiss/impl/index_write.cpp writes it. A list is its length, uint64, and its values:

    head      IxFI (flat) or IHNf (hnsw); int32 width, int64 vectors, 16 bytes, uint8, int32 metric, 0: inner product
    of hnsw   lists: float64 probabilities, int32 links up to each level, int32 levels of each vector,
              uint64 where its links begin, int32 links; five int32: entry, highest level, three widths of searches;
              then head and values of a flat index
    values    a list of float32, vectors x width
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from nlpctl.files import regular

FLAT, HNSW = b"IxFI", b"IHNf"
_BLOCK = 1 << 22  # values that are looked at together
_MOST_LEVELS = 64  # faiss gives fewer than 32; each is a pass over all vectors
_HEAD = struct.Struct("<4siqqqbi")


def check_faiss(file: Path, kind: bytes) -> None:
    """ValueError if the file is no index of this kind (FLAT or HNSW) with the inner product, or its parts do not fit
    together. OSError: it cannot be read."""
    if regular(file).stat().st_size < _HEAD.size:
        raise ValueError("it is cut off")
    parts = _Parts(np.memmap(file, np.uint8, "r"))
    vectors, width = parts.head(kind)
    if kind == HNSW:
        _check_links(parts, vectors)
        if parts.head(FLAT) != (vectors, width):
            raise ValueError("its links and its vectors differ")
    values = parts.listed("<f4")
    if len(values) != vectors * width or parts.left:
        raise ValueError(f"it holds {len(values)} values, which are not {vectors} vectors of width {width}")
    if not all(np.isfinite(values[start : start + _BLOCK]).all() for start in range(0, len(values), _BLOCK)):
        raise ValueError("it holds values that are no numbers")


class _Parts:
    """Reads forward through the mapped file and never behind its end."""

    def __init__(self, data: np.ndarray):
        self._data, self._offset = data, 0

    @property
    def left(self) -> int:
        return len(self._data) - self._offset

    def take(self, count: int) -> np.ndarray:
        if count > self.left:
            raise ValueError(f"it is cut off: {count} bytes are claimed at byte {self._offset}, {self.left} are left")
        self._offset += count
        return self._data[self._offset - count : self._offset]

    def listed(self, dtype: str) -> np.ndarray:
        count = int.from_bytes(self.take(8).tobytes(), "little")
        return np.frombuffer(self.take(count * np.dtype(dtype).itemsize), dtype)

    def head(self, kind: bytes) -> tuple[int, int]:
        """The number of vectors and their width."""
        actual, width, vectors, _, _, _, metric = _HEAD.unpack(self.take(_HEAD.size).tobytes())
        if actual != kind:
            raise ValueError(f"it is an index of the kind {actual!r}, not {kind!r}")
        if width < 1 or vectors < 0 or metric != 0:
            raise ValueError(f"{vectors} vectors of width {width} with metric {metric}")
        return vectors, width


def _check_links(parts: _Parts, vectors: int) -> None:
    """The graph of an hnsw index: whatever a search follows leads to a vector, and to links that this one has."""
    parts.listed("<f8")
    up_to, levels, begins, links = (parts.listed(dtype) for dtype in ("<i4", "<i4", "<u8", "<i4"))
    entry, highest, _, _, beam = struct.unpack("<5i", parts.take(20).tobytes())
    if len(levels) != vectors or len(begins) != vectors + 1 or beam != 1:
        raise ValueError("the links are not those of its vectors")
    if not 0 < len(up_to) <= _MOST_LEVELS or up_to[0] != 0 or (np.diff(up_to) < 0).any():
        raise ValueError("the numbers of its links are damaged")
    if vectors == 0:
        if len(links) or entry != -1:
            raise ValueError("links without vectors")
        return
    if levels.min() < 1 or levels.max() >= len(up_to) or begins[0] != 0:
        raise ValueError("the levels of its vectors are damaged")
    if (np.diff(begins.astype(np.int64)) != up_to[levels]).any() or begins[-1] != len(links):
        raise ValueError("its links do not follow each other")
    if links.size and (links.min() < -1 or links.max() >= vectors):
        raise ValueError(f"a link leads beyond its {vectors} vectors")
    if not 0 <= entry < vectors or highest != levels.max() - 1 or levels[entry] != highest + 1:
        raise ValueError("its search begins nowhere")
    for level in range(1, int(highest) + 1):
        above = np.flatnonzero(levels > level)
        places = begins[above].astype(np.int64)[:, None] + np.arange(up_to[level], up_to[level + 1])
        reached = links[places]
        if (levels[reached[reached >= 0]] <= level).any():
            raise ValueError("a link leads to a vector of a lower level")
