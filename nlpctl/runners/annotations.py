"""`nlpctl data convert`: labelled rows in the format of another program, and back."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import known_tasks, task_info
from nlpctl.data.annotation_files import INTERFACE, JSONL, WRITTEN, AnnotationWriter, Answer
from nlpctl.data.annotation_rows import LABEL_STUDIO
from nlpctl.data.changed_rows import warn_of_map
from nlpctl.data.examples import BadRowLog, ExampleReader, no_good_row
from nlpctl.data.labels import label_names
from nlpctl.data.open_split import open_split, values_to_write
from nlpctl.data.row import BadRow
from nlpctl.data.splits import resolve_labels
from nlpctl.data.task_rows import task_rows
from nlpctl.errors import UserError
from nlpctl.files import staged_file, writing
from nlpctl.outputs import is_stream, refuse_output
from nlpctl.runners.data import prepare_to_read, refuse_files


@dataclass(frozen=True)
class Converted:
    """`interface`: the labelling interface of Label Studio, if one was written."""

    output: Path
    rows: int
    interface: Path | None

    def to_json(self) -> dict[str, Any]:
        return {"output": self.output, "rows": self.rows, "interface": self.interface}


def convert(recipe: Recipe, output: Path, kind: str, *, overwrite: bool = False) -> Converted:
    """Write the labelled training rows of `recipe` to `output` in the format `kind`, one of WRITTEN.

    UserError: the task has no labels that people give to texts or words, bad rows, or an existing file.
    """
    refuse_kind(recipe, kind)
    rows = task_rows(recipe.task, recipe.data)
    if recipe.data.dataset is not None:  # may import Paddle
        prepare_to_read(recipe)
    source = open_split(rows, "train")
    interface = interface_of(output, kind)
    refuse_files([path for path in (output, interface) if path is not None], overwrite)
    labels = resolve_labels(rows, source)
    writer = AnnotationWriter(kind, rows, labels.names)
    reader, log, records, first = ExampleReader(rows, labels), BadRowLog(recipe.data.on_bad_row), [], None
    names = label_names(recipe.data)
    for row in source:
        example = reader.read(row)
        if isinstance(example, BadRow):
            log.add(example)
            continue
        first = example if first is None else first
        if kind == JSONL:
            records.append(values_to_write(source, rows, row.values, names))
        else:
            records.append(writer.record(row.values, example, Answer(*rows.annotation_of(row.values, example, labels))))
    log.finish()
    if not records:
        raise no_good_row(source, log)
    write_records(output, writer, records, first)
    warn_of_map(recipe.data, output)
    return Converted(output, len(records), interface)


def refuse_kind(recipe: Recipe, kind: str) -> None:
    """UserError: there is no such format, or the task has nothing that would be annotated."""
    if kind not in WRITTEN:
        raise UserError(f"there is no format {kind!r} to write", "--to", f"one of {', '.join(WRITTEN)}")
    if kind != JSONL and kind not in task_info(recipe.task).formats:
        fitting = ", ".join(task.name for task in known_tasks() if kind in task.formats)
        message = f"rows of {recipe.task} are not written for {kind}"
        raise UserError(message, recipe.where("task"), f"it is for {fitting}; --to {JSONL} takes any task")


def interface_of(output: Path, kind: str) -> Path | None:
    """The file of the labelling interface beside `output`; None where there is none, as beside a pipe.

    UserError: it would be `output` itself.
    """
    if kind != LABEL_STUDIO or is_stream(output):
        return None
    interface = output.with_suffix(INTERFACE)
    if interface == output:
        raise UserError("the tasks and the labelling interface would be one file", str(output), "name a .json file")
    return interface


def refuse_outputs(output: Path, kind: str, overwrite: bool) -> None:
    """UserError if what is written beside `output` must not be."""
    interface = interface_of(output, kind)
    if interface is not None:
        refuse_output(interface, overwrite)


def write_records(output: Path, writer: AnnotationWriter, records: Sequence[Mapping[str, Any]], example: Any) -> None:
    """Write the records, and the labelling interface that they are for. Both are complete before one is renamed.

    `example`: that of any record.
    """
    interface = interface_of(output, writer.kind)
    with writing(output, "name another file: -o FILE"), contextlib.ExitStack() as staged:
        staged.enter_context(staged_file(output)).write(writer.content(records))
        if interface is not None:
            staged.enter_context(staged_file(interface)).write(writer.interface(example))
