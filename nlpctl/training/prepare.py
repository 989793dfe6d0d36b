"""What a training needs before its run directory is taken: the network, the rows that fit it, the user's code.

Everything is built and checked here, and nothing is written, so that a mistake costs no existing run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.config.schema import OptimizerSection, Recipe
from nlpctl.data.balance import balanced
from nlpctl.data.inspection.lengths import CountedTokens, row_tokens
from nlpctl.data.sample_rows import spread
from nlpctl.data.text.encoder import TextEncoder
from nlpctl.data.text.tokenizers import build_encoder
from nlpctl.data.text.truncated import Truncation, count_truncated
from nlpctl.data.training_data import TrainingData
from nlpctl.errors import Problem
from nlpctl.models.changes import describe_changes
from nlpctl.models.families import family_of_config
from nlpctl.models.load import LoadedModel
from nlpctl.models.network import check_length, max_positions
from nlpctl.models.parameters import matching, named
from nlpctl.models.source import FAST_TOKENIZER, read_config
from nlpctl.models.tokenizer import load_tokenizer
from nlpctl.names import counted
from nlpctl.report.model import percent
from nlpctl.runtime.process import ProcessSetup
from nlpctl.tasks.base import Task
from nlpctl.training.optimizer import describe_groups, parameter_report
from nlpctl.training.user_code import UserCode, load_user_code, try_user_code

MOST_ROWS = 2000  # that are tokenised to see how many are truncated, taken evenly from all
FIRST_ROWS = 300  # of a stream: reading may be slow, and a training may need no more
MOST_BYTES = 4_000_000  # of their texts: seconds with PaddleNLP's tokenizer


@dataclass(frozen=True)
class PreparedTraining:
    """Everything that a training needs, already checked. `data.train`: the training rows, balanced by label if
    configured; None for a stream."""

    recipe: Recipe
    setup: ProcessSetup
    task: Task
    data: TrainingData
    model: LoadedModel
    encoder: TextEncoder
    user_code: UserCode


def prepare_training(
    recipe: Recipe, setup: ProcessSetup, task: Task, data: TrainingData, *, own_loss: bool = True
) -> PreparedTraining:
    """Build the recipe's network, and check the data against it. Writes nothing.

    `own_loss`: the task's loss is used; another one, as in a compression, trains all of the network.

    UserError: the model cannot be used, labels or lengths in the recipe do not fit the rows, or a part of the user's
    own does not work.
    """
    user_code = load_user_code(recipe, task)
    model = task.build_model(data.texts)
    if own_loss:  # the task sets these parameters itself, such as from the vectors of the training rows
        parameters = named(model.network)
        for name in (name for layer in task.fitted_layers for name in matching(layer, parameters)):
            parameters[name].stop_gradient = True
    check_length(model.network, recipe.data.max_seq_length, recipe.where("data.max_seq_length"))
    if recipe.training.recompute and not can_recompute(model.network):
        console.warn(f"training.recompute has no effect: no layer of {type(model.network).__name__} computes again")
    encoder = build_encoder(model.tokenizer)
    for split, examples in (("train", data.train), ("dev", data.dev), ("test", data.test)):
        if examples is not None:
            task.check_data(split, examples, encoder)
    _describe_model(recipe, model, setup)
    if data.train is not None:
        train, balance = data.train, recipe.data.balance
        if balance.method is not None or balance.counts:
            train, before, after = balanced(train, task.labels, balance, recipe.training.seed)
            changes = ", ".join(f"{name} {before[name]:,} -> {after[name]:,}" for name in before)
            console.note(f"training rows drawn by label: {changes}")
        task.collect_statistics(train)
        data = replace(data, train=train)
    try_user_code(user_code, setup, task, data, model, encoder)
    return PreparedTraining(recipe, setup, task, data, model, encoder, user_code)


def can_recompute(network: Any) -> bool:
    """Whether training.recompute reaches a layer of `network`, as PaddleNLP's Trainer looks for them."""
    return any(hasattr(layer, "enable_recompute") for layer in network.sublayers(include_self=True))


def _describe_model(recipe: Recipe, model: LoadedModel, setup: ProcessSetup) -> None:
    """Tell what is trained, line by line; what it begins with, `describe_start` tells."""
    report = parameter_report(model, recipe)
    origin = "from scratch" if model.source is None else f"from {model.source.name}"
    console.note(f"{type(model.network).__name__} {origin}: {report['total']:,} parameters, on {setup.device}")
    lines = describe_changes(model.network, model.changes)
    if recipe.optimizer != OptimizerSection():
        lines += ["trained with:", *describe_groups(report["optimizer"])]
    for line in lines:
        console.note(line)


def with_tokenizer_of(prepared: PreparedTraining, checkpoint: Path) -> PreparedTraining:
    """`prepared` with texts read as those were that led to `checkpoint`: an earlier version may have read the
    tokenizer.json of another program otherwise than this one does, and the second half would have other ids."""
    source = prepared.model.source
    if source is None or source.folder is None or source.kind == "nlpctl":
        return prepared
    if not (source.folder / FAST_TOKENIZER).is_file():
        return prepared
    family = family_of_config(read_config(checkpoint), str(checkpoint / "config.json"))
    tokenizer = prepared.task.adapt_tokenizer(prepared.recipe, load_tokenizer(checkpoint, family))
    encoder = build_encoder(tokenizer)
    return replace(prepared, model=replace(prepared.model, tokenizer=tokenizer), encoder=encoder)


def describe_start(model: LoadedModel) -> None:
    """Tell which parameters of a model that is trained are another one's, and which are new: a checkpoint, where there
    is one, replaces all of them."""
    lines = [] if model.head_note is None else [model.head_note]
    lines += [] if model.extension is None else model.extension.describe()
    if model.source is not None and model.fresh:
        lines.append(f"newly initialised: {', '.join(model.fresh)}")
    for line in lines:
        console.note(line)


def fitted_parameters(task: Task, network: Any) -> list[str]:
    """The names of the parameters that the task sets, and no gradient trains."""
    parameters = named(network)
    names = [name for layer in task.fitted_layers for name in matching(layer, parameters)]
    return [name for name in names if parameters[name].stop_gradient]


# -- rows that are longer than data.max_seq_length ---------------------------------------------------


def warn_of_truncated_rows(prepared: PreparedTraining, data: TrainingData) -> Truncation | None:
    """Warn if training rows are truncated (data/text/truncated.py), with how many and how much of their text is lost.

    Returns what was found, for the manifest; None where nothing is cut. `data`: as they were read, before rows were
    drawn by label.
    """
    task = prepared.task
    if data.rows.in_windows:  # every token is read, in one window or another
        return None
    rows = list(islice(data.training_examples(), FIRST_ROWS)) if data.train is None else data.train
    sample = spread(rows, MOST_ROWS)
    size = sum(row.byte_length for row in sample)
    if size > MOST_BYTES:
        sample = spread(sample, max(1, len(sample) * MOST_BYTES // size))
    around = {pair: task.overhead(prepared.encoder, pair) for pair in (False, True)}
    counter = CountedTokens(prepared.encoder, "", around.__getitem__)
    tokens = [row_tokens(list(data.rows.texts(example)), counter, data.rows.one_sequence) for example in sample]
    limit = task.data.max_seq_length
    truncation = count_truncated(tokens, limit)
    if not truncation.truncated:
        return truncation
    stream = data.train is None
    if len(sample) == len(rows):
        sampled = f"{'the first ' if stream else ''}{counted(len(tokens), 'training rows')}"
        how_many = f"{truncation.truncated:,} of {sampled}"
    else:
        share = truncation.share
        how_many = "nearly all" if share >= 0.9995 else f"about {percent(share)}"  # 100.0 % would claim all
        how_many += f" of the {f'first {len(rows):,} ' if stream else ''}training rows"
    unread = percent(truncation.unread)
    message = f"cut to {limit} tokens: {how_many}; {unread} of {'their' if stream else 'all'} tokens are not read"
    positions = max_positions(prepared.model.network)
    if positions is None or limit < positions:
        most = "" if positions is None else f", at most to {positions}"
        hint = f"raise it{most}, if what stands at the end matters; longer rows cost more time and memory"
    else:
        hint = "this network takes no longer rows; if what stands at the end matters, cut the texts into several rows"
    console.warn(str(Problem(message, "data.max_seq_length", hint)))
    return truncation
