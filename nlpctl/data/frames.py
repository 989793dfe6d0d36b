"""DataFrames of pandas where a recipe names files. pandas is never imported here: who gives a frame has done so."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nlpctl.config.schema import SPLITS
from nlpctl.data.open_split import with_names
from nlpctl.data.readers.json_rows import json_bytes, plain
from nlpctl.data.readers.row import BadRow, Row, missing_key
from nlpctl.data.rows.labels import label_names
from nlpctl.data.rows.task_rows import TaskRows
from nlpctl.errors import UserError
from nlpctl.files import staged_file


def is_frame(value: Any) -> bool:
    """Whether it is a DataFrame or Series."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame | pandas.Series)


def frames_of(recipe: Any, keys: Mapping[str, Any]) -> dict[str, Any]:
    """The DataFrames in section data of a recipe that is a dict, and among `keys` by dotted name: split -> frame.

    UserError for a Series, which has no columns.
    """
    data = recipe.get("data") if isinstance(recipe, Mapping) else None
    named = dict(data) if isinstance(data, Mapping) else {}
    named |= {split: keys[f"data.{split}"] for split in SPLITS if f"data.{split}" in keys}
    frames = {split: named[split] for split in SPLITS if is_frame(named.get(split))}
    for split, frame in frames.items():
        if frame.ndim != 2:
            raise UserError("a Series has no columns", f"data.{split}", "give a DataFrame: series.to_frame()")
    return frames


def with_files(recipe: Any, keys: Mapping[str, Any], files: Mapping[str, Path | None]) -> tuple[Any, dict[str, Any]]:
    """`recipe` and `keys` with `files` in place of the frames of these splits; None takes the split out."""
    with_paths = {**keys, **{f"data.{split}": file for split, file in files.items() if f"data.{split}" in keys}}
    if isinstance(recipe, Mapping) and isinstance(recipe.get("data"), Mapping):
        data = {**recipe["data"], **{split: file for split, file in files.items() if split in recipe["data"]}}
        recipe = {**recipe, "data": data}
    return recipe, with_paths


def write_frame(frame: Any, folder: Path, split: str) -> Path:
    """The rows of a DataFrame as jsonl in `folder`; the name holds a checksum, so that other rows get another file."""
    try:
        raw = b"".join(json_bytes(row, default=plain) + b"\n" for row in rows_of(frame))
    except TypeError as error:
        raise UserError(f"a cell cannot be read: {error}", f"data.{split}", "give texts, numbers, lists") from None
    path = folder / f"{split}-{hashlib.sha256(raw).hexdigest()[:8]}.jsonl"
    if not path.exists():
        with staged_file(path) as stream:
            stream.write(raw)
    return path


def rows_of(frame: Any) -> Iterator[dict[str, Any]]:
    """The rows of a DataFrame; a missing cell is None."""
    for row in frame.to_dict("records"):
        yield {str(name): None if _is_missing(value) else value for name, value in row.items()}


def _is_missing(value: Any) -> bool:
    """Whether pandas calls a cell missing: NaN, NaT, NA."""
    return (isinstance(value, float) and value != value) or type(value).__name__ in ("NAType", "NaTType")


# -- rows that a Python program gives: texts, or dicts with the columns of the task -----------------------------------


@dataclass(frozen=True)
class GivenRows:
    """The rows of `values`, as a RowSource. Messages call row 3 `name`[3].

    `labelled`: the label columns are required, and numbers in them get the names of data.numbered_labels. A plain text
    is a row only if they are not, and if the task takes a single text.
    """

    task_rows: TaskRows
    values: Iterable[Any]
    name: str
    labelled: bool
    files: tuple[Path, ...] = ()
    label_names: None = None

    @property
    def description(self) -> str:
        return self.name

    def __iter__(self) -> Iterator[Row | BadRow]:
        # What a labelled row needs may be what data.map makes of it.
        mapped = self.labelled and self.task_rows.data.map
        required = () if mapped else self.task_rows.required(self.labelled)
        numbered = label_names(self.task_rows.data) if self.labelled else None
        names = None if numbered is None else numbered.names
        plain = None if self.labelled else self.task_rows.plain_column
        for index, value in enumerate(self.values):
            place = f"[{index}]"
            if isinstance(value, str) and plain is not None:
                yield Row(self.name, place, {plain: value})
            elif isinstance(value, Mapping):
                reason = missing_key(value, required)
                row = Row(self.name, place, value) if reason is None else BadRow(self.name, place, reason)
                yield with_names(row, self.task_rows.label_column, names)
            else:
                keys = " and ".join(repr(name) for name in required)
                wanted = "a text or a dict" if plain is not None else f"a dict with {keys}" if keys else "a dict"
                yield BadRow(self.name, place, f"not a row: expected {wanted}, got {type(value).__name__}")
