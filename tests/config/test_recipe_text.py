"""Section data of a recipe changed in place."""

from __future__ import annotations

import pytest

from nlpctl.config.recipe_text import as_yaml, with_data

FILES = {"train": "parts/train.tsv", "dev": "parts/dev.tsv"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "# mine\ndata:  # all of it\n  # rows\n  train: all.tsv  # 2026\n  max_seq_length: 64\n\ntraining: {}\n",
            "# mine\ndata:  # all of it\n  # rows\n  dev: parts/dev.tsv\n  train: parts/train.tsv  # 2026\n"
            "  max_seq_length: 64\n\ntraining: {}\n",
        ),
        (
            "data: {train: [a.tsv, b.tsv], columns: {text: t}}  # in braces\n",
            "data: {train: parts/train.tsv, columns: {text: t}, dev: parts/dev.tsv}  # in braces\n",
        ),
        (
            "data:\n    dev: 'old.tsv'\n    train:\n    - a.tsv\n    - b.tsv # two\n# the end\n",
            "data:\n    dev: parts/dev.tsv\n    train:\n    - parts/train.tsv # two\n# the end\n",
        ),
        ("data:\r\n  train: a.tsv\r\n", "data:\r\n  dev: parts/dev.tsv\r\n  train: parts/train.tsv\r\n"),
        ("extends: a # b\n", "extends: a # b\ndata:\n  train: parts/train.tsv\n  dev: parts/dev.tsv\n"),
        ("data:\ntask: x\n", "data:\n  train: parts/train.tsv\n  dev: parts/dev.tsv\ntask: x\n"),
        ("data: {}\n", "data: {train: parts/train.tsv, dev: parts/dev.tsv}\n"),
    ],
)  # fmt: skip
def test_files_change_and_nothing_else(before, after):
    assert with_data(before, FILES) == after


@pytest.mark.parametrize(
    "text",
    [
        "one: &x {train: a.tsv}\ndata: *x\n",  # the other place would change too
        "data: {dataset: clue/tnews}\n",
        "data:\n  train: a.tsv\n  dev: &d d.tsv\n  test: *d\n",
    ],
)
def test_what_cannot_be_changed_alone_stays(text):
    assert with_data(text, FILES) is None


def test_odd_names_are_quoted():
    name = "../my data/#1, [a]: 行.tsv"
    changed = with_data("data: {train: a.tsv}\n", {"train": name})
    assert changed == f'data: {{train: "{name}"}}\n' and as_yaml("../a-b/c.tsv") == "../a-b/c.tsv"
