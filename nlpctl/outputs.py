"""Output files that users name: which are replaced, and which are written into.

A device or a pipe must be opened and written into. Renaming a file onto /dev/null would replace the device for the
whole machine.

No output is an input of the same command. Whatever a command reads is noted: the words of its command line, what its
recipes name, and the files that patterns stand for. Whatever replaces a file or a folder asks here.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import nlpctl
from nlpctl.errors import UserError
from nlpctl.layout import CARD, part_of, real_path
from nlpctl.names import and_more

READ_AGAIN = "write its content to a file first, and name that"
ELSEWHERE = "name another file"
NO_ARRAYS = ("arrays are not written sequentially", ELSEWHERE)  # for refuse_stream
_SIGNATURE = re.compile(r"\n<!-- nlpctl \S+, sha256 ([0-9a-f]{16}) -->\n\Z")
_UNFIT = ((stat.S_ISBLK, "a disk (block device)"), (stat.S_ISSOCK, "a socket"))


_inputs: dict[Path, str] | None = None  # of the command in progress, with what names them; None: there is none


@contextlib.contextmanager
def inputs_noted() -> Iterator[None]:
    """A command: inside the context, what `note_inputs` is told is no output."""
    global _inputs
    before, _inputs = _inputs, {**(_inputs or {})}
    try:
        yield
    finally:
        _inputs = before


def note_inputs(paths: Iterable[str | Path], named_by: str) -> None:
    """The command in progress reads these, which need not exist. `named_by`: a flag, a key or the like."""
    if _inputs is not None:
        for path in paths:
            _inputs.setdefault(Path(os.path.abspath(path)), named_by)


def refuse_inputs(*outputs: Path, hint: str = "name another place") -> None:
    """UserError if one of `outputs`, which are to be replaced or removed, is an input, or a folder that holds one.

    The same file under another name, by a link or a hard link, is the same.
    """
    for output in outputs:
        if not _inputs or is_stream(output) or not os.path.lexists(output):
            continue
        for path, named_by in _inputs.items():
            if _is_or_holds(output, path):
                told = "this is an input" if path == output or not output.is_dir() else f"this holds an input, {path}"
                raise UserError(f"{told} ({named_by}), and is not replaced", str(output), hint)


def _is_or_holds(output: Path, path: Path) -> bool:
    with contextlib.suppress(OSError):  # a link that leads nowhere; the prefix of several files
        if output.samefile(path):
            return True
    # A link in the folder is lost with it, whatever it leads to.
    spelt, real = Path(os.path.abspath(output)), real_path(output)
    return path.is_relative_to(spelt) or path.is_relative_to(real) or real_path(path).is_relative_to(real)


def is_stream(path: Path) -> bool:
    """Whether `path` must be written into and never replaced: a device, a pipe, or a link to one such as
    /dev/stdout."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not stat.S_ISDIR(mode) and (not stat.S_ISREG(mode) or _is_open_file(path))


def is_pipe(path: str | Path) -> bool:
    """Whether the input `path` is a device or a pipe, which cannot be read twice and may never end."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def refuse_pipe(path: Path, where: str = "") -> None:
    """UserError if `is_pipe`."""
    if is_pipe(path):
        raise UserError(f"{path} is a pipe or a device, not a file", where=where or str(path), hint=READ_AGAIN)


def open_stream(path: Path) -> BinaryIO:
    """Open what `is_stream` to write into it. UserError for a disk or a socket; waits for the reader of a pipe."""
    _refuse_unfit(path)
    # Append, because /dev/stdout may be a regular file with content that the shell opened.
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOCTTY), "wb")


def refuse_output(
    path: Path, overwrite: bool, *, exists: str = "the output file exists", elsewhere: str = ELSEWHERE
) -> None:
    """UserError if `path` is a folder, a disk or a socket, an input, a part of a model, a lost link, or exists and must
    not be replaced."""
    refuse_below_file(path.parent, str(path))
    refuse_lost_link(path)
    if not path.is_dir():
        refuse_inputs(path)
    refuse_part(path)
    if path.is_dir():
        raise UserError("this is a folder", where=str(path), hint="name a file in it")
    if is_stream(path):
        _refuse_unfit(path)
    elif os.path.exists(path) and not overwrite:
        raise UserError(exists, where=str(path), hint=f"use @[overwrite=true], or {elsewhere}")


def refuse_part(path: Path) -> None:
    """UserError if `path` would be a part of a run, model, export or index, with --overwrite too."""
    whole = None if is_stream(path) else part_of(path)
    if whole is not None:
        raise UserError(f"this would be a part of {whole}, which must stay as it is", str(path), "name another place")


def refuse_mounted(folder: Path) -> None:
    """UserError if a file system is mounted at `folder`, such as a container's volume: it cannot be renamed."""
    if os.path.ismount(folder):
        message = "a file system is mounted here, so this folder cannot be replaced as a whole"
        raise UserError(message, str(folder), f"name a folder in it: {folder / 'NAME'}")


def refuse_lost_link(path: Path, where: str = "") -> None:
    """UserError if the output `path`, or a folder on the way to it, is a link that leads nowhere or in a circle.

    It cannot be told whether its owner wants a file here or there, so it is neither replaced nor followed.
    """
    for place in (path, *path.parents):
        if os.path.islink(place) and not os.path.exists(place):
            end = "in a circle" if _is_circle(place) else f"to {os.path.realpath(place)}, which is not there"
            raise UserError(f"{place} is a link {end}", where or str(path), "delete the link, or name another place")


def _is_circle(link: Path) -> bool:
    try:
        link.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def refuse_below_file(folder: Path, where: str) -> None:
    """UserError if `folder` cannot be made because it, or what is to hold it, is a file or a lost link."""
    refuse_lost_link(folder, where)
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise UserError(f"{place} is a file, not a folder", where=where, hint="name another folder")


def refuse_folder(
    folder: Path, overwrite: bool, kind: str, is_own: Callable[[Path], bool], reads: Iterable[Path] = ()
) -> None:
    """UserError if the output `folder` is neither empty nor of its `kind`, exists and must not be replaced, or cannot
    be: it is or holds an input, is a part of a model, a lost link, or a place where a file system is mounted.

    `reads`: inputs besides those that are noted.
    """
    refuse_lost_link(folder)
    refuse_part(folder)
    refuse_mounted(folder)
    hint = "name another folder: @[output=FOLDER]"
    with inputs_noted():
        note_inputs(reads, "what it is made of")
        refuse_inputs(folder, hint=hint)
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not folder.is_dir() or not is_own(folder):
        raise UserError(f"this is not {kind} and is not replaced", str(folder), hint)
    if not overwrite:
        raise UserError("already exists", str(folder), f"use @[overwrite=true], or {hint}")


def refuse_foreign(folder: Path, own: Collection[str]) -> None:
    """UserError if the existing `folder`, which is to be replaced, holds more than the files `own` at its top.

    A model card as nlpctl wrote it is its own, too.
    """
    foreign = sorted(path.name for path in folder.iterdir() if path.name not in own and not _is_card(path))
    if foreign:
        message = f"is not replaced: it also holds what nlpctl did not write there ({and_more(foreign)})"
        raise UserError(message, where=str(folder), hint=f"move {foreign[0]} away, or name another folder")


def signed(text: str) -> str:
    """Markdown with a last line by which `is_signed` knows it again."""
    return f"{text}\n<!-- nlpctl {nlpctl.__version__}, sha256 {_digest(text)} -->\n"


def is_signed(file: Path) -> bool:
    """Whether nlpctl wrote this Markdown, and nobody has changed it since."""
    try:
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
    except (OSError, ValueError):
        return False
    found = _SIGNATURE.search(text)
    return found is not None and _digest(text[: found.start()]) == found[1]


def _is_card(path: Path) -> bool:
    return path.name == CARD and is_signed(path)


def _digest(text: str) -> str:
    from nlpctl.checksums import sha256_of_text  # late: hashlib, not for --help

    return sha256_of_text(text)[:16]


def refuse_stream(path: Path, why: str, hint: str) -> None:
    """UserError if `path` is a device or a pipe; for outputs that are not written sequentially."""
    if is_stream(path):
        raise UserError(f"this is a device or a pipe, and {why}", where=str(path), hint=hint)


def _refuse_unfit(path: Path) -> None:
    mode = path.stat().st_mode
    for is_kind, name in _UNFIT:
        if is_kind(mode):
            raise UserError(f"this is {name}: output cannot be written to it", where=str(path), hint=ELSEWHERE)


def _is_open_file(path: Path) -> bool:
    """Whether links from `path` pass through /proc/PID/fd, where a shell's `> FILE` is a link to a regular file."""
    while path.is_symlink():
        folder = path.parent.resolve()
        if folder.name == "fd" and folder.parts[:2] == ("/", "proc"):
            return True
        path = folder / os.readlink(path)
    return False
