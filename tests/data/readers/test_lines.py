"""Bytes to lines: every way a line can end, and lines that do not end."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading

import pytest

from nlpctl.data.readers import readers as reader
from nlpctl.data.readers.lines import MAX_LINE, numbered_lines
from nlpctl.data.readers.readers import parse_rows
from nlpctl.errors import UserError


class Pieces(io.RawIOBase):
    """A stream that gives `pieces` one at a time, as a pipe does; counts what was taken."""

    def __init__(self, pieces):
        self._pieces, self._left, self.taken = iter(pieces), b"", 0

    def readable(self):
        return True

    def readinto(self, buffer):
        self._left = self._left or next(self._pieces, b"")
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        self.taken += count
        return count


def endless(piece: bytes):
    while True:
        yield piece


@pytest.mark.parametrize("size", [1, 2, 3, 5, 64])
@pytest.mark.parametrize(
    "raw", [b"", b"\n", b"\r\n", b"a", b"a\n", b"a\r\nb\r\r\n\n\nc\r", b"\xef\xbb\xbf\xe5\xa5\xbd\nb", b"\xef\xbb\xbf"]
)
def test_lines_do_not_depend_on_how_they_arrive(raw, size):
    pieces = [raw[i : i + size] for i in range(0, len(raw), size)]
    found = list(numbered_lines(io.BufferedReader(Pieces(pieces)), "f"))
    wanted = [line.rstrip(b"\r\n").removeprefix(b"\xef\xbb\xbf") for line in io.BytesIO(raw)]
    assert found == list(enumerate(wanted, 1))


@pytest.mark.parametrize(
    "raw",
    [
        "好的\n".encode() * 9 + b"\xff\n",  # a broken byte of UTF-8
        "好的\n".encode()[:-2],
        "Größe, naïve, déjà vu".encode("latin-1"),
        "房間很大，服務好".encode("big5"),
        "カタカナの文章".encode("shift_jis"),
        "привет, как дела".encode("koi8-r"),
    ],
)
def test_other_encodings_are_not_taken_for_gbk(raw):
    assert list(numbered_lines(io.BytesIO(raw), "f"))


def test_a_line_comes_as_soon_as_it_ends():
    """Each line of a pipe, before anything that follows is there: `predict --flush` answers it."""
    source, sink = os.pipe()
    with os.fdopen(source, "rb") as stream, os.fdopen(sink, "wb", buffering=0) as pipe:
        lines = numbered_lines(stream, "f")
        for number in (1, 2, 3):
            pipe.write(b"text\nbeg" if number == 1 else b"un\nbeg")
            assert next(lines) == (number, b"text" if number == 1 else b"begun")


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\nmore\n", b"\r\nmore"])
@pytest.mark.parametrize("before", [b"", b"short\n"])
@pytest.mark.parametrize("longest", [10, 70_000])  # less, and more, than is read at a time
def test_a_line_of_the_limit_works_and_a_longer_one_ends_the_reading(end, before, longest):
    raw = before + b"x" * longest + end
    assert [line for _, line in numbered_lines(io.BytesIO(raw), "f", longest)] == raw.splitlines()
    number = before.count(b"\n") + 1
    for more in (b"x", b"\r" if end.startswith(b"\r") else b"xx", b"x" * 100_000):
        lines = numbered_lines(io.BytesIO(before + b"x" * longest + more + end), "f", longest)
        with pytest.raises(UserError, match=rf"^f:{number}: the line is longer than .* MiB\n  -> split the line"):
            list(lines)


def test_the_limit_leaves_room_for_a_page():
    text = b"a" * MAX_LINE
    (row,) = parse_rows(io.BytesIO(text + b"\r\n"), "f", "text", False, ["text"])
    assert len(row.values["text"]) == MAX_LINE == 16 * 2**20
    with pytest.raises(UserError, match="f:1: the line is longer than 16 MiB"):
        list(parse_rows(io.BytesIO(text + b"a\n"), "f", "text", False, ["text"]))


@pytest.mark.parametrize("kind", ["text", "tsv", "csv", "jsonl", "conll", "joined"])
@pytest.mark.parametrize("piece", [b"\0" * 4096, b"a" * 1000, b'{"text": "', b"a\t", b'"a",'])
def test_a_line_without_end_is_told_before_it_fills_the_memory(kind, piece):
    head = b'{"text": "a"}\n' if kind == "jsonl" else b"text\n\n"
    stream = Pieces(endless(piece * 100))
    stream._left = head
    required = ["tokens" if kind == "conll" else "text"]
    rows = parse_rows(io.BufferedReader(stream), "f", kind, kind in ("tsv", "csv", "joined"), required)
    with pytest.raises(UserError, match=r"f:\d: the line is longer than 16 MiB"):
        list(rows)
    assert stream.taken < MAX_LINE + (1 << 20)


@pytest.mark.parametrize("kind", ["json", "squad"])
def test_a_document_may_stand_on_one_line_but_has_an_end(kind, monkeypatch):
    def rows(size: int) -> list:
        """Of a document of a little more than `size` bytes."""
        context = "a" * size
        paragraph = {"context": context, "qas": [{"id": "1", "question": "?", "answers": []}]}
        article = {"paragraphs": [paragraph]} if kind == "squad" else {"context": context}
        raw = json.dumps({"data": [article]}).encode()
        return list(parse_rows(io.BytesIO(raw), "f", kind, False, ["context"]))

    monkeypatch.setattr(reader, "MAX_DOCUMENT", 2 * MAX_LINE)
    (row,) = rows(MAX_LINE)
    assert len(row.values["context"]) == MAX_LINE
    with pytest.raises(UserError, match="f:1: the line is longer than 32 MiB\n  -> cut the document"):
        rows(2 * MAX_LINE)


def test_old_line_ends_and_archives_are_told_first():
    with pytest.raises(UserError, match="old Mac line ends.*(?s:.*)< 'my f'"):
        list(numbered_lines(io.BytesIO(b"line\r" * 10), "my f", 20))
    with pytest.raises(UserError, match="the file is compressed"):
        list(numbered_lines(io.BytesIO(b"\x1f\x8b" + b"a" * 30), "f", 20))


BOUNDED = """
import resource, sys
from pathlib import Path
import nlpctl
from nlpctl.config.schema import DataSection
from nlpctl.data.predict_input import open_input
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.errors import UserError
memory = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (memory + (200 << 20), -1))
rows = task_rows("sequence_classification", DataSection(on_bad_row="skip"))
try:
    for _ in open_input(rows, sys.argv[1], "text").rows():
        pass
except UserError as error:
    sys.exit(str(error))
"""


@pytest.mark.parametrize("source", ["zero", "pipe", "-"])
def test_memory_is_bounded_and_bad_rows_are_not_skipped_for_ever(source, device, tmp_path):
    path, endless, name = source, None, "standard input"
    if source == "zero":
        path = name = str(device("zero"))
    elif source == "pipe":
        path = name = str(tmp_path / "pipe")
        os.mkfifo(path)
    reader = subprocess.Popen(
        [sys.executable, "-c", BOUNDED, path], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    if source != "zero":
        endless = threading.Thread(
            target=_pour, args=(path if source == "pipe" else reader.stdin.fileno(),), daemon=True
        )
        endless.start()
        endless.join(100)
    reader.stdin.close()
    told = reader.stderr.read()
    expected = f"{name}: this is not a text file" if source == "zero" else f"{name}:1: the line is longer than 16 MiB"
    assert reader.wait(100) == 1 and told.startswith(f"{expected}\n"), told


def _pour(target: str | int) -> None:
    try:
        with open(target, "wb", buffering=0, closefd=isinstance(target, str)) as stream:
            while True:
                stream.write(b"a" * (1 << 16))
    except BrokenPipeError:
        pass
