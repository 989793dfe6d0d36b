"""Rows that a model, or members of an ensemble, were trained on: it answers these better and surer than new ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.config.recipe_of import recipe_of
from nlpctl.config.user_code import with_names_of
from nlpctl.console import display
from nlpctl.data.near_duplicates import row_key
from nlpctl.data.rows.examples import ExampleList
from nlpctl.data.rows.task_rows import TaskRows, task_rows
from nlpctl.data.training_data import labelled_texts
from nlpctl.errors import UserError
from nlpctl.layout import is_run, is_series
from nlpctl.runtime.run_directory import RunDirectory

MEMBER_RUNS = "member_runs"  # in the manifest of an ensemble: the run directories of its members
LEAST = 0.01  # of the rows; fewer are repetitions, which `nlpctl data inspect` tells


def warn_of_seen_rows(members: Sequence[str], rows: TaskRows, splits: Mapping[str, ExampleList]) -> None:
    """Warn where rows of `splits` were training rows of `members`, run directories."""
    for split, seen in _seen(members, rows, splits).items():
        examples = splits[split]
        if seen:
            rows_seen = f"{seen:,} of these {len(examples):,} rows"
            message = f"{split}: members were trained on {rows_seen}, so this score flatters"
            folds = next((Path(run).parent for run in members if is_series(Path(run).parent)), None)
            known = "score rows that no member has seen"
            if folds is not None:
                known = f"{display(folds / 'scores.json')} (held) has the score of each row by runs that did not see it"
            console.warn(f"{message}: {known}")


def warn_of_trained_rows(model: Path, rows: TaskRows, split: str, examples: ExampleList) -> None:
    """Warn where `examples`, to which the probabilities of a run's `model` are to be fitted, were training rows."""
    runs = members_of(model) or ([str(model.parent)] if is_run(model.parent) else [])
    seen = _seen(runs, rows, {split: examples})[split]
    if seen:
        message = f"{split}: the model was trained on {seen:,} of these {len(examples):,} rows"
        console.warn(f"{message}; it is surer of them than of new ones, so its answers will claim too much")


def _seen(runs: Sequence[str], rows: TaskRows, splits: Mapping[str, ExampleList]) -> dict[str, int]:
    """How many rows of each split were training rows of the runs; 0 where they are a few repetitions."""
    keys = {key for run in runs for key in _training_keys(Path(run), rows)}
    counts = {split: sum(_key(rows, each) in keys for each in examples) for split, examples in splits.items()}
    return {split: seen if seen >= max(1, LEAST * len(splits[split])) else 0 for split, seen in counts.items()}


def members_of(model: Path) -> Sequence[str]:
    """The runs of the members of the ensemble in the folder `model`; none for any other model."""
    if not is_run(model.parent):
        return ()
    try:
        runs = RunDirectory(model.parent).read_manifest().content.get(MEMBER_RUNS)
    except UserError:  # damaged; what needs it says so
        return ()
    return [each for each in runs if isinstance(each, str)] if isinstance(runs, list) else ()


def _training_keys(run: Path, rows: TaskRows) -> Iterator[bytes]:
    """Of the training rows of a run, as far as they are still there in files. `rows`: those of the command."""
    try:
        recipe = recipe_of(run)
        recipe = with_names_of(recipe, replace(recipe, data=rows.data))
        if recipe.data.train:
            own = task_rows(recipe.task, recipe.data)
            yield from (_key(own, example) for example in labelled_texts(own, "train"))
        else:
            _tell_unknown(run, "its rows were not read from files")
    except UserError as error:
        _tell_unknown(run, error.problems[0].message)


def _key(rows: TaskRows, example: Any) -> bytes:
    """Equal for examples with the same texts, in whatever order."""
    return row_key(list(rows.passages(example).values()))


def _tell_unknown(run: Path, reason: str) -> None:
    console.note(f"whether {display(run)} was trained on these rows is not known: {reason}")
