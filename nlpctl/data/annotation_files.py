"""Writes rows as files that Label Studio and doccano import."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nlpctl.data import doccano, label_studio
from nlpctl.data.annotated import Mark
from nlpctl.data.annotation_rows import DOCCANO, LABEL_STUDIO
from nlpctl.data.kept import json_line
from nlpctl.data.tag_scheme import OUTSIDE, UNTYPED, detect_scheme
from nlpctl.data.task_rows import TaskRows

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
        own = (*self.rows.to_label(example), columns.label if self.rows.annotation != "spans" else columns.tags)
        data = {**{name: value for name, value in values.items() if name not in own}, **texts}
        field, text = next(iter(texts.items()))
        if self.kind == DOCCANO:
            others = {name: value for name, value in data.items() if name != field}
            found = Answer() if answer is None else answer
            return doccano.record_of(others, text, self._labels(found), found.marks)

        def results(given: Answer) -> list[dict[str, Any]]:
            return label_studio.results_of(text, self._labels(given), given.marks, field)

        told = None
        if guess is not None:
            told = label_studio.prediction(results(guess.answer), guess.score, guess.model)
        return label_studio.task_of(data, None if answer is None else results(answer), told)

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
