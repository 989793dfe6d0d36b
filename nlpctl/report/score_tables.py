"""Scores as tables: one over all splits, then those of each label, of each level of labels, and by confidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nlpctl.layout import CONFIDENCE, ECE, INTERVALS, USER_SCORES
from nlpctl.report.language import say
from nlpctl.report.model import Table


def score_tables(metrics: Mapping[str, Mapping[str, Any]]) -> Iterator[Table]:
    """The tables of `metrics`, which hold a report for every split, as metrics.json does."""
    yield _split_table(metrics)
    for split, report in metrics.items():
        if "labels" in report:
            yield label_table(split, report)
        if "levels" in report:
            yield level_table(split, report)


def _split_table(metrics: Mapping[str, Mapping[str, Any]]) -> Table:
    """A row of scores per split, and one of their 95 % intervals."""
    names = list(dict.fromkeys(name for report in metrics.values() for name in single_scores(report)))
    scores = {name for report in metrics.values() for name in without_counts(report)}
    rows: list[list[Any]] = []
    for split, report in metrics.items():
        rows.append([split, *(single_scores(report).get(name) for name in names)])
        ends = intervals_of(report)
        if ends:
            intervals = [say("{:.3f} to {:.3f}", *ends[name]) if name in ends else None for name in names]
            rows.append([say("  95 % interval"), *intervals])
    return Table([say("split"), *(name if name in scores else say(name) for name in names)], rows)


def label_table(split: str, report: Mapping[str, Any]) -> Table:
    """The scores of each label, and how many rows or entities have it."""
    names = ["precision", "recall", "f1", "support"]
    rows = [[label, *(scores[name] for name in names)] for label, scores in report["labels"].items()]
    return Table([say("label"), *names[:-1], say("support")], rows, say("{}, per label", split))


def level_table(split: str, report: Mapping[str, Any]) -> Table:
    """The scores of each level of hierarchical labels."""
    names = ["labels", "micro_f1", "macro_f1"]
    rows = [[level, *(scores[name] for name in names)] for level, scores in report["levels"].items()]
    return Table([say("level"), say("labels"), *names[1:]], rows, say("{}, per level", split))


def confidence_tables(metrics: Mapping[str, Mapping[str, Any]]) -> Iterator[Table]:
    """Per split how many decisions are as sure as some least confidence, and how many of these are right."""
    for split, report in metrics.items():
        confidence = report.get(CONFIDENCE)
        if not confidence:
            continue
        rows = [
            [point["min_confidence"], _percent(point["coverage"]), _percent(point["precision"])]
            for point in confidence["coverage"]
        ]
        what = confidence["of"]  # what is decided: rows, entities, labels
        title = say("{}, {} by confidence; {}", split, say(what), format_ece(report))
        yield Table([say("confidence from"), say("{} kept", say(what)), say("of these right")], rows, title)


def single_scores(report: Mapping[str, Any]) -> dict[str, float]:
    """The entries of a report that are single numbers, those of the user's own scores too."""
    entries = {**report, **report.get(USER_SCORES, {})}
    return {name: value for name, value in entries.items() if isinstance(value, int | float)}


def without_counts(report: Mapping[str, Any]) -> dict[str, float]:
    """`single_scores` without the numbers of rows, words and texts, which are no scores."""
    own = report.get(USER_SCORES, {})
    return {name: value for name, value in single_scores(report).items() if name in own or not isinstance(value, int)}


def intervals_of(report: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """The 95 % interval of each of `single_scores` that has one: none of the user's own, which may be called as one of
    the task's."""
    own = report.get(USER_SCORES, {})
    return {name: ends for name, ends in report.get(INTERVALS, {}).items() if name not in own}


def format_ece(report: Mapping[str, Any]) -> str:
    """The expected calibration error of a report, and what it was before the calibration."""
    before = report[CONFIDENCE].get("before")
    if before is None:
        return say("ECE {:.4f} (not calibrated)", report[ECE])
    return say("ECE {:.4f}, {:.4f} uncalibrated", report[ECE], before[ECE])


def _percent(share: float | None) -> str | None:
    """A share as 12.3 %. Unlike `model.percent` it writes the least shares as 0.0 %."""
    return None if share is None else f"{share:.1%}".replace("%", " %")
