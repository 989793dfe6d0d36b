"""Read the files of a run. Damaged parts are reported and left out, never guessed."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.documents import Count, Document, Mismatch, convert, fields_of, left_out
from nlpctl.errors import Problem, UserError
from nlpctl.files import content_of, regular, small_text
from nlpctl.layout import (
    CHECKPOINTS,
    CONFIDENCE,
    ECE,
    EVENTS,
    EXPORT_MANIFEST,
    INDEX_TEXTS,
    INDEX_VECTORS,
    INTERVALS,
    MANIFEST,
    RECIPE,
    TASK,
    USER_SCORES,
    checkpoint_step,
)
from nlpctl.names import and_more
from nlpctl.runtime.event_log import EventLog
from nlpctl.runtime.run_directory import RunManifest
from nlpctl.tasks.slices import Slice

DAMAGED = "damaged"  # the state of a run whose files cannot all be read
Damage = list[Problem]
# What stands for an entry that every manifest has, where it is missing or wrong
_SUBSTITUTES: Mapping[str, Any] = {
    "state": DAMAGED, "pid": None, "host": None, "started": None, "ended": None, "error": None, "resumed": [],
    "command": [], "versions": {}, "git_commit": None, "seed": None, "data": {}, "device": None, "processes": None,
    "skipped_rows": {},
}  # fmt: skip


def warn_of_damage(damage: Iterable[Problem]) -> None:
    """A warning for each part of a run that is damaged, and left out."""
    for problem in damage:
        console.warn(str(problem))


@dataclass(frozen=True)
class Mistake:
    """A row of mistakes.json."""

    texts: Mapping[str, str]
    expected: str
    given: str
    where: str | None = None


@dataclass(frozen=True)
class MistakesFile(Document):
    """mistakes.json of a run: the worst errors on a split, written after the training for the report of the run.

    `wrong`: how many of its `rows`; `worst`: the worst of these, each a Mistake.
    """

    split: str
    rows: Count
    wrong: Count
    worst: tuple[Any, ...]

    def __post_init__(self) -> None:
        if self.wrong > self.rows:
            raise ValueError("more rows are wrong than there are")


@dataclass(frozen=True)
class SlicesFile(Document):
    """slices.json of a run: the `score` of some rows of a split, `by` label and by length; `left_out`: how many slices
    of each kind are not listed."""

    split: str
    score: str
    by: Mapping[str, tuple[Slice, ...]]
    left_out: Mapping[str, Count] = left_out(dict)  # older versions did not note them


# -- kinds of folders ----------------------------------------------------------------------------


def is_run(folder: Path) -> bool:
    """Whether `folder` is a run directory, even a damaged one, by the state in its manifest or by other files.

    An index too has a manifest.json and a recipe.yaml.
    """
    if "state" in content_of(folder / MANIFEST):
        return True
    signs = [(folder / name).exists() for name in (MANIFEST, RECIPE, EVENTS, CHECKPOINTS)]
    return other_kind(folder) is None and (signs[0] or signs[1]) and sum(signs) > 1


def other_kind(folder: Path) -> tuple[str, str] | None:
    """What `folder` is if nlpctl wrote it for another purpose, and the command that reads it; else None."""
    name = shlex.quote(str(folder))
    held = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if INDEX_VECTORS in held or {INDEX_TEXTS, MANIFEST} <= held:
        return "an index", f"nlpctl index search {name} QUERIES"
    if EXPORT_MANIFEST in held:
        candidate = folder.parent.name in ("candidates", "exports")
        return "a candidate of `nlpctl compress`" if candidate else "an export", f"nlpctl eval {name}"
    if TASK in held:
        return "a model folder", f"nlpctl eval {name}"
    return None


# -- the files of a run -----------------------------------------------------------------------------------


def sound_manifest(file: Path, damage: Damage) -> dict[str, Any]:
    """The entries of manifest.json with valid types; missing entries and wrong types are reported to `damage`."""
    content = _object(file, damage)
    if content is not None and content.get("format") != RunManifest.FORMAT:
        _tell(damage, file, "it is not a manifest of this version of nlpctl")
        content = None
    manifest = dict(content or {})
    wrong = [name for name in _SUBSTITUTES if name not in manifest]
    for name, (annotation, _) in fields_of(RunManifest).items():
        if name in manifest and not _fits(manifest[name], annotation):
            wrong.append(name)
    # Other facts about the parameters are added to these, which the commands that list runs tell.
    if "parameters" in manifest and "parameters" not in wrong and not _fits(manifest["parameters"].get("total"), float):
        wrong.append("parameters")
    for name in wrong:
        manifest.pop(name, None)
        if name in _SUBSTITUTES:
            manifest[name] = _SUBSTITUTES[name]
    if content is not None and wrong:
        _tell(damage, file, f"missing or wrong: {', '.join(wrong)}")
    return manifest


def _fits(value: Any, annotation: Any) -> bool:
    try:
        convert(value, annotation)
    except Mismatch:
        return False
    return True


def sound_metrics(file: Path, damage: Damage) -> dict[str, dict[str, Any]]:
    """The scores of metrics.json by split: numbers, and complete tables. {} if there is no file."""
    content = _object(file, damage) if file.exists() else {}
    metrics: dict[str, dict[str, Any]] = {}
    wrong = []
    for split, report in (content or {}).items():
        if not isinstance(report, dict):
            wrong.append(split)
            continue
        metrics[split] = {name: value for name, value in report.items() if is_score(name, value, report)}
        wrong += [f"{split}.{name}" for name in report if name not in metrics[split]]
    if wrong:
        _tell(damage, file, f"these are not scores: {and_more(wrong, 5)}")
    return metrics


def sound_mistakes(file: Path, damage: Damage) -> dict[str, Any] | None:
    """The content of mistakes.json; None if it is missing, as in an unfinished run, or unreadable."""
    found = _object(file, damage) if file.exists() else None
    if found is None:
        return None
    try:
        mistakes = convert(found, MistakesFile)
    except Mismatch as error:
        _tell(damage, file, str(error))
        return None
    kept = [each for each in mistakes.worst if _fits(each, Mistake)]
    if len(kept) < len(mistakes.worst):
        _tell(damage, file, f"{len(mistakes.worst) - len(kept)} of its {len(mistakes.worst)} rows are incomplete")
    return {**found, "worst": kept}


def sound_slices(file: Path, damage: Damage) -> dict[str, Any] | None:
    """The content of slices.json with a Slice for each entry; None if it is missing, or unreadable."""
    found = _object(file, damage) if file.exists() else None
    if found is None:
        return None
    try:
        slices = convert(found, SlicesFile)
    except Mismatch as error:
        _tell(damage, file, str(error))
        return None
    return {"split": slices.split, "score": slices.score, "by": slices.by, "left_out": slices.left_out}


def sound_events(file: Path, finished: bool, damage: Damage) -> list[dict[str, Any]]:
    """The events of events.jsonl, oldest first; none if there is no file.

    The last line of a killed or running run may be cut; that is damage only if the run has `finished`.
    """
    if not file.exists():
        return []
    try:
        whole = regular(file).read_bytes().endswith(b"\n")
        lines = EventLog(file).lines()
    except OSError as error:
        _tell(damage, file, str(error.strerror))
        return []
    bad = [number for number, event in lines.items() if event is None or not _is_event(event)]
    if bad and bad[-1] == max(lines) and not whole and not finished:
        bad.pop()
    if not lines:
        _tell(damage, file, "it is empty")
    elif bad:
        _tell(damage, file, f"{len(bad)} of its {len(lines)} lines are not events, first at line {bad[0]}")
    return [event for event in lines.values() if event is not None and _is_event(event)]


def _object(file: Path, damage: Damage) -> dict[str, Any] | None:
    """The JSON object of `file`, with None for each number that is not finite; None if it cannot be read."""
    unfinished = []

    def number(text: str) -> float | None:
        value = float(text)
        if not math.isfinite(value):
            unfinished.append(text)
        return value if math.isfinite(value) else None

    try:
        content = json.loads(small_text(file), parse_constant=number, parse_float=number)
        if not isinstance(content, dict):
            raise ValueError("it holds no JSON object")
    except (OSError, ValueError, RecursionError) as error:
        _tell(damage, file, getattr(error, "strerror", None) or str(error))
        return None
    if unfinished:
        _tell(damage, file, f"it holds {unfinished[0]}, which is not a number")
    return content


def _tell(damage: Damage, file: Path, reason: str) -> None:
    damage.append(Problem(f"cannot be read completely ({reason}); the rest is shown", where=str(file)))


def damaged_recipe(folder: Path, error: UserError) -> Problem:
    """The message for a run whose recipe cannot be read."""
    return Problem(f"the recipe cannot be read ({error.problems[0].message})", where=str(folder / RECIPE))


# -- validity of entries -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _LabelScores:
    precision: float
    recall: float
    f1: float
    support: float


@dataclass(frozen=True)
class _LevelScores:
    """Of a level of a hierarchy of labels."""

    labels: float
    micro_f1: float
    macro_f1: float


@dataclass(frozen=True)
class _Kept:
    """The answers of at least a confidence."""

    min_confidence: float
    coverage: float
    precision: float | None = None


_Bins = tuple[tuple[float, float, float], ...]  # of a reliability diagram


@dataclass(frozen=True)
class _Before:
    """Without the calibration of the model."""

    ece: float
    reliability: _Bins


@dataclass(frozen=True)
class _Confidence:
    of: str
    reliability: _Bins
    coverage: tuple[_Kept, ...]
    before: _Before | None = None


# The entries of a report of scores that are not numbers
_TABLES: Mapping[str, Any] = {
    "labels": Mapping[str, _LabelScores],
    "levels": Mapping[str, _LevelScores],
    "confusion": tuple[tuple[float, ...], ...],
    "confusions": tuple[tuple[str, str, float], ...],  # label, predicted as, rows
    INTERVALS: Mapping[str, tuple[float, float]],
    USER_SCORES: Mapping[str, float | None],
    CONFIDENCE: _Confidence,
}


def is_score(name: str, value: Any, report: Mapping[str, Any]) -> bool:
    """Whether an entry of a report of scores is whole: a number, or a table of its kind."""
    if not _fits(value, _TABLES.get(name, float)):
        return False
    if name == CONFIDENCE:
        return _fits(report.get(ECE), float)
    if name in ("confusion", "confusions"):
        labels: Any = report.get("labels")
        if not _fits(labels, _TABLES["labels"]):
            return False
        if name == "confusions":
            return all(label in labels for each in value for label in each[:2])
        return all(len(each) == len(labels) for each in (value, *value))  # square, and as large as its labels
    return True


def _is_event(event: Mapping[str, Any]) -> bool:
    """Whether the figures of an event are numbers (NaN included) and a save event names its checkpoints."""
    if event["event"] in ("log", "evaluate"):
        return all(type(value) in (int, float) for name, value in event.items() if name != "event")
    return event["event"] != "save" or ("best" in event and (event["best"] is None or _is_checkpoint(event["best"])))


def _is_checkpoint(name: Any) -> bool:
    try:
        return checkpoint_step(Path(name)) >= 0
    except (TypeError, ValueError):
        return False
