"""Parquet files that are much more than their bytes, and honest ones that are read as before."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from nlpctl.data.readers import parquet_rows as reader
from nlpctl.data.readers.parquet_rows import parquet_rows
from nlpctl.data.readers.request import ReadRequest
from nlpctl.data.readers.row import BadRow, Row
from nlpctl.errors import UserError


def rows(file: Path) -> list[Row | BadRow]:
    with file.open("rb") as stream:
        return list(parquet_rows(stream, "a.parquet", ReadRequest("parquet")))


def written(file: Path, column: Any, name: str = "text", **options: Any) -> Path:
    parquet.write_table(pa.table({name: column}), file, compression="zstd", **options)
    return file


@pytest.mark.parametrize("encoding", [None, "DELTA_BYTE_ARRAY"])
def test_a_value_that_stands_for_many_rows(encoding: str | None, tmp_path: Path) -> None:
    """Less than 500 bytes, which were 3 GB before the first row came."""
    options = {} if encoding is None else {"use_dictionary": False, "column_encoding": {"text": encoding}}
    file = written(tmp_path / "a.parquet", pa.array(["好" + "a" * 400_000] * 512), **options)
    assert file.stat().st_size < 1000
    usual, own = pa.default_memory_pool(), pa.proxy_memory_pool(pa.system_memory_pool())
    pa.set_memory_pool(own)
    tracemalloc.start()
    with file.open("rb") as stream:
        seen = sum(len(row.values["text"]) for row in parquet_rows(stream, "a.parquet", ReadRequest("parquet")))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    pa.set_memory_pool(usual)
    assert seen == 512 * 400_001
    assert peak < 100 << 20 and own.max_memory() < 100 << 20


@pytest.mark.parametrize(
    ("column", "options"),
    [
        (pa.array(["a" * 400_000] * 256), {"use_dictionary": False}),  # 100 MB in pages of zeros, as it were
        (pa.array([["ab"] * 2_000_000]), {}),  # elements of a list, of which the file holds one and a count
    ],
)
def test_more_than_a_file_of_its_size_holds(column: Any, options: dict[str, Any], tmp_path: Path) -> None:
    for name in ("text", "review.text"):
        with pytest.raises(UserError, match=f"a.parquet: {name}.*: a column claims .* and the columns have .* in"):
            rows(written(tmp_path / "a.parquet", column, name, **options))


def test_a_row_is_no_longer_than_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_LINE", 1000)
    file = written(tmp_path / "a.parquet", pa.array(["b" * 990, "c" * 990, "d" * 1001]))
    with pytest.raises(UserError, match=r"(?s)a.parquet:3: the row is longer than .* MiB.*divide it"):
        rows(file)
    file = written(tmp_path / "a.parquet", pa.array(["b" * 990, "c" * 990]))
    assert [len(row.values["text"]) for row in rows(file)] == [990, 990]


def test_rows_of_several_batches_and_groups(tmp_path: Path) -> None:
    texts = [f"text {i}" for i in range(1000)]
    table = pa.table({"text": texts, "spans": [[{"start": i}] for i in range(1000)]})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=300)
    found = rows(tmp_path / "a.parquet")
    assert [(row.line, row.values["text"]) for row in found] == list(enumerate(texts, 1))
    assert found[999].values["spans"] == [{"start": 999}]
