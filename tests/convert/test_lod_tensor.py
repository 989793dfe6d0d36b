"""Paddle's raw tensor format: all number types as Paddle writes them, and every way in which a file can be wrong."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import paddle
import pytest
from static_tensor import save_tensor

from nlpctl.convert.parameter_sets import FileKind, check_byte_order, kind_of
from nlpctl.errors import UserError
from nlpctl.formats.lod_tensor import looks_like_tensor, read_tensors

FLOAT32, BOOL, BFLOAT16 = 5, 0, 22


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def raw(data: bytes, shape=(3,), code=FLOAT32, order="<", levels=(), packed=False, description=None) -> bytes:
    """A file as Paddle writes it, or not quite."""
    sizes = b"".join(map(varint, shape))
    sizes = b"\x12" + varint(len(sizes)) + sizes if packed else b"".join(b"\x10" + varint(size) for size in shape)
    description = b"\x08" + varint(code) + sizes if description is None else description
    lod = b"".join(struct.pack(f"{order}Q{len(level)}Q", 8 * len(level), *level) for level in levels)
    head = struct.pack(f"{order}IQ", 0, len(levels)) + lod + struct.pack(f"{order}Ii", 0, len(description))
    return head + description + data


ONES = np.ones(3, "<f4").tobytes()


def write(tmp_path: Path, content: bytes) -> Path:
    file = tmp_path / "fc_0.w_0"
    file.write_bytes(content)
    return file


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool"]
)
def test_every_number_type_as_paddle_writes_it(tmp_path, dtype):
    values = paddle.to_tensor([[0.0, 1.0, 1.0], [3.0, 100.0, 1.5]]).astype(dtype)
    file = tmp_path / "variable"
    save_tensor(values, file)
    (array,) = read_tensors(file)
    expected = values.numpy()  # bfloat16 comes as uint16
    assert array.dtype == expected.dtype and array.shape == (2, 3)
    np.testing.assert_array_equal(array, expected)
    assert kind_of(file) is FileKind.TENSOR


def test_the_shortest_and_the_packed(tmp_path):
    (flag,) = read_tensors(write(tmp_path, raw(b"\1", (1,), BOOL)))
    assert flag.dtype == bool and flag.tolist() == [True]
    (scalar,) = read_tensors(write(tmp_path, raw(ONES[:4], ())))
    assert scalar.shape == () and scalar == 1
    (packed,) = read_tensors(write(tmp_path, raw(ONES * 100, (3, 100), packed=True)))
    assert packed.shape == (3, 100)


def test_offsets_of_sequences_are_passed_over(tmp_path):
    file = write(tmp_path, raw(ONES, levels=([0, 1, 3], [0, 2])))
    assert kind_of(file) is FileKind.TENSOR
    assert read_tensors(file)[0].tolist() == [1, 1, 1]


def test_several_tensors(tmp_path):
    file = write(tmp_path, raw(ONES) + raw(b"\1\0", (2, 1), BOOL) + raw(ONES * 2, (2, 3)))
    assert [array.shape for array in read_tensors(file)] == [(3,), (2, 1), (2, 3)]


GOOD = raw(ONES)
WRONG = {
    "cut off in the values": (GOOD[:-1], r"at byte 0: shape \[3\] of float32 needs 12 bytes, and 11 are left"),
    "cut off in the description": (GOOD[:21], "at byte 0: cut off: the description takes 4 bytes, and 1 are left"),
    "cut off in the head": (GOOD[:10], "cut off: the number of LoD levels takes 8 bytes, and 6 are left"),
    "cut off after the first": (GOOD + GOOD[:-4], r"tensor 2, at byte 36: shape \[3\] of float32 needs 12"),
    "bytes behind the end": (GOOD + b"surplus!", "tensor 2, at byte 36: not a Paddle tensor"),
    "wiped": (bytes(4096), "a description of 0 bytes"),
    "the head's byte order": (raw(ONES, order=">"), r"a description of 67108864 bytes: its byte order is swapped"),
    "the byte order of levels": (
        raw(ONES, order=">", levels=([0, 3],)),
        r"72057594037927936 LoD levels: its byte order is swapped",
    ),
    "40 GB": (raw(ONES * 80, (100_000, 100_000)), r"100000\] of float32 needs 40000000000 bytes, and 960"),
    "more than 64 bits": (raw(ONES, (1 << 40, 1 << 40)), "needs 4835703278458516698824704 bytes, and 12"),
    "a wider type": (raw(ONES, code=6), r"shape \[3\] of float64 needs 24 bytes, and 12 are left"),
    "a narrower type": (raw(ONES, code=4), "tensor 2, at byte 30: not a Paddle tensor"),
    "an unknown type": (raw(ONES, code=99), r"number type 99 \(unknown\) is none that parameters have"),
    "complex numbers": (raw(ONES, code=23), r"number type 23 \(complex64\)"),
    "no bool": (raw(b"\1\2\0", code=BOOL), "of type bool, but its bytes are not all 0 or 1"),
    "a free size": (raw(ONES, (-1, 3)), r"shape \[-1, 3\] is none that a parameter has"),
    "no values": (raw(b"", (0, 3)), r"shape \[0, 3\] is none that a parameter has"),
    "many sizes": (raw(ONES, (1,) * 10), "is none that a parameter has"),
    "no type": (raw(ONES, description=b"\x10\x03"), "names no number type"),
    "a foreign field": (raw(ONES, description=b"\x08\x05\x1a\x01"), r"unknown field \(tag 26\)"),
    "a cut number": (raw(ONES, description=b"\x08\x05\x10\x83"), "its description is cut off"),
    "an endless number": (raw(ONES, description=b"\x08" + b"\xff" * 12), "a number without end"),
    "a packed list that is cut": (raw(ONES, description=b"\x08\x05\x12\x09\x03"), "its description is cut off"),
    "a level without end": (raw(ONES, levels=([0, 3],))[:24], "a LoD level takes 16 bytes, and 4 are left"),
    "a later version": (b"\1" + GOOD[1:], r"not a Paddle tensor \(version 1, expected 0\)"),
    "a later inner version": (GOOD[:12] + b"\1" + GOOD[13:], "inner version 1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_refused(tmp_path, case):
    content, message = WRONG[case]
    file = write(tmp_path, content)
    with pytest.raises(UserError, match=message) as caught:
        read_tensors(file)
    assert str(caught.value).startswith(f"{file}: ") and "-> copy or download" in str(caught.value)


def test_an_empty_file(tmp_path):
    with pytest.raises(UserError, match="is empty, so it is not a parameter file"):
        read_tensors(write(tmp_path, b""))


def test_every_cut_and_every_flipped_byte_ends_well(tmp_path):
    """Whatever happens to a file, reading it gives arrays that lie inside it, or one message."""
    good = raw(ONES, levels=([0, 3],)) + raw(b"\0\1", (2,), BOOL)
    generator = np.random.default_rng(0)
    contents = [good[:length] for length in range(1, len(good))]
    for position in range(len(good)):
        for value in {0, 1, 0x7F, 0x80, 0xFF, *generator.integers(0, 256, 3).tolist()}:
            contents.append(good[:position] + bytes([value]) + good[position + 1 :])
    refused = 0
    for content in contents:
        file = write(tmp_path, content)
        kind_of(file)
        try:
            assert sum(array.nbytes for array in read_tensors(file)) <= len(content)
        except UserError:
            refused += 1
    assert refused > len(contents) / 4


@pytest.mark.parametrize(
    "content", [b"plain text", b"\0\0\0\1Bud1" + bytes(40), b"\0\0\0\0" + b"\xff" * 60, b"\0\0\0\x18ftyp"]
)
def test_files_that_are_no_tensors(content):
    assert not looks_like_tensor(content[:64], len(content))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_swapped_values_are_noticed(tmp_path, dtype):
    generator = np.random.default_rng(0)
    for array in (generator.normal(0, 0.02, (50, 40)), np.ones(64), np.linspace(-1, 1, 32)):
        array = array.astype(dtype)
        check_byte_order(tmp_path / "w", "w", array)
        with pytest.raises(UserError, match="the byte order of w is swapped"):
            check_byte_order(tmp_path / "w", "w", array.byteswap())


def test_values_that_only_look_odd_are_not_called_swapped(tmp_path):
    generator = np.random.default_rng(0)
    rounded = generator.normal(0, 1, 500).astype(np.float32).view(np.uint32) & 0xFFFF0000  # from bfloat16
    odd = [
        np.zeros(100),
        generator.normal(0, 1e-42, 500),  # weights that died away
        np.where(generator.random(500) < 0.5, np.nan, 1.0),
        np.full(500, np.inf),
        np.full(500, -1e30),
        np.full(3, 4.6e-41),  # too few to tell
        rounded.view(np.float32),
    ]
    for array in odd:
        check_byte_order(tmp_path / "w", "w", array.astype(np.float32))
    check_byte_order(tmp_path / "w", "w", generator.integers(0, 1 << 60, 500))
