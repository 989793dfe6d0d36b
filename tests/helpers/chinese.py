"""Whether a page is in Chinese."""

from __future__ import annotations

import re
from html.parser import HTMLParser

SENTENCE = re.compile(r"\b[A-Za-z]{2,}(?:,? [A-Za-z]{2,}){2,}\b")
COMMAND = re.compile(r"`[^`]*`|nlpctl [a-z]+(?: [a-z]+)?")


class Told(HTMLParser):
    """What a page says: its texts, and those that appear when something is pointed at; no code, style or script."""

    def __init__(self, page: str):
        super().__init__()
        self.texts: list[str] = []
        self._code = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._code += tag in ("pre", "code", "style", "script")
        self.texts += [value or "" for name, value in attrs if name in ("title", "aria-label")]

    def handle_endtag(self, tag: str) -> None:
        self._code -= tag in ("pre", "code", "style", "script")

    def handle_data(self, data: str) -> None:
        if not self._code:
            self.texts.append(data)


def sentences(text: str) -> list[str]:
    """Three English words or more in a row, outside of commands."""
    texts = Told(text).texts if text.startswith("<!DOCTYPE") else text.splitlines()
    return [found[0] for each in texts for found in SENTENCE.finditer(COMMAND.sub("", each))]


def assert_chinese(page: str) -> None:
    assert sentences(page) == []
    assert '<html lang="zh-CN">' in page
