"""The cache key of a score: everything that the score of a compressed export depends on. If it changes, scoring
repeats."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpctl.config.own_code import module_file
from nlpctl.config.paths import dataset_files
from nlpctl.config.schema import Recipe
from nlpctl.data.open_split import files_of
from nlpctl.files import read_json, sha256_of
from nlpctl.layout import EXPORT_MANIFEST

if TYPE_CHECKING:
    from nlpctl.inference.choice import Choice
    from nlpctl.models.engine_speeds import Conditions


def score_key(
    recipe: Recipe, graphs: Iterable[tuple[Path, Choice]], split: str, how: Any, conditions: Conditions
) -> str:
    """A digest of the graphs (an export and how it is run), the rows of the split, the `conditions` of the machine.

    `how`: further settings of scoring, JSON-ready. Data files count by size and modification time.
    """
    files = [*map(Path, files_of(recipe.data, split)), *dataset_files(recipe)]
    parts = [
        [_sums(folder, choice) for folder, choice in graphs],
        [recipe.task, asdict(recipe.data), [_stamp(file) for file in files if file.is_file()]],
        *map(_function, (recipe.data.reader, *recipe.data.map, *recipe.data.filter)),
        [how, _function(recipe.compression.evaluate), asdict(recipe.decode), recipe.inference.tensorrt],
        asdict(conditions),
    ]
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()


def _sums(folder: Path, choice: Choice) -> Mapping[str, Any]:
    """Checksums of the graph and of every file that determines its inputs or the reading of its outputs."""
    content = read_json(folder / EXPORT_MANIFEST)
    others = {name for graph in content["graphs"] for name in graph["files"]} - set(choice.graph.files)
    return {"way": choice.name, **{name: value for name, value in content["sha256"].items() if name not in others}}


def _function(name: str | None) -> list[str] | None:
    """A function of the user's own, with the checksum of its module's file."""
    file = None if name is None else module_file(name)
    return None if name is None else [name, "" if file is None else sha256_of(file)]


def _stamp(file: Path) -> tuple[str, int, int]:
    stat = file.stat()
    return str(file), stat.st_size, stat.st_mtime_ns
