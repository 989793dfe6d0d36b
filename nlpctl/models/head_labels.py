"""The labels of a head that PaddleNLP or Transformers saved: what config.json says, and what the recipe says of it.

config.json names the outputs (id2label), or only counts them: LABEL_0, LABEL_1, ... stand for a count. Labels of the
recipe fit names by name, in any order, and a count by position. Imports neither Paddle nor NumPy.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.config.saved_model import written_class, written_classes
from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import known_tasks, task_info
from nlpctl.data.readers.lines import refuse_surrogates
from nlpctl.data.rows.labels import LabelSet, given_labels
from nlpctl.data.rows.tag_scheme import detect_scheme
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.errors import UserError
from nlpctl.models.source import read_config
from nlpctl.names import counted, listed

NAME_THEM = "name them in the order of the outputs: @[data.labels=neg,pos], or data.labels in a recipe"
_MOST_LABELS = 1_000_000
_LABELLED = ("SequenceClassification", "TokenClassification")  # classes with an output per label, 2 by default


def config_labels(config: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The labels that a config names (id2label), or LABEL_0 ... by its count; None where it has neither.

    UserError: the keys of id2label are not the ids of outputs, a name is none or is there twice; the count is none.
    """
    return _labels(config, count_alone=False)


def counted_labels(config: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The same for whoever needs none of the names: those that are of no outputs are counted."""
    return _labels(config, count_alone=True)


def _labels(config: Mapping[str, Any], count_alone: bool) -> tuple[str, ...] | None:
    names = config.get("id2label")
    if isinstance(names, dict) and names:
        return _in_order(names, count_alone)
    count = config.get("num_labels") or config.get("num_classes")
    if count is None and not any(name.endswith(_LABELLED) for name in written_classes(config)):
        return None
    if count is not None and not (type(count) is int and 0 < count <= _MOST_LABELS):
        message = f"num_labels is {str(count)[:40]!r}, which is no number of labels"
        raise UserError(message, "config.json", "copy config.json again from where the model came from")
    return numbered(count or 2)


def numbered(count: int) -> tuple[str, ...]:
    """What PaddleNLP and Transformers call labels without names."""
    return tuple(f"LABEL_{index}" for index in range(count))


def are_names(labels: tuple[str, ...]) -> bool:
    """Whether `labels` are more than a count. The name of the only one says nothing."""
    return len(labels) > 1 and labels != numbered(len(labels))


def is_match_logit(labels: Collection[str] | None) -> bool:
    """Whether a head over `labels` has one logit only, as that of a CrossEncoder: its sigmoid says how probable it is
    that two texts match."""
    return labels is not None and len(labels) == 1


def check_given_labels(recipe: Recipe, folder: Path) -> None:
    """`wanted_labels` of the config in `folder`, for a command that has not loaded the model: UserError if it fails."""
    config = read_config(folder)
    if not (task_info(recipe.task).labelled and written_class(config).endswith(_LABELLED)):
        return
    labels = config_labels(config) if given_labels(recipe.data) is None else counted_labels(config)
    if labels:
        wanted_labels(recipe, labels, str(folder))


def wanted_labels(recipe: Recipe, own: tuple[str, ...], folder: str) -> tuple[str, ...]:
    """The labels of a trained head, which its config calls `own`, as `recipe` calls and orders them.

    UserError: there are more or fewer, they have other names, or the task needs names and nobody gives them.
    """
    rows, given = task_rows(recipe.task, recipe.data), given_labels(recipe.data)
    if is_match_logit(own) and task_info(recipe.task).matches:
        return rows.prepare_labels(given if given is not None else LabelSet(("0", "1"))).names
    if given is not None or are_names(own):
        if given is None and task_info(recipe.task).tags:
            _refuse_without_marks(own, folder)
        wanted = rows.prepare_labels(given if given is not None else LabelSet(own)).names
        _check(recipe, wanted, own, folder)
        return wanted
    rows.prepare_labels(LabelSet(map(str, range(len(own)))))  # whether the task can do with so many
    if task_info(recipe.task).tags:
        message = f"config.json says that there are {len(own)} tags, but not which"
        raise UserError(message, where=folder, hint=NAME_THEM.replace("neg,pos", "O,B-PER,I-PER"))
    return own


def _refuse_without_marks(own: tuple[str, ...], folder: str) -> None:
    """UserError for names that are of no scheme of tags: here they cannot be changed but in config.json."""
    try:
        detect_scheme(own, "id2label in config.json")
    except UserError as error:
        hint = f"give them marks in config.json of {folder}: I-PER for PER, where words beside each other are one "
        hint += "entity; B-NOUN for NOUN, where each word is one"
        raise UserError(error.problems[0].message, "id2label in config.json", hint) from None


def tell_unnamed(labels: tuple[str, ...], folder: str) -> None:
    """Say that nobody names `labels`, where that is so."""
    if labels == numbered(len(labels)):
        answers = f"does not name its {counted(len(labels), 'labels')}, so answers say LABEL_0 and so on"
        console.note(f"config.json of {folder} {answers}: {NAME_THEM}")


def _check(recipe: Recipe, wanted: tuple[str, ...], own: tuple[str, ...], folder: str) -> None:
    """UserError if `wanted` cannot be the labels of the head."""
    where = recipe.where("data.labels")
    if len(wanted) != len(own):
        names = f": {listed(own)}" if are_names(own) else ""
        message = f"{len(wanted)} labels ({listed(wanted)}) for a head with {len(own)} outputs{names}"
        raise UserError(message, where, f"name as many as {folder} has, or train on these labels first (nlpctl train)")
    if are_names(own) and set(wanted) != set(own):
        message = f"the labels {listed(wanted)} are not those of the head: {listed(own)} (id2label)"
        hint = f"write them as config.json of {folder} does, in any order; or correct id2label there"
        raise UserError(message, where, hint)


def serves_another_task(class_name: str, head: str) -> bool:
    """Whether `class_name` (BertForTokenClassification) has the head of a task other than that of `head`."""
    kinds = {task.network_class for task in known_tasks() if task.network_class is not None}
    return any(class_name.endswith(f"For{kind}") for kind in kinds - {head})


def _in_order(names: Mapping[str, Any], count_alone: bool) -> tuple[str, ...]:
    try:
        ids = sorted(names, key=int)
    except ValueError:
        raise UserError("the keys are not numbers", "id2label in config.json", "write the id of each label") from None
    if [int(each) for each in ids] != list(range(len(ids))):
        if count_alone:
            return numbered(len(ids))
        message = f"its ids are {listed(ids)}, and those of the outputs are 0 to {len(ids) - 1}"
        raise UserError(message, "id2label in config.json", "number the labels in the order of the outputs, from 0")
    labels = tuple(_name(each, names[each]) for each in ids)
    twice = [label for label, count in Counter(labels).items() if count > 1]
    if twice:
        raise UserError(f"{min(twice)!r} is there twice", "id2label in config.json", "give each label its own name")
    return labels


def _name(id: str, name: Any) -> str:
    """A label as text. UserError: it is none, or no file can hold it, which an export would notice after its work."""
    where, hint = "id2label in config.json", "write the name of each label"
    if not isinstance(name, str | int | float):
        raise UserError(f"the label {id} is {json.dumps(name)[:40]}, and must be a text", where, hint)
    try:
        refuse_surrogates(str(name), f"the label {id}")
    except ValueError as error:
        raise UserError(str(error), where, hint) from None
    return str(name)
