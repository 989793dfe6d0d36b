"""docs/zh-CN says the same as docs: sections, commands, tables and figures, page by page."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"
CHINESE = DOCS / "zh-CN"
# How nlpctl is built and measured: for those who change it, in English.
ENGLISH_ONLY = {"architecture.md", "benchmarks.md", "compression-benchmarks.md", "coverage.md", "upstream.md"}
CHINESE_WORD = re.compile(r"[\u4e00-\u9fff]")
NAMES = sorted(path.name for path in CHINESE.glob("*.md"))

pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="docs/ is only in a checkout")


@dataclass
class Section:
    """What lies between two headings."""

    level: int
    title: str
    prose: list[str] = field(default_factory=list)
    fences: list[tuple[str, list[str]]] = field(default_factory=list)  # language, lines
    indented: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)


def sections(text: str) -> list[Section]:
    """A page, cut at its headings. References to Chinese pages read like those to English ones."""
    found = [Section(0, "")]
    fence: list[str] | None = None
    for line in text.replace("docs/zh-CN/", "docs/").splitlines():
        here = found[-1]
        if line.startswith("```"):
            if fence is None:
                fence = []
                here.fences.append((line[3:], fence))
            else:
                fence = None
        elif fence is not None:
            fence.append(line)
        elif heading := re.match(r"(#+) (.*)", line):
            found.append(Section(len(heading[1]), heading[2]))
        elif line.startswith("|"):
            here.rows.append(re.split(r"(?<!\\)\|", line)[1:-1])
        elif line.startswith("    "):
            here.indented.append(line)
        else:
            here.prose.append(line)
    return found


def code(text: str) -> Counter[str]:
    """The pieces of code in a text, without comments, which are translated."""
    return Counter(" ".join(piece.split()) for piece in re.findall(r"`([^`]+)`", text) if not piece.startswith("#"))


def figures(text: str) -> Counter[str]:
    """The numbers outside code and addresses."""
    bare = re.sub(r"`[^`]+`|\]\([^)]*\)|<!--.*?-->", " ", text)
    return Counter(re.findall(r"\d+(?:[.,]\d+)*(?:e[-+]?\d+)?", bare))


def commands(lines: list[str]) -> list[str]:
    """The lines of a block without comments, which are translated."""
    return [re.sub(r"\s*#.*", "", line) for line in lines]


def columns(lines: list[str], words_of: list[str]) -> list[list[str]]:
    """A block of names and what they are, cut into its columns, without those that are Chinese in `words_of`."""
    cut = [re.split(r" {2,}", line) for line in words_of]
    translated = {(i, j) for i, cells in enumerate(cut) for j, cell in enumerate(cells) if CHINESE_WORD.search(cell)}
    rows = [re.split(r" {2,}", line) for line in lines]
    return [[cell for j, cell in enumerate(cells) if (i, j) not in translated] for i, cells in enumerate(rows)]


def pages(name: str) -> list[tuple[Section, Section]]:
    english, chinese = (sections((folder / name).read_text(encoding="utf-8")) for folder in (DOCS, CHINESE))
    shapes = [[(section.level, section.title) for section in page] for page in (english, chinese)]
    assert [level for level, _ in shapes[0]] == [level for level, _ in shapes[1]], shapes
    return list(zip(english, chinese, strict=True))


def test_every_page_for_users_is_there_in_chinese() -> None:
    assert {path.name for path in DOCS.glob("*.md")} - ENGLISH_ONLY <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_commands_are_the_same(name: str) -> None:
    for english, chinese in pages(name):
        blocks = [english.fences, chinese.fences]
        assert [tag for tag, _ in blocks[0]] == [tag for tag, _ in blocks[1]], english.title
        for (tag, lines), (_, other) in zip(*blocks, strict=True):
            if tag:
                assert commands(lines) == commands(other), english.title
            else:
                assert columns(lines, other) == columns(other, other), english.title
        assert columns(english.indented, chinese.indented) == columns(chinese.indented, chinese.indented), english.title


@pytest.mark.parametrize("name", NAMES)
def test_the_tables_have_the_same_cells(name: str) -> None:
    for english, chinese in pages(name):
        assert [len(row) for row in english.rows] == [len(row) for row in chinese.rows], english.title
        for row, other in zip(english.rows, chinese.rows, strict=True):
            for cell, translated in zip(row, other, strict=True):
                assert code(cell) == code(translated) and figures(cell) == figures(translated), (cell, translated)


@pytest.mark.parametrize("name", NAMES)
def test_the_text_names_the_same_keys_and_figures(name: str) -> None:
    """Chinese may have figures of its own: months, and numbers that English writes as words."""
    for english, chinese in pages(name):
        prose, translated = "\n".join(english.prose), "\n".join(chinese.prose)
        assert code(prose) == code(translated), english.title
        missing = figures(prose) - figures(translated)
        assert not missing, f"{english.title}: {missing}"


@pytest.mark.parametrize("name", NAMES)
def test_a_chinese_page_is_in_chinese(name: str) -> None:
    """A paragraph that was copied and not translated has no Chinese character."""
    for paragraph in re.split(r"\n\s*\n", "\n\n".join("\n".join(page.prose) for _, page in pages(name))):
        text = re.sub(r"`[^`]+`|<!--.*?-->", "", paragraph, flags=re.S)
        assert not re.search(r"[A-Za-z]{2}", text) or CHINESE_WORD.search(text), paragraph


@pytest.mark.parametrize("name", NAMES)
def test_paths_and_links_exist(name: str) -> None:
    text = (CHINESE / name).read_text(encoding="utf-8")
    named = re.findall(r"(?:recipes|scripts|docs|configs)/[\w./-]*\w\.(?:yaml|sh|py|md)", text)
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    missing = {path for path in named if not (DOCS.parent / path).exists()}
    assert not missing | {link for link in links if not (CHINESE / link).exists()}
    english_instead = {path for path in re.findall(r"docs/([\w.-]+\.md)", text) if path in NAMES}
    assert not english_instead, "there is a Chinese page"
