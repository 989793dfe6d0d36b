"""Writes examples/notebook.ipynb, whose cells are those of docs/notebook.md: python scripts/make_notebook.py"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE, NOTEBOOK = ROOT / "docs" / "notebook.md", ROOT / "examples" / "notebook.ipynb"
_FENCE = re.compile(r"^```(bash|python)\n(.*?)^```$", re.M | re.S)
_PYTHON = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}


def notebook(page: str) -> str:
    """The text of the notebook: prose as markdown cells, Python as it is, and commands behind a !."""
    cells: list[dict[str, Any]] = []
    end = 0
    for fence in _FENCE.finditer(page):
        cells += _markdown(page[end : fence.start()])
        code = fence[2] if fence[1] == "python" else re.sub(r"^(?=\S)", "!", fence[2], flags=re.M)
        cells.append({"cell_type": "code", "execution_count": None, "outputs": [], **_source(code)})
        end = fence.end()
    cells += _markdown(page[end:])
    numbered = [{"id": f"cell-{number}", **cell} for number, cell in enumerate(cells, 1)]
    whole = {"cells": numbered, "metadata": _PYTHON, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, ensure_ascii=False, indent=1) + "\n"


def _markdown(text: str) -> list[dict[str, Any]]:
    return [{"cell_type": "markdown", **_source(text)}] if text.strip() else []


def _source(text: str) -> dict[str, Any]:
    return {"metadata": {}, "source": text.strip("\n").splitlines(keepends=True)}


if __name__ == "__main__":
    NOTEBOOK.write_text(notebook(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
