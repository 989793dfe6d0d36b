"""The export folder: graphs that run without their network's code, and all files needed to use them.

    model.pdmodel model.pdiparams        a graph for Paddle Inference
    model.onnx                           a graph for ONNX Runtime
    model.fp16.onnx                      the same in fp16, for cards
    model.int8.onnx ...                  the same, quantised
    config.json vocab.txt ...            the network's config and the tokenizer
    labels.json task.json ...            as in a model folder, calibration.json too
    export.json                          what is in it: inputs in feeding order, graphs, versions, checksums
    report.json report.md                how far the graphs are from the network they were made of

Imports neither Paddle nor NumPy, so that a damaged folder is reported before they load.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from nlpctl.checksums import check_sums, sums_in
from nlpctl.errors import UserError
from nlpctl.files import read_json, write_json_atomic
from nlpctl.layout import EXPORT_MANIFEST, REPORTS
from nlpctl.models.engine_speeds import EngineSpeeds
from nlpctl.models.model_manifest import is_part
from nlpctl.outputs import refuse_foreign

FORMAT = 1
POINT = 0.01  # points per unit of a score: accuracy 0.88 is 88 points
_AGAIN = "copy the folder again, or make it again with `nlpctl export`"

EXPORT_AGAIN = "export the model again: nlpctl export"

GraphFormat = Literal["paddle", "onnx"]


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of a graph. A size of None is dynamic."""

    name: str
    dtype: str  # "int64", "float32"
    shape: tuple[int | None, ...]


@dataclass(frozen=True)
class Check:
    """The comparison of a graph with the network at export, in one engine and precision.

    `agreement`: share of the rows decided as the network decided them. `difference`: the largest absolute one of any
    output; None if there was none to compare with, as for a student that reads text otherwise.
    """

    engine: str  # "paddle", "onnxruntime"
    precision: str  # "fp32", "bf16", "fp16", "int8"
    difference: float | None
    agreement: float


@dataclass(frozen=True)
class Graph:
    """One graph file set.

    `method`: how it was changed ("dynamic", "static", "ptq", "qat", "embeddings", "ptq+embeddings"); None: as exported.
    Format, precision and method together are unique within an export.
    """

    format: GraphFormat
    precision: Literal["fp32", "fp16", "int8"]
    files: tuple[str, ...]
    method: str | None = None
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True)
class Chosen:
    """The way to run an export that was chosen by its score and speed (`nlpctl compress`)."""

    engine: str
    precision: str


def way_name(engine: str, precision: str, method: str | None) -> str:
    """What a graph run by an engine is called: "onnxruntime int8 (dynamic)"; `method` as in Graph."""
    return f"{engine} {precision}" + ("" if method is None else f" ({method})")


def points_lost(score: float, reference: float, *, falling: bool) -> float:
    """By how many points `score` is worse than `reference`; negative if it is better. `falling`: less is better."""
    return (score - reference if falling else reference - score) / POINT


@dataclass(frozen=True)
class DevScores:
    """The scores of lower precisions on `rows` spread over dev, by name of the choice (engines/choice.py), and that
    of fp32. `falling`: less is better."""

    metric: str
    rows: int
    falling: bool
    fp32: float
    scores: Mapping[str, float]

    def drop(self, name: str) -> float | None:
        """By how many points `name` is worse than fp32; negative if it is better; None if it was not scored."""
        score = self.scores.get(name)
        if score is None:
            return None
        return round(points_lost(score, self.fp32, falling=self.falling), 6)


@dataclass(frozen=True)
class ExportManifest:
    """export.json. `source`: the model folder it was made from, for people, and `weights`: the SHA-256 of what it held
    then, if it was listed. `rows`: how many rows were compared.

    `chosen`: what "auto" takes where the machine can; None leaves it to what is fastest by `speeds`, which are of the
    machine that exported it; None: nothing was timed. `dev`: None: there was no labelled dev data.
    """

    task: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    max_seq_length: int
    graphs: tuple[Graph, ...]
    rows: int
    source: str
    versions: Mapping[str, str]
    chosen: Chosen | None = None
    speeds: EngineSpeeds | None = None
    dev: DevScores | None = None
    weights: str | None = None


def write_manifest(folder: Path, manifest: ExportManifest, unlisted: Collection[str] = ()) -> None:
    """Write export.json with the checksums of all other files of `folder` but `unlisted`; write these files first."""
    # The card and reports are left out: people may edit or delete them.
    sums = sums_in(folder, (path.name for path in folder.iterdir() if _counts(path) and path.name not in unlisted))
    write_json_atomic(folder / EXPORT_MANIFEST, {"format": FORMAT, **asdict(manifest), "sha256": sums})


def read_manifest(folder: Path) -> ExportManifest:
    """Read export.json and compare every file with its checksum.

    UserError: a file is missing or altered, export.json is damaged, or from a newer nlpctl.
    """
    manifest, sums = _read(folder)
    check_sums(folder, sums, "export", EXPORT_MANIFEST, _AGAIN)
    return manifest


def read_checked_manifest(folder: Path) -> ExportManifest:
    """Read export.json of a folder whose files this process has written, or compared with their checksums before.

    Hashing takes about a second per GB, which a command pays once.
    """
    return _read(folder)[0]


def refuse_foreign_files(folder: Path) -> None:
    """UserError if the export, which is to be replaced, holds files that it does not list. A damaged one passes."""
    try:
        listed = _read(folder)[1]
    except UserError:
        return
    refuse_foreign(folder, (*listed, EXPORT_MANIFEST, *REPORTS))


def _read(folder: Path) -> tuple[ExportManifest, dict[str, str]]:
    """export.json and the checksums in it. UserError if it is damaged, or from a newer nlpctl."""
    file = folder / EXPORT_MANIFEST
    content = read_json(file)
    if content.get("format") != FORMAT:
        message = f"has format {content.get('format')!r}; this version of nlpctl reads format {FORMAT}"
        raise UserError(message, where=str(file), hint="update nlpctl, or export the model again")
    try:
        manifest = _parse(content)
        # Older versions listed a card that stood there, which may be written again.
        sums = {str(name): str(value) for name, value in content["sha256"].items() if is_part(str(name))}
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        message = f"is incomplete or damaged ({type(error).__name__}: {error})"
        raise UserError(message, where=str(file), hint=_AGAIN) from None
    elsewhere = [name for name in sums if Path(name).is_absolute() or ".." in Path(name).parts]
    if elsewhere:
        raise UserError(f"names {elsewhere[0]}, which is not in the export", where=str(file), hint=_AGAIN)
    # A file without a checksum could be exchanged unnoticed.
    unlisted = [name for graph in manifest.graphs for name in graph.files if name not in sums]
    if unlisted:
        raise UserError(f"has no checksum of {unlisted[0]}", where=str(file), hint=_AGAIN)
    return manifest, sums


def _parse(content: Mapping[str, Any]) -> ExportManifest:
    return ExportManifest(
        task=str(content["task"]),
        inputs=tuple(_tensor(each) for each in content["inputs"]),
        outputs=tuple(_tensor(each) for each in content["outputs"]),
        max_seq_length=int(content["max_seq_length"]),
        graphs=tuple(_graph(each) for each in content["graphs"]),
        rows=int(content["rows"]),
        source=str(content["source"]),
        versions={str(name): str(value) for name, value in content["versions"].items()},
        chosen=_chosen(content.get("chosen")),  # an export of an older nlpctl has no such entry
        speeds=None if content.get("speeds") is None else EngineSpeeds.of(content["speeds"]),  # the same
        dev=None if content.get("dev") is None else _dev(content["dev"]),
        weights=None if content.get("weights") is None else str(content["weights"]),  # the same
    )


def _chosen(value: Mapping[str, Any] | None) -> Chosen | None:
    return None if value is None else Chosen(str(value["engine"]), str(value["precision"]))


def _dev(value: Mapping[str, Any]) -> DevScores:
    scores = {str(name): _finite(score) for name, score in value["scores"].items()}
    return DevScores(str(value["metric"]), int(value["rows"]), bool(value["falling"]), _finite(value["fp32"]), scores)


def _finite(value: Any) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} is no score")
    return float(value)


def _tensor(value: Mapping[str, Any]) -> TensorSpec:
    shape = tuple(None if size is None else int(size) for size in value["shape"])
    return TensorSpec(str(value["name"]), str(value["dtype"]), shape)


def _graph(value: Mapping[str, Any]) -> Graph:
    checks = tuple(_check(check) for check in value["checks"])
    kind, precision, method = value["format"], value["precision"], value["method"]
    if kind not in get_args(GraphFormat) or precision not in ("fp32", "fp16", "int8"):
        raise ValueError(f"a graph of the kind {str(kind)[:40]!r} and {str(precision)[:40]!r}")
    return Graph(kind, precision, tuple(map(str, value["files"])), None if method is None else str(method), checks)


def _check(value: Mapping[str, Any]) -> Check:
    difference = value["difference"]  # it may be infinite: fp16 overflows
    return Check(
        str(value["engine"]),
        str(value["precision"]),
        None if difference is None else float(difference),
        _finite(value["agreement"]),
    )


def _counts(path: Path) -> bool:
    return path.is_file() and path.name != EXPORT_MANIFEST and is_part(path.name)


def check_graph(file: Path, manifest: ExportManifest, inputs: Collection[str], outputs: int) -> None:
    """UserError if a graph takes other `inputs`, or gives another number of `outputs`, than the export says."""
    expected = [spec.name for spec in manifest.inputs]
    if sorted(inputs) != sorted(expected):
        message = f"this graph takes {_listed(inputs)}, but its export feeds {_listed(expected)}"
        raise UserError(message, str(file), f"the graph belongs to another model: {EXPORT_AGAIN}")
    if outputs != len(manifest.outputs):
        message = f"this graph has {outputs} outputs, but its export reads {len(manifest.outputs)}"
        raise UserError(message, str(file), f"the graph belongs to another model: {EXPORT_AGAIN}")


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
