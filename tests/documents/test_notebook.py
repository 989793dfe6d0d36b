"""examples/notebook.ipynb has the cells of docs/notebook.md, and they run in order, in one process."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pages
import pandas as pd
import pytest

from nlpctl.config.load import load_recipe

NOTEBOOK = pages.ROOT / "examples" / "notebook.ipynb"
SHORT = ("num_train_epochs=3", "max_steps=5, device='cpu'")  # a reader trains longer than this test


def cells() -> Iterator[str]:
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            yield "".join(cell["source"])


def run(source: str, names: dict[str, Any]) -> Any:
    """What the cell shows: the value of its last line, if that is an expression."""
    if source.startswith("!"):
        words = source.removeprefix("!nlpctl ").split()
        subprocess.run([sys.executable, "-m", "nlpctl", *words], check=True, stdout=subprocess.DEVNULL)
        return None
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, str(NOTEBOOK), "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)


def test_it_has_the_cells_of_the_page() -> None:
    script = pages.ROOT / "scripts" / "make_notebook.py"
    names: dict[str, Any] = {"__name__": "make_notebook", "__file__": str(script)}
    exec(compile(script.read_text(encoding="utf-8"), str(script), "exec"), names)
    text = (pages.ROOT / "docs" / "notebook.md").read_text(encoding="utf-8")
    assert NOTEBOOK.read_text(encoding="utf-8") == names["notebook"](text), "run: python scripts/make_notebook.py"


def test_the_cells_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(pages.ROOT))
    names: dict[str, Any] = {}
    sources = [source.replace(*SHORT) for source in cells()]
    assert SHORT[1] in "".join(sources)
    shown = [run(source, names) for source in sources]
    kinds = [type(value).__name__ for value in shown if value is not None]
    assert kinds == ["DataFrame", "Run", "Scores", "DataFrame", "DataFrame", "Export", "dict"]
    assert shown[-1]["label"] in ("好评", "差评")
    html = [value._repr_html_() for value in [*shown, names["model"]] if hasattr(value, "_repr_html_")]
    assert len(html) == 7
    for text in html:
        assert not re.search(r"<script|javascript:|\son\w+=", text, flags=re.I)
    assert '<iframe srcdoc="&lt;!DOCTYPE html&gt;' in html[1] and 'sandbox=""' in html[1] and "accuracy" in html[1]
    assert "model.onnx" in names["exported"]._repr_html_()
    recipe = load_recipe(names["run"].path)
    assert pd.read_json(recipe.data.dev[0], lines=True).equals(names["dev"])  # the file that the frame became
    assert Path(recipe.data.train[0]).parent == tmp_path / "outputs" / "notebook_data"
