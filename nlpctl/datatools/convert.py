"""`nlpctl data convert`: labelled rows in the format of another program, and back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import known_tasks, task_info
from nlpctl.data.changed_rows import warn_of_map
from nlpctl.data.open_split import open_split, values_to_write
from nlpctl.data.passthrough_columns import json_line
from nlpctl.data.readers import doccano, label_studio
from nlpctl.data.readers.annotated import Mark
from nlpctl.data.readers.annotation_rows import DOCCANO, LABEL_STUDIO
from nlpctl.data.records import warn_of_nulls, with_json_values
from nlpctl.data.rows.examples import BadRowLog, ExampleReader, good_rows, no_good_row
from nlpctl.data.rows.labels import LabelSet, label_name, label_names
from nlpctl.data.rows.multi_label_rows import row_labels
from nlpctl.data.rows.tag_scheme import OUTSIDE, UNTYPED, detect_scheme
from nlpctl.data.rows.task_rows import TaskRows, task_rows
from nlpctl.data.training_data import resolve_labels
from nlpctl.datatools.inspect import prepare_to_read
from nlpctl.datatools.split import refuse_files
from nlpctl.errors import UserError
from nlpctl.files import staged_file, writing
from nlpctl.outputs import is_stream, refuse_output

# -- rows as files that Label Studio and doccano import ---------------------------------------------------------------

JSONL = "jsonl"
WRITTEN = (JSONL, LABEL_STUDIO, DOCCANO)
INTERFACE = ".xml"  # ending of the labelling interface beside tasks of Label Studio


@dataclass(frozen=True)
class Answer:
    """The labels of a text, or the marks in it."""

    labels: Sequence[str] = ()
    marks: Sequence[Mark] = ()


@dataclass(frozen=True)
class Guess:
    """The answer of a model, with its confidence and the name of the model."""

    answer: Answer
    score: float
    model: str


def answer_of(predicted: Mapping[str, Any]) -> Answer:
    """The labels or marks of what `predict` answers."""
    if "label" in predicted:
        return Answer([predicted["label"]])
    if "labels" in predicted:
        return Answer(predicted["labels"])
    if "entities" in predicted:
        return Answer(marks=[Mark(each["start"], each["end"], each["type"]) for each in predicted["entities"]])
    words = [each for each in predicted["words"] if each["tag"] != OUTSIDE]
    return Answer(marks=[Mark(each["start"], each["end"], each["tag"] or UNTYPED) for each in words])


def given_answer(rows: TaskRows, values: Mapping[str, Any], example: Any, labels: LabelSet) -> Answer:
    """The labels or marks of a labelled row, `values`, and of its `example`."""
    if rows.annotation == "spans":
        entities = example.entities(detect_scheme(labels.names, "the tags"), labels.names)
        return Answer(marks=[Mark(each.start, each.end, each.type) for each in entities])
    label = values[rows.label_column]
    several = rows.annotation == "labels"
    return Answer(row_labels(label, rows.data.label_separator) if several else [label_name(label)])


@dataclass(frozen=True)
class AnnotationWriter:
    """Turns rows of a task into records of the format `kind`; `labels` are those of the task."""

    kind: str
    rows: TaskRows
    labels: Sequence[str]

    def record(
        self, values: Mapping[str, Any], example: Any, answer: Answer | None = None, guess: Guess | None = None
    ) -> dict[str, Any]:
        """One record. `answer` None: it is to be annotated. doccano takes no guess: it would count as a label."""
        texts = self.rows.passages(example)
        columns = self.rows.data.columns
        own = (*self.rows.columns_to_fill(example), columns.label if self.rows.annotation != "spans" else columns.tags)
        data = {**{name: value for name, value in values.items() if name not in own}, **texts}
        field, text = next(iter(texts.items()))
        if self.kind == DOCCANO:
            others = {name: value for name, value in data.items() if name != field}
            labelled = Answer() if answer is None else answer
            return doccano.record_of(others, text, self._labels(labelled), labelled.marks)

        def results(given: Answer) -> list[dict[str, Any]]:
            return label_studio.results_of(text, self._labels(given), given.marks, field)

        prediction = None
        if guess is not None:
            prediction = label_studio.prediction(results(guess.answer), guess.score, guess.model)
        return label_studio.task_of(data, None if answer is None else results(answer), prediction)

    def _labels(self, answer: Answer) -> Sequence[str] | None:
        return None if self.rows.annotation == "spans" else answer.labels

    def content(self, records: Iterable[Mapping[str, Any]]) -> bytes:
        """The file with these records."""
        if self.kind != LABEL_STUDIO:
            return "".join(f"{json_line(record)}\n" for record in records).encode()
        return ("[\n" + ",\n".join(map(json_line, records)) + "\n]\n").encode()

    def interface(self, example: Any) -> bytes:
        """The labelling interface for Label Studio; `example`: any row."""
        spans, names = self.rows.annotation == "spans", list(self.labels)
        if spans:
            scheme = detect_scheme(names, "the tags")
            names = sorted({scheme.split(name)[1] for name in names if name != OUTSIDE})
        several = self.rows.annotation == "labels"
        return label_studio.interface(list(self.rows.passages(example)), names, spans=spans, several=several).encode()


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
    names, not_finite = label_names(recipe.data), list[str]()
    for row, example in good_rows(source, reader, log):
        first = example if first is None else first
        row = with_json_values(row, not_finite)
        if kind == JSONL:
            records.append(values_to_write(source, rows, row.values, names))
        else:
            records.append(writer.record(row.values, example, given_answer(rows, row.values, example, labels)))
    log.finish()
    if not records:
        raise no_good_row(source, log)
    write_records(output, writer, records, first)
    warn_of_map(recipe.data, output)
    warn_of_nulls(not_finite, output)
    return Converted(output, len(records), interface)


def refuse_kind(recipe: Recipe, kind: str) -> None:
    """UserError: there is no such format, or the task has nothing that would be annotated."""
    if kind not in WRITTEN:
        raise UserError(f"there is no format {kind!r} to write", "@[to]", f"one of {', '.join(WRITTEN)}")
    if kind != JSONL and kind not in task_info(recipe.task).formats:
        fitting = ", ".join(task.name for task in known_tasks() if kind in task.formats)
        message = f"rows of {recipe.task} are not written for {kind}"
        raise UserError(message, recipe.where("task"), f"it is for {fitting}; @[to={JSONL}] takes any task")


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
    with writing(output, "name another file: @[output=FILE]"), contextlib.ExitStack() as staged:
        staged.enter_context(staged_file(output)).write(writer.content(records))
        if interface is not None:
            staged.enter_context(staged_file(interface)).write(writer.interface(example))
