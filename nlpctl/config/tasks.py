"""The tasks: what each is and what the commands may do with it; light enough for `nlpctl --help`.

A new task is a `TaskInfo` and a line in KNOWN_TASKS. Its code is elsewhere, and imported once it is needed.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nlpctl.config.hub_names import PREFIXES
from nlpctl.config.input_formats import ANNOTATED, TAGGED
from nlpctl.config.keys import find_key
from nlpctl.config.prompt_template import parse_template
from nlpctl.config.schema import Check, Finding, Recipe, value_of
from nlpctl.config.sentence_folder import PASSAGE_PROMPTS, QUERY_PROMPT
from nlpctl.errors import UserError
from nlpctl.names import nearest
from nlpctl.report.language import later

# What mistakes.json has where a row has, or is given, no entity, label or answer.
NO_ENTITY, NO_LABEL, NO_ANSWER = "(none)", "(no label)", "(no answer)"


@dataclass(frozen=True)
class Preset:
    """A value that a new recipe begins with: the dotted key, the value, and the reason, as a comment (`later`)."""

    key: str
    value: Any
    why: str = ""


@dataclass(frozen=True)
class TaskInfo:
    """One task: its name and meaning in recipes, where its code is, and what the commands may do with it.

    `task`, `rows`, `resolve_by_model` and `soft_loss` are written package.module:NAME and imported by `load` when they
    are needed. For the first two, NAME is a class, or a function without arguments that gives it, so that one module
    can hold a description and its code.
    """

    name: str
    help: str
    metrics: tuple[str, ...]  # scores that can select the best model, the most telling first
    task: str  # its subclass of nlpctl.tasks.base.Task
    rows: str  # its subclass of nlpctl.data.rows.task_rows.TaskRows
    pipeline: str | None = None  # what the Hugging Face hub calls such a task (pipeline_tag), for model cards

    # -- what it reads of a recipe --
    keys: tuple[str, ...] = ()  # keys, or whole sections, that it reads and some other task does not
    formats: tuple[str, ...] = ()  # values of data.format that not every task can read
    checks: tuple[Check, ...] = ()  # of its own, made before training
    labelled: bool = True  # it has a label set: data.labels, or collected from the training rows
    pairs: bool = False  # it needs data.columns.text_pair
    matches: bool = False  # its two labels say whether two texts match
    tags: bool = False  # it labels words, not texts
    resolve_by_model: str | None = None  # a function (recipe) -> recipe with what the model's files decide; no Paddle
    window_frame: int | None = None  # least tokens next to the text where windows must overlap; None: nothing to check

    # -- what its scores and mistakes mean --
    falling: tuple[str, ...] = ("loss",)  # the scores of which less is better
    token_scores: bool = False  # they are of single tokens, and compare no models with other vocabularies
    mistakes: str = later("are answered wrongly")  # what the rows of mistakes.json do

    # -- what can be done with it --
    by_row: bool = True  # a row is answered by itself and has its own truth, so that rows can be held out
    explainable: bool = False  # its network gives a label to a text as a whole, and `log_odds` of it
    augmentable: bool = False  # a changed text keeps its labels
    vectors: bool = False  # its predictions are vectors of texts
    ensemble_average: str | None = None  # of the members: probabilities, odds or scores (networks/ensemble.py)
    distillable: bool = False  # strategy distill can train a student on its logits
    of_tokens: bool = False  # its logits are of single tokens, so that a student has to read the same ones
    soft_loss: str | None = None  # compares the outputs of two networks: dynabert; see networks/soft_targets.py
    network_class: str | None = None  # the task of PaddleNLP's XForCLASS where nothing else names one
    problem_type: str | None = None  # of config.json, where several tasks have the same class

    # -- what a new recipe of it begins with --
    presets: tuple[Preset, ...] = ()
    from_scratch: tuple[Preset, ...] = ()  # where no pretrained encoder is at hand

    def greater_is_better(self, metric: str) -> bool:
        """Whether more of `metric` is better; it may be written with "eval_" before it.

        Of a score that is not the task's (training.compute_metrics), as in PaddleNLP: unless its name ends in "loss".
        """
        name = metric.removeprefix("eval_")
        return name not in self.falling and not name.endswith("loss")

    def reads(self, dotted: str) -> bool:
        """Whether it reads a key that not every task reads."""
        return any(dotted == key or dotted.startswith(f"{key}.") for key in self.keys)


# -- what new recipes of several tasks begin with --------------------------------------------------

SCRATCH = "model.from_scratch."
_FAR_LARGER = later("a network from scratch needs a far larger one than a pretrained encoder")

WITH_CRF = (
    Preset("model.head", "crf", later("scores whole sequences of tags: learns that no I-PER follows an O")),
    Preset(
        "optimizer.groups",
        [{"match": "crf", "learning_rate": 0.01}],
        later("transitions start at random: they need more"),
    ),
    Preset("training.metric_for_best_model", "f1", later("type and both ends right")),
)

TRANSFORMER = (
    Preset(f"{SCRATCH}architecture", "ernie"),
    Preset(f"{SCRATCH}hidden_size", 128),
    Preset(f"{SCRATCH}num_hidden_layers", 2),
    Preset(f"{SCRATCH}num_attention_heads", 4),
    Preset(f"{SCRATCH}intermediate_size", 512),
    Preset("training.learning_rate", 1e-3, _FAR_LARGER),
)

CONVOLUTION = (
    Preset(f"{SCRATCH}architecture", "textcnn", later("bilstm reads the order of words too, and is slower")),
    Preset(f"{SCRATCH}unit", "words", later("Chinese is split by jieba")),
    Preset(f"{SCRATCH}vocab_size", 20000),
    Preset(f"{SCRATCH}dropout", 0.5, later("few rows and many parameters: without dropout the network overfits")),
    Preset("training.learning_rate", 1e-3, _FAR_LARGER),
)

RECURRENT = (
    Preset(f"{SCRATCH}architecture", "bigru"),
    Preset(f"{SCRATCH}num_hidden_layers", 2),
    Preset(f"{SCRATCH}dropout", 0.5, later("few sentences and many parameters: without dropout the network overfits")),
    Preset("training.learning_rate", 2e-3, _FAR_LARGER),
)

SEQUENCE_CLASSIFICATION = TaskInfo(
    "sequence_classification",
    "One label per text, or per pair of texts.",
    ("accuracy", "macro_f1", "micro_f1", "weighted_f1", "loss"),
    task="nlpctl.tasks.sequence_classification:SequenceClassification",
    rows="nlpctl.data.rows.text_rows:TextRows",
    pipeline="text-classification",
    keys=(
        "data.columns.label", "data.columns.text_pair", "data.balance", "decode.tune", "loss",
        "inference.min_confidence",
    ),
    formats=ANNOTATED,
    explainable=True,
    augmentable=True,
    ensemble_average="probabilities",
    distillable=True,
    soft_loss="nlpctl.compress.networks.soft_targets:label_loss",
    network_class="SequenceClassification",
    from_scratch=CONVOLUTION,
)

MULTI_LABEL_CLASSIFICATION = TaskInfo(
    "multi_label_classification",
    "Any number of labels per text, flat or hierarchical (food##fruit).",
    ("micro_f1", "macro_f1", "weighted_f1", "exact_match", "loss"),
    task="nlpctl.tasks.multi_label_classification:MultiLabelClassification",
    rows="nlpctl.data.rows.multi_label_rows:MultiLabelRows",
    pipeline="text-classification",
    keys=(
        "data.columns.label", "data.columns.text_pair", "data.label_separator", "decode.threshold", "loss",
        "inference.min_confidence",
    ),
    formats=ANNOTATED,
    explainable=True,
    augmentable=True,
    ensemble_average="odds",
    distillable=True,
    soft_loss="nlpctl.compress.networks.soft_targets:many_label_loss",
    network_class="SequenceClassification",
    problem_type="multi_label_classification",
    presets=(Preset("training.metric_for_best_model", "micro_f1"),),
    from_scratch=CONVOLUTION,
)

TEXT_MATCHING = TaskInfo(
    "text_matching",
    "Whether two texts match, and how likely it is.",
    ("accuracy", "f1", "auc", "macro_f1", "loss"),
    task="nlpctl.tasks.text_matching:TextMatching",
    rows="nlpctl.data.rows.matching_rows:MatchingRows",
    pipeline="text-classification",
    keys=(
        "data.columns.label", "data.columns.text_pair", "data.balance", "decode.tune", "loss",
        "inference.min_confidence",
    ),
    formats=ANNOTATED,
    pairs=True,
    matches=True,
    explainable=True,
    augmentable=True,
    ensemble_average="probabilities",
    distillable=True,
    soft_loss="nlpctl.compress.networks.soft_targets:label_loss",
    from_scratch=TRANSFORMER,
)


def _default_prompt(recipe: Recipe) -> Iterator[Finding]:
    # A model that is known by a name alone may have more of them: models/sentence_model.py asks once it has these.
    if not (recipe.model.name_or_path or "").startswith(PREFIXES):
        yield from unknown_prompt(recipe)


def unknown_prompt(recipe: Recipe) -> Iterator[Finding]:
    """A retrieval.default_prompt that is none of retrieval.prompts."""
    name, prompts = recipe.retrieval.default_prompt, recipe.retrieval.prompts
    if name is not None and name not in prompts:
        message = f"there is no prompt {name!r} in retrieval.prompts"
        near = nearest(name, prompts)
        hint = f"did you mean {near}?" if near else f"one of {', '.join(prompts) or '(none)'}; or write it there"
        yield Finding(("retrieval.default_prompt",), message, hint)


def _misspelt_prompts(recipe: Recipe) -> Iterator[Finding]:
    """Names that somebody wrote for this training, which no text asks for, and which are like one that texts do."""
    said = {name: recipe.origins.get(f"retrieval.prompts.{name}") for name in recipe.retrieval.prompts}
    model = recipe.model.name_or_path or ""
    written = [
        name
        for name, origin in said.items()
        if origin is not None and origin.opened is None and (origin.line is not None or origin.source.startswith("--"))
    ]
    asked = {QUERY_PROMPT, *PASSAGE_PROMPTS, *(said.keys() - {*written})}  # the last: those of the model's folder
    for name in () if model.startswith(PREFIXES) else written:  # such a folder may have names of its own
        near = nearest(name, asked)
        if name not in asked and name != recipe.retrieval.default_prompt and near is not None:
            hint = f"did you mean {near}? Another name has to be that of retrieval.default_prompt"
            yield Finding((f"retrieval.prompts.{name}",), f"no text asks for a prompt {name!r}", hint)


def _projected_activation(recipe: Recipe) -> Iterator[Finding]:
    if recipe.retrieval.activation != "none" and recipe.retrieval.embedding_size is None:
        message = f"retrieval.activation: {recipe.retrieval.activation} without a projection has no effect"
        yield Finding(("retrieval.activation",), message, "set retrieval.embedding_size, or remove the key")


SEMANTIC_INDEXING = TaskInfo(
    "semantic_indexing",
    "Vectors by which texts that belong together find each other.",
    ("recall@1", "recall@5", "recall@10", "recall@50", "mrr", "loss"),
    task="nlpctl.tasks.semantic_indexing:SemanticIndexing",
    rows="nlpctl.data.rows.retrieval_rows:RetrievalRows",
    pipeline="sentence-similarity",
    keys=("data.columns.label", "data.columns.text_pair", "data.columns.negative", "retrieval"),
    checks=(_default_prompt, _misspelt_prompts, _projected_activation),
    resolve_by_model="nlpctl.models.sentence_model:take_sentence_model",
    labelled=False,
    by_row=False,
    pairs=True,
    mistakes=later("do not rank the right text first"),
    vectors=True,
    soft_loss="nlpctl.compress.networks.soft_targets:vector_loss",
    presets=(
        Preset(
            "retrieval.pooling",
            "mean",
            later("the vector of a text is the mean over its tokens; or cls, its first token's"),
        ),
        Preset(
            "training.metric_for_best_model", "recall@10", later("share of texts whose partner is among the first ten")
        ),
    ),
    from_scratch=TRANSFORMER,
)

QUESTION_ANSWERING = TaskInfo(
    "question_answering",
    "The position of the answer to a question in a text, or that there is none.",
    ("em", "f1", "loss"),
    task="nlpctl.tasks.question_answering:QuestionAnswering",
    rows="nlpctl.data.rows.question_rows:QuestionRows",
    pipeline="question-answering",
    keys=(
        "data.columns.question",
        "data.columns.context",
        "data.columns.answers",
        "data.doc_stride",
        "decode.n_best",
        "decode.max_answer_length",
        "decode.null_threshold",
        "inference.min_confidence",
    ),
    formats=("squad",),
    labelled=False,
    window_frame=4,  # [CLS], two [SEP], and a question of one token; the task looks at the questions themselves
    ensemble_average="scores",
    distillable=True,
    of_tokens=True,
    soft_loss="nlpctl.compress.networks.soft_targets:span_loss",
    network_class="QuestionAnswering",
    presets=(
        Preset("data.doc_stride", 128, later("longer texts are read in windows that advance by so many tokens")),
        Preset("training.metric_for_best_model", "f1"),
    ),
    from_scratch=(
        *TRANSFORMER,
        Preset(
            f"{SCRATCH}hidden_size",
            128,
            later("reading needs an encoder pre-trained on the language: expect poor answers"),
        ),
    ),
)

TOKEN_CLASSIFICATION = TaskInfo(
    "token_classification",
    "Entities in a text: a tag for every word (BIO, BIOES, BMES, BILOU).",
    ("f1", "precision", "recall", "macro_f1", "weighted_f1", "accuracy", "loss"),
    task="nlpctl.tasks.token_classification:TokenClassification",
    rows="nlpctl.data.rows.tagged_rows:TaggedRows",
    pipeline="token-classification",
    keys=(
        "model.head",
        "data.columns.tokens",
        "data.columns.tags",
        "data.tag_map",
        "data.doc_stride",
        "data.unit",
        "decode.terms",
        "decode.entity_types",
        "inference.min_confidence",
    ),
    formats=(*TAGGED, *ANNOTATED),
    tags=True,
    ensemble_average="probabilities",
    distillable=True,
    soft_loss="nlpctl.compress.networks.soft_targets:tag_loss",
    network_class="TokenClassification",
    presets=WITH_CRF,
    from_scratch=RECURRENT,
)

LEXICAL_ANALYSIS = TaskInfo(
    "lexical_analysis",
    "A text split into words with their part of speech or entity type, by tagging characters.",
    ("f1", "precision", "recall", "macro_f1", "weighted_f1", "entity_f1", "accuracy", "loss"),
    task="nlpctl.tasks.lexical_analysis:LexicalAnalysis",
    rows="nlpctl.data.rows.tagged_rows:LexicalRows",
    pipeline="token-classification",
    keys=(*TOKEN_CLASSIFICATION.keys, "decode.replacements"),
    formats=(*TAGGED, *ANNOTATED),
    tags=True,
    ensemble_average="probabilities",
    distillable=True,
    soft_loss="nlpctl.compress.networks.soft_targets:tag_loss",
    presets=WITH_CRF,
    from_scratch=RECURRENT,
)

MASKED_LANGUAGE_MODEL = TaskInfo(
    "masked_language_model",
    "Continues the pre-training of an encoder: words of plain text are hidden and predicted.",
    ("perplexity", "masked_accuracy", "loss"),
    task="nlpctl.tasks.masked_language_model:MaskedLanguageModel",
    rows="nlpctl.data.rows.corpus_rows:CorpusRows",
    pipeline="fill-mask",
    keys=("decode.n_best", "masking"),
    labelled=False,
    by_row=False,
    falling=("perplexity", "loss"),
    token_scores=True,
    mistakes=later("have hidden tokens that were not predicted"),
    augmentable=True,
    from_scratch=TRANSFORMER,
)

_EXAMPLE = "such as prompt.template: \"{'text': 'text'} It was {'mask'}.\""
USER_LOSS = (
    "few_shot.method: contrastive trains on pairs of rows with a loss of its own, which no other can replace",
    "remove training.criterion, or use few_shot.method: prompt",
)
# What one of the two methods of few-shot classification does not read.
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


def _user_loss_of_pairs(recipe: Recipe) -> Iterator[Finding]:
    if recipe.few_shot.method == "contrastive" and recipe.training.criterion is not None:
        yield Finding(("training.criterion", "few_shot.method"), *USER_LOSS)


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
    checks=(_template, _words_for_labels, _keys_of_the_other_method, _user_loss_of_pairs, _pairs_are_drawn_from_memory),
    resolve_by_model="nlpctl.models.few_shot_method:resolve_method",
    explainable=True,
    augmentable=True,
    soft_loss="nlpctl.compress.networks.soft_targets:label_loss",
    presets=(
        Preset(
            "few_shot.method",
            "contrastive",
            later(
                "pairs of rows train a sentence encoder; prompt: see docs/tasks.md, needs an encoder that predicts "
                "words"
            ),
        ),
    ),
    from_scratch=TRANSFORMER,
)

KNOWN_TASKS = (
    SEQUENCE_CLASSIFICATION,
    MULTI_LABEL_CLASSIFICATION,
    TEXT_MATCHING,
    SEMANTIC_INDEXING,
    QUESTION_ANSWERING,
    TOKEN_CLASSIFICATION,
    LEXICAL_ANALYSIS,
    MASKED_LANGUAGE_MODEL,
    FEW_SHOT_CLASSIFICATION,
)
OTHERS = "NLPCTL_TASKS"  # package.module:NAME,... of TaskInfos elsewhere; processes that nlpctl starts inherit it


def known_tasks() -> tuple[TaskInfo, ...]:
    """nlpctl's tasks, then those that NLPCTL_TASKS names. UserError if it names none."""
    names = [name.strip() for name in os.environ.get(OTHERS, "").split(",")]
    return (*KNOWN_TASKS, *(_imported(name) for name in names if name))


def find_task(name: str) -> TaskInfo | None:
    """The task called `name`, None if there is none."""
    return next((task for task in known_tasks() if task.name == name), None)


def task_info(name: str) -> TaskInfo:
    """The task called `name`, which the checks of its recipe have found to exist; KeyError if it does not."""
    task = find_task(name)
    if task is None:
        raise KeyError(name)
    return task


def nearest_task(name: str) -> str | None:
    """The task that is probably meant by an unknown name: one that the Hugging Face hub calls so, or a similar name."""
    tasks = known_tasks()
    called = (task.name for task in tasks if task.pipeline == name.replace("_", "-").lower())
    return next(called, None) or nearest(name, [task.name for task in tasks])


def scores(name: str) -> tuple[str, ...]:
    """The scores of the task called `name`, the most telling first; "loss" is not among them."""
    info = find_task(name)
    return () if info is None else tuple(metric for metric in info.metrics if metric != "loss")


def greater_is_better(recipe: Recipe, metric: str) -> bool:
    """Whether more of `metric` is better: as the recipe says of the score that it watches, else as the task does."""
    given, watched = recipe.training.greater_is_better, recipe.training.metric_for_best_model
    if given is not None and watched is not None and watched.removeprefix("eval_") == metric.removeprefix("eval_"):
        return given
    return task_info(recipe.task).greater_is_better(metric)


def resolve_by_model(recipe: Recipe) -> Recipe:
    """`recipe` with what only the files of its model decide, for whatever builds the task that it would train."""
    function = task_info(recipe.task).resolve_by_model
    return recipe if function is None else load(function)(recipe)


def _imported(name: str) -> TaskInfo:
    module, _, attribute = name.partition(":")
    try:
        info = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever a module of somebody's own may raise
        hint = "write package.module:NAME; modules are looked for in PYTHONPATH and among the installed packages"
        raise UserError(f"cannot import {name}: {type(error).__name__}: {error}", where=OTHERS, hint=hint) from None
    if not isinstance(info, TaskInfo):
        raise UserError(f"{name} is not an nlpctl.config.tasks.TaskInfo", where=OTHERS, hint="name a TaskInfo")
    if any(info.name == task.name for task in KNOWN_TASKS):
        raise UserError(f"nlpctl already has a task {info.name}", where=OTHERS, hint="use another name for yours")
    return info


def load(path: str) -> Any:
    """What package.module:NAME stands for."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def load_class(path: str) -> type:
    """The class that package.module:NAME is, or that the function of this name gives."""
    named = load(path)
    return named if isinstance(named, type) else named()
