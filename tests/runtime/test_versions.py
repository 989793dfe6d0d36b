"""Pins are read from where they are declared, and compared as numbers."""

from __future__ import annotations

import pytest

from nlpctl.runtime import versions
from nlpctl.runtime.versions import Pin, installed_version, pin, pins


def test_pins_of_the_checkout():
    declared = {each.package: each for each in pins()}
    assert declared["paddlenlp"] == Pin("paddlenlp", "==2.8.1", "")
    assert declared["paddlepaddle"] == Pin("paddlepaddle", "==2.6.2", "cpu")
    assert declared["paddlepaddle-gpu"] == Pin("paddlepaddle-gpu", "==2.6.2", "gpu")
    assert str(pin("numpy")) == "numpy<2"
    with pytest.raises(KeyError):
        pin("torch")


def test_pins_of_an_installed_package(monkeypatch, tmp_path):
    metadata = ["paddlenlp==2.8.1", "typer<0.30,>=0.29", 'paddlepaddle==2.6.2; extra == "cpu"', "numpy (<2)"]
    monkeypatch.setattr(versions, "_PYPROJECT", tmp_path / "absent.toml")
    monkeypatch.setattr(versions.importlib.metadata, "requires", lambda name: metadata)
    assert pins() == (
        Pin("paddlenlp", "==2.8.1", ""),
        Pin("typer", "<0.30,>=0.29", ""),
        Pin("paddlepaddle", "==2.6.2", "cpu"),
        Pin("numpy", "<2", ""),
    )


@pytest.mark.parametrize(
    ("bounds", "version", "allowed"),
    [
        ("<2", "1.26.4", True),
        ("<2", "2.0.0", False),
        ("<26", "3.9", True),  # as numbers, not as text
        ("==2.6.2", "2.6.2.post118", True),
        ("==2.6.2", "2.6.2+cu118", True),
        (">=0.29,<0.30", "0.29.2", True),
        (">=0.29,<0.30", "0.30", False),
        ("==2.0", "2", True),
        ("!=1.5", "1.5.0", False),
        ("", "0.0.1", True),
    ],
)
def test_allows(bounds, version, allowed):
    assert Pin("x", bounds, "").allows(version) is allowed


def test_installed_version():
    assert installed_version("pytest") == pytest.__version__
    assert installed_version("no-such-package-here") is None
