"""Taking the run directory for a training. Imports no Paddle: the parent of several processes does this, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nlpctl.config.dump import dump_recipe
from nlpctl.config.paths import parameter_files
from nlpctl.config.schema import Recipe
from nlpctl.data.splits import TrainingData
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
    """Write recipe.yaml and manifest.json of a training that begins, or goes on, in `run`, and hold it.

    `facts` go into the manifest beside what is known of every run. `data`: None where child processes read them.
    UserError as of `RunDirectory.begin`.
    """
    files = [*(data.files if data else ()), *parameter_files(recipe.model)]
    known = describe_run(command, recipe.training.seed, files, installed_versions())
    manifest = {**facts, **known, "skipped_rows": data.skipped if data else {}}
    run.begin(manifest, dump_recipe(recipe), resume=resume, overwrite=overwrite)
