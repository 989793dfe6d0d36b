"""Checks of keys that not every task reads, and the checks of each task.

A key without effect would mislead readers of the recipe.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nlpctl.config.finding import Check, Finding, value_of
from nlpctl.config.keys import find_key
from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import known_tasks, task_info
from nlpctl.config.tasks.info import TaskInfo

# What not every task reads, in the order of the problems. A task names in its `keys` those that it reads.
TASK_KEYS = (
    "model.head",
    "data.columns.label",
    "data.columns.text_pair",
    "data.columns.tokens",
    "data.columns.tags",
    "data.columns.question",
    "data.columns.context",
    "data.columns.answers",
    "data.columns.negative",
    "data.tag_map",
    "data.label_separator",
    "data.doc_stride",
    "data.unit",
    "decode.terms",
    "decode.replacements",
    "decode.entity_types",
    "decode.threshold",
    "decode.n_best",
    "decode.max_answer_length",
    "decode.null_threshold",
    "data.balance.method",
    "data.balance.counts",
    "decode.tune",
    "loss.class_weights",
    "loss.weights",
    "loss.focal_gamma",
    "loss.focal_alpha",
    "loss.label_smoothing",
    "masking.probability",
    "masking.whole_words",
    "masking.dictionary",
    "prompt.template",
    "prompt.verbalizer",
    "few_shot.method",
    "few_shot.pairs",
    "few_shot.pooling",
    "few_shot.layers",
    "retrieval.pooling",
    "retrieval.embedding_size",
    "retrieval.scale",
    "retrieval.margin",
    "inference.min_confidence",
)


def _named(tasks: Iterable[TaskInfo]) -> str:
    *others, last = [task.name for task in tasks]
    return f"{', '.join(others)} and {last}" if others else last


def _keys_of_other_tasks(recipe: Recipe) -> Iterator[Finding]:
    info = task_info(recipe.task)
    if info is None:
        return
    for dotted in TASK_KEYS:
        key = find_key(dotted)
        if key is not None and not info.reads(dotted) and value_of(recipe, dotted) != key.default:
            message = f"{dotted} has no effect for {recipe.task}"
            hint = f"delete it; it applies to {_named(task for task in known_tasks() if task.reads(dotted))}"
            if dotted == "data.columns.label" and info.tags:
                hint = "name the column of the tags: data.columns.tags"
            yield Finding((dotted, "task"), message, hint)


def _format_of_other_tasks(recipe: Recipe) -> Iterator[Finding]:
    info, by_split = task_info(recipe.task), recipe.data.by_split
    places = {"data.format": recipe.data.format, "data.by_split.train.format": by_split.train.format}
    places |= {"data.by_split.dev.format": by_split.dev.format, "data.by_split.test.format": by_split.test.format}
    for key, value in places.items():
        readers = [task for task in known_tasks() if value in task.formats]
        if info is not None and readers and info not in readers:
            message = f"{recipe.task} cannot read {key}: {value}"
            yield Finding((key, "task"), message, f"it is for {_named(readers)}; convert the file to jsonl")


def _its_own(recipe: Recipe) -> Iterator[Finding]:
    info = task_info(recipe.task)
    for check in info.checks if info is not None else ():
        yield from check(recipe)


def _balance(recipe: Recipe) -> Iterator[Finding]:
    balance, loss = recipe.data.balance, recipe.loss
    if balance.method is not None and balance.counts:
        keys = ("data.balance.method", "data.balance.counts")
        yield Finding(keys, "both data.balance.method and data.balance.counts are set", "delete one of them")
    if loss.class_weights is not None and loss.weights:
        keys = ("loss.class_weights", "loss.weights")
        yield Finding(keys, "both loss.class_weights and loss.weights are set", "delete one of them")
    if loss.focal_alpha is not None and loss.focal_gamma is None:
        keys = ("loss.focal_alpha", "loss.focal_gamma")
        yield Finding(keys, "focal_alpha without focal loss", "set loss.focal_gamma: 2.0, or use loss.weights")
    for dotted, used in (
        ("data.balance.method", balance.method is not None),
        ("data.balance.counts", bool(balance.counts)),
        ("loss.class_weights", loss.class_weights is not None),
    ):
        if used and recipe.data.streaming:
            message = f"{dotted} counts the rows, and a stream cannot be counted before it is read"
            yield Finding((dotted, "data.streaming"), message, "set data.streaming: false, or give loss.weights")


def _tag_map_has_a_model(recipe: Recipe) -> Iterator[Finding]:
    if recipe.data.tag_map and recipe.model.from_scratch is not None:
        message = "data.tag_map names what a trained model learnt, and this one starts from scratch"
        yield Finding(("data.tag_map", "model.from_scratch"), message, "delete one of them")


def _weights_are_numbers(recipe: Recipe) -> Iterator[Finding]:
    for label, weight in recipe.loss.weights.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or weight < 0:
            message = f"loss.weights.{label}: {weight!r} is not a weight"
            yield Finding(("loss.weights",), message, "give a number of 0 or more")
            return
    if recipe.loss.weights and not any(recipe.loss.weights.values()):
        message = "loss.weights are all 0, so no row would count"
        yield Finding(("loss.weights",), message, "give at least one label a weight above 0")


def _tuning_has_data(recipe: Recipe) -> Iterator[Finding]:
    has_dev = recipe.data.dev or (recipe.data.dataset is not None and recipe.data.splits.dev is not None)
    if recipe.decode.tune is not None and not has_dev:
        message = "thresholds are searched on dev data, and there is none"
        yield Finding(("decode.tune", "data.dev"), message, "set data.dev")


TASK_CHECKS: tuple[Check, ...] = (
    _keys_of_other_tasks,
    _format_of_other_tasks,
    _its_own,
    _balance,
    _tag_map_has_a_model,
    _weights_are_numbers,
    _tuning_has_data,
)
