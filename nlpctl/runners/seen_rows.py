"""Rows that members of an ensemble were trained on: it answers these better than new ones, so its scores flatter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from nlpctl import console
from nlpctl.config.positions import display
from nlpctl.config.recipe_of import recipe_of
from nlpctl.data.examples import ExampleList
from nlpctl.data.labelled_texts import labelled_texts, text_key
from nlpctl.data.task_rows import TaskRows, task_rows
from nlpctl.errors import UserError
from nlpctl.layout import is_run
from nlpctl.runners.many.series_folder import is_series
from nlpctl.runtime.run_directory import RunDirectory

MEMBER_RUNS = "member_runs"  # in the manifest of an ensemble: the run directories of its members
LEAST = 0.01  # of the rows; fewer are repetitions, which `nlpctl data inspect` tells


def warn_of_seen_rows(members: Sequence[str], rows: TaskRows, splits: Mapping[str, ExampleList]) -> None:
    """Warn where rows of `splits` were training rows of `members`, run directories."""
    keys = {key for run in members for key in _training_keys(Path(run))}
    for split, examples in splits.items():
        seen = sum(text_key(rows, example) in keys for example in examples)
        if seen >= max(1, LEAST * len(examples)):
            told = f"{split}: members were trained on {seen:,} of these {len(examples):,} rows, so this score flatters"
            folds = next((Path(run).parent for run in members if is_series(Path(run).parent)), None)
            known = "score rows that no member has seen"
            if folds is not None:
                known = f"{display(folds / 'scores.json')} (held) has the score of each row by runs that did not see it"
            console.warn(f"{told}: {known}")


def members_of(model: Path) -> Sequence[str]:
    """The runs of the members of the ensemble in the folder `model`; none for any other model."""
    if not is_run(model.parent):
        return ()
    try:
        found = RunDirectory(model.parent).read_manifest().get(MEMBER_RUNS)
    except UserError:  # damaged; what needs it says so
        return ()
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else ()


def _training_keys(run: Path) -> Iterator[bytes]:
    """Of the training rows of a run, as far as they are still there in files."""
    try:
        recipe = recipe_of(run)
        if recipe.data.train:
            yield from labelled_texts(task_rows(recipe.task, recipe.data), "train")
        else:
            _tell_unknown(run, "its rows were not read from files")
    except UserError as error:
        _tell_unknown(run, error.problems[0].message)


def _tell_unknown(run: Path, reason: str) -> None:
    console.note(f"whether {display(run)} was trained on these rows is not known: {reason}")
