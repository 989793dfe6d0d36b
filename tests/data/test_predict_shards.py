"""Reading an input in parts gives the rows of reading it in one go, with the same files, lines and reasons."""

from __future__ import annotations

import dataclasses
import gzip
import json
import random
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from nlpctl.config.schema import DataSection
from nlpctl.data import predict_shards
from nlpctl.data.predict_input import PredictInput, open_inputs
from nlpctl.data.predict_shards import ShardRows, count_lines, countable, cut_input, cut_shards, scan, with_lines
from nlpctl.data.readers.row import BadRow
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.errors import UserError

TAGGING, CLASSIFYING = "token_classification", "sequence_classification"
WORDS = ("good", "房间", "bad", "很干净", "a", "\u2028", "\u00a0x")


def texts(count: int, seed: int = 1) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(1, 9))) for _ in range(count)]


def lines(rows: list[str], bad: dict[int, bytes]) -> list[bytes]:
    return [bad.get(i, row.encode()) for i, row in enumerate(rows)]


def jsonl(end: bytes = b"\n") -> bytes:
    rows = [json.dumps({"id": i, "text": text}, ensure_ascii=False) for i, text in enumerate(texts(200))]
    bad = {3: b"{broken", 50: b"", 51: b"\xff\xfe", 120: b'{"text": " "}', 199: b'{"other": 1}'}
    return end.join(lines(rows, bad)) + end


def plain() -> bytes:
    return b"\xef\xbb\xbf" + b"\r\n".join(lines(texts(200), {7: b"", 8: b" ", 90: b"nul \0 here", 91: b"\xff"}))


def tsv(header: bool) -> bytes:
    head = [b"", b"id\ttext"] if header else [b"\xff\tnot a row", b"one\ttwo\tthree"]
    rows = [f"{i}\t{text}" + ("" if header else "\tx") for i, text in enumerate(texts(200))]
    bad = {5: b"too\tmany\tcells\there", 60: b"", 61: b"\xff\t2", 140: b"few"}
    return b"\n".join(head + lines(rows, bad)) + b"\n"


def csv(quoted_from: int) -> bytes:
    """Quoted cells with line ends from row `quoted_from` on, and a mark that is never closed near the end."""
    rows = [f"{i},{text}" for i, text in enumerate(texts(200))]
    for i in range(quoted_from, 200, 3):
        rows[i] = f'{i},"{rows[i]}\nand ""more""\n"'
    bad = {9: b"1,2,3", 70: b"\xff,x", 190: b'9,"never" closed\n1,2'}
    return b"text_id,text\n" + b"\n".join(lines(rows, bad)) + b"\n"


def conll() -> bytes:
    chance, out = random.Random(2), [b"-DOCSTART- O", b""]
    for i in range(120):
        out += [f"{word}\tO".encode() for word in chance.choices(WORDS[:4], k=chance.randint(1, 6))]
        out += [b"lonely"] if i % 40 == 7 else []
        out += [b""] * chance.randint(1, 2) if i % 5 else [b"  \r"]
    return b"\n".join(out) + b"\n"


def parquet(path: Path) -> None:
    values = [None if i % 50 == 9 else each for i, each in enumerate(texts(200))]
    pyarrow.parquet.write_table(pyarrow.table({"text": values, "id": range(200)}), path, row_group_size=33)


CASES = {
    "a.jsonl": jsonl(),
    "crlf.jsonl": jsonl(b"\r\n"),
    "a.txt": plain(),
    "a.tsv": tsv(True),
    "quoted.csv": csv(0),
    "late.csv": csv(150),
    "plain.csv": csv(200),
    "a.conll": conll(),
    "a.json": json.dumps([{"text": each} for each in texts(90)] + [{"other": 1}]).encode(),
    "a.jsonl.gz": gzip.compress(jsonl()),
    "a.jsonl.zst": None,
    "a.parquet": None,
}


WITHOUT_HEADER = {
    "a.tsv": tsv(False),
    "a.csv": tsv(False).replace(b"\t", b";").replace(b";two;", b";two, 2;"),  # of its second line commas might be read
}


def opened(folder: Path, names: list[str], header: bool = True) -> PredictInput:
    for name in names:
        path = folder / name
        if name.endswith(".parquet"):
            parquet(path)
        elif name.endswith(".zst"):
            path.write_bytes(pyarrow.Codec("zstd").compress(jsonl(), asbytes=True))
        else:
            path.write_bytes(CASES[name] if header else WITHOUT_HEADER[name])
    task = TAGGING if names[0].endswith(".conll") else CLASSIFYING
    data = DataSection(on_bad_row="skip", header=header)
    if not header:
        data = dataclasses.replace(data, columns=dataclasses.replace(data.columns, text="1"))
    format = "conll" if task == TAGGING else "auto"
    return open_inputs(task_rows(task, data), [str(folder / name) for name in names], format)


def divided(source: PredictInput, size: int, rows: int) -> tuple[list, int]:
    """All rows, read shard by shard, and the number of ranges."""
    ranges = cut_input(source, size)
    counted = {part: count_lines(source.files[part.file], part) for part in countable(ranges)}
    ranges = with_lines(source, ranges, counted)
    scanned = [scan(source, part, None) for part in ranges]
    assert not [each.error for each in scanned if each.error]
    shards = list(cut_shards(ranges, scanned, rows))
    found = [list(ShardRows(source, shard).kept_rows(None)) for shard in shards]
    assert [len(each) for each in found] == [shard.rows for shard in shards]
    read = [row for each in found for row in each]
    bad = [row for row, _ in read if isinstance(row, BadRow) and type(row) is BadRow]
    assert bad == [row for each in scanned for row in each.first_bad] or len(bad) > 10
    assert len(bad) == sum(each.bad for each in scanned)
    return read, len(ranges)


@pytest.fixture(autouse=True)
def marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict_shards, "MARK_EVERY", 4)


@pytest.mark.parametrize("name", CASES)
def test_parts_give_the_rows_of_the_whole(tmp_path: Path, name: str) -> None:
    source = opened(tmp_path, [name])
    whole = list(source.kept_rows(None))
    assert len(whole) > 80 and [row for row, _ in whole if isinstance(row, BadRow)]
    for size, rows in ((97, 7), (1000, 50), (1 << 20, 1000)):
        read, ranges = divided(source, size, rows)
        assert read == whole
        alone = name in ("quoted.csv", "a.json", "a.jsonl.gz", "a.jsonl.zst")
        assert ranges == 1 if alone or (size > 1000 and name != "a.parquet") else ranges > 2, ranges


@pytest.mark.parametrize("name", WITHOUT_HEADER)
def test_tables_without_a_header(tmp_path: Path, name: str) -> None:
    source = opened(tmp_path, [name], header=False)
    whole = list(source.kept_rows(None))
    assert sum("expected 3 as on line 2" in str(row) for row, _ in whole) == 2
    for size, rows in ((5, 3), (97, 7)):
        assert divided(source, size, rows)[0] == whole


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_a_packed_file_with_a_copy_is_read_from_its_middle(tmp_path: Path, name: str) -> None:
    source = opened(tmp_path, [name])
    whole, told = list(source.kept_rows(None)), source.identity()
    copy = tmp_path / "input-0"
    copy.write_bytes(b"".join(source.files[0].unpack()))
    source = dataclasses.replace(source, files=(dataclasses.replace(source.files[0], unpacked=str(copy)),))
    found, ranges = divided(source, 500, 64)
    assert found == whole and ranges > 3
    assert source.identity() == told and source.files[0].name == str(tmp_path / name)


def test_several_files_are_one_input(tmp_path: Path) -> None:
    names = ["a.jsonl", "a.txt", "late.csv", "a.parquet", "a.jsonl.gz"]
    source = opened(tmp_path, names)
    whole = list(source.kept_rows(None))
    assert divided(source, 500, 64)[0] == whole
    assert len(whole) == sum(len(list(opened(tmp_path, [name]).kept_rows(None))) for name in names)
    for name in ("_SUCCESS", ".hidden.txt", "README.md"):
        (tmp_path / name).touch()
    rows = source.task_rows
    folder = open_inputs(rows, [str(tmp_path)], "auto")
    assert [file.name for file in folder.files] == sorted(str(tmp_path / name) for name in names)
    assert [file.name for file in open_inputs(rows, [f"{tmp_path}/*.jsonl*"], "auto").files] == [
        f"{tmp_path}/a.jsonl", f"{tmp_path}/a.jsonl.gz"
    ]  # fmt: skip


def test_what_is_not_there_or_damaged(tmp_path: Path) -> None:
    rows = task_rows(CLASSIFYING, DataSection())
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(jsonl())[:200])
    (tmp_path / "no.jsonl.gz").write_bytes(jsonl())
    (tmp_path / "no.parquet").write_bytes(jsonl())
    (tmp_path / "empty").mkdir()
    for name in ("cut.jsonl.gz", "no.jsonl.gz"):
        with pytest.raises(UserError, match="cannot be unpacked"):
            open_inputs(rows, [str(tmp_path / name)], "auto").check()
    with pytest.raises(UserError, match="Parquet file cannot be read"):
        open_inputs(rows, [str(tmp_path / "no.parquet")], "auto").check()
    for name, told in (("empty", "no file of texts"), ("x*.jsonl", "no such input file")):
        with pytest.raises(UserError, match=told):
            open_inputs(rows, [str(tmp_path / name)], "auto")
    with pytest.raises(UserError, match="named twice"):
        open_inputs(rows, [str(tmp_path / "no.parquet"), f"{tmp_path}/no.p*"], "auto")


def test_urls(tmp_path: Path) -> None:
    import fsspec

    rows = task_rows(CLASSIFYING, DataSection(on_bad_row="skip"))
    with fsspec.open("memory://texts/a.jsonl", "wb") as stream:
        stream.write(jsonl())
    local = [row for row in opened(tmp_path, ["a.jsonl"]).rows() if not isinstance(row, BadRow)]
    source = open_inputs(rows, ["memory://texts/*.jsonl"], "auto")
    assert [row for row in source.rows() if not isinstance(row, BadRow)] == local
    assert divided(source, 200, 9)[0] == list(source.kept_rows(None))
    for url, told in (("memory://nothing", "no such input"), ("nonesuch://x", "nonesuch"), ("gs://b/x", "gcsfs")):
        with pytest.raises(UserError, match=told):
            open_inputs(rows, [url], "auto")


def test_a_package_behind_a_url_fails_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its errors are its own, no OSError; an error of nlpctl is not told twice."""
    import fsspec

    class NoCredentials(Exception):
        pass

    def refuse(*_: object, **__: object) -> object:
        raise NoCredentials("no token")

    rows = task_rows(CLASSIFYING, DataSection())
    for name in ("a.jsonl", "manifest.json"):
        with fsspec.open(f"memory://refused/{name}", "wb") as stream:
            stream.write(jsonl())
    source = open_inputs(rows, ["memory://refused/a.jsonl"], "auto")
    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "open", refuse)
    with pytest.raises(UserError, match="this URL cannot be read: no token"):
        list(source.rows())
    with pytest.raises(UserError, match="this URL cannot be read: no token") as caught:
        open_inputs(rows, ["memory://refused"], "auto")
    assert str(caught.value).count("cannot be read") == 1
