"""nlpctl/extras.py knows what `pip install nlpctl` leaves out, and pyproject.toml leaves out no more."""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import sys
from pathlib import Path

import pytest
from core_environment import canonical, of_core

from nlpctl import extras
from nlpctl.runtime.versions import pins

PACKAGE = Path(__file__).parent.parent / "nlpctl"


@functools.cache
def imported() -> dict[str, str]:
    """Every package that a module of nlpctl imports anywhere, with a module that does."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found |= {name.partition(".")[0]: str(path) for name in names}
    return {name: path for name, path in found.items() if name not in sys.stdlib_module_names and name != "nlpctl"}


def test_every_import_is_of_the_core_or_of_an_extra() -> None:
    packages, known = importlib.metadata.packages_distributions(), extras.EXTRA_OF.keys()
    core = {name for name in imported() if not of_core().isdisjoint(map(canonical, packages.get(name, ())))}
    assert {"numpy", "onnxruntime", "tokenizers", "fastapi", "faiss", "scipy"} <= core
    assert not core & known - {"fsspec"}  # which huggingface_hub brings, too
    unknown = {name: path for name, path in imported().items() if name not in {*core, *known}}
    assert unknown.keys() <= {"werkzeug"}, unknown  # VisualDL's


def test_the_extras_are_those_of_pyproject() -> None:
    declared = {(pin.extra, canonical(pin.package)) for pin in pins()}
    called = {"sklearn": "scikit-learn", "mlflow": "mlflow-skinny"}
    brought = {"paddle", "onnx", "pandas", "jieba"}  # by an extra, by paddle2onnx, by datasets, by PaddleNLP
    wanted = {(extra, called.get(name, name)) for name, extra in extras.EXTRA_OF.items() if name not in brought}
    assert wanted <= declared


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("paddle.nn", "Paddle is not installed\n  -> pip install 'nlpctl[cpu]' (with an NVIDIA card nlpctl[gpu], "),
        ("pyarrow", "pyarrow is not installed\n  -> pip install 'nlpctl[parquet]'"),
        ("optuna", "Optuna is not installed\n  -> pip install 'nlpctl[sweep]'"),
        ("numpy.absent", None),
        (None, None),
    ],
)
def test_an_import_that_fails(monkeypatch: pytest.MonkeyPatch, name: str | None, told: str | None) -> None:
    monkeypatch.setattr(extras, "is_installed", lambda package: False)
    error = extras.of_extra(ModuleNotFoundError("No module", name=name))
    assert error is None if told is None else str(error).startswith(told)
