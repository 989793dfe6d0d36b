"""What is to be exported: formats, precisions, and how it is proved. Imports no Paddle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nlpctl.errors import UserError
from nlpctl.export.strategies import FP16, INT8, Int8Strategy, export_precisions, int8_of_graphs
from nlpctl.extras import require_onnx
from nlpctl.graphs.graph_files import FORMATS, ONNX, ONNX_FP16, PREFIX, paddle_files
from nlpctl.models.export_folder import Graph
from nlpctl.names import did_you_mean

BY_FORMAT = ("@[formats=onnx]", "leave out @[formats=onnx]")
ROWS = 256  # rows that are compared by default
ELSEWHERE = "name another folder: @[output=FOLDER]"


@dataclass(frozen=True)
class ExportRequest:
    """The requested graphs, and how each is compared with the network. UserError for unknown names.

    `formats`: of FORMATS. `precisions`: of `export_precisions`; "int8": every method of a format that suits the
    network; "int8-dynamic": only that method, which must succeed; "fp16": a graph for ONNX Runtime alone, since Paddle
    computes the fp32 graph in fp16.
    `data`: a file of rows to compare; None: those of the run. `rows`: how many of them.
    `onnx`: for messages, the key or flag that asks for ONNX graphs, and the alternative.
    `timing`: most seconds for timing the engines; 0: they are not timed. `scored`: lower precisions are scored on dev.
    """

    formats: tuple[str, ...] = ("paddle",)
    precisions: tuple[str, ...] = ("fp32",)
    data: Path | None = None
    rows: int = ROWS
    onnx: tuple[str, str] = BY_FORMAT
    timing: float = 0.0
    scored: bool = False

    def __post_init__(self) -> None:
        asked = ((self.formats, FORMATS, "@[formats]"), (self.precisions, export_precisions(), "@[precisions]"))
        for names, known, flag in asked:
            if not names:
                raise UserError("is empty", flag, f"of {', '.join(known)}")
            for name in names:
                if name == "bf16" or (name == FP16 and "onnx" not in self.formats):
                    hint = f"leave it out; then `nlpctl predict EXPORT --precision {name}`"
                    raise UserError(f"{name} is not a graph: engines compute the fp32 graph in it", flag, hint)
                if name not in known:
                    raise UserError(f"there is no {name!r}{did_you_mean(name, known)}", flag, f"of {', '.join(known)}")
        for strategy in int8_of_graphs():
            format = strategy.graph.format
            if strategy.precision in self.precisions and strategy.precision != INT8 and format not in self.formats:
                message = f"{strategy.precision} needs graphs in format {format}"
                raise UserError(message, "@[precisions]", f"add @[formats={format}], or use {INT8}")

    def require_packages(self) -> None:
        """UserError if a package that makes these graphs is missing."""
        if "onnx" in self.formats:
            require_onnx(*self.onnx)

    def fp32(self) -> tuple[Graph, ...]:
        """The fp32 graphs, from which all others are made."""
        graphs = (Graph("paddle", "fp32", paddle_files(PREFIX)), Graph("onnx", "fp32", (ONNX,)))
        return tuple(graph for graph in graphs if graph.format in self.formats)

    def fp16(self) -> tuple[Graph, ...]:
        """The fp16 graph, if it is requested."""
        requested = "onnx" in self.formats and FP16 in self.precisions
        return (Graph("onnx", "fp16", (ONNX_FP16,)),) if requested else ()

    def int8(self) -> tuple[Int8Strategy, ...]:
        """The requested 8-bit methods."""
        return tuple(
            each
            for each in int8_of_graphs()
            if each.graph.format in self.formats and {INT8, each.precision} & set(self.precisions)
        )

    def graphs(self) -> tuple[Graph, ...]:
        """All of them."""
        return (*self.fp32(), *self.fp16(), *(strategy.graph for strategy in self.int8()))

    def may_lack(self, graph: Graph) -> bool:
        """Whether the export may lack `graph`: in fp16, or requested as part of "int8", not by its own name."""
        return graph.precision == FP16 or (graph.precision == INT8 and f"{INT8}-{graph.method}" not in self.precisions)
