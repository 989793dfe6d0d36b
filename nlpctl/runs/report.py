"""`nlpctl report`: a run as one HTML page. Needs neither Paddle nor the data."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.config.tasks import NO_ANSWER, NO_ENTITY, NO_LABEL, greater_is_better, scores, task_info
from nlpctl.errors import UserError
from nlpctl.files import content_of, json_of, regular, write_text_atomic, writing
from nlpctl.layout import COMPRESS, COMPRESS_REPORT, CONFIDENCE, INTERVALS, PLAN
from nlpctl.models.model_manifest import weights_sum
from nlpctl.models.source import WEIGHTS
from nlpctl.outputs import refuse_output
from nlpctl.report.html import Html, element
from nlpctl.report.language import say, say_each, say_names
from nlpctl.report.model import (
    BulletList,
    Code,
    Figure,
    Folded,
    KeyFigures,
    Number,
    Part,
    Place,
    Report,
    Section,
    SideBySide,
    Table,
    format_times,
    percent,
)
from nlpctl.report.page import html_page, names_page, refuse_other_page
from nlpctl.report.plots import Point, lines, matrix, reliability
from nlpctl.report.score_tables import confidence_tables, format_ece, label_table, level_table, score_tables
from nlpctl.runs.comparison import slice_table, slices_left_out
from nlpctl.runs.run_files import DAMAGED, sound_mistakes, sound_slices
from nlpctl.runs.runs import INCIDENTS, RunRecord, facts, open_run, tell_missing_slices, truncation_told
from nlpctl.runs.time_shares import advice as time_advice
from nlpctl.runs.time_shares import is_sound, rows_of, total_of
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.tasks.slices import MOST_OF_A_RUN

LARGEST_MATRIX = 25  # labels; with more, the most frequent confusions are listed
MOST_CONFUSIONS = 40
TEXT = 300  # characters of a text in the table of mistakes
OVERFITTED = 1.1  # a dev loss above this multiple of its minimum is reported


def run_page(
    record: RunRecord,
    recipe_yaml: str,
    mistakes: Mapping[str, Any] | None,
    slices: Mapping[str, Any] | None = None,
    first: Sequence[Section] = (),
    refresh: int | None = None,
) -> str:
    """The text of the page. `mistakes`, `slices`: the content of mistakes.json and slices.json; `first`: sections
    before all others; `refresh`: as of `html_page`."""
    sections = [
        *first,
        Section(say("Summary"), [_key_figures(record), BulletList(list(advice(record)))]),
        Section(say("Curves"), list(_curves(record))),
        Section(say("Time"), list(_time(record))),
        Section(say("Scores"), list(_scores(record))),
        Section(say("Confidence"), list(_confidence(record))),
        Section(say("Slices"), list(_slices(slices))),
        Section(say("Confusions"), list(_confusions(record))),
        Section(say("Worst errors"), list(_mistakes(mistakes, record.recipe.task))),
        Section(say("Compression"), _compression(record)),
        Section(say("Recipe"), [Code(recipe_yaml)]),
        Section(say("Manifest"), list(_manifest(record))),
    ]
    name = record.run.path.resolve().name
    lead = say("{}, {}: {}", record.recipe.task, say(record.model), record.run.path.resolve())
    return html_page(Report(say("Run {}", name), lead, sections), refresh)


# -- summary -------------------------------------------------------------------------------------


def _key_figures(record: RunRecord) -> KeyFigures:
    values: dict[str, Any] = {say("state"): say(record.shown_state)}
    for split in ("dev", "test"):
        score = record.score(split, record.metric)
        if score is not None:
            values[say("{} on {}", record.metric, split)] = score
    if record.best_step is not None:
        values[say("step of the model, chosen by {} on dev", record.metric)] = record.best_step
    values[say("last step")] = record.step
    if record.duration is not None:
        values[say("time")] = record.duration
    if "parameters" in record.manifest:
        values[say("parameters")] = record.manifest["parameters"]["total"]
    return KeyFigures(values)


def advice(record: RunRecord) -> Iterator[str]:
    """Warnings for the reader: a failed run, unusual events, problems hidden by the scores."""
    yield from map(str, record.damage)
    if record.manifest["error"]:
        yield say("The run {}: {}", say(record.state), record.manifest["error"])
    elif record.state not in ("finished", "running", DAMAGED):
        yield say("The run was {}.", say(record.state))
    for event in record.incidents():
        yield say("{} at step {:,} (details: nlpctl runs show)", say(INCIDENTS[event["event"]]), event["step"])
    for split, skipped in record.manifest["skipped_rows"].items():
        if skipped["total"]:
            yield say("{:,} bad rows of {} were skipped.", skipped["total"], split)
    truncation = truncation_told(record)
    if truncation is not None and record.manifest["truncated_rows"]["truncated"]:
        yield truncation
    for split, report in record.metrics.items():
        labels = report.get("labels", {})
        never = [name for name, row in labels.items() if row["support"] and not row["recall"]]
        if never:
            yield say("On {} no row with these labels is predicted correctly: {}", split, say_names(never, 20))
    points = [point for point in series(record, "evaluate", "eval_loss") if math.isfinite(point[1])]
    if points:
        step, lowest = min(points, key=lambda point: point[1])
        if points[-1][1] > lowest * OVERFITTED:
            yield say(
                "The loss on dev was lowest at step {:,} ({:.4f}) and rose to {:.4f}: "
                "the model overfits from there on. Fewer epochs, a smaller learning rate or more data may help.",
                step,
                lowest,
                points[-1][1],
            )


# -- curves and time -----------------------------------------------------------------------------


def series(record: RunRecord, event: str, figure: str) -> list[Point]:
    """(step, value) of `figure` in the events of one kind."""
    return [(each["step"], each[figure]) for each in record.events if each["event"] == event and figure in each]


def _curves(record: RunRecord) -> Iterator[Part]:
    """Plots over the steps. Scores that rise share one; each that falls, as perplexity does, has a scale of its own."""
    known = scores(record.recipe.task)
    names = (*known, *(name for name in record.own_scores if name not in known))
    on_dev = {name: series(record, "evaluate", f"eval_{name}") for name in names}
    falling = [name for name in names if not greater_is_better(record.recipe, name)]
    rising = [name for name in names if name not in falling]
    curves = {say("loss"): {"train": series(record, "log", "loss"), "dev": series(record, "evaluate", "eval_loss")}}
    title = say("scores on dev") if len(rising) > 1 else say("{} on {}", rising[0], "dev")
    curves[title] = {name: on_dev[name] for name in rising}
    curves |= {say("{} on {}", name, "dev"): {name: on_dev[name]} for name in falling}
    curves[say("learning rate")] = {"": series(record, "log", "learning_rate")}
    curves[say("rows per second")] = {"": series(record, "log", "interval_samples_per_second")}
    best = {} if record.best_step is None else {say("best"): record.best_step}
    plots = []
    for title, by_name in curves.items():
        drawn = {name: points for name, points in by_name.items() if points}
        # Learning rate and speed, the curves without a name, have nothing to do with the choice of the best step.
        plots.append(lines(drawn, say("step"), title, marks={} if "" in drawn else best, x_range=(0, record.step)))
    if any(plots):
        yield SideBySide([Figure(plot) for plot in plots if plot])


def _time(record: RunRecord) -> Iterator[Part]:
    """Where the time of the training went, and what to change."""
    time: Any = record.manifest.get("time")
    if not is_sound(time):
        return
    rows = [[title, f"{seconds:.1f}", percent(share)] for title, seconds, share in rows_of(time)]
    rows.append([say("total"), f"{total_of(time):.1f}", percent(1.0)])
    yield Table(say_each("what", "seconds", "share"), rows, say("{:,} steps", time["steps"]))
    yield from time_advice(time, record.recipe, record.manifest["device"])


# -- scores --------------------------------------------------------------------------------------


def _scores(record: RunRecord) -> Iterator[Part]:
    if not record.metrics:
        return
    yield next(score_tables(record.metrics))  # the tables of labels and levels stand side by side below it
    if INTERVALS in record.metrics.get("dev", {}):
        yield say(
            "As far as dev chose checkpoint, thresholds or settings, its score is optimistic, and so is its interval."
        )
    labels = [label_table(split, report) for split, report in record.metrics.items() if "labels" in report]
    if labels:
        yield SideBySide(labels)
    levels = [level_table(split, report) for split, report in record.metrics.items() if "levels" in report]
    if levels:
        yield SideBySide(levels)


def _confidence(record: RunRecord) -> Iterator[Part]:
    """Whether the model is right as often as it says, and what it costs to take only what it is sure of."""
    reports = {split: report for split, report in record.metrics.items() if CONFIDENCE in report}
    if not reports:
        return
    yield say(
        "The share of right decisions over the confidence of the model, in 15 bins of equal width: on the diagonal it "
        "is right as often as it says. ECE is the mean distance from it. `nlpctl predict --min-confidence` withholds "
        "what is less sure."
    )
    diagrams = []
    for split, report in reports.items():
        now, before = report[CONFIDENCE]["reliability"], report[CONFIDENCE].get("before")
        bins = {say("as trained"): now}
        if before is not None:
            bins = {say("before"): before["reliability"], say("calibrated"): now}
        diagrams.append(Figure(reliability(bins), say("{}: {}", split, format_ece(report))))
    yield SideBySide(diagrams)
    yield SideBySide(list(confidence_tables(reports)))


def _slices(slices: Mapping[str, Any] | None) -> Iterator[Part]:
    if slices is None or not slices["by"]:
        return
    yield say(
        "The {} of some rows of {}, and how far it lies above that of all other rows: "
        "the weakest first. `nlpctl eval RUN --by COLUMN` slices by a column of the data.",
        slices["score"],
        slices["split"],
    )
    for kind, listed in slices["by"].items():
        yield slice_table(slices["split"], kind, listed)
        if slices["left_out"].get(kind):
            yield slices_left_out(slices["left_out"][kind], MOST_OF_A_RUN)


def _confusions(record: RunRecord) -> Iterator[Part]:
    """Matrices of few labels; of many, the most frequent confusions. A report has all counts, or these alone."""
    reports = {
        split: report for split, report in record.metrics.items() if "confusion" in report or "confusions" in report
    }
    if not reports:
        return
    names = list(next(iter(reports.values()))["labels"])
    if len(names) <= LARGEST_MATRIX and all("confusion" in report for report in reports.values()):
        yield say("Lines: true labels; columns: predicted labels.")
        yield SideBySide(
            [Figure(matrix(names, names, report["confusion"]), split) for split, report in reports.items()]
        )
        return
    yield SideBySide([_confusion_table(split, report) for split, report in reports.items()])


def _confusion_table(split: str, report: Mapping[str, Any]) -> Table:
    labels = report["labels"]
    names = list(labels)
    rows = [
        [names[i], names[j], count, percent(count / sum(counts))]
        for i, counts in enumerate(report.get("confusion", ()))
        for j, count in enumerate(counts)
        if count and i != j
    ]
    for gold, given, count in report.get("confusions", ()):
        rows.append([gold, given, count, percent(count / max(labels[gold]["support"], 1))])
    rows.sort(key=lambda row: -row[2])
    columns = say_each("label", "predicted as", "rows", "share of the label")
    title = say("{}, the most frequent confusions of {} labels", split, len(names))
    return Table(columns, rows[:MOST_CONFUSIONS], title)


def _mistakes(mistakes: Mapping[str, Any] | None, task: str) -> Iterator[Part]:
    if mistakes is None:
        return
    split, rows, wrong, worst = (mistakes[name] for name in ("split", "rows", "wrong", "worst"))
    if not wrong:
        yield say("None of the {:,} rows of {}.", rows, split)
        return
    kept = say(" The worst {}:", len(worst)) if len(worst) < wrong else ""
    mistakes_of_task = say(task_info(task).mistakes)
    yield say("{:,} of {:,} rows of {} {} ({}).{}", wrong, rows, split, mistakes_of_task, percent(wrong / rows), kept)
    columns = list(dict.fromkeys(column for row in worst for column in row["texts"]))
    named = any(row["where"] for row in worst)  # rows of a function or a named data set stand in no file
    cells = []
    for row in worst:
        where = [Place(Path(row["where"]).name if row["where"] else "")] if named else []
        texts = [row["texts"].get(column, "") for column in columns]
        cells.append([*where, *map(_cut_text, (*texts, *map(_said, (row["expected"], row["given"]))))])
    yield Table([*([say("where")] if named else []), *columns, say("expected"), say("given")], cells)


def _said(answer: str) -> str:
    """What was expected or given: in the language of now if it is nothing."""
    return say(answer) if answer in (NO_ENTITY, NO_LABEL, NO_ANSWER) else answer


def _cut_text(text: str) -> Html:
    """A text cut for a table cell; the full text shows on hover."""
    return element("span", text) if len(text) <= TEXT else element("span", text[: TEXT - 1] + "…", title=text)


# -- compression ----------------------------------------------------------------------------------


def _compression(record: RunRecord) -> list[Part]:
    """What `nlpctl compress` made of the run, if anything: the best of it. UserError: its report.json is damaged."""
    file = record.run.path / COMPRESS / COMPRESS_REPORT
    if file.exists() and _trained_since(record.run):
        return [say("compress/ is of the model that this run had before it was trained again")]
    try:
        return [_compression_table(json_of(file))] if file.exists() else []
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        hint = "delete the file to see the rest, or call `nlpctl compress` again, which writes it anew"
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"the compression cannot be read ({reason})", where=str(file), hint=hint) from None


def _trained_since(run: RunDirectory) -> bool:
    """Whether compress/ was made of other weights than the model has."""
    then, now = content_of(run.path / COMPRESS / PLAN).get("sha256"), weights_sum(run.model)
    return isinstance(then, dict) and now is not None and then.get(WEIGHTS, now) != now


def _compression_table(content: Mapping[str, Any]) -> Table:
    """The uncompressed model and the best, from the content of report.json. KeyError or TypeError for anything else."""
    sizes = [int(speed["batch_size"]) for speed in content["rows"][0]["speeds"]]
    rows = [
        [
            entry["name"],
            float(entry["score"]),
            *[Number(format_times(speed["times"])) for speed in entry["speeds"]],
            Number(f"{entry['size_mb']:,.1f}"),
        ]
        for name in dict.fromkeys([content["reference"], content["best"]])
        for entry in content["rows"]
        if entry["name"] == name
    ]
    # reports of earlier versions compare with the reference
    one = say("the fastest uncompressed") if "baselines" in content else content["reference"]
    speeds = [say("times {}, batch {}", one, size) for size in sizes]
    heads = ["", content["metric"]["name"], *speeds, say("disk MB")]
    caption = say("the best of {} candidates; compress/report.html shows all", len(content["rows"]))
    return Table(heads, rows, caption)


# -- manifest ------------------------------------------------------------------------------------


def _manifest(record: RunRecord) -> Iterator[Part]:
    # In a span a value is a text, and stands to the left, whatever it looks like.
    values = {name: value for name, value in facts(record).items() if name not in ("data", "state", "task", "model")}
    rows = [[say(name), element("span", str(value))] for name, value in values.items()]
    yield Table(say_each("fact", "value"), rows)
    data = [[element("span", file), element("span", digest[:16])] for file, digest in record.manifest["data"].items()]
    if data:
        yield Table([say("data"), "sha256"], data)
    yield Folded("manifest.json", [Code(json.dumps(record.manifest, ensure_ascii=False, indent=2))])


# -- the file ------------------------------------------------------------------------------------

_OUTPUT = "@[output=REPORT.html]"


def write_report(run: Path, output: Path | None = None, *, overwrite: bool = False) -> Path:
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
        if not names_page(file):
            hint = "end the name in .html; `nlpctl runs show RUN --json` tells the scores to programs"
            raise UserError(f"the report is a page, not {file.suffix or 'a file without a suffix'}", str(file), hint)
    tell_missing_slices(record)
    page = page_of(record)
    with writing(file, f"name another file: {_OUTPUT}"):
        write_text_atomic(file, page)
    return file


def renew_report(run: Path) -> None:
    """`write_report` after a command that changed the run. If it fails, that is done all the same, so only warn."""
    try:
        write_report(run)
    except UserError as error:
        console.warn(f"no report: {error}")


def page_of(record: RunRecord, first: Sequence[Section] = (), refresh: int | None = None) -> str:
    """The page of a run; what cannot be read is left out with a warning. `first` and `refresh`: as of `run_page`."""
    damage = list(record.damage)
    mistakes = sound_mistakes(record.run.mistakes_file, damage)
    slices = sound_slices(record.run.slices_file, damage)
    record = dataclasses.replace(record, damage=damage)
    for problem in damage:
        console.warn(str(problem))
    recipe = regular(record.run.recipe_file).read_text(encoding="utf-8")
    return run_page(record, recipe, mistakes, slices, first, refresh)
