"""What is said first about data, and what is not said where nothing is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from nlpctl.config.load import load_recipe
from nlpctl.data.inspection.report import advice
from nlpctl.datatools.inspect import inspect_data

WORDS = "clean quiet large bright modern cosy damp noisy dark old".split()


def rows(count: int, start: int, label: str) -> list[str]:
    return [
        f"{WORDS[i % 10]} {WORDS[i // 10 % 10]} {WORDS[i // 100 % 10]} {chr(97 + i % 26) * 3} no {i}\t{label}"
        for i in range(start, start + count)
    ]


def told(folder: Path, train: list[str], dev: list[str], **data: str) -> list[str]:
    for name, lines in (("train", train), ("dev", dev)):
        (folder / f"{name}.tsv").write_text("text\tlabel\n" + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    more = "".join(f", {key}: {value}" for key, value in data.items())
    (folder / "recipe.yaml").write_text(
        f"task: sequence_classification\ndata: {{train: train.tsv, dev: dev.tsv{more}}}\n", encoding="utf-8"
    )
    return advice(inspect_data(load_recipe(folder / "recipe.yaml", purpose="apply"), estimate=True))


TRAIN = [*rows(30, 0, "pos"), *rows(30, 100, "neg")]
DEV = [*rows(10, 300, "pos"), *rows(10, 400, "neg")]


def test_nothing_is_said_of_good_data(tmp_path: Path) -> None:
    assert told(tmp_path, TRAIN, DEV) == []


@pytest.mark.parametrize(
    ("train", "dev", "message"),
    [
        (TRAIN, [*DEV, *rows(5, 0, "pos")], "Rows of dev that occur in train too: 5 (20.0 %)."),
        (TRAIN, [*DEV, *rows(5, 0, "pos")], "Scores on dev will be too high"),
        ([*TRAIN, *rows(3, 0, "pos")], DEV, "Rows of train that repeat an earlier one: 3."),
        ([*TRAIN, TRAIN[0].replace("\t", "!\t")], DEV, "Rows of train that are almost like an earlier one: 1;"),
        ([*TRAIN, *rows(2, 0, "neg")], DEV, "Texts that occur with different labels: 2."),
        ([*TRAIN, *rows(4, 700, "odd")], DEV, "Fewer than 20 training examples of odd (4)"),
        ([*TRAIN, *rows(4, 700, "odd")], DEV, "odd: their scores will be unknown, and macro F1 counts them as 0."),
        ([*TRAIN, *rows(30, 700, "Ｐos")], DEV, "one: 'pos' and 'Ｐos' differ in case or width only."),
        ([*TRAIN, *rows(60, 700, "pos")], DEV, "3.0 times as many training examples of pos as of neg"),
        (TRAIN, rows(20, 300, "neg"), "The label distribution of dev differs from train (50.0 %"),
        (TRAIN, [*DEV, "\tpos"], "Rows of dev that cannot be used stop the training"),
        (TRAIN, [*DEV, "a <br> in between\tpos"], "Suspicious rows: markup (1)."),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, train: list[str], dev: list[str], message: str) -> None:
    assert [line for line in told(tmp_path, train, dev) if line.startswith(message) or message in line]


def test_what_is_cut_is_said(tmp_path: Path) -> None:
    lines = told(tmp_path, TRAIN, DEV, max_seq_length="6")
    assert lines == [
        "Cut at data.max_seq_length (6): 100.0 % of train, 100.0 % of dev. 8 tokens would hold 99 % of rows whole."
    ]


def test_macro_f1_is_not_advised_where_there_is_none(tmp_path: Path) -> None:
    pairs = [f"{text}\t{text} too\t{int(n % 5 == 0)}" for n, text in enumerate(row.split("\t")[0] for row in TRAIN)]
    (tmp_path / "train.tsv").write_text("text\tother\tlabel\n" + "\n".join(pairs) + "\n", encoding="utf-8")
    recipe = "task: semantic_indexing\ndata: {train: train.tsv, columns: {text_pair: other}}\n"
    (tmp_path / "recipe.yaml").write_text(recipe, encoding="utf-8")
    lines = advice(inspect_data(load_recipe(tmp_path / "recipe.yaml", purpose="apply"), estimate=True))
    assert "There are 4.0 times as many training examples of no match as of match." in lines


def test_bad_rows_that_are_skipped(tmp_path: Path) -> None:
    assert told(tmp_path, TRAIN, [*DEV, "\tpos"], on_bad_row="skip") == [
        "Rows of dev that cannot be used are left out: 1 (4.8 %)."
    ]
