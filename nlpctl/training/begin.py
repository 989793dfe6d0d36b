"""Creating or resuming the run directory of a training. Imports no Paddle, since the parent of several processes calls
it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from nlpctl.config.dump import dump_recipe
from nlpctl.config.paths import parameter_files
from nlpctl.config.schema import Recipe
from nlpctl.data.splits import TrainingData
from nlpctl.runtime.process import library_environment
from nlpctl.runtime.run_directory import RunDirectory, describe_run
from nlpctl.runtime.versions import installed_versions


def begin_run(
    recipe: Recipe,
    run: RunDirectory,
    facts: Mapping[str, Any],
    data: TrainingData | None,
    *,
    command: Sequence[str] = (),
    resume: bool,
    overwrite: bool,
) -> None:
    """Write recipe.yaml and manifest.json of a new or resumed training in `run`, and lock it.

    `facts`: further entries of the manifest. `data`: None if child processes read the data. UserError as in
    `RunDirectory.begin`.
    """
    files = [*(data.files if data else ()), *parameter_files(recipe.model)]
    known = describe_run(command, recipe.training.seed, files, installed_versions())
    known["environment"] = library_environment(recipe.runtime, os.environ)
    manifest = {**facts, **known, "skipped_rows": data.skipped if data else {}}
    run.begin(manifest, dump_recipe(recipe), resume=resume, overwrite=overwrite)
