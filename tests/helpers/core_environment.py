"""An environment as `pip install nlpctl` makes it, of the packages that are installed here."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
import subprocess
import venv
from pathlib import Path

from nlpctl.runtime.versions import pins

ROOT = Path(__file__).resolve().parent.parent.parent


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@functools.cache
def of_core() -> frozenset[str]:
    """The packages of the core, and what they need, by their canonical names."""
    wanted, found = [pin.package for pin in pins() if not pin.extra], set()
    while wanted:
        name = canonical(wanted.pop())
        try:
            needs = () if name in found else importlib.metadata.requires(name) or ()
        except importlib.metadata.PackageNotFoundError:  # for another system or Python
            continue
        found.add(name)
        wanted += [re.split(r"[^\w.-]", need, maxsplit=1)[0] for need in needs if "extra ==" not in need]
    return frozenset(found)


def make_core(folder: Path) -> Path:
    """A virtual environment in `folder` with links to these packages; returns its Python, which finds nlpctl here."""
    venv.create(folder, symlinks=True)
    place = next(folder.glob("lib/python*/site-packages"))
    for distribution in map(importlib.metadata.distribution, of_core()):
        for name in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            if not (place / name).exists():  # google belongs to several
                (place / name).symlink_to(str(distribution.locate_file(name)))
    (place / "nlpctl.pth").write_text(f"{ROOT}\n")
    return folder / "bin" / "python"


def start_core(python: Path, *words: str | Path, folder: Path) -> subprocess.Popen[str]:
    """A command line in that environment; stdin, stdout and stderr are pipes."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([python, "-m", "nlpctl", *words], cwd=folder, env=kept, text=True, **pipes)
