"""Which graphs an export holds. Imports no Paddle."""

from __future__ import annotations

from dataclasses import dataclass

from nlpctl.compression.strategies.base import FP32, INT8, Int8Strategy
from nlpctl.compression.strategies.registry import export_precisions, int8_of_graphs
from nlpctl.errors import UserError
from nlpctl.graphs.graph_files import FORMATS, ONNX, PREFIX, paddle_files
from nlpctl.models.export_folder import Graph
from nlpctl.names import did_you_mean


def check_names(formats: tuple[str, ...], wanted: tuple[str, ...]) -> None:
    """UserError where these are no formats and precisions of an export."""
    for given, known, flag in ((formats, FORMATS, "--format"), (wanted, export_precisions(), "--precision")):
        if not given:
            raise UserError("names nothing", flag, f"of {', '.join(known)}")
        for name in given:
            if name in ("bf16", "fp16"):
                hint = f"leave it out; then `nlpctl predict EXPORT --precision {name}`"
                raise UserError(f"{name} is no file: an engine computes the fp32 graph in it", flag, hint)
            if name not in known:
                raise UserError(f"there is no {name!r}{did_you_mean(name, known)}", flag, f"of {', '.join(known)}")
    for strategy in int8_of_graphs():
        format = strategy.graph.format
        if strategy.precision in wanted and strategy.precision != INT8 and format not in formats:
            message = f"{strategy.precision} is a graph of the format {format}"
            raise UserError(message, "--precision", f"add --format {format}, or take {INT8}")


@dataclass(frozen=True)
class Plan:
    """The graphs that are wanted: names of FORMATS and `export_precisions`.

    "int8" means every method that a format has and that suits the network; "int8-dynamic" is that method or none.
    """

    formats: tuple[str, ...]
    precisions: tuple[str, ...]

    def check(self) -> None:
        """UserError where a package is missing that makes these graphs."""
        if "onnx" in self.formats:
            from nlpctl.graphs.onnx import require_paddle2onnx

            require_paddle2onnx()

    def fp32(self) -> tuple[Graph, ...]:
        """The graphs that all others are made of."""
        known = {"paddle": paddle_files(PREFIX), "onnx": (ONNX,)}
        return tuple(Graph(format, FP32, known[format]) for format in FORMATS if format in self.formats)

    def int8(self) -> tuple[Int8Strategy, ...]:
        """The ways to 8 bits that are wanted."""
        return tuple(
            each
            for each in int8_of_graphs()
            if each.graph.format in self.formats and {INT8, each.precision} & set(self.precisions)
        )

    def graphs(self) -> tuple[Graph, ...]:
        """All of them."""
        return (*self.fp32(), *(strategy.graph for strategy in self.int8()))

    def may_lack(self, graph: Graph) -> bool:
        """Whether an export without `graph` is what was asked for too: it is of a family, and not named itself."""
        return graph.precision == INT8 and f"{INT8}-{graph.method}" not in self.precisions
