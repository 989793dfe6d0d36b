"""plan.json: the source and the settings of a folder of compressed models.

A later command continues there if these are the same. Settings that are part of folder names (widths, algorithms,
rows) or that only affect the choice may differ: the folder then gets more candidates. Imports no Paddle.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from nlpctl.checksums import sha256_of, sums_of
from nlpctl.compress.input_files import data_files, files_of_networks
from nlpctl.compress.strategies import FEWER_WORDS, FEWER_WORDS_NAME, FP32_EXPORT, every_strategy, strategies
from nlpctl.config.dump import flat, recipe_values
from nlpctl.config.keys import use_of
from nlpctl.config.paths import dataset_files
from nlpctl.config.schema import Recipe
from nlpctl.documents import Document
from nlpctl.errors import UserError
from nlpctl.export.strategies import (
    CANDIDATES,
    EXPORTS,
    KEY,
    NETWORKS,
    ORIGINAL,
    GraphStrategy,
    Kind,
    NetworkStrategy,
    Step,
    Strategy,
)
from nlpctl.layout import PLAN
from nlpctl.models.model_manifest import is_part, parts_of
from nlpctl.names import did_you_mean, differing
from nlpctl.runtime.run_directory import RunDirectory

_OVER = "use --overwrite to discard existing results, or name another folder: -o FOLDER"
SHOWN = 3  # most settings listed in a message
_STATIC = "compression.input_infer_model_path"
_STUDENT = "distillation.student"
# What distillation.student gives a student (networks/student.py); the rest is the teacher's.
_OF_STUDENT = ("model", "training", "optimizer", "early_stopping", "data.max_seq_length")


@dataclass(frozen=True, kw_only=True)
class CompressionPlan(Document):
    """plan.json: what the folders of a compression were made of, by `nlpctl compress`, which goes on where it is the
    same. It marks the folder as one of nlpctl's.

    `source`: folder or name of the model; `sha256`: of its files, by name, and of the rows (`data`), of the files of a
    named data set (`dataset`) and of those that networks depend on (`networks`), by path. `settings`: the keys that
    decide about folders, with values.
    """

    FORMAT: ClassVar[int | None] = 2
    REPAIR: ClassVar[str] = _OVER

    source: str
    sha256: Mapping[str, str]
    data: Mapping[str, str]
    dataset: Mapping[str, str] | None = None  # older plans do not have it
    networks: Mapping[str, str]
    settings: Mapping[str, Any]


def make_plan(recipe: Recipe, source: Path | str, static_model: Path | None = None) -> CompressionPlan:
    """The plan of a command: checksums of source, data and student files, and the settings that determine folders.

    `static_model`: the prefix of the graph that replaces the source's own.
    """
    folder = Path(source)
    files = parts_of(folder) if folder.is_dir() else []
    files += [] if static_model is None else sorted(static_model.parent.glob(f"{static_model.name}.pd*"))
    values = flat(recipe_values(recipe, everything=True))
    # The network is that of the source.
    settings = {name: value for name, value in values.items() if not _is_free(name) and use_of(name).role != "network"}
    return CompressionPlan(
        source=str(source),
        sha256={path.name: sha256_of(path) for path in files},
        data=_sums(data_files(recipe)),
        dataset=sums_of(dataset_files(recipe)),
        networks=_sums(files_of_networks(recipe)),
        settings=settings | _of_student(recipe),
    )


def check_plan(folder: Path, plan: CompressionPlan, recipe: Recipe, training: bool) -> None:
    """UserError if `folder` holds compressed models of another source or with other settings.

    `training`: whether this command trains; otherwise existing networks are used, whatever their settings.
    """
    old, hint = CompressionPlan.load(folder / PLAN), CompressionPlan.REPAIR
    # older versions also noted settings that determine nothing, such as those of section search
    before = {name: value for name, value in old.settings.items() if not _is_free(name)}
    now = _as_read(plan.settings)
    if {name: value for name, value in old.sha256.items() if is_part(name)} != plan.sha256:
        what = f"another model ({old.source})"
        if before.get(_STATIC) != now.get(_STATIC):
            what = f"another graph ({_STATIC}: {before.get(_STATIC)})"
        elif old.source == plan.source:
            what = "an earlier version of this model: its files have changed since"
        raise UserError(f"holds compressed models of {what}", str(folder), hint)
    trained = training and _is_trained(folder)
    files = [("the data", old.data, plan.data), ("the data", old.dataset, plan.dataset)]
    files += [("the files that networks depend on", old.networks, plan.networks)] if trained else []
    for what, was, is_now in files:
        if was is None or is_now is None:
            continue
        listed = {name: value for name, value in was.items() if is_part(Path(name).name)}  # older plans list cards
        if changed := differing(listed, is_now):
            raise UserError(f"{what} changed since these models were made: {changed[0]}", str(folder), hint)
    changed = [name for name in differing(before, now) if trained or not _is_of_training(name)]
    if changed:
        made = [f"{name}: {'the default' if before.get(name) is None else before[name]}" for name in changed[:SHOWN]]
        more = f", and {len(changed) - SHOWN} more settings differ" if len(changed) > SHOWN else ""
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
    return replace(plan, networks=old.networks, settings=rest | trained)


def write_plan(folder: Path, plan: CompressionPlan) -> None:
    """Write plan.json, which marks the folder as one of nlpctl's."""
    plan.save(folder / PLAN)


def _sums(files: Iterable[tuple[str, Path]]) -> dict[str, str]:
    return sums_of(path for _, path in files)


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


def _is_free(name: str) -> bool:
    """Whether a setting determines no folder, or is part of folder names."""
    in_names = {f"compression.{each}" for strategy in every_strategy() for each in strategy.in_names}
    return use_of(name).role in ("machine", "output", "command") or name in in_names


def _is_of_training(name: str) -> bool:
    """Whether a setting affects trained networks only."""
    of_training = {f"compression.{each}" for strategy in every_strategy() for each in strategy.of_training}
    return use_of(name).role == "weights" or name in of_training


def _as_read(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`settings` after a JSON round trip: lists instead of tuples."""
    return json.loads(json.dumps(settings))


# The value of --strategy: "A+B,C" is two alternatives, of which the first applies A, then B.
#
# The names are those in strategies.py. Imports no Paddle.

@dataclass(frozen=True)
class Chain:
    """One alternative: another network, then 8 bits, then smaller embeddings; each part is optional."""

    strategies: tuple[Strategy, ...]

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(strategy.name for strategy in self.strategies)

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


def strategies_of(chains: Sequence[Chain], section: Any) -> tuple[Strategy, ...]:
    """All strategies in the alternatives and in the recipe's section compression, each once."""
    found = [strategy for chain in chains for strategy in chain.strategies]
    return tuple(dict.fromkeys([*found, *([FEWER_WORDS] if section.prune_embeddings else [])]))


def trains(chains: Sequence[Chain]) -> bool:
    """Whether training data is needed for more than calibration."""
    return any(strategy.trains for chain in chains for strategy in chain.strategies)


def _chain(text: str) -> Chain:
    known, names = strategies(), [part.strip() for part in text.split("+")]
    for name in names:
        if name not in known:
            hint = f"one of {', '.join(known)}"
            raise UserError(f"there is no strategy {name!r}{did_you_mean(name, known)}", KEY, hint)
    parts = tuple(known[name] for name in names)
    _check_kinds(text, parts)
    for part in parts:
        part.check_sum(text, parts)
    return Chain(parts)


def _check_kinds(text: str, parts: Sequence[Strategy]) -> None:
    """UserError if a kind of step occurs twice or in the wrong order."""
    for kind in Kind:
        found = [part.name for part in parts if part.kind == kind]
        if len(found) > 1:
            hint = f"separate them by commas: {', '.join(dict.fromkeys(found))}"
            raise UserError(f"{text!r} has two steps that make {kind.value}: {' and '.join(found)}", KEY, hint)
    ordered = sorted(parts, key=lambda part: part.kind.place)
    if list(parts) != ordered:
        message = f"{text!r}: the order is network, then 8 bits, then embeddings"
        raise UserError(message, KEY, f"write {'+'.join(part.name for part in ordered)}")


# The folders of a strategy and their dependencies.
#
# networks/NAME     a network made from the source: width-0.75, student, original+qat, fewer-words
# exports/NAME      a network's fp32 graphs: original, width-0.75, student, fewer-words
# candidates/NAME   an export with one graph in 8 bits or with smaller embeddings
#
# Names identify how a folder was made, so that existing folders can be reused. Imports no Paddle.



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
