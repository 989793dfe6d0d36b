"""Scores as tables: one over all splits, then those of each label and of each level of labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nlpctl.layout import CONFIDENCE, ECE, INTERVALS, OWN_SCORES
from nlpctl.report.model import Table


def score_tables(metrics: Mapping[str, Mapping[str, Any]]) -> Iterator[Table]:
    """The tables of `metrics`, which hold a report for every split, as metrics.json does."""
    yield _scores(metrics)
    for split, report in metrics.items():
        if "labels" not in report:
            continue
        of_label = ["precision", "recall", "f1", "support"]
        labels = [[label, *(row[name] for name in of_label)] for label, row in report["labels"].items()]
        yield Table(["label", *of_label], labels, f"{split}, per label")
        if "levels" in report:  # of hierarchical labels
            of_level = ["labels", "micro_f1", "macro_f1"]
            levels = [[level, *(row[name] for name in of_level)] for level, row in report["levels"].items()]
            yield Table(["level", *of_level], levels, f"{split}, per level")


def figures(report: Mapping[str, Any]) -> dict[str, float]:
    """The entries of a report that are single numbers, those of the user's own scores too."""
    entries = {**report, **report.get(OWN_SCORES, {})}
    return {name: value for name, value in entries.items() if isinstance(value, int | float)}


def without_counts(report: Mapping[str, Any]) -> dict[str, float]:
    """`figures` without the numbers of rows, words and texts, which are no scores."""
    own = report.get(OWN_SCORES, {})
    return {name: value for name, value in figures(report).items() if name in own or not isinstance(value, int)}


def confidence_tables(metrics: Mapping[str, Mapping[str, Any]]) -> Iterator[Table]:
    """Per split how many decisions are as sure as some least confidence, and how many of these are right."""
    for split, report in metrics.items():
        found = report.get(CONFIDENCE)
        if not found:
            continue
        rows = [
            [each["min_confidence"], _share(each["coverage"]), _share(each["precision"])] for each in found["coverage"]
        ]
        title = f"{split}, {found['of']} by confidence; {told_ece(report)}"
        yield Table(["confidence from", f"{found['of']} kept", "of these right"], rows, title)


def told_ece(report: Mapping[str, Any]) -> str:
    """The calibration error of a report, for people."""
    before = report[CONFIDENCE].get("before")
    return f"ECE {report[ECE]:.4f}" + (" (not calibrated)" if before is None else f", {before[ECE]:.4f} uncalibrated")


def _share(share: float | None) -> str | None:
    return None if share is None else f"{share:.1%}".replace("%", " %")


def _scores(metrics: Mapping[str, Mapping[str, Any]]) -> Table:
    """A row of scores per split, and one of their 95 % intervals."""
    names = list(dict.fromkeys(name for report in metrics.values() for name in figures(report)))
    rows: list[list[Any]] = []
    for split, report in metrics.items():
        rows.append([split, *(figures(report).get(name) for name in names)])
        ends = report.get(INTERVALS)
        if ends:
            told = [f"{ends[name][0]:.3f} to {ends[name][1]:.3f}" if name in ends else None for name in names]
            rows.append(["  95 % interval", *told])
    return Table(["split", *names], rows)
