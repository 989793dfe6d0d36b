"""`nlpctl index`: an index of texts by their vectors, and the texts nearest to a query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpctl.config.dump import dump_recipe
from nlpctl.config.schema import Recipe
from nlpctl.data.inputs import PredictInput, open_inputs
from nlpctl.data.readers import no_rows
from nlpctl.data.row import BadRow, BlankLine, is_bad
from nlpctl.data.task_rows import task_rows
from nlpctl.errors import UserError
from nlpctl.files import remove_dir, staged_dir
from nlpctl.inference.index_folder import (
    IndexManifest,
    Kind,
    check_model,
    is_index,
    model_files,
    read_manifest,
    write_manifest,
)
from nlpctl.layout import INDEX_TEXTS, INDEX_VECTORS, MANIFEST, RECIPE
from nlpctl.outputs import refuse_foreign, refuse_inputs, refuse_mounted, refuse_part
from nlpctl.runners.divide import vectors_divided
from nlpctl.runners.embed import embedded, require_vectors
from nlpctl.runners.open_model import find_model, open_trained_model, refuse_model, set_up_to_answer
from nlpctl.runners.predict import WINDOW_BATCHES, bad_answer
from nlpctl.runners.shard_folder import ShardFolder
from nlpctl.runners.side_by_side import Division
from nlpctl.runners.truncated import warn_of_truncated
from nlpctl.runtime.interrupt import sigterm_interrupts
from nlpctl.runtime.lock import sole_writer

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
    kind: Kind = "flat",
    batch_size: int = 64,
    overwrite: bool = False,
    division: Division | None = None,
) -> IndexResult:
    """Index the distinct texts of `source` in `folder`, which is written atomically.

    `division`: the vectors are computed by several workers, and are the same. Raises UserError for a bad row (by
    data.on_bad_row) or an existing folder.
    """
    with sole_writer(folder):
        _refuse_folder(folder, overwrite)
        if division is None:
            return _built(recipe, source, folder, kind, batch_size)
        return _built_divided(recipe, source, folder, kind, batch_size, division)


def _built(recipe: Recipe, source: PredictInput, folder: Path, kind: Kind, batch_size: int) -> IndexResult:
    model_source = find_model(recipe)
    total = source.check() if source.rereadable else None
    model = open_trained_model(recipe, set_up_to_answer(recipe, model_source), model_source, batch_size, total)
    with sigterm_interrupts():
        windows = embedded(recipe, model, source, batch_size)
        return _written(recipe, model_source, source, folder, kind, windows)


def _built_divided(
    recipe: Recipe, source: PredictInput, folder: Path, kind: Kind, batch_size: int, division: Division
) -> IndexResult:
    found: list[IndexResult] = []

    def finish(parts: ShardFolder, count: int) -> None:
        # An approximate index depends on how many vectors are added at a time: as many as in one process.
        rows, size = source.rows(), batch_size * WINDOW_BATCHES
        added = (part[i : i + size] for part in parts.vectors(count) for i in range(0, len(part), size))
        windows = ((list(islice(rows, len(vectors))), vectors, 0) for vectors in added)
        found.append(_written(recipe, find_model(recipe), source, folder, kind, windows))
        remove_dir(parts.folder)

    divided = vectors_divided(recipe, source, folder, batch_size, division, finish)
    return replace(found[0], truncated=divided.truncated)


def _written(
    recipe: Recipe,
    model_source: str,
    source: PredictInput,
    folder: Path,
    kind: Kind,
    windows: Iterable[tuple[list[Any], np.ndarray, int]],
) -> IndexResult:
    """The index of rows and their vectors, given window by window as `embedded` does."""
    from nlpctl.inference.index_build import IndexBuild

    rows_read, bad, truncated = 0, 0, 0
    with staged_dir(folder) as staged:
        with IndexBuild(staged, kind) as build:
            for rows, vectors, cut in windows:
                truncated += cut
                good = [place for place, row in enumerate(rows) if not isinstance(row, BadRow)]
                bad += sum(map(is_bad, rows))
                rows_read += len(good)
                build.add([rows[place].text for place in good], vectors[good])
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
    """The `k` nearest texts of every query, in windows: {"query", "hits": [{"text", "score", "rank"}, ...]}.

    A bad row stops the command, or its answer is {"error": ...} (data.on_bad_row: skip); a blank line has no hits.
    Raises UserError if the model is not the one that the index was built with.
    """
    manifest = read_manifest(folder)
    check_model(folder, manifest)
    refuse_model(recipe, manifest.model)
    total = queries.check() if queries.rereadable else None
    model = open_trained_model(recipe, set_up_to_answer(recipe, manifest.model), manifest.model, batch_size, total)
    from nlpctl.inference.index import TextIndex

    index, read, truncated = TextIndex(folder, manifest), 0, 0
    with sigterm_interrupts():
        for rows, vectors, cut in embedded(recipe, model, queries, batch_size):
            read, truncated = read + len(rows), truncated + cut
            yield [_hits(row, hits) for row, hits in zip(rows, index.search(vectors, k), strict=True)]
    warn_of_truncated(recipe, truncated, read)


def _hits(row: Any, hits: list[dict[str, Any]]) -> dict[str, Any]:
    """The answer to a query."""
    if isinstance(row, BlankLine):
        return {"query": "", "hits": []}
    return bad_answer(row) if isinstance(row, BadRow) else {"query": row.text, "hits": hits}


def _refuse_folder(folder: Path, overwrite: bool) -> None:
    refuse_part(folder)
    refuse_mounted(folder)
    if not folder.exists():
        return
    if not folder.is_dir() or (any(folder.iterdir()) and not is_index(folder)):
        raise UserError("this is not an index, and is not replaced", where=str(folder), hint="name another folder: -o")
    if is_index(folder):
        if not overwrite:
            raise UserError("the index exists", where=str(folder), hint="use --overwrite, or another -o FOLDER")
        refuse_inputs(folder)
        refuse_foreign(folder, (MANIFEST, RECIPE, INDEX_TEXTS, INDEX_VECTORS))
