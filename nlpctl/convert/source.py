"""Reads a static-graph source. The layout is recognised by the content of the files, not by their names.

`read_static` collects the files of the source, groups them by kind, and reads their one set of parameters with its
program or the notes of `jit.save`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from nlpctl.convert.archive import MOST_FILES, unpack
from nlpctl.convert.parameter_sets import ONE_SET_HINT, FileKind, kind_of, parameter_sets
from nlpctl.convert.variables import StaticModel, StaticVariable, optimizer_state
from nlpctl.errors import Problem, UserError
from nlpctl.formats.program import read_program
from nlpctl.names import listed, refuse_not_utf8
from nlpctl.report.language import later

_PROGRAM, _OLD_PROGRAM = ".pdmodel", "__model__"
_KNOWN = (
    "known are: Paddle's tensors, one file per variable; a combined parameter file next to its program; .pdparams of "
    "paddle.static.save; .npy files or .npz; and a tar or zip of these"
)


def read_static(source: Path) -> StaticModel:
    """Read any source: a folder, a file of it, an archive, or the prefix that Paddle's own functions take.

    The arrays stay valid, also those of an archive, whose temporary folder is gone again.
    Raises UserError when the format is unknown, or a file is damaged, unsafe or not what the program declares.
    """
    if source.is_file() and kind_of(source) is FileKind.ARCHIVE:
        return _read_archive(source)
    return _read_files(source, files_of(source))


def _read_archive(archive: Path) -> StaticModel:
    with tempfile.TemporaryDirectory(prefix="nlpctl-", ignore_cleanup_errors=True) as name:
        # Resolved, since /tmp may be a link and messages are renamed by this prefix.
        folder = Path(name).resolve()
        with _named_after(archive, folder):
            unpack(archive, folder)
            model = _read_files(archive, walk(folder))
    program = model.program
    if program is not None:
        program = dataclasses.replace(program, file=archive / program.file.relative_to(folder))
    return dataclasses.replace(model, layout=later("{}, in an archive", model.layout), program=program)


@contextlib.contextmanager
def _named_after(archive: Path, folder: Path) -> Iterator[None]:
    """Errors name files by their place in the archive, not in the temporary folder."""

    def renamed(text: str, prefix: str) -> str:
        return text.replace(f"{folder}{os.sep}", prefix).replace(str(folder), str(archive))

    try:
        yield
    except UserError as error:
        raise UserError(
            problems=[
                Problem(renamed(problem.message, ""), renamed(problem.where, f"{archive}: "), problem.hint)
                for problem in error.problems
            ]
        ) from None


def _read_files(source: Path, files: Sequence[Path]) -> StaticModel:
    """The one set of parameters among `files`. UserError: there is none, or more than one."""
    kinds = {file: kind_of(file) for file in files}
    _refuse_damaged_program(source, files)
    sets, infos = parameter_sets(kinds)
    if source.is_file() and len(sets) > 1:  # a file was named: the set it belongs to
        sets = [each for each in sets if each.place == source] or sets
    if not sets:
        raise _nothing(source, kinds)
    if len(sets) > 1:
        named_sets = "; ".join(f"{each.label} in {each.place}" for each in sets)
        raise UserError(f"holds {len(sets)} sets of parameters: {named_sets}", where=str(source), hint=ONE_SET_HINT)
    programs = [read_program(file) for file, kind in kinds.items() if kind is FileKind.PROGRAM]
    named = sets[0].named(programs, infos)
    if not named.arrays:
        raise UserError("holds no arrays", where=str(sets[0].place), hint=_KNOWN)
    state = optimizer_state(named.arrays)
    others = [file.name for file, kind in kinds.items() if kind in (FileKind.OTHER, FileKind.ARCHIVE)]
    return StaticModel(
        source=source,
        layout=named.layout,
        variables={
            name: StaticVariable(name, array, named.structured.get(name))
            for name, array in named.arrays.items()
            if name not in state
        },
        program=named.program,
        left_out=tuple(sorted(state)),
        notes=named.notes + ((later("files next to the parameters, not read: {}", listed(others)),) if others else ()),
    )


def _refuse_damaged_program(source: Path, files: Sequence[Path]) -> None:
    """UserError if a file that is called a program is none: a conversion without it would prove nothing."""
    beside = [source.with_suffix(_PROGRAM), source.with_name(_OLD_PROGRAM)] if source.is_file() else []
    for file in (*files, *(file for file in beside if file.is_file())):
        named_so = file.suffix == _PROGRAM or file.name == _OLD_PROGRAM
        if named_so and kind_of(file) is not FileKind.PROGRAM:
            hint = "copy it again; or move it away, and the conversion is written without a proof"
            raise UserError("is not a program of Paddle: it is empty, cut off or damaged", where=str(file), hint=hint)


def _nothing(source: Path, kinds: dict[Path, FileKind]) -> UserError:
    """Why nothing among the files can be read as parameters."""
    by_kind = {kind: [file for file in kinds if kinds[file] is kind] for kind in FileKind}
    if by_kind[FileKind.ARCHIVE]:
        archive = by_kind[FileKind.ARCHIVE][0].name
        return UserError(f"holds an archive, {archive}", where=str(source), hint=f"give {archive} itself, unpacked")
    for kind in (FileKind.PROGRAM, FileKind.PICKLE):
        if by_kind[kind]:
            hint = "the parameters (__params__, .pdiparams, .pdparams or one file per variable) are missing: add them"
            return UserError(f"holds {kind.value}, and no parameters", where=str(by_kind[kind][0]), hint=hint)
    if not kinds:
        return UserError("the folder is empty", where=str(source), hint=_KNOWN)
    return UserError("holds no parameters in a format that nlpctl knows", where=str(source), hint=_KNOWN)


# -- the files of a source: all files of a folder, or a file and its partners -----------------------------------------

# Hidden files, and a Trainer's pickles of its arguments and of random numbers.
_LEFT_OUT = re.compile(r"\..*|training_args\.bin|rng_state.*\.pth")
# What a file is read together with: a combined file has its names in the program, and a program is not read alone
_PARTNERS = {
    FileKind.TENSOR: (FileKind.PROGRAM, FileKind.PICKLE),
    FileKind.PROGRAM: (FileKind.TENSOR, FileKind.PICKLE),
    FileKind.PICKLE: (FileKind.PROGRAM,),
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
        of_prefix = [path for path in beside if path.name.startswith(f"{source.name}.")]
        if not of_prefix or not source.name:
            raise UserError("there is no such file or folder", where=str(source), hint="check the path")
        return of_prefix
    kind = kind_of(source)
    partners = [path for path in beside if path != source and kind_of(path) in _PARTNERS.get(kind, ())]
    # NAME.pdiparams.info belongs to NAME.pdiparams: two suffixes, one stem.
    stem = source.name.removesuffix(".info").rpartition(".")[0]
    named = [path for path in partners if stem and path.name.startswith(f"{stem}.")]
    if not named and kind in (FileKind.TENSOR, FileKind.PROGRAM):
        named = [path for path in partners if kind_of(path) is not FileKind.PICKLE]
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
    files = [file for file in files if file.is_file()]
    for file in files:
        refuse_not_utf8(file)
    return files
