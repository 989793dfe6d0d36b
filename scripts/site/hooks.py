"""What mkdocs does not do by itself: pages from files above docs/, links between the languages, Chinese line ends.

mkdocs calls the functions named on_*. A link that leads nowhere is left as it is, and mkdocs's strict mode names it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
# Pages of the site that stand elsewhere, so that GitHub shows them.
ABOVE = {
    "en": {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"},
    "zh": {"index.md": "README.zh-CN.md"},
}
logging.getLogger("jieba").setLevel(logging.WARNING)  # not the progress of loading its dictionary
MARK = r"[\u3000-\u303f\uff00-\uffef“”]"  # full-width punctuation
CJK = rf"(?:{MARK}|[\u4e00-\u9fff])"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages from above docs/."""
    for name, source in ABOVE[config.theme["language"]].items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Makes a link of every page that the text names, also in the other language."""
    language = config.theme["language"]
    here = ROOT if page.file.src_uri in ABOVE[language] else DOCS / ("zh-CN" if language == "zh" else "")
    parts = re.split(r"(^```.*?^```$|`[^`]+`)", markdown, flags=re.M | re.S)
    for i, text in enumerate(parts[::2]):
        text = re.sub(r"(?<![(\[/\w])(docs/[\w/-]+\.md)\b", lambda name: f"[{name[1]}]({ROOT / name[1]})", text)
        parts[2 * i] = re.sub(r"(!?)\[([^]]*)\]\(((?!https?:|#)[^)#]+)(#[^)]*)?\)", _link(here, language), text)
    return "".join(parts)


def _link(here: Path, language: str) -> Callable[[re.Match[str]], str]:
    """What replaces a Markdown link of a page that lies in the folder `here`."""

    def replaced(found: re.Match[str]) -> str:
        picture, text, target, anchor = found[1], found[2], found[3], found[4] or ""
        path = (here / target).resolve()
        if not path.is_file():
            return found[0]
        if not picture and path.suffix != ".md":
            return text  # LICENSE: not part of the site
        of, name = _place(path)
        if of == language:
            return f"{picture}[{text}]({name}{anchor})"
        up = "zh-CN/" if of == "zh" else "../"
        if picture:
            return f'<img alt="{text}" src="{up}{name}">'
        return f'<a href="{up}{name.removesuffix(".md")}.html{anchor}">{text}</a>'

    return replaced


def _place(path: Path) -> tuple[str, str]:
    """The language of the site that has this file, and its name there."""
    for language, pages in ABOVE.items():
        for name, source in pages.items():
            if path == ROOT / source:
                return language, name
    if path.is_relative_to(DOCS / "zh-CN"):
        return "zh", path.relative_to(DOCS / "zh-CN").as_posix()
    return "en", path.relative_to(DOCS).as_posix()


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Joins the lines of Chinese paragraphs: a browser would put a blank between two characters."""
    if config.theme["language"] != "zh":
        return html
    parts = re.split(r"(<pre.*?</pre>)", html, flags=re.S)
    end = re.compile(rf"(?<={MARK})\n *|\n *(?={MARK})|(?<={CJK})\n *(?={CJK})")
    parts[::2] = [end.sub("", text) for text in parts[::2]]
    return "".join(parts)


def on_page_context(context: dict, page: Page, config: MkDocsConfig, nav: object) -> dict:
    """Lets the language switch lead to the same page, or to the first one where there is no such page."""
    language = config.theme["language"]
    name = page.file.src_uri
    there = (DOCS / name if language == "zh" else DOCS / "zh-CN" / name).is_file()
    other = name.removesuffix(".md") + ".html" if there else "index.html"
    english, chinese = config.extra["alternate"]
    english["link"] = f"../{other}" if language == "zh" else page.url
    chinese["link"] = page.url if language == "zh" else f"zh-CN/{other}"
    return context
