"""Which graphs an export holds. Imports no Paddle."""

from __future__ import annotations

from dataclasses import dataclass

from nlpctl.errors import UserError
from nlpctl.export.strategies import FP16, FP32, INT8, Int8Strategy, export_precisions, int8_of_graphs
from nlpctl.graphs.graph_files import FORMATS, ONNX, ONNX_FP16, PREFIX, paddle_files
from nlpctl.models.export_folder import Graph
from nlpctl.names import did_you_mean

BY_FORMAT = ("--format onnx", "leave out --format onnx")


def check_names(formats: tuple[str, ...], wanted: tuple[str, ...]) -> None:
    """UserError for unknown formats and precisions of an export."""
    for given, known, flag in ((formats, FORMATS, "--format"), (wanted, export_precisions(), "--precision")):
        if not given:
            raise UserError("is empty", flag, f"of {', '.join(known)}")
        for name in given:
            if name == "bf16" or (name == FP16 and "onnx" not in formats):
                hint = f"leave it out; then `nlpctl predict EXPORT --precision {name}`"
                raise UserError(f"{name} is not a graph: engines compute the fp32 graph in it", flag, hint)
            if name not in known:
                raise UserError(f"there is no {name!r}{did_you_mean(name, known)}", flag, f"of {', '.join(known)}")
    for strategy in int8_of_graphs():
        format = strategy.graph.format
        if strategy.precision in wanted and strategy.precision != INT8 and format not in formats:
            message = f"{strategy.precision} needs graphs in format {format}"
            raise UserError(message, "--precision", f"add --format {format}, or use {INT8}")


@dataclass(frozen=True)
class Plan:
    """The requested graphs: names of FORMATS and `export_precisions`.

    "int8": every method of a format that suits the network; "int8-dynamic": only that method, which must succeed.
    "fp16": a graph for ONNX Runtime, since Paddle computes the fp32 graph in fp16.
    `onnx`: for messages, the key or flag that asks for ONNX graphs, and the alternative.
    """

    formats: tuple[str, ...]
    precisions: tuple[str, ...]
    onnx: tuple[str, str] = BY_FORMAT

    def check(self) -> None:
        """UserError if a package for making these graphs is missing."""
        if "onnx" in self.formats:
            from nlpctl.graphs.onnx import require_paddle2onnx

            require_paddle2onnx(*self.onnx)

    def fp32(self) -> tuple[Graph, ...]:
        """The fp32 graphs, from which all others are made."""
        known = {"paddle": paddle_files(PREFIX), "onnx": (ONNX,)}
        return tuple(Graph(format, FP32, known[format]) for format in FORMATS if format in self.formats)

    def fp16(self) -> tuple[Graph, ...]:
        """The fp16 graph, if it is requested."""
        wanted = "onnx" in self.formats and FP16 in self.precisions
        return (Graph("onnx", FP16, (ONNX_FP16,)),) if wanted else ()

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
