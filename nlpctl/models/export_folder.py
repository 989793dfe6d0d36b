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

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal

from nlpctl.checksums import check_sums, sums_in
from nlpctl.documents import Document, Finite
from nlpctl.errors import UserError
from nlpctl.layout import EXPORT_MANIFEST, REPORTS
from nlpctl.models.engine_speeds import EngineSpeeds
from nlpctl.models.model_manifest import is_part
from nlpctl.outputs import refuse_foreign

POINT = 0.01  # points per unit of a score: accuracy 0.88 is 88 points
EXPORT_AGAIN = "export the model again: nlpctl export"

GraphFormat = Literal["paddle", "onnx"]
TensorType = Literal["bool", "uint8", "int8", "int16", "int32", "int64", "bfloat16", "float16", "float32", "float64"]


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of a graph. A size of None is dynamic."""

    name: str
    dtype: TensorType
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
    agreement: Finite


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
    fp32: Finite
    scores: Mapping[str, Finite]

    def drop(self, name: str) -> float | None:
        """By how many points `name` is worse than fp32; negative if it is better; None if it was not scored."""
        score = self.scores.get(name)
        if score is None:
            return None
        return round(points_lost(score, self.fp32, falling=self.falling), 6)


@dataclass(frozen=True)
class ExportManifest(Document):
    """export.json: written by `nlpctl export` and `nlpctl compress`, read by whatever answers with an export.

    `source`: the model folder it was made from, for people, and `weights`: the SHA-256 of what it held
    then, if it was listed. `rows`: how many rows were compared.

    `chosen`: what "auto" takes where the machine can; None leaves it to what is fastest by `speeds`, which are of the
    machine that exported it; None: nothing was timed. `dev`: None: there was no labelled dev data. `sha256`: of all
    other files, by name, which `write_manifest` fills in.
    """

    FORMAT: ClassVar[int | None] = 1
    REPAIR: ClassVar[str] = "copy the folder again, or make it again with `nlpctl export`"
    UPDATE: ClassVar[str] = "export the model again"

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
    sha256: Mapping[str, str] = field(default_factory=dict, compare=False)


def write_manifest(folder: Path, manifest: ExportManifest, unlisted: Collection[str] = ()) -> None:
    """Write export.json with the checksums of all other files of `folder` but `unlisted`; write these files first."""
    # The card and reports are left out: people may edit or delete them.
    sums = sums_in(folder, (path.name for path in folder.iterdir() if _counts(path) and path.name not in unlisted))
    replace(manifest, sha256=sums).save(folder / EXPORT_MANIFEST)


def read_manifest(folder: Path, repair: str = ExportManifest.REPAIR) -> ExportManifest:
    """Read export.json and compare every file with its checksum. `repair`: what to do where they differ.

    UserError: a file is missing or altered, export.json is damaged, or from a newer nlpctl.
    """
    manifest = _read(folder, repair)
    check_sums(folder, manifest.sha256, "export", EXPORT_MANIFEST, repair)
    return manifest


def read_checked_manifest(folder: Path) -> ExportManifest:
    """Read export.json of a folder whose files this process has written, or compared with their checksums before.

    Hashing takes about a second per GB, which a command pays once.
    """
    return _read(folder)


def refuse_foreign_files(folder: Path) -> None:
    """UserError if the export, which is to be replaced, holds files that it does not list. A damaged one passes."""
    try:
        listed = _read(folder).sha256
    except UserError:
        return
    refuse_foreign(folder, (*listed, EXPORT_MANIFEST, *REPORTS))


def _read(folder: Path, repair: str = ExportManifest.REPAIR) -> ExportManifest:
    """export.json. UserError: it is missing, damaged, or from a newer nlpctl, or names files elsewhere."""
    file = folder / EXPORT_MANIFEST
    manifest = ExportManifest.load(file, repair)
    # Older versions listed a card that stood there, which may be written again.
    sums = {name: value for name, value in manifest.sha256.items() if is_part(name)}
    elsewhere = [name for name in sums if Path(name).is_absolute() or ".." in Path(name).parts]
    if elsewhere:
        raise UserError(f"names {elsewhere[0]}, which is not in the export", where=str(file), hint=repair)
    # A file without a checksum could be exchanged unnoticed.
    unlisted = [name for graph in manifest.graphs for name in graph.files if name not in sums]
    if unlisted:
        raise UserError(f"has no checksum of {unlisted[0]}", where=str(file), hint=repair)
    return replace(manifest, sha256=sums)


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
