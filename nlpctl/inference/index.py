"""Vectors of texts, searched by faiss.

faiss brings its own OpenMP (libgomp) next to Paddle's (libiomp5). Both work together in either import order
(tests/inference/test_index.py). It reads OMP_NUM_THREADS when it is imported, as Paddle does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import faiss
import numpy as np

from nlpctl.data.lines import numbered_lines, refuse_surrogates
from nlpctl.errors import UserError
from nlpctl.files import parse_json, regular
from nlpctl.formats.faiss_file import FLAT, HNSW, check_faiss
from nlpctl.formats.safe_pickle import reason_of
from nlpctl.inference.index_folder import BUILD_AGAIN, IndexManifest, Kind
from nlpctl.layout import INDEX_TEXTS, INDEX_VECTORS
from nlpctl.names import counted

# HNSW (Malkov and Yashunin, 2016): links per text, and search width while building and searching.
HNSW_LINKS, HNSW_BUILD_WIDTH, HNSW_SEARCH_WIDTH = 32, 200, 128


def new_index(kind: Kind, dim: int) -> Any:
    """An empty faiss index with the inner product, which is the cosine of unit vectors."""
    if kind == "flat":
        return faiss.IndexFlatIP(dim)
    index = faiss.IndexHNSWFlat(dim, HNSW_LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = HNSW_BUILD_WIDTH
    return index


def save_index(index: Any, folder: Path) -> None:
    faiss.write_index(index, str(folder / INDEX_VECTORS))


class TextIndex:
    """A loaded index folder."""

    def __init__(self, folder: Path, manifest: IndexManifest):
        """Raises UserError if the files do not belong together."""
        try:
            check_faiss(folder / INDEX_VECTORS, HNSW if manifest.kind == "hnsw" else FLAT)
            self._index = faiss.read_index(str(folder / INDEX_VECTORS))
            with (file := regular(folder / INDEX_TEXTS)).open("rb") as stream:
                lines = numbered_lines(stream, str(file), hint=BUILD_AGAIN)
                self._texts = [_text(line, number) for number, line in lines]
        except (OSError, RuntimeError, ValueError) as error:  # faiss raises RuntimeError
            message = f"the index cannot be read ({reason_of(error)})"
            raise UserError(message, where=str(folder), hint=BUILD_AGAIN) from None
        if manifest.kind == "hnsw":
            self._index.hnsw.efSearch = HNSW_SEARCH_WIDTH
        found = (self._index.ntotal, self._index.d, len(self._texts))
        if found != (manifest.texts, manifest.dim, manifest.texts):
            vectors, texts = counted(found[0], "vectors"), counted(found[2], "texts")
            message = f"{vectors} of width {found[1]} and {texts}, which differs from the manifest"
            raise UserError(message, where=str(folder), hint=BUILD_AGAIN)

    def search(self, vectors: np.ndarray, k: int) -> list[list[dict[str, Any]]]:
        """The `k` nearest texts (or all, if there are fewer) of each vector [n, dim], best first.

        A hit is {"text", "score", "rank"}: score is the cosine, rank counts from 1.
        """
        # faiss reads raw memory: any other type or layout would be misread.
        scores, ids = self._index.search(np.ascontiguousarray(vectors, np.float32), min(k, self._index.ntotal))
        return [self._hits(*row) for row in zip(scores, ids, strict=True)]

    def _hits(self, scores: np.ndarray, ids: np.ndarray) -> list[dict[str, Any]]:
        # HNSW may find fewer than k texts; faiss fills the rest with -1.
        found = [(float(score), int(row)) for score, row in zip(scores, ids, strict=True) if row >= 0]
        return [
            {"text": self._texts[row], "score": round(score, 6), "rank": rank}
            for rank, (score, row) in enumerate(found, 1)
        ]


def _text(line: bytes, number: int) -> str:
    text = parse_json(line)
    if not isinstance(text, str):
        raise ValueError(f"line {number} of its texts is no text")
    refuse_surrogates(text, f"line {number} of its texts")
    return text
