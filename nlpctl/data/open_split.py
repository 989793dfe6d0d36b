"""Opens a split: local files, a user's reader function, or a named data set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nlpctl.config.input_formats import PLAIN
from nlpctl.config.schema import SPLITS, DataSection, SplitFilesSection
from nlpctl.config.user_code import describe_error, import_code, kind_of_code, require_rows_named
from nlpctl.data.changed_rows import ChangedRows, unmapped_source
from nlpctl.data.readers.annotated import AnnotatedTask, OnlyAnnotated
from nlpctl.data.readers.annotation_rows import recognised_format
from nlpctl.data.readers.packed import open_unpacked, suffix_of
from nlpctl.data.readers.readers import file_format, read_rows
from nlpctl.data.readers.row import BadRow, Row, RowSource, missing_key
from nlpctl.data.readers.segmented import is_segmented
from nlpctl.data.rows.labels import LabelSet, label_names, named_label, numbered_label
from nlpctl.data.rows.task_rows import TaskRows
from nlpctl.errors import Problem, UserError
from nlpctl.names import link_hint, nearest_file
from nlpctl.outputs import note_inputs

_AS_ALL = SplitFilesSection()
_LOOKED_AT, _LONGEST = 10, 1 << 16  # lines that tell the format, and bytes of each


def has_split(data: DataSection, split: str) -> bool:
    """Whether the recipe names data for `split`. A reader that takes no file serves "train" only."""
    if data.dataset is not None:
        return getattr(data.splits, split) is not None
    if files_of(data, split):
        return True
    return data.reader is not None and split == "train" and not any(files_of(data, name) for name in SPLITS)


def files_of(data: DataSection, split: str) -> tuple[str, ...]:
    """The files that the recipe gives for "train", "dev" or "test"."""
    return {"train": data.train, "dev": data.dev, "test": data.test}[split]


def open_split(rows: TaskRows, split: str, labelled: bool = True) -> RowSource:
    """The rows of "train", "dev" or "test". UserError if the recipe has no such split or a file is missing.

    `labelled`: the label column must be there. Errors inside the files come while iterating.
    """
    data = rows.data
    if not has_split(data, split):
        raise UserError(f"the recipe names no {split} data", where=f"data.{split}", hint=f"set data.{split}: FILE")
    require_rows_named(data)
    required = rows.required(labelled)
    # What the task needs may be what data.map makes of a row.
    needed, task = ((), OnlyAnnotated(rows) if labelled else rows) if data.map else (required, None)
    source = _open(rows, split, needed, task)
    note_inputs(source.files, f"data.{split}")
    return changed_rows(rows, source, required)


def changed_rows(rows: TaskRows, source: RowSource, required: tuple[str, ...]) -> RowSource:
    """The rows of `source` after data.map and data.filter; `required`: what they must hold then."""
    data = rows.data
    return ChangedRows(source, data.map, data.filter, required) if data.map or data.filter else source


def _open(rows: TaskRows, split: str, required: Sequence[str], task: AnnotatedTask | None = None) -> RowSource:
    data = rows.data
    if data.dataset is not None:
        from nlpctl.data.hub import open_dataset  # imports the data set libraries

        return open_dataset(data, split, tuple(required), rows.label_column)
    files = tuple(Path(name) for name in files_of(data, split))
    if data.reader is not None:
        return FunctionRows(data.reader, files, tuple(required), **_naming(rows))
    return open_files(rows, files, required, where=f"data.{split}", own=getattr(data.by_split, split), task=task)


def open_files(
    rows: TaskRows,
    files: Sequence[Path],
    required: Sequence[str],
    where: str,
    own: SplitFilesSection = _AS_ALL,
    task: AnnotatedTask | None = None,
) -> RowSource:
    """Rows of local files; `where` (a key or flag) is blamed for files that are missing.

    `own`: where these files differ from what the data section says of all. `task`: as of `read_rows`, in place of
    `rows`.
    """
    problems = [problem for path in files if (problem := _missing_file(path, where)) is not None]
    if problems:
        raise UserError(problems=problems)
    declared = rows.data.format if own.format is None else own.format
    formats = tuple(_format_of(rows, path, declared) for path in files)
    header = rows.data.header if own.header is None else own.header
    named = {getattr(rows.data.columns, name): str(column) for name, column in own.columns.items()}
    plain = rows.plain_column
    return FileRows(tuple(files), formats, header, tuple(required), named, task or rows, plain, **_naming(rows))


def _naming(rows: TaskRows) -> dict[str, Any]:
    """The names of labels that are written as numbers, and their column."""
    names = label_names(rows.data)
    return {} if names is None else {"label_names": names.names, "label_column": rows.label_column}


def with_names(row: Row | BadRow, column: str, names: Sequence[str] | None) -> Row | BadRow:
    """The row with `names` in place of the numbers in its column of labels."""
    if names is None or isinstance(row, BadRow) or column not in row.values:
        return row
    try:
        return row._replace(values={**row.values, column: named_label(row.values[column], names)})
    except ValueError as error:
        return BadRow(row.source, row.line, f"{error} (data.numbered_labels)")


def values_to_write(
    source: RowSource, rows: TaskRows, values: Mapping[str, Any], names: LabelSet | None
) -> dict[str, Any]:
    """A row of `source` for a file that is read as its files are: numbers in place of `names`, which are
    data.numbered_labels, and columns under the names of data.by_split.
    """
    given, column = unmapped_source(source), rows.label_column
    result = dict(values)
    if names is not None and column in result:
        result[column] = numbered_label(result[column], names)
    named = given.named if isinstance(given, FileRows) else {}
    return {**result, **{own: result[name] for name, own in named.items() if name in result}}


def _format_of(rows: TaskRows, path: Path, declared: str) -> str:
    """The format of a file; under "auto" by its ending, or by what it holds if another program annotated it."""
    annotated = None
    if declared == "auto" and rows.annotation is not None:
        annotated = recognised_format(path, rows.annotation)
    kind = annotated or file_format(path, declared, rows.endings)
    # Both are .txt files of a tagger; the other endings of CoNLL say what they are.
    return "segmented" if declared == "auto" and kind == "conll" and _holds_segmented(path) else kind


def _holds_segmented(path: Path) -> bool:
    if suffix_of(path) != ".txt":
        return False
    try:
        with open_unpacked(path) as stream:
            lines = [stream.readline(_LONGEST).decode("utf-8", "replace") for _ in range(_LOOKED_AT)]
    except (OSError, UserError):
        return False  # reading tells
    return is_segmented(lines)


def _missing_file(path: Path, where: str) -> Problem | None:
    if path.is_dir():
        return Problem(f"{path} is a folder, not a file", where, "name the files in it")
    if path.exists():
        return None
    if not path.parent.is_dir():
        return Problem(f"{path} does not exist: there is no folder {path.parent}", where, "check the path")
    guess = nearest_file(path.name, [entry.name for entry in path.parent.iterdir()])
    hint = "a recipe's paths begin at its file, those of the command line at the current folder"
    hint = f"did you mean {path.parent / guess}?" if guess else hint
    return Problem(f"{path} does not exist", where, link_hint(path) or hint)


@dataclass(frozen=True)
class FileRows:
    """Rows of local files, one after the other; `formats` are those of `files`.

    `named`: column of the recipe to what these files call it; a row has both names. `task`: as of `read_rows`. `plain`:
    the column that a line of plain text is, whether it is required or not. `label_names`: of the numbers in the column
    `label_column`.
    """

    files: tuple[Path, ...]
    formats: tuple[str, ...]
    header: bool
    required: tuple[str, ...]
    named: Mapping[str, str] = field(default_factory=dict)
    task: AnnotatedTask | None = None
    plain: str | None = None
    label_names: tuple[str, ...] | None = None
    label_column: str = ""

    @property
    def description(self) -> str:
        return ", ".join(str(path) for path in self.files)

    @property
    def own_required(self) -> tuple[str, ...]:
        """`required` under the names that the files have for them."""
        return tuple(self.named.get(column, column) for column in self.required)

    def __iter__(self) -> Iterator[Row | BadRow]:
        for path, kind in zip(self.files, self.formats, strict=True):
            wanted = (self.plain,) if kind == PLAIN and self.plain is not None else self.own_required
            if kind == PLAIN:
                lacking = set(self.required) - {self.plain or next(iter(self.required), None)}
                if lacking or not wanted:
                    reason = f"no column {min(lacking)!r}" if lacking else "no columns"
                    hint = "name another data.format, such as tsv or jsonl, or leave it out"
                    raise UserError(f"lines of plain text have {reason}", str(path), hint)
            rows = read_rows(path, kind, self.header, wanted, self.task)
            yield from map(self._renamed, rows) if self.named or self.label_names is not None else rows

    def _renamed(self, row: Row | BadRow) -> Row | BadRow:
        if isinstance(row, BadRow):
            return row
        values = {name: row.values[own] for name, own in self.named.items() if own in row.values}
        renamed = row._replace(values={**row.values, **values})
        return with_names(renamed, self.label_column, self.label_names)


@dataclass(frozen=True)
class FunctionRows:
    """Rows that `package.module:function` yields: called with each path, or without one where there are no files.

    The function is called anew for every pass over the rows.
    """

    reader: str
    files: tuple[Path, ...]
    required: tuple[str, ...]
    label_names: tuple[str, ...] | None = None
    label_column: str = ""

    @property
    def description(self) -> str:
        return f"{self.reader}({', '.join(str(path) for path in self.files)})"

    def __iter__(self) -> Iterator[Row | BadRow]:
        function = import_code(kind_of_code("data.reader"), self.reader)
        # Without files the reader is called once, without arguments.
        calls: list[tuple[str, ...]] = [(str(path),) for path in self.files]
        for arguments in calls or [()]:
            source = f"{self.reader}({', '.join(arguments)})"
            empty = True
            for number, values in enumerate(_call_reader(function, arguments, source), 1):
                empty = False
                reason = missing_key(values, self.required)
                row = Row(source, number, values) if reason is None else BadRow(source, number, reason)
                yield with_names(row, self.label_column, self.label_names)
            if empty:
                raise UserError("the reader yields no rows", where=source, hint="check what it was given and reads")


def _call_reader(
    function: Callable[..., Iterable[Mapping[str, Any]]], arguments: tuple[str, ...], source: str
) -> Iterator[Mapping[str, Any]]:
    """The dicts that the reader yields. UserError, with the row's number, if it fails or yields anything else."""
    number = 1
    try:
        rows = iter(function(*arguments))
    except Exception as error:
        hint = "a reader takes the path of a file (or nothing where data names no files) and yields dicts"
        raise UserError(
            f"the reader failed when called: {describe_error(error, __file__)}", where=source, hint=hint
        ) from None
    # A for loop could not tell errors of the generator from those of the code that consumes the rows.
    while True:
        try:
            values = next(rows)
        except StopIteration:
            return
        except Exception as error:
            message = f"the reader failed at row {number}: {describe_error(error, __file__)}"
            raise UserError(message, where=source, hint="fix the reader, or the row that it fails at") from None
        if not isinstance(values, Mapping):
            hint = "yield one dict per row, such as {'text': ..., 'label': ...}"
            message = f"row {number} is of type {type(values).__name__}, not a dict"
            raise UserError(message, where=source, hint=hint)
        yield values
        number += 1
