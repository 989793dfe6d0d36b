"""The training rows that a run of folds gets as files of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nlpctl.config.load import load_recipe
from nlpctl.errors import UserError
from nlpctl.experiments.series import Series, SeriesRun, open_series, read_rows

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


def test_a_series_goes_on_with_the_same_rows_and_labels_only(tmp_path: Path) -> None:
    """Another version may cut them otherwise; what began with an older one, which noted no rows, goes on."""
    (tmp_path / "a.tsv").write_bytes(FILES["a.tsv"])
    (tmp_path / "labels.txt").write_text("pos\nneg\n")
    (tmp_path / "recipe.yaml").write_text(
        f"{RECIPE.format(files='a.tsv').replace('[pos, neg]', 'labels.txt')}training: {{output_dir: {tmp_path}/folds}}"
    )
    read = load_recipe(tmp_path / "recipe.yaml", purpose="apply")

    def go(*parts: tuple[int, ...], resume: bool = True) -> None:
        members = [SeriesRun(f"fold-{i}", 1, part) for i, part in enumerate(parts, 1)]
        with open_series(read, read_rows(read), "folds", members, {}, resume=resume, overwrite=False) as series:
            (series.folder / "fold-1").mkdir(exist_ok=True)

    go((0, 1), (2, 3), resume=False)
    go((0, 1), (2, 3))
    with pytest.raises(UserError, match="the labels, or which rows each run takes, changed"):
        go((0, 2), (1, 3))
    (tmp_path / "labels.txt").write_text("neg\npos\n")
    with pytest.raises(UserError, match="the labels, or which rows each run takes, changed"):
        go((0, 1), (2, 3))
    file = tmp_path / "folds/series.json"
    older = {name: value for name, value in json.loads(file.read_text()).items() if name != "rows"}
    file.write_text(json.dumps(older))
    go((0, 2), (1, 3))
