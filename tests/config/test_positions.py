"""Reading YAML: lines, duplicates, and files that are no recipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from nlpctl.config import positions
from nlpctl.config.positions import ListNode, ScalarNode, TableNode, merge, parse_yaml, read_yaml
from nlpctl.errors import UserError


def read(tmp_path: Path, text: str | bytes) -> TableNode:
    path = tmp_path / "a.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    problems: list = []
    tree = read_yaml(path, problems)
    assert problems == []
    return tree


def test_every_value_knows_its_line_and_text(tmp_path: Path) -> None:
    tree = read(tmp_path, "# first\na: 5e-5\nb:\n  c: no\n  d:\n  - x\n  - 'null'\n")
    assert tree.entries["a"].origin.line == 2 and tree.entries["a"].text == "5e-5"
    b = tree.entries["b"]
    assert isinstance(b, TableNode) and b.origin.line == 3  # the line of the key, not of what it holds
    assert b.entries["c"].text == "no"
    d = b.entries["d"]
    assert isinstance(d, ListNode) and [item.origin.line for item in d.items] == [6, 7]
    assert not d.items[1].is_null and ScalarNode("null", True, d.origin, d.folder).is_null


def test_anchors_and_merge_keys(tmp_path: Path) -> None:
    tree = read(tmp_path, "a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  y: 3\n")
    b = tree.entries["b"]
    assert {name: node.text for name, node in b.entries.items()} == {"x": "1", "y": "3"}


def test_byte_order_mark_and_crlf(tmp_path: Path) -> None:
    tree = read(tmp_path, b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    assert [(name, node.text, node.origin.line) for name, node in tree.entries.items()] == [
        ("a", "1", 1),
        ("b", "2", 2),
    ]


def test_merge_is_deep_and_lists_replace(tmp_path: Path) -> None:
    below = read(tmp_path, "a: {x: 1, y: [1, 2]}\nb: 1\n")
    above = read(tmp_path, "a: {y: [3], z: 4}\n")
    merged = merge(below, above).entries
    assert list(merged["a"].entries) == ["x", "y", "z"] and len(merged["a"].entries["y"].items) == 1
    assert merged["b"].text == "1"


def test_duplicate_keys_name_both_lines(tmp_path: Path) -> None:
    problems: list = []
    parse_yaml("a: 1\nb:\n  c: 1\n  c: 2\na: 3\n", "r.yaml", tmp_path, problems)
    assert [(each.where, each.message) for each in problems] == [
        ("r.yaml:4", "the key c appears twice (first on line 3)"),
        ("r.yaml:5", "the key a appears twice (first on line 1)"),
    ]


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("", "", "empty"),
        ("# only a comment\n", "", "empty"),
        ("- a\n- b\n", ":1", "mapping"),
        ("just words\n", ":1", "mapping"),
        ("a: 1\nb: [1\nc: 2\n", ":3", "not valid YAML"),
        ("a: b: c\n", ":1", "mapping values are not allowed"),
        ("a:\n\tb: 1\n", ":2", "tab"),
        ("a: 'open\n", ":2", "not valid YAML"),
        ("a: 1\n---\nb: 2\n", ":2", "document"),
        ("a: *nowhere\n", ":1", "undefined alias"),
        ("a: &a [1, *a]\n", ":1", "alias stands inside its own anchor"),
        (b"a: \xff\xfe\n", ":1", "not UTF-8"),
        ("a: 1\n".encode("utf-16"), "", "UTF-16"),
        ("ok: 1\nb: \x00\n", ":2", "U+0000"),
        ("a:\n  " + "[" * 3000, ":2", "nested too deeply"),
    ],
)
def test_files_that_are_no_recipe(tmp_path: Path, text: str | bytes, where: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        read(tmp_path, text)
    (problem,) = caught.value.problems
    assert problem.where.endswith(f"a.yaml{where}")
    assert words in problem.message
    assert problem.hint


def test_tags_are_refused(tmp_path: Path) -> None:
    problems: list = []
    parse_yaml("a: !!python/object/apply:os.system ['echo hi']\n", "r.yaml", tmp_path, problems)
    assert "python/object" in problems[0].message and problems[0].where == "r.yaml:1"


def test_aliases_cannot_unfold_without_end(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(UserError, match="more than"):
        read(tmp_path, "\n".join(lines))


def test_a_data_file_is_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "MAX_BYTES", 100)
    with pytest.raises(UserError, match="data file"):
        read(tmp_path, "a: 1\n" * 100)


def test_unreadable_path(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_yaml(tmp_path / "none.yaml", [])
