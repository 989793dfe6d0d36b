"""Collects the files of a source: all files of a folder, or a file and its partners."""

from __future__ import annotations

import os
import re
from pathlib import Path

from nlpctl.errors import UserError
from nlpctl.names import refuse_not_utf8
from nlpctl.static_graph.archive import MOST_FILES
from nlpctl.static_graph.sniff import Kind, kind_of

# Hidden files, and a Trainer's pickles of its arguments and of random numbers.
_LEFT_OUT = re.compile(r"\..*|training_args\.bin|rng_state.*\.pth")

# What a file is read together with: a combined file has its names in the program, and a program is not read alone
_PARTNERS = {
    Kind.TENSOR: (Kind.PROGRAM, Kind.PICKLE),
    Kind.PROGRAM: (Kind.TENSOR, Kind.PICKLE),
    Kind.PICKLE: (Kind.PROGRAM,),
}


def files_of(source: Path) -> list[Path]:
    """The files of a folder and its folders, or of a file or prefix: it, and its partners next to it.

    Partners have the file's name up to the suffix. Where none has, as with `__params__` and `__model__`, a parameter
    file belongs to the programs of its folder, and a program to the parameter files.
    """
    if source.is_dir():
        return walk(source)
    beside = [path for path in sorted(source.parent.iterdir()) if path.is_file()] if source.parent.is_dir() else []
    if not source.is_file():
        found = [path for path in beside if path.name.startswith(f"{source.name}.")]
        if not found or not source.name:
            raise UserError("there is no such file or folder", where=str(source), hint="check the path")
        return found
    kind = kind_of(source)
    partners = [path for path in beside if path != source and kind_of(path) in _PARTNERS.get(kind, ())]
    # NAME.pdiparams.info belongs to NAME.pdiparams: two suffixes, one stem.
    stem = source.name.removesuffix(".info").rpartition(".")[0]
    named = [path for path in partners if stem and path.name.startswith(f"{stem}.")]
    if not named and kind in (Kind.TENSOR, Kind.PROGRAM):
        named = [path for path in partners if kind_of(path) is not Kind.PICKLE]
    return [source, *named]


def walk(folder: Path) -> list[Path]:
    """Every file below `folder` but hidden ones. UserError: so many that this cannot be one model."""
    files: list[Path] = []
    for parent, folders, names in os.walk(folder):
        # In place: os.walk descends into what this list then holds. Sorted, since the order of directories is not
        # defined.
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files += [Path(parent, name) for name in sorted(names) if not _LEFT_OUT.fullmatch(name)]
        if len(files) > MOST_FILES:
            raise UserError(f"holds over {MOST_FILES} files", where=str(folder), hint="give the model's own folder")
    found = [file for file in files if file.is_file()]
    for file in found:
        refuse_not_utf8(file)
    return found
