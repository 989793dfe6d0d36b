"""DataFrames of pandas where a recipe names files. pandas is never imported here: who gives a frame has done so."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nlpctl.data.json_rows import json_bytes
from nlpctl.data.open_split import SPLITS
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
    found = {split: named[split] for split in SPLITS if is_frame(named.get(split))}
    for split, frame in found.items():
        if frame.ndim != 2:
            raise UserError("a Series has no columns", f"data.{split}", "give a DataFrame: series.to_frame()")
    return found


def with_files(recipe: Any, keys: Mapping[str, Any], files: Mapping[str, Path | None]) -> tuple[Any, dict[str, Any]]:
    """`recipe` and `keys` with `files` in place of the frames of these splits; None takes the split out."""
    told = {**keys, **{f"data.{split}": file for split, file in files.items() if f"data.{split}" in keys}}
    if isinstance(recipe, Mapping) and isinstance(recipe.get("data"), Mapping):
        data = {**recipe["data"], **{split: file for split, file in files.items() if split in recipe["data"]}}
        recipe = {**recipe, "data": data}
    return recipe, told


def write_frame(frame: Any, folder: Path, split: str) -> Path:
    """The rows of a DataFrame as jsonl in `folder`; the name holds a checksum, so that other rows get another file."""
    raw = b"".join(json_bytes(row, default=_plain) + b"\n" for row in rows_of(frame))
    path = folder / f"{split}-{hashlib.sha256(raw).hexdigest()[:8]}.jsonl"
    if not path.exists():
        with staged_file(path) as stream:
            stream.write(raw)
    return path


def _plain(value: Any) -> Any:
    """A cell as JSON knows it: a list for arrays and sets, a number for NumPy's, text for dates and what else."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return sorted(value, key=str) if isinstance(value, set | frozenset) else str(value)


def rows_of(frame: Any) -> Iterator[dict[str, Any]]:
    """The rows of a DataFrame; a missing cell is None."""
    for row in frame.to_dict("records"):
        yield {str(name): None if _is_missing(value) else value for name, value in row.items()}


def _is_missing(value: Any) -> bool:
    """Whether pandas calls a cell missing: NaN, NaT, NA."""
    return (isinstance(value, float) and value != value) or type(value).__name__ in ("NAType", "NaTType")
