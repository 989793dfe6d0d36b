"""`nlpctl recipe validate`: what the beginnings of the data files show. Imports neither Paddle nor NumPy."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from nlpctl.config.input_formats import INPUT_FORMATS
from nlpctl.config.schema import SPLITS, Recipe
from nlpctl.config.tasks import task_info
from nlpctl.config.user_code import require_rows_named
from nlpctl.console import display, display_width
from nlpctl.data.open_split import FileRows, has_split, open_split
from nlpctl.data.readers.readers import read_rows
from nlpctl.data.readers.row import Row
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.errors import Problem, UserError
from nlpctl.names import and_more, did_you_mean, listed

_LOOKED_AT = 50  # rows at the beginning of each file
_TEXTS = ("text", "text_pair", "question", "context", "negative")  # columns of sentences and passages
_NARROWEST = 6  # columns wide; what is shorter by the median is a label or a number rather than a text


class _Missing(NamedTuple):
    """A column that is not there, the key that names it, and what the file has instead."""

    name: str
    key: str
    columns: tuple[str, ...]
    texts: tuple[str, ...]
    header: bool


def needs_no_data(recipe: Recipe) -> bool:
    """Whether a recipe names a ready encoder and no data: enough for vectors and an index."""
    data, task = recipe.data, task_info(recipe.task)
    named = data.train or data.dev or data.test or data.reader or data.dataset
    return task is not None and task.vectors and recipe.model.name_or_path is not None and not named


def refuse_columns(recipe: Recipe, splits: Sequence[str]) -> None:
    """UserError for what the beginnings of the files of `splits` show, before a model is loaded for them."""
    if any(has_split(recipe.data, split) for split in splits):
        require_rows_named(recipe.data)
    problems = column_problems(recipe, splits)
    if problems:
        raise UserError(problems=problems)


def column_problems(recipe: Recipe, splits: Sequence[str] = SPLITS) -> list[Problem]:
    """What the beginnings of the data files show to be wrong, each column once. Reads no other source than files.

    Nothing is said of what only reading the whole file can tell, such as a key that some rows lack.
    """
    rows = task_rows(recipe.task, recipe.data)
    files_without: dict[_Missing, list[Path]] = {}
    problems: dict[Problem, None] = {}  # the same files may stand under two splits
    for split in splits:
        if recipe.data.reader is not None or recipe.data.dataset is not None or not has_split(recipe.data, split):
            continue
        try:
            source = open_split(rows, split)
        except UserError as error:
            problems |= dict.fromkeys(error.problems)
            continue
        if not isinstance(source, FileRows):
            continue  # data.map may make the columns
        for path, kind in zip(source.files, source.formats, strict=True):
            try:
                for missing in _missing(recipe, split, source, path, kind):
                    files_without.setdefault(missing, []).append(path)
            except UserError as error:
                problems |= dict.fromkeys(error.problems)
    return [*problems, *(_problem(recipe, missing, files) for missing, files in files_without.items())]


def _missing(recipe: Recipe, split: str, source: FileRows, path: Path, kind: str) -> Iterator[_Missing]:
    """The required columns that a file lacks. UserError: as read_rows."""
    required = [source.named.get(column, column) for column in source.required]
    columns_are = INPUT_FORMATS[kind].columns
    known = columns_are != "fixed"
    begun = list(islice(read_rows(path, kind, source.header, () if known else required, source.task), _LOOKED_AT))
    rows = [row.values for row in begun if isinstance(row, Row)]
    if not known or not rows or (columns_are == "keys" and recipe.data.on_bad_row == "skip"):
        return  # of objects, rows that lack the key may be left out, and others come later
    columns = tuple(dict.fromkeys(name for values in rows for name in values))
    if columns_are == "header" and len(columns) == 1:
        next(read_rows(path, kind, source.header, required))  # it knows what a table of one column may be instead
    texts, headed = tuple(_text_columns(columns, rows)), columns_are == "header" and source.header
    for column, name in zip(source.required, required, strict=True):
        if name not in columns:
            yield _Missing(name, _key(recipe, split, column, column in source.named), columns, texts, headed)


def _key(recipe: Recipe, split: str, column: str, own: bool) -> str:
    """The key by which the recipe calls a column; `own`: its files of this split have a name of their own for it."""
    section = recipe.data.columns
    name = next((each.name for each in dataclasses.fields(section) if getattr(section, each.name) == column), None)
    return (
        "data.columns" if name is None else f"data.by_split.{split}.columns.{name}" if own else f"data.columns.{name}"
    )


def _text_columns(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns that hold sentences, those of the longest first."""
    widths = {}
    for name in columns:
        values = [values[name] for values in rows if name in values]
        if all(isinstance(value, str) for value in values) and 2 * len(set(values)) > len(values):
            widths[name] = median(display_width(value) for value in values)
    return sorted((name for name in widths if widths[name] >= _NARROWEST), key=lambda name: -widths[name])


def _problem(recipe: Recipe, missing: _Missing, files: Sequence[Path]) -> Problem:
    key = missing.key
    origin = recipe.origins[key] if key in recipe.origins else None
    set_there = origin is not None and origin.source != "default"
    where = str(origin) if set_there else display(recipe.path) if recipe.path else key
    names = and_more([display(path) for path in files])
    guess = did_you_mean(missing.name, missing.columns)
    message = f"{key}: no column {missing.name!r} in {names}{guess}; the columns are {listed(missing.columns)}"
    hint = f"set {key} to one of them"
    if key.rpartition(".")[2] in _TEXTS and missing.texts:
        held = "holds text" if len(missing.texts) == 1 else "hold text, the longest first"
        hint = f"set {key}: {missing.texts[0]} ({', '.join(missing.texts)} {held})"
    if missing.header and missing.name.isdigit():
        hint += "; or data.header: false if the file has no header line"
    return Problem(message, where, hint)
