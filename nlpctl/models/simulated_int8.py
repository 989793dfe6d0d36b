"""Quantisation-aware training: networks that simulate int8 by rounding both factors of each product with a weight.

Training then finds weights that lose little by rounding (Jacob et al., 2018, arXiv 1712.05877). Rounding uses the
straight-through estimator: gradients pass unchanged, and are 0 for clipped values. Only `paddle.nn.Linear` is
simulated, since engines compute only these products in int8. config.json holds the settings:

    "simulated_int8": {"weights": "channel_wise_abs_max", "inputs": "moving_average_abs_max", "moving_rate": 0.9,
                       "clipped": true, "shared": [["bert.encoder.layers.0.self_attn.q_proj", ...], ...]}
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import paddle
import paddle.nn.functional as F

from nlpctl.documents import Mismatch, convert
from nlpctl.errors import UserError
from nlpctl.upstream.changed_in_place import save, saved

KEY = "simulated_int8"  # in config.json
CLIP = "input_rounding.clip"  # the end of the name of what PACT learns
STEPS = 127  # of int8, on either side of 0
WEIGHTS = ("channel_wise_abs_max", "abs_max")
INPUTS = ("moving_average_abs_max", "range_abs_max")
_TINY = 1e-8
_HINT = "copy the model folder again"


@dataclass(frozen=True)
class Simulation:
    """The settings of a simulation, with the names of PaddleNLP's CompressionArguments.

    `weights`: a scale per column, or one for all. `inputs`: the
    largest input counts as a moving average over batches with `moving_rate`, or as the largest ever seen.
    `clipped`: the bound is learned besides (PACT). `shared`: names of layers; those of a group read the same tensor,
    and have one bound, for an engine rounds a tensor once.
    """

    weights: str
    inputs: str
    moving_rate: float
    clipped: bool
    shared: tuple[tuple[str, ...], ...]


def read_simulation(config: Mapping[str, Any], where: str) -> Simulation | None:
    """The simulation in a config; None for a plain network. UserError, blaming `where`: it is damaged."""
    value = config.get(KEY)
    if value is None:
        return None
    try:
        read = convert(value, Simulation)
    except Mismatch as error:
        message = f'its "{KEY}" is incomplete or damaged ({error})'
        raise UserError(message, where=where, hint=_HINT) from None
    if read.weights not in WEIGHTS or read.inputs not in INPUTS:
        message = f'its "{KEY}" names {read.weights} and {read.inputs}, which this version of nlpctl does not know'
        raise UserError(message, where=where, hint="update nlpctl")
    return read


def simulate(network: Any, simulation: Simulation, where: str) -> None:
    """Replaces the linear layers of `network` by simulated int8 ones, in place; updates the config.

    Parameters stay the same objects under the same names; bounds of inputs are added, all 1 until they are read or
    `InputRounding.start` sets them. UserError, blaming `where`: a layer is missing, or none that can be simulated.
    """
    layers = dict(network.named_sublayers())
    for names in simulation.shared:
        rounding = InputRounding(simulation)
        for place, name in enumerate(names):
            if type(layers.get(name)) is not paddle.nn.Linear:
                message = f'its "{KEY}" names {name}, which is not a linear layer of the network'
                raise UserError(message, where=where, hint=_HINT)
            _replace(network, name, SimulatedLinear(layers[name], rounding, simulation.weights, place == 0))
    setattr(network.config, KEY, {**asdict(simulation), "shared": [list(names) for names in simulation.shared]})


def make_plain(network: Any) -> None:
    """Undoes `simulate` in place: the network computes in fp32 with its current weights."""
    for name, layer in list(simulated_layers(network)):
        _replace(network, name, layer.plain())
    if KEY in vars(network.config):
        delattr(network.config, KEY)


def is_simulated(network: Any) -> bool:
    """Whether a layer of `network` computes as int8 would."""
    return next(simulated_layers(network), None) is not None


def simulated_layers(network: Any) -> Iterator[tuple[str, SimulatedLinear]]:
    """Names and layers that compute as int8 would."""
    return ((name, layer) for name, layer in network.named_sublayers() if isinstance(layer, SimulatedLinear))


class SimulatedLinear(paddle.nn.Layer):
    """A linear layer with rounded inputs and rounded weight. It shares its parameters with the plain layer.

    `first`: whether this one, of the layers that read the same tensor, updates the bound.
    """

    def __init__(self, linear: paddle.nn.Linear, rounding: InputRounding, weights: str, first: bool):
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self.input_rounding = rounding
        self.per_column = weights == "channel_wise_abs_max"
        self.first = first
        self._linear = (linear,)  # in a tuple, or it would become a layer of this one

    def plain(self) -> paddle.nn.Linear:
        return self._linear[0]

    def forward(self, inputs: paddle.Tensor) -> paddle.Tensor:
        # Layers that share a tensor share the bound; each of them observing it would count a batch several times.
        if self.training and self.first:
            self.input_rounding.observe(inputs)
        return F.linear(self.input_rounding(inputs), rounded_weight(self.weight, self.per_column), self.bias)


class InputRounding(paddle.nn.Layer):
    """Rounds a tensor to int8 steps, and tracks the bound of its values in training.

    Training: the largest value of a batch moves `bound`. With PACT (Choi et al., 2018, arXiv 1805.06085) `clip` is
    trained: first_bound * e^clip is a bound too, and the smaller of the two counts. Its gradient is that of the values
    that are cut off, divided by the root of the number of values, so that it is of the size of others.
    """

    def __init__(self, simulation: Simulation):
        super().__init__()
        self.moving_rate = simulation.moving_rate if simulation.inputs == "moving_average_abs_max" else None
        self._to_pass_again = 0
        self._number("bound")
        if self.moving_rate is not None:
            self._number("total")
            self._number("weight")
        self.clipped = simulation.clipped
        if self.clipped:
            self._number("first_bound")
            self.clip = self.create_parameter([1], default_initializer=paddle.nn.initializer.Constant(0.0))

    def start(self, bound: float) -> None:
        """Begin with a bound that was measured."""
        for name in ("bound", "total", "first_bound"):
            if name in self._buffers:
                self._buffers[name].set_value(paddle.to_tensor([max(bound, _TINY)]))

    def limit(self) -> float:
        """The largest representable value."""
        return max(min(float(self.bound), self._clip_limit()), _TINY)

    def forward(self, inputs: paddle.Tensor) -> paddle.Tensor:
        clip = self.clip if self.clipped and self.training else None
        return _Rounded.apply(inputs, clip, self.limit(), self._clip_limit())

    def _clip_limit(self) -> float:
        return float(self._buffers["first_bound"]) * math.exp(float(self.clip)) if self.clipped else math.inf

    def observe(self, inputs: paddle.Tensor) -> None:
        """Let `bound` follow the largest value of a batch, once if it is passed twice (training.recompute): without a
        gradient for the loss, and again for the gradient, which must be rounded as the loss was."""
        if not paddle.is_grad_enabled():
            self._to_pass_again += 1
        elif self._to_pass_again:
            self._to_pass_again -= 1
            return
        largest = min(float(inputs.detach().abs().max()), self._clip_limit())
        if self.moving_rate is None:
            self.bound.set_value(paddle.to_tensor([max(float(self.bound), largest)]))
            return
        # total / weight is a weighted mean of the batches seen, from the first one on, as in Paddle's quantiser.
        total = self.moving_rate * float(self.total) + largest
        weight = self.moving_rate * float(self.weight) + 1
        for name, value in (("total", total), ("weight", weight), ("bound", total / weight)):
            self._buffers[name].set_value(paddle.to_tensor([value]))

    def _number(self, name: str) -> None:
        self.register_buffer(name, paddle.ones([1]))


def rounded_weight(weight: paddle.Tensor, per_column: bool) -> paddle.Tensor:
    """A weight rounded to the steps of int8; its gradient is that of the weight."""
    with paddle.no_grad():
        step = weight.abs().max(axis=0 if per_column else None, keepdim=True).clip(_TINY) / STEPS
        # Straight-through estimator: `change` is a constant, so the gradient of weight + change is that of weight.
        change = paddle.round(weight / step) * step - weight
    return weight + change


class _Rounded(paddle.autograd.PyLayer):
    """Rounding to steps of limit / STEPS; int8 has one more below 0. `clip_limit`: the bound that `clip` gives."""

    @staticmethod
    def forward(ctx: Any, inputs: Any, clip: Any, limit: Any, clip_limit: Any) -> Any:
        ctx.limit, ctx.clip_limit, ctx.learns = limit, clip_limit, clip is not None
        save(ctx, "a simulated int8 layer", input=inputs)
        # One multiplication, as in an engine; dividing by the step could round ties the other way.
        steps = paddle.round(inputs * (STEPS / limit))
        return paddle.clip(steps, -STEPS - 1, STEPS) * (limit / STEPS)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (inputs,) = saved(ctx)
        passed = gradient * (inputs.abs() <= ctx.limit).astype(gradient.dtype)
        if not ctx.learns:
            return passed
        # PACT: d(output)/d(bound) is the sign of what was cut off and 0 elsewhere; the factor clip_limit is that of
        # e^clip.
        cut_off = (inputs.abs() >= ctx.clip_limit).astype(gradient.dtype) * inputs.sign()
        by_clip = (gradient * cut_off).sum() * (ctx.clip_limit / math.sqrt(inputs.size))
        return passed, by_clip.reshape([1])


def _replace(network: Any, name: str, layer: paddle.nn.Layer) -> None:
    """Put `layer` where the layer `name` is."""
    parent, _, last = name.rpartition(".")
    setattr(dict(network.named_sublayers(include_self=True))[parent], last, layer)
