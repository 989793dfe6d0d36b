"""Recognises the kind of a file by its first bytes."""

from __future__ import annotations

import enum
from pathlib import Path

from nlpctl.formats.lod_tensor import looks_like_tensor
from nlpctl.formats.program import looks_like_program
from nlpctl.outputs import refuse_pipe
from nlpctl.static_graph.archive import looks_like_archive


class Kind(enum.StrEnum):
    TENSOR = "raw tensors"
    PROGRAM = "a program"
    PICKLE = "a pickle"
    NUMPY = "a NumPy array"
    ARCHIVE = "an archive"
    OTHER = "something else"


def kind_of(file: Path) -> Kind:
    """The kind of one file, damaged ones too as far as their beginning tells."""
    refuse_pipe(file)
    with file.open("rb") as stream:
        head = stream.read(512)
    size = file.stat().st_size
    # The opcode PROTO with protocol 2 to 5; Paddle never wrote protocols 0 and 1.
    if head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5"):
        return Kind.PICKLE
    if head.startswith(b"\x93NUMPY"):
        return Kind.NUMPY
    if looks_like_archive(head):
        return Kind.ARCHIVE
    if looks_like_program(head, size):
        return Kind.PROGRAM
    return Kind.TENSOR if head and looks_like_tensor(head, size) else Kind.OTHER
