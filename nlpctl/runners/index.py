"""`nlpctl index`: an index of texts by their vectors, and the texts nearest to a query."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nlpctl.config.dump import dump_recipe
from nlpctl.config.schema import Recipe
from nlpctl.data.inputs import PredictInput, open_input
from nlpctl.data.readers import no_rows
from nlpctl.data.row import BadRow
from nlpctl.data.task_rows import task_rows
from nlpctl.errors import UserError
from nlpctl.files import staged_dir
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
from nlpctl.outputs import refuse_foreign, refuse_part
from nlpctl.runners.embed import embedded, require_vectors
from nlpctl.runners.open_model import find_model, open_trained_model, refuse_model, set_up_to_answer
from nlpctl.runners.predict import bad_answer
from nlpctl.runtime.interrupt import sigterm_interrupts
from nlpctl.runtime.lock import sole_writer


@dataclass(frozen=True)
class IndexResult:
    """The number of distinct texts, of repeated texts, and of bad rows (skipped)."""

    texts: int
    repeated: int
    bad_rows: int


def open_texts(recipe: Recipe, path: str, format: str) -> PredictInput:
    """The texts or queries in a file ("-": standard input). UserError if the model's task has no text vectors."""
    require_vectors(recipe)
    return open_input(task_rows(recipe.task, recipe.data), path, format)


def build_index(
    recipe: Recipe,
    source: PredictInput,
    folder: Path,
    *,
    kind: Kind = "flat",
    batch_size: int = 64,
    overwrite: bool = False,
) -> IndexResult:
    """Index the distinct texts of `source` in `folder`, which is written atomically.

    Raises UserError for a bad row (by data.on_bad_row) or an existing folder.
    """
    with sole_writer(folder):
        _refuse_folder(folder, overwrite)
        return _build(recipe, source, folder, kind, batch_size)


def _build(recipe: Recipe, source: PredictInput, folder: Path, kind: Kind, batch_size: int) -> IndexResult:
    model_source = find_model(recipe)
    total = source.check() if source.rereadable else None
    model = open_trained_model(recipe, set_up_to_answer(recipe, model_source), model_source, batch_size, total)
    from nlpctl.inference.index import new_index, save_index

    index, seen, repeated, bad = None, set(), 0, 0
    with sigterm_interrupts(), staged_dir(folder) as staged:
        with (staged / INDEX_TEXTS).open("w", encoding="utf-8") as stream:
            for rows, vectors in embedded(recipe, model, source, batch_size):
                new = []
                for place, row in enumerate(rows):
                    if isinstance(row, BadRow):
                        bad += 1
                        continue
                    key = hashlib.blake2b(row.text.encode(), digest_size=16).digest()
                    if key in seen:
                        repeated += 1
                        continue
                    seen.add(key)
                    new.append(place)
                    stream.write(json.dumps(row.text, ensure_ascii=False) + "\n")
                index = new_index(kind, vectors.shape[1]) if index is None else index
                index.add(vectors[new])
        if not seen:
            raise no_rows(source.name)
        save_index(index, staged)
        (staged / RECIPE).write_text(dump_recipe(recipe), encoding="utf-8")
        manifest = IndexManifest(kind, len(seen), index.d, model_source, model_files(model_source))
        write_manifest(staged, manifest)
    return IndexResult(len(seen), repeated, bad)


def index_recipe(folder: str) -> Path:
    """The recipe that an index was built with. UserError if `folder` is not an index."""
    read_manifest(Path(folder))
    return Path(folder) / RECIPE


def search_index(
    recipe: Recipe, folder: Path, queries: PredictInput, *, k: int = 10, batch_size: int = 64
) -> Iterator[list[dict[str, Any]]]:
    """The `k` nearest texts of every query, in windows: {"query", "hits": [{"text", "score", "rank"}, ...]}.

    A bad row stops the command, or its answer is {"error": ...} (data.on_bad_row: skip). Raises UserError if the model
    is not the one that the index was built with.
    """
    manifest = read_manifest(folder)
    check_model(folder, manifest)
    refuse_model(recipe, manifest.model)
    total = queries.check() if queries.rereadable else None
    model = open_trained_model(recipe, set_up_to_answer(recipe, manifest.model), manifest.model, batch_size, total)
    from nlpctl.inference.index import TextIndex

    index = TextIndex(folder, manifest)
    with sigterm_interrupts():
        for rows, vectors in embedded(recipe, model, queries, batch_size):
            yield [
                bad_answer(row) if isinstance(row, BadRow) else {"query": row.text, "hits": hits}
                for row, hits in zip(rows, index.search(vectors, k), strict=True)
            ]


def _refuse_folder(folder: Path, overwrite: bool) -> None:
    refuse_part(folder)
    if not folder.exists():
        return
    if not folder.is_dir() or (any(folder.iterdir()) and not is_index(folder)):
        raise UserError("this is not an index, and is not replaced", where=str(folder), hint="name another folder: -o")
    if is_index(folder):
        if not overwrite:
            raise UserError("the index exists", where=str(folder), hint="use --overwrite, or another -o FOLDER")
        refuse_foreign(folder, (MANIFEST, RECIPE, INDEX_TEXTS, INDEX_VECTORS))
