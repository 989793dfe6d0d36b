"""Checks of the section `distillation`: keys that exclude each other, or that belong to another kind of student."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator

from nlpctl.config.finding import Check, Finding
from nlpctl.config.model_section import ModelSection
from nlpctl.config.network_checks import NETWORK_CHECKS
from nlpctl.config.positions import display
from nlpctl.config.schema import Recipe

# Keys of a student that is made of the teacher's layers.
_OF_LAYERS = ("num_hidden_layers", "layers", "width")
# Weights of losses between two transformers with the same tokens.
_INSIDE = ("hidden", "attention", "relations")


def _one_student(recipe: Recipe) -> Iterator[Finding]:
    section = recipe.distillation
    given = [name for name in _OF_LAYERS if vars(section)[name] not in (None, (), 1.0)]
    own_model = section.model != ModelSection()
    if section.student is not None and own_model:
        keys = ("distillation.student", "distillation.model")
        yield Finding(keys, "two students: distillation.student and distillation.model", "give one of them")
    if given and (section.student is not None or section.model.from_scratch or section.model.name_or_path):
        other = "distillation.student" if section.student is not None else "distillation.model"
        keys = (f"distillation.{given[0]}", other)
        message = f"distillation.{given[0]} is for a student made of the teacher's layers"
        yield Finding(keys, message, f"remove it, or remove {other}")
    if section.model.name_or_path is not None and section.model.from_scratch is not None:
        keys = ("distillation.model.name_or_path", "distillation.model.from_scratch")
        yield Finding(keys, "both name_or_path and from_scratch of the student are set", "set one of them to null")
    if section.layers and section.num_hidden_layers is not None:
        keys = ("distillation.layers", "distillation.num_hidden_layers")
        yield Finding(keys, "distillation.layers and distillation.num_hidden_layers are both set", "keep one of them")
    if len(set(section.layers)) < len(section.layers):
        yield Finding(("distillation.layers",), "distillation.layers names a layer twice", "name it once")


def _inside_needs_the_same_tokens(recipe: Recipe) -> Iterator[Finding]:
    section = recipe.distillation
    if section.model.from_scratch is None:
        return
    for name in _INSIDE:
        if vars(section)[name]:
            keys = (f"distillation.{name}", "distillation.model.from_scratch")
            message = f"distillation.{name} compares layers, but this student has its own vocabulary"
            yield Finding(keys, message, "set it to 0: this student learns from the logits")


def _temperature(recipe: Recipe) -> Iterator[Finding]:
    if recipe.distillation.temperature != 1.0 and recipe.distillation.loss == "mse":
        keys = ("distillation.temperature", "distillation.loss")
        yield Finding(keys, "a temperature has no effect on a squared error", "set distillation.loss: kl")


def _network(recipe: Recipe) -> Iterator[Finding]:
    """The checks of the section model, of the student's."""
    student = dataclasses.replace(recipe, model=recipe.distillation.model)
    for check in NETWORK_CHECKS:
        for finding in check(student):
            keys = tuple(f"distillation.{key}" if key.startswith("model.") else key for key in finding.keys)
            hint = finding.hint.replace("model.", "distillation.model.")
            yield Finding(keys, f"the student: {finding.message}", hint)


def _files(recipe: Recipe) -> Iterator[Finding]:
    section = recipe.distillation
    files = {"student": () if section.student is None else (section.student,), "unlabelled": section.unlabelled}
    for name, paths in files.items():
        for path in paths:
            if not os.path.isfile(path):
                key = f"distillation.{name}"
                yield Finding((key,), f"{key}: there is no file {display(path)}", "relative paths start at the recipe")


DISTILLATION_CHECKS: tuple[Check, ...] = (_one_student, _inside_needs_the_same_tokens, _temperature, _network)
DISTILLATION_FILES: tuple[Check, ...] = (_files,)  # of which a trained model needs none
