"""Checks before training: settings of the Trainer that PaddleNLP refuses only once everything is loaded, or
fails on without saying why."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from nlpctl.config.finding import Check, Finding
from nlpctl.config.schema import Recipe

MLFLOW = "mlflow"  # what training.report_to calls it; PaddleNLP does not know it
INSTALL_MLFLOW = "pip install 'nlpctl[mlflow]'"

# What training.report_to names -> the packages of which it needs one.
_REPORTERS = {
    "visualdl": ("visualdl",),
    "tensorboard": ("tensorboardX", "tensorboard"),
    "wandb": ("wandb",),
    "autonlp": ("ray",),
    MLFLOW: ("mlflow",),
}


def _optimizer(recipe: Recipe) -> Iterator[Finding]:
    if recipe.training.optim == "adafactor":
        yield Finding(("training.optim",), "PaddleNLP's Trainer has no adafactor", "set training.optim: adamw")


def _reporters(recipe: Recipe) -> Iterator[Finding]:
    for name in recipe.training.report_to or ():
        packages = _REPORTERS.get(name, ())  # "all" and "none" need nothing
        if packages and not any(importlib.util.find_spec(package) for package in packages):
            message = f"training.report_to: {name} is not installed"
            install = INSTALL_MLFLOW if name == MLFLOW else f"pip install {packages[0]}"
            yield Finding(("training.report_to",), message, f"{install}, or set it to visualdl or none")


def _evaluation_steps(recipe: Recipe) -> Iterator[Finding]:
    if recipe.training.minimum_eval_times is not None and recipe.training.eval_steps is None:
        keys = ("training.minimum_eval_times", "training.eval_steps")
        yield Finding(keys, "minimum_eval_times lowers eval_steps, which is not set", "set training.eval_steps")


TRAINING_CHECKS: tuple[Check, ...] = (_optimizer, _reporters, _evaluation_steps)
