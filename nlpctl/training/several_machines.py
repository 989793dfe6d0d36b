"""What has to be equal on all machines of a training: versions, recipe and data.

Every process reads them by itself. A difference is told before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import nlpctl
from nlpctl import console
from nlpctl.config.dump import dump_recipe, flat, recipe_values
from nlpctl.config.keys import use_of
from nlpctl.config.load import load_recipe
from nlpctl.config.paths import further_files, parameter_files
from nlpctl.config.schema import Recipe
from nlpctl.data.training_data import TrainingData
from nlpctl.errors import UserError
from nlpctl.launch.peers import DATA, RECIPE_VALUES, VERSIONS, Peers, file_facts
from nlpctl.launch.ray_launch import RECIPE_FILE, RUN_FOLDER, RayRanks
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.runtime.versions import engine_versions

_COMPUTE = ("paddlepaddle", "paddlepaddle-gpu", "paddlenlp")


def versions() -> dict[str, str]:
    """What has to be installed alike on all machines of a training."""
    installed = engine_versions()
    return {"nlpctl": nlpctl.__version__, **{name: installed[name] for name in _COMPUTE if name in installed}}


def recipe_facts(recipe: Recipe) -> dict[str, Any]:
    """The values of the recipe that have to be equal on all machines."""
    values = flat(recipe_values(recipe, everything=True))
    return {name: value for name, value in values.items() if not use_of(name).per_node}


def doctor_facts(recipe: str | None) -> dict[str, dict[str, Any]]:
    """What `nlpctl doctor` compares between machines. UserError if `recipe` cannot be read."""
    facts: dict[str, dict[str, Any]] = {VERSIONS: versions()}
    if recipe is not None:
        facts[RECIPE_VALUES] = recipe_facts(load_recipe(recipe))
    return facts


# -- processes that a scheduler has started --------------------------------------------------------


def agree(peers: Peers, recipe: Recipe, data: TrainingData, device: str) -> None:
    """Meet the other processes; UserError unless versions, recipe and data are equal."""
    facts: dict[str, Mapping[str, Any]] = {
        VERSIONS: versions(),
        RECIPE_VALUES: {**recipe_facts(recipe), "runtime.device": device},
        DATA: file_facts(_files(recipe, data)),
    }
    peers.agree(facts, equal=tuple(facts))
    console.note(f"{len(peers.members)} processes: {', '.join(member.host for member in peers.members)}")


def rank_0_takes_folder(
    peers: Peers, taken: AbstractContextManager[bool], run: RunDirectory
) -> AbstractContextManager[bool]:
    """Around the training: rank 0 enters `taken`, and the others go on when they see the same run."""

    def identity() -> str:
        if not run.manifest_file.is_file():
            return ""
        manifest = run.read_manifest()
        return f"{manifest.host} {manifest.pid} {manifest.started} {len(manifest.resumed)}"

    return peers.following_rank_0(taken, identity)


def refuse_nproc(recipe: Recipe) -> None:
    """UserError for a recipe that asks for processes of nlpctl's own, where each is started by somebody else."""
    if recipe.runtime.nproc > 1:
        hint = "start as many, or take a Ray cluster: @[cluster=ADDRESS] @[nnodes=N] @[runtime.nproc=K]"
        raise UserError("each of these processes is one of the training, and starts none", "runtime.nproc", hint)


# -- machines of a Ray cluster ---------------------------------------------------------------------


def compare_machines(ranks: RayRanks, recipe: Recipe, data: TrainingData | None, run: RunDirectory) -> None:
    """UserError for a machine with other versions or data. `data`: None if the processes read them (a named set)."""
    above = next(folder for folder in run.path.absolute().parents if folder.is_dir())
    ranks.compare(versions(), _files(recipe, data), above)


def launch_on_machines(ranks: RayRanks, recipe: Recipe, run: RunDirectory, resume: bool) -> int:
    """Train in all processes; their exit code, as of `launch`."""
    arguments = ["train", RECIPE_FILE, "--output_dir", RUN_FOLDER, *(["--resume"] if resume else [])]
    return ranks.launch(arguments, run.logs, dump_recipe(ranks.recipe_of_rank(recipe)), run.path)


def _files(recipe: Recipe, data: TrainingData | None) -> list[Path]:
    return [*(data.files if data is not None else ()), *parameter_files(recipe.model), *further_files(recipe)]
