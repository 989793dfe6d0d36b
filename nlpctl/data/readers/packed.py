"""Files that are packed (.gz, .zst): their endings, and their bytes unpacked."""

from __future__ import annotations

import contextlib
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from nlpctl.errors import UserError
from nlpctl.extras import require

PACKED = {".gz": "gzip", ".zst": "zstd"}  # ending -> the name of its compression


def packing(where: str | Path) -> str | None:
    """How a file is packed, by its ending; None if it is not."""
    return PACKED.get(PurePosixPath(where).suffix.lower())


def suffix_of(where: str | Path) -> str:
    """The ending that tells the format, in lower case: .jsonl of texts.jsonl.gz."""
    path = PurePosixPath(where)
    return PurePosixPath(path.stem).suffix.lower() if packing(where) else path.suffix.lower()


def stem_of(path: Path) -> str:
    """The name without the endings of format and packing: texts of texts.jsonl.gz."""
    return PurePosixPath(path.stem).stem if packing(path) else path.stem


@contextlib.contextmanager
def unpacked(stream: BinaryIO, kind: str) -> Iterator[BinaryIO]:
    """The bytes of a stream that is packed as `kind`, a value of PACKED."""
    if kind == "gzip":
        with gzip.GzipFile(fileobj=stream) as plain:
            yield cast(BinaryIO, plain)
        return
    require("pyarrow")
    import pyarrow  # late: half a second

    # Its streams know neither read1 nor readline.
    with pyarrow.input_stream(stream, compression=kind) as packed, io.BufferedReader(packed) as plain:
        yield cast(BinaryIO, plain)


@contextlib.contextmanager
def open_unpacked(path: str | Path) -> Iterator[BinaryIO]:
    """The bytes of a file, unpacked where its ending says that it is packed.

    UserError if it cannot be unpacked, also for a failure in the body, which does nothing but read; OSError as `open`.
    """
    kind = packing(path)
    with open(path, "rb") as stream:
        if kind is None:
            yield stream
            return
        with unpacking_errors_as_user_errors(str(path)), unpacked(stream, kind) as plain:
            yield plain


@contextlib.contextmanager
def unpacking_errors_as_user_errors(source: str) -> Iterator[None]:
    """UserError for a file that is damaged, or not packed as its ending says."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(source, error) from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise _damaged(source, error) from None  # of pyarrow


def _damaged(source: str, error: Any) -> UserError:
    hint = "copy or download it again; a file that is not packed must not end in .gz or .zst"
    return UserError(f"cannot be unpacked: {error}", where=source, hint=hint)
