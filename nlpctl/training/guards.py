"""Checks before a weight update: whether loss and gradient are finite and of a usual size."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import paddle
from paddlenlp.trainer import TrainerCallback, TrainingArguments
from paddlenlp.trainer.trainer_callback import TrainerControl, TrainerState

from nlpctl.config.schema import GuardsSection
from nlpctl.models.parameters import named
from nlpctl.training.plateau import Fall, LossMonitor, Plateau

FIRST, RECENT = 20, 100  # steps whose median is the usual value
LEAST = 0.1  # a smaller usual value counts as this one: a student of fitted layers begins near 0


class BadStep(Exception):
    """A step whose update must not be made. The weights are those after the last completed step.

    `figure`: "loss" or "gradient norm". `usual`: its usual value; None if the value is not finite.
    """

    def __init__(self, step: int, figure: str, value: float, usual: float | None, parts: list[StepPart]):
        super().__init__(f"step {step}: {figure} {value}")
        self.step, self.figure, self.value, self.usual, self.parts = step, figure, value, usual, parts


class StepPart:
    """A micro-batch of an update, and its share of the loss once computed. `weight`: what its mean loss counts, 0 if
    its rows are those of another one."""

    def __init__(self, inputs: Mapping[str, paddle.Tensor]):
        self.inputs = inputs
        self.loss: paddle.Tensor | None = None
        self.weight = 1.0


class RunningMedian:
    """The usual size of a figure: the median of the last RECENT values, or of the FIRST ones if that is larger.

    The first values matter when the loss is almost 0: otherwise every unusual row would count as an explosion.
    """

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._first = 0.0

    def size(self) -> float | None:
        """None until FIRST values are known."""
        return max(self._first, statistics.median(self._recent)) if len(self._recent) >= FIRST else None

    def add(self, value: float) -> None:
        self._recent.append(value)
        # Taken once: a long run forgets its first steps otherwise, and a loss near 0 would make every row unusual.
        if len(self._recent) == FIRST and not self._first:
            self._first = statistics.median(self._recent)


def unreached(network: paddle.nn.Layer) -> list[str]:
    """The trained parameters that the last backward pass gave no gradient: the loss does not depend on them."""
    return [
        name for name, parameter in named(network).items() if not parameter.stop_gradient and parameter.grad is None
    ]


class StepGuard(TrainerCallback):
    """Raises BadStep between the gradients of a step and its update."""

    def __init__(
        self,
        section: GuardsSection,
        monitor: LossMonitor | None = None,
        on_verdict: Callable[[Plateau | Fall], None] = lambda verdict: None,
    ):
        """`monitor`: watches whether the loss falls; `on_verdict` is called when it does not, and when it does."""
        self.section = section
        self.parts: list[StepPart] = []
        self.monitor, self._on_verdict = monitor, on_verdict
        self.last_loss: float | None = None  # of the last step, of this process's rows; None: not looked at
        self.unreached: list[str] | None = None  # trained parameters without a gradient in the first step
        self._losses, self._norms = RunningMedian(), RunningMedian()

    @property
    def usual_gradient(self) -> float | None:
        """The usual gradient norm; None: not known yet."""
        return self._norms.size()

    @property
    def part(self) -> int:
        """Index of the micro-batch being computed, from 0."""
        return len(self.parts) - 1

    def begin_step(self) -> None:
        self.parts = []

    def begin_part(self, inputs: Mapping[str, paddle.Tensor]) -> None:
        self.parts.append(StepPart(inputs))

    def end_part(self, loss: paddle.Tensor) -> None:
        """`loss`: the micro-batch's share of the update's loss, detached."""
        self.parts[-1].loss = loss

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.begin_step()

    def on_optimizer_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, scaler: Any = None, **kwargs: Any
    ) -> None:
        if self.unreached is None:
            self.unreached = unreached(kwargs["model"])
        section = self.section
        if not section.finite and section.loss_factor is None and section.gradient_factor is None:
            return
        summed, norm = self._figures(kwargs["model"], with_gradient=scaler is None)
        step = state.global_step + 1
        # Of this process's own rows, which are more or fewer than its share in the last step of an epoch.
        share = statistics.fmean(part.weight for part in self.parts)
        loss = self.last_loss = summed / share if share else None
        if loss is not None:
            self._judge(step, "loss", loss, self._losses, section.loss_factor)
        if scaler is None:  # fp16: the scaler itself finds overflowing gradients and skips their updates
            self._judge(step, "gradient norm", norm, self._norms, section.gradient_factor)
        verdict = None if self.monitor is None or loss is None else self.monitor.add(step, loss)
        if verdict is not None:
            self._on_verdict(verdict)

    def _figures(self, model: paddle.nn.Layer, with_gradient: bool) -> tuple[float, float]:
        """The step's loss and gradient norm on this process, copied from the device together."""
        sums = [part.loss.astype("float32").reshape([1]) for part in self.parts if part.loss is not None]
        gradients = [parameter.grad for parameter in model.parameters() if with_gradient]
        squares = [
            paddle._C_ops.squared_l2_norm(gradient).astype("float32").reshape([1])
            for gradient in gradients
            if gradient is not None
        ]
        with paddle.no_grad():
            figures = paddle.concat([paddle.add_n(sums), paddle.add_n(squares) if squares else paddle.zeros([1])])
        # One copy from the device: each would wait for all work in its queue.
        loss, square = figures.tolist()
        return loss, math.sqrt(square) if square >= 0 else square

    def _judge(self, step: int, figure: str, value: float, usual: RunningMedian, factor: float | None) -> None:
        size = usual.size()
        size = size and max(size, LEAST)
        if not math.isfinite(value):
            if self.section.finite:
                raise BadStep(step, figure, value, None, self.parts)
        elif factor is not None and size is not None and value > factor * size > 0:
            raise BadStep(step, figure, value, size, self.parts)
        else:
            usual.add(value)
