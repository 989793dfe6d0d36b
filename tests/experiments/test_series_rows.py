"""The training rows that a run of folds gets as files of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from nlpctl.config.load import load_recipe
from nlpctl.experiments.series import Series, SeriesRun, read_rows

RECIPE = """
task: sequence_classification
data: {{train: [{files}], labels: [pos, neg], columns: {{text: text, label: label}}}}
"""
FILES = {
    "a.tsv": b"text\tlabel\n" + b"".join(b"good %d\tpos\n" % i for i in range(4)),
    "b.tsv": b"label\ttext\r\n" + b"".join(b"neg\tbad %d\r\n" % i for i in range(4)),
    "c.jsonl": b"".join(b'{"text": "fine %d", "label": "pos"}\n' % i for i in range(4)),
}


@pytest.mark.parametrize("chosen", [(0, 3, 4, 9, 11), (1, 2), (8, 9, 10, 11), tuple(range(12))])
def test_files_may_differ_in_format_and_header(tmp_path: Path, chosen: tuple[int, ...]) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    recipe, again = tmp_path / "recipe.yaml", tmp_path / "again.yaml"
    recipe.write_text(RECIPE.format(files=", ".join(FILES)), encoding="utf-8")
    read = load_recipe(recipe, purpose="apply")
    rows = read_rows(read)
    member = SeriesRun("fold-1", 1, chosen)
    own = Series(read, rows, tmp_path / "folds", [member], False).member_recipe(member).data.train
    again.write_text(RECIPE.format(files=", ".join(own)), encoding="utf-8")
    found = read_rows(load_recipe(again, purpose="apply")).read.rows
    keys = ("text", "label")
    assert [[row.values[key] for key in keys] for row in found] == [
        [rows.read.rows[i].values[key] for key in keys] for i in chosen
    ]
    touched = {rows.read.rows[i].source for i in chosen}
    assert len(own) == len(touched)  # a file none of whose rows is taken has no copy
