"""The optimizer: AdamW with a learning rate and a weight decay per parameter (section `optimizer`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import paddle
from paddlenlp.trainer import Trainer, TrainerCallback, TrainingArguments

from nlpctl.config.schema import OptimizerSection, Recipe
from nlpctl.errors import UserError
from nlpctl.models.changes import parameter_counts
from nlpctl.models.load import LoadedModel
from nlpctl.models.parameters import count, named, select

_LAYER = re.compile(r"\.layers?\.(\d{1,9})\.")
_UNDECAYED = ("bias", "norm")  # PaddleNLP's Trainer exempts names that contain these from weight decay


@dataclass(frozen=True)
class RateAndDecay:
    """Of one parameter: its peak learning rate and its weight decay."""

    learning_rate: float
    weight_decay: float


def rates_and_decays(
    network: Any, section: OptimizerSection, learning_rate: float, weight_decay: float
) -> dict[str, RateAndDecay]:
    """By the name of every trained parameter; a shared parameter appears under one of its names.

    Biases and normalisation layers decay only if a group says so. UserError for a group that matches no parameter or
    only frozen ones, and for layer_decay with a network without numbered layers.
    """
    parameters = named(network)
    first_names: dict[int, str] = {}
    for name, parameter in parameters.items():
        if not parameter.stop_gradient:
            first_names.setdefault(id(parameter), name)
    rates = _layer_rates(network, first_names.values(), section.layer_decay)
    by_name = {
        name: RateAndDecay(learning_rate * rate, 0.0 if any(part in name for part in _UNDECAYED) else weight_decay)
        for name, rate in rates.items()
    }
    for i, group in enumerate(section.groups):
        where = f"optimizer.groups.{i}.match"
        matched = {id(parameters[name]) for name in select(group.match, parameters, where)}
        names = [first_names[key] for key in matched & first_names.keys()]
        if not names:
            message = f"{', '.join(group.match)} matches frozen parameters only"
            raise UserError(message, where=where, hint="remove the group, or let model.freeze match less")
        given = {"learning_rate": group.learning_rate, "weight_decay": group.weight_decay}
        own = {field: value for field, value in given.items() if value is not None}
        by_name |= {name: replace(by_name[name], **own) for name in names}
    return by_name


def parameter_report(model: LoadedModel, recipe: Recipe) -> dict[str, Any]:
    """A summary of the trained parameters, JSON-prepared: counts, changes by the recipe, and the distinct rates
    and decays.

    UserError as for `rates_and_decays`.
    """
    training = recipe.training
    if training.optimizer is not None:  # the user's own decides on its groups
        return {**parameter_counts(model.network), **model.changes.summary(), "optimizer": []}
    by_name = rates_and_decays(model.network, recipe.optimizer, training.learning_rate, training.weight_decay)
    parameters = named(model.network)
    names_of: dict[RateAndDecay, list[str]] = {}
    for name, each in by_name.items():
        names_of.setdefault(each, []).append(name)
    groups = [
        {
            "learning_rate": each.learning_rate,
            "weight_decay": each.weight_decay,
            "parameters": count(parameters[name] for name in names),
            "first": names[0],
            "names": len(names),
        }
        for each, names in names_of.items()
    ]
    return {**parameter_counts(model.network), **model.changes.summary(), "optimizer": groups}


def describe_groups(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """The distinct rates and decays for the console, line by line."""
    return [
        f"  learning rate {group['learning_rate']:.3g}, weight decay {group['weight_decay']:.3g}: "
        f"{group['parameters']:,} parameters, {group['first']}"
        + (f" and {group['names'] - 1} more" if group["names"] > 1 else "")
        for group in groups
    ]


def build_optimizer(
    network: Any,
    section: OptimizerSection,
    args: TrainingArguments,
    scheduler: paddle.optimizer.lr.LRScheduler,
) -> paddle.optimizer.Optimizer:
    """The optimizer of PaddleNLP's Trainer for `args`, with the settings of `section`.

    `scheduler`: the learning rate of each step, whose peak is `args.learning_rate` (`RecipeTrainer.create_scheduler`).
    A parameter learns at a share of it (optimize_attr), and so by the same schedule.
    """
    _, options = Trainer.get_optimizer_cls_and_kwargs(args)
    if args.fp16_opt_level == "O2":
        options["multi_precision"] = True
    by_name = rates_and_decays(network, section, args.learning_rate, args.weight_decay)
    parameters = named(network)
    for name, each in by_name.items():
        parameters[name].optimize_attr["learning_rate"] = each.learning_rate / args.learning_rate
    return DecayPerParameter(
        {parameters[name].name: each.weight_decay for name, each in by_name.items()},
        learning_rate=scheduler,
        parameters=[parameters[name] for name in by_name],
        weight_decay=args.weight_decay,
        grad_clip=paddle.nn.ClipGradByGlobalNorm(args.max_grad_norm) if args.max_grad_norm > 0 else None,
        **options,
    )


class DecayPerParameter(paddle.optimizer.AdamW):
    """AdamW whose weight decay differs by parameter.

    Paddle's own parameter groups are not used: they clip the gradient norm per group, so that grouping alone would
    change a training.
    """

    def __init__(self, decays: Mapping[str, float], **options: Any):
        """`decays`: weight decay by `parameter.name`."""
        self._decays = decays
        super().__init__(**options)

    def clear_grad(self, set_to_zero: bool = True) -> None:
        """Free the gradients. To fill them with zeros, as Paddle does, takes a hundredth of a step on a CPU;
        `ZeroMissingGradients` does so where it matters."""
        super().clear_grad(set_to_zero=False)

    def _append_optimize_op(self, block: Any, param_and_grad: Any) -> Any:
        self._weight_decay = self._decays[param_and_grad[0].name]
        return super()._append_optimize_op(block, param_and_grad)


class ZeroMissingGradients(TrainerCallback):
    """The trained parameters that had a gradient once; without one in a step they get one of zeros, as by Paddle's
    clear_grad, so that their moments decay and weight decay goes on.

    `names`: of these parameters. A checkpoint keeps them, since a resumed run must do the same.
    """

    def __init__(self, network: Any):
        parameters = {id(each): (name, each) for name, each in named(network).items() if not each.stop_gradient}
        self._parameters = list(parameters.values())
        self.names: set[str] = set()

    def on_optimizer_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        for name, parameter in self._parameters:
            if parameter.grad is not None:
                self.names.add(name)
            elif name in self.names:
                parameter.grad = paddle.zeros_like(parameter)


def _layer_rates(network: Any, trained: Iterable[str], decay: float | None) -> dict[str, float]:
    """Name -> share of the learning rate: decay ** (number of layers above), 1 for head, pooler and a last norm."""
    if decay is None:
        return dict.fromkeys(trained, 1.0)
    prefix = f"{network.base_model_prefix}."
    in_encoder = [name for name in named(network) if name.startswith(prefix)]
    layers = {name: int(match[1]) for name in in_encoder if (match := _LAYER.search(name))}
    if not layers:
        raise UserError(
            f"{type(network).__name__} has no numbered layers",
            where="optimizer.layer_decay",
            hint="give learning rates with optimizer.groups",
        )
    top = max(layers.values()) + 1
    rates = {}
    for name in trained:
        is_top = not name.startswith(prefix) or name.startswith((f"{prefix}pooler.", f"{prefix}encoder.norm."))
        above = 0 if is_top else top - layers.get(name, -1)
        rates[name] = decay**above
    return rates
