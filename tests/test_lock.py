"""requirements-ci.txt fits pyproject.toml: every package has hashes, and a version that is allowed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements-ci.txt"

pytestmark = [
    pytest.mark.skipif(not LOCK.is_file(), reason="the lock file is only in a checkout"),
    pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib is new in Python 3.11"),
]


def locked() -> dict[str, tuple[str, list[str]]]:
    """Each package with its version and hashes."""
    entry = r"^([\w.-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$"
    entries = re.findall(entry, LOCK.read_text(), re.MULTILINE)
    return {canonicalize_name(name): (version, hashes.split("sha256:")[1:]) for name, version, hashes in entries}


def test_what_pyproject_asks_for_is_locked() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    found = locked()
    for text in (*project["dependencies"], *extras["cpu"], *extras["train"], *extras["dev"]):
        wanted = Requirement(text)
        if wanted.name == "nlpctl":  # an extra that includes another one
            continue
        version, _ = found[canonicalize_name(wanted.name)]
        hint = f"{text} is locked as {version}: bash scripts/lock.sh"
        assert wanted.specifier.contains(version, prereleases=True), hint


def test_every_line_has_a_version_and_hashes_and_no_place() -> None:
    lines = LOCK.read_text().splitlines()
    assert len(locked()) == sum("==" in line for line in lines) > 100
    assert not [line for line in lines if "://" in line or line.startswith("-")]
