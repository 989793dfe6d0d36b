"""Unpacking an untrusted tar or zip: nothing is written outside the folder or beyond a size limit.

Files and folders only: a link in an archive may point anywhere, so it is refused, not followed.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO, Any

from nlpctl.errors import UserError
from nlpctl.files import regular
from nlpctl.formats.bounds import PACKINGS
from nlpctl.formats.safe_pickle import BROKEN_HINT, reason_of

MOST_FILES = 20_000
MOST_GROWTH = 200  # parameters hardly compress; a bomb of zeros grows by a thousand
_SLACK = 100 << 20
_CHUNK = 1 << 20
_LONGEST_HEADER = 1 << 20
_DEEPEST = 32  # folders in each other: every file could bring as many as a name has letters

_OPENERS: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
}
_UNSAFE_HINT = "the archive may be malicious; if you trust it, unpack it yourself and give the folder"


def looks_like_archive(head: bytes) -> bool:
    """Whether a file that begins with `head` (512 bytes) is a zip, a tar or a compressed tar."""
    return head[:4] in (b"PK\3\4", b"PK\5\6") or head[257:262] == b"ustar" or head.startswith(tuple(_OPENERS))


def unpack(archive: Path, folder: Path) -> None:
    """Write the files of `archive` into the empty `folder`.

    UserError: a name that leads out of the folder or too deep into it, a link, a name that comes twice, a password;
    more files or bytes than the limits; a file that is cut off or damaged.
    """
    target = _Target(archive, folder)
    try:
        with regular(archive).open("rb") as stream:
            magic = stream.read(6)
            stream.seek(0)
            if magic.startswith(b"PK"):
                _unpack_zip(stream, target)
            else:
                opener = next((opener for start, opener in _OPENERS.items() if magic.startswith(start)), None)
                _unpack_tar(opener(stream) if opener else stream, target)
    except UserError:
        raise
    # A full disk; a compression that Python lacks, or which claims a table larger than the memory.
    except (OSError, NotImplementedError, MemoryError) as error:
        if isinstance(error, gzip.BadGzipFile):
            raise _damaged(archive, error) from None
        hint = "unpack it yourself, and give the folder"
        reason = str(error) or "it claims more memory than there is"
        raise UserError(f"cannot be unpacked ({reason})", where=str(archive), hint=hint) from None
    except Exception as error:  # zipfile and tarfile raise nearly anything
        raise _damaged(archive, error) from None


def _damaged(archive: Path, error: Exception) -> UserError:
    return UserError(f"is cut off or damaged ({reason_of(error)})", where=str(archive), hint=BROKEN_HINT)


class _Target:
    """The folder to write to, and how much may still come."""

    def __init__(self, archive: Path, folder: Path):
        self.archive, self._folder = archive, folder
        self.most_bytes = self._bytes_left = archive.stat().st_size * MOST_GROWTH + _SLACK
        self._files_left = MOST_FILES

    def refuse(self, name: str, why: str) -> UserError:
        return UserError(f"refused: {name[:120]!r} in the archive {why}", where=str(self.archive), hint=_UNSAFE_HINT)

    def count(self, name: str) -> None:
        """Note one more file or folder. UserError: one too many."""
        self._files_left -= 1
        if self._files_left < 0:
            raise self.refuse(name, f"is one file or folder too many: {MOST_FILES} are allowed")

    def add(self, name: str, size: int, content: IO[bytes]) -> None:
        """Copy one file; `size` is what the archive claims, and it never becomes more."""
        path = self._inside(name)
        # Claims are counted before anything is written: a bomb is refused without filling the disk.
        self._bytes_left -= size
        if self._bytes_left < 0:
            raise self.refuse(name, f"claims {size} bytes, which no archive of this size holds")
        # Asked per file: another process may fill the same disk meanwhile.
        free = shutil.disk_usage(self._folder).free
        if size > free:
            raise UserError(
                f"{name[:120]!r} needs {size} bytes, and {free} are free to unpack it",
                where=str(self.archive),
                hint="free some space, or set TMPDIR to a larger disk",
            )
        if path.exists():
            raise self.refuse(name, "comes twice")
        path.parent.mkdir(parents=True, exist_ok=True)
        left = size
        # x: two names that differ in case only are one file on some file systems.
        with path.open("xb") as stream:
            while left > 0 and (chunk := content.read(min(left, _CHUNK))):
                stream.write(chunk)
                left -= len(chunk)
        if left:
            raise EOFError(f"{name[:120]!r} ends {left} bytes early")

    def _inside(self, name: str) -> Path:
        # Windows programs write backslashes, which Python keeps as part of a name on Linux.
        relative = PurePosixPath(name.replace("\\", "/"))
        if relative.is_absolute() or ".." in relative.parts or not relative.parts or "\0" in name:
            raise self.refuse(name, "leads out of its folder")
        if len(relative.parts) > _DEEPEST:
            raise self.refuse(name, f"lies deeper than {_DEEPEST} folders")
        return self._folder / relative


def _unpack_zip(stream: IO[bytes], target: _Target) -> None:
    with zipfile.ZipFile(stream) as archive:
        for entry in archive.infolist():
            target.count(entry.filename)
            # A zip keeps the Unix mode in the upper 16 bits; zipfile itself would write the link's target as text.
            if stat.S_ISLNK(entry.external_attr >> 16):
                raise target.refuse(entry.filename, "is a link")
            if entry.flag_bits & 1:
                raise target.refuse(entry.filename, "is locked with a password")
            if entry.compress_type not in PACKINGS:
                raise NotImplementedError(f"{entry.filename[:120]!r} is packed in another way than deflate")
            if not entry.filename.endswith("/"):  # is_dir() fails for an empty name
                with archive.open(entry) as content:
                    target.add(entry.filename, entry.file_size, content)


def _unpack_tar(stream: IO[bytes], target: _Target) -> None:
    bounded: Any = _Bounded(stream, target.most_bytes)  # of a stream's methods tarfile uses read, seek and tell
    # "r:" forbids tarfile its own decompression, which would bypass the limits of _Bounded.
    with tarfile.open(fileobj=bounded, mode="r:") as archive:
        while (member := archive.next()) is not None:
            vars(archive).update(members=[], pax_headers={})  # tarfile keeps those of all
            target.count(member.name)
            if not (member.isfile() or member.isdir()):
                raise target.refuse(member.name, "is a link or a device")
            if member.isfile() and (content := archive.extractfile(member)) is not None:
                bounded.left = member.size
                target.add(member.name, member.size, content)
            bounded.left = _LONGEST_HEADER
        bounded.seek(archive.offset)
        if bounded.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise EOFError("it has no end")  # tarfile takes the last whole file for the end


class _Bounded:
    """A stream that hands out no more than is `left` to a header or a file, nor goes further than `most` bytes.

    tarfile reads long names, pax headers and maps of holes as long as they claim to be, however many there are.
    """

    def __init__(self, stream: IO[bytes], most: int):
        self._stream, self._most = stream, most
        self.left = _LONGEST_HEADER
        self.tell = stream.tell

    def seek(self, position: int) -> None:
        self._refuse_beyond(position)
        self._stream.seek(position)

    def read(self, count: int) -> bytes:
        self.left -= count
        if self.left < 0:
            raise ValueError(f"a header claims {count} bytes")
        self._refuse_beyond(self.tell() + count)
        return self._stream.read(count)

    def _refuse_beyond(self, position: int) -> None:
        if position > self._most:
            raise ValueError(f"its headers claim {position} bytes, which no archive of this size holds")
