"""Files to rows: every format, every way in which a file or a line can be broken."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas
import pytest

from nlpctl.config.input_formats import ENDINGS
from nlpctl.data.open_split import FileRows
from nlpctl.data.readers.readers import file_format, parse_rows, read_rows
from nlpctl.data.readers.row import BadRow, Row
from nlpctl.data.readers.tables import in_quotes
from nlpctl.data.rows.labels import label_name
from nlpctl.errors import UserError

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}


def parse(content: bytes | str, kind: str = "tsv", header: bool = True, required=("text", "label")) -> list:
    raw = content.encode() if isinstance(content, str) else content
    return list(parse_rows(io.BytesIO(raw), "f", kind, header, required))


def values(rows: list) -> list[tuple[int, tuple]]:
    assert all(isinstance(row, Row) for row in rows), rows
    return [(row.line, tuple(row.values.values())) for row in rows]


def refused(content: bytes | str, kind: str = "tsv", header: bool = True, required=("text", "label")) -> str:
    with pytest.raises(UserError) as caught:
        parse(content, kind, header, required)
    return str(caught.value)


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"], ids=["plain", "bom"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("last", [True, False], ids=["end", "no-end"])
@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("tsv", ["text\tlabel", '好的 "x"\t1', "", "坏\u2028的\t0"]),
        ("csv", ["text,label", '"好的 ""x""",1', "", "坏\u2028的,0"]),
        ("jsonl", [" ", '{"text": "好的 \\"x\\"", "label": "1"}', "", '{"text": "坏\u2028的", "label": "0"}']),
        ("json", ["[", '{"text": "好的 \\"x\\"", "label": "1"},', "", '{"text": "坏\u2028的", "label": "0"}]']),
    ],
)
def test_good_files(kind, lines, end, last, bom):
    lines = ["" if line == " " else line for line in lines]
    content = bom + end.join(line.encode() for line in lines) + (end if last else b"")
    assert values(parse(content, kind)) == [(2, ('好的 "x"', "1")), (4, ("坏\u2028的", "0"))]


def test_tsv_has_no_quoting_and_keeps_blanks():
    assert values(parse('text\tlabel\n"a\t1\n  b \t 2 \n')) == [(2, ('"a', "1")), (3, ("  b ", " 2 "))]


def test_no_header_names_columns_by_number():
    rows = parse("1\tgood\textra\n0\tbad\tmore\n", header=False, required=("1", "0"))
    assert [row.values for row in rows] == [
        {"0": "1", "1": "good", "2": "extra"},
        {"0": "0", "1": "bad", "2": "more"},
    ]


@pytest.mark.parametrize(
    ("content", "kind", "line", "reason"),
    [
        ("text\tlabel\na\t1\nb\tc\t1\n", "tsv", 3, "wrong column count: expected 2 as on line 1, got 3"),
        ("text\tlabel\na\t1\n \n", "tsv", 3, "wrong column count: expected 2 as on line 1, got 1"),
        ("text,label\na,1\nb,c,1\n", "csv", 3, "wrong column count: expected 2 as on line 1, got 3"),
        (b"text\tlabel\na\t1\nab\xff\t1\n", "tsv", 3, "not UTF-8: byte 0xff at byte 3 of the line"),
        (b"text,label\na,1\nab\xff,1\n", "csv", 3, "not UTF-8: byte 0xff at byte 3 of the line"),
        (b'text,label\na,1\n"x\n\xffy",1\n', "csv", 3, "not UTF-8: byte 0xff at byte 1 of line 4"),
        (b"text\tlabel\na\t1\na\0b\t1\n", "tsv", 3, "NUL byte: at byte 2 of the line"),
        (b"text,label\na,1\na\0b,1\n", "csv", 3, "NUL byte: at byte 2 of the line"),
        ('text,label\na,1\n"b"c,1\n', "csv", 3, "broken csv: "),
        ('text,label\na,1\n"b,1\n', "csv", 3, "broken csv: unexpected end of data"),
        ('{"text": "a", "label": 1}\n\n{"text": "a"}\n', "jsonl", 3, "missing key 'label': the keys are 'text'"),
        ('{"text": "a", "label": 1}\n\n{"text": "a", "lable": 1}', "jsonl", 3,
         "missing key 'label': the keys are 'text', 'lable' (did you mean 'lable'?)"),
        ('{"text": "a", "label": 1}\n\n["a", 1]\n', "jsonl", 3, "not a JSON object: got a list"),
        ('{"text": "a", "label": 1}\n\nnull\n', "jsonl", 3, "not a JSON object: got null"),
        ('{"text": "a", "label": 1}\n\n{"text": \n', "jsonl", 3, "not JSON: Expecting value at character 10"),
        ('{"text": "a", "label": 1}\n\n{"text": "a\n', "jsonl", 3,
         "not JSON: Unterminated string starting at character 10"),
        ('{"text": "a", "label": 1}\n\n[\n', "jsonl", 3, "not JSON: Expecting value"),
        ('{"text": "text", "label": 1}\n\n{"text": "a", "label": {"label": 1}, "text": "b"}', "jsonl", 3,
         "repeated key: 'text' stands twice"),
        ('{"text": "a", "label": 1}\n\n{"\\u6587": "a", "\\u6587": "b"}', "jsonl", 3,
         "repeated key: '文' stands twice"),
        ('{"text": "a", "label": 1}\n\n{"text": "a", "label": {"name": {"x": [1]}, "name": {"y": [2]}}}', "jsonl", 3,
         "repeated key: 'name' stands twice ({'x': [1]} and {'y': [2]}), and only one"),
        ('[{"text": "a", "label": 1},\n\n{"text": "b", "text": "c", "label": 1}]', "json", 3, "repeated key: 'text'"),
        ("text\tlabel\na\t1\nb\t1\rc\t1\rd\t1\n", "tsv", 3,
         "wrong column count: expected 2 as on line 1, got 4; the line holds 2 carriage returns, the line ends of old"),
        ('{"text": "a", "label": 1}\n\n{"text": "b"}\r{"text": "c"}\n', "jsonl", 3,
         "not JSON: Extra data at character 15; the line holds 1 carriage return,"),
        ("text,label\na,1\nb,1\rc,1\n", "csv", 3, "broken csv: a carriage return outside quotation marks"),
        ('{"text": "a", "label": 1}\n\n' + "[" * 100_000, "jsonl", 3, "not JSON: nested too deeply"),
        ('{"text": "a", "label": 1}\n\n{"label": ' + "1" * 5000 + "}", "jsonl", 3, "not JSON: Exceeds the limit"),
        (b'{"text": "a", "label": 1}\n\n{"text": "\xff", "label": 1}', "jsonl", 3, "not UTF-8: byte 0xff at byte 11"),
        ('[{"text": "a", "label": 1},\n\n{"text": "b", "label": 1, "text": "c"}]', "json", 3,
         "repeated key: 'text' stands twice"),
        ('[{"text": "a", "label": 1},\n\n3]', "json", 3, "not a JSON object: got a number"),
        ('[{"text": "a", "label": 1},\n\n{"text": "b"}]', "json", 3, "missing key 'label'"),
    ],
)  # fmt: skip
def test_one_bad_row_and_reading_goes_on(content, kind, line, reason):
    first, *bad = parse(content, kind)
    assert isinstance(first, Row)
    assert [row.line for row in bad] == [line]
    assert isinstance(bad[0], BadRow) and bad[0].reason.startswith(reason), bad[0].reason
    assert bad[0].kind == reason.split(":")[0]
    if kind != "json" and "unexpected end" not in reason:
        # the same file with a good line after the bad one
        raw = content.encode() if isinstance(content, str) else content
        good = {"tsv": b"z\t9\n", "csv": b"z,9\n", "jsonl": b'{"text": "z", "label": "9"}\n'}[kind]
        *_, last = parse(raw.rstrip(b"\n") + b"\n" + good, kind)
        assert last.values == {"text": "z", "label": "9"}


def test_csv_lines_are_those_where_records_start():
    content = 'text,label\n"one\n\ntwo",1\n\nthree,2\n"fo\r\nur",3\nfive,4\n'
    assert values(parse(content, "csv")) == [
        (2, ("one\n\ntwo", "1")), (6, ("three", "2")), (7, ("fo\r\nur", "3")), (9, ("five", "4")),
    ]  # fmt: skip


@pytest.mark.parametrize("inside", ["\r\n", "\r", "\r\r\n", "\n", "\u2028", "\x0c", "\x85", "\x1c"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_ends_a_line_elsewhere_stays_in_a_text(inside, end):
    """Positions in an answer count it."""
    text = f"one{inside}two"
    found = values(parse(f'text,label{end}"{text}",1{end}three,2{end}', "csv"))
    assert found == [(2, (text, "1")), (3 + ("\n" in inside), ("three", "2"))]
    line = json.dumps({"text": text, "label": "1"}, ensure_ascii=False)
    assert values(parse(f"{line}{end}", "jsonl")) == [(1, (text, "1"))]
    if "\n" not in inside:
        assert values(parse(f"text\tlabel{end}{text}\t1{end}")) == [(2, (text, "1"))]


def test_a_carriage_return_needs_quotation_marks_in_csv():
    good, bad = parse("text,label\none,1\ntwo\rthree,2\n", "csv")
    assert bad.where == "f:3" and bad.reason.startswith("broken csv: a carriage return outside quotation marks")
    assert good.values["label"] == "1"


@pytest.mark.parametrize(("rest", "last"), [("b,1\n", "4"), ("b,1\n" * 40_000, "40,003"), ('b,1\n"c" d,1\n', "5")])
def test_an_open_quotation_mark_never_takes_good_rows_along(rest, last):
    """Skipping such a row would lose them without a word."""
    with pytest.raises(UserError, match=f"3: broken csv: .* It takes the lines 3 to {last}, so it is never skipped"):
        parse('text,label\na,1\n"open,1\n' + rest, "csv")


def test_blank_lines_are_no_good_rows():
    (_, bad) = parse('text,label\na,1\n"open,1\n\n\n', "csv")
    assert isinstance(bad, BadRow) and bad.line == 3


def test_lines_of_white_space_are_empty_in_jsonl():
    content = ' \n{"text": "a", "label": 1}\n\t \n\u3000\r\n{"text": "b", "label": 2}\n \n'
    assert values(parse(content, "jsonl")) == [(2, ("a", 1)), (5, ("b", 2))]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_csv_between_semicolons(end):
    """As Excel writes it where numbers have a comma; its first line may say so."""
    lines = ["text;label", '"a; ""b"";', 'c, d";1', "e, f;2", ""]
    wanted = [(2, (f'a; "b";{end}c, d', "1")), (4, ("e, f", "2"))]
    assert values(parse(end.join(lines), "csv")) == values(parse(end.join(lines), "csv", required=())) == wanted
    moved = [(line + 1, row) for line, row in wanted]
    assert values(parse(end.join(["\ufeffsep=;", *lines]), "csv")) == moved
    text = end.join(['"SEP=|"', "text|label", "a;b|1", "c|2", ""])
    assert values(parse(text, "csv")) == [(3, ("a;b", "1")), (4, ("c", "2"))]
    numbered = parse("a;b;1\nc, d;e;2\n", "csv", header=False, required=("0", "2"))
    assert values(numbered) == [(1, ("a", "b", "1")), (2, ("c, d", "e", "2"))]
    later = parse("c, d;1\ne;2\n", "csv", header=False, required=("0", "1"))
    assert values(later) == [(1, ("c, d", "1")), (2, ("e", "2"))]
    assert values(parse("c; d,1\ne,2\n", "csv", header=False, required=("0", "1")))[0] == (1, ("c; d", "1"))


def test_a_semicolon_separates_nothing_where_commas_give_the_columns():
    assert values(parse("text;or,label\na;b,1\n", "csv", required=("label",))) == [(2, ("a;b", "1"))]
    assert values(parse("hello; world\nyes\n", "csv", header=False, required=("0",))) == [
        (1, ("hello; world",)), (2, ("yes",)),
    ]  # fmt: skip
    assert values(parse("I came; I saw\n", "csv", header=False, required=())) == [(1, ("I came; I saw",))]


def test_quoted_tables_with_tabs_as_pandas_writes_them():
    frame = pandas.DataFrame({"text": ['say "hi"', "two\nlines", "a\tb", "plain"], "label": [1, 2, 1, 2]})
    raw = frame.to_csv(sep="\t", index=False)
    rows = values(parse(raw, "quoted_tsv"))
    assert rows == [(2, ('say "hi"', "1")), (3, ("two\nlines", "2")), (5, ("a\tb", "1")), (6, ("plain", "2"))]
    with pytest.raises(UserError, match="add --set data.format=quoted_tsv"):
        parse(frame.to_csv(sep="\t", index=False, quoting=1))
    assert in_quotes(raw) and in_quotes(raw[:30]) and in_quotes(raw.replace("\n", "\r\n"))
    assert not in_quotes('text\tlabel\n"all of it"\t1\n') and not in_quotes(raw + 'some "words"\t2\n')
    assert values(parse(raw.split("\n")[0] + "\n" + raw.split("\n")[1] + "\n"))[0][1] == ('"say ""hi"""', "1")


def test_json_under_data():
    content = '{"version": {"data": [1]},\n "data": [\n  {"text": "a", "label": 1},\n  {"text": "b", "label": 2}\n ]}\n'
    assert values(parse(content, "json")) == [(3, ("a", 1)), (4, ("b", 2))]


def test_header_and_first_line_of_a_broken_table():
    rows = parse(b"ab\xff\t1\na\t1\n", header=False, required=("0", "1"))
    assert isinstance(rows[0], BadRow) and rows[1] == Row("f", 2, {"0": "a", "1": "1"})


@pytest.mark.parametrize(
    ("content", "kind", "says"),
    [
        ("", "tsv", ["f: the file holds no rows after the header line"]),
        ("\n\n", "csv", ["no rows"]),
        ("text\tlabel\n", "tsv", ["no rows after the header line"]),
        ("text,label\n", "csv", ["no rows after the header line"]),
        ("", "jsonl", ["f: the file holds no rows\n"]),
        ("", "json", ["no rows"]),
        ("[]", "json", ["no rows"]),
        ('{"data": []}', "json", ["no rows"]),
        ("Text\tlabel\na\t1\n", "tsv", ["f:1", "no column 'text'", "did you mean 'Text'", "'Text', 'label'"]),
        ("好\t1\na\t1\n", "tsv", ["f:1", "the columns are '好', '1'", "data.header=false"]),
        ("text\ttext\tlabel\na\tb\t1\n", "tsv", ["f:1", "occurs twice"]),
        ("text\tlabel\tid\tid\na\tb\t1\t2\n", "tsv", ["f:1", "column 'id' occurs twice"]),
        (b"te\xb7xt\tlabel\na\t1\n", "tsv", ["f:1", "header line cannot be read", "0xb7"]),
        ("text\tlabel\na\t1\n".encode("utf-16"), "tsv", ["UTF-16", "iconv"]),
        ("text\tlabel\na\t1\n".encode("utf-16-le"), "tsv", ["UTF-16", "iconv -f UTF-16LE"]),
        ("text\tlabel\na\t1\n".encode("utf-16-be"), "tsv", ["UTF-16", "iconv -f UTF-16BE"]),
        (bytes(40), "tsv", ["f: this is not a text file"]),
        (b"\x1f\x8b\x08rest", "tsv", ["compressed", "unpack"]),
        ("text\tlabel\ra\t1\r", "tsv", ["f:1", "Mac line ends"]),
        ("text\tlabel\n房间很大\t1\n服务好，也干净\t0\n".encode("gbk"), "tsv", ["f: the file is in GBK", "iconv"]),
        ('[{"text": "好", "label": 1}]\n'.encode("gb18030"), "json", ["f: the file is in GBK"]),
        ("房間很乾淨，服務很好。\n".encode("big5") * 9, "text", ["f: the file is in GBK (GB18030) or Big5", "-f BIG5"]),
        ('[{"text": "a", "label": 1}, {"text": "b", "label": 0}]\n', "jsonl", ["f:1: this is an array", ".json"]),
        ('\n[\n  {"text": "a"},\n  {"text": "b"}\n]\n', "jsonl", ["f:2: this is an array", "data.format: json"]),
        ('[{"text": "a"},\n {"text": "b"}]\n', "jsonl", ["f:1: this is an array", "--format json"]),
        ('{\n "text": "a"\n}\n', "jsonl", ["f:1: this object goes on over several lines", "jq -c"]),
        ('{"text": "a"}\n{"text": "b"}', "json", ["f:2", "Extra data", "data.format: jsonl"]),
        ('{"rows": []}', "json", ["under \"data\"", "'rows'", "data.format: jsonl"]),
        ('"text"', "json", ["got a string"]),
        ('[{"text": "a", "label": 1},\n{"text" "b"}]', "json", ["f:2", "not JSON"]),
        ('[{"text": "a", "label": 1}\n{"text": "b"}]', "json", ["f:2", "not JSON: Expecting ',' or ']'"]),
        ('[{"text": "a", "label": 1},\n', "json", ["f:1", "not JSON"]),
        ('[{"text": "a", "label": 1}] x', "json", ["not JSON", "Extra data"]),
        (b'[\n{"text": "\xff"}]', "json", ["f:2", "not UTF-8"]),
        ("[" * 100_000, "json", ["nested too deeply"]),
        ('{"data": [{"title": "a", "title": "b"}]}', "squad", ["f: repeated key: 'title' stands twice"]),
    ],
)  # fmt: skip
def test_refused_as_a_whole(content, kind, says):
    message = refused(content, kind)
    for part in says:
        assert part in message, message


def test_refused_without_header():
    message = refused("a\t1\n", header=False, required=("0", "2"))
    assert "no column '2'" in message and "'0', '1'" in message and "f:1" in message
    assert "data.header=true" in refused("a\t1\n", header=False, required=("text", "1"))


def test_read_rows_from_disk(tmp_path: Path):
    path = tmp_path / "a.tsv"
    path.write_text("text\tlabel\na\t1\n")
    assert list(read_rows(path, "tsv", True, ("text",))) == [Row(str(path), 2, {"text": "a", "label": "1"})]
    with pytest.raises(UserError, match="cannot read the file"):
        list(read_rows(tmp_path / "none.tsv", "tsv", True, ("text",)))


def test_format_by_ending():
    assert file_format(Path("a/B.JSONL"), "auto", ENDINGS) == "jsonl"
    assert file_format(Path("a.txt"), "csv", ENDINGS) == "csv"
    with pytest.raises(UserError, match=r"\.tsv, \.csv, \.xlsx, \.jsonl, \.ndjson, \.json"):
        file_format(Path("a.txt"), "auto", ENDINGS)


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl"])
def test_constant_memory(tmp_path: Path, kind):
    """Ten times the rows take no more memory; counted in the interpreter, so exact enough for a small file."""
    script = (
        "import sys, tracemalloc\n"
        "from pathlib import Path\n"
        "from nlpctl.data.readers.readers import read_rows\n"
        "tracemalloc.start()\n"
        "path = Path(sys.argv[1])\n"
        "count = sum(1 for _ in read_rows(path, path.suffix[1:], True, ('text', 'label')))\n"
        "print(count, tracemalloc.get_traced_memory()[1])\n"
    )
    line = {"tsv": "some words\t1\n", "csv": "some words,1\n", "jsonl": '{"text": "words", "label": "1"}\n'}[kind]
    header = {"tsv": "text\tlabel\n", "csv": "text,label\n", "jsonl": ""}[kind]
    peaks = []
    for count in (2_000, 20_000):
        path = tmp_path / f"{count}.{kind}"
        path.write_text(header + line * count)
        command = [sys.executable, "-c", script, path]
        done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
        read, peak = map(int, done.stdout.split())
        assert read == count
        peaks.append(peak)
    assert peaks[1] < peaks[0] + 200_000, peaks


def test_a_cell_of_csv_may_be_as_long_as_a_line(tmp_path):
    (tmp_path / "a.csv").write_text(f'text,label\n"{"x" * 200_000}",a\n')
    (row,) = read_rows(tmp_path / "a.csv", "csv", True, ())
    assert len(row.values["text"]) == 200_000


@pytest.mark.parametrize("required", [("text", "label"), ("text", "text_pair")])
def test_plain_text_has_no_other_columns(tmp_path, required):
    (tmp_path / "a.txt").write_text("good\n")
    with pytest.raises(UserError, match="lines of plain text have no column '(label|text_pair)'"):
        list(FileRows((tmp_path / "a.txt",), ("text",), True, required))


def test_a_label_of_many_digits_is_text():
    assert label_name(10**400) == str(10**400)
    with pytest.raises(ValueError):
        label_name(float("inf"))
