"""qat: 8 bits for Paddle Inference, by quantisation-aware training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from nlpctl.compression.strategies.base import CANDIDATES, NETWORKS, Int8Strategy, Making, Step
from nlpctl.config.schema import Recipe
from nlpctl.graphs.graph_files import INT8_PREFIX, paddle_files
from nlpctl.models.export_folder import Graph

if TYPE_CHECKING:
    from nlpctl.runtime.process import ProcessSetup
    from nlpctl.runtime.run_directory import RunDirectory


class Qat(Int8Strategy):
    name = "qat"
    help = "8 bits for Paddle Inference, by quantisation-aware training"
    gain = 2.0
    trains = True
    reads = ("weight_quantize_type", "activation_quantize_type", "moving_rate", "use_pact", "criterion")
    of_training = ("activation_quantize_type", "moving_rate", "use_pact", "criterion")
    runs_on = ("paddle", "int8")
    graph = Graph("paddle", "int8", paddle_files(INT8_PREFIX), "qat")

    def way(self, device: str) -> tuple[str, str] | None:
        """A GPU trains it; its graph is made with --device cpu, in the same folder."""
        return self.runs_on if device == "cpu" else None

    def graphs(self, before: Step, network: tuple[str, ...], section: Any) -> Iterator[tuple[Step, ...]]:
        training = Step(NETWORKS, f"{before.name}+{self.name}", self, network)
        yield training, Step(CANDIDATES, training.name, self, (before.folder, training.folder))

    def check(self, recipe: Recipe, config: Mapping[str, Any]) -> None:
        from nlpctl.compression.networks.qat import check

        check(recipe, config)

    def make_network(self, recipe: Recipe, source: str, step: Step, run: RunDirectory, setup: ProcessSetup) -> None:
        """The step that trains the exported network for 8 bits."""
        from nlpctl.compression.networks.qat import train_qat

        train_qat(recipe, source, run, setup)

    def write(self, making: Making) -> None:
        from nlpctl.compression.networks.qat import write_qat_graph

        (network,), planned = making.networks, making.planned
        if planned is None:
            raise ValueError(f"{self.name} needs a training, which `nlpctl export` does not do")
        write_qat_graph(planned.recipe, network, making.origin, making.folder, planned.own)
