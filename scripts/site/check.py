"""Checks a built site: it loads nothing from elsewhere, and its search finds words of both languages.

python scripts/site/check.py site
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

# What a browser loads by itself; a link that a reader clicks may lead anywhere.
LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=["']?(?:https?:)?//[^\s>]*"""
    r"""|<link\b[^>]*\bhref=["']?(?:https?:)?//[^\s>]*|url\(\s*["']?(?:https?:)?//[^)]*\)|@import\s+["'](?:https?:)?//[^;]*"""
)
SOUGHT = {"": ["distillation", "quantisation"], "zh-CN": ["量化", "学习率", "蒸馏", "词表", "检查点"]}


def main() -> int:
    site = Path(sys.argv[1])
    problems = foreign_assets(site)
    for folder, words in SOUGHT.items():
        problems += [
            f"{site / folder}: the search does not find {word}" for word in words if word not in terms(site / folder)
        ]
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    pages = len(list(site.rglob("*.html")))
    print(f"{pages} pages in {site}: {len(problems)} problems")
    return 1 if problems else 0


def foreign_assets(site: Path) -> list[str]:
    files = [*site.rglob("*.html"), *site.rglob("*.css")]
    return [
        f"{file}: loads {match[0]}" for file in files for match in LOADED.finditer(file.read_text(encoding="utf-8"))
    ]


def terms(site: Path) -> set[str]:
    """The words of the search index, cut where the browser cuts them."""
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    separator = re.compile(index["config"]["separator"])
    texts = [re.sub(r"<[^>]+>", " ", f"{entry['title']} {entry['text']}") for entry in index["docs"]]
    return {word.lower() for text in texts for word in separator.split(text)}


if __name__ == "__main__":
    sys.exit(main())
