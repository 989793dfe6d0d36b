"""One label per text from a handful of examples: the task is phrased as a sentence with a mask."""

from __future__ import annotations

from collections.abc import Iterator

from nlpctl.config.finding import Finding
from nlpctl.config.prompt_template import parse_template
from nlpctl.config.schema import Recipe
from nlpctl.config.tasks.info import TaskInfo


def _template(recipe: Recipe) -> Iterator[Finding]:
    """The template can be read, and asks for as many texts as there are columns."""
    template, hint = recipe.prompt.template, "such as prompt.template: \"{'text': 'text'} It was {'mask'}.\""
    if template is None:
        yield Finding(("prompt.template", "task"), "few-shot classification needs a template", hint)
        return
    try:
        pair = any(part.get("text") == "text_pair" for part in parse_template(template))
    except ValueError as error:
        yield Finding(("prompt.template",), f"prompt.template: {error}", hint)
        return
    column = recipe.data.columns.text_pair
    if pair is not (column is not None):
        keys = ("prompt.template", "data.columns.text_pair")
        place = "the template, but no column" if pair else "a column, not the template"
        message = f"the second text is in {place}"
        yield Finding(keys, message, "put {'text': 'text_pair'} and data.columns.text_pair: COLUMN, or neither")


def _words_for_labels(recipe: Recipe) -> Iterator[Finding]:
    if not recipe.prompt.verbalizer:
        hint = "give each label its word: prompt.verbalizer: {pos: great, neg: terrible}"
        yield Finding(("prompt.verbalizer", "task"), "few-shot classification needs words for the labels", hint)


FEW_SHOT_CLASSIFICATION = TaskInfo(
    "few_shot_classification",
    "One label per text from a handful of examples: a language model fills the mask of a template.",
    ("accuracy", "macro_f1", "micro_f1", "weighted_f1", "loss"),
    task="nlpctl.tasks.few_shot_classification:FewShotClassification",
    rows="nlpctl.data.text_rows:TextRows",
    keys=("data.columns.label", "data.columns.text_pair", "data.balance", "decode.tune", "loss", "prompt"),
    checks=(_template, _words_for_labels),
    explainable=True,
    augmentable=True,
    soft_loss="nlpctl.compression.networks.soft_targets:label_loss",
)
