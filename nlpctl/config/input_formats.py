"""The formats of data files, and what distinguishes them; light enough for `nlpctl --help`.

A new format is a module in data/readers/ and an entry of INPUT_FORMATS. data.format and `predict` take its name, files
with its endings are taken for it, and whatever treats formats differently asks the entry, not the name.

What no ending tells is asked of the file's content in three places, which differ on purpose:

    data/open_split.py (_format_of)        training and scores: the task is known; a tagger's .txt is conll or segmented
    data/predict_input.py (_input_file)    `predict`: a .txt has a text per line, and is refused where it seems to be
                                           conll or JSON; of spans the rows are read, since an answer repeats them
    datatools/file_sniffer.py (_format)    `nlpctl new`: no task yet, so that a .txt may be any of them; the recipe then
                                           names what training would not tell

All of them ask recognised_format (data/readers/annotation_rows.py) what another program has annotated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from nlpctl.layout import JSON_LINES


@dataclass(frozen=True)
class InputFormat:
    """A format of data files. Only the first three fields have no usual value.

    `reader`: package.module:function, which gives the rows of a file. It is called with (lines, source, request):
    numbered lines (data/readers/lines.py), the name of the file in messages, a ReadRequest (data/readers/request.py).
    `columns`: "header", one set for all rows, named by the first line; "schema", one set, named apart from the rows;
    "keys", each row has its own; "fixed", the format has the same ones always, so that a recipe names none.
    """

    name: str
    reader: str
    columns: Literal["header", "schema", "keys", "fixed"]

    # -- which files, and which tasks --
    endings: tuple[str, ...] = ()  # under data.format: auto; a task may read one as another format (TaskRows.endings)
    in_content: bool = False  # `nlpctl new` knows it by what a file holds (datatools/file_sniffer.py)
    rows_for: Literal["every task", "tags", "annotations", "questions"] = "every task"  # TaskInfo.formats
    for_predict_only: bool = False  # no value of data.format
    annotator: str | None = None  # the program or data set of whose annotations its files are, for people

    # -- how it is read --
    binary: bool = False  # the reader gets the open stream, not lines
    whole: bool = False  # a file is one text and is held in memory: it is read from its beginning only
    in_quotes: bool = False  # a cell in quotation marks may hold line ends
    sentences: bool = False  # a row is the lines up to a blank one, not a line
    row_groups: str | None = None  # module:function (stream, source): rows per group, where groups can be read alone

    # -- how rows are copied into a new file, as by `nlpctl data split` (data/records.py) --
    copied: Literal["lines", "array", "articles", "records", "jsonl"] = "jsonl"  # jsonl: as objects with their values


_READERS = "nlpctl.data.readers"
_ANNOTATORS: tuple[tuple[str, str, Literal["tags", "annotations"]], ...] = (
    ("label_studio", "Label Studio", "annotations"),
    ("doccano", "doccano", "annotations"),
    ("cluener", "CLUENER", "tags"),
    ("spans", "spans", "tags"),
)
_FORMATS = (
    InputFormat("tsv", f"{_READERS}.tables:read_table", "header", (".tsv",), in_content=True, copied="lines"),
    InputFormat(
        "csv", f"{_READERS}.tables:read_table", "header", (".csv",), in_content=True, in_quotes=True, copied="lines"
    ),
    InputFormat(
        "quoted_tsv", f"{_READERS}.tables:read_table", "header", in_content=True, in_quotes=True, copied="lines"
    ),
    InputFormat("xlsx", f"{_READERS}.xlsx_rows:xlsx_rows", "header", (".xlsx",), binary=True, whole=True),
    InputFormat("jsonl", f"{_READERS}.json_rows:jsonl_rows", "keys", JSON_LINES, in_content=True, copied="lines"),
    InputFormat(
        "json", f"{_READERS}.json_rows:json_rows", "keys", (".json",), in_content=True, whole=True, copied="array"
    ),
    InputFormat("text", f"{_READERS}.plain_text:plain_rows", "fixed", (".txt",), in_content=True, copied="lines"),
    InputFormat(
        "conll",
        f"{_READERS}.conll:conll_rows",
        "fixed",
        (".conll", ".bio", ".bmes"),
        in_content=True,
        rows_for="tags",
        sentences=True,
        copied="lines",
    ),
    InputFormat("joined", f"{_READERS}.conll:joined_rows", "header", in_content=True, rows_for="tags", copied="lines"),
    InputFormat(
        "segmented", f"{_READERS}.segmented:segmented_rows", "fixed", in_content=True, rows_for="tags", copied="lines"
    ),
    InputFormat(
        "squad",
        f"{_READERS}.json_rows:squad_rows",
        "fixed",
        in_content=True,
        rows_for="questions",
        whole=True,
        copied="articles",
    ),
    *(
        InputFormat(
            name,
            f"{_READERS}.annotation_rows:annotation_rows",
            "fixed",
            in_content=True,
            rows_for=rows_for,
            annotator=annotator,
            whole=True,
            copied="records",
        )
        for name, annotator, rows_for in _ANNOTATORS
    ),
    InputFormat(
        "parquet",
        f"{_READERS}.parquet_rows:parquet_rows",
        "schema",
        (".parquet",),
        for_predict_only=True,
        binary=True,
        row_groups=f"{_READERS}.parquet_rows:group_rows",
    ),
)
INPUT_FORMATS: Mapping[str, InputFormat] = {each.name: each for each in _FORMATS}
PLAIN = "text"  # a text per line
OF_DATA = tuple(each.name for each in _FORMATS if not each.for_predict_only)  # values of data.format, beside auto
TAGGED = tuple(each.name for each in _FORMATS if each.rows_for == "tags")  # words and tags, or entities
ANNOTATED = tuple(each.name for each in _FORMATS if each.rows_for == "annotations")  # labels, or spans, given elsewhere
# Ending to format, of the rows that every task may have; what TaskRows.endings begins with.
ENDINGS: Mapping[str, str] = {
    ending: each.name
    for each in _FORMATS
    if each.columns in ("header", "keys") and each.rows_for == "every task"
    for ending in each.endings
}
