"""Which cards a library has code for, read from files as nvcc lays them out."""

from __future__ import annotations

import struct

import pytest

from nlpctl.runtime import cuda as cuda_code
from nlpctl.runtime.cuda import CudaCode, code_of

MACHINE, PTX = 2, 1
AS_IN_26 = [(MACHINE, number) for number in (61, 70, 75, 80, 86)]


def container(entries: list[tuple[int, int]]) -> bytes:
    """A container with these (kind, 10 * capability), with some bytes of code each."""
    body = b"".join(struct.pack("<HHIQ12xI32x", kind, 0x101, 64, 24, number) + b"c" * 24 for kind, number in entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def library(*containers: bytes, section: bytes = b".nv_fatbin") -> bytes:
    """A 64-bit ELF file whose section holds the containers."""
    code, names = b"".join(containers), b"\0.text\0" + section + b"\0"
    at = [64, 64 + len(code)]
    sections = [(0, 0, 0), (1, 64, 0), (7, at[0], len(code)), (1, at[1], len(names))]
    table = b"".join(struct.pack("<IIQQQQ24x", name, 1, 0, 0, offset, size) for name, offset, size in sections)
    end = at[1] + len(names)
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 0, end, 0, 64, 0, 0, 64, 4, 3)
    return head + code + names + table


def test_the_capabilities_common_to_all_containers_are_served(tmp_path):
    file = tmp_path / "libphi.so"
    file.write_bytes(library(container(AS_IN_26), container([*AS_IN_26, (MACHINE, 90)])))
    code = code_of(file)
    assert code == CudaCode(((6, 1), (7, 0), (7, 5), (8, 0), (8, 6)))
    cards = ((6, 0), (6, 1), (7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0))
    assert [card for card in cards if code.runs_on(card)] == [(6, 1), (7, 0), (7, 5), (8, 0), (8, 6), (8, 9)]


def test_ptx_serves_newer_cards(tmp_path):
    file = tmp_path / "libphi.so"
    file.write_bytes(library(container([(MACHINE, 80), (PTX, 120)])))
    code = code_of(file)
    assert code == CudaCode(((8, 0),), ((12, 0),)) and code.newest == (12, 0)
    assert [card for card in ((8, 6), (9, 0), (12, 0), (12, 1)) if code.runs_on(card)] == [(8, 6), (12, 0), (12, 1)]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"a text",
        library(container(AS_IN_26), section=b".rodata"),
        library(b"\0" * 64),
        library(container(AS_IN_26))[:100],
        library(container(AS_IN_26).replace(struct.pack("<I", 64), struct.pack("<I", 0))),
    ],
    ids=["empty", "text", "no code", "zeros", "cut off", "entries without size"],
)
def test_what_cannot_be_read_is_not_known(tmp_path, content):
    (tmp_path / "libphi.so").write_bytes(content)
    assert code_of(tmp_path / "libphi.so") is None
    assert code_of(tmp_path / "missing.so") is None


def test_the_installed_paddle_is_looked_at_without_importing_it():
    code = cuda_code.installed_code()
    assert code is None or (8, 0) in code.machine
