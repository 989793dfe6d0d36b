"""Pins are read from where they are declared, and compared as numbers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nlpctl.errors import UserError
from nlpctl.paddle_version import KNOWN, WHEELS, release_of
from nlpctl.runtime import versions
from nlpctl.runtime.versions import Pin, installed_version, pin, pins, require_known_paddle


def test_pins_of_the_checkout():
    declared = pins()
    assert Pin("paddlenlp", "==2.8.1", "train") in declared
    paddles = {each.extra: each for each in declared if each.package in WHEELS}
    assert paddles["cpu"] == pin("paddlepaddle") == Pin("paddlepaddle", "==2.6.2", "cpu")
    assert paddles["gpu"] == Pin("paddlepaddle-gpu", "==2.6.2", "gpu")
    assert paddles["paddle3"] == Pin("paddlepaddle", "==3.1.1", "paddle3")
    assert {release_of(each.bounds.removeprefix("==")) for each in paddles.values()} == set(KNOWN)
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


@pytest.mark.parametrize("version", [None, "2.6.2", "2.6.2.post118", "3.1.0", "3.1.1"])
def test_known_versions_of_paddle(version):
    require_known_paddle(version)


@pytest.mark.parametrize(
    ("version", "known"),
    [
        ("3.3.1", ": from 3.2 on, recurrent layers and int8 graphs fail in the old program format, which nlpctl needs"),
        ("3.0.0", ""),
        ("2.5.2", ""),
        ("0.0.0", ""),
        ("develop", ""),
    ],
)
def test_other_versions_are_refused_with_what_is_known(version, known, capsys):
    with pytest.raises(UserError) as caught:
        require_known_paddle(version)
    assert str(caught.value) == (
        f"nlpctl was never tried with Paddle {version}{known}\n"
        "  -> install paddlepaddle==2.6.2 or paddlepaddle==3.1.1; --set runtime.any_paddle=true tries it anyway"
    )
    require_known_paddle(version, anyway=True)
    told = capsys.readouterr().err
    assert told == f"warning: nlpctl was never tried with Paddle {version}{known}; runtime.any_paddle tries it\n"


def test_an_unknown_paddle_is_refused_before_any_work(tmp_path):
    """Of what is installed only the version number is made up."""
    described = tmp_path / "packages" / "paddlepaddle-3.3.1.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: paddlepaddle\nVersion: 3.3.1\n")
    paths = [str(described.parent), str(Path(versions.__file__).parents[2])]
    words = ["train", "quickstart", "--device", "cpu", "--output_dir", "made"]
    done = subprocess.run(
        [sys.executable, "-m", "nlpctl", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and not (tmp_path / "made").exists()
    assert done.stderr.startswith("error: nlpctl was never tried with Paddle 3.3.1: from 3.2 on, ")
    assert done.stderr.count("\n") == 2 and "runtime.any_paddle=true" in done.stderr
