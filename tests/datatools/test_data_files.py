"""What `nlpctl data` writes over and what it leaves: data, pages, the parts of an earlier split."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from nlpctl.cli.app import main
from nlpctl.config.load import Override, load_recipe
from nlpctl.data.open_split import open_split
from nlpctl.data.records import Records
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.datatools.inspect import inspect_data
from nlpctl.datatools.split import split_data
from nlpctl.errors import UserError


def recipe_in(folder: Path) -> Path:
    """A recipe whose training data is all.tsv, 60 rows."""
    rows = "".join(f"room {i} was as we had been told\t{'pos' if i % 3 else 'neg'}\n" for i in range(60))
    (folder / "all.tsv").write_text(f"text\tlabel\n{rows}")
    recipe = folder / "recipe.yaml"
    recipe.write_text("task: sequence_classification\ndata: {train: all.tsv, columns: {text: text, label: label}}\n")
    return recipe


def test_a_page_replaces_a_page_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, data = str(recipe_in(tmp_path)), tmp_path / "other.tsv"
    data.write_bytes(before := (tmp_path / "all.tsv").read_bytes())
    assert main(["data", "inspect", recipe, "--estimate", "--html", str(data)]) == 2
    assert "was not written by nlpctl" in capsys.readouterr().err and data.read_bytes() == before
    for _ in range(2):
        assert main(["data", "inspect", recipe, "--estimate", "--html", str(tmp_path / "a.html")]) == 0


def test_parts_of_an_earlier_cut_do_not_stay(tmp_path: Path) -> None:
    recipe = load_recipe(recipe_in(tmp_path), purpose="apply")
    parts = tmp_path / "parts"
    parts.mkdir()
    (parts / "test.txt").write_text("of the user\n")  # there before the first cut
    split_data(recipe, parts, {"dev": 0.1, "test": 0})
    split_data(recipe, parts, {"dev": 0.2, "test": 0}, overwrite=True)
    (parts / "test.txt").unlink()
    split_data(recipe, parts, {"dev": 0.2, "test": 0.2}, overwrite=True)
    before = {path.name: path.read_bytes() for path in parts.iterdir()}
    with pytest.raises(UserError, match="earlier split") as refused:
        split_data(recipe, parts, {"dev": 0.2, "test": 0}, overwrite=True)
    assert refused.value.problems[0].where == str(parts / "test.tsv")
    assert {path.name: path.read_bytes() for path in parts.iterdir()} == before


def test_rows_of_dev_that_are_in_no_part_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A recipe that has parts already: its training rows alone are split anew, unless a file of all is named."""
    recipe, told = recipe_in(tmp_path), "the rows that the recipe names for dev and test are in no part"
    assert main(["data", "split", str(recipe), "-o", str(tmp_path / "once"), "--write"]) == 0
    assert told not in capsys.readouterr().err
    assert main(["data", "split", str(recipe), "-o", str(tmp_path / "twice")]) == 0
    assert told in capsys.readouterr().err
    assert main(["data", "split", str(recipe), str(tmp_path / "all.tsv"), "-o", str(tmp_path / "third")]) == 0
    assert told not in capsys.readouterr().err


def test_a_cut_that_cannot_be_written_leaves_the_old_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load_recipe(recipe_in(tmp_path), purpose="apply")
    split_data(recipe, tmp_path / "parts", {"dev": 0.1, "test": 0.1})
    before = {path.name: path.read_bytes() for path in (tmp_path / "parts").iterdir()}
    content, made = Records.content, []

    def full_at_the_second(records: Records, chosen: Sequence[int]) -> bytes:
        made.append(chosen)
        if len(made) == 2:
            raise OSError(28, "No space left on device")
        return content(records, chosen)

    monkeypatch.setattr(Records, "content", full_at_the_second)
    with pytest.raises(UserError, match="cannot write here .No space left"):
        split_data(recipe, tmp_path / "parts", {"dev": 0.4, "test": 0.1}, overwrite=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "parts").iterdir()} == before


def test_nothing_to_augment_leaves_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, output = str(recipe_in(tmp_path)), tmp_path / "more.jsonl"
    assert main(["data", "augment", recipe, "-o", str(output)]) == 2
    assert "nothing in these texts can be changed" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.tsv", "recipe.yaml"]


@pytest.mark.parametrize(
    "words",
    [
        ["split", "-o", "file/parts"],
        ["inspect", "--estimate", "--html", "file/page.html"],
        ["augment", "-o", "file/more.jsonl"],
    ],
)
def test_places_that_cannot_be_written(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = str(recipe_in(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("no folder")
    assert main(["data", words[0], recipe, *words[1:]]) == 2
    assert "is a file, not a folder" in capsys.readouterr().err


def test_what_split_prints_works_where_it_is_pasted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Called from the folder above: files of a recipe are relative to it, -o to the current folder."""
    (tmp_path / "my").mkdir()
    recipe = recipe_in(tmp_path / "my")
    monkeypatch.chdir(tmp_path)
    split = ["data", "split", "my/recipe.yaml", "-o", "my/parts"]
    assert main(split) == 0
    before, told = capsys.readouterr().err.split("in the recipe, under data:\n")
    assert "training.evaluation_strategy: is no, so training does not look at the dev rows" in before
    pasted = f"task: sequence_classification\ndata:\n{told}  columns: {{text: text, label: label}}\n"
    (tmp_path / "my/pasted.yaml").write_text(pasted)
    found = load_recipe(tmp_path / "my/pasted.yaml", purpose="apply").data
    parts = [(str(tmp_path / f"my/parts/{part}.tsv"),) for part in ("train", "dev", "test")]
    assert [found.train, found.dev, found.test] == parts
    recipe.write_text("# kept\n" + recipe.read_text())
    assert main([*split, "--overwrite", "--write"]) == 0
    assert "my/recipe.yaml names the new files" in capsys.readouterr().err
    assert recipe.read_text().startswith("# kept\n") and load_recipe(recipe, purpose="apply").data == found
    assert main([*split, "--overwrite", "--write"]) == 2  # the parts are the input now


def test_a_shipped_recipe_is_not_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "split", "quickstart", "-o", str(tmp_path / "a"), "--write"]) == 2
    assert "copy it first" in capsys.readouterr().err and not (tmp_path / "a").exists()
    assert main(["data", "split", "quickstart", "-o", str(tmp_path / "a")]) == 0
    assert f"  dev: {tmp_path}/a/dev.tsv" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["semicolons", "named", "quoted"])
def test_tables_in_quotes_are_split_as_they_are(form: str, tmp_path: Path) -> None:
    """And a quoted table that is read as tsv is told of."""
    sep = "\t" if form == "quoted" else ";"
    cells = [f'"room {i}{sep} said ""it""\r\nand left"{sep}{"pos" if i % 3 else "neg"}\r\n' for i in range(30)]
    head = ("sep=;\r\n" if form == "named" else "") + f"text{sep}label\r\n"
    name, kind = ("all.tsv", "quoted_tsv") if form == "quoted" else ("all.csv", "auto")
    (tmp_path / name).write_bytes((head + "".join(cells)).encode())
    (tmp_path / "r.yaml").write_text(f"task: sequence_classification\ndata: {{train: {name}, format: {kind}}}\n")
    recipe = load_recipe(tmp_path / "r.yaml", purpose="apply")
    made = split_data(recipe, tmp_path / "parts", {"dev": 0.2, "test": 0.2})
    parts = [path.read_bytes().decode() for path in made.files.values()]
    assert all(part.startswith(head) for part in parts) and all("".join(parts).count(cell) == 1 for cell in cells)
    assert sum(len(part) - len(head) for part in parts) == sum(map(len, cells))
    texts = [row.values["text"] for row in open_split(task_rows(recipe.task, recipe.data), "train")]
    assert texts[3] == f'room 3{sep} said "it"\r\nand left'


def test_parts_without_a_header_keep_their_separator(tmp_path: Path) -> None:
    """The first line of a part may be one that reads otherwise."""
    rows = ["a good room;pos", *(f"room {i}, and no other;{'pos' if i % 3 else 'neg'}" for i in range(29))]
    (tmp_path / "all.csv").write_text("\n".join(rows) + "\n")
    data = 'train: all.csv, header: false, columns: {text: "0", label: "1"}'
    (tmp_path / "r.yaml").write_text(f"task: sequence_classification\ndata: {{{data}}}\n")
    recipe = load_recipe(tmp_path / "r.yaml", purpose="apply")
    made = split_data(recipe, tmp_path / "parts", {"dev": 0.2, "test": 0.2})
    parts = [file.read_text().split("\n") for file in made.files.values()]
    assert [part.pop(0) for part in parts] == ["sep=;"] * 3
    assert sorted(line for part in parts for line in part if line) == sorted(rows)
    (tmp_path / "more.csv").write_text("a, pos\nb, neg\n")
    both = Override("data.train", tuple(str(tmp_path / name) for name in ("all.csv", "more.csv")), "--train")
    recipe = load_recipe(tmp_path / "r.yaml", [both], "apply")
    with pytest.raises(UserError, match="or other signs between their cells"):
        split_data(recipe, tmp_path / "both", {"dev": 0.2, "test": 0.2})


def test_values_that_json_does_not_know(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come from data.map, a reader, or a named data set."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_code", raising=False)
    (tmp_path / "own_code.py").write_text(
        "import datetime, numpy\n"
        "more = {'day': datetime.date(2024, 1, 2), 'n': numpy.int64(3), 'some': {'b', 'a'}, 'x': float('inf')}\n"
        "def known(row): return row | more\n"
        "def unknown(row): return row | {'x': (each for each in 'ab')}\n"
    )
    recipe = recipe_in(tmp_path)
    recipe.write_text(recipe.read_text().replace("data: {", "data: {map: own_code:known, "))
    assert main(["data", "convert", str(recipe), "-o", "rows.jsonl"]) == 0
    more = {"day": "2024-01-02", "n": 3, "some": ["a", "b"], "x": None}
    assert json.loads((tmp_path / "rows.jsonl").read_text().split("\n")[0]).items() >= more.items()
    told = capsys.readouterr().err
    assert "rows.jsonl has null in place of 60 numbers that JSON does not know" in told and "all.tsv:2" in told
    assert main(["data", "convert", str(recipe), "-o", "tasks.json", "--to", "label_studio"]) == 0
    assert json.loads((tmp_path / "tasks.json").read_text())[0]["data"].items() >= more.items()
    assert main(["data", "augment", str(recipe), "-o", "new.jsonl", "--method", "delete"]) == 0
    assert json.loads((tmp_path / "new.jsonl").read_text().split("\n")[0]).items() >= more.items()
    capsys.readouterr()
    recipe.write_text(recipe.read_text().replace("known", "unknown"))
    assert main(["data", "convert", str(recipe), "-o", "never.jsonl"]) == 2
    told = "all.tsv:2: a value cannot be written as JSON: nothing stands for a value of type generator"
    assert told in capsys.readouterr().err


def test_cells_in_quotation_marks_are_told(tmp_path: Path) -> None:
    rows = "".join(f'"it said ""no {i}"""\t{"pos" if i % 3 else "neg"}\n' for i in range(9)) + '"so" he said\tpos\n'
    (tmp_path / "all.tsv").write_text(f"text\tlabel\n{rows}")
    (tmp_path / "r.yaml").write_text("task: sequence_classification\ndata: {train: all.tsv}\n")
    found = inspect_data(load_recipe(tmp_path / "r.yaml", purpose="apply"), estimate=True)
    (told,) = [each for each in found.suspicions if each.kind == "in quotation marks"]
    assert told.count == 9 and told.first[0][0].endswith("all.tsv:2") and "data.format: quoted_tsv" in told.first[0][2]
