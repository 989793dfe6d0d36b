"""The parts of a training that a recipe may name as module:function: what each takes and gives.

A new kind is an entry of PARTS, its key in the schema, and the place that calls it. Whose code runs: own_code.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

from nlpctl.config.finding import Check, Finding
from nlpctl.config.schema import Recipe

NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class Part:
    """One kind of part. `key`: the recipe key that names it, one name or a list.

    `takes`: its positional arguments; None: they differ. `gives`: what it returns, in words. `changes_training`: the
    weights depend on it, so a run goes on with the same source only.
    """

    key: str
    takes: tuple[str, ...] | None
    gives: str
    changes_training: bool = True

    @property
    def purpose(self) -> str:
        """For messages: "a function (row) that returns a dict"."""
        takes = "" if self.takes is None else f" ({', '.join(self.takes)})"
        return f"a function{takes} that returns {self.gives}"


PARTS: tuple[Part, ...] = (
    Part("data.reader", None, "dicts, one per row"),
    Part("data.map", ("row",), "a dict, the row as it is to be read"),
    Part("data.filter", ("row",), "true or false"),
    Part("model.network", ("config",), "a paddle.nn.Layer"),
    Part("training.criterion", ("outputs", "labels"), "the mean loss of the batch, a scalar tensor"),
    Part("training.optimizer", ("model", "args"), "a paddle.optimizer.Optimizer"),
    Part("training.scheduler", ("args", "num_training_steps"), "a paddle.optimizer.lr.LRScheduler"),
    Part("training.data_collator", ("tokenizer",), "a function (features) that returns a batch"),
    Part("training.compute_metrics", ("eval_prediction",), "a dict of names and numbers", changes_training=False),
    Part("training.preprocess_logits_for_metrics", ("logits", "labels"), "a tensor", changes_training=False),
    Part("training.callbacks", (), "a paddlenlp.trainer.TrainerCallback", changes_training=False),
)


def part_of(key: str) -> Part:
    """The entry of `key`."""
    return next(part for part in PARTS if part.key == key)


def names_of(recipe: Recipe, part: Part) -> tuple[str, ...]:
    """What the recipe names for `part`, in order; empty if it names nothing."""
    value = attrgetter(part.key)(recipe)
    return value if isinstance(value, tuple) else () if value is None else (value,)


def named_parts(recipe: Recipe) -> Iterator[tuple[Part, str]]:
    """Every part that the recipe names."""
    for part in PARTS:
        for name in names_of(recipe, part):
            yield part, name


def _form(recipe: Recipe) -> Iterator[Finding]:
    for part, name in named_parts(recipe):
        if not NAME.fullmatch(name):
            function = part.key.rpartition(".")[2]
            message = f"{part.key} {name!r} is not of the form package.module:function"
            yield Finding((part.key,), message, f"for example my_project.parts:my_{function}")


def _own_optimizer(recipe: Recipe) -> Iterator[Finding]:
    if recipe.training.optimizer is None:
        return
    for key in ("groups", "layer_decay"):
        if getattr(recipe.optimizer, key):
            keys = ("training.optimizer", f"optimizer.{key}")
            hint = f"set the rates in your function, or remove training.optimizer or optimizer.{key}"
            yield Finding(keys, f"training.optimizer makes the optimizer, and optimizer.{key} would not reach it", hint)
    if recipe.training.sharding:
        keys = ("training.optimizer", "training.sharding")
        yield Finding(keys, "sharding spreads the state of nlpctl's own optimizer only", "remove one of them")


def _lonely_preprocessing(recipe: Recipe) -> Iterator[Finding]:
    training = recipe.training
    if training.preprocess_logits_for_metrics is not None and training.compute_metrics is None:
        keys = ("training.preprocess_logits_for_metrics", "training.compute_metrics")
        yield Finding(keys, "preprocess_logits_for_metrics prepares for compute_metrics, which is not set", "set both")


PART_CHECKS: tuple[Check, ...] = (_form, _own_optimizer, _lonely_preprocessing)
