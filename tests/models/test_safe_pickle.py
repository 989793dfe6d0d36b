import collections
import io
import os
import pickle
import zipfile

import numpy as np
import pytest

from nlpctl.errors import UserError
from nlpctl.formats.safe_pickle import load_pdparams, load_state
from nlpctl.formats.torch_file import load_torch_file


class Malicious:
    """Unpickling this creates a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


ARRAYS = {
    "float": np.arange(12, dtype=np.float32).reshape(3, 4),
    "transposed": np.arange(12, dtype=np.float64).reshape(3, 4).T,
    "half": np.ones((2, 2), np.float16),
    "ids": np.arange(5),
    "flag": np.array([True, False]),
    "empty": np.zeros((0, 4), np.float32),
    "scalar": np.array(3.0, np.float32),
    "big_endian": np.arange(4, dtype=">f4"),
}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_reads_every_kind_of_array_exactly(tmp_path, protocol):
    path = tmp_path / "model_state.pdparams"
    path.write_bytes(pickle.dumps(ARRAYS, protocol=protocol))
    loaded = load_pdparams(path)
    assert loaded.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert loaded[name].dtype == array.dtype and loaded[name].shape == array.shape
        np.testing.assert_array_equal(loaded[name], array)


def test_reads_what_paddle_saves(tmp_path):
    import paddle

    layer = paddle.nn.Linear(3, 2)
    path = tmp_path / "a.pdparams"
    paddle.save(layer.state_dict(), str(path))
    np.testing.assert_array_equal(load_pdparams(path)["weight"], layer.weight.numpy())
    paddle.save({"weight": layer.weight, "note": layer.bias}, str(path))  # not a state dict: (name, array) pairs
    np.testing.assert_array_equal(load_pdparams(path)["weight"], layer.weight.numpy())


def test_joins_arrays_that_paddle_sliced(tmp_path):
    path = tmp_path / "a.pdparams"
    info = {"w": {"OriginShape": (2, 3), "slices": ["w@@.0", "w@@.1"]}}
    parts = {"w@@.0": np.arange(4.0), "w@@.1": np.arange(4.0, 6.0)}
    path.write_bytes(pickle.dumps({**parts, "UnpackBigParamInfor@@": info}, protocol=2))
    np.testing.assert_array_equal(load_pdparams(path)["w"], np.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize("wrap", [lambda bad: bad, lambda bad: {"w": bad}, lambda bad: {"w": [ARRAYS["ids"], bad]}])
def test_refuses_code_and_does_not_run_it(tmp_path, wrap):
    path, trace = tmp_path / "model_state.pdparams", tmp_path / "was_here"
    path.write_bytes(pickle.dumps(wrap(Malicious(trace))))
    with pytest.raises(UserError, match=r"model_state.pdparams: refused: .*wants to load posix.mkdir"):
        load_pdparams(path)
    assert not trace.exists()
    pickle.loads(path.read_bytes())  # the file does what the test believes
    assert trace.exists()


@pytest.mark.parametrize(
    "name", ["builtins\neval", "builtins\ngetattr", "numpy\nload", "numpy.core.multiarray\nscalar", "os\nsystem"]
)
def test_refuses_globals_off_the_list(tmp_path, name):
    path = tmp_path / "a.pdparams"
    path.write_bytes(f"c{name}\n.".encode())
    with pytest.raises(UserError, match="refused: .* wants to load " + name.replace("\n", ".")):
        load_pdparams(path)


def test_refuses_object_arrays(tmp_path):
    path = tmp_path / "a.pdparams"
    path.write_bytes(pickle.dumps({"w": np.array([{}, []], dtype=object)}))
    with pytest.raises(UserError, match="refused: .*numpy.dtype"):
        load_pdparams(path)


@pytest.mark.parametrize("keep", [0, 1, 40, 200])
def test_cut_off_files(tmp_path, keep):
    path = tmp_path / "a.pdparams"
    path.write_bytes(pickle.dumps(ARRAYS)[:keep])
    with pytest.raises(UserError, match="is cut off or damaged"):
        load_pdparams(path)


@pytest.mark.parametrize(
    "value", [[1, 2], "text", {"w": "text"}, {"w": 3}, {3: ARRAYS["ids"]}, {"w": {"v": ARRAYS["ids"]}}]
)
def test_pickles_that_are_no_weights(tmp_path, value):
    path = tmp_path / "a.pdparams"
    path.write_bytes(pickle.dumps(value))
    with pytest.raises(UserError, match="holds no parameters|is not an array"):
        load_pdparams(path)


def test_an_array_that_claims_more_than_it_has(tmp_path):
    path = tmp_path / "a.pdparams"
    honest = pickle.dumps({"w": np.zeros(7, np.float32)}, protocol=2)
    assert honest.count(b"K\x07\x85") == 1
    path.write_bytes(honest.replace(b"K\x07\x85", b"K\xff\x85"))
    with pytest.raises(UserError, match="is cut off or damaged"):
        load_pdparams(path)


@pytest.mark.parametrize(
    "bomb",
    [
        b"\x80\x02}r\xff\xff\xff\x7f.",  # a memo of 2**31 entries, 34 GB
        b"\x80\x04\x95\x00\x00\x00\x00\x0a\x00\x00\x00}.",  # a frame of 43 GB
        b"\x80\x04}\x8e\x00\x00\x00\x00\x0a\x00\x00\x00.",  # bytes of 43 GB
    ],
)
def test_pickles_that_claim_more_than_they_have(tmp_path, bomb):
    path = tmp_path / "a.pdparams"
    path.write_bytes(bomb)
    with pytest.raises(UserError, match="is cut off or damaged"):
        load_pdparams(path)


def test_dicts_that_unfold_without_end(tmp_path):
    path = tmp_path / "a.pdopt"
    nested: dict = {}
    for _ in range(60):  # 60 dicts, and 2**60 ways through them
        nested = {"a": nested, "b": nested}
    path.write_bytes(pickle.dumps(nested))
    with pytest.raises(UserError, match="is not an array"):
        load_state(path)


def test_training_state_with_sliced_arrays(tmp_path):
    path = tmp_path / "a.pdopt"
    info = {"w": {"OriginShape": (2, 2), "slices": ["w@@.0", "w@@.1"]}}
    parts = {"w@@.0": np.arange(3.0), "w@@.1": np.arange(3.0, 4.0), "LR_Scheduler": {"last_epoch": 3}}
    path.write_bytes(pickle.dumps({**parts, "UnpackBigParamInfor@@": info}, protocol=2))
    state = load_state(path)
    assert state.keys() == {"w", "LR_Scheduler"} and state["LR_Scheduler"] == {"last_epoch": 3}
    np.testing.assert_array_equal(state["w"], [[0, 1], [2, 3]])


def torch_zip(path, structure: bytes, storage: bytes = b""):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", structure)
        archive.writestr("archive/data/0", storage)


class Storage(tuple):
    """What torch.save stores as a persistent id."""


def torch_pickle(offset=0, size=(2, 2), stride=(2, 1), kind="FloatStorage", count=4) -> bytes:
    """A data.pkl with one tensor, written by hand so that it can lie about its shape."""
    buffer = io.BytesIO()
    pickler = pickle._Pickler(buffer, protocol=2)
    pickler.persistent_id = lambda value: tuple(value) if isinstance(value, Storage) else None
    tensor = Global("torch._utils", "_rebuild_tensor_v2")
    storage = Storage(("storage", Global("torch", kind), "0", "cpu", count))
    pickler.dispatch[Global] = lambda self, value: self.write(f"c{value.module}\n{value.name}\n".encode())
    pickler.dispatch[Call] = lambda self, call: (self.save(call.function), self.save(call.arguments), self.write(b"R"))
    pickler.dump({"w": Call(tensor, (storage, offset, size, stride, False, collections.OrderedDict()))})
    return buffer.getvalue()


class Global:
    def __init__(self, module, name):
        self.module, self.name = module, name


class Call:
    def __init__(self, function, arguments):
        self.function, self.arguments = function, arguments


def test_torch_file_written_by_hand(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    torch_zip(path, torch_pickle(), np.arange(4, dtype=np.float32).tobytes())
    np.testing.assert_array_equal(load_torch_file(path)["w"], [[0, 1], [2, 3]])
    torch_zip(path, torch_pickle(stride=(1, 2)), np.arange(4, dtype=np.float32).tobytes())
    np.testing.assert_array_equal(load_torch_file(path)["w"], [[0, 2], [1, 3]])


@pytest.mark.parametrize(
    "lie",
    [{"size": (20, 20)}, {"offset": 1}, {"offset": -1}, {"stride": (200, 1)}, {"stride": (-2, 1)}, {"count": 400}],
)
def test_torch_tensors_outside_their_storage(tmp_path, lie):
    path = tmp_path / "pytorch_model.bin"
    torch_zip(path, torch_pickle(**lie), np.arange(4, dtype=np.float32).tobytes())
    with pytest.raises(UserError, match="is cut off or damaged"):
        load_torch_file(path)


def test_torch_file_with_code(tmp_path):
    path, trace = tmp_path / "pytorch_model.bin", tmp_path / "was_here"
    torch_zip(path, pickle.dumps({"w": Malicious(trace)}))
    with pytest.raises(UserError, match="refused: .*posix.mkdir"):
        load_torch_file(path)
    path.write_bytes(pickle.dumps(Malicious(trace)))  # as the old format
    with pytest.raises(UserError, match="refused: .*posix.mkdir"):
        load_torch_file(path)
    assert not trace.exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"plain text", pickle.dumps(3)])
def test_damaged_torch_files(tmp_path, content):
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(content)
    with pytest.raises(UserError, match="is cut off or damaged"):
        load_torch_file(path)
