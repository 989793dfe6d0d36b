"""Files that are only read are hashed once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from nlpctl import checksums
from nlpctl.checksums import sha256_of, sha256_of_input

OLD = Path(checksums.__file__)  # a file that nothing changes


def test_an_input_is_read_once(monkeypatch) -> None:
    time.sleep(max(0.0, OLD.stat().st_ctime + 2.1 - time.time()))  # where it was installed just now
    first = sha256_of_input(OLD)
    assert first == sha256_of(OLD)
    monkeypatch.setattr(checksums, "sha256_of", lambda path: pytest.fail("read again"))
    assert sha256_of_input(OLD) == first


def test_a_changed_input_has_another_sum(tmp_path: Path) -> None:
    file = tmp_path / "train.tsv"
    for text in ("one", "two", "six"):  # of one size, and within one tick of the clock
        file.write_text(text, encoding="utf-8")
        assert sha256_of_input(file) == sha256_of(file)
