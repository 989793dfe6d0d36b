"""Corrected copies of files of every format."""

from __future__ import annotations

import json

import pytest

from nlpctl.checksums import sha256_of
from nlpctl.data.readers.readers import read_rows
from nlpctl.datatools.corrections import Edit, corrected
from nlpctl.errors import UserError

TSV = b"text\tlabel\r\ngood room\tpos\r\n\r\nbad \xe6\x88\xbf\tneg\r\nso so\tpos"
CSV = b'label,text\npos,"good\nroom, ""very"""\nneg,bad\n'
JSONL = b'{"text": "good",  "label": 1}\n\n{"label": 0, "text": "\xe5\xa5\xbd"}\n'
CONLL = b"# c\nJim\tB-PER\nsat\tO\n\n-DOCSTART- O\n\nin x O\nRome y B-LOC\n"


def copy(tmp_path, name, content, edits, header=True):
    file = tmp_path / name
    file.write_bytes(content)
    kind = {"txt": "conll"}.get(file.suffix[1:], file.suffix[1:])
    return corrected(file, sha256_of(file), kind, header, edits)


def test_tables_keep_everything_else(tmp_path):
    edits = {1: [Edit("label", "neg", "pos")]}
    assert copy(tmp_path, "a.tsv", TSV, edits) == TSV.replace(b"\xbf\tneg", b"\xbf\tpos")
    bare = TSV.partition(b"\n")[2]
    edits = {0: [Edit("1", "pos", "neg")]}
    assert copy(tmp_path, "b.tsv", bare, edits, header=False) == bare.replace(b"pos", b"neg", 1)
    assert copy(tmp_path, "c.tsv", TSV, {0: [Edit("label", "pos", None)]}) == TSV.replace(b"good room\tpos\r\n", b"")
    assert copy(tmp_path, "d.tsv", TSV, {2: [Edit("label", "pos", None)]}) == TSV.replace(b"\nso so\tpos", b"")


def test_quoted_cells(tmp_path):
    found = copy(tmp_path, "a.csv", CSV, {0: [Edit("label", "pos", "neg")]})
    (tmp_path / "b.csv").write_bytes(found)
    rows = [row.values for row in read_rows(tmp_path / "b.csv", "csv", True, ())]
    assert rows == [{"label": "neg", "text": 'good\nroom, "very"'}, {"label": "neg", "text": "bad"}]
    assert copy(tmp_path, "a.csv", CSV, {0: [Edit("label", "pos", None)]}) == b"label,text\nneg,bad\n"


def test_cells_over_several_lines_stay_one_row(tmp_path):
    """Where nothing else is there to quote."""
    for end in (b"\n", b"\r\n"):
        lines = [b"text,label", b'"line one', b'line two",pos', b"ok,neg", b""]
        found = copy(tmp_path, "a.csv", end.join(lines), {0: [Edit("label", "pos", "neg")]})
        assert found == end.join(lines).replace(b"pos", b"neg")


def test_objects(tmp_path):
    found = copy(tmp_path, "a.jsonl", JSONL, {1: [Edit("label", 0, 1)]})
    assert found.startswith(b'{"text": "good",  "label": 1}\n\n') and found.endswith('"text": "好"}\n'.encode())
    assert json.loads(found.split(b"\n")[2]) == {"label": 1, "text": "好"}
    document = json.dumps({"v": 1, "data": [{"label": ["a"]}, {"label": ["b"]}]}).encode()
    edits = {0: [Edit("label", ["a"], ["a", "b"])], 1: [Edit("label", ["b"], None)]}
    assert json.loads(copy(tmp_path, "a.json", document, edits)) == {"v": 1, "data": [{"label": ["a", "b"]}]}


def test_tags(tmp_path):
    first = [Edit("tags", ["B-PER"], ["O"], 0), Edit("tags", ["O"], ["B-PER"], 1)]
    edits = {0: first, 1: [Edit("tags", ["B-LOC"], ["O"], 1)]}
    expected = CONLL.replace(b"Jim\tB-PER\nsat\tO", b"Jim\tO\nsat\tB-PER").replace(b"Rome y B-LOC", b"Rome y O")
    content = CONLL.partition(b"\n")[2]
    assert copy(tmp_path, "a.txt", content, edits) == expected.partition(b"\n")[2]
    assert copy(tmp_path, "a.txt", content, {0: [Edit("tags", ["O"], None, 1)]}) == content.partition(b"\n\n")[2]
    windows = b"Jim\tB-PER\r\n\t\r\n# id 2\r\nRome\tB-LOC\r\n"  # the line of a tab ends the sentence
    assert copy(tmp_path, "b.txt", windows, {0: [Edit("tags", ["B-PER"], None, 0)]}) == windows.partition(b"\t\r\n")[2]


def test_an_edit_of_another_row(tmp_path):
    for edit in (Edit("label", "pos", "neg"), Edit("other", "neg", "pos")):
        with pytest.raises(UserError, match="not what its finding says"):
            copy(tmp_path, "a.tsv", TSV, {1: [edit]})
    with pytest.raises(UserError, match="not what its finding says"):
        copy(tmp_path, "a.tsv", TSV, {7: [Edit("label", "pos", "neg")]})


def test_a_file_that_changed(tmp_path):
    file = tmp_path / "a.tsv"
    file.write_bytes(TSV)
    before = sha256_of(file)
    file.write_bytes(TSV.replace(b"\n", b"\nnew\tpos\r\n", 1))  # the first row is "pos" as before
    with pytest.raises(UserError, match="changed since"):
        corrected(file, before, "tsv", True, {0: [Edit("label", "pos", "neg")]})


def test_other_tables_in_quotes(tmp_path):
    content = b'sep=;\r\ntext;label\r\n"a; b\r\nc";pos\r\nd;neg\r\n'
    found = copy(tmp_path, "a.csv", content, {0: [Edit("label", "pos", "neg")], 1: [Edit("label", "neg", "x;y")]})
    assert found == content.replace(b"pos", b"neg", 1).replace(b"d;neg", b'd;"x;y"')
    content = b'text\tlabel\n"a\tb"\tpos\nd\tneg\n'
    found = copy(tmp_path, "a.quoted_tsv", content, {0: [Edit("label", "pos", "x\ty")]})
    assert found == content.replace(b"pos", b'"x\ty"')
