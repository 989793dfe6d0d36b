"""A model repository of Triton: https://docs.nvidia.com/deeplearning/triton-inference-server (model repository,
model configuration).

    REPOSITORY/NAME/config.pbtxt         ModelConfig of Triton's model_config.proto
    REPOSITORY/NAME/1/model.onnx         for the backend onnxruntime
    REPOSITORY/NAME/labels.txt           if an output has one value per label
    REPOSITORY/NAME/nlpctl/              tokenizer, labels, task: for clients; Triton ignores such folders
    REPOSITORY/NAME_int8_dynamic/ ...    the same for each further graph
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from nlpctl.errors import UserError
from nlpctl.export.layouts.own_files import copy_own_files
from nlpctl.formats.messages import Field, as_text, message_types
from nlpctl.models.export_folder import ExportManifest, Graph, TensorSpec
from nlpctl.models.folder import read_labels

FORMAT = "onnx"
CONFIG, LABELS, GRAPH = "config.pbtxt", "labels.txt", "model.onnx"
LARGEST_BATCH = 64
_VERSION = "1"

_TYPES = {"bool": "TYPE_BOOL", "int32": "TYPE_INT32", "int64": "TYPE_INT64", "float16": "TYPE_FP16"}
_TYPES |= {"float32": "TYPE_FP32"}
_NUMBERS = {"TYPE_BOOL": 1, "TYPE_INT32": 8, "TYPE_INT64": 9, "TYPE_FP16": 10, "TYPE_FP32": 11}

# The used fields, as in protobuf/model_config.proto of triton-inference-server/common.
_TENSOR = (Field("name", 1, "string"), Field("data_type", 2, "DataType"))
_MESSAGES = {
    "ModelInput": (*_TENSOR, Field("dims", 4, "int64", repeated=True)),
    "ModelOutput": (*_TENSOR, Field("dims", 3, "int64", repeated=True), Field("label_filename", 4, "string")),
    "ModelDynamicBatching": (Field("preferred_batch_size", 1, "int32", repeated=True),),
    "ModelParameter": (Field("string_value", 1, "string"),),
    "ParametersEntry": (Field("key", 1, "string"), Field("value", 2, "ModelParameter")),
    "ModelConfig": (
        Field("name", 1, "string"),
        Field("backend", 17, "string"),
        Field("max_batch_size", 4, "int32"),
        Field("input", 5, "ModelInput", repeated=True),
        Field("output", 6, "ModelOutput", repeated=True),
        Field("dynamic_batching", 11, "ModelDynamicBatching"),
        Field("default_model_filename", 8, "string"),
        Field("parameters", 14, "ParametersEntry", repeated=True),
    ),
}
_CLASSES = message_types("inference", _MESSAGES, {"DataType": _NUMBERS})


def write_repository(export: Path, manifest: ExportManifest, repository: Path, name: str) -> None:
    """Write one model per ONNX graph of the export. UserError if it has none."""
    graphs = [graph for graph in manifest.graphs if graph.format == FORMAT]
    if not graphs:
        hint = "export the model with @[formats=onnx], or paddle,onnx"
        raise UserError("Triton runs ONNX graphs, and this export has none", str(export), hint)
    labels, _ = read_labels(export)
    broken = next((label for label in labels if len(label.splitlines()) > 1), None)
    if broken is not None:
        hint = "labels stand on a line each there: train with labels without line breaks"
        raise UserError(f"the label {broken!r} has a line break, so {LABELS} cannot hold it", str(export), hint)
    for graph in graphs:
        model = repository / _model_name(name, graph)
        (model / _VERSION).mkdir(parents=True)
        shutil.copyfile(export / graph.files[0], model / _VERSION / GRAPH)
        config = model_config(manifest, model.name, len(labels))
        if any(output.label_filename for output in config.output):
            (model / LABELS).write_text("".join(f"{label}\n" for label in labels), encoding="utf-8")
        (model / CONFIG).write_text(as_text(config), encoding="utf-8")
        copy_own_files(export, manifest, model)


def holds(precision: str) -> bool:
    """Each ONNX graph becomes a model of the repository."""
    return True


def model_config(manifest: ExportManifest, name: str, labels: int) -> Any:
    """The ModelConfig of a graph of the export."""
    tensors = (*manifest.inputs, *manifest.outputs)
    # A tensor without the rows of the batch in front, such as the transitions of a CRF, rules out batching by Triton.
    batched = all(tensor.shape and tensor.shape[0] is None for tensor in tensors)
    config = _CLASSES["ModelConfig"](
        name=name,
        backend="onnxruntime",
        max_batch_size=LARGEST_BATCH if batched else 0,
        default_model_filename=GRAPH,
    )
    for spec in manifest.inputs:
        config.input.add(name=spec.name, data_type=_type(spec), dims=_dims(spec, batched))
    for spec in manifest.outputs:
        output = config.output.add(name=spec.name, data_type=_type(spec), dims=_dims(spec, batched))
        if labels and batched and list(output.dims) == [labels]:
            output.label_filename = LABELS
    if batched:
        config.dynamic_batching.SetInParent()  # Triton batches only requests of equal length
    for key, value in (("nlpctl_task", manifest.task), ("nlpctl_max_seq_length", str(manifest.max_seq_length))):
        config.parameters.add(key=key).value.string_value = value
    return config


def _model_name(name: str, graph: Graph) -> str:
    parts = (graph.precision if graph.precision != "fp32" else None, graph.method)
    return "_".join((name, *(part for part in parts if part is not None)))


def _type(spec: TensorSpec) -> int:
    return _NUMBERS[_TYPES[spec.dtype]]


def _dims(spec: TensorSpec, batched: bool) -> list[int]:
    return [-1 if size is None else size for size in spec.shape[1 if batched else 0 :]]
