"""The part of a training that only several nodes need: what they agree on, what node 0 gives the others, and what these
do.

Node 0 alone has the run directory. Every node checks recipe and data by itself; a problem on one ends all, with a
message that names it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nlpctl
from nlpctl import console
from nlpctl.checksums import sha256_of
from nlpctl.config.dump import dump_recipe, flat, recipe_values
from nlpctl.config.keys import use_of
from nlpctl.config.load import load_recipe
from nlpctl.config.paths import further_files, parameter_files
from nlpctl.config.schema import Recipe
from nlpctl.data.splits import TrainingData
from nlpctl.errors import UserError
from nlpctl.launch.launch import follow
from nlpctl.launch.node_launch import PROCESSES, Coordinator, Participant, world_of
from nlpctl.launch.nodes import Nodes
from nlpctl.layout import EVENTS, MANIFEST
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.runtime.versions import engine_versions

VERSIONS, RECIPE_VALUES, DATA = "versions", "recipe", "data files"
_COMPUTE = ("paddlepaddle", "paddlepaddle-gpu", "paddlenlp")


def versions() -> dict[str, str]:
    """What has to be equal on all nodes for a common training."""
    found = engine_versions()
    return {"nlpctl": nlpctl.__version__, **{name: found[name] for name in _COMPUTE if name in found}}


def recipe_facts(recipe: Recipe) -> dict[str, Any]:
    """The values of the recipe that have to be equal on all nodes."""
    values = flat(recipe_values(recipe, everything=True))
    return {name: value for name, value in values.items() if not use_of(name).per_node}


def doctor_facts(recipe: str | None) -> dict[str, dict[str, Any]]:
    """What `nlpctl doctor` compares between nodes. UserError if `recipe` cannot be read."""
    facts: dict[str, dict[str, Any]] = {VERSIONS: versions()}
    if recipe is not None:
        facts[RECIPE_VALUES] = recipe_facts(load_recipe(recipe))
    return facts


def agree(nodes: Nodes, recipe: Recipe, data: TrainingData | None, processes: int, device: str) -> int:
    """The number of processes on all nodes, once these have equal versions, recipe and data. UserError.

    `data`: None if the processes read the data, as of a named data set. `device`: of the processes of this node.
    """
    files = [*(data.files if data is not None else ()), *parameter_files(recipe.model), *further_files(recipe)]
    facts = {
        VERSIONS: versions(),
        RECIPE_VALUES: {**recipe_facts(recipe), "runtime.device": device},
        DATA: {str(path): sha256_of(path)[:16] for path in files},
        PROCESSES: processes,
    }
    nodes.agree(facts, equal=(VERSIONS, RECIPE_VALUES, DATA))
    world = world_of(nodes.members)
    if nodes.is_head:
        told = ", ".join(f"{member.host} ({member.facts[PROCESSES]})" for member in nodes.members)
        console.note(f"{nodes.place.nodes} nodes with {world} processes: {told}")
    return world


def head_of(nodes: Nodes, run: RunDirectory) -> Coordinator:
    """Node 0's side of the launches of `run`."""
    return Coordinator(nodes, run.logs, run.events_file, lambda: _files(run))


def _files(run: RunDirectory) -> Mapping[str, Path]:
    """What the processes on other nodes read of a run, by its place in the folder."""
    files = [run.path / name for name in (MANIFEST, EVENTS)]
    checkpoint = run.last_checkpoint()
    if checkpoint is not None:
        files += sorted(path for path in checkpoint.rglob("*") if path.is_file())
    return {path.relative_to(run.path).as_posix(): path for path in files if path.exists()}


def follow_node_0(nodes: Nodes, recipe: Recipe, processes: int) -> None:
    """Train on a node other than 0, in a folder that stands for the run directory and is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="nlpctl-node-") as name:
        folder = Path(name)
        file = folder / "of_the_user.yaml"  # recipe.yaml would be that of a run, which may name no code and no files
        file.write_text(dump_recipe(recipe), encoding="utf-8")
        argv = ["train", str(file), "--output_dir", str(folder)]
        follow(argv, processes, recipe.runtime.devices, folder / "logs", Participant(nodes, folder))
    console.note(f"node {nodes.place.rank}: done; the run is on {nodes.members[0]}")


def refuse_unnamed_cards(recipe: Recipe, device: str) -> None:
    """UserError for nodes with cards that the recipe does not list: nobody would know how many of them are meant."""
    if device == "gpu" and not recipe.runtime.devices:
        hint = "list those of each node: --devices 0,1; or train on CPU: --device cpu"
        raise UserError("this node has cards, and on several nodes they are named", "runtime.devices", hint)
