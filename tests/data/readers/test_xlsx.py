"""Excel files as tables of texts."""

from __future__ import annotations

import datetime
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from nlpctl.cli.app import main
from nlpctl.config.load import load_recipe
from nlpctl.config.schema import DataSection
from nlpctl.data.predict_input import open_input
from nlpctl.data.readers import xlsx_rows
from nlpctl.data.readers.readers import read_rows
from nlpctl.data.readers.row import BadRow
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.training_data import read_training_data
from nlpctl.datatools.split import split_data
from nlpctl.errors import UserError

TABLE = [["text", "label", "day"], *([f"room {i}", i % 2, datetime.date(2026, 11, 26)] for i in range(12))]


def save(path: Path, *sheets: list[list[Any]]) -> Path:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for number, rows in enumerate(sheets):
        sheet = book.create_sheet(f"S{number}")
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def rows_of(path: Path, required: tuple[str, ...] = ("text", "label"), header: bool = True) -> list[Any]:
    return list(read_rows(path, "xlsx", header, required))


def test_cells_are_what_csv_would_hold(tmp_path: Path) -> None:
    rows = [[], ["text", "label", "x"], ["two\nlines", 1, True], [], [" a ", 2.5, None], [3, "b", "_x000D_"],
            ["_x005F_x000D_", datetime.datetime(2026, 1, 2, 3, 4), "c"]]  # fmt: skip
    found = rows_of(save(tmp_path / "a.xlsx", [], rows))
    assert [(row.line, tuple(row.values.values())) for row in found] == [
        (3, ("two\nlines", "1", "TRUE")), (5, (" a ", "2.5", "")), (6, ("3", "b", "\r")),
        (7, ("_x000D_", "2026-01-02T03:04:00", "c")),
    ]  # fmt: skip


def test_what_is_wrong_has_the_row_that_excel_shows(tmp_path: Path) -> None:
    rows = [["text", "label"], ["a", 1], [], ["b", 0, None, "more"], ["c", 1]]
    _, bad, _ = rows_of(save(tmp_path / "a.xlsx", rows))
    assert isinstance(bad, BadRow) and bad.where == f"{tmp_path}/a.xlsx:4"
    assert bad.reason == "wrong column count: expected 2 as on line 1, got 4"
    with pytest.raises(UserError, match="a.xlsx:1: no column 'txt'; did you mean 'text'|no column 'txt'"):
        rows_of(tmp_path / "a.xlsx", ("txt",))
    with pytest.raises(UserError, match="a.xlsx: the file holds no rows"):
        rows_of(save(tmp_path / "a.xlsx", [["text", "label"]]))


@pytest.mark.parametrize("wide", ["in each row", "in the header"])
def test_rows_that_one_cell_makes_16384_wide(tmp_path: Path, wide: str) -> None:
    """Of 11 kB they were read for minutes; the cell at the end need not hold anything."""
    save(tmp_path / "a.xlsx", TABLE)
    rows = ['<row r="1"><c r="A1" t="inlineStr"><is><t>text</t></is></c>']
    rows[0] += '<c r="XFD1"><v>1</v></c></row>' if wide == "in the header" else "</row>"
    end = "XFD" if wide == "in each row" else "B"
    rows += [f'<row r="{i}"><c r="A{i}"><v>2</v></c><c r="{end}{i}"/></row>' for i in range(2, 2000)]
    with zipfile.ZipFile(tmp_path / "a.xlsx") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    sheet = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    text = f'<worksheet xmlns="{sheet}"><sheetData>{"".join(rows)}</sheetData></worksheet>'
    with zipfile.ZipFile(tmp_path / "a.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in (parts | {"xl/worksheets/sheet1.xml": text.encode()}).items():
            archive.writestr(name, part)
    with pytest.raises(UserError, match=r"(?s)a.xlsx:2\d\d: its rows are far wider than .*delete the columns"):
        rows_of(tmp_path / "a.xlsx", ())


def test_a_stray_cell_far_to_the_right_is_no_row_of_that_width(tmp_path: Path) -> None:
    rows = [["text", "label"], ["a", 1], ["b", 0, *[None] * 9000, ""], ["c", 1]]
    assert [len(row.values) for row in rows_of(save(tmp_path / "a.xlsx", rows))] == [2, 2, 2]


def test_a_cell_far_below_the_table_is_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A format that reaches far down leaves one; the empty rows up to it are no cells of the table."""
    monkeypatch.setattr(xlsx_rows, "_FREE_CELLS", 10_000)
    save(tmp_path / "a.xlsx", TABLE)
    book = openpyxl.load_workbook(tmp_path / "a.xlsx")
    book.worksheets[0].cell(row=20_000, column=1).font = openpyxl.styles.Font(bold=True)
    book.save(tmp_path / "a.xlsx")
    assert len(rows_of(tmp_path / "a.xlsx")) == len(TABLE) - 1


def test_other_sheets_are_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows_of(save(tmp_path / "several.xlsx", TABLE, [["other"]]))
    rows_of(Path("several.xlsx"))
    assert capsys.readouterr().err == "several.xlsx: of its sheets 'S0' is read; not read: 'S1'\n"


def test_training_new_split_and_predict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "train.xlsx", TABLE)
    assert main(["new", "train.xlsx", "--model", "scratch", "-o", "r.yaml", "--yes"]) == 0
    recipe = load_recipe("r.yaml")
    assert (recipe.task, recipe.data.columns.label) == ("sequence_classification", "label")
    assert len(read_training_data(task_rows(recipe.task, recipe.data)).train) == 12
    assert main(["data", "inspect", "r.yaml", "--estimate"]) == 0
    made = split_data(recipe, tmp_path / "parts", {"dev": 0.25, "test": 0})
    lines = [json.loads(line) for path in made.files.values() for line in path.read_text().splitlines()]
    assert made.files["train"].name == "train.jsonl" and sorted(map(str, lines)) == sorted(
        str({"text": text, "label": str(label), "day": str(day)}) for text, label, day in TABLE[1:]
    )
    source = open_input(task_rows(recipe.task, DataSection()), "train.xlsx", "auto")
    assert source.check() == 12 and [example.text for example in source.rows(skip=10)] == ["room 10", "room 11"]


def archive(parts: dict[str, bytes], packed: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", packed) as target:
        for name, content in parts.items():
            target.writestr(name, content)
    return stream.getvalue()


def parts_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as source:
        return {name: source.read(name) for name in source.namelist()}


def test_files_that_are_no_sheets_or_claim_too_much(tmp_path: Path) -> None:
    good = parts_of(save(tmp_path / "good.xlsx", TABLE))
    sheet = next(name for name in good if name.endswith("sheet1.xml"))
    far = good[sheet].replace(b'<row r="13"', b'<row r="99999999"')
    assert far != good[sheet]
    cases = {
        "plain": (b"text,label\na,1\n", "cannot be read: File is not a zip file"),
        "cut": (archive(good)[:-300], "cannot be read"),
        "other": (archive({"a.txt": b"x"}), "cannot be read"),
        "broken": (archive({**good, sheet: good[sheet][:-200]}), "cannot be read"),
        "lzma": (archive(good, zipfile.ZIP_LZMA), "another way than deflate"),
        "bomb": (archive({**good, "xl/x.bin": bytes(80 << 20)}), "its parts claim"),
        "far": (archive({**good, sheet: far}), "more than 1,048,576 rows"),
    }
    for name, (raw, told) in cases.items():
        (tmp_path / f"{name}.xlsx").write_bytes(raw)
        with pytest.raises(UserError, match=told):
            rows_of(tmp_path / f"{name}.xlsx")
    (tmp_path / "empty.xlsx").write_bytes(b"")
    with pytest.raises(UserError, match="holds no rows: it is empty"):
        rows_of(tmp_path / "empty.xlsx")
