"""Previews a data file for which there is no recipe yet: its format, whether it has a header, what its columns hold.

Nothing here is certain: what is read as a label may be a number of stars. task_fit.py asks what it means to a task.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, Literal

from nlpctl.config.input_formats import INPUT_FORMATS
from nlpctl.console import display_width
from nlpctl.data.readers.annotated import Annotated, tags_from_marks
from nlpctl.data.readers.annotation_rows import DOCCANO, recognised_format
from nlpctl.data.readers.conll import JOINT, TAGS, TOKENS
from nlpctl.data.readers.doccano import has_label_list
from nlpctl.data.readers.lines import FROM_GBK, NOT_UTF8
from nlpctl.data.readers.packed import open_unpacked, suffix_of
from nlpctl.data.readers.readers import read_rows
from nlpctl.data.readers.row import BadRow, Row
from nlpctl.data.readers.segmented import is_segmented
from nlpctl.data.readers.tables import QUOTED_TSV, in_quotes
from nlpctl.data.text.word_spans import word_spans
from nlpctl.errors import UserError
from nlpctl.layout import JSON_LINES
from nlpctl.outputs import refuse_pipe

Kind = Literal["text", "label", "list", "answers", "number", "id", "other"]

LOOKED_AT = 2000  # rows at the beginning of a file
_RECORD = "record"  # the one key of the rows that `_Records` makes
_BEGINNING = 1 << 16  # bytes that tell the format of a file
_FEW = 20  # different values that make a column of labels, if each comes twice
_SHARE = 0.1  # of the rows: more different values are no labels
_WIDEST_LABEL = 40  # columns wide
_NARROWEST_TEXT = 4

_LABEL_NAMES = (
    *("label", "labels", "class", "category", "target", "gold_label", "sentiment", "intent", "标签", "类别"),
    *("label_desc", "label_text", "topic", "genre"),
)
_TEXT_NAMES = ("text", "sentence", "content", "文本", "句子", "内容")
# What people call the columns, the most telling name first; compared in lower case.
NAMES: Mapping[str, tuple[str, ...]] = {
    "text": ("text", "sentence", "content", "review", "comment", "body", "query", "question", "title", "message")
    + ("tweet", "document", "文本", "句子", "内容", "评论", "review_body", "text_a", "sentence1"),
    "text_pair": ("text_pair",),
    "label": (*_LABEL_NAMES, "y", "stars", "rating", "score"),
    "tokens": ("tokens", "words", "chars", "characters"),
    "tags": ("tags", "ner_tags", "labels", "label", "pos_tags"),
    "question": ("question", "query", "问题"),
    "context": ("context", "paragraph", "passage", "document", "article", "text", "正文"),
    "answers": ("answers", "answer"),
    "negative": ("negative", "hard_negative"),
}
_PAIRS = (
    ("text", "text_pair"), ("sentence1", "sentence2"), ("sentence_1", "sentence_2"), ("sentence_a", "sentence_b"),
    ("text_a", "text_b"), ("text1", "text2"), ("text_1", "text_2"), ("question1", "question2"), ("q1", "q2"),
    ("s1", "s2"), ("query1", "query2"), ("premise", "hypothesis"), ("query", "title"), ("query", "passage"),
    ("query", "document"), ("query", "doc"), ("query", "positive"), ("anchor", "positive"), ("question", "answer"),
    ("question", "sentence"), ("query", "answer"),
    *((f"{word}{one}", f"{word}{two}") for word in "句子 文本 问题 问句".split() for one, two in ("12", "一二", "ab")),
)  # fmt: skip
_TAG = re.compile(r"O|[BIESMLU](-.+)?|.+-[BIESMLU]")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")
_IDENTIFIER = re.compile(r"[\w-]*\d[\w-]*", re.ASCII)
_HEADER_CELL = re.compile(r"[^\W\d][\w .#-]{0,30}")
# With the signs that people put into names of columns, which short texts hold as well; no name is without a letter.
_WIDE_HEADER_CELL = re.compile(r"(?=.*[^\W\d])[\w .#()（）[\]【】?？:：/／,，、&%+-]{1,64}")


@dataclass(frozen=True)
class Column:
    """A column (or key) and what it seems to hold. `width`: of the median text; `values`: the label names, if few."""

    name: str
    kind: Kind
    width: float
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Preview:
    """The beginning of a file. `rows`: its first good rows; `header`: of a table, whether its first line names columns.

    Of a file in which people annotated texts: `questions`, the columns that they answered with labels, and `marked`,
    the column that holds their spans.
    """

    path: Path
    format: str
    header: bool
    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Any], ...] = field(repr=False)
    questions: tuple[str, ...] = ()
    marked: str | None = None

    @property
    def named(self) -> bool:
        """Whether the columns have names of their own, not numbers."""
        return self.header or not self.is_table

    @property
    def is_table(self) -> bool:
        return INPUT_FORMATS[self.format].columns == "header"

    @property
    def names_columns(self) -> bool:
        """Whether the columns of these rows are chosen by a recipe; the other formats have the same ones always."""
        format = INPUT_FORMATS[self.format]
        return format.columns != "fixed" or format.annotator is not None

    @property
    def only_spans(self) -> bool:
        """Whether people annotated spans alone, in a format that only taggers read."""
        format = INPUT_FORMATS[self.format]
        return format.annotator is not None and format.rows_for == "tags"

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)

    def twins(self, name: str) -> list[str]:
        """The columns of labels whose values go one to one with those of the column `name`, such as their names."""
        twins = []
        for other in (column.name for column in self.of_kind("label") if column.name != name):
            pairs = {(str(row.get(name)), str(row.get(other))) for row in self.rows}
            if len(pairs) > 1 and all(len({pair[side] for pair in pairs}) == len(pairs) for side in (0, 1)):
                twins.append(other)
        return twins

    def of_kind(self, *kinds: Kind) -> list[Column]:
        return [column for column in self.columns if column.kind in kinds]

    def role(self, role: str, given: Mapping[str, str], kinds: Sequence[Kind], taken: Iterable[str] = ()) -> str | None:
        """The column for `role`: as `given`, else by its name, else the only or the widest of the `kinds`."""
        if role in given:
            return given[role]
        free = [column for column in self.of_kind(*kinds) if column.name not in {*taken, *given.values()}]
        if role in ("text", "label"):  # what calls itself a label is no text, and the other way round
            other = _TEXT_NAMES if role == "label" else _LABEL_NAMES
            free = [column for column in free if column.name.strip().casefold() not in other]
        widest = max(free, key=lambda column: column.width, default=None)
        return _named(role, free) or (None if widest is None else widest.name)

    def named_as(self, role: str, taken: Iterable[str]) -> str | None:
        """The column whose name says that it is for `role`, whatever it holds."""
        return _named(role, [column for column in self.columns if column.name not in set(taken)])

    def pair(self, given: Mapping[str, str]) -> tuple[str, str] | None:
        """The columns of two texts that belong together: as `given`, by their names, or the only two without names."""
        texts = {column.name.strip().casefold(): column.name for column in self.of_kind("text")}
        if "text_pair" in given:
            first = self.role("text", given, ("text",))
            return None if first is None else (first, given["text_pair"])
        if "text" in given:
            first_names = [given["text"].casefold()]
        else:
            first_names = [first for first, _ in _PAIRS]
        for first, second in _PAIRS:
            if first in first_names and second in texts and (first in texts or "text" in given):
                return given.get("text", texts.get(first, "")), texts[second]
        if not self.named and len(texts) == 2 and "text" not in given:
            one, other = texts.values()
            return one, other
        return None


def _named(role: str, columns: Iterable[Column]) -> str | None:
    by_name = {column.name.strip().casefold(): column.name for column in columns}
    return next((by_name[name] for name in NAMES.get(role, ()) if name in by_name), None)


def preview_file(
    path: Path, like: Preview | None = None, annotation: str | None = "spans", named: Set[str] = frozenset()
) -> Preview:
    """The preview of a file. UserError if it cannot be read, or no row of its beginning can be used.

    `like`: the preview of another file of the same data: if both are tables, this one has a header if that one has.
    `annotation`: that of the TaskRows, if the task is known: spans may count for nothing. `named`: columns that the
    user has named.
    """
    refuse_pipe(path)  # it could be read only once
    annotated = recognised_format(path, annotation)
    if annotated is not None:
        return _preview_annotated(path, annotated)
    kind = _format(path)
    header = True
    columns = INPUT_FORMATS[kind].columns
    if columns == "header":
        header = like.header if like is not None and like.is_table else _has_header(path, kind, named)
    rows, bad = [], None
    for row in islice(read_rows(path, kind, header, ("text",) if kind == "text" else ()), LOOKED_AT):
        if isinstance(row, Row):
            rows.append(row.values)
        elif bad is None:
            bad = row
    if not rows:
        raise _all_bad(bad)
    if columns == "keys" and all(has_label_list(row) and len(row["label"]) == 1 for row in rows):
        return _preview_annotated(path, DOCCANO)  # which writes a list, where a text has one label too
    return Preview(path, kind, header, tuple(_column(name, rows) for name in _names(rows)), tuple(rows))


def _all_bad(first: BadRow | None) -> UserError:
    assert first is not None  # a file without rows raises
    hint = "no row at the beginning of the file can be used: fix it"
    hint += FROM_GBK if first.kind == NOT_UTF8 else ""
    return UserError(first.reason, where=first.where, hint=hint)


def _names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for values in rows for name in values))


class _Records:
    """In place of a task, for `read_rows`: a row holds the record as it was read."""

    def from_annotation(self, record: Annotated) -> Mapping[str, Any]:
        return {_RECORD: record}

    def required(self, labelled: bool) -> tuple[str, ...]:
        return ()


def _preview_annotated(path: Path, kind: str) -> Preview:
    """The preview of a file of Label Studio or doccano: the data of its records, a column for each question, and the
    words and tags that their spans give. Records without annotation count where there are no others."""
    read = list(islice(read_rows(path, kind, True, (), _Records()), LOOKED_AT))
    records: list[Annotated] = [row.values[_RECORD] for row in read if isinstance(row, Row)]
    if not records:
        raise _all_bad(next((row for row in read if isinstance(row, BadRow)), None))
    records = [record for record in records if record.labelled] or records
    questions = dict.fromkeys(name for record in records for name, _ in record.choices)
    several = {name for name in questions if any(len(_own(record, name)) > 1 for record in records)}
    marked = next((record.marked for record in records if record.marks), None)
    rows = [_columns_of(record, questions, several, marked) for record in records]
    columns = []
    for name in _names(rows):
        column = _column(name, rows)
        if name in questions:
            labels = tuple(sorted({label for record in records for label in _own(record, name)}))
            column = replace(column, kind="list" if name in several else "label", values=labels)
        elif column.kind == "label" and questions:  # what people were asked tells more than what repeats itself
            column = replace(column, kind="other", values=())
        columns.append(column)
    return Preview(path, kind, True, tuple(columns), tuple(rows), tuple(questions), marked)


def _own(record: Annotated, question: str) -> list[str]:
    return [label for name, label in record.choices if name == question]


def _columns_of(
    record: Annotated, questions: Iterable[str], several: Collection[str], marked: str | None
) -> dict[str, Any]:
    """The values of a record with its answers and the words and tags that the spans in the column `marked` give."""
    values = dict(record.values)
    for name in questions:
        labels = _own(record, name)
        if name in several:
            values[name] = labels
        elif labels:
            values[name] = labels[0]
    text = None if marked is None else record.values.get(record.marked or marked)
    if isinstance(text, str):
        with contextlib.suppress(ValueError):
            values[TOKENS], values[TAGS] = tags_from_marks(text, record.marks, word_spans)
    return values


def is_tags(values: Any) -> bool:
    """Whether a list holds tags such as B-PER and O."""
    return (
        isinstance(values, list)
        and bool(values)
        and all(isinstance(tag, str) and _TAG.fullmatch(tag) for tag in values)
    )


def _format(path: Path) -> str:
    """The format of a file by its ending and its beginning; a .txt may be a table, tagged words or lines of text."""
    ending = suffix_of(path)
    for format in INPUT_FORMATS.values():
        if ending in format.endings and not format.in_content and not format.for_predict_only:
            return format.name
    try:
        with open_unpacked(path) as stream:
            beginning = stream.read(_BEGINNING).decode("utf-8", errors="replace").removeprefix("\ufeff")
    except OSError as error:
        raise UserError(f"cannot read the file: {error.strerror or error}", str(path), "check the path") from None
    lines = [line.rstrip("\r") for line in beginning.split("\n")]
    lines = lines[:-1] or lines  # the last one may be cut
    objects = [line for line in lines if line.startswith("{")]
    if ending in JSON_LINES or (len(objects) > 1 and all(line.rstrip().endswith("}") for line in objects)):
        return "jsonl"
    if ending == ".json" or (beginning.lstrip()[:1] in ("{", "[") and not objects[1:]):
        return "squad" if '"paragraphs"' in beginning or '"context_text"' in beginning else "json"
    if any(JOINT in line for line in lines):
        return "joined"
    if ending == ".csv":
        return "csv"
    if ending == ".tsv":
        return QUOTED_TSV if in_quotes(beginning) else "tsv"
    if ending in INPUT_FORMATS["conll"].endings or _tagged(lines):
        return "conll"
    if is_segmented(lines):
        return "segmented"
    tabs = {line.count("\t") for line in lines if line}
    if len(tabs) == 1 and tabs != {0}:
        return QUOTED_TSV if in_quotes(beginning) else "tsv"
    return "text"


def _tagged(lines: Sequence[str]) -> bool:
    """Whether lines are a word and its tag, with blank lines between sentences."""
    cells = [line.split("\t") if "\t" in line else line.split() for line in lines if line.strip()]
    tags = [each[-1].strip() for each in cells if len(each) > 1]
    return len(tags) == len(cells) > 0 and "" in map(str.strip, lines) and all(map(_TAG.fullmatch, tags))


def _has_header(path: Path, kind: str, named: Set[str]) -> bool:
    """Whether the first line of a table names its columns, which do not occur below: those that the user has `named`,
    names as in programs, or what may be names where one column holds labels and its first cell is none of them."""
    rows = [row for row in islice(read_rows(path, kind, False, ()), LOOKED_AT) if isinstance(row, Row)]
    if not rows:
        return True  # reading says what is wrong
    first, others = list(rows[0].values.values()), [list(row.values.values()) for row in rows[1:]]
    if named and named <= set(map(str, first)) and not any(map(str.isdecimal, named)):  # "0": of a table without one
        return True
    if not all(isinstance(cell, str) and _WIDE_HEADER_CELL.fullmatch(cell.strip()) for cell in first):
        return kind == "joined" and all(isinstance(cell, list) and len(cell) == 1 for cell in first)
    if len(set(first)) < len(first):
        return False
    others = [row for row in others if row != first]  # a header comes again where files were put together
    above_labels = False
    for place, cell in enumerate(first):
        below = [row[place] for row in others]
        if len(set(below)) <= max(2, len(below) // 2) and cell in below:
            return False
        above_labels = above_labels or (few_values(below) and len(below) >= _FEW)
    return above_labels or all(_HEADER_CELL.fullmatch(cell.strip()) for cell in first)


def _column(name: str, rows: Sequence[Mapping[str, Any]]) -> Column:
    values = [values[name] for values in rows if values.get(name) not in (None, "")]
    lists = [value for value in values if isinstance(value, list | dict)]
    if len(lists) * 2 > len(values):
        return Column(name, "answers" if _answers(lists) else "list", 0.0)
    plain = [value for value in values if isinstance(value, str | int | float)]
    if not plain:
        return Column(name, "other", 0.0)
    texts = [str(value).strip() for value in plain]
    width = float(median(map(display_width, texts)))
    counts = Counter(texts)
    numbers = all(map(_NUMBER.fullmatch, counts))
    if few_values(texts, says_label(name)) and not (numbers and any(float(text) % 1 for text in counts)):
        return Column(name, "label", width, tuple(sorted(counts)))
    if all(map(_IDENTIFIER.fullmatch, counts)):
        return Column(name, "id" if len(counts) == len(texts) else "number" if numbers else "other", width)
    if numbers or not any(isinstance(value, str) for value in plain) or width < _NARROWEST_TEXT:
        return Column(name, "number" if numbers else "other", width)
    return Column(name, "text", width)


def says_label(name: str) -> bool:
    """Whether the name of a column says that it holds labels."""
    return name.strip().casefold() in _LABEL_NAMES


def few_values(texts: Sequence[str], named: bool = False) -> bool:
    """Whether texts repeat each other as labels do: at least two values, each of them often.

    `named`: they stand in a column that `says_label`, where two of each are enough, however many labels there are.
    """
    values, width = len(set(texts)), median(map(display_width, texts)) if texts else 0
    few = (named or values <= _FEW) and 2 * values <= len(texts)
    return 1 < values and (few or values <= _SHARE * len(texts)) and width <= _WIDEST_LABEL


def _answers(lists: Sequence[Any]) -> bool:
    """Whether values are the answers of questions: {text, answer_start}, or lists of these."""

    def entries() -> Iterator[Any]:
        for value in lists:
            yield from value if isinstance(value, list) else [value]

    all_entries = list(entries())
    return bool(all_entries) and all(isinstance(entry, dict) and "text" in entry for entry in all_entries)
