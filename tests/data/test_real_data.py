"""Every row of the real data sets is read; their counts are those of the README beside them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nlpctl.config.schema import ColumnsSection, DataSection
from nlpctl.data.open_split import open_split
from nlpctl.data.rows.examples import BadRowLog, ExampleReader, load_examples
from nlpctl.data.rows.text_rows import TextRows
from nlpctl.data.training_data import resolve_labels

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
PAIRS = ColumnsSection(text="sentence1", text_pair="sentence2")
TITLES = ColumnsSection(text="sentence", label="label_desc")


@pytest.mark.parametrize(
    ("name", "ending", "columns", "counts", "labels"),
    [
        ("chnsenticorp", "tsv", ColumnsSection(), (5765, 1000, 1000), 2),
        ("sst2", "tsv", ColumnsSection(), (6920, 872, 1821), 2),
        ("bustm", "jsonl", PAIRS, (160, 160, 1772), 2),
        ("tnews_fewshot", "jsonl", TITLES, (1185, 1098, 2010), 15),
    ],
)
def test_all_rows(name, ending, columns, counts, labels):
    if not (DATA / name).is_dir():
        pytest.skip(f"real data not at {DATA / name}")
    files = {split: (str(DATA / name / f"{split}.{ending}"),) for split in ("train", "dev", "test")}
    data = DataSection(**files, columns=columns)
    known = resolve_labels(TextRows(data), open_split(TextRows(data), "train"))
    assert len(known) == labels
    for split, count in zip(files, counts, strict=True):
        log = BadRowLog("error")
        examples = load_examples(open_split(TextRows(data), split), ExampleReader(TextRows(data), known), log)
        assert len(examples) == count and log.total == 0
        assert {example.label for example in examples} == set(range(labels))
        assert all((example.text_pair is not None) == (columns is PAIRS) for example in examples)
        assert examples.lengths().min() > 0 and np.isfinite(examples.lengths()).all()
