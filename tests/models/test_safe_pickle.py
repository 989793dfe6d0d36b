import os
import pickle
import zipfile

import numpy as np
import pytest
from torch_files import Call, Global, Storage, pickled, torch_legacy, torch_pickle, torch_zip

from nlpctl.errors import UserError
from nlpctl.formats import safe_pickle
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


def test_torch_file_written_by_hand(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    torch_zip(path, torch_pickle(), np.arange(4, dtype=np.float32).tobytes())
    np.testing.assert_array_equal(load_torch_file(path)["w"], [[0, 1], [2, 3]])
    torch_zip(path, torch_pickle(stride=(1, 2)), np.arange(4, dtype=np.float32).tobytes())
    np.testing.assert_array_equal(load_torch_file(path)["w"], [[0, 2], [1, 3]])


@pytest.mark.parametrize(("order", "kind"), [(b"big", ">f4"), (b"little", "<f4")])
def test_torch_file_of_a_machine_with_another_byte_order(tmp_path, order, kind):
    path = tmp_path / "pytorch_model.bin"
    torch_zip(path, torch_pickle(), np.arange(4, dtype=kind).tobytes(), byteorder=order)
    read = load_torch_file(path)["w"]
    np.testing.assert_array_equal(read, [[0, 1], [2, 3]])
    assert read.dtype.isnative
    torch_zip(path, torch_pickle(), np.arange(4, dtype=kind).tobytes(), byteorder=b"middle")
    with pytest.raises(UserError, match="is cut off or damaged .byte order b'middle' is not known"):
        load_torch_file(path)


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


def test_torch_file_of_the_older_format(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    numbers = np.arange(4, dtype=np.float32)
    torch_legacy(path, torch_pickle(legacy=True), numbers)
    np.testing.assert_array_equal(load_torch_file(path)["w"], [[0, 1], [2, 3]])


# -- bombs: small files that would take gigabytes or minutes ---------------------------------------


def refused(load, path, message="is cut off or damaged .*(claim|needs more bytes|of its size holds|has more)"):
    with pytest.raises(UserError, match=message) as caught:
        load(path)
    # Memory that ran out would be a refusal too, of the machine instead of the file.
    assert not isinstance(caught.value.__cause__, MemoryError)


def test_one_stored_number_as_134_million(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    torch_zip(path, torch_pickle(size=(1 << 14, 1 << 13), stride=(0, 0), count=1), bytes(4))
    refused(load_torch_file, path)


def test_a_torch_zip_of_zeros(tmp_path):
    """80 MB in 80 kB, as one storage; and in a packing that zipfile cannot bound."""
    path = tmp_path / "pytorch_model.bin"
    count = 20 << 20
    torch_zip(path, torch_pickle(size=(count,), stride=(1,), count=count), bytes(4 * count), zipfile.ZIP_DEFLATED)
    refused(load_torch_file, path)
    torch_zip(path, torch_pickle(), bytes(16), zipfile.ZIP_LZMA)
    refused(load_torch_file, path, "packed in another way than deflate")


def test_a_storage_of_the_older_format_that_is_not_there(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    count = 400_000_000
    torch_legacy(path, torch_pickle(size=(1,), stride=(1,), count=count, legacy=True), np.zeros(1, np.float32))
    refused(load_torch_file, path)
    torch_legacy(path, torch_pickle(legacy=True), np.zeros(1, np.float32))  # one number for four
    refused(load_torch_file, path, "a storage of 1 numbers where 4 belong")
    torch_legacy(path, torch_pickle(legacy=True), np.zeros(4, np.float32), keys=())
    refused(load_torch_file, path, "lacks a storage")


def test_one_storage_as_many_parameters(tmp_path):
    """Tied weights are two or three views of one storage, not a thousand."""
    path = tmp_path / "pytorch_model.bin"
    storage = Storage(("storage", Global("torch", "FloatStorage"), "0", "cpu", 10_000))
    tensor = Call(Global("torch._utils", "_rebuild_tensor_v2"), (storage, 0, (10_000,), (1,), False, {}))
    torch_zip(path, pickled({str(i): tensor for i in range(3)}), bytes(40_000))
    assert load_torch_file(path).keys() == {"0", "1", "2"}
    torch_zip(path, pickled({str(i): tensor for i in range(1000)}), bytes(40_000))
    refused(load_torch_file, path)


def test_dicts_that_are_wide_and_shared(tmp_path):
    """27 kB: three dicts of some thousand entries each, and 10**9 ways through them."""
    path = tmp_path / "a.pdopt"
    value: object = 1
    for _ in range(3):
        value = {i: value for i in range(1000)}
    path.write_bytes(pickle.dumps({"a": value}))
    assert path.stat().st_size < 30_000
    refused(load_state, path)


def test_keys_whose_hash_takes_for_ever(tmp_path):
    path = tmp_path / "a.pdparams"
    key: tuple = ()
    for _ in range(60):
        key = (key, key)
    value = pickle.dumps(key)
    path.write_bytes(value[:2] + b"}" + value[2:-1] + b"K\x01s.")
    refused(load_pdparams, path, "a key that is neither text nor a number")


def test_calls_that_copy_again_and_again(tmp_path):
    """One text of 1 MB that is encoded ten thousand times."""
    path = tmp_path / "a.pdparams"
    text = b"X" + (1 << 20).to_bytes(4, "little") + b"a" * (1 << 20)
    call = b"c_codecs\nencode\nh\x01X\x06\x00\x00\x00latin1\x86Ra"
    path.write_bytes(b"\x80\x02]" + text + b"q\x01a" + call * 10_000 + b".")
    refused(load_pdparams, path)


def test_a_buffer_that_is_a_number(tmp_path):
    """bytes(10**10) would be so many zeros."""
    path = tmp_path / "a.pdparams"
    number = b"\x8a\x08" + (10**10).to_bytes(8, "little")
    dtype = b"cnumpy\ndtype\nX\x02\x00\x00\x00u1\x85R"
    call = b"cnumpy.core.numeric\n_frombuffer\n(" + number + dtype + number + b"\x85X\x01\x00\x00\x00CtR"
    path.write_bytes(b"\x80\x02}X\x01\x00\x00\x00w" + call + b"s.")
    refused(load_pdparams, path, "a int where")


def test_more_entries_than_any_weights_have(tmp_path, monkeypatch):
    monkeypatch.setattr(safe_pickle, "MOST_STEPS", 10_000)
    path = tmp_path / "a.pdparams"
    path.write_bytes(b"\x80\x02](" + b"}" * 20_000 + b"e.")
    refused(load_pdparams, path)


def test_an_empty_array_of_a_million_million_rows(tmp_path):
    path = tmp_path / "a.pdparams"
    honest = pickle.dumps({"w": np.zeros((0, 7), np.float32)}, protocol=2)
    path.write_bytes(honest.replace(b"K\x00K\x07\x86", b"\x8a\x08" + (10**13).to_bytes(8, "little") + b"K\x00\x86"))
    refused(load_pdparams, path)


@pytest.mark.parametrize("load", [load_pdparams, load_state, load_torch_file])
def test_weights_that_are_a_pipe(tmp_path, load):
    os.mkfifo(tmp_path / "weights")
    refused(load, tmp_path / "weights", "it is a pipe or a device, not a file")
