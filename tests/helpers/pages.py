"""The command lines that the documents print, in order, and what each needs that a test does not have.

A comment in a bash block marks the lines below it, up to a blank line or the end of the block:

    # needs a network: the weights of ernie-3.0-medium-zh
    nlpctl train chnsenticorp

The other lines of a page run as printed, one after the other, in a folder that is empty at the start. A block of Python
or YAML below "Save as NAME" is that file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

# What a line may need, in English and in Chinese pages. Nothing else is skipped.
NEEDS = {
    "needs a network": "需要联网",
    "needs a card": "需要显卡",
    "needs a processor": "需要处理器",
    "needs hours": "需要数小时",
    "needs your files": "需要你的文件",
    "needs a second terminal": "需要另一个终端",
}
_MARK = re.compile(rf"#\s*({'|'.join([*NEEDS, *NEEDS.values()])})\s*[:：]\s*(.+)")
_SAVED = re.compile(r"(?:[Ss]ave as|and as|保存为|存为) ?`?([\w-]+\.(?:py|yaml))")
_HEREDOC = re.compile(r"<<-?\s*'?(\w+)'?")


@dataclass(frozen=True)
class Line:
    """A command line as printed, with its continuation lines and here-document. `needs`: why it is not run, if so."""

    page: str
    number: int
    text: str
    needs: str | None

    @property
    def where(self) -> str:
        return f"{self.page}:{self.number}"


def pages() -> list[str]:
    """All pages that users read, README first, as paths within the repository."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    found += [ROOT / "README.zh-CN.md", *sorted((ROOT / "docs" / "zh-CN").glob("*.md"))]
    return [path.relative_to(ROOT).as_posix() for path in found]


def lines_of(page: str) -> list[Line]:
    """Every command line in the bash blocks of `page`."""
    return list(_lines(page, (ROOT / page).read_text(encoding="utf-8").split("\n")))


def _lines(page: str, lines: list[str]) -> Iterator[Line]:
    inside, needs, number = False, None, 0
    saved: re.Match[str] | None = None
    while number < len(lines):
        line, start = lines[number], number + 1
        number += 1
        if saved and line.strip() in ("```python", "```yaml"):
            end = lines.index("```", number)
            yield Line(page, start, "\n".join([f"cat > {saved[1]} <<'END'", *lines[number:end], "END"]), None)
            number, saved = end + 1, None
        elif line.startswith("```"):
            inside, needs = line.strip() == "```bash", None
        elif not inside:
            saved = _SAVED.search(line) or (saved if not line.strip() else None)
        elif not line.strip():
            needs = None
        elif line.startswith("#"):
            found = _MARK.match(line)
            needs = f"{found[1]}: {found[2]}" if found else needs
        else:
            text = [line]
            end = _HEREDOC.search(line)
            while number < len(lines) and (text[-1] != end[1] if end else text[-1].endswith("\\")):
                text.append(lines[number])
                number += 1
            yield Line(page, start, "\n".join(text), needs)


def pipelines(text: str) -> Iterator[list[list[str]]]:
    """The command line as pipelines (joined by &&, || or ;) of commands of words, without comments and redirections."""
    words = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars="|&;<>")
    words.whitespace_split = True
    pipeline: list[list[str]] = [[]]
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in ("&&", "||", ";"):
            yield pipeline
            pipeline = [[]]
        elif word == "|":
            pipeline.append([])
        elif word in (">", ">>", "<", "2>", "&>", "&"):
            skip = word != "&"
        else:
            pipeline[-1].append(word)
    yield pipeline
