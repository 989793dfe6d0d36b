"""What `nlpctl compress` refuses before it makes anything. The two tables below list all of it, in order.

Each check takes what the command asks for, and raises UserError, or returns.

A strategy, such as ort-static, is refused for one of these reasons, asked in this order:

1. `Strategy.refuse_combination`: it cannot stand beside the others of A+B (plan.parse_strategy).
2. `refuse_source`, `refuse_user_network`: it changes a network (`Strategy.on_network`), and there is only a graph, or a
   network whose layers are not known.
3. `Strategy.refuse_settings`: settings that it cannot take; packages that it needs are not installed.
4. `Strategy.refuse_missing_data`: it needs rows that are not given.
5. `Strategy.refuse_network`: it cannot work with this kind of network.
6. `refuse_engines`: no engine of this machine runs its graph (`Strategy.engine_on`, engines/choice.obstacle).
7. `refuse_graphs`, once the uncompressed network is exported and before it is scored: its graph has nothing to change
   (`Strategy.refuse_graph`), such as a product for 8 bits (graphs/onnx_quantize.py, ptq.py), or a large embedding table
   (graphs/embeddings.py). That fails the candidate, and the command if no other is left.

What only shows when it is made fails that candidate and no other: where the network cannot become ONNX, steps.py
(`StepExecutor._export`) says so, and candidates for ONNX Runtime find no fp32 graph (`GraphBuildContext.fp32_graph`);
the graph of a smaller network may have nothing to change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nlpctl import console
from nlpctl.compress.plan import (
    Chain,
    CompressRequest,
    check_plan,
    data_files,
    files_of_networks,
    is_made,
    read_made,
    static_model,
)
from nlpctl.compress.source import require_fp32
from nlpctl.compress.strategies import Distill, every_strategy
from nlpctl.compress.user_code import check_user_code
from nlpctl.config.checks import check, refuse_half_precision_on_cpu
from nlpctl.config.keys import is_of_training
from nlpctl.config.opened_files import refuse_files_outside
from nlpctl.config.schema import SPLITS, ModelSection, Recipe
from nlpctl.config.user_code import refuse_unnamed, require_rows_named
from nlpctl.data.open_split import files_of, has_split, open_split
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.engines.choice import obstacle
from nlpctl.errors import Problem, UserError
from nlpctl.export.request import ELSEWHERE
from nlpctl.export.strategies import KEY, GraphBuildContext, Step, Strategy, StrategyKind, int8_of_graphs
from nlpctl.layout import BEST_EXPORT, CANDIDATES, PLAN, real_path
from nlpctl.models.export_folder import read_manifest, refuse_foreign_files
from nlpctl.models.find import check_edits, check_export
from nlpctl.models.source import read_config, resolve_source
from nlpctl.outputs import note_inputs, refuse_inputs, refuse_lost_link
from nlpctl.runtime.machine import cpu_info
from nlpctl.runtime.process import ProcessSetup


def refuse_before_paddle(request: CompressRequest) -> None:
    """UserError for what files and settings can tell, before Paddle is imported."""
    for refuse in (
        refuse_sure_of_user_score,  # how sure a loss is, of a score that cannot be resampled
        refuse_ways,  # an engine or a precision, where all of this machine are compared
        refuse_code,  # functions of section compression that cannot be imported; code that no recipe of the user names
        refuse_source,  # an export without fp32 graphs; graphs alone for a strategy that changes a network
        refuse_user_network,  # model.network, whose layers are not known, for a strategy that changes layers
        refuse_without_dev,  # no rows to compare candidates on
        refuse_settings,  # whatever each strategy refuses itself
        refuse_no_output,  # no folder to write to
        refuse_training,  # a training that cannot work, or of files that somebody else's folder names
        refuse_missing_files,  # data that a strategy or the scoring will read
        refuse_output,  # a folder of something else, or of another plan; a file of the user's in best/, or an input
    ):
        refuse(request)


def refuse_with_paddle(request: CompressRequest, setup: ProcessSetup) -> None:
    """UserError for what only Paddle and this machine can tell. The process must be set up."""
    for refuse in (
        refuse_unscorable,  # a task whose graphs give nothing that can be scored
        refuse_networks,  # a kind of network that a strategy cannot work with
        refuse_engines,  # a graph that no engine of this machine runs
        refuse_half_precision,  # a training in 16 bits that this processor cannot do
    ):
        refuse(request, setup)


# -- Before Paddle ---------------------------------------------------------------------------------


def refuse_sure_of_user_score(request: CompressRequest) -> None:
    recipe = request.recipe
    if recipe.compression.sure is not None and recipe.compression.evaluate is not None:
        message = "the score of compression.evaluate cannot be resampled, so nothing says how sure a loss in it is"
        raise UserError(message, recipe.where("compression.sure"), "leave one of the two out")


def refuse_ways(request: CompressRequest) -> None:
    for key in ("inference.engine", "inference.precision"):
        if request.recipe.set_by_flag(key):
            message = "every engine and precision of this machine is compared, whatever this says"
            raise UserError(message, request.recipe.where(key), "leave it out, or name it where best/ is used")


def refuse_code(request: CompressRequest) -> None:
    require_rows_named(request.recipe.data)
    refuse_unnamed(request.recipe.model.network, "model.network")
    check_user_code(request.recipe)


def refuse_source(request: CompressRequest) -> None:
    source, recipe = resolve_source(request.source), request.recipe
    if static_model(recipe) is not None:
        what = "a static model"
    elif source.kind == "export" and source.folder is not None:
        check_export(recipe, manifest := read_manifest(source.folder))
        require_fp32(manifest, source.folder)
        what = "an export"
    else:
        return
    for strategy in request.strategies:
        if strategy.on_network is not None:
            hint = f"use the run or the model folder that it was made from, or one of {_names_of_int8()}"
            raise UserError(f"{strategy.on_network}, and {what} holds graphs only", strategy.key, hint)


def refuse_user_network(request: CompressRequest) -> None:
    if request.recipe.model.network is None:
        return
    for strategy in request.strategies:
        if strategy.on_network is not None:
            message = f"{strategy.on_network}, and model.network is a class of its own, whose layers are not known"
            raise UserError(message, strategy.key, f"use {_names_of_int8()}, which change the exported graph")


def _names_of_int8() -> str:
    """The strategies that a graph suffices for, for hints."""
    return ", ".join(strategy.name for strategy in int8_of_graphs())


def refuse_without_dev(request: CompressRequest) -> None:
    if not has_split(request.recipe.data, "dev"):
        message = "there is no dev data: candidates are compared by their score on it"
        raise UserError(message, request.recipe.where("data.dev"), "give it: @[data.dev=FILE]")


def refuse_settings(request: CompressRequest) -> None:
    for strategy in request.strategies:
        strategy.refuse_settings(request.recipe, request.strategies)


def refuse_no_output(request: CompressRequest) -> None:
    _ = request.folder  # raises


def refuse_training(request: CompressRequest) -> None:
    recipe = request.recipe
    if _reads_train(request):
        # Words or weights of a compressed model would be made of files that an opened run names, not the user. The
        # teacher is made already, so that what it was made from is not read.
        distils = any(isinstance(strategy, Distill) for strategy in request.strategies)
        refuse_files_outside(recipe, trains=True, unread=("model.",) if distils else ("model.", "distillation."))
        if distils and recipe.student is not None:
            refuse_files_outside(recipe.student, trains=True, unread=("data.", "distillation."))
    if not request.still_trains:
        return
    # training starts from the source, so its own origin does not matter
    folder = resolve_source(request.source).folder
    model = recipe.model if folder is None else ModelSection(name_or_path=str(folder))
    problems = check(dataclasses.replace(recipe, model=model), "train")
    if problems:
        raise UserError(problems=problems)
    for start in filter(None, (strategy.starts_from(recipe) for strategy in request.strategies)):
        check_edits(resolve_source(start), recipe)


def _reads_train(request: CompressRequest) -> bool:
    """Whether this command reads training rows, for a training or for anything else."""
    return request.still_trains or any(strategy.reads_rows for strategy in request.strategies)


def refuse_missing_files(request: CompressRequest) -> None:
    recipe = request.recipe
    for strategy in request.strategies:
        strategy.refuse_missing_data(recipe)
    # A missing test file would otherwise fail at the very end.
    for split in SPLITS if _reads_train(request) else ("dev", "test"):
        if files_of(recipe.data, split):
            open_split(task_rows(recipe.task, recipe.data), split)


def refuse_output(request: CompressRequest) -> None:
    folder, recipe = request.folder, request.recipe
    plan = request.plan  # its sums need the files of the source, which may be missing
    refuse_lost_link(folder)
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UserError("this is a file, not a folder", where=str(folder), hint=ELSEWHERE)
    model = resolve_source(request.source).folder
    if model is not None and real_path(folder) in (model, *model.parents):
        raise UserError("this holds the model itself", where=str(folder), hint=ELSEWHERE)
    if not any(folder.iterdir()):
        return
    if not (folder / PLAN).is_file():
        raise UserError("is not a folder of compressed models, so it is left alone", where=str(folder), hint=ELSEWHERE)
    if (best := folder / BEST_EXPORT).is_dir():
        refuse_foreign_files(best)
    if not request.overwrite:
        check_plan(folder, plan, recipe, request.trains)
        return
    named = {  # values may be folders or file prefixes
        "compression.input_infer_model_path": static_model(recipe),
        "distillation.student": recipe.distillation.student,
    }
    inputs = [(recipe.where(key), Path(path)) for key, path in named.items() if path is not None]
    for where, path in [*inputs, *data_files(recipe), *files_of_networks(recipe)]:
        note_inputs([path], where)
    refuse_inputs(folder)


# -- With Paddle -----------------------------------------------------------------------------------


def refuse_unscorable(request: CompressRequest, setup: ProcessSetup) -> None:
    from nlpctl.tasks.base import task_class

    recipe = request.recipe
    if not task_class(recipe.task).graph_scores:
        message = f"a graph of {recipe.task} gives predictions that cannot be scored, so no candidate can be chosen"
        raise UserError(message, recipe.where("task"), "compress the model of the task that is trained on it")


def refuse_networks(request: CompressRequest, setup: ProcessSetup | None = None) -> None:
    recipe, folder = request.recipe, resolve_source(request.source).folder
    config = {} if folder is None else read_config(folder)
    for strategy in request.strategies:
        strategy.refuse_network(recipe, config)
    for chain in request.chains:  # the graph of another network, such as a student's, is changed in its place
        made = None if chain.network is None else chain.network.config(recipe)
        if made is not None:
            for strategy in chain.graphs:
                strategy.refuse_network(recipe, made)


def refuse_engines(request: CompressRequest, setup: ProcessSetup) -> None:
    from nlpctl.engines.choice import this_machine

    machine, chains = this_machine(setup), request.chains

    def obstacle_here(strategy: Strategy) -> Problem | None:
        engine = strategy.engine_on(setup.device)
        return None if engine is None else obstacle(*engine, machine)

    for strategy in (each for chain in chains for each in chain.strategies):
        problem = obstacle_here(strategy)
        if problem is None:
            continue
        if setup.device != "cpu":
            hint = f"leave {strategy.name} out, or @[runtime.device=cpu], which reuses networks trained on the GPU"
            raise UserError(problem.message, KEY, hint)
        if usable := [each.name for each in int8_of_graphs() if obstacle_here(each) is None]:
            possible = dict.fromkeys(_possible_chain(chain, obstacle_here, usable) for chain in chains)
            hint = f"use @[strategy={','.join(filter(None, possible)) or ','.join(usable)}]"
        else:
            hint = f"leave {strategy.name} out; or pip install onnxruntime, for ort-dynamic and ort-static"
        raise UserError(f"{strategy.name}: {problem.message}", KEY, hint)


def _possible_chain(chain: Chain, obstacle_here: Callable[[Strategy], Problem | None], usable: Sequence[str]) -> str:
    """A chain without what this machine cannot run. The first of `usable`, 8-bit methods that it can, takes the place
    of another one, and has small embeddings already."""
    parts: list[str] = []
    replaced = False
    for strategy in chain.strategies:
        if obstacle_here(strategy) is None and not (replaced and strategy.kind is StrategyKind.EMBEDDINGS):
            parts.append(strategy.name)
        elif strategy.kind is StrategyKind.INT8 and usable:
            parts.append(usable[0])
            replaced = True
    return "+".join(parts)


def refuse_half_precision(request: CompressRequest, setup: ProcessSetup) -> None:
    if request.still_trains and setup.device == "cpu":
        refuse_half_precision_on_cpu(request.recipe, cpu_info().trains_in_bfloat16)


def takes_fewer_words(recipe: Recipe, source: str) -> bool:
    """Whether compression.prune_embeddings is not refused for a model that is being compressed. With Paddle."""
    section = dataclasses.replace(recipe.compression, prune_embeddings=True)
    request = CompressRequest(dataclasses.replace(recipe, compression=section), source, (), None)
    try:
        for refuse in (refuse_source, refuse_user_network, refuse_networks):
            refuse(request)
        for strategy in request.strategies:
            strategy.refuse_missing_data(recipe)
    except UserError:
        return False
    return True


# -- With the graphs of the uncompressed network ---------------------------------------------------


def refuse_graphs(request: CompressRequest) -> dict[str, UserError]:
    """The errors of the missing steps, by folder, that can change nothing in the graphs of the first step, which exist.
    UserError if that leaves nothing that could be made or scored."""
    folder, steps = request.folder, request.steps
    original, *others = steps.values()
    manifest = read_made(folder / original.folder)
    context = GraphBuildContext(folder / original.folder, manifest.graphs, folder, rows=tuple)
    refused: dict[str, UserError] = {}
    lost: set[str] = set()
    for step in others:
        if step.kind == CANDIDATES and step.needs[:1] == (original.folder,) and not is_made(folder, step):
            try:
                step.made_by.refuse_graph(context)
            except UserError as error:
                refused[step.folder] = error
                lost.add(step.folder)
        if not lost.isdisjoint(step.needs):
            lost.add(step.folder)
    if refused and all(step.folder in lost for step in others if step.scored):
        if not any(chain.makes_nothing for chain in request.chains):
            raise _none_left(refused, steps)
    return refused


def _none_left(refused: Mapping[str, UserError], steps: Mapping[str, Step]) -> UserError:
    """All errors in one, with the strategies that each is of."""
    named: dict[Problem, dict[str, None]] = {}
    for folder, error in refused.items():
        for problem in error.problems:
            named.setdefault(problem, {})[steps[folder].made_by.name] = None
    return UserError(problems=[
        dataclasses.replace(problem, message=f"{', '.join(names)}: {problem.message}")
        for problem, names in named.items()
    ])  # fmt: skip


# -- not refused, but said -------------------------------------------------------------------------


def warn_unread(request: CompressRequest) -> None:
    """Warn about flags that none of the strategies reads. Those in the recipe may be for others: they are ignored."""
    recipe, strategies = request.recipe, request.strategies
    readers: dict[str, list[Strategy]] = {}
    for strategy in every_strategy():
        for name in strategy.reads:
            readers.setdefault(f"compression.{name}", []).append(strategy)
    trained = [strategy for strategy in every_strategy() if strategy.trains]
    distils = [strategy for strategy in trained if isinstance(strategy, Distill)]
    told: set[str] = set()  # one flag may set several keys
    for dotted, origin in recipe.origins.items():
        known = distils if dotted.startswith("distillation.") else readers.get(dotted)
        if known is None and is_of_training(dotted):
            known = trained
        if known and origin.source.startswith("--") and origin.source not in told and not set(known) & set(strategies):
            told.add(origin.source)
            names = " and ".join(strategy.name for strategy in known)
            console.warn(f"{origin.source} has no effect: it applies to {names}")
    for strategy in strategies:
        sentence = strategy.unread(recipe, [each for each in strategies if each != strategy])
        if sentence is not None:
            console.warn(sentence)
