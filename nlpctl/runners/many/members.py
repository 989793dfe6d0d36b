"""The runs of a series, trained side by side. Each ends with the predictions of the rows that it did not see."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.config.schema import Recipe, RuntimeSection
from nlpctl.names import counted
from nlpctl.runners.many.held_out import is_predicted, predict_held_out
from nlpctl.runners.many.series import Member, Series, TrainingRows, read_rows, train_member
from nlpctl.runners.many.training_crew import GRACE, Trainer, begin, training_crew
from nlpctl.runners.side_by_side import Posts
from nlpctl.runtime.crew import answering
from nlpctl.runtime.lock import LET_GO, wait_until_free
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.runtime.worker import Asked

Held = tuple[Sequence[int], int]  # rows by their indexes, and the number of their fold


def train_side_by_side(
    series: Series, posts: Posts, held: Callable[[Member], Held | None], command: Sequence[str]
) -> None:
    """Train all members, each in a process at one of `posts`. `held`: the rows that a run is to predict; None: none.

    Errors as of `Series.train`, the first of any run; the others save a checkpoint before it is raised.
    """

    def employ(runtime: RuntimeSection, log: Path, make: Callable[..., Asked]) -> Trainer:
        return Trainer(log, partial(make, _opened, log, series.recipe, runtime, grace=GRACE))

    def is_done(member: Member) -> bool:
        return series.run(member).is_finished and (held(member) is None or is_predicted(series, member))

    def jobs() -> Iterator[tuple[Any, ...]]:
        return ((_Desk.train, series.member_recipe(member), held(member), command) for member in left)

    left = [member for member in series.members if not is_done(member)]
    # A named data set is downloaded once per node.
    files = () if series.recipe.data.dataset is not None else tuple(map(str, series.rows.files))
    console.note(f"{counted(len(posts.runtimes), 'workers')}, {counted(len(left), 'runs')}")
    with training_crew(posts, series.folder, files, employ) as crew:
        for job, _, _ in crew.results(jobs()):
            console.note(f"{series.place(left[job])} is finished: {series.run(left[job]).path}")


class _Desk:
    """What a process holds. It reads the rows of the series once some of them are to be predicted."""

    def __init__(self, recipe: Recipe, runtime: RuntimeSection):
        self._recipe, self._runtime = recipe, replace(runtime, devices=())  # it sees its cards alone
        self._rows: TrainingRows | None = None

    def train(self, recipe: Recipe, held: Held | None, command: Sequence[str]) -> None:
        """`recipe`: of a run, from `Series.member_recipe`."""
        recipe = replace(recipe, runtime=self._runtime)
        run = RunDirectory(recipe.run_dir)
        wait_until_free(run.path, LET_GO)
        if not run.is_finished:
            train_member(recipe, command)
        if held is not None:
            if self._rows is None:
                self._rows = read_rows(self._recipe)
            predict_held_out(recipe, self._rows, *held)


def _opened(log: Path, recipe: Recipe, runtime: RuntimeSection) -> Callable[[Any], Any]:
    """Runs in the process: what trains."""
    begin(log, runtime.devices)
    return answering(_Desk(recipe, runtime))
