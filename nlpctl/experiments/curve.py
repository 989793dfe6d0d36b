"""`nlpctl data curve`: trains on growing shares of the rows, and says what more rows would bring.

    read the rows -> draw shares of them -> train each run -> fit a power law -> one page
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from nlpctl import console
from nlpctl.config.own_code import require_named
from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import scores, task_info
from nlpctl.data.open_split import has_split
from nlpctl.data.split_rows import cut
from nlpctl.errors import UserError
from nlpctl.experiments.learning_curve import LEAST_SIZES, LearningCurve, curve_page, fit, learned
from nlpctl.experiments.series import Member, TrainingRows, open_series, read_rows, refuse_early, resolve_values
from nlpctl.files import read_json, write_json_atomic, write_text_atomic
from nlpctl.layout import REPORT
from nlpctl.names import listed
from nlpctl.report.score_tables import single_scores

KIND = "curve"
RESULT = "curve.json"
SHARES = (0.0625, 0.125, 0.25, 0.5, 1.0)
REPEATS = 2
LEAST_ROWS = 16


def learning_curve(
    recipe: Recipe,
    output: Path | None = None,
    *,
    shares: Sequence[float] = SHARES,
    repeats: int = REPEATS,
    resume: bool = False,
    overwrite: bool = False,
    command: Sequence[str] = (),
) -> LearningCurve:
    """Train `repeats` runs on each of `shares` of the training rows, by default below the recipe's folder + "-curve".

    UserError as of `train`; also: too few rows or shares, or no score to draw. Interrupted: Ctrl-C.
    """
    folder = os.path.abspath(f"{recipe.run_dir}-{KIND}" if output is None else output)
    require_named(recipe)
    recipe = resolve_values(replace(recipe, training=replace(recipe.training, output_dir=folder)))
    split = next((name for name in ("dev", "test") if has_split(recipe.data, name)), None)
    if split is None:
        raise UserError("there is no dev or test data to score on", recipe.where("data.dev"), "set data.dev: FILE")
    refuse_early(recipe, KIND, resume=resume, overwrite=overwrite)
    rows = read_rows(recipe)
    sizes = _sizes(shares, len(rows))
    seeds = [recipe.training.seed + i for i in range(repeats)]
    members = [_member(recipe, rows, size, seed) for size in sizes for seed in seeds]
    by_size = [slice(i, i + repeats) for i in range(0, len(members), repeats)]
    sizes = [_drawn(members[runs], len(rows)) for runs in by_size]
    if len(set(sizes)) < LEAST_SIZES:
        message = f"the draws are of {len(set(sizes))} different sizes only, since rows have to stay together"
        raise UserError(message, "--shares", "name more shares, or such as lie further apart")
    plan = {"shares": list(shares), "repeats": repeats, "group": recipe.data.columns.group}
    flags = {"resume": resume, "overwrite": overwrite, "own": (RESULT, REPORT)}
    with open_series(recipe, rows, KIND, members, plan, **flags) as series:
        for member in members:
            series.train(member, command)
        metrics = [read_json(series.run(member).metrics_file)[split] for member in members]
        metric = _metric(recipe, metrics)
        values = [float(single_scores(report)[metric]) for report in metrics]
        curve = fit(sizes, [values[runs] for runs in by_size])
        names = [member.name for member in members]
        scored = [(size, names[runs], values[runs]) for size, runs in zip(sizes, by_size, strict=True)]
        found = learned(series.folder, split, metric, len(rows), scored, curve)
        write_json_atomic(series.folder / RESULT, console.json_ready(found.to_json()))
        write_text_atomic(series.folder / REPORT, curve_page(found, curve))
        series.finish()
    return found


def _sizes(shares: Sequence[float], total: int) -> list[int]:
    """The rows of each share, in order. UserError: too few of them, or too few rows."""
    wrong = [share for share in shares if not 0 < share <= 1]
    if wrong:
        raise UserError(f"{wrong[0]:g} is no share of the rows", "--shares", "above 0, up to 1, such as 0.1,0.25,0.5,1")
    sizes = sorted({round(share * total) for share in shares})
    if len(sizes) < LEAST_SIZES:
        message = f"{len(sizes)} different numbers of rows do not make a curve"
        raise UserError(message, "--shares", f"name {LEAST_SIZES} shares or more, such as 0.1,0.25,0.5,1")
    if sizes[0] < LEAST_ROWS:
        message = f"the smallest share of {total:,} rows has {sizes[0]}"
        raise UserError(message, "--shares", f"begin with {LEAST_ROWS} rows or more: {LEAST_ROWS / total:.2g}")
    return sizes


def _member(recipe: Recipe, rows: TrainingRows, size: int, seed: int) -> Member:
    """A run on a draw of its own, stratified by label."""
    name = f"rows-{size}-seed-{seed}"
    if size == len(rows):
        return Member(name, seed)
    group, together = recipe.data.columns.group, rows.rows.split_together
    drawn = cut(rows.read, {"shares": size}, seed, together=together, group_by=group)
    return Member(name, seed, tuple(drawn["shares"]))


def _drawn(members: Sequence[Member], total: int) -> int:
    """The rows of one share's runs, their mean: where rows stay together, a draw has more or fewer than asked for."""
    return round(fmean(total if member.rows is None else len(member.rows) for member in members))


def _metric(recipe: Recipe, metrics: Sequence[Any]) -> str:
    """The score that is drawn: the one that chooses the model, or the task's first, of which more is better."""
    chosen = (recipe.training.metric_for_best_model or "").removeprefix("eval_")
    info = task_info(recipe.task)
    for name in (chosen, *scores(recipe.task)):
        shares = all(0 <= single_scores(each).get(name, -1) <= 1 for each in metrics)
        if name and info.greater_is_better(name) and shares:
            return name
    hint = f"the scores are {listed(single_scores(metrics[0]))}"
    raise UserError(f"{recipe.task} has no score between 0 and 1 to draw", recipe.where("task"), hint)
