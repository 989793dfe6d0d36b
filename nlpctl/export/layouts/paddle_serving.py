"""The folders of Paddle Serving 0.9, as its `python -m paddle_serving_client.convert` writes them (doc/Save_EN.md).

    serving_server/model.pdmodel model.pdiparams
    serving_server/serving_server_conf.prototxt           GeneralModelConfig of general_model_config.proto, as text
    serving_server/serving_server_conf.stream.prototxt    the same, serialized
    serving_client/serving_client_conf.prototxt ...       the same for clients
    nlpctl/                                               tokenizer, labels, task: for clients
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from nlpctl.errors import UserError
from nlpctl.export.layouts.own_files import copy_own_files
from nlpctl.formats.messages import Field, as_text, message_types
from nlpctl.formats.program import read_program
from nlpctl.models.export_folder import ExportManifest, TensorSpec

FORMAT = "paddle"
SERVER, CLIENT = "serving_server", "serving_client"

_TYPES = {"int64": 0, "float32": 1, "int32": 2, "float16": 5, "bool": 9}  # var_type_conversion of paddle_serving_client

# The used fields, with the numbers of general_model_config.proto in the released paddle-serving-client 0.9.0; on the
# development branch feed_var and fetch_var are 2 and 3. Paddle Serving itself reads the text.
_VARIABLE = (Field("name", 1, "string"), Field("alias_name", 2, "string"), Field("is_lod_tensor", 3, "bool"))
_SHAPE = Field("shape", 5, "int32", repeated=True)
_MESSAGES = {
    "FeedVar": (*_VARIABLE, Field("feed_type", 4, "int32"), _SHAPE),
    "FetchVar": (*_VARIABLE, Field("fetch_type", 4, "int32"), _SHAPE),
    "GeneralModelConfig": (
        Field("feed_var", 1, "FeedVar", repeated=True),
        Field("fetch_var", 2, "FetchVar", repeated=True),
    ),
}
_CLASSES = message_types("baidu.paddle_serving.configure", _MESSAGES)


def write_repository(export: Path, manifest: ExportManifest, repository: Path, name: str) -> None:
    """Write server and client folders of the fp32 graph. `name` is unused: a server has one model.

    UserError if the export has no such graph.
    """
    graph = next((each for each in manifest.graphs if (each.format, each.precision) == (FORMAT, "fp32")), None)
    if graph is None:
        hint = "export the model with @[formats=paddle], or paddle,onnx"
        raise UserError("Paddle Serving runs Paddle's fp32 graph, and this export has none", str(export), hint)
    program, _ = graph.files
    config = general_model_config(manifest, read_program(export / program).fetches)
    for folder in (SERVER, CLIENT):
        (repository / folder).mkdir()
        (repository / folder / f"{folder}_conf.prototxt").write_text(as_text(config), encoding="utf-8")
        (repository / folder / f"{folder}_conf.stream.prototxt").write_bytes(config.SerializeToString())
    for file in graph.files:
        shutil.copyfile(export / file, repository / SERVER / file)
    copy_own_files(export, manifest, repository)


def holds(precision: str) -> bool:
    """Paddle Serving would need settings of its own for others."""
    return precision == "fp32"


def general_model_config(manifest: ExportManifest, fetches: tuple[str, ...]) -> Any:
    """The configuration of inputs and outputs. `fetches`: output names in the graph; clients use those of the
    manifest."""
    config = _CLASSES["GeneralModelConfig"]()
    for spec in manifest.inputs:
        config.feed_var.add(
            name=spec.name,
            alias_name=spec.name,
            is_lod_tensor=False,
            feed_type=_TYPES[spec.dtype],
            shape=_shape(spec),
        )
    for name, spec in zip(fetches, manifest.outputs, strict=True):
        config.fetch_var.add(
            name=name, alias_name=spec.name, is_lod_tensor=False, fetch_type=_TYPES[spec.dtype], shape=_shape(spec)
        )
    return config


def _shape(spec: TensorSpec) -> list[int]:
    """The fixed dimensions; paddle_serving_client.convert leaves out the others."""
    return [size for size in spec.shape if size is not None]
