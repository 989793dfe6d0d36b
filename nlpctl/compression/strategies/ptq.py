"""ptq: 8 bits for Paddle Inference, by calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nlpctl.compression.strategies.base import INT8, CalibratedInt8, Making, Strategy
from nlpctl.config.schema import Recipe
from nlpctl.graphs.calibration import Calibration
from nlpctl.graphs.graph_files import INT8_PREFIX, paddle_files
from nlpctl.models.export_folder import Graph

ALGORITHMS = ("avg", "mse")
SEARCHING = {"hist": 2.0, "KL": 2.5, "mse": 5.0, "emd": 7.0}  # these try many bounds; measured time relative to avg
_ACTIVATIONS = "activation_quantize_type"
_SETTINGS = ("weight_quantize_type", "round_type", "bias_correction", "onnx_format")


class Ptq(CalibratedInt8):
    name = "ptq"
    help = "8 bits for Paddle Inference, calibrated on training rows"
    gain = 2.0
    reads = ("algo_list", *CalibratedInt8.reads, "round_type", "bias_correction", "weight_quantize_type", _ACTIVATIONS)
    in_names = ("algo_list", *CalibratedInt8.in_names)
    runs_on = ("paddle", "int8")
    graph = Graph("paddle", "int8", paddle_files(INT8_PREFIX), "ptq")

    @property
    def precision(self) -> str:
        """Only int8: an export has one such graph for Paddle."""
        return INT8

    def algorithms(self, section: Any) -> Sequence[str]:
        return section.algo_list or ALGORITHMS

    def slowness(self, algorithm: str | None) -> float:
        return SEARCHING.get(algorithm or "", 1.0)

    def refuse_early(self, recipe: Recipe, beside: Sequence[Strategy]) -> None:
        """activation_quantize_type is not checked here if another strategy of the command reads it."""
        alone = not any(_ACTIVATIONS in each.reads for each in beside if each != self)
        for algorithm in self.algorithms(recipe.compression):
            _settings(recipe, algorithm, (*_SETTINGS, _ACTIVATIONS) if alone else _SETTINGS).check()

    def write(self, making: Making) -> None:
        from nlpctl.graphs.ptq import quantize

        calibration = Calibration()
        planned = making.planned
        if planned is not None:  # activations have only one type, and the setting was checked before
            rows = planned.step.calibration
            calibration = _settings(planned.recipe, None if rows is None else rows.algorithm, _SETTINGS)
        quantize(making.fp32("paddle"), making.folder / INT8_PREFIX, making.rows(), calibration)


def _settings(recipe: Recipe, algorithm: str | None, names: Sequence[str]) -> Calibration:
    """The quantisation settings of an algorithm, with the settings `names` of the recipe; null means the default."""
    given = {name: value for name in names if (value := getattr(recipe.compression, name)) is not None}
    return Calibration(algorithm or ALGORITHMS[0], **given)
