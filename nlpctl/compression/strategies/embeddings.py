"""embeddings: the large embedding tables of a graph for Paddle Inference in 8 bits, after any other change."""

from __future__ import annotations

from collections.abc import Sequence

from nlpctl.compression.strategies.base import KEY, GraphStrategy, Int8Strategy, Kind, Making, Strategy
from nlpctl.errors import UserError
from nlpctl.graphs.graph_files import INT8_PREFIX, PREFIX, paddle_files
from nlpctl.models.export_folder import Graph


class Embeddings(GraphStrategy):
    name = "embeddings"
    kind = Kind.EMBEDDINGS
    help = "embedding tables in 8 bits, for Paddle Inference"

    def check_sum(self, text: str, parts: Sequence[Strategy]) -> None:
        twice = next((part for part in parts if isinstance(part, Int8Strategy) and part.holds_tables), None)
        if twice is not None:
            message = f"{twice.name} already stores large embedding tables in 8 bits, so {text!r} repeats it"
            raise UserError(message, KEY, f"leave out +{self.name}")

    def make_graph(self, making: Making) -> Graph:
        from nlpctl.graphs.embeddings import quantize_embeddings

        (before,) = [graph for graph in making.graphs if graph.format == "paddle"]
        prefix = INT8_PREFIX if before.precision == "int8" else PREFIX
        quantize_embeddings(making.prefix(before), making.folder / prefix)
        method = self.name if before.method is None else f"{before.method}+{self.name}"
        return Graph("paddle", before.precision, paddle_files(prefix), method)
