"""SHA-256 of files and texts: what a folder lists of its files, and whether they are still those that were written.

The documents that hold such sums: manifest.json of a model folder (models/model_manifest.py), export.json
(models/export_folder.py), checksums.json of a checkpoint (training/checkpoints.py), the notes beside the parts of
a divided prediction (inference/shard_folder.py), and, of what a run or a series was made from, their own manifests.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from nlpctl.errors import UserError
from nlpctl.names import refuse_not_utf8

_BLOCK = 1 << 20
_TICK_NS = 2_000_000_000  # the coarsest clock of a file system in use (FAT)
_INPUTS: dict[tuple[int, ...], str] = {}  # device, inode, size and times of a file -> its SHA-256


class AlteredFiles(UserError):
    """A file of a model folder or an export is missing, or is not the one that was written."""


def sha256_of(path: Path) -> str:
    """Hex SHA-256 of a file's bytes, read in constant memory; about a second per GB."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def sha256_of_input(path: Path) -> str:
    """`sha256_of` a file that nlpctl only reads, such as one of the data: read once, as long as it stays the same.

    Whether a run's data are those that it was trained on is asked as its recipe is opened, and noted again by what is
    trained from them; data sets are large.
    """
    now, stat = time.time_ns(), path.stat()
    state = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    if state in _INPUTS:
        return _INPUTS[state]
    digest = sha256_of(path)
    # A file that was written just now could change again within one tick of the file system's clock, unseen.
    if now - max(stat.st_mtime_ns, stat.st_ctime_ns) > _TICK_NS:
        _INPUTS[state] = digest
    return digest


def sha256_of_text(text: str) -> str:
    """Hex SHA-256 of a text's UTF-8 bytes, such as a key that names a stored measurement."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def sums_of(paths: Iterable[Path]) -> dict[str, str]:
    """SHA-256 of each file that nlpctl only reads, by its path as given."""
    return {str(path): sha256_of_input(path) for path in paths}


def sums_in(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """SHA-256 of each named file of `folder`, by its name, sorted. UserError: a name is not UTF-8."""
    names = sorted(names)
    for name in names:
        refuse_not_utf8(folder / name)
    return {name: sha256_of(folder / name) for name in names}


def changed_sums(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The names in `now`, in its order, that had another sum before, or none. Names that are gone do not count."""
    return [name for name, digest in now.items() if before.get(name) != digest]


def damage_of_file(path: Path, size: int, sha256: str) -> str | None:
    """What is wrong with a file of which size and sum are known, in words; None if it is the one that was written.

    The size is compared first, so that a file that was cut off costs no reading.
    """
    if not path.is_file():
        return "is missing"
    now = path.stat().st_size
    if now != size:
        return f"has {now:,} of {size:,} bytes"
    return None if sha256_of(path) == sha256 else "has changed since it was saved"


def check_sums(folder: Path, sums: Mapping[str, str], kind: str, listed_in: str, hint: str) -> None:
    """AlteredFiles if a file of `sums` is missing in `folder` or has another sum.

    `kind`: what the folder is, such as "export"; `listed_in`: the document that lists the sums.
    """
    for name, expected in sums.items():
        path = folder / name
        # A name with a folder in it may lead anywhere: whoever sent the folder wrote it.
        if Path(name).name != name or not path.is_file():
            raise AlteredFiles(f"no {name} in this {kind}", where=str(folder), hint=hint)
        if sha256_of(path) != expected:
            raise altered(path, kind, f"its checksum is not that of {listed_in}", hint)


def altered(path: Path, kind: str, how: str, hint: str) -> AlteredFiles:
    """The error for one file; `how`: what tells that it is another one."""
    return AlteredFiles(f"was altered since the {kind} was written: {how}", where=str(path), hint=hint)
