"""Checks of `nlpctl compress` before anything is made, and its default output folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from nlpctl import console
from nlpctl.compress.input_files import data_files, files_of_networks
from nlpctl.compress.plan import Chain, CompressionPlan, check_plan, strategies_of
from nlpctl.compress.scorer import check_scorable
from nlpctl.compress.source import require_fp32, static_model
from nlpctl.compress.strategies import Distill, every_strategy
from nlpctl.compress.user_functions import check_user_functions
from nlpctl.config.checks import check
from nlpctl.config.opened_files import refuse_files_outside
from nlpctl.config.own_code import refuse_unnamed, require_rows_named
from nlpctl.config.schema import ModelSection, Recipe
from nlpctl.data.open_split import files_of, has_split, open_split
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.engines.choice import obstacle
from nlpctl.errors import Problem, UserError
from nlpctl.export.export import ELSEWHERE, is_free
from nlpctl.export.strategies import KEY, Kind, Strategy, int8_of_graphs
from nlpctl.layout import COMPRESS, EXPORT, MODEL, PLAN, RECIPE
from nlpctl.models.export_folder import read_manifest
from nlpctl.models.find import check_edits, check_export
from nlpctl.models.source import read_config, resolve_source
from nlpctl.outputs import note_inputs, refuse_inputs, refuse_lost_link
from nlpctl.runtime.process import ProcessSetup


def refuse_early(recipe: Recipe, source: str, strategies: Sequence[Strategy]) -> None:
    """UserError for problems that show without Paddle and without an output folder. `strategies`: all of the
    command."""
    if recipe.compression.sure is not None and recipe.compression.evaluate is not None:
        message = "the score of compression.evaluate cannot be resampled, so nothing says how sure a loss in it is"
        raise UserError(message, recipe.where("compression.sure"), "leave one of the two out")
    require_rows_named(recipe.data)
    refuse_unnamed(recipe.model.network, "model.network")
    check_user_functions(recipe)
    found = resolve_source(source)
    if static_model(recipe) is not None:
        _refuse_networks(strategies, "a static model")
    elif found.kind == "export":
        check_export(recipe, manifest := read_manifest(found.folder))
        require_fp32(manifest, found.folder)
        _refuse_networks(strategies, "an export")
    if recipe.model.network is not None:
        _refuse_own_network(strategies)
    if not has_split(recipe.data, "dev"):
        check_scorable(recipe)  # tells so
    for strategy in strategies:
        strategy.refuse_early(recipe, strategies)


def refuse_missing(recipe: Recipe, source: str, strategies: Sequence[Strategy], training: bool) -> None:
    """UserError if a training cannot work or a file is missing; a missing test file would otherwise fail at the very
    end.

    `training`: whether a network is still to be trained.
    """
    reads_train = training or any(strategy.reads_rows for strategy in strategies)
    if reads_train:
        _refuse_files_outside(recipe, strategies)
    if training:
        # training starts from the source, so its own origin does not matter
        folder = resolve_source(source).folder
        model = recipe.model if folder is None else ModelSection(name_or_path=str(folder))
        problems = check(dataclasses.replace(recipe, model=model), "train")
        if problems:
            raise UserError(problems=problems)
        for start in filter(None, (strategy.starts_from(recipe) for strategy in strategies)):
            check_edits(resolve_source(start), recipe)
    for strategy in strategies:
        strategy.refuse_missing(recipe)
    for split in ("train", "dev", "test") if reads_train else ("dev", "test"):
        if files_of(recipe.data, split):
            open_split(task_rows(recipe.task, recipe.data), split)


def _refuse_files_outside(recipe: Recipe, strategies: Sequence[Strategy]) -> None:
    """UserError for files that an opened run names and that words or weights of a compressed model would be made of."""
    distils = any(isinstance(strategy, Distill) for strategy in strategies)
    # The teacher is made already, so that what it was made from is not read.
    refuse_files_outside(recipe, trains=True, unread=("model.",) if distils else ("model.", "distillation."))
    if distils and recipe.student is not None:
        refuse_files_outside(recipe.student, trains=True, unread=("data.", "distillation."))


def warn_unread(recipe: Recipe, strategies: Sequence[Strategy]) -> None:
    """Warn about flags that no strategy reads. Settings in the recipe may be for other strategies, so they are
    ignored."""
    readers: dict[str, list[Strategy]] = {}
    for strategy in every_strategy():
        for name in strategy.reads:
            readers.setdefault(name, []).append(strategy)
    for name, known in readers.items():
        origin = recipe.origins.get(f"compression.{name}")
        if origin is not None and origin.source.startswith("--") and not set(known) & set(strategies):
            names = " and ".join(strategy.name for strategy in known)
            console.warn(f"{origin.source} has no effect: it applies to {names}")
    for strategy in strategies:
        told = strategy.unread(recipe, [each for each in strategies if each != strategy])
        if told is not None:
            console.warn(told)


def _refuse_networks(strategies: Sequence[Strategy], what: str) -> None:
    """UserError if a strategy needs a network and the source has graphs only."""
    for strategy in strategies:
        if strategy.on_network is not None:
            enough = ", ".join(each.name for each in int8_of_graphs())
            hint = f"use the run or the model folder that it was made from, or one of {enough}"
            raise UserError(f"{strategy.on_network}, and {what} holds graphs only", strategy.key, hint)


def _refuse_own_network(strategies: Sequence[Strategy]) -> None:
    """UserError if a strategy changes the layers of a network, and the network is of the user's own class."""
    for strategy in strategies:
        if strategy.on_network is not None:
            enough = ", ".join(each.name for each in int8_of_graphs())
            message = f"{strategy.on_network}, and model.network is a class of its own, whose layers are not known"
            raise UserError(message, strategy.key, f"use {enough}, which change the exported graph")


def check_strategies(recipe: Recipe, source: str, chains: Sequence[Chain]) -> None:
    """UserError if a strategy cannot work with this network. Imports Paddle."""
    folder = resolve_source(source).folder
    config = {} if folder is None else read_config(folder)
    for strategy in strategies_of(chains, recipe.compression):
        strategy.check(recipe, config)
    for chain in chains:
        made = None if chain.network is None else chain.network.config(recipe)
        for strategy in chain.graphs if made is not None else ():
            strategy.check(recipe, made)


def check_engines(setup: ProcessSetup, chains: Sequence[Chain]) -> None:
    """UserError if no engine of this machine can run the graphs of a strategy. Imports Paddle."""
    from nlpctl.engines.auto import this_machine

    machine = this_machine(setup)

    def found(strategy: Strategy) -> Problem | None:
        way = strategy.way(setup.device)
        return None if way is None else obstacle(*way, machine)

    for strategy in (each for chain in chains for each in chain.strategies):
        problem = found(strategy)
        if problem is None:
            continue
        if setup.device != "cpu":
            hint = f"leave {strategy.name} out, or --device cpu, which reuses networks trained on the GPU"
            raise UserError(problem.message, KEY, hint)
        if use := [each.name for each in int8_of_graphs() if found(each) is None]:
            possible = dict.fromkeys(_possible(chain, found, use) for chain in chains)
            hint = f"use --strategy {','.join(filter(None, possible)) or ','.join(use)}"
        else:
            hint = f"leave {strategy.name} out; or pip install onnxruntime, for ort-dynamic and ort-static"
        raise UserError(f"{strategy.name}: {problem.message}", KEY, hint)


def _possible(chain: Chain, found: Callable[[Strategy], Problem | None], use: Sequence[str]) -> str:
    """A chain without what this machine cannot run. The first of `use`, 8-bit methods that it can, takes the place of
    another one, and has small embeddings already."""
    parts: list[str] = []
    replaced = False
    for strategy in chain.strategies:
        if found(strategy) is None and not (replaced and strategy.kind is Kind.EMBEDDINGS):
            parts.append(strategy.name)
        elif strategy.kind is Kind.INT8 and use:
            parts.append(use[0])
            replaced = True
    return "+".join(parts)


def default_output(source: str) -> Path:
    """compress/ in the run that holds `source`. UserError for a model outside a run."""
    folder = resolve_source(source).folder
    if folder is not None:
        run = folder.resolve().parent
        if folder.name in (MODEL, EXPORT) and (run / RECIPE).is_file():
            return folder.parent / COMPRESS
    raise UserError("no output folder: the model is not in a run", where="-o", hint="use -o FOLDER")


def refuse_output(
    folder: Path, source: str, plan: CompressionPlan, recipe: Recipe, *, overwrite: bool, training: bool
) -> None:
    """UserError if `folder` is not a compression, or holds results of another plan. `training`: see check_plan."""
    refuse_lost_link(folder)
    if is_free(folder, source):
        return
    if not (folder / PLAN).is_file():
        raise UserError("is not a folder of compressed models, so it is left alone", where=str(folder), hint=ELSEWHERE)
    if not overwrite:
        check_plan(folder, plan, recipe, training)
        return
    for where, path in _inputs(recipe):
        note_inputs([path], where)
    refuse_inputs(folder)


def _inputs(recipe: Recipe) -> list[tuple[str, Path]]:
    """The input files of a compression besides its source, each with the place that names it: `file:line` or a key."""
    named = {  # values may be folders or file prefixes
        "compression.input_infer_model_path": static_model(recipe),
        "distillation.student": recipe.distillation.student,
    }
    found = [(recipe.where(key), Path(path)) for key, path in named.items() if path is not None]
    return [*found, *data_files(recipe), *files_of_networks(recipe)]
