"""The folder of several trainings of one recipe: series.json, what may be written there, and what a resumed one must
have in common with the one that began."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nlpctl.config.dump import dump_recipe
from nlpctl.config.paths import further_files, parameter_files
from nlpctl.config.positions import display
from nlpctl.config.recipe_of import recipe_of
from nlpctl.config.schema import Recipe
from nlpctl.data.functions import part_sums
from nlpctl.errors import UserError
from nlpctl.files import (
    STAGING_PREFIX,
    json_of,
    remove_dir,
    remove_leftovers,
    sums,
    write_json_atomic,
    write_text_atomic,
    writing,
)
from nlpctl.layout import RECIPE, SERIES, is_inside, is_run
from nlpctl.names import and_more, differing
from nlpctl.outputs import refuse_inputs, refuse_lost_link, refuse_part
from nlpctl.runners.train import FREE_TO_CHANGE, changed_keys
from nlpctl.runtime.lock import take_lock
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.training.begin import refuse_changed_functions

DATA = "data"
FORMAT = 1
AGAIN = "the same command with --resume goes on; finished runs are kept"
FREE_SPACE = "choose a writable folder with free space"


def read_series(folder: Path) -> dict[str, Any]:
    """The content of series.json. UserError: there is none, or it is damaged."""
    file = folder / SERIES
    try:
        content = json_of(file)
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError("it is not of this version of nlpctl")
        kinds = {"kind": str, "state": str, "runs": list, "data": dict, "plan": dict}
        wrong = [name for name, kind in kinds.items() if not isinstance(content.get(name), kind)]
        if wrong:
            raise ValueError(f"{wrong[0]} is missing")
        runs = [Path(str(name)) for name in content["runs"]]
        outside = [path for path in runs if path.is_absolute() or not is_inside(path, folder)]
        if outside:
            raise ValueError(f"{outside[0]} is not in the folder")
        return content
    except (FileNotFoundError, NotADirectoryError):
        hint = "name the folder that holds all runs"
        raise UserError("there are no runs of folds or seeds here", str(folder), hint) from None
    except (OSError, ValueError) as error:
        hint = "begin again with --overwrite, or name another folder"
        raise UserError(f"the list of the runs cannot be read ({error})", str(file), hint) from None


def elsewhere(kind: str) -> str:
    """For hints: how to name another folder."""
    return "use another training.output_dir" if kind == "folds" else "name another folder: -o"


def missing_runs(folder: Path, names: Iterable[Any]) -> list[str]:
    """The runs of a finished series that are not there any more."""
    return [str(name) for name in names if not RunDirectory(folder / str(name)).is_finished]


def is_series(folder: Path) -> bool:
    """Whether `folder` holds several trainings of one recipe."""
    return (folder / SERIES).is_file()


def refuse_early(recipe: Recipe, kind: str, *, resume: bool, overwrite: bool, grows: bool = False) -> None:
    """UserError if the folder must not be written. Called before the data is read. `grows`: a finished series may go
    on."""
    folder = recipe.run_dir
    refuse_lost_link(folder)
    if resume and overwrite:
        raise UserError("--resume and --overwrite cannot be combined", where="--resume", hint="keep one of them")
    if is_series(folder):
        content = {} if overwrite else read_series(folder)
        if content and content["kind"] != kind:
            hint = f"{elsewhere(kind)}, or --overwrite to replace it"
            raise UserError(f"the folder was written by another command ({content['kind']})", str(folder), hint)
        ended = bool(content) and content["state"] == "finished" and not missing_runs(folder, content["runs"])
        if resume and ended and not grows:
            message = "all runs are finished; there is nothing to resume"
            raise UserError(message, str(folder), "use --overwrite to train again")
        if content and not resume:
            what = "finished" if content["state"] == "finished" else "unfinished"
            hint = f"use {'' if what == 'finished' else '--resume to continue, '}--overwrite to train again"
            raise UserError(f"the folder holds {what} runs", str(folder), f"{hint}; or {elsewhere(kind)}")
    elif is_run(folder):
        flag = "--output_dir" if kind == "folds" else "-o"
        hint = f"name another folder, such as {flag} {display(folder)}-{kind}"
        raise UserError("the folder holds a single run, which is not replaced", str(folder), hint)
    elif folder.is_dir() and _holds_more(folder):
        message = "the folder is not empty and was not written by this command; nlpctl does not write into it"
        raise UserError(message, where=str(folder), hint=elsewhere(kind))
    elif folder.exists() and not folder.is_dir():
        where = "training.output_dir" if kind == "folds" else "-o"
        raise UserError(f"{folder} is a file, not a folder", where, "name another folder")
    else:
        refuse_part(folder)


@contextlib.contextmanager
def open_folder(
    recipe: Recipe,
    files: Sequence[Path],
    kind: str,
    names: Sequence[str],
    plan: Mapping[str, Any],
    *,
    resume: bool,
    overwrite: bool,
    own: Sequence[str] = (),
    free: Sequence[str] = (),
) -> Iterator[Path]:
    """The folder recipe.run_dir, begun or gone on with, and locked in the context.

    `files`: of the data; `names`: of the runs. `kind` and `plan`, which is JSON-ready: what a resumed series must have
    in common with the one that began. `own`: further files and folders that the command writes there. `free`: keys of
    the recipe that may change.
    UserError: the folder is in use or holds something else; the recipe, the plan or the data changed.
    """
    refuse_early(recipe, kind, resume=resume, overwrite=overwrite, grows=bool(free))
    folder = Path(os.path.abspath(recipe.run_dir))
    with writing(folder, FREE_SPACE):
        folder.mkdir(parents=True, exist_ok=True)
        lock = take_lock(folder)
    if lock is None:
        raise UserError("another command is writing here", str(folder), f"wait for it, or {elsewhere(kind)}")
    try:
        # now that nobody else can change it
        refuse_early(recipe, kind, resume=resume, overwrite=overwrite, grows=bool(free))
        with writing(folder, FREE_SPACE):
            remove_leftovers(folder)
        known = {"kind": kind, "plan": dict(plan), "data": sums(files)}
        known["others"] = sums([*parameter_files(recipe.model), *further_files(recipe)])
        known["functions"] = part_sums(recipe)
        if resume and is_series(folder) and _holds_more(folder, SERIES):  # else it was killed as it began
            _refuse_changes(recipe, folder, known, free)
            with writing(folder, FREE_SPACE):
                write_text_atomic(folder / RECIPE, dump_recipe(recipe))  # it may ask for more
        else:
            _begin(recipe, folder, known, names, own)
        yield folder
    finally:
        lock.release()


def finish(folder: Path, **facts: Any) -> None:
    """Say in series.json that all is done, and `facts`."""
    write_json_atomic(folder / SERIES, {**read_series(folder), "state": "finished", **facts})


def _begin(recipe: Recipe, folder: Path, known: Mapping[str, Any], names: Sequence[str], own: Sequence[str]) -> None:
    with writing(folder, FREE_SPACE):
        if is_series(folder):  # --overwrite; series.json stays to the end, so that a killed command can be called again
            old: list[str] = []
            with contextlib.suppress(UserError):
                series = read_series(folder)
                old = [*series["runs"], *_listed(series.get("own"))]  # another command's, too
            _clear(folder, [*old, *names, *own])
        content = {"format": FORMAT, "state": "running", **known, "runs": list(names), "own": list(own)}
        write_json_atomic(folder / SERIES, content)  # first: by it the folder is known as this command's
        write_text_atomic(folder / RECIPE, dump_recipe(recipe))


def _holds_more(folder: Path, *names: str) -> bool:
    """Whether there is anything but `names`, and what killed commands left, in `folder`."""
    return any(path.name not in names and not path.name.startswith(STAGING_PREFIX) for path in folder.iterdir())


def _listed(value: Any) -> list[Any]:
    """A list of series.json; [] of what older versions, or damage, have in its place."""
    return value if isinstance(value, list) else []


def _clear(folder: Path, names: Iterable[str]) -> None:
    paths = [folder / str(name) for name in (*names, DATA)]
    # Not those of a damaged series.json; the parent of folder/.. is folder.
    paths = [path for path in paths if path.parent == folder and path.name != ".."]
    refuse_inputs(*paths)
    for path in paths:
        if path.is_dir():
            remove_dir(path)
        else:
            path.unlink(missing_ok=True)


def _refuse_changes(recipe: Recipe, folder: Path, known: Mapping[str, Any], free: Sequence[str]) -> None:
    """UserError if runs that are there already were made of something else."""
    began = read_series(folder)
    again = "train again with --overwrite"
    before = recipe_of(folder)
    changed = changed_keys(before, recipe, (*FREE_TO_CHANGE, *free))
    if changed:
        message = f"the recipe changed since the first run began: {and_more(changed, 10)}"
        raise UserError(message, recipe.where(changed[0]), f"restore it, or {again}")
    if began["plan"] != known["plan"]:
        told = ", ".join(f"{name} {value}" for name, value in began["plan"].items())
        raise UserError(f"the runs began with {told}", str(folder), f"resume with the same flags, or {again}")
    files = sorted(name for name, digest in known["data"].items() if began["data"].get(name) != digest)
    # Older versions did not note other files, such as those of starting values, nor the source of the user's own parts.
    files += differing(began.get("others", known["others"]), known["others"])
    if files:
        message = f"the data changed since the first run began: {and_more(files, 10)}"
        raise UserError(message, str(folder), f"restore the files, or {again}")
    refuse_changed_functions(began.get("functions", {}), known["functions"], "the first run began", again)
