"""Every engine answers as the network does, whatever the shape of the batch, and refuses graphs of other models."""

from __future__ import annotations

import dataclasses
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import paddle
import pytest

from nlpctl.engines import paddle_inference
from nlpctl.engines.choice import all_choices, open_choice, runnable_here
from nlpctl.engines.engine import DygraphPredictor
from nlpctl.engines.onnx_runtime import open_session
from nlpctl.engines.paddle_inference import collect_shapes
from nlpctl.errors import RunFailed, UserError
from nlpctl.formats.program import read_program
from nlpctl.graphs.onnx import write_onnx_graph
from nlpctl.graphs.program_edit import operator, read_parameters
from nlpctl.graphs.ptq import simulate
from nlpctl.graphs.to_static import write_paddle_graph
from nlpctl.models.export_folder import ExportManifest, Graph, TensorSpec
from nlpctl.runtime.process import ProcessSetup

SETUP = ProcessSetup("cpu", threads=1, rank=0, world_size=1)
INPUTS = (TensorSpec("input_ids", "int64", (None, None)), TensorSpec("token_type_ids", "int64", (None, None)))
TOLERANCE = {"fp32": 1e-5, "bf16": 0.05}  # of outputs between -1 and 1


class Network(paddle.nn.Layer):
    """Two outputs: one per row, one per token."""

    def __init__(self):
        super().__init__()
        self.words, self.types = paddle.nn.Embedding(50, 32), paddle.nn.Embedding(2, 32)
        self.inner, self.outer = paddle.nn.Linear(32, 64), paddle.nn.Linear(64, 3)

    def forward(self, input_ids, token_type_ids):
        inner = paddle.nn.functional.relu(self.inner(self.words(input_ids) + self.types(token_type_ids)))
        return paddle.tanh(self.outer(inner.mean(1))), paddle.tanh(self.outer(inner))


def export(folder: Path, seed: int) -> tuple[Network, ExportManifest]:
    """A network and its graphs in `folder`; networks of other seeds have the same parameter names."""
    folder.mkdir()
    with paddle.utils.unique_name.guard():
        paddle.seed(seed)
        network = Network()
        outputs = write_paddle_graph(network, batch(2, 3), ("row", "tokens"), folder / "model")
    write_onnx_graph(folder / "model", folder / "model.onnx", 0)
    graphs = (Graph("paddle", "fp32", ("model.pdmodel", "model.pdiparams")), Graph("onnx", "fp32", ("model.onnx",)))
    return network, ExportManifest("sequence_classification", INPUTS, outputs, 64, graphs, 0, "", {})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(folder, network, manifest)"""
    folder = tmp_path_factory.mktemp("engines") / "export"
    return folder, *export(folder, seed=1)


def batch(rows: int, length: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(rows * 100 + length)
    return {
        "input_ids": draw.integers(0, 50, (rows, length)),
        "token_type_ids": draw.integers(0, 2, (rows, length)),
    }


def opened(made, name):
    folder, _, manifest = made
    found = {choice.name: choice for choice in runnable_here(manifest, SETUP)}
    if name not in found:
        pytest.skip(f"this processor does not compute in {name}")
    return open_choice(folder, manifest, found[name], SETUP, 1)


def assert_alike(predictor, network, given):
    outputs, expected = predictor.outputs(given), DygraphPredictor(network).outputs(given)
    assert len(outputs) == len(expected)
    for one, other in zip(outputs, expected, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, atol=TOLERANCE[predictor.precision])


@pytest.mark.parametrize("name", ["paddle fp32", "paddle bf16", "onnxruntime fp32"])
def test_answers_are_those_of_the_network(made, name, capfd):
    predictor = opened(made, name)
    assert f"{predictor.engine} {predictor.precision}" == name
    for rows, length in [(1, 1), (3, 7), (32, 64), (1, 2), (3, 7)]:
        assert_alike(predictor, made[1], batch(rows, length))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["paddle fp32", "onnxruntime fp32"])
def test_inputs_are_fed_by_name(made, name):
    given = batch(2, 5)
    assert_alike(opened(made, name), made[1], dict(reversed(given.items())))


@pytest.mark.parametrize("name", ["paddle fp32", "onnxruntime fp32"])
def test_outputs_are_not_used_again(made, name):
    """They are read in another thread while the next batch runs."""
    predictor = opened(made, name)
    first = predictor.outputs(batch(2, 5))
    kept = [output.copy() for output in first]
    given = batch(2, 5)
    predictor.outputs({**given, "input_ids": 49 - given["input_ids"]})
    for one, other in zip(first, kept, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", ["paddle fp32", "onnxruntime fp32"])
def test_what_the_engine_cannot_compute_is_told(made, name):
    given = batch(2, 5)
    with pytest.raises(RunFailed, match="failed in fp32: .*") as error:
        opened(made, name).outputs({**given, "input_ids": given["input_ids"] + 1000})  # no such words
    assert "--engine" in error.value.problems[0].hint and "\n" not in error.value.problems[0].message


@pytest.mark.parametrize("name", ["dygraph", "paddle fp32", "onnxruntime fp32"])
def test_threads_that_ask_at_once_get_their_own_answers(made, monkeypatch, name):
    """Also while the Paddle engine changes to a clone."""
    monkeypatch.setattr(paddle_inference, "SHAPES_KEPT", 5)
    predictor = DygraphPredictor(made[1]) if name == "dygraph" else opened(made, name)
    given = [batch(1 + i % 5, 3 + i % 7) for i in range(35)]
    expected = [predictor.outputs(each) for each in given]
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(predictor.outputs, given * 20))
    for one, other in zip(found, expected * 20, strict=True):
        for part, wanted in zip(one, other, strict=True):
            np.testing.assert_allclose(part, wanted, atol=1e-6)


def test_after_many_shapes_a_fresh_predictor_takes_over(made, monkeypatch):
    monkeypatch.setattr(paddle_inference, "SHAPES_KEPT", 3)
    predictor = opened(made, "paddle fp32")
    used = []
    for length in (5, 2, 3, 2, 4, 1, 3):
        assert_alike(predictor, made[1], batch(2, length))
        used.append(predictor._predictor)
    assert used[0] is used[3] and used[3] is not used[4] and used[4] is used[6]


def test_for_the_largest_batch_so_far_a_fresh_predictor_takes_over(made):
    """After smaller ones Paddle would take several times the memory: upstream/growing_batches.py."""
    predictor = opened(made, "paddle fp32")
    used = []
    for rows, length in ((2, 4), (1, 4), (2, 5), (2, 4), (2, 5)):
        assert_alike(predictor, made[1], batch(rows, length))
        used.append(predictor._predictor)
    assert used[0] is used[1] and used[1] is not used[2] and used[2] is used[3] is used[4]


class Confused:
    """A predictor of Paddle that fails as one that took the preparations of another shape."""

    def __init__(self, predictor, message):
        self._predictor, self._message = predictor, message

    def __getattr__(self, name):
        return getattr(self._predictor, name)

    def run(self):
        raise RuntimeError(self._message)


def test_a_shape_that_meets_the_preparations_of_another_is_computed_anew(made):
    predictor = opened(made, "paddle fp32")
    assert_alike(predictor, made[1], batch(2, 3))
    predictor._predictor = Confused(predictor._predictor, "could not reshape a memory descriptor")
    assert_alike(predictor, made[1], batch(3, 5))
    assert not isinstance(predictor._predictor, Confused)
    assert predictor._shapes == {tuple(array.shape for array in batch(3, 5).values())}


def test_other_failures_are_told(made):
    predictor = opened(made, "paddle fp32")
    predictor._predictor = Confused(predictor._predictor, "out of memory")
    with pytest.raises(RunFailed, match="out of memory"):
        predictor.outputs(batch(3, 5))
    assert isinstance(predictor._predictor, Confused)


def test_two_exports_with_the_same_names_do_not_mix(made, tmp_path):
    """oneDNN's preparations lie in one place for the whole process."""
    network, manifest = export(tmp_path / "other", seed=2)
    one, other = opened(made, "paddle fp32"), opened((tmp_path / "other", network, manifest), "paddle fp32")
    for _ in range(2):
        assert_alike(one, made[1], batch(3, 7))
        assert_alike(other, network, batch(3, 7))


def test_the_files_may_go_once_they_are_loaded(tmp_path):
    network, manifest = export(tmp_path / "gone", seed=3)
    predictors = [opened((tmp_path / "gone", network, manifest), name) for name in ("paddle fp32", "onnxruntime fp32")]
    for file in (tmp_path / "gone").iterdir():
        file.unlink()
    for predictor in predictors:
        assert_alike(predictor, network, batch(2, 3))


def test_shapes_are_collected_for_tensorrt(made, tmp_path):
    folder, _, manifest = made
    shapes = tmp_path / "kept" / "shapes.pbtxt"
    collect_shapes(shapes, folder, manifest.graphs[0], SETUP, [batch(1, 2), batch(4, 9)])
    (found,) = re.findall(r'name: "input_ids"\n((?:  \w+_shape: \d+\n)+)', shapes.read_text())
    assert re.findall(r"(min|max)_shape: (\d+)", found) == [("min", "1"), ("min", "2"), ("max", "4"), ("max", "9")]
    assert [path.name for path in shapes.parent.iterdir()] == ["shapes.pbtxt"]


def refused(folder, manifest, engine):
    choice = next(each for each in all_choices(manifest) if each.name == f"{engine} fp32")
    with pytest.raises(UserError) as error:
        open_choice(folder, manifest, choice, SETUP, 1)
    (problem,) = error.value.problems
    assert problem.where == str(folder / choice.graph.files[0])
    assert "nlpctl export" in problem.hint
    return problem.message


@pytest.mark.parametrize("engine", ["paddle", "onnxruntime"])
def test_a_graph_with_other_inputs_is_refused(made, engine):
    folder, _, manifest = made
    other = dataclasses.replace(manifest, inputs=(INPUTS[0], TensorSpec("mask", "int64", (None, None))))
    message = refused(folder, other, engine)
    assert message == "this graph takes input_ids, token_type_ids, but its export feeds input_ids, mask"


@pytest.mark.parametrize("engine", ["paddle", "onnxruntime"])
def test_a_graph_with_other_outputs_is_refused(made, engine):
    folder, _, manifest = made
    message = refused(folder, dataclasses.replace(manifest, outputs=manifest.outputs[:1]), engine)
    assert message == "this graph has 2 outputs, but its export reads 1"


def test_an_onnx_graph_of_other_types_is_refused(made):
    folder, _, manifest = made
    inputs = (INPUTS[0], dataclasses.replace(INPUTS[1], dtype="float32"))
    message = refused(folder, dataclasses.replace(manifest, inputs=inputs), "onnxruntime")
    assert "takes token_type_ids as tensor(int64), but its export feeds float32" in message


@pytest.mark.parametrize(("engine", "file"), [("paddle", "model.pdmodel"), ("onnxruntime", "model.onnx")])
@pytest.mark.parametrize("content", [b"", b"no graph at all", "half"], ids=["empty", "text", "half"])
def test_what_is_no_graph_is_refused(made, tmp_path, engine, file, content):
    folder, _, manifest = made
    for path in folder.iterdir():
        whole = path.read_bytes()
        (tmp_path / path.name).write_bytes(whole[: len(whole) // 2] if content == "half" else content)
    choice = next(each for each in all_choices(manifest) if each.name == f"{engine} fp32")
    with pytest.raises(UserError) as error:
        open_choice(tmp_path, manifest, choice, SETUP, 1)
    assert str(tmp_path / file) in str(error.value)


def test_cut_weights_are_refused(made, tmp_path):
    folder, _, manifest = made
    (tmp_path / "model.pdmodel").write_bytes((folder / "model.pdmodel").read_bytes())
    (tmp_path / "model.pdiparams").write_bytes((folder / "model.pdiparams").read_bytes()[:1000])
    assert "cannot load this graph: (" in refused(tmp_path, manifest, "paddle")


def test_an_onnx_graph_of_unknown_operators_is_refused(made, tmp_path):
    folder, _, manifest = made
    graph = onnx.load(str(folder / "model.onnx"))
    graph.graph.node[0].op_type = "NobodyKnows"
    onnx.save(graph, str(tmp_path / "model.onnx"))
    assert "NobodyKnows" in refused(tmp_path, manifest, "onnxruntime")


@pytest.mark.parametrize("place", ["among the others", "in a block that nothing runs"])
def test_a_graph_that_writes_a_file_is_refused(made, tmp_path, place):
    folder, _, manifest = made
    for name in ("model.pdmodel", "model.pdiparams"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    desc, _ = read_parameters(tmp_path / "model")
    save = operator(desc.blocks[0], "save", {"X": read_program(tmp_path / "model.pdmodel").fetches[0]}, {})
    save.attrs.add(name="file_path", type=2, s=str(tmp_path / "written"))
    first_fetch = next(index for index, op in enumerate(desc.blocks[0].ops) if op.type == "fetch")
    if place == "among the others":
        desc.blocks[0].ops.insert(first_fetch, save)
    else:
        desc.blocks.add(idx=1, parent_idx=0).ops.append(save)
    (tmp_path / "model.pdmodel").write_bytes(desc.SerializeToString())
    choice = next(each for each in all_choices(manifest) if each.name == "paddle fp32")
    with pytest.raises(UserError, match="this graph has operators that nlpctl does not run: save"):
        open_choice(tmp_path, manifest, choice, SETUP, 1).outputs(batch(1, 3))
    with pytest.raises(UserError, match="this graph has operators that nlpctl does not run: save"):
        simulate(tmp_path / "model", tmp_path / "int8", [batch(1, 3)])
    assert not (tmp_path / "written").exists()


def test_an_onnx_graph_reads_no_file_outside_of_its_folder(tmp_path):
    """ONNX Runtime sees to it, so nlpctl need not."""
    (tmp_path / "secret").write_bytes(b"stolen")
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "link").symlink_to(tmp_path / "secret")
    shape = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.UINT8, [6])
    for place in ("../secret", str(tmp_path / "secret"), "link"):
        tensor = onnx.TensorProto(name="w", data_type=onnx.TensorProto.UINT8, dims=[6], data_location=1)
        tensor.external_data.add(key="location", value=place)
        node = onnx.helper.make_node("Identity", ["w"], ["y"])
        graph = onnx.helper.make_graph([node], "reads", [], [shape], [tensor])
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
        (tmp_path / "export" / "model.onnx").write_bytes(model.SerializeToString())
        with pytest.raises(Exception, match="(?i)external data"):
            open_session(str(tmp_path / "export" / "model.onnx"), 1, SETUP)


def test_onnxruntime_does_not_take_the_processor_for_a_card(made):
    folder, _, manifest = made
    card = ProcessSetup("gpu:0", threads=1, rank=0, world_size=1)
    choice = next(each for each in all_choices(manifest) if each.name == "onnxruntime fp32")
    with pytest.warns(UserWarning, match="CUDAExecutionProvider"), pytest.raises(UserError, match="cannot use gpu:0"):
        open_choice(folder, manifest, choice, card, 1)
