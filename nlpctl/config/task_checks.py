"""Checks of what belongs to single tasks. A key that is set and does nothing misleads whoever reads the recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nlpctl.config.finding import Check, Finding, value_of
from nlpctl.config.keys import find_key
from nlpctl.config.prompt_template import parse_template
from nlpctl.config.schema import Recipe

_TAGGING = ("token_classification", "lexical_analysis")
_READING = ("question_answering",)
_ONE_LABEL = ("sequence_classification", "text_matching", "few_shot_classification")
_CLASSIFYING = (*_ONE_LABEL, "multi_label_classification")

# Key -> the tasks that read it. What is not here is read by all of them.
READ_BY: Mapping[str, tuple[str, ...]] = {
    "model.head": _TAGGING,
    "data.columns.label": (*_CLASSIFYING, "semantic_indexing"),
    "data.columns.text_pair": (*_CLASSIFYING, "semantic_indexing"),
    "data.columns.tokens": _TAGGING,
    "data.columns.tags": _TAGGING,
    "data.columns.question": _READING,
    "data.columns.context": _READING,
    "data.columns.answers": _READING,
    "data.columns.negative": ("semantic_indexing",),
    "data.label_separator": ("multi_label_classification",),
    "data.doc_stride": (*_TAGGING, *_READING),
    "data.unit": _TAGGING,
    "decode.terms": _TAGGING,
    "decode.threshold": ("multi_label_classification",),
    "decode.n_best": (*_READING, "masked_language_model"),
    "decode.max_answer_length": _READING,
    "decode.null_threshold": _READING,
    "data.balance.method": _ONE_LABEL,
    "data.balance.counts": _ONE_LABEL,
    "decode.tune": _ONE_LABEL,
    "loss.class_weights": _CLASSIFYING,
    "loss.weights": _CLASSIFYING,
    "loss.focal_gamma": _CLASSIFYING,
    "loss.focal_alpha": _CLASSIFYING,
    "loss.label_smoothing": _CLASSIFYING,
    "masking.probability": ("masked_language_model",),
    "masking.whole_words": ("masked_language_model",),
    "masking.dictionary": ("masked_language_model",),
    "prompt.template": ("few_shot_classification",),
    "prompt.verbalizer": ("few_shot_classification",),
    "retrieval.pooling": ("semantic_indexing",),
    "retrieval.embedding_size": ("semantic_indexing",),
    "retrieval.scale": ("semantic_indexing",),
    "retrieval.margin": ("semantic_indexing",),
}
FORMATS_READ_BY: Mapping[str, tuple[str, ...]] = {"conll": _TAGGING, "joined": _TAGGING, "squad": _READING}


def _named(tasks: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(tasks[:-1]), tasks[-1]) if part)


def _keys_of_other_tasks(recipe: Recipe) -> Iterator[Finding]:
    if not recipe.task:
        return
    for dotted, tasks in READ_BY.items():
        key = find_key(dotted)
        if key is not None and recipe.task not in tasks and value_of(recipe, dotted) != key.default:
            message = f"{dotted} does nothing for {recipe.task}"
            hint = f"delete it; it is for {_named(tasks)}"
            if dotted == "data.columns.label" and recipe.task in _TAGGING:
                hint = "name the column of the tags: data.columns.tags"
            yield Finding((dotted, "task"), message, hint)


def _format_of_other_tasks(recipe: Recipe) -> Iterator[Finding]:
    tasks = FORMATS_READ_BY.get(recipe.data.format)
    if recipe.task and tasks is not None and recipe.task not in tasks:
        message = f"{recipe.task} cannot read data.format: {recipe.data.format}"
        yield Finding(("data.format", "task"), message, f"it is for {_named(tasks)}; convert the file to jsonl")


def _prompt(recipe: Recipe) -> Iterator[Finding]:
    """Few-shot classification: the template can be read, and there are words for the labels."""
    if recipe.task != "few_shot_classification":
        return
    template, verbalizer = recipe.prompt.template, recipe.prompt.verbalizer
    hint = "such as prompt.template: \"{'text': 'text'} It was {'mask'}.\""
    if template is None:
        yield Finding(("prompt.template", "task"), "few-shot classification needs a template", hint)
    else:
        try:
            pair = any(part.get("text") == "text_pair" for part in parse_template(template))
        except ValueError as error:
            yield Finding(("prompt.template",), f"prompt.template: {error}", hint)
        else:
            column = recipe.data.columns.text_pair
            if pair is not (column is not None):
                keys = ("prompt.template", "data.columns.text_pair")
                place = "the template, but no column" if pair else "a column, not the template"
                message = f"the second text is in {place}"
                yield Finding(keys, message, "put {'text': 'text_pair'} and data.columns.text_pair: COLUMN, or neither")
    if not verbalizer:
        hint = "give each label its word: prompt.verbalizer: {pos: great, neg: terrible}"
        yield Finding(("prompt.verbalizer", "task"), "few-shot classification needs words for the labels", hint)


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
        yield Finding(keys, "focal_alpha without focal loss", "set loss.focal_gamma: 2.0, or take loss.weights")
    for dotted, used in (
        ("data.balance.method", balance.method is not None),
        ("data.balance.counts", bool(balance.counts)),
        ("loss.class_weights", loss.class_weights is not None),
    ):
        if used and recipe.data.streaming:
            message = f"{dotted} counts the rows, and a stream cannot be counted before it is read"
            yield Finding((dotted, "data.streaming"), message, "set data.streaming: false, or give loss.weights")


def _weights_are_numbers(recipe: Recipe) -> Iterator[Finding]:
    for label, weight in recipe.loss.weights.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or weight < 0:
            message = f"loss.weights.{label}: {weight!r} is no weight"
            yield Finding(("loss.weights",), message, "give a number from 0 on")


def _tuning_has_data(recipe: Recipe) -> Iterator[Finding]:
    has_dev = recipe.data.dev or (recipe.data.dataset is not None and recipe.data.splits.dev is not None)
    if recipe.decode.tune is not None and not has_dev:
        message = "thresholds are searched on dev data, and there are none"
        yield Finding(("decode.tune", "data.dev"), message, "set data.dev")


TASK_CHECKS: tuple[Check, ...] = (
    _keys_of_other_tasks,
    _format_of_other_tasks,
    _prompt,
    _balance,
    _weights_are_numbers,
    _tuning_has_data,
)
