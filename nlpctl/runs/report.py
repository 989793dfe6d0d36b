"""`nlpctl report`: a run as one HTML page. Needs neither Paddle nor the data."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.config.tasks import scores, task_info
from nlpctl.errors import UserError
from nlpctl.files import regular, write_text_atomic, writing
from nlpctl.layout import CONFIDENCE, INTERVALS
from nlpctl.names import and_more
from nlpctl.outputs import refuse_output
from nlpctl.report.html import Html, element
from nlpctl.report.model import (
    BulletList,
    Code,
    Figure,
    Folded,
    KeyFigures,
    Part,
    Place,
    Report,
    Section,
    SideBySide,
    Table,
    percent,
)
from nlpctl.report.page import html_page, refuse_other_page
from nlpctl.report.plots import Point, lines, matrix, reliability
from nlpctl.report.score_tables import confidence_tables, score_tables, told_ece
from nlpctl.runs.comparison import slice_table
from nlpctl.runs.run_files import DAMAGED, sound_mistakes, sound_slices
from nlpctl.runs.runs import RunRecord, facts, open_run, tell_missing_slices
from nlpctl.runs.time_shares import advice as time_advice
from nlpctl.runs.time_shares import is_sound, rows_of, total_of

# A run as one HTML page.

LARGEST_MATRIX = 25  # labels; with more, the most frequent confusions are listed
MOST_CONFUSIONS = 40
TEXT = 300  # characters of a text in the table of mistakes
OVERFITTED = 1.1  # a dev loss above this multiple of its minimum is reported


def run_page(
    record: RunRecord,
    recipe_yaml: str,
    mistakes: Mapping[str, Any] | None,
    slices: Mapping[str, Any] | None = None,
    compression: Sequence[Part] = (),
    first: Sequence[Section] = (),
    refresh: int | None = None,
) -> str:
    """The text of the page. `mistakes`, `slices`: the content of mistakes.json and slices.json; `compression`: the
    section on compressed models; `first`: sections before all others; `refresh`: as of `html_page`."""
    sections = [
        *first,
        Section("Summary", [_key_figures(record), BulletList(list(advice(record)))]),
        Section("Curves", list(_curves(record))),
        Section("Time", list(_time(record))),
        Section("Scores", list(_scores(record))),
        Section("Confidence", list(_confidence(record))),
        Section("Slices", list(_slices(slices))),
        Section("Confusions", list(_confusions(record))),
        Section("Worst errors", list(_mistakes(mistakes, record.recipe.task))),
        Section("Compression", compression),
        Section("Recipe", [Code(recipe_yaml)]),
        Section("Manifest", list(_manifest(record))),
    ]
    name = record.run.path.resolve().name
    lead = f"{record.recipe.task}, {record.model}: {record.run.path.resolve()}"
    return html_page(Report(f"Run {name}", lead, sections), refresh)


# -- summary -------------------------------------------------------------------------------------


def _key_figures(record: RunRecord) -> KeyFigures:
    tiles: dict[str, Any] = {"state": record.shown_state}
    for split in ("dev", "test"):
        score = record.score(split, record.metric)
        if score is not None:
            tiles[f"{record.metric} on {split}"] = score
    if record.best_step is not None:
        tiles[f"step of the model, chosen by {record.metric} on dev"] = record.best_step
    tiles["last step"] = record.step
    if record.duration is not None:
        tiles["time"] = record.duration
    if "parameters" in record.manifest:
        tiles["parameters"] = record.manifest["parameters"]["total"]
    return KeyFigures(tiles)


def advice(record: RunRecord) -> Iterator[str]:
    """Warnings for the reader: a failed run, unusual events, problems hidden by the scores."""
    yield from map(str, record.damage)
    if record.manifest["error"]:
        yield f"The run {record.state}: {record.manifest['error']}"
    elif record.state not in ("finished", "running", DAMAGED):
        yield f"The run was {record.state}."
    for event in record.incidents():
        yield f"{event['event'].replace('_', ' ')} at step {event['step']:,} (details: nlpctl runs show)"
    for split, skipped in record.manifest["skipped_rows"].items():
        if skipped["total"]:
            yield f"{skipped['total']:,} bad rows of {split} were skipped."
    for split, report in record.metrics.items():
        never = [name for name, each in report.get("labels", {}).items() if each["support"] and not each["recall"]]
        if never:
            yield f"On {split} no row with these labels is predicted correctly: {and_more(never, 20)}"
    yield from _overfitting(record)


def _overfitting(record: RunRecord) -> Iterator[str]:
    points = [point for point in series(record, "evaluate", "eval_loss") if math.isfinite(point[1])]
    if points:
        step, lowest = min(points, key=lambda point: point[1])
        if points[-1][1] > lowest * OVERFITTED:
            yield (
                f"The loss on dev was lowest at step {step:,} ({lowest:.4f}) and rose to {points[-1][1]:.4f}: "
                "the model overfits from there on. Fewer epochs, a smaller learning rate or more data may help."
            )


# -- curves --------------------------------------------------------------------------------------


def series(record: RunRecord, event: str, figure: str) -> list[Point]:
    """(step, value) of `figure` in the events of one kind."""
    return [(each["step"], each[figure]) for each in record.events if each["event"] == event and figure in each]


def _curves(record: RunRecord) -> Iterator[Part]:
    known = scores(record.recipe.task)
    names = (*known, *(name for name in record.own_scores if name not in known))
    marks = {} if record.best_step is None else {"best": record.best_step}
    falling = [name for name in names if not task_info(record.recipe.task).greater_is_better(name)]
    curves = {"loss": {"train": series(record, "log", "loss"), "dev": series(record, "evaluate", "eval_loss")}}
    rising = [name for name in names if name not in falling]
    title = "scores on dev" if len(rising) > 1 else f"{rising[0]} on dev"
    curves[title] = {name: _dev(record, name) for name in rising}
    curves |= {f"{name} on dev": {name: _dev(record, name)} for name in falling}
    curves["learning rate"] = {"": series(record, "log", "learning_rate")}
    curves["rows per second"] = {"": series(record, "log", "interval_samples_per_second")}
    plots = []
    for title, lines_of in curves.items():
        known = {name: points for name, points in lines_of.items() if points}
        plots.append(lines(known, "step", title, marks={} if "" in known else marks, x_range=(0, record.step)))
    if any(plots):
        yield SideBySide([Figure(plot) for plot in plots if plot])


def _dev(record: RunRecord, name: str) -> list[Point]:
    return series(record, "evaluate", f"eval_{name}")


# -- time ----------------------------------------------------------------------------------------


def _time(record: RunRecord) -> Iterator[Part]:
    """Where the time of the training went, and what to change."""
    found = record.manifest.get("time")
    if not is_sound(found):
        return
    rows = [[title, f"{seconds:.1f}", percent(share)] for title, seconds, share in rows_of(found)]
    rows.append(["total", f"{total_of(found):.1f}", percent(1.0)])
    yield Table(["what", "seconds", "share"], rows, f"{found['steps']:,} steps")
    yield from time_advice(found, record.recipe, record.manifest["device"])


# -- scores --------------------------------------------------------------------------------------


def _scores(record: RunRecord) -> Iterator[Part]:
    if not record.metrics:
        return
    yield next(score_tables(record.metrics))  # the others are drawn below
    if INTERVALS in record.metrics.get("dev", {}):
        yield "As far as dev chose checkpoint, thresholds or settings, its score is optimistic, and so is its interval."
    labels = [_label_table(split, report) for split, report in record.metrics.items() if "labels" in report]
    if labels:
        yield SideBySide(labels)
    levels = [_level_table(split, report) for split, report in record.metrics.items() if "levels" in report]
    if levels:
        yield SideBySide(levels)


def _confidence(record: RunRecord) -> Iterator[Part]:
    """Whether the model is right as often as it says, and what it costs to take only what it is sure of."""
    found = {split: report for split, report in record.metrics.items() if CONFIDENCE in report}
    if not found:
        return
    yield (
        "The share of right decisions over the confidence of the model, in 15 bins of equal width: on the diagonal it "
        "is right as often as it says. ECE is the mean distance from it. `nlpctl predict --min-confidence` withholds "
        "what is less sure."
    )
    yield SideBySide([_diagram(split, report) for split, report in found.items()])
    yield SideBySide(list(confidence_tables(found)))


def _diagram(split: str, report: Mapping[str, Any]) -> Figure:
    told = report[CONFIDENCE]
    before = told.get("before")
    series = {"as trained" if before is None else "calibrated": told["reliability"]}
    if before is not None:
        series = {"before": before["reliability"], **series}
    return Figure(reliability(series), f"{split}: {told_ece(report)}")


def _label_table(split: str, report: Mapping[str, Any]) -> Table:
    rows = [
        [label, each["precision"], each["recall"], each["f1"], each["support"]]
        for label, each in report["labels"].items()
    ]
    return Table(["label", "precision", "recall", "f1", "rows"], rows, f"{split}, per label")


def _level_table(split: str, report: Mapping[str, Any]) -> Table:
    rows = [[level, each["labels"], each["micro_f1"], each["macro_f1"]] for level, each in report["levels"].items()]
    return Table(["level", "labels", "micro_f1", "macro_f1"], rows, f"{split}, per level")


def _slices(found: Mapping[str, Any] | None) -> Iterator[Part]:
    if found is None or not found["by"]:
        return
    yield (
        f"The {found['score']} of some rows of {found['split']}, and how far it lies above that of all other rows: the "
        "weakest first. `nlpctl eval RUN --by COLUMN` slices by a column of the data."
    )
    for kind, listed in found["by"].items():
        yield slice_table(found["split"], kind, listed)


def _confusions(record: RunRecord) -> Iterator[Part]:
    kept = ("confusion", "confusions")
    found = {split: report for split, report in record.metrics.items() if any(name in report for name in kept)}
    if not found:
        return
    names = list(next(iter(found.values()))["labels"])
    if len(names) <= LARGEST_MATRIX and all("confusion" in report for report in found.values()):
        yield "Lines: true labels; columns: predicted labels."
        matrices = {split: matrix(names, names, report["confusion"]) for split, report in found.items()}
        yield SideBySide([Figure(drawn, split) for split, drawn in matrices.items()])
        return
    yield SideBySide([_confusion_table(split, report) for split, report in found.items()])


def _confusion_table(split: str, report: Mapping[str, Any]) -> Table:
    labels = report["labels"]
    names = list(labels)
    rows = [
        [names[i], names[j], count, percent(count / sum(line))]
        for i, line in enumerate(report.get("confusion", ()))
        for j, count in enumerate(line)
        if count and i != j
    ]
    for gold, given, count in report.get("confusions", ()):
        rows.append([gold, given, count, percent(count / max(labels[gold]["support"], 1))])
    rows.sort(key=lambda row: -row[2])
    columns = ["label", "predicted as", "rows", "share of the label"]
    return Table(columns, rows[:MOST_CONFUSIONS], f"{split}, the most frequent confusions of {len(names)} labels")


def _mistakes(found: Mapping[str, Any] | None, task: str) -> Iterator[Part]:
    if found is None:
        return
    split, rows, wrong = found["split"], found["rows"], found["wrong"]
    if not wrong:
        yield f"None of the {rows:,} rows of {split}."
        return
    shown = len(found["worst"])
    kept = f" The worst {shown}:" if shown < wrong else ""
    yield f"{wrong:,} of {rows:,} rows of {split} {task_info(task).mistakes} ({percent(wrong / rows)}).{kept}"
    columns = list(dict.fromkeys(column for each in found["worst"] for column in each["texts"]))
    named = any(each["where"] for each in found["worst"])
    lines_ = [
        [
            *([Place(Path(each["where"]).name if each["where"] else "")] if named else []),
            *(_shortened(each["texts"].get(column, "")) for column in columns),
            _shortened(each["expected"]),
            _shortened(each["given"]),
        ]
        for each in found["worst"]
    ]
    yield Table([*(["where"] if named else []), *columns, "expected", "given"], lines_)


def _shortened(text: str) -> Html:
    """A text cut for a table cell; the full text shows on hover."""
    return element("span", text) if len(text) <= TEXT else element("span", text[: TEXT - 1] + "…", title=text)


# -- manifest ------------------------------------------------------------------------------------


def _manifest(record: RunRecord) -> Iterator[Part]:
    told = {name: value for name, value in facts(record).items() if name not in ("data", "state", "task", "model")}
    yield Table(["fact", "value"], [[name, element("span", str(value))] for name, value in told.items()])
    data = [[element("span", file), element("span", digest[:16])] for file, digest in record.manifest["data"].items()]
    if data:
        yield Table(["data", "sha256"], data)
    yield Folded("manifest.json", [Code(json.dumps(record.manifest, ensure_ascii=False, indent=2))])



_OUTPUT = "-o REPORT.html"

# The section on the models that `nlpctl compress` made of a run, which compress/page.py draws.
Compression = Callable[[RunRecord], Sequence[Part]]


def _no_compression(record: RunRecord) -> Sequence[Part]:
    return ()


def write_report(
    run: Path, output: Path | None = None, *, overwrite: bool = False, compression: Compression = _no_compression
) -> Path:
    """Write the page of a run to `output`, by default report.html in the run directory; returns the file.

    Only the run's own report is replaced without --overwrite. UserError if there is no run or the file cannot be
    written.
    """
    record = open_run(run)
    file = record.run.report_file if output is None else output
    if output is None:
        refuse_other_page(file, f"move it away, or name another file: {_OUTPUT}")
    else:
        refuse_output(file, overwrite)
    tell_missing_slices(record)
    page = page_of(record, compression)
    with writing(file, f"name another file: {_OUTPUT}"):
        write_text_atomic(file, page)
    return file


def renew_report(run: Path, compression: Compression = _no_compression) -> None:
    """`write_report` after a command that changed the run. If it fails, that is done all the same, so only warn."""
    try:
        write_report(run, compression=compression)
    except UserError as error:
        console.warn(f"no report: {error}")


def page_of(
    record: RunRecord, compression: Compression, first: Sequence[Section] = (), refresh: int | None = None
) -> str:
    """The page of a run; what cannot be read is left out with a warning. `first` and `refresh`: as of `run_page`."""
    damage = list(record.damage)
    mistakes = sound_mistakes(record.run.mistakes_file, damage)
    slices = sound_slices(record.run.slices_file, damage)
    record = dataclasses.replace(record, damage=damage)
    for problem in damage:
        console.warn(str(problem))
    recipe = regular(record.run.recipe_file).read_text(encoding="utf-8")
    return run_page(record, recipe, mistakes, slices, compression(record), first, refresh)
