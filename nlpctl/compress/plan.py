"""What a compression makes, and whether a folder with results of an earlier command is of the same plan.

1. `parse_strategy`: the value of --strategy, as chains of strategies.
2. `plan_steps`: the folders that these need, each after those that it is made from; a `CompressRequest` holds them.
3. plan.json: the source and the settings of a folder of compressed models. A later command continues there if these are
   the same (`check_plan`). Settings that are part of folder names (widths, algorithms, rows) or that only affect the
   choice may differ: the folder then gets more candidates.

Imports no Paddle.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from nlpctl.checksums import sha256_of, sha256_of_input, sums_of
from nlpctl.compress.strategies import FEWER_WORDS, FEWER_WORDS_NAME, FP32_EXPORT, every_strategy, strategies
from nlpctl.config.dump import flat, recipe_values
from nlpctl.config.keys import all_keys, use_of
from nlpctl.config.paths import dataset_files, files_beside_rows, inputs_of
from nlpctl.config.schema import SPLITS, Recipe
from nlpctl.config.user_code import module_file
from nlpctl.data.open_split import files_of
from nlpctl.documents import Document, left_out
from nlpctl.errors import UserError
from nlpctl.export.strategies import (
    KEY,
    ORIGINAL,
    GraphStrategy,
    NetworkStrategy,
    Step,
    Strategy,
    StrategyKind,
)
from nlpctl.graphs.graph_files import PARAMETERS, PROGRAM
from nlpctl.layout import CANDIDATES, COMPRESS, EXPORT, EXPORTS, MODEL, NETWORKS, PLAN, RECIPE
from nlpctl.models.export_folder import ExportManifest, read_manifest
from nlpctl.models.model_manifest import is_part, parts_of
from nlpctl.models.source import resolve_source
from nlpctl.names import did_you_mean, differing, full_width_signs
from nlpctl.runtime.run_directory import RunDirectory

# --------------------------------------------------------------------------------------------------
# 1. The value of --strategy: "A+B,C" is two alternatives, of which the first applies A, then B. The names are those in
# strategies.py.


@dataclass(frozen=True)
class Chain:
    """One alternative: strategies of different kinds, in the order of StrategyKind; at least one."""

    strategies: tuple[Strategy, ...]

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(strategy.name for strategy in self.strategies)

    @property
    def makes_nothing(self) -> bool:
        """Whether only an engine runs the graphs of the network in another way, as with bf16 alone."""
        return self.network is None and not self.graphs

    @property
    def network(self) -> NetworkStrategy | None:
        return next((each for each in self.strategies if isinstance(each, NetworkStrategy)), None)

    @property
    def graphs(self) -> tuple[GraphStrategy, ...]:
        return tuple(each for each in self.strategies if isinstance(each, GraphStrategy))


def parse_strategy(text: str | None) -> tuple[Chain, ...]:
    """The alternatives of compression.strategy, each once, in their order. UserError for invalid ones."""
    chains = [_chain(words.strip()) for words in (text or "").split(",") if words.strip()]
    if not chains:
        hint = f"name one or more, separated by commas, of {', '.join(strategies())}; A+B applies A, then B"
        raise UserError("names no strategy", KEY, hint)
    return tuple(dict.fromkeys(chains))


def _chain(text: str) -> Chain:
    """One alternative. UserError for an unknown name, for two strategies of a kind, for strategies that do not work
    together, and for another order."""
    known, names = strategies(), [part.strip() for part in text.split("+")]
    for name in names:
        if name not in known:
            hint = f"one of {', '.join(known)}{full_width_signs(name)}"
            raise UserError(f"there is no strategy {name!r}{did_you_mean(name, known)}", KEY, hint)
    parts = tuple(known[name] for name in names)
    for kind in StrategyKind:
        same = [part.name for part in parts if part.kind == kind]
        if len(same) > 1:
            hint = f"separate them by commas: {', '.join(dict.fromkeys(same))}"
            raise UserError(f"{text!r} has two steps that make {kind.value}: {' and '.join(same)}", KEY, hint)
    ordered = tuple(sorted(parts, key=lambda part: part.kind.place))
    for part in ordered:  # before the order is refused, so that what that hint says to write is accepted
        part.refuse_combination(text, ordered)
    if parts != ordered:
        message = f"{text!r}: the order is {', then '.join(part.kind.value for part in ordered)}"
        raise UserError(message, KEY, f"write {'+'.join(part.name for part in ordered)}")
    return Chain(ordered)


# --------------------------------------------------------------------------------------------------
# 2. The folders of a strategy and their dependencies.
#
# networks/NAME     a network made from the source: width-0.75, student, original+qat, fewer-words
# exports/NAME      a network's fp32 graphs: original, width-0.75, student, fewer-words
# candidates/NAME   an export with one graph in 8 bits or with smaller embeddings
#
# Names identify how a folder was made, so that existing folders can be reused.


def plan_steps(chains: Sequence[Chain], section: Any) -> tuple[Step, ...]:
    """Every step of the alternatives, each once, after the steps that it needs; `section`: the recipe's compression."""
    steps: dict[str, Step] = {}
    for step in _steps(chains, section):
        steps.setdefault(step.folder, step)
    return tuple(steps.values())


def _steps(chains: Sequence[Chain], section: Any) -> Iterator[Step]:
    yield FP32_EXPORT.export(ORIGINAL, ())
    base = next(FEWER_WORDS.networks(section, None), None)
    if base is not None:
        yield base
    for chain in chains:
        # None stands for the source itself
        for network in [base] if chain.network is None else chain.network.networks(section, base):
            needs: tuple[str, ...] = ()
            if network is not None:
                yield network
                needs = (network.folder,)
            export = FP32_EXPORT.export(ORIGINAL if network is None else network.name, needs)
            yield export
            yield from _graphs(chain.graphs, export, needs, section)


def _graphs(
    strategies: Sequence[GraphStrategy], before: Step, network: tuple[str, ...], section: Any
) -> Iterator[Step]:
    """The steps of strategies applied to a graph, one after the other."""
    if strategies:
        for made in strategies[0].graphs(before, network, section):
            yield from made
            yield from _graphs(strategies[1:], made[-1], network, section)


@dataclass(frozen=True)
class CompressRequest:
    """What one command asks for: candidates of `source`, a model folder or an export, by `chains` of strategies.

    `recipe`: with the student's own recipe (config/recipe_of.with_student). `output`: None for compress/ in the run.
    What follows from these is worked out when it is first asked for, and then kept.
    """

    recipe: Recipe
    source: str
    chains: tuple[Chain, ...]
    output: Path | None = None
    overwrite: bool = False

    @cached_property
    def strategies(self) -> tuple[Strategy, ...]:
        """All strategies in the alternatives and in the recipe's section compression, each once."""
        named = [strategy for chain in self.chains for strategy in chain.strategies]
        return tuple(dict.fromkeys([*named, *([FEWER_WORDS] if self.recipe.compression.prune_embeddings else [])]))

    @cached_property
    def steps(self) -> dict[str, Step]:
        """Every step, by its folder, after the steps that it needs; the first is the export of the source itself."""
        return {step.folder: step for step in plan_steps(self.chains, self.recipe.compression)}

    @cached_property
    def folder(self) -> Path:
        """The output folder. UserError: none is given, and the model is not in a run."""
        if self.output is not None:
            return self.output
        model = resolve_source(self.source).folder
        if model is not None:
            run = model.resolve().parent
            if model.name in (MODEL, EXPORT) and (run / RECIPE).is_file():
                return model.parent / COMPRESS
        raise UserError("no output folder: the model is not in a run", where="@[output]", hint="use @[output=FOLDER]")

    @cached_property
    def trains(self) -> bool:
        """Whether a strategy trains, though the network may be there already."""
        return any(strategy.trains for strategy in self.strategies)

    @cached_property
    def still_trains(self) -> bool:
        """Whether a network is still to be trained."""
        return any(step.trains and (self.overwrite or not is_made(self.folder, step)) for step in self.steps.values())

    @cached_property
    def plan(self) -> CompressionPlan:
        """What plan.json is to hold. UserError: the files of compression.input_infer_model_path are missing."""
        return make_plan(self.recipe, self.source, static_model(self.recipe))


def is_made(output: Path, step: Step) -> bool:
    """Whether the folder of `step` is complete in `output`."""
    if not step.is_network:
        return (output / step.folder).is_dir()
    return RunDirectory(output / step.folder).is_finished


def read_made(folder: Path) -> ExportManifest:
    """export.json of a folder that was made. UserError: it was damaged since, and is not made again by itself."""
    return read_manifest(folder, repair=f"delete {folder} and run the same command again")


# -- 3. plan.json ----------------------------------------------------------------------------------

_OVER = "use @[overwrite=true] to discard existing results, or name another folder: @[output=FOLDER]"
MAX_LISTED_SETTINGS = 3  # most settings listed in a message
_STATIC = "compression.input_infer_model_path"
_STUDENT = "distillation.student"
# What distillation.student gives a student (networks/student.py); the rest is the teacher's.
_OF_STUDENT = ("model", "training", "optimizer", "early_stopping", "data.max_seq_length")


@dataclass(frozen=True, kw_only=True)
class CompressionPlan(Document):
    """plan.json: what the folders of a compression were made of, by `nlpctl compress`, which goes on where it is the
    same. It marks the folder as one of nlpctl's.

    `source`: folder or name of the model; `sha256`: of its files, by name, and of the rows (`data`), of the files of a
    named data set (`dataset`) and of what networks depend on (`networks`), by path, and of what rows and answers depend
    on besides, by key (`further`). `settings`: the keys that decide about folders, with values.
    """

    FORMAT: ClassVar[int | None] = 2
    REPAIR: ClassVar[str] = _OVER

    source: str
    sha256: Mapping[str, str]
    data: Mapping[str, str]
    dataset: Mapping[str, str] | None = None  # older plans do not have it
    further: Mapping[str, str] | None = left_out()  # nor this; their `networks` lack some files, too
    networks: Mapping[str, str]
    settings: Mapping[str, Any]


def make_plan(recipe: Recipe, source: Path | str, static: Path | None = None) -> CompressionPlan:
    """The plan of a command: checksums of source, data and student files, and the settings that determine folders.

    `static`: the prefix of the graph that replaces the source's own.
    """
    folder = Path(source)
    files = parts_of(folder) if folder.is_dir() else []
    files += [] if static is None else sorted(static.parent.glob(f"{static.name}.pd*"))
    values = flat(recipe_values(recipe, everything=True))
    # The network is that of the source. Section search determines nothing; plan.json has always noted it.
    noted = [name for name in values if name.startswith("search.") or not _is_free(name)]
    settings = {name: values[name] for name in noted if use_of(name).role != "network"}
    return CompressionPlan(
        source=str(source),
        sha256={path.name: sha256_of(path) for path in files},
        data=sums_of(path for _, path in data_files(recipe)),
        dataset=sums_of(dataset_files(recipe)),
        further={key: sha256_of_input(path) for key, path in files_beside_rows(recipe) if path.is_file()},
        networks=sums_of(path for _, path in files_of_networks(recipe)),
        settings=settings | _of_student(recipe),
    )


def check_plan(folder: Path, plan: CompressionPlan, recipe: Recipe, training: bool) -> None:
    """UserError if `folder` holds compressed models of another source or with other settings.

    `training`: whether this command trains; otherwise existing networks are used, whatever their settings.
    """
    old, hint = CompressionPlan.load(folder / PLAN), CompressionPlan.REPAIR
    now = {name: value for name, value in plan.settings.items() if not _is_free(name)}
    # A key that came since has its default there, and one that went decides nothing.
    kept = {name: value for name, value in old.settings.items() if _exists(name) and not _is_free(name)}
    of_student = any(name.startswith(f"{_STUDENT}.") for name in kept)  # else it has come with this command
    since = [name for name in now if of_student or not name.startswith(f"{_STUDENT}.")]
    before = {name: key.default for name in since if (key := all_keys().get(_in_its_recipe(name))) is not None} | kept
    before, now = (json.loads(json.dumps(each, default=list)) for each in (before, now))  # lists in place of tuples
    if {name: value for name, value in old.sha256.items() if is_part(name)} != plan.sha256:
        what = f"another model ({old.source})"
        if before.get(_STATIC) != now.get(_STATIC):
            what = f"another graph ({_STATIC}: {before.get(_STATIC)})"
        elif old.source == plan.source:
            what = "an earlier version of this model: its files have changed since"
        raise UserError(f"holds compressed models of {what}", str(folder), hint)
    for name in sorted(recipe.origins):
        if old.further is None and recipe.set_by_flag(name) and use_of(name).role in ("tokens", "answers"):
            message = f"these models were made by an earlier version, which left {name} out of some of them"
            raise UserError(message, recipe.where(name), hint)
    trained = training and _is_trained(folder)
    files = [("the data", old.data, plan.data), ("the data", old.dataset, plan.dataset)]
    files += [("the files that labels and answers depend on", old.further, plan.further)]
    if trained:
        is_older = old.further is None  # and its list of them may be short
        known = {name: value for name, value in plan.networks.items() if name in old.networks or not is_older}
        files += [("the files that networks depend on", old.networks, known)]
    for what, was, is_now in files:
        if was is None or is_now is None:
            continue
        listed = {name: value for name, value in was.items() if is_part(Path(name).name)}  # older plans list cards
        if changed := differing(listed, is_now):
            raise UserError(f"{what} changed since these models were made: {changed[0]}", str(folder), hint)
    by_content = old.further or {}  # wherever these files are now
    changed = [name for name in differing(before, now) if name not in by_content]
    changed = [name for name in changed if trained or not _is_of_training(name)]
    if changed:
        named, others = changed[:MAX_LISTED_SETTINGS], len(changed) - MAX_LISTED_SETTINGS
        made = [f"{name}: {'the default' if before.get(name) is None else before[name]}" for name in named]
        more = f", and {others} more settings differ" if others > 0 else ""
        message = f"these models were made with {', '.join(made)}{more}"
        where = _STUDENT if changed[0].startswith(f"{_STUDENT}.") else changed[0]
        raise UserError(message, recipe.where(where), f"use the same settings again, {hint}")


def carried_over(folder: Path, plan: CompressionPlan) -> CompressionPlan:
    """`plan` of a command without training, completed with the entries on existing networks from the plan in
    `folder`."""
    if not (folder / PLAN).is_file() or not _is_trained(folder):
        return plan
    old = CompressionPlan.load(folder / PLAN)
    rest = {name: value for name, value in plan.settings.items() if not _is_of_training(name)}
    trained = {name: value for name, value in old.settings.items() if _is_of_training(name)}
    return replace(plan, networks=old.networks, further=old.further, settings=rest | trained)


def write_plan(folder: Path, plan: CompressionPlan) -> None:
    """Write plan.json, which marks the folder as one of nlpctl's."""
    plan.save(folder / PLAN)


def _of_student(recipe: Recipe) -> dict[str, Any]:
    """The settings of the student's own recipe after extension; {} if there is none."""
    values = {} if recipe.student is None else flat(recipe_values(recipe.student, everything=True))
    names = [name for name in values if name.startswith(_OF_STUDENT) and not _is_free(name)]
    return {f"{_STUDENT}.{name}": values[name] for name in names}


def has_learned(network: Path) -> bool:
    """Whether the run directory of a network holds a model or a checkpoint."""
    run = RunDirectory(network)
    return run.model.is_dir() or run.last_checkpoint() is not None


def _is_trained(folder: Path) -> bool:
    """Whether `folder` holds results of a training. Networks may be deleted while their exports still exist."""
    networks = [path for path in (folder / NETWORKS).glob("[!.]*") if path.name != FEWER_WORDS_NAME]
    if any(has_learned(path) for path in networks):
        return True
    names = [path.name for kind in (EXPORTS, CANDIDATES) for path in (folder / kind).glob("[!.]*")]
    parts = [name.split("+") for name in names]
    training = {strategy.name for strategy in every_strategy() if strategy.trains}
    return any(base not in (ORIGINAL, FEWER_WORDS_NAME) or training & set(made) for base, *made in parts)


def _in_its_recipe(name: str) -> str:
    """What a setting of the student is called in the student's own recipe; any other setting's name."""
    return name.removeprefix(f"{_STUDENT}.")


def _exists(name: str) -> bool:
    """Whether this version has the key of a setting, or the mapping or list that it is in."""
    parts = _in_its_recipe(name).split(".")
    names = (".".join(parts[:length]) for length in range(2, len(parts) + 1))
    above = [key for name in names if (key := all_keys().get(name)) is not None]
    return len(parts) == 1 or (bool(above) and above[-1].section is None)


def _is_free(name: str) -> bool:
    """Whether a setting determines no folder, or is part of folder names."""
    in_names = {f"compression.{each}" for strategy in every_strategy() for each in strategy.in_names}
    return use_of(name).role in ("machine", "output", "command") or name in in_names


def _is_of_training(name: str) -> bool:
    """Whether a setting affects trained networks only."""
    of_training = {f"compression.{each}" for strategy in every_strategy() for each in strategy.of_training}
    return use_of(name).role == "weights" or name in of_training


def static_model(recipe: Recipe) -> Path | None:
    """The prefix that compression.input_infer_model_path names, without .pdmodel; None if it is not set.

    UserError if its files are missing.
    """
    given = recipe.compression.input_infer_model_path
    if given is None:
        return None
    prefix = Path(given.removesuffix(PROGRAM))
    for ending in (PROGRAM, PARAMETERS):
        file = prefix.with_name(prefix.name + ending)
        if not file.is_file():
            near = sorted(path.name for path in prefix.parent.glob(f"*{PROGRAM}")) if prefix.parent.is_dir() else []
            hint = f"there is {', '.join(near[:4])}" if near else "give the path of a model without .pdmodel"
            raise UserError(f"there is no {file}", recipe.where(_STATIC), hint)
    return prefix


# --------------------------------------------------------------------------------------------------
# The files that a compression reads next to its source: data, and the files that networks depend on. Each comes with
# the place that names it, as Recipe.where gives it: `file:line`, a flag or a key.


def data_files(recipe: Recipe) -> list[tuple[str, Path]]:
    """The files that determine the rows, including the modules of data.reader, map and filter; each with the place that
    names it (Recipe.where)."""
    data = recipe.data
    files = [(recipe.where(f"data.{split}"), Path(name)) for split in SPLITS for name in files_of(data, split)]
    for key, names in (("data.reader", (data.reader,)), ("data.map", data.map), ("data.filter", data.filter)):
        for name in names:
            files += _module_file(recipe, key, name)
    return [(where, path) for where, path in files if path.is_file()]


def files_of_networks(recipe: Recipe) -> list[tuple[str, Path]]:
    """All files that networks depend on: those that section distillation names, those of the student's own model, and
    the modules of criteria.

    Each with the place that names it (Recipe.where); the files of a student's model with the student's recipe.
    """
    student = recipe.student
    named = [(recipe.where(key), key, path) for path, key in inputs_of(recipe) if key.startswith("distillation.")]
    files = _module_file(recipe, "compression.criterion", recipe.compression.criterion)
    files += _module_file(recipe, "training.criterion", recipe.training.criterion)
    if student is not None:
        named += [(student.where(key), key, path) for path, key in inputs_of(student) if key.startswith("model.")]
        files += _module_file(student, "training.criterion", student.training.criterion)
    files += [(where, file) for where, key, path in named for file in _files_in(Path(path), key)]
    return [(where, path) for where, path in files if path.is_file()]


def _files_in(path: Path, key: str) -> list[Path]:
    """A file that `key` names, or the files of a folder, which may be that of a run."""
    if not path.is_dir():
        return [path]
    folder = resolve_source(str(path)).folder if key.endswith("name_or_path") else path
    return [] if folder is None else parts_of(folder)


def _module_file(recipe: Recipe, key: str, name: str | None) -> list[tuple[str, Path]]:
    """The module file of the function that `key` names; a wrong name is reported elsewhere."""
    module = None if name is None else module_file(name)
    return [] if module is None else [(recipe.where(key), module)]
