"""docs/security.md names a test for each promise, and the file is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "security.md"


@pytest.mark.skipif(not PAGE.is_file(), reason="docs/ is only in a checkout")
def test_every_promise_has_its_tests() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    promises = [line for line in lines if line.startswith("| ") and not line.startswith("| promise")]
    assert len(promises) >= 15
    for promise in promises:
        named = re.findall(r"`(tests/[\w/.]+)`", promise)
        assert named and all((ROOT / name).exists() for name in named), promise
