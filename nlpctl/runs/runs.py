"""`nlpctl runs`: list, show and compare run directories. Needs neither Paddle nor the data."""

from __future__ import annotations

import functools
import os
import shlex
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpctl import console
from nlpctl.config.dump import flat, recipe_values
from nlpctl.config.hub_names import HF_PREFIX, PYTHON_PREFIX
from nlpctl.config.recipe_of import recipe_of
from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import greater_is_better, scores, task_info
from nlpctl.console import display
from nlpctl.errors import Problem, UserError
from nlpctl.layout import MANIFEST, SLICES, USER_SCORES, checkpoint_step, model_folder_name, real_path
from nlpctl.names import in_utf8, is_utf8, nearest
from nlpctl.report.language import Later, later, say
from nlpctl.report.model import format_moment, percent
from nlpctl.report.score_tables import single_scores, without_counts
from nlpctl.runs.run_files import (
    DAMAGED,
    damaged_recipe,
    is_run,
    other_kind,
    sound_events,
    sound_manifest,
    sound_metrics,
)
from nlpctl.runs.time_shares import is_sound, rows_of
from nlpctl.runtime.run_directory import RunDirectory, seconds_of
from nlpctl.runtime.worker import is_alive

if TYPE_CHECKING:
    from nlpctl.tasks.intervals import Paired

# Unusual events of a run, by their names in events.jsonl.
INCIDENTS: Mapping[str, Later] = {
    "out_of_memory": later("out of memory"),
    "stalled": later("stalled"),
    "bad_step": later("bad step"),
    "not_learning": later("not learning"),
    "useless": later("useless"),
}
KILLED = "killed"  # the manifest says running, but its process is gone
_FACTS: Mapping[str, Later] = {
    "command": later("command"),
    "started": later("started"),
    "ended": later("ended"),
    "device": later("device"),
    "processes": later("processes"),
    "seed": later("seed"),
    "git_commit": later("git commit"),
    "error": later("error"),
}
_ENVIRONMENT = ("device", "processes", "git_commit")  # not shown: the seed is in the recipe already


@dataclass(frozen=True)
class RunRecord:
    """A run read from its directory. `events` come from events.jsonl, `metrics` from metrics.json.

    `damage`: what cannot be read and is left out; missing entries of the manifest are None or empty.
    """

    run: RunDirectory
    manifest: Mapping[str, Any]
    recipe: Recipe
    events: Sequence[Mapping[str, Any]]
    metrics: Mapping[str, Any]
    damage: Sequence[Problem] = field(default_factory=tuple)

    @property
    def shown_state(self) -> Later:
        """`state`, or DAMAGED with the names of the files that cannot be read."""
        state = later(self.state)
        return later("{}: {}", later(DAMAGED), ", ".join(self.damaged_files)) if self.damage else state

    @property
    def damaged_files(self) -> list[str]:
        """The names of the files that cannot be read completely."""
        return list(dict.fromkeys(Path(each.where).name for each in self.damage))

    @property
    def state(self) -> str:
        """finished, failed, interrupted, pruned, running, KILLED, or DAMAGED if the manifest has no valid state."""
        return state_of(self.manifest["state"], self.manifest["host"], self.manifest["pid"])

    @property
    def model(self) -> Later:
        """The name or folder of the pretrained model, or the network trained from scratch."""
        model = self.recipe.model
        if model.from_scratch is not None:
            return later("{} (new)", model.from_scratch.architecture)
        name = model.name_or_path or ""
        if name.startswith(HF_PREFIX):
            name, at, commit = name.removeprefix(HF_PREFIX).partition("@")
            name = f"{name}{at}{commit[:7]}"  # as Git shortens it
        elif name.startswith(PYTHON_PREFIX):
            name = name.removeprefix(PYTHON_PREFIX)
        else:
            name = model_folder_name(Path(name))
        return later("{}", name) if name else later("unnamed")  # in a place: a name is not to be translated

    @property
    def step(self) -> int:
        """The last step of any event; of a finished run the last step, which need not have been logged."""
        logged = max((event["step"] for event in self.events), default=0)
        may_end_early = self.recipe.early_stopping.patience is not None or self.recipe.training.callbacks
        if self.state != "finished" or may_end_early:
            return logged  # early stopping follows an evaluation, which is an event
        steps = self.manifest.get("steps")
        total = steps.get("total") if isinstance(steps, Mapping) else None
        return max(logged, total) if isinstance(total, int) else logged

    @property
    def best_step(self) -> int | None:
        """The step of the checkpoint that became the model by its score on dev; None: the last one did."""
        if not self.recipe.training.load_best_model_at_end:
            return None
        best = [event["best"] for event in self.events if event["event"] == "save" and event["best"]]
        return checkpoint_step(Path(best[-1])) if best else None

    @property
    def seconds(self) -> float | None:
        """Without the pauses before it was resumed; until now for a running run; None if unknown."""
        if self.state in (KILLED, DAMAGED):
            return None
        return seconds_of(self.manifest, datetime.now(timezone.utc))

    @property
    def duration(self) -> str | None:
        """`seconds` as hours:minutes:seconds."""
        if self.seconds is None:
            return None
        minutes, seconds = divmod(int(self.seconds), 60)
        return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"

    @property
    def metric(self) -> str:
        """The score that chose the model, or the task's main score."""
        chosen = (self.recipe.training.metric_for_best_model or "").removeprefix("eval_")
        return chosen if chosen in (*scores(self.recipe.task), *self.own_scores) else scores(self.recipe.task)[0]

    @property
    def own_scores(self) -> tuple[str, ...]:
        """The names of what the user's own function scored (training.compute_metrics)."""
        return tuple(self.metrics.get("dev", {}).get(USER_SCORES, {}))

    @property
    def less_is_better(self) -> bool:
        """Whether a smaller `metric` is better."""
        return not greater_is_better(self.recipe, self.metric)

    def score(self, split: str, metric: str) -> float | None:
        """The final score of "dev" or "test"; None if there is none."""
        return single_scores(self.metrics.get(split, {})).get(metric)

    def last(self, event: str, figure: str) -> float | None:
        """`figure` of the last event of this kind."""
        found = [each[figure] for each in self.events if each["event"] == event and figure in each]
        return found[-1] if found else None

    def incidents(self) -> list[Mapping[str, Any]]:
        """The unusual events, but a loss that did not fall where it has fallen since."""
        fallen = max((i for i, event in enumerate(self.events) if event["event"] == "learning"), default=-1)
        return [
            event
            for i, event in enumerate(self.events)
            if event["event"] in INCIDENTS and not (event["event"] == "not_learning" and i < fallen)
        ]

    def to_json(self) -> dict[str, Any]:
        """Everything but the single events."""
        return {
            "run": str(self.run.path),
            "state": DAMAGED if self.damage else self.state,
            "damaged": self.damaged_files,
            "task": self.recipe.task,
            "model": self.model,
            "step": self.step,
            "seconds": self.seconds,
            "metric": self.metric,
            "metrics": dict(self.metrics),
            "incidents": self.incidents(),
            "manifest": dict(self.manifest),
        }


def state_of(state: str, host: str | None, process: int | None) -> str:
    """The state in a manifest, or KILLED where it says running, and its process, on this machine, is gone."""
    gone = state == "running" and host == socket.gethostname() and not is_alive(process or 0)
    return KILLED if gone else state


def open_run(path: Path) -> RunRecord:
    """The readable part of the run in this directory. UserError if there is no run, or its recipe is damaged."""
    if not is_run(path):
        if kind := other_kind(path):
            raise UserError(f"this is not a run but {kind[0]}", where=str(path), hint=f"`{kind[1]}` reads it")
        near = nearest(path.name, sorted(found.parent.name for found in path.parent.glob(f"*/{MANIFEST}")))
        hint = f"did you mean {path.parent / near}?" if near else "`nlpctl runs ls FOLDER` lists the runs in a folder"
        raise UserError("there is no run here", where=str(path), hint=hint)
    run = RunDirectory(path)
    damage: list[Problem] = []
    manifest = sound_manifest(run.manifest_file, damage)
    recipe = recipe_of(path)
    metrics = sound_metrics(run.metrics_file, damage)
    events = sound_events(run.events_file, manifest["state"] == "finished", damage)
    return RunRecord(run, manifest, recipe, events, metrics, tuple(damage))


@dataclass(frozen=True)
class UnreadableRun:
    """A run whose damaged recipe makes it unreadable."""

    path: Path
    damage: Problem

    @property
    def shown_state(self) -> Later:
        """As for a RunRecord."""
        return later("{}: {}", later(DAMAGED), Path(self.damage.where).name)

    def to_json(self) -> dict[str, Any]:
        """The known part of what `RunRecord.to_json` gives."""
        return {"run": str(self.path), "state": DAMAGED, "damaged": [Path(self.damage.where).name]}


def open_all(folder: Path) -> tuple[list[RunRecord], list[UnreadableRun]]:
    """The runs in `folder`, and those with unreadable recipes. UserError if the folder does not exist."""
    records, unreadable = [], []
    for path in find_runs(folder):
        try:
            records.append(open_run(path))
        except UserError as error:
            unreadable.append(UnreadableRun(path, damaged_recipe(path, error)))
    return records, unreadable


def _in_utf8(place: str, folders: list[str]) -> list[str]:
    """Those of `folders` whose names a page, an address or JSON can hold."""
    for name in folders:
        if not is_utf8(name):
            _leave_out(Path(place, name))
    return [name for name in folders if is_utf8(name)]


@functools.cache
def _leave_out(folder: Path) -> None:
    """Told once, and not whenever a page is made anew."""
    console.warn(f"{in_utf8(folder)} is left out: its name is not UTF-8; rename it")


def find_runs(folder: Path) -> Iterator[Path]:
    """The run directories in `folder`, at any depth; anything else, such as an index, is ignored.

    Folders come by name, after links to runs elsewhere.

    UserError if the folder does not exist.
    """
    if not folder.is_dir():
        raise UserError("there is no such folder", where=str(folder), hint="name the folder that holds your runs")
    top, linked = real_path(folder), set[Path]()
    for place, folders, _ in os.walk(folder):
        if is_run(Path(place)):
            folders.clear()
            yield Path(place)
        elif Path(place) != folder and other_kind(Path(place)):  # a stray file beside the runs must not hide them
            folders.clear()
        folders[:] = _in_utf8(place, sorted(name for name in folders if not name.startswith(".")))
        # Links are not walked into, which may lead round in circles; but a run may have been moved to another disk.
        for path in (Path(place, name) for name in folders if os.path.islink(os.path.join(place, name))):
            real = real_path(path)
            if is_run(path) and real not in linked and not real.is_relative_to(top):
                linked.add(real)
                yield path


@dataclass(frozen=True)
class Difference:
    """A value that differs between runs: its name, and its value in each run (None: missing)."""

    name: str
    values: tuple[Any, ...]


def differences(records: Sequence[RunRecord]) -> dict[str, list[Difference]]:
    """The differences between runs: "recipe" (by key), "environment", "data" (SHA-256 by file), "scores"."""
    recipes = [flat(recipe_values(record.recipe, everything=True)) for record in records]
    for recipe in recipes:
        del recipe["training.output_dir"]  # differs in every run
    manifests = [record.manifest for record in records]
    environments = [
        {name: manifest[name] for name in _ENVIRONMENT}
        | flat(manifest["versions"], "versions.")
        | flat(manifest.get("environment", {}), "env.")
        for manifest in manifests
    ]
    reports = [flat({split: without_counts(each) for split, each in record.metrics.items()}) for record in records]
    return {
        "recipe": _differing(recipes),
        "environment": _differing(environments),
        "data": _differing([manifest["data"] for manifest in manifests]),
        "scores": _differing(reports),
    }


def tell_missing_slices(record: RunRecord) -> None:
    """A note for a run that was trained before its slices were kept: what shows them."""
    run = record.run
    if record.state == "finished" and record.metrics and not run.slices_file.exists():
        told = f"without slices: the run holds none ({SLICES}), as of an older nlpctl"
        console.note(f"{told}; nlpctl eval {shlex.quote(display(run.path))} --by label, or --by length, shows them")


def paired(first: RunRecord, second: RunRecord) -> dict[str, Paired | str]:
    """The second run against the first on the same rows, by split; a text says why a split cannot be compared."""
    from nlpctl.tasks.intervals import comparable, compare
    from nlpctl.tasks.tallies import load_tallies

    found: dict[str, Paired | str] = {}
    for split in first.metrics:
        if split not in second.metrics:
            continue
        try:
            one, other = (load_tallies(record.run.tallies_file(split)) for record in (first, second))
        except UserError as error:
            found[split] = str(error)
            continue
        if one is None or other is None:
            names = (shlex.quote(display(record.run.path)) for record in (second, first))
            found[split] = later("an older run holds no rows to compare; nlpctl eval {} --against {} does", *names)
        elif not comparable(one, other):
            tokens = task_info(first.recipe.task).token_scores
            told = later("the runs were scored on different rows or hidden tokens, or one of them by an earlier nlpctl")
            found[split] = told if tokens else later("the runs were scored on different rows, or with different labels")
        else:
            # A score of the user's own may be called as one of the task's, which its rows say nothing of.
            own = (*first.own_scores, *second.own_scores)
            pair = compare(one, other)
            found[split] = replace(pair, scores={name: each for name, each in pair.scores.items() if name not in own})
    return found


def _differing(tables: Sequence[Mapping[str, Any]]) -> list[Difference]:
    names = dict.fromkeys(name for table in tables for name in table)
    found = [Difference(name, tuple(table.get(name) for table in tables)) for name in names]
    return [each for each in found if any(value != each.values[0] for value in each.values)]


def truncation_told(record: RunRecord) -> str | None:
    """How many training rows were longer than data.max_seq_length, as `train` found it; None where it did not look."""
    found = record.manifest.get("truncated_rows")
    if found is None:
        return None
    return say(
        "Text beyond {} tokens is cut: of {:,} training rows looked at {:,} are longer, and {} of all tokens were not "
        "read.",
        record.recipe.data.max_seq_length,
        found["rows"],
        found["truncated"],
        percent(found["unread"]),
    )


def facts(record: RunRecord) -> dict[str, Any]:
    """The lines of `runs show`: name, to be said, and value, the most important first."""
    manifest = record.manifest
    values: dict[str, Any] = {
        later("run"): str(record.run.path),
        later("state"): say(record.shown_state),
        later("task"): record.recipe.task,
        later("model"): say(record.model),
    }
    values |= {later("step"): record.step, later("last loss"): record.last("log", "loss")}
    values |= {title: manifest[name] for name, title in _FACTS.items()}
    values |= {title: format_moment(values[title]) for title in (_FACTS["started"], _FACTS["ended"])}
    values["error"] = (manifest["error"] or "").partition("\n")[0]
    values["command"] = shlex.join(["nlpctl", *manifest["command"][1:]])
    resumed = [say("{} (was {})", format_moment(each["at"]), later(each["was"])) for each in manifest["resumed"]]
    values[later("resumed")] = say(", ").join(resumed)
    origin = manifest.get("continues")
    if isinstance(origin, dict):
        values[later("continues")] = say("{}, after step {}", origin.get("run"), origin.get("step"))
    spent: Any = manifest.get("time")
    if is_sound(spent):
        shares = [f"{title} {share:.0%}" for title, _, share in rows_of(spent) if share >= 0.005]
        values[later("time spent")] = say(", ").join(shares)
    values[later("data")] = ", ".join(manifest["data"])
    checkpoint = record.run.last_checkpoint()
    values[later("last checkpoint")] = None if checkpoint is None else checkpoint.name
    return {name: value for name, value in values.items() if value not in (None, "", ())}
