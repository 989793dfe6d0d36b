"""The site of docs/: every page is in its navigation, and the build passes its own checks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = {"mkdocs.yml": "docs", "mkdocs.zh-CN.yml": "docs/zh-CN"}
ABOVE = {"index.md", "contributing.md", "changelog.md"}  # made by scripts/site/hooks.py from README.md and others

pytestmark = pytest.mark.skipif(not (ROOT / "mkdocs.yml").is_file(), reason="the site is built from a checkout")


@pytest.mark.parametrize("config", CONFIGS)
def test_the_navigation_lists_every_page_once(config: str) -> None:
    listed = re.findall(r"^ *- .+: ([\w-]+\.md)$", (ROOT / config).read_text(encoding="utf-8"), flags=re.M)
    assert sorted(set(listed) - ABOVE) == sorted(path.name for path in (ROOT / CONFIGS[config]).glob("*.md"))
    assert len(listed) == len(set(listed)) and listed[0] == "index.md"


def check(site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "scripts" / "site" / "check.py", site], capture_output=True, text=True, check=False
    )


def test_the_check_names_what_is_loaded_from_elsewhere_and_words_that_are_not_found(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "zh-CN"):
        (folder / "search").mkdir(parents=True)
        (folder / "search" / "search_index.json").write_text(
            '{"config": {"separator": "[\\\\s\\u200b]+"}, "docs": [{"title": "量化\u200b学习率\u200b蒸馏", '
            '"text": "<p>词表 检查点 Quantisation</p>"}]}',
            encoding="utf-8",
        )
    page = tmp_path / "index.html"
    page.write_text('<a href="https://example.org">fine</a><script src="https://cdn.example.org/a.js"></script>')
    done = check(tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("error:") == 2 and "cdn.example.org" in done.stderr and "distillation" in done.stderr


@pytest.mark.slow
def test_the_site_is_built_and_passes_its_checks() -> None:
    """Strict links, no network while it builds, nothing loaded from elsewhere, Chinese words in the search."""
    done = subprocess.run(["bash", ROOT / "scripts" / "build_site.sh"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "0 problems" in done.stdout
