"""`nlpctl index`: an index of texts by their vectors, and the texts nearest to a query."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import faiss
import numpy as np

from nlpctl.config.dump import dump_recipe
from nlpctl.config.schema import Recipe
from nlpctl.config.sentence_folder import PASSAGE_PROMPTS, QUERY_PROMPT
from nlpctl.data.predict_input import PredictInput, open_inputs
from nlpctl.data.readers.lines import numbered_lines, refuse_surrogates
from nlpctl.data.readers.readers import no_rows
from nlpctl.data.readers.row import BadRow, BlankLine, is_bad
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.text.truncated import warn_of_truncated
from nlpctl.errors import RunFailed, UserError
from nlpctl.files import parse_json, regular, remove_dir, staged_dir
from nlpctl.formats.faiss_file import FLAT, HNSW, check_faiss
from nlpctl.formats.safe_pickle import reason_of
from nlpctl.inference.divided import vectors_divided
from nlpctl.inference.embed import embedded, require_vectors
from nlpctl.inference.index_folder import (
    BUILD_AGAIN,
    IndexKind,
    IndexManifest,
    check_model,
    is_index,
    model_files,
    read_manifest,
    write_manifest,
)
from nlpctl.inference.open_model import find_model, open_trained_model, refuse_model, set_up_to_answer
from nlpctl.inference.predict import CHUNK_BATCHES, bad_row_answer
from nlpctl.inference.shard_folder import ShardFolder
from nlpctl.layout import INDEX_TEXTS, INDEX_VECTORS, MANIFEST, RECIPE
from nlpctl.names import counted
from nlpctl.outputs import refuse_folder, refuse_foreign
from nlpctl.runtime.interrupt import sigterm_interrupts
from nlpctl.runtime.lock import sole_writer
from nlpctl.runtime.worker_slots import ParallelConfig
from nlpctl.tasks.semantic_indexing import compared, with_default_prompt

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class IndexResult:
    """The number of distinct texts, of repeated texts, of bad rows (skipped), and of texts that were cut at
    data.max_seq_length."""

    texts: int
    repeated: int
    bad_rows: int
    truncated: int


def open_texts(recipe: Recipe, names: Sequence[str], format: str) -> PredictInput:
    """The texts or queries in files ("-": standard input). UserError if the model's task has no text vectors."""
    require_vectors(recipe)
    return open_inputs(task_rows(recipe.task, recipe.data), names, format)


def build_index(
    recipe: Recipe,
    source: PredictInput,
    folder: Path,
    *,
    kind: IndexKind = "flat",
    batch_size: int = 64,
    overwrite: bool = False,
    parallel: ParallelConfig | None = None,
) -> IndexResult:
    """Index the distinct texts of `source` in `folder`, which is written atomically.

    `parallel`: the vectors are computed by several workers, and are the same. Raises UserError for a bad row (by
    data.on_bad_row) or an existing folder.
    """
    with sole_writer(folder):
        _refuse_folder(folder, overwrite)
        if parallel is None:
            return _built(recipe, source, folder, kind, batch_size)
        return _built_divided(recipe, source, folder, kind, batch_size, parallel)


def _built(recipe: Recipe, source: PredictInput, folder: Path, kind: IndexKind, batch_size: int) -> IndexResult:
    model_source = find_model(recipe)
    total = source.check() if source.rereadable else None
    passages = with_default_prompt(recipe, PASSAGE_PROMPTS)
    model = open_trained_model(passages, set_up_to_answer(recipe, model_source), model_source, batch_size, total)
    with sigterm_interrupts():
        chunks = embedded(recipe, model, source, batch_size)
        return _written(recipe, model_source, source, folder, kind, chunks)


def _built_divided(
    recipe: Recipe, source: PredictInput, folder: Path, kind: IndexKind, batch_size: int, parallel: ParallelConfig
) -> IndexResult:
    results: list[IndexResult] = []

    def finish(parts: ShardFolder, count: int) -> None:
        # An approximate index depends on how many vectors are added at a time: as many as in one process.
        rows, size = source.rows(), batch_size * CHUNK_BATCHES
        added = (part[i : i + size] for part in parts.vectors(count) for i in range(0, len(part), size))
        chunks = ((list(islice(rows, len(vectors))), vectors, 0) for vectors in added)
        results.append(_written(recipe, find_model(recipe), source, folder, kind, chunks))
        remove_dir(parts.folder)

    passages = with_default_prompt(recipe, PASSAGE_PROMPTS)
    divided = vectors_divided(passages, source, folder, batch_size, parallel, finish)
    return replace(results[0], truncated=divided.truncated)


def _written(
    recipe: Recipe,
    model_source: str,
    source: PredictInput,
    folder: Path,
    kind: IndexKind,
    chunks: Iterable[tuple[list[Any], np.ndarray, int]],
) -> IndexResult:
    """The index of rows and their vectors, given chunk by chunk as `embedded` does."""

    rows_read, bad, truncated = 0, 0, 0
    with staged_dir(folder) as staged:
        with IndexBuild(staged, kind) as build:
            for rows, vectors, truncated_rows in chunks:
                truncated += truncated_rows
                good = [place for place, row in enumerate(rows) if not isinstance(row, BadRow)]
                bad += sum(map(is_bad, rows))
                rows_read += len(good)
                build.add([rows[place].text for place in good], compared(vectors[good], recipe))
            if not rows_read:
                raise no_rows(source.name)
            texts = build.finish()
        (staged / RECIPE).write_text(dump_recipe(recipe), encoding="utf-8")
        write_manifest(staged, IndexManifest(kind, texts, build.dim, model_source, model_files(model_source)))
    return IndexResult(texts, rows_read - texts, bad, truncated)


def index_recipe(folder: str) -> Path:
    """The recipe that an index was built with. UserError if `folder` is not an index."""
    read_manifest(Path(folder))
    return Path(folder) / RECIPE


def search_index(
    recipe: Recipe, folder: Path, queries: PredictInput, *, k: int = 10, batch_size: int = 64
) -> Iterator[list[dict[str, Any]]]:
    """The `k` nearest texts of every query, in chunks: {"query", "hits": [{"text", "score", "rank"}, ...]}.

    A bad row stops the command, or its answer is {"error": ...} (data.on_bad_row: skip); a blank line has no hits.
    Raises UserError if the model is not the one that the index was built with.
    """
    manifest = read_manifest(folder)
    check_model(folder, manifest)
    refuse_model(recipe, manifest.model)
    total = queries.check() if queries.rereadable else None
    asking = with_default_prompt(recipe, (QUERY_PROMPT,))
    model = open_trained_model(asking, set_up_to_answer(recipe, manifest.model), manifest.model, batch_size, total)

    index, read, truncated = TextIndex(folder, manifest), 0, 0
    with sigterm_interrupts():
        for rows, vectors, truncated_rows in embedded(recipe, model, queries, batch_size):
            read, truncated = read + len(rows), truncated + truncated_rows
            yield [_hits(row, hits) for row, hits in zip(rows, index.search(compared(vectors, recipe), k), strict=True)]
    warn_of_truncated(recipe, truncated, read)


def _hits(row: Any, hits: list[dict[str, Any]]) -> dict[str, Any]:
    """The answer to a query."""
    if isinstance(row, BlankLine):
        return {"query": "", "hits": []}
    return bad_row_answer(row) if isinstance(row, BadRow) else {"query": row.text, "hits": hits}


def _refuse_folder(folder: Path, overwrite: bool) -> None:
    refuse_folder(folder, overwrite, "an index", is_index)
    if is_index(folder):
        refuse_foreign(folder, (MANIFEST, RECIPE, INDEX_TEXTS, INDEX_VECTORS))


# --------------------------------------------------------------------------------------------------
# Vectors of texts, searched by faiss.
#
# faiss brings its own OpenMP (libgomp) next to Paddle's (libiomp5). Both work together in either import order
# (tests/inference/test_index.py). It reads OMP_NUM_THREADS when it is imported, as Paddle does.

# HNSW (Malkov and Yashunin, 2016): links per text, and search width while building and searching.
HNSW_LINKS, HNSW_BUILD_WIDTH, HNSW_SEARCH_WIDTH = 32, 200, 128


def new_index(kind: IndexKind, dim: int) -> Any:
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
            assert isinstance(self._index, faiss.IndexHNSW), "check_faiss has read its kind"
            self._index.hnsw.efSearch = HNSW_SEARCH_WIDTH
        sizes = (self._index.ntotal, self._index.d, len(self._texts))
        if sizes != (manifest.texts, manifest.dim, manifest.texts):
            vectors, texts = counted(sizes[0], "vectors"), counted(sizes[2], "texts")
            message = f"{vectors} of width {sizes[1]} and {texts}, which differs from the manifest"
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
        hits = [(float(score), int(row)) for score, row in zip(scores, ids, strict=True) if row >= 0]
        return [
            {"text": self._texts[row], "score": round(score, 6), "rank": rank}
            for rank, (score, row) in enumerate(hits, 1)
        ]


def _text(line: bytes, number: int) -> str:
    text = parse_json(line)
    if not isinstance(text, str):
        raise ValueError(f"line {number} of its texts is no text")
    refuse_surrogates(text, f"line {number} of its texts")
    return text


# --------------------------------------------------------------------------------------------------
# An index of texts made on disk: memory does not grow with the texts, but for a byte of each.
#
# add         the texts and vectors as they come, to their files; a checksum of each text, to one of many small files
# distinct    which texts are repeated: one small file after the other is read
# finish      repeated texts leave both files
#
# An hnsw index is a graph that faiss builds in memory; its vectors are added in the portions in which they came.

BUCKETS = 64  # small files of checksums: that of 10 million texts is 4 MB
BLOCK = 4096  # vectors that are moved at a time
_RECORD = np.dtype([("key", "u1", 16), ("row", "<i8")])
_COUNT, _LENGTH = 8, -8  # places in the head of a file of faiss: of the number of vectors, and of that of their values


class IndexBuild:
    """The files of an index, in the empty folder `folder`. Use it as a context."""

    def __init__(self, folder: Path, kind: IndexKind):
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
