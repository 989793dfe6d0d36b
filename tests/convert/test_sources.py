"""Every layout that the installed Paddle writes, read back bit by bit."""

from __future__ import annotations

import os
import pickle
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import paddle
import pytest

from nlpctl.convert.source import read_static
from nlpctl.convert.variables import StaticModel
from nlpctl.errors import UserError
from nlpctl.paddle_version import release

UNUSED = {"pooler.weight", "pooler.bias"}  # the graph does not read them, so Paddle does not save them


def assert_network(saved, model: StaticModel, structured: bool = True) -> None:
    """`model` holds the dygraph network of the fixture, exactly."""
    expected = {saved.counted[name]: name for name in saved.network.keys() - UNUSED}
    assert model.variables.keys() == expected.keys()
    for name, variable in model.variables.items():
        assert variable.structured == (expected[name] if structured else None)
        assert_equal(variable.array, saved.network[expected[name]])


def assert_trained(saved, model: StaticModel, with_state: bool = True) -> None:
    """`model` holds the static program's parameters, exactly, and the rest is told to be an optimizer's."""
    expected = {"embedding_0.w_0", "fc_0.w_0", "fc_0.b_0", "fc_1.w_0", "fc_1.b_0"}
    assert model.variables.keys() == expected
    for name, variable in model.variables.items():
        assert_equal(variable.array, saved.trained[name])
    assert set(model.left_out) == (saved.trained.keys() - expected if with_state else set())


def assert_equal(array: np.ndarray, expected: np.ndarray) -> None:
    assert array.dtype == expected.dtype and array.shape == expected.shape
    np.testing.assert_array_equal(array, expected)


def copy(saved, kind: str, to: Path, *without: str) -> Path:
    shutil.copytree(saved.folder / kind, to)
    for name in without:
        (to / name).unlink()
    return to


def test_jit_save(saved):
    model = read_static(saved.folder / "jit")
    assert_network(saved, model)
    assert model.layout == "one combined file with its program model.pdmodel and model.pdiparams.info"
    assert model.program.feeds == ("ids",) and len(model.program.fetches) == 1
    assert [op.type for op in model.program.operators][:2] == ["feed", "lookup_table_v2"]


def test_jit_save_without_info(saved, tmp_path):
    model = read_static(copy(saved, "jit", tmp_path / "jit", "model.pdiparams.info"))
    assert_network(saved, model, structured=False)


def test_jit_save_under_other_names(saved, tmp_path):
    """Names say nothing: `__params__` and `__model__` have no name in common."""
    for suffix, name in {".pdmodel": "__model__", ".pdiparams": "__params__", ".pdiparams.info": "x"}.items():
        shutil.copy(saved.folder / "jit" / f"model{suffix}", tmp_path / name)
    assert_network(saved, read_static(tmp_path))
    assert_network(saved, read_static(tmp_path / "__params__"), structured=False)
    assert_network(saved, read_static(tmp_path / "__model__"), structured=False)


@pytest.mark.parametrize("name", ["model", "model.pdiparams", "model.pdmodel"])
def test_a_prefix_or_a_file_stands_for_what_was_saved_with_it(saved, tmp_path, name):
    folder = copy(saved, "jit", tmp_path / "jit")
    shutil.copy(saved.prefix("inference").with_suffix(".pdmodel"), folder / "other.pdmodel")
    shutil.copy(saved.prefix("inference").with_suffix(".pdiparams"), folder / "other.pdiparams")
    assert_network(saved, read_static(folder / name))
    assert_trained(saved, read_static(folder / "other"), with_state=False)
    with pytest.raises(UserError, match="holds 2 sets of parameters: one combined file in .*model.pdiparams; .*other"):
        read_static(folder)


def test_save_inference_model(saved):
    model = read_static(saved.folder / "inference")
    assert_trained(saved, model, with_state=False)
    assert all(variable.structured is None for variable in model.variables.values())


def test_static_save(saved):
    model = read_static(saved.folder / "static")
    assert_trained(saved, model)
    assert "adamw" in {op.type for op in model.program.operators}
    alone = read_static(saved.folder / "static" / "model.pdparams")
    assert_trained(saved, alone, with_state=False)
    assert alone.program is not None and alone.notes == ()


def test_static_save_without_its_program(saved, tmp_path):
    folder = copy(saved, "static", tmp_path / "static", "model.pdmodel", "model.pdopt")
    model = read_static(folder)
    assert_trained(saved, model, with_state=False)
    assert model.program is None


def test_one_file_per_variable(saved, tmp_path):
    model = read_static(saved.folder / "vars")
    assert_trained(saved, model)
    assert model.layout == "one file per variable" and model.program is None
    folder = copy(saved, "vars", tmp_path / "vars")
    shutil.copy(saved.folder / "combined" / "__model__", folder)
    assert read_static(folder).program.file == folder / "__model__"
    (folder / "fc_1.w_0").unlink()
    assert read_static(folder).notes == ("variables of __model__ that no file holds: 'fc_1.w_0'",)


def test_one_file_per_variable_in_a_folder_beside_other_files(saved, tmp_path):
    copy(saved, "vars", tmp_path / "ernie" / "params")
    (tmp_path / "ernie" / "vocab.txt").write_text("[PAD]\n")
    (tmp_path / "ernie" / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    model = read_static(tmp_path / "ernie")
    assert_trained(saved, model)
    assert model.notes == ("files next to the parameters, not read: 'vocab.txt'",)


def test_names_with_a_slash(saved, tmp_path):
    os.makedirs(tmp_path / "block_1")
    os.makedirs(tmp_path / "block_2")
    shutil.copy(saved.folder / "vars" / "fc_0.w_0", tmp_path / "block_1" / "w")
    shutil.copy(saved.folder / "vars" / "fc_1.w_0", tmp_path / "block_2" / "v")
    assert read_static(tmp_path).variables.keys() == {"block_1/w", "block_2/v"}


def test_two_checkpoints_in_one_folder_are_refused(saved, tmp_path):
    copy(saved, "vars", tmp_path / "step_1")
    copy(saved, "vars", tmp_path / "step_2")
    with pytest.raises(UserError, match="two sets of parameters: .* lies in .*step_1 and in .*step_2"):
        read_static(tmp_path)


def test_combined_with_optimizer_state(saved):
    assert_trained(saved, read_static(saved.folder / "combined"))


def test_save_params_in_one_file_beside_the_training_program(saved, tmp_path):
    """The file holds the parameters only, and the program declares the optimizer's variables too."""
    shutil.copy(saved.prefix("inference").with_suffix(".pdiparams"), tmp_path / "__params__")
    shutil.copy(saved.folder / "combined" / "__model__", tmp_path)
    assert_trained(saved, read_static(tmp_path), with_state=False)


@pytest.mark.parametrize("function", ["classify", "tag"])
def test_several_functions_in_one_file(tmp_path, function):
    """jit.save writes them to one parameter file when asked to, and each program declares a part of it.

    Of a function whose name comes before "forward" Paddle 2.6 overwrites the program: the .info is left to tell.
    Of one that comes later it writes a second parameter file, for "forward" alone. Paddle 3.1 writes "forward" alone,
    with its parameters, whatever the others are called.
    """
    with paddle.utils.unique_name.guard():
        network = TwoFunctions(function)
        paddle.jit.save(network, str(tmp_path / "model"), combine_params=True)
    both = release() < (3, 0)
    if both and function == "tag":
        with pytest.raises(UserError, match="holds 2 sets of parameters: .*model.pdiparams; .*model.tag.pdiparams"):
            read_static(tmp_path)
        (tmp_path / "model.pdiparams").unlink()
    state = {name: value for name, value in network.state_dict().items() if both or name.startswith("first.")}
    model = read_static(tmp_path)
    assert model.variables.keys() == {value.name for value in state.values()} and len(state) == (4 if both else 2)
    for name, value in state.items():
        assert_equal(model.variables[value.name].array, value.numpy())
        assert model.variables[value.name].structured == name


class TwoFunctions(paddle.nn.Layer):
    """`forward`, and a second function of the given name, each with a layer of its own."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.first = paddle.nn.Linear(3, 4)
        self.second = paddle.nn.Linear(4, 2)
        spec = [paddle.static.InputSpec([None, 4])]
        setattr(self, name, paddle.jit.to_static(self.other, input_spec=spec, full_graph=True))

    @paddle.jit.to_static(input_spec=[paddle.static.InputSpec([None, 3])], full_graph=True)
    def forward(self, values):
        return self.first(values)

    def other(self, values):
        return self.second(values)


def test_numpy_files(saved, tmp_path):
    arrays = {name.replace(".", "/", 1): array for name, array in saved.network.items()}
    (tmp_path / "npy").mkdir()
    for name, array in arrays.items():
        path = tmp_path / "npy" / f"{name}.npy"
        path.parent.mkdir(exist_ok=True)
        np.save(path, array.astype(">f4"))
    np.savez(tmp_path / "a.npz", **arrays)
    np.savez_compressed(tmp_path / "b.npz", **arrays)
    for source in ("npy", "a.npz", "b.npz"):
        model = read_static(tmp_path / source)
        assert model.variables.keys() == arrays.keys()
        for name, array in arrays.items():
            assert_equal(model.variables[name].array, array)


def test_parameters_saved_by_a_dygraph_network(tmp_path):
    layer = paddle.nn.Linear(3, 2)
    paddle.save(layer.state_dict(), str(tmp_path / "model.pdparams"))
    model = read_static(tmp_path)
    assert [variable.structured for variable in model.variables.values()] == ["weight", "bias"]


def pack_tar(mode: str) -> Callable[[Path, Path], None]:
    def pack(folder: Path, archive: Path) -> None:
        with tarfile.open(archive, mode) as tar:
            tar.add(folder, folder.name)

    return pack


def pack_zip(folder: Path, archive: Path) -> None:
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for file in folder.rglob("*"):
            zipped.write(file, file.relative_to(folder.parent))


PACKERS: Mapping[str, Callable[[Path, Path], None]] = {
    "tar": pack_tar("w"),
    "tar.gz": pack_tar("w:gz"),
    "tar.bz2": pack_tar("w:bz2"),
    "tar.xz": pack_tar("w:xz"),
    "zip": pack_zip,
}


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("kind", ["jit", "vars", "static"])
def test_archives(saved, tmp_path, packer, kind, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    archive = tmp_path / "model.bin"  # the name says nothing
    PACKERS[packer](saved.folder / kind, archive)
    model = read_static(archive)
    assert not list((tmp_path / "temporary").iterdir())  # and the arrays are there still
    if kind == "jit":
        assert_network(saved, model)
        assert model.program.file == archive / "jit" / "model.pdmodel"
    else:
        assert_trained(saved, model)
    assert model.layout.endswith(", in an archive")


def test_lac(tmp_path):
    """The real one: what jieba ships, written by Paddle 1.x."""
    import jieba

    model = read_static(Path(jieba.__file__).parent / "lac_small" / "model_baseline")
    assert len(model.variables) == 20 and not model.left_out and not model.notes
    shapes = {name: variable.shape for name, variable in model.variables.items()}
    assert shapes["word_emb"] == (20941, 128) and shapes["crfw"] == (59, 57) and shapes["gru_3.b_0"] == (1, 384)
    with_paddle = paddle.static.load_program_state(str(model.source))
    assert with_paddle.keys() == model.variables.keys()
    for name, array in with_paddle.items():
        assert_equal(model.variables[name].array, array)


def test_pickles_of_paddle_2_0_with_internal_names(tmp_path):
    """Tensors that are pickled one by one become (internal name, array)."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    (tmp_path / "a.pdparams").write_bytes(pickle.dumps({"fc.weight": ("linear_0.w_0", array)}, protocol=4))
    assert_equal(read_static(tmp_path).variables["fc.weight"].array, array)
