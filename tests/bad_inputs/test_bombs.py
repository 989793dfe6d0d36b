"""Small files that would take gigabytes or minutes, and files that are none: refused before anything is allocated.

tests/models/test_safe_pickle.py has those of pickles, tests/convert/test_archive.py those of archives.
"""

from __future__ import annotations

import json
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mutated_files import FORMATS, out_of_memory
from onnx import helper, numpy_helper
from onnx_graphs import write_graph

from nlpctl.errors import UserError
from nlpctl.experiments.held_out import HeldOutProbabilities, read_probabilities, write_probabilities
from nlpctl.files import write_npz
from nlpctl.formats import lod_tensor, program
from nlpctl.formats.array_files import read_npz, read_numpy
from nlpctl.formats.lod_tensor import read_tensors
from nlpctl.formats.program import read_program
from nlpctl.graphs.onnx_graph import read_graph
from nlpctl.inference.index import TextIndex, new_index, save_index
from nlpctl.inference.index_folder import IndexKind, IndexManifest
from nlpctl.models.weights import read_safetensors


def refused(read: Callable[..., Any], message: str, *values: Any) -> None:
    with pytest.raises(UserError, match=message) as caught:
        read(*values)
    assert not out_of_memory(caught.value)


@pytest.mark.parametrize("name", sorted(FORMATS.keys() - {"gzip", "tallies"}))  # a pipe of texts is right; no tallies
def test_no_reader_waits_for_a_pipe(tmp_path: Path, name: str) -> None:
    file_name, _, read = FORMATS[name]
    os.mkfifo(tmp_path / file_name)
    refused(read, "pipe or a device|cut off|cannot be read|damaged|nothing", tmp_path / file_name)


# -- safetensors ------------------------------------------------------------------------------------


def safetensors(file: Path, data: bytes, **tensors: Any) -> Path:
    head = json.dumps(tensors).encode()
    file.write_bytes(struct.pack("<Q", len(head)) + head + data)
    return file


def test_safetensors_that_are_the_same_bytes(tmp_path: Path) -> None:
    one = {"dtype": "F32", "shape": [100], "data_offsets": [0, 400]}
    file = safetensors(tmp_path / "w", bytes(400), **{f"w{i}": one for i in range(1000)})
    refused(read_safetensors, "more values than a file of its size holds", file)


@pytest.mark.parametrize("shape", [[10**13, 0], [-1, -100], [2**40, 2**40], [100.0], [True] * 3, "100", [1] * 40])
def test_safetensors_of_shapes_that_are_none(tmp_path: Path, shape: Any) -> None:
    length = 0 if isinstance(shape, list) and 0 in shape else 400
    file = safetensors(tmp_path / "w", bytes(400), w={"dtype": "F32", "shape": shape, "data_offsets": [0, length]})
    refused(read_safetensors, "a shape that|needs more bytes", file)


def test_safetensors_with_a_header_that_is_no_header(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(struct.pack("<Q", 17 << 20) + b"[" * (17 << 20))
    refused(read_safetensors, "a header of 17,825,792 bytes", tmp_path / "w")


# -- NumPy ------------------------------------------------------------------------------------------


def npy_head(shape: tuple, dtype: str = "<f4") -> bytes:
    text = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape!r}, }}\n".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text


@pytest.mark.parametrize("shape", [(10**9,), (10**13, 0), (2**33, 2**33), (-1,)])
def test_arrays_that_claim_more_than_they_have(tmp_path: Path, shape: tuple) -> None:
    file = tmp_path / "a.npy"
    file.write_bytes(npy_head(shape) + bytes(40))
    refused(read_numpy, "needs more bytes|not of whole numbers", file)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.write(file, "a.npy")
    with pytest.raises(ValueError, match="needs more bytes|not of whole numbers"):
        read_npz(tmp_path / "a.npz")


def test_probabilities_that_are_a_zip_bomb(tmp_path: Path) -> None:
    """100 MB of zeros in 100 kB; and honest zeros of a size that is packed no more."""
    file = tmp_path / "probabilities.npz"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("values.npy", npy_head((25 << 20, 1)) + bytes(100 << 20))
    refused(read_probabilities, "its files claim", file)
    zeros = HeldOutProbabilities.from_rows([np.zeros((20 << 20, 1))])
    write_probabilities(file, zeros, ["a"])
    assert len(read_probabilities(file)[0].values) == 20 << 20


@pytest.mark.parametrize(
    ("values", "ends", "message"),
    [
        ([[np.nan, 0.5]], [1], "numbers that are no probabilities"),
        ([[-0.5, 0.5]], [1], "numbers that are no probabilities"),
        ([[1.5, 0.5]], [1], "numbers that are no probabilities"),
        ([[0.5, 0.5]] * 3, [2, 1, 3], "rows do not follow each other"),
        ([[0.5, 0.5]] * 3, [-1, 3], "rows do not follow each other"),
        ([[0.5, 0.5]] * 3, [1, 2], "parts do not fit together"),
    ],
)
def test_damaged_probabilities(tmp_path: Path, values: list, ends: list, message: str) -> None:
    arrays = {"values": np.array(values, np.float32), "ends": np.array(ends), "labels": '["a", "b"]'}
    with (tmp_path / "p.npz").open("wb") as stream:
        write_npz(stream, arrays)
    refused(read_probabilities, message, tmp_path / "p.npz")


# -- graphs -----------------------------------------------------------------------------------------


def test_constants_of_a_graph_that_multiply(tmp_path: Path) -> None:
    """A column times a row, 800 kB, is 40 GB; a table joined to itself 40 times over has no end."""
    column = numpy_helper.from_array(np.ones((100_000, 1), np.float32), "column")
    row = numpy_helper.from_array(np.ones((1, 100_000), np.float32), "row")
    nodes = [helper.make_node("Mul", ["column", "row"], ["w"]), helper.make_node("MatMul", ["x", "w"], ["logits"])]
    write_graph(tmp_path / "a.onnx", nodes, [column, row])
    refused(read_graph, "more values than a file of its size holds", tmp_path / "a.onnx")
    doubled = [helper.make_node("Concat", [f"w{i}"] * 2, [f"w{i + 1}"], axis=0) for i in range(40)]
    weight = numpy_helper.from_array(np.ones((100, 1), np.float32), "w0")
    write_graph(tmp_path / "a.onnx", [*doubled, helper.make_node("MatMul", ["x", "w40"], ["logits"])], [weight])
    refused(read_graph, "more values than a file of its size holds", tmp_path / "a.onnx")


def test_a_graph_whose_values_are_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(16))
    weight = numpy_helper.from_array(np.ones((2, 2), np.float32), "w")
    weight.ClearField("raw_data")
    weight.data_location = 1
    weight.external_data.add(key="location", value="secret")
    write_graph(tmp_path / "a.onnx", [helper.make_node("MatMul", ["x", "w"], ["logits"])], [weight])
    refused(read_graph, "its values are in another file", tmp_path / "a.onnx")


def test_more_parts_than_any_program_or_file_of_tensors_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "MOST_PARTS", 2)
    file_name, write, _ = FORMATS["program"]
    write(tmp_path / file_name)
    refused(read_program, "it has 4 operators and variables, and 2 are read", tmp_path / file_name)
    monkeypatch.setattr(lod_tensor, "_MOST_TENSORS", 1)
    FORMATS["raw tensors"][1](tmp_path / "w")
    refused(read_tensors, "more tensors than the 1 that are read", tmp_path / "w")


# -- an index ---------------------------------------------------------------------------------------


def index_folder(folder: Path, kind: IndexKind, content: bytes | None = None) -> Any:
    """Opens an index of 300 vectors of width 4, with other `content` of its vectors."""
    index = new_index(kind, 4)
    index.add(np.random.default_rng(3).random((300, 4), np.float32))
    save_index(index, folder)
    if content is not None:
        (folder / "index.faiss").write_bytes(content)
    (folder / "texts.jsonl").write_text('"a"\n' * 300, encoding="utf-8")
    return TextIndex(folder, IndexManifest(kind, 300, 4, "", {}))


def test_an_index_of_another_kind(tmp_path: Path) -> None:
    index_folder(tmp_path, "flat")
    flat = (tmp_path / "index.faiss").read_bytes()
    refused(index_folder, "of the kind b'IxFI', not b'IHNf'", tmp_path, "hnsw", flat)
    index_folder(tmp_path, "hnsw")
    refused(index_folder, "of the kind b'IHNf', not b'IxFI'", tmp_path, "flat", (tmp_path / "index.faiss").read_bytes())


def test_an_index_with_a_list_of_four_gigabytes(tmp_path: Path) -> None:
    """faiss would make room for it before it reads."""
    index_folder(tmp_path, "flat")
    content = (tmp_path / "index.faiss").read_bytes()
    head = len(content) - 300 * 4 * 4
    content = content[: head - 8] + struct.pack("<Q", 1 << 30) + content[head:]
    refused(index_folder, "4294967296 bytes are claimed", tmp_path, "flat", content)


def test_links_beyond_the_texts(tmp_path: Path) -> None:
    index_folder(tmp_path, "hnsw")
    content = (tmp_path / "index.faiss").read_bytes()
    place = content.index(struct.pack("<ii", -1, -1))  # two links that the first vector with few of them lacks
    content = content[:place] + struct.pack("<i", 300) + content[place + 4 :]
    refused(index_folder, "leads beyond its 300 vectors", tmp_path, "hnsw", content)


def test_an_index_of_thousands_of_levels(tmp_path: Path) -> None:
    """Each is a pass over all vectors: minutes for four megabytes."""
    index_folder(tmp_path, "hnsw")
    content = (tmp_path / "index.faiss").read_bytes()
    begin = struct.calcsize("<4siqqqbi")
    begin += 8 + 8 * struct.unpack_from("<Q", content, begin)[0]  # behind the list of probabilities
    (count,) = struct.unpack_from("<Q", content, begin)
    end = begin + 8 + 4 * count
    levels = struct.pack("<Q", 65) + content[begin + 8 : end] + content[end - 4 : end] * (65 - count)
    content = content[:begin] + levels + content[end:]
    refused(index_folder, "the numbers of its links are damaged", tmp_path, "hnsw", content)


def test_vectors_that_are_no_numbers(tmp_path: Path) -> None:
    index_folder(tmp_path, "flat")
    content = (tmp_path / "index.faiss").read_bytes()
    content = content[:-4] + struct.pack("<f", float("nan"))
    refused(index_folder, "values that are no numbers", tmp_path, "flat", content)


def test_texts_of_an_index_that_are_no_texts(tmp_path: Path) -> None:
    index_folder(tmp_path, "flat")
    for line in ("7", '{"a": 1}', '"\\ud800"'):
        (tmp_path / "texts.jsonl").write_text('"a"\n' * 299 + line + "\n", encoding="utf-8")
        refused(TextIndex, "line 300 of its texts is", tmp_path, IndexManifest("flat", 300, 4, "", {}))
