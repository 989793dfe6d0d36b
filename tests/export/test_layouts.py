"""Model repositories of other servers: valid by their own schemas, and their graphs are asked by the names in them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime
import pytest
from google.protobuf import descriptor_pool

from nlpctl.cli.app import main
from nlpctl.errors import UserError
from nlpctl.export.export import export
from nlpctl.export.layouts import LAYOUTS, layout, paddle_serving, triton
from nlpctl.export.layouts.listing import changed_since, is_listed
from nlpctl.export.request import ExportRequest
from nlpctl.models.export_folder import ExportManifest, Graph, TensorSpec
from nlpctl.models.find import find_trained_model

ROWS = TensorSpec("input_ids", "int64", (None, None))
NUMPY = {"TYPE_INT64": np.int64, "TYPE_INT32": np.int32, "TYPE_FP32": np.float32}


def manifest(*outputs: TensorSpec, graphs: tuple[Graph, ...] = ()) -> ExportManifest:
    return ExportManifest("sequence_classification", (ROWS,), outputs, 24, graphs, 9, "model", {})


@pytest.fixture(scope="session")
def schema() -> ModuleType:
    """Triton's own model_config.proto, as its client has it compiled.

    In a pool of its own: VisualDL has an older one of the same name, and protobuf refuses the second.
    """
    found = importlib.util.find_spec("tritonclient")
    if found is None:
        pytest.skip("needs tritonclient (pip install '.[dev]')")
    file = Path(found.submodule_search_locations[0], "grpc", "model_config_pb2.py")
    spec = importlib.util.spec_from_file_location("model_config_pb2", file)  # its package asks for grpcio
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        pool = descriptor_pool.DescriptorPool()
        patch.setattr(descriptor_pool, "Default", lambda: pool)
        spec.loader.exec_module(module)
    return module


def parsed(schema: ModuleType, text: str) -> Any:
    from google.protobuf import text_format

    return text_format.Parse(text, schema.ModelConfig())


@pytest.fixture(scope="module")
def exported(classifier, tmp_path_factory):
    """An export of the classifier with graphs of all formats."""
    folder = tmp_path_factory.mktemp("exported") / "made"
    wanted = ExportRequest(("paddle", "onnx"), ("fp32", "int8-dynamic"))
    export(classifier, find_trained_model(classifier), wanted, output=folder)
    return folder


def test_triton_loads_and_answers(classifier, exported, schema, tmp_path):
    """Each model as Triton's onnxruntime backend takes it: file, names, types and sizes."""
    request = ExportRequest(("onnx",))
    made = export(classifier, str(exported), request, output=tmp_path / "models", layout="triton").folder
    models = sorted(path.name for path in made.iterdir() if path.is_dir())
    assert len(models) == 2 and models[1] == f"{models[0]}_int8_dynamic"
    for name in models:
        config = parsed(schema, (made / name / "config.pbtxt").read_text())
        assert (config.name, config.backend, config.platform) == (name, "onnxruntime", "")
        assert config.max_batch_size == 64 and config.HasField("dynamic_batching")
        session = onnxruntime.InferenceSession(str(made / name / "1" / config.default_model_filename))
        assert [one.name for one in config.input] == [one.name for one in session.get_inputs()]
        feeds = {one.name: np.ones((3, 7), NUMPY[schema.DataType.Name(one.data_type)]) for one in config.input}
        assert all(list(one.dims) == [-1] for one in config.input)
        outputs = session.run([one.name for one in config.output], feeds)
        (output,) = config.output
        assert outputs[0].dtype == NUMPY[schema.DataType.Name(output.data_type)]
        assert [3, *output.dims] == list(outputs[0].shape) == [3, 3]
        assert (made / name / output.label_filename).read_text().split() == ["x", "y", "z"]
        assert {key: value.string_value for key, value in config.parameters.items()} == {
            "nlpctl_task": "sequence_classification",
            "nlpctl_max_seq_length": "24",
        }
        own = made / name / "nlpctl"
        assert json.loads((own / "labels.json").read_text())["labels"] == ["x", "y", "z"]
        assert (own / "vocab.txt").is_file() and not list(own.glob("*.onnx")) and not (own / "export.json").exists()
    assert is_listed(made, "triton") and not is_listed(made, "transformers") and changed_since(made) is None


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("triton", "run/config.pbtxt"),
        ("triton", "run/2/model.onnx"),
        ("triton", "run/nlpctl/client.py"),
        ("paddle-serving", "serving_server/serving_server_conf.prototxt"),
        ("transformers", "onnx/model.onnx"),
        ("transformers", "README.md"),
        ("transformers", "tokenizer_config.json"),
    ],
)
def test_what_was_added_or_changed_is_not_lost(classifier, tmp_path, name, changed):
    source, formats = find_trained_model(classifier), ("paddle", "onnx")

    def write() -> Path:
        request = ExportRequest(formats, rows=4)
        return export(classifier, source, request, output=tmp_path / "made", layout=name, overwrite=True).folder

    made = write()
    assert write() == made  # as it was written it is replaced
    (made / changed).parent.mkdir(exist_ok=True)
    (made / changed).write_text("ours")
    with pytest.raises(UserError, match=f"is not replaced: {changed} was added or changed since"):
        write()


@pytest.mark.parametrize(
    ("name", "request_", "told"),
    [
        ("paddle-serving", ExportRequest(("paddle", "onnx"), ("int8",)), "paddle-serving takes no graph of int8"),
        ("triton", ExportRequest(("paddle",)), "triton takes onnx graphs"),
    ],
)
def test_graphs_that_a_layout_does_not_hold(classifier, exported, tmp_path, name, request_, told):
    for source in (find_trained_model(classifier), str(exported)):
        with pytest.raises(UserError, match=told):
            export(classifier, source, request_, output=tmp_path / "made", layout=name)


@pytest.mark.parametrize("flags", [["--rows", "5"], ["--set", "data.max_seq_length=5"], ["--data", "a.tsv"]])
def test_an_export_is_arranged_as_it_is(exported, tmp_path, capsys, flags):
    words = ["export", str(exported), "--layout", "triton", "-o", str(tmp_path / "made"), *flags]
    assert main(words) == 2
    assert "an export is arranged as it is, not made or compared again" in capsys.readouterr().err


def test_paddle_serving_is_fed_and_fetched_by_name(classifier, exported, tmp_path):
    output = tmp_path / "served"
    made = export(classifier, str(exported), ExportRequest(), output=output, layout="paddle-serving").folder
    server, client = made / "serving_server", made / "serving_client"
    text = (server / "serving_server_conf.prototxt").read_text()
    assert text == (client / "serving_client_conf.prototxt").read_text()
    stream = (server / "serving_server_conf.stream.prototxt").read_bytes()
    assert stream == (client / "serving_client_conf.stream.prototxt").read_bytes()
    from google.protobuf import text_format

    config = paddle_serving._CLASSES["GeneralModelConfig"]()
    assert text_format.Parse(text, config).SerializeToString() == stream

    import paddle.inference

    predictor = paddle.inference.create_predictor(
        paddle.inference.Config(str(server / "model.pdmodel"), str(server / "model.pdiparams"))
    )
    assert [one.name for one in config.feed_var] == predictor.get_input_names()
    assert [one.name for one in config.fetch_var] == predictor.get_output_names()
    assert [one.alias_name for one in config.fetch_var] == ["logits"]
    assert {one.feed_type for one in config.feed_var} == {0} and {one.fetch_type for one in config.fetch_var} == {1}
    assert (made / "nlpctl" / "task.json").is_file()


def test_the_serialized_form_is_that_of_paddle_serving_0_9():
    """The wire format, byte by byte: field numbers and types of the released GeneralModelConfig."""
    made = manifest(TensorSpec("logits", "float32", (None, 2)))
    config = paddle_serving.general_model_config(made, ("linear_1.tmp_1",))
    feed = b"\x0a\x09input_ids" + b"\x12\x09input_ids" + b"\x18\x00" + b"\x20\x00"
    fetch = b"\x0a\x0elinear_1.tmp_1" + b"\x12\x06logits" + b"\x18\x00" + b"\x20\x01" + b"\x28\x02"
    expected = b"\x0a" + bytes([len(feed)]) + feed + b"\x12" + bytes([len(fetch)]) + fetch
    assert config.SerializeToString() == expected


def test_outputs_without_rows_rule_out_batching(schema):
    """The transitions of a CRF are the same for every batch."""
    tags = TensorSpec("emissions", "float32", (None, None, 5))
    made = manifest(tags, TensorSpec("transitions", "float32", (7, 7)))
    config = parsed(schema, triton.as_text(triton.model_config(made, "tagger", 5)))
    assert config.max_batch_size == 0 and not config.HasField("dynamic_batching")
    assert [list(one.dims) for one in (*config.input, *config.output)] == [[-1, -1], [-1, -1, 5], [7, 7]]
    assert not any(one.label_filename for one in config.output)
    alone = parsed(schema, triton.as_text(triton.model_config(manifest(tags), "tagger", 5)))
    assert alone.max_batch_size == 64 and list(alone.output[0].dims) == [-1, 5]


def test_a_field_that_the_schema_does_not_have_would_be_found(schema):
    from google.protobuf import text_format

    with pytest.raises(text_format.ParseError):
        parsed(schema, 'name: "m"\nbackends: "onnxruntime"\n')


@pytest.mark.parametrize("name", LAYOUTS)
def test_an_export_without_the_graph_is_refused(name, tmp_path):
    other = {"triton": "paddle", "paddle-serving": "onnx"}[name]
    graph = Graph(other, "fp32", ("model.graph",))
    with pytest.raises(UserError, match="this export has none") as refused:
        layout(name).write_repository(tmp_path, manifest(graphs=(graph,)), tmp_path, "m")
    assert "--format" in refused.value.problems[0].hint


def test_a_label_of_two_lines_would_give_other_classes_its_names(tmp_path):
    (tmp_path / "labels.json").write_text(json.dumps({"labels": ["a", "b\nc", "d"]}))
    with pytest.raises(UserError, match="'b.nc' has a line break"):
        triton.write_repository(tmp_path, manifest(graphs=(Graph("onnx", "fp32", ("m.onnx",)),)), tmp_path, "m")


