"""The settings of post-training quantisation, with the names of PaddleNLP's CompressionArguments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nlpctl.errors import Problem, UserError

ALGORITHMS = ("avg", "abs_max", "mse", "emd", "hist", "KL")


@dataclass(frozen=True)
class PtqSettings:
    """Settings of post-training quantisation.

    `algo`: the bound of an activation. abs_max: the largest value; avg: the mean over rows of the largest; hist: the
    99.999th percentile; mse, emd: the bound with the smallest squared error, or the nearest mean and
    spread, within one batch; KL: the nearest distribution. `round_type`: adaround rounds weights up or down so that
    outputs change least. `bias_correction`: keep the spread of weights and the mean of outputs. `skip`: variables
    whose products stay fp32. The caller chooses the number of rows.
    """

    algo: str = "avg"
    weight_quantize_type: str = "channel_wise_abs_max"
    activation_quantize_type: str | None = None
    round_type: str = "round"
    bias_correction: bool = False
    onnx_format: bool = True
    skip: tuple[str, ...] = ()

    def check(self) -> None:
        """UserError that lists unknown settings and settings that Paddle accepts without effect."""
        problems = tuple(self._problems())
        if problems:
            raise UserError(problems=list(problems))

    def _problems(self) -> Iterator[Problem]:
        if self.algo not in ALGORITHMS:
            yield _unknown(self.algo, "compression.algo_list", ALGORITHMS)
        if self.weight_quantize_type not in (known := ("channel_wise_abs_max", "abs_max")):
            yield _unknown(self.weight_quantize_type, "compression.weight_quantize_type", known)
        if self.round_type not in (known := ("round", "adaround")):
            yield _unknown(self.round_type, "compression.round_type", known)
        if self.activation_quantize_type not in (None, "range_abs_max"):
            message = (
                f"{self.activation_quantize_type!r} has no effect on calibration (ptq): activations get one fixed "
                "range, found by the algorithm"
            )
            hint = "leave it out, or use range_abs_max; compression.algo_list chooses the range"
            yield Problem(message, "compression.activation_quantize_type", hint)
        if not self.onnx_format:
            message = (
                "PaddlePaddle's older format of int8 graphs is not written: oneDNN computes it with wrong scales; "
                "nlpctl's graphs hold the int8 operators themselves"
            )
            yield Problem(message, "compression.onnx_format", "leave it out")


def _unknown(value: str, key: str, known: tuple[str, ...]) -> Problem:
    return Problem(f"{value!r} is not one of {', '.join(known)}", key, f"take {known[0]}")


def no_rows() -> UserError:
    """The error for missing calibration rows."""
    hint = "give training rows: @[data.train=FILE] (nlpctl export: --data FILE)"
    return UserError("there are no rows for calibration", hint=hint)
