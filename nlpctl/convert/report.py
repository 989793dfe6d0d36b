"""The conversion report on every parameter and variable: as JSON, as Markdown, for the console, and as a map file."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from nlpctl.convert.conversion import Conversion
from nlpctl.convert.proof import TOLERANCE, Proof
from nlpctl.names import format_shape
from nlpctl.report.language import say, say_counted, say_each, say_names
from nlpctl.report.markdown import markdown_page
from nlpctl.report.model import BulletList, Report, Section, Table
from nlpctl.spelling import option

Shape = tuple[int, ...]


@dataclass(frozen=True)
class ConversionReport:
    """`parameters`: how many the network has, each counted once; `matched` + `fresh` + `missing` + `mismatched` +
    `ambiguous` are all of them. `fresh` were allowed to be new. `optimizer`: variables of a training that is over.
    """

    source: str
    layout: str
    to: str
    network: str
    labels: tuple[str, ...]
    parameters: int
    numbers: int
    matched: tuple[MatchedRow, ...]
    fresh: tuple[OpenRow, ...]
    missing: tuple[OpenRow, ...]
    mismatched: tuple[OpenRow, ...]
    ambiguous: tuple[OpenRow, ...]
    unused: tuple[VariableRow, ...]
    optimizer: tuple[str, ...]
    notes: tuple[str, ...]
    proof: Proof | None

    @property
    def complete(self) -> bool:
        return not (self.missing or self.mismatched or self.ambiguous)

    @property
    def ways(self) -> dict[str, int]:
        """The number of matched parameters per method."""
        return dict(Counter(row.how for row in self.matched))

    @property
    def open_tables(self) -> list[Table]:
        """The parameters without a value, by the reason; a table that would be empty is left out."""
        reasons = {
            say("two or more candidates"): self.ambiguous,
            say("another shape or type"): self.mismatched,
            say("missing"): self.missing,
            say("new, as {} says", option("allow-missing")): self.fresh,
        }
        tables = []
        for title, listed in reasons.items():
            rows = [
                [row.parameter, say(format_shape(row.shape)), say(row.reason), say_names(row.candidates)]
                for row in listed
            ]
            if rows:
                tables.append(Table(say_each("parameter", "shape", "why", "variables"), rows, title))
        return tables

    @property
    def matched_table(self) -> Table:
        """One line per parameter: the variables it comes from, and how they were found."""
        rows = [
            [
                row.parameter,
                say(format_shape(row.shape)),
                " + ".join(row.variables),
                ", ".join(_step_text(step) for step in row.steps),
                row.dtype,
                say("{}, {}", say(row.how), row.where) if row.where else say(row.how),
            ]
            for row in self.matched
        ]
        columns = say_each("parameter", "shape", "from", "conversion|steps", "type", "how")
        return Table(columns, rows, say("matched"))

    @property
    def summary(self) -> list[str]:
        """For the console, line by line."""
        lines = [
            say("source: {} ({})", self.source, say(self.layout)),
            say("network: {}, {:,} numbers in {} parameters", self.network, self.numbers, self.parameters),
            say("matched: {} of {} parameters", len(self.matched), self.parameters),
            *(say("  {} by {}", count, say(how)) for how, count in self.ways.items()),
        ]
        used = len({variable for row in self.matched for variable in row.variables})
        unused = say("; without use: {}", say_names([row.variable for row in self.unused])) if self.unused else ""
        lines.append(say("variables: {} of {} used{}", used, used + len(self.unused), unused))
        if self.optimizer:
            lines.append(say("variables of an optimizer, left out: {}", len(self.optimizer)))
        lines += [say("note: {}", say(note)) for note in self.notes]
        return [*lines, say("proof: {}", proof_text(self.proof))]

    def to_json(self) -> dict[str, Any]:
        share = round(len(self.matched) / self.parameters, 6) if self.parameters else 0.0
        proof = None
        if self.proof is not None:
            proof = {"difference": self.proof.difference, "tolerance": TOLERANCE, **dataclasses.asdict(self.proof)}
            proof = _finite(proof)
        return {**dataclasses.asdict(self), "share": share, "complete": self.complete, "ways": self.ways,
                "proof": proof}  # fmt: skip


@dataclass(frozen=True)
class MatchedRow:
    """A parameter and the variables it comes from. `dtype`: theirs; `how`: which way found it.

    `outputs`: all parameters that these steps make of these variables, in their order.
    """

    parameter: str
    shape: Shape
    variables: tuple[str, ...]
    dtype: str
    steps: tuple[Any, ...]
    outputs: tuple[str, ...]
    how: str
    where: str


@dataclass(frozen=True)
class OpenRow:
    """A parameter without a value. `candidates`: variables of its shape that are not used, or what clashed."""

    parameter: str
    shape: Shape
    reason: str
    candidates: tuple[str, ...]


@dataclass(frozen=True)
class VariableRow:
    """A variable that is in no match."""

    variable: str
    shape: Shape
    dtype: str


def make_report(conversion: Conversion, proof: Proof | None) -> ConversionReport:
    """`proof`: None where none was tried."""
    matching = conversion.matching
    fresh = {parameter.name for parameter in conversion.fresh}
    unused = [VariableRow(each.name, each.shape, each.dtype) for each in matching.unused]
    missing = [
        OpenRow(each.name, each.shape, "", tuple(row.variable for row in unused if row.shape == each.shape))
        for each in matching.missing
    ]
    mismatched = [
        OpenRow(each.parameter.name, each.parameter.shape, each.reason, each.candidate.static)
        for each in matching.mismatches
    ]
    return ConversionReport(
        source=str(conversion.source.source),
        layout=conversion.source.layout,
        to=conversion.target.name,
        network=type(conversion.network).__name__,
        labels=conversion.target.labels,
        parameters=len(matching.parameters),
        numbers=sum(parameter.size for parameter in matching.parameters),
        matched=tuple(
            MatchedRow(
                parameter=match.parameter.name,
                shape=match.parameter.shape,
                variables=match.candidate.static,
                dtype=match.dtype,
                steps=tuple(step.plain() for step in match.candidate.steps),
                outputs=match.candidate.dygraph,
                how=match.candidate.how,
                where=match.candidate.where,
            )
            for match in matching.matches
        ),
        fresh=tuple(row for row in [*missing, *mismatched] if row.parameter in fresh),
        missing=tuple(row for row in missing if row.parameter not in fresh),
        mismatched=tuple(row for row in mismatched if row.parameter not in fresh),
        ambiguous=tuple(
            OpenRow(each.name, each.shape, ambiguity.why, ambiguity.candidates)
            for ambiguity in matching.ambiguities
            for each in ambiguity.parameters
        ),
        unused=tuple(unused),
        optimizer=conversion.source.left_out,
        notes=(*conversion.source.notes, *matching.notes),
        proof=proof,
    )


def _finite(value: Any) -> Any:
    """JSON has no infinity: null stands for the difference from what is no number."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# -- sentences and tables ---------------------------------------------------------------------------------------------


def proof_text(proof: Proof | None) -> str:
    """One sentence."""
    if proof is None:
        return say("not run")
    if not proof.possible:
        return say("not possible: {}", proof.reason)
    difference = say("at most {:.3g}", proof.difference) if proof.holds else f"{proof.difference:.3g}"
    read = "".join(sorted({say(" (of the {} of the network's)", each.of) for each in proof.outputs if each.of}))
    norms = say(" (layer norms with the program's epsilon, {:g})", proof.epsilon) if proof.epsilon is not None else ""
    told = say(
        "the static program and the network{}, run on the same inputs, differ by {} in {}{}; tolerance {:g}",
        norms, difference, say_counted(len(proof.outputs), "outputs"), read, TOLERANCE,
    )  # fmt: skip
    return told if proof.holds else say("FAILED: {}", told)


def _step_text(step: Any) -> str:
    return step if isinstance(step, str) else "".join(f"{name} {value}" for name, value in step.items())


def markdown(report: ConversionReport) -> str:
    """The whole report as a page."""
    summary = Section("", [BulletList([line.strip() for line in report.summary])])
    reasons = [Section(say("Parameters: {}", table.title), [table]) for table in report.open_tables]
    unused = [[row.variable, say(format_shape(row.shape)), row.dtype] for row in report.unused]
    columns = say_each("variable", "shape", "type")
    sections = [
        summary,
        *reasons,
        Section(say("Variables without use"), [Table(columns, unused)] if unused else []),
        Section(say("Matched"), [report.matched_table]),
    ]
    return markdown_page(Report(say("Conversion of {}", report.source), "", sections))


# -- the map file of --plan: each match as a rule, each open parameter as a rule in comments --------------------------


def plan_text(report: ConversionReport) -> str:
    """YAML that `--map FILE` takes; complete where the report is."""
    lines = [
        f"# How the variables of {_in_one_line(report.source)}",
        f"# become the parameters of {report.network} ({_in_one_line(report.to)}).",
        "# Edit it and pass it back: nlpctl convert-static ... --map THIS_FILE. docs/convert-static.md tells what",
        "# rules can do.",
        "rules:" if report.matched else "rules: []",
    ]
    for matched in _by_candidate(report):
        first = matched[0]
        shapes = ", ".join(format_shape(row.shape) for row in matched)
        lines.append(f"- static: {_names(first.variables)}")
        lines.append(f"  dygraph: {_names(first.outputs)}  # {shapes}; {first.how}")
        if first.steps:
            lines.append(f"  steps: {json.dumps(list(first.steps))}")
    sections: list[tuple[str, tuple[OpenRow, ...]]] = [
        ("Two or more candidates: choose one, and remove its #", report.ambiguous),
        ("Another shape or type", report.mismatched),
        ("Missing", report.missing),
        (f"New, as {option('allow-missing')} says", report.fresh),
    ]
    for title, rows in sections:
        if rows:
            lines += ["", f"# {title}:"]
        for row in rows:
            reason = f"; {row.reason}" if row.reason else ""
            for candidate in row.candidates or ("...",):
                lines.append(f"# - static: {_name(candidate)}")
                lines.append(f"#   dygraph: {_name(row.parameter)}  # {format_shape(row.shape)}{reason}")
    if report.unused:
        lines += ["", "# Variables without use:"]
        lines += [f"#   {_in_one_line(row.variable)}  # {format_shape(row.shape)} {row.dtype}" for row in report.unused]
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


def _in_one_line(text: str) -> str:
    """For a comment, which a line break in a stranger's name would end."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def _names(names: tuple[str, ...]) -> str:
    return _name(names[0]) if len(names) == 1 else "[" + ", ".join(map(_name, names)) + "]"


def _name(name: str) -> str:
    """In quotes where YAML would read something else."""
    plain = name.replace(".", "").replace("_", "").replace("-", "").isalnum() and not name[0].isdigit()
    return name if plain and name[0] not in "-." else json.dumps(name)
