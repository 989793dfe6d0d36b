"""An index of texts made on disk: memory does not grow with the texts, but for a byte of each.

    add         the texts and vectors as they come, to their files; a checksum of each text, to one of many small files
    distinct    which texts are repeated: one small file after the other is read
    finish      repeated texts leave both files

An hnsw index is a graph that faiss builds in memory; its vectors are added in the portions in which they came.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from nlpctl.errors import RunFailed
from nlpctl.inference.index import new_index, save_index
from nlpctl.inference.index_folder import Kind
from nlpctl.layout import INDEX_TEXTS, INDEX_VECTORS

BUCKETS = 64  # small files of checksums: that of 10 million texts is 4 MB
BLOCK = 4096  # vectors that are moved at a time
_RECORD = np.dtype([("key", "u1", 16), ("row", "<i8")])
_COUNT, _LENGTH = 8, -8  # places in the head of a file of faiss: of the number of vectors, and of that of their values


class IndexBuild:
    """The files of an index, in the empty folder `folder`. Use it as a context."""

    def __init__(self, folder: Path, kind: Kind):
        self._folder, self._kind = folder, kind
        self.dim, self._rows, self._head = 0, 0, 0
        self._portions: list[int] = []  # how many vectors came at a time
        self._stack = ExitStack()

    def __enter__(self) -> IndexBuild:
        with ExitStack() as stack:
            self._texts = stack.enter_context((self._folder / INDEX_TEXTS).open("wb"))
            self._vectors = stack.enter_context((self._folder / INDEX_VECTORS).open("w+b"))
            self._buckets = [stack.enter_context(self._bucket(i).open("w+b")) for i in range(BUCKETS)]
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()
        for number in range(BUCKETS):
            self._bucket(number).unlink(missing_ok=True)

    def add(self, texts: Sequence[str], vectors: np.ndarray) -> None:
        """Texts, repeated ones too, with their vectors, float32 [texts, dim]."""
        if not self._portions:
            self.dim = vectors.shape[1]
            self._head = self._vectors.write(flat_head(self.dim, 0))
        self._texts.writelines(json.dumps(text, ensure_ascii=False).encode() + b"\n" for text in texts)
        self._vectors.write(np.ascontiguousarray(vectors, np.float32).data)
        self._portions.append(len(texts))
        records = np.empty(len(texts), _RECORD)
        digests = b"".join(hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts)
        records["key"] = np.frombuffer(digests, np.uint8).reshape(-1, 16)
        records["row"] = np.arange(self._rows, self._rows + len(texts))
        self._rows += len(texts)
        buckets = records["key"][:, 0] % BUCKETS
        for number in np.unique(buckets):
            self._buckets[number].write(records[buckets == number].tobytes())

    def finish(self) -> int:
        """Write the index of the distinct texts, which are counted."""
        kept = self._distinct()
        count = int(kept.sum())
        self._texts.close()
        if count < self._rows:
            self._drop_texts(kept)
        if self._kind == "flat":
            self._drop_vectors(kept, count)
            return count
        index, first = new_index(self._kind, self.dim), 0
        for portion in self._portions:
            index.add(self._read(first, portion)[kept[first : first + portion]])
            first += portion
        self._vectors.close()
        save_index(index, self._folder)
        return count

    def _distinct(self) -> np.ndarray:
        """Whether each text is the first of its kind, bool [texts]."""
        kept = np.ones(self._rows, bool)
        for bucket in self._buckets:
            bucket.seek(0)
            records = np.frombuffer(bucket.read(), _RECORD)
            low, high = np.ascontiguousarray(records["key"]).view("<u8").reshape(-1, 2).T
            order = np.lexsort((records["row"], low, high))
            same = (low[order][1:] == low[order][:-1]) & (high[order][1:] == high[order][:-1])
            kept[records["row"][order][1:][same]] = False
        return kept

    def _drop_texts(self, kept: np.ndarray) -> None:
        file = self._folder / INDEX_TEXTS
        shorter = file.with_suffix(".kept")
        with file.open("rb") as read, shorter.open("wb") as written:
            written.writelines(line for line, wanted in zip(read, kept, strict=True) if wanted)
        shorter.replace(file)

    def _drop_vectors(self, kept: np.ndarray, count: int) -> None:
        """Move the kept vectors forward over the others, and correct the head of the file."""
        place = self._head
        for first in range(0, self._rows if count < self._rows else 0, BLOCK):
            vectors = self._read(first, BLOCK)[kept[first : first + BLOCK]]
            self._vectors.seek(place)
            place += self._vectors.write(np.ascontiguousarray(vectors).data)
        self._vectors.truncate(self._head + count * self.dim * 4)
        self._vectors.seek(0)
        self._vectors.write(flat_head(self.dim, count))
        self._vectors.close()

    def _read(self, first: int, count: int) -> np.ndarray:
        """Up to `count` vectors from number `first` on."""
        self._vectors.seek(self._head + first * self.dim * 4)
        return np.frombuffer(self._vectors.read(count * self.dim * 4), np.float32).reshape(-1, self.dim)

    def _bucket(self, number: int) -> Path:
        return self._folder / f"texts-{number}"


def flat_head(dim: int, count: int) -> bytes:
    """What is before the values in the file of a flat index. RunFailed: this faiss writes it in an unknown way."""
    raw = []
    for rows in (1, 3):
        index = new_index("flat", dim)
        index.add(np.zeros((rows, dim), np.float32))
        raw.append(faiss.serialize_index(index).tobytes()[: -4 * dim * rows])
    if _with_counts(raw[0], 3, dim) != raw[1]:
        message = f"faiss {faiss.__version__} writes its files in a way that nlpctl does not know"
        raise RunFailed(message, INDEX_VECTORS, "pip install 'faiss-cpu<1.16'")
    return _with_counts(raw[0], count, dim)


def _with_counts(head: bytes, count: int, dim: int) -> bytes:
    """The head of a file with another number of vectors."""
    number, length = count.to_bytes(8, "little"), (count * dim).to_bytes(8, "little")
    return head[:_COUNT] + number + head[_COUNT + 8 : _LENGTH] + length
