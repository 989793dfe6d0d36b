"""Writes the map file of `--plan`: each match as a rule, each open parameter as a commented-out rule."""

from __future__ import annotations

import json

from nlpctl.convert.report import ConversionReport, MatchedRow, OpenRow, shape_text


def plan_text(report: ConversionReport) -> str:
    """YAML that `--map FILE` takes; complete where the report is."""
    lines = [
        f"# How the variables of {report.source}",
        f"# become the parameters of {report.network} ({report.to}).",
        "# Edit it and pass it back: nlpctl convert-static ... --map THIS_FILE. docs/convert-static.md tells what",
        "# rules can do.",
        "rules:" if report.matched else "rules: []",
    ]
    for rows in _by_candidate(report):
        lines += _rule(rows)
    sections = [
        ("Two or more candidates: choose one, and remove its #", report.ambiguous),
        ("Another shape or type", report.mismatched),
        ("Missing", report.missing),
        ("New, as --allow-missing says", report.fresh),
    ]
    for title, rows in sections:
        if rows:
            lines += ["", f"# {title}:"]
            lines += [line for row in rows for line in _comment(row)]
    if report.unused:
        lines += ["", "# Variables without use:"]
        lines += [f"#   {row.variable}  # {shape_text(row.shape)} {row.dtype}" for row in report.unused]
    return "\n".join(lines) + "\n"


def _by_candidate(report: ConversionReport) -> list[list[MatchedRow]]:
    """Rows that come from the same variables by the same steps: one rule makes all of them.

    Steps that split belong to as many parameters; matched rows keep the network's order, which is the rule's.
    """
    rules: dict[str, list[MatchedRow]] = {}
    for row in report.matched:
        # JSON as key, because steps hold lists and dicts, which cannot be hashed.
        rules.setdefault(json.dumps([row.variables, row.steps, row.outputs]), []).append(row)
    return list(rules.values())


def _rule(rows: list[MatchedRow]) -> list[str]:
    first = rows[0]
    lines = [
        f"- static: {_names(first.variables)}",
        f"  dygraph: {_names(first.outputs)}  # {', '.join(shape_text(row.shape) for row in rows)}; {first.how}",
    ]
    return [*lines, f"  steps: {json.dumps(list(first.steps))}"] if first.steps else lines


def _comment(row: OpenRow) -> list[str]:
    reason = f"; {row.reason}" if row.reason else ""
    choices = row.candidates or ("...",)
    return [f"# - static: {_name(choice)}\n#   dygraph: {_name(row.parameter)}  # {shape_text(row.shape)}{reason}"
            for choice in choices]  # fmt: skip


def _names(names: tuple[str, ...]) -> str:
    return _name(names[0]) if len(names) == 1 else "[" + ", ".join(map(_name, names)) + "]"


def _name(name: str) -> str:
    """In quotes where YAML would read something else."""
    plain = name.replace(".", "").replace("_", "").replace("-", "").isalnum() and not name[0].isdigit()
    return name if plain and name[0] not in "-." else json.dumps(name)
