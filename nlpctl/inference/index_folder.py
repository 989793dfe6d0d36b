"""The folder of an index of texts: its content, and whether it still matches its model. Imports no faiss.

    index.faiss     the vectors, float32
    texts.jsonl     one text per line, as a JSON string; line i (from 0) has vector i
    recipe.yaml     the text encoding and the network
    manifest.json   kind, number and width of the vectors; the model and the SHA-256 of its files
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from nlpctl.checksums import sha256_of
from nlpctl.documents import Count, Document
from nlpctl.errors import UserError
from nlpctl.layout import INDEX_VECTORS, MANIFEST
from nlpctl.models.model_manifest import is_part, parts_of
from nlpctl.models.source import resolve_source
from nlpctl.names import differing

BUILD_AGAIN = "build it again: nlpctl index build"

IndexKind = Literal["flat", "hnsw"]


@dataclass(frozen=True)
class IndexManifest(Document):
    """manifest.json of an index, by `nlpctl index build`; a search reads it first.

    `texts`: how many; `dim`: the width of their vectors; `model`: folder or name; `model_files`: its files and their
    SHA-256.
    """

    FORMAT: ClassVar[int | None] = 1
    REPAIR: ClassVar[str] = BUILD_AGAIN

    kind: IndexKind
    texts: Count
    dim: Count
    model: str
    model_files: Mapping[str, str]


def model_files(model: str) -> dict[str, str]:
    """Name and SHA-256 of the parts of a model folder; empty for a hub model, known by its name."""
    folder = resolve_source(model).folder
    if folder is None:
        return {}
    return {path.name: sha256_of(path) for path in parts_of(folder)}


def write_manifest(folder: Path, manifest: IndexManifest) -> None:
    manifest.save(folder / MANIFEST)


def is_index(folder: Path) -> bool:
    """Whether `folder` looks like an index."""
    return (folder / MANIFEST).is_file() and (folder / INDEX_VECTORS).is_file()


def read_manifest(folder: Path) -> IndexManifest:
    """Raises UserError if `folder` is not an index, is damaged, or has another format version."""
    if not is_index(folder):
        raise UserError("this folder is not an index", where=str(folder), hint="build one: nlpctl index build")
    return IndexManifest.load(folder / MANIFEST)


def check_model(folder: Path, manifest: IndexManifest) -> None:
    """UserError if the model is missing or is not the one that the index was built with."""
    now = model_files(manifest.model)
    changed = [name for name in differing(now, manifest.model_files) if is_part(name)]  # older ones list the card
    if changed:
        raise UserError(
            f"the model {manifest.model} has changed since this index was built: {', '.join(changed)}",
            where=str(folder),
            hint=f"the vectors of two models cannot be compared; {BUILD_AGAIN}",
        )
