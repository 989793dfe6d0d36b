"""Sources that are wrong as a whole: one message each, which names the place and the next step."""

from __future__ import annotations

import os
import pickle
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from nlpctl.convert.source import read_static
from nlpctl.errors import UserError


def refused(source: Path, message: str) -> str:
    with pytest.raises(UserError, match=message) as caught:
        read_static(source)
    assert len(caught.value.problems) == 1
    (problem,) = caught.value.problems
    assert problem.where.startswith(str(source)) and problem.hint
    return str(caught.value)


class Malicious:
    """Unpickling this creates a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_pickle_with_code(tmp_path):
    trace = tmp_path / "was_here"
    source = tmp_path / "model.pdparams"
    source.write_bytes(pickle.dumps({"fc_0.w_0": np.ones(3, np.float32), "x": Malicious(trace)}, protocol=2))
    refused(source, "refused: this weights file wants to load posix.mkdir, which is code, not an array")
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as archive:
        archive.write(source, "model/model.pdparams")
    message = refused(tmp_path / "model.zip", "posix.mkdir")
    assert message.startswith(f"{tmp_path / 'model.zip'}: model/model.pdparams: refused")
    assert not trace.exists()


def test_notes_of_jit_save_with_code(saved, tmp_path):
    shutil.copytree(saved.folder / "jit", tmp_path / "jit")
    (tmp_path / "jit" / "model.pdiparams.info").write_bytes(pickle.dumps(Malicious(tmp_path / "was_here")))
    refused(tmp_path / "jit", r"model.pdiparams.info: refused: .*posix.mkdir")
    assert not (tmp_path / "was_here").exists()


def test_notes_that_name_no_names(saved, tmp_path):
    shutil.copytree(saved.folder / "jit", tmp_path / "jit")
    notes = {name: {"structured_name": 3, "stop_gradient": False} for name in saved.counted.values()}
    (tmp_path / "jit" / "model.pdiparams.info").write_bytes(pickle.dumps(notes))
    refused(tmp_path / "jit", "has a parameter whose name is not text")


def test_numpy_objects_are_refused(tmp_path):
    np.save(tmp_path / "w.npy", np.array([Malicious(tmp_path / "was_here")], dtype=object), allow_pickle=True)
    refused(tmp_path, "w.npy: is cut off or damaged .*it holds objects of Python")
    assert not (tmp_path / "was_here").exists()


@pytest.mark.parametrize("array", [np.array(["a"]), np.ones(2, complex), np.zeros(2, "i4,f4"), np.ones(2, np.uint32)])
def test_numpy_types_that_parameters_do_not_have(tmp_path, array):
    np.save(tmp_path / "w.npy", array)
    refused(tmp_path, "w.npy: 'w.npy' is of type .* which parameters are not")


def npy(header: str, data: bytes = bytes(900)) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + data


@pytest.mark.parametrize(
    "content",
    [
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (100000, 100000)}"),  # 40 GB in 1 kB
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}"),  # 0 in 64 bits
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}"),
        npy("{'descr': '<f4', 'shape': (3,)}"),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': ("),
        npy("(" * 60_000),
        npy("")[:9],
    ],
)
def test_damaged_numpy_files(tmp_path, content):
    (tmp_path / "w.npy").write_bytes(content)
    refused(tmp_path, "w.npy: is cut off or damaged")


def test_a_cut_tensor_among_good_ones(saved, tmp_path):
    shutil.copytree(saved.folder / "vars", tmp_path / "vars")
    file = tmp_path / "vars" / "fc_1.w_0"
    for length in (file.stat().st_size - 1, 30, 22, 4):
        with file.open("r+b") as stream:
            stream.truncate(length)
        refused(tmp_path / "vars", "fc_1.w_0: at byte 0: ")


def test_swapped_values_among_good_ones(saved, tmp_path):
    shutil.copytree(saved.folder / "vars", tmp_path / "vars")
    file = tmp_path / "vars" / "fc_0.w_0"
    content = file.read_bytes()
    swapped = np.frombuffer(content[-256:], "<f4").byteswap().tobytes()
    file.write_bytes(content[:-256] + swapped)
    refused(tmp_path / "vars", "fc_0.w_0: the byte order of fc_0.w_0 is swapped")


def test_a_type_of_the_same_width_is_noticed_where_a_program_declares_it(saved, tmp_path):
    for kind in ("combined", "jit"):
        shutil.copytree(saved.folder / kind, tmp_path / kind)
    file = tmp_path / "combined" / "__params__"
    content = file.read_bytes()
    assert content[20:22] == b"\x08\x05"
    file.write_bytes(content[:21] + b"\x02" + content[22:])  # int32
    refused(tmp_path / "combined", "embedding_0.w_0 is int32 .*, and the program declares float32")


def test_parameters_of_another_model(saved, tmp_path):
    shutil.copy(saved.folder / "jit" / "model.pdmodel", tmp_path)
    shutil.copy(saved.folder / "inference" / "model.pdiparams", tmp_path)
    message = refused(tmp_path, "model.pdiparams: holds 5 tensors, and model.pdmodel declares 11")
    assert "-> give the program that was saved together with this file" in message
    shutil.copytree(saved.folder / "vars", tmp_path / "vars")
    shutil.copy(tmp_path / "vars" / "fc_0.b_0", tmp_path / "vars" / "fc_0.w_0")
    shutil.copy(saved.folder / "combined" / "__model__", tmp_path / "vars")
    refused(tmp_path / "vars", r"does not belong to __model__: fc_0.w_0 is float32 \[8\], and the program declares")


def test_a_program_that_declares_other_shapes_in_the_same_number(saved, tmp_path):
    """Same number of tensors, so that only the shapes tell that the order, and so the names, would be wrong."""
    shutil.copytree(saved.folder / "combined", tmp_path / "x")
    model = (tmp_path / "x" / "__model__").read_bytes()
    renamed = model.replace(b"fc_1.b_0", b"aa_1.b_0")  # sorts first
    assert renamed != model
    (tmp_path / "x" / "__model__").write_bytes(renamed)
    refused(tmp_path / "x", r"__params__: does not belong to __model__: aa_1.b_0 is float32 \[11, 8\]")


def test_a_combined_file_alone(saved, tmp_path):
    shutil.copy(saved.folder / "jit" / "model.pdiparams", tmp_path)
    refused(tmp_path, "holds 11 tensors without names, and neither a program nor .info lies next to it")
    shutil.copy(saved.folder / "jit" / "model.pdiparams.info", tmp_path)
    refused(tmp_path, "holds 11 tensors, and model.pdiparams.info describes 13")  # two are not used by the graph
    notes = pickle.loads((tmp_path / "model.pdiparams.info").read_bytes())
    del notes["linear_2.w_0"], notes["linear_2.b_0"]
    (tmp_path / "model.pdiparams.info").write_bytes(pickle.dumps(notes))
    model = read_static(tmp_path)
    assert model.program is None and model.variables["linear_0.w_0"].structured == "inner.0.weight"
    np.testing.assert_array_equal(model.variables["linear_0.w_0"].array, saved.network["inner.0.weight"])


def test_parts_without_parameters(saved, tmp_path):
    for kind, name, message in (
        ("jit", "model.pdmodel", "model.pdmodel: holds a program, and no parameters"),
        ("jit", "model.pdiparams.info", "model.pdiparams.info: holds a pickle, and no parameters"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        shutil.copy(saved.folder / kind / name, folder)
        refused(folder, message)


def test_unknown_formats(tmp_path):
    refused(tmp_path, "the folder is empty")
    (tmp_path / "model.pdiparams").write_text("not at all")
    refused(tmp_path, "holds no parameters in a format that nlpctl knows")
    refused(tmp_path / "model.pdiparams", "holds no parameters in a format that nlpctl knows")
    refused(tmp_path / "modle", "there is no such file or folder")
    refused(tmp_path / "no" / "model", "there is no such file or folder")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(tmp_path / "model.pdiparams", "x")
    refused(tmp_path / "a.zip", "holds no parameters in a format that nlpctl knows")
    (tmp_path / "model.pdiparams").unlink()
    refused(tmp_path, "holds an archive, a.zip")


def test_a_pickle_without_arrays(tmp_path):
    (tmp_path / "a.pdparams").write_bytes(pickle.dumps({"epoch": 3, "name": "x"}))
    refused(tmp_path, "a.pdparams: holds no arrays")
    (tmp_path / "a.pdparams").write_bytes(pickle.dumps([1, 2]))
    refused(tmp_path, "a.pdparams: holds no training state")


def test_two_saves_in_one_folder(saved, tmp_path):
    for name in ("first", "second"):
        shutil.copy(saved.folder / "static" / "model.pdparams", tmp_path / f"{name}.pdparams")
    refused(tmp_path, "holds 2 sets of parameters: pickled arrays .* in .*first.pdparams; .*second.pdparams")
    assert len(read_static(tmp_path / "first.pdparams").variables) == 5
    (tmp_path / "second.pdparams").rename(tmp_path / "first.bak")
    refused(tmp_path, "two files hold the same variables: first.pdparams and the others of its name hold 'embedding_0")
    assert len(read_static(tmp_path / "first.pdparams").variables) == 5


def test_a_folder_that_is_no_model(tmp_path, monkeypatch):
    monkeypatch.setattr("nlpctl.convert.source.MOST_FILES", 10)
    for number in range(11):
        (tmp_path / str(number)).write_text("x")
    refused(tmp_path, "holds over 10 files")
