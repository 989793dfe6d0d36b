"""The files of recipes/samples are those that the generator writes."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_files_are_those_of_the_generator(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import make_sample_data

    for name, text in make_sample_data.build().items():
        assert (ROOT / "recipes" / "samples" / name).read_text(encoding="utf-8") == text, name
    sys.modules.pop("make_sample_data")
