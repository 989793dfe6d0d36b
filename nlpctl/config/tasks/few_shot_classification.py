"""One label per text from a handful of examples: by a prompt, or by pairs of rows for a sentence encoder."""

from __future__ import annotations

from collections.abc import Iterator

from nlpctl.config.finding import Finding, value_of
from nlpctl.config.keys import find_key
from nlpctl.config.prompt_template import parse_template
from nlpctl.config.schema import Recipe
from nlpctl.config.tasks.info import ANNOTATED, Start, TaskInfo
from nlpctl.config.tasks.starts import TRANSFORMER

_EXAMPLE = "such as prompt.template: \"{'text': 'text'} It was {'mask'}.\""
OWN_LOSS = (
    "few_shot.method: contrastive trains on pairs of rows with a loss of its own, which no other can replace",
    "remove training.criterion, or use few_shot.method: prompt",
)
# What one of the methods does not read.
_OF_PROMPT = ("prompt.template", "prompt.verbalizer", "loss.focal_gamma", "loss.focal_alpha", "loss.label_smoothing")
_OF_CONTRASTIVE = ("few_shot.pairs", "few_shot.pooling", "few_shot.layers")


def _prompts(recipe: Recipe) -> bool:
    """Whether the recipe is to have a prompt; under "auto", one that is begun must be complete."""
    method = recipe.few_shot.method
    return method == "prompt" or (method == "auto" and bool(recipe.prompt.template or recipe.prompt.verbalizer))


def _template(recipe: Recipe) -> Iterator[Finding]:
    """The template can be read, and asks for as many texts as there are columns."""
    template = recipe.prompt.template
    if not _prompts(recipe):
        return
    if template is None:
        hint = f"{_EXAMPLE}; or few_shot.method: contrastive, for a sentence encoder, which needs none"
        yield Finding(("prompt.template", "task"), "few-shot classification needs a template", hint)
        return
    try:
        pair = any(part.get("text") == "text_pair" for part in parse_template(template))
    except ValueError as error:
        yield Finding(("prompt.template",), f"prompt.template: {error}", _EXAMPLE)
        return
    column = recipe.data.columns.text_pair
    if pair is not (column is not None):
        keys = ("prompt.template", "data.columns.text_pair")
        place = "the template, but no column" if pair else "a column, not the template"
        message = f"the second text is in {place}"
        yield Finding(keys, message, "put {'text': 'text_pair'} and data.columns.text_pair: COLUMN, or neither")


def _words_for_labels(recipe: Recipe) -> Iterator[Finding]:
    if _prompts(recipe) and not recipe.prompt.verbalizer:
        hint = "give each label its word: prompt.verbalizer: {pos: great, neg: terrible}"
        yield Finding(("prompt.verbalizer", "task"), "few-shot classification needs words for the labels", hint)


def _keys_of_the_other_method(recipe: Recipe) -> Iterator[Finding]:
    method = recipe.few_shot.method
    for dotted in {"prompt": _OF_CONTRASTIVE, "contrastive": _OF_PROMPT}.get(method, ()):
        key = find_key(dotted)
        if key is not None and value_of(recipe, dotted) != key.default:
            message = f"{dotted} has no effect for few_shot.method: {method}"
            yield Finding((dotted, "few_shot.method"), message, "delete it, or use the other method")


def _own_loss_of_pairs(recipe: Recipe) -> Iterator[Finding]:
    if recipe.few_shot.method == "contrastive" and recipe.training.criterion is not None:
        yield Finding(("training.criterion", "few_shot.method"), *OWN_LOSS)


def _pairs_are_drawn_from_memory(recipe: Recipe) -> Iterator[Finding]:
    if recipe.data.streaming and recipe.few_shot.method != "prompt":
        message = "pairs of rows cannot be drawn from a stream"
        yield Finding(("data.streaming", "few_shot.method"), message, "set data.streaming: false")


FEW_SHOT_CLASSIFICATION = TaskInfo(
    "few_shot_classification",
    "One label per text from a handful of examples: a language model fills the mask of a template, or pairs of rows "
    "train a sentence encoder.",
    ("accuracy", "macro_f1", "micro_f1", "weighted_f1", "loss"),
    task="nlpctl.tasks.few_shot_classification:FewShotClassification",
    rows="nlpctl.data.rows.text_rows:TextRows",
    pipeline="text-classification",
    keys=(
        "data.columns.label", "data.columns.text_pair", "data.balance", "decode.tune", "few_shot", "loss", "prompt",
        "inference.min_confidence",
    ),
    formats=ANNOTATED,
    checks=(_template, _words_for_labels, _keys_of_the_other_method, _own_loss_of_pairs, _pairs_are_drawn_from_memory),
    settle="nlpctl.models.few_shot_method:settled",
    explainable=True,
    augmentable=True,
    soft_loss="nlpctl.compress.networks.soft_targets:label_loss",
    starts=(
        Start(
            "few_shot.method",
            "contrastive",
            "pairs of rows train a sentence encoder; prompt: see docs/tasks.md, needs an encoder that predicts words",
        ),
    ),
    from_scratch=TRANSFORMER,
)
