"""Checks of the keys that change, freeze or group parameters; which names match is known once there is a network."""

from __future__ import annotations

import os
from collections.abc import Iterator

from nlpctl.config.distributions import BadDistribution, is_distribution, read_distribution
from nlpctl.config.finding import Check, Finding
from nlpctl.config.positions import display
from nlpctl.config.schema import Recipe

_RATE, _DECAY = "learning_rate", "weight_decay"


def _groups(recipe: Recipe) -> Iterator[Finding]:
    for i, group in enumerate(recipe.optimizer.groups):
        where = f"optimizer.groups.{i}"
        if not group.match:
            yield Finding((where,), f"{where} matches nothing", "give it match: a name or a pattern")
        if group.learning_rate is None and group.weight_decay is None:
            yield Finding((where,), f"{where} changes nothing", f"give it {_RATE} or {_DECAY}, or delete it")
        if group.learning_rate is not None and group.learning_rate <= 0:
            message = f"{where}.{_RATE} is {group.learning_rate}"
            yield Finding((f"{where}.{_RATE}",), message, "it must be above 0; model.freeze stops training")
        if group.weight_decay is not None and group.weight_decay < 0:
            message = f"{where}.{_DECAY} is {group.weight_decay}"
            yield Finding((f"{where}.{_DECAY}",), message, "it must be at least 0")


def _pairs(recipe: Recipe) -> Iterator[Finding]:
    for pair in recipe.model.tie:
        if len(pair) != 2:
            hint = "write [[classifier.weight, other.weight]]; several pairs share with one: [[a, b], [a, c]]"
            yield Finding(("model.tie",), f"model.tie: {list(pair)} is not a pair", hint)


def _values(recipe: Recipe) -> Iterator[Finding]:
    texts = [value for value in recipe.model.set_parameters.values() if isinstance(value, str)]
    cut = any(is_distribution(text) and text.count("(") > text.count(")") for text in texts)
    for name, value in recipe.model.set_parameters.items():
        key = f"model.set_parameters.{name}"
        if isinstance(value, str) and is_distribution(value):
            yield from _distribution(key, value)
        elif isinstance(value, str) and not value.endswith(".npy"):
            yield Finding((key,), f"{key}: {display(value)} is no .npy file", "numpy.save(FILE, array) writes one")
        elif isinstance(value, str) and not os.path.isfile(value):
            yield Finding((key,), f"{key}: there is no file {display(value)}", "relative paths start at the recipe")
        elif value is None and cut:
            continue  # YAML cuts {w: normal(0, 0.02)} at the comma: the first half is reported, this is the second
        elif not isinstance(value, str) and (value is None or isinstance(value, bool)):
            hint = "give a number, a .npy file, or a distribution such as normal(0, 0.02)"
            yield Finding((key,), f"{key} has no number", hint)


def _distribution(key: str, text: str) -> Iterator[Finding]:
    try:
        read_distribution(text)
    except BadDistribution as error:
        yield Finding((key,), f"{key}: {error}", error.hint)


def _tokens(recipe: Recipe) -> Iterator[Finding]:
    tokens = recipe.model.add_tokens
    if isinstance(tokens, str) and not os.path.isfile(tokens):
        hint = "give a file with one word per line, or a list: [新冠, 比亚迪]"
        yield Finding(("model.add_tokens",), f"model.add_tokens: there is no file {display(tokens)}", hint)


def _vocabulary_file(recipe: Recipe) -> Iterator[Finding]:
    file = None if recipe.model.from_scratch is None else recipe.model.from_scratch.vocabulary
    if file is not None and not os.path.isfile(file):
        key = "model.from_scratch.vocabulary"
        yield Finding((key,), f"{key}: there is no file {display(file)}", "give a file with one entry per line")


# A model that was trained needs none of them any more, nor the files that they name.
PARAMETER_CHECKS: tuple[Check, ...] = (_groups, _pairs, _values, _tokens, _vocabulary_file)
