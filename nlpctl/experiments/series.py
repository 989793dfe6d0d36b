"""A folder with several trainings of one recipe, each of which is an ordinary run directory.

    FOLDER/series.json    what is trained: names, seeds, the rows of each run; checksums of the data
           recipe.yaml    the recipe
           data/          the training rows of the runs that do not take all of them
           NAME/          a run
           ...            what the command makes of its runs

A killed command continues with `resume`: finished runs are kept, an unfinished one goes on from its last checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from nlpctl import console
from nlpctl.checksums import changed_sums, sha256_of_text, sums_of
from nlpctl.config.checks import refuse_wrong_sharding
from nlpctl.config.dump import dump_recipe, forbidden_changes
from nlpctl.config.paths import further_files, parameter_files
from nlpctl.config.recipe_of import recipe_of
from nlpctl.config.schema import BySplitSection, DataSection, ModelSection, Recipe
from nlpctl.config.tasks import resolve_by_model
from nlpctl.config.user_code import code_sums
from nlpctl.console import display
from nlpctl.data.open_split import FileRows, has_split, open_split
from nlpctl.data.partition import SplitRows, as_written, read_split_rows
from nlpctl.data.readers.row import RowSource
from nlpctl.data.records import Records
from nlpctl.data.rows.examples import ExampleReader
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.task_rows import TaskRows, task_rows
from nlpctl.data.training_data import groups_of, read_labelled_split, resolve_labels
from nlpctl.documents import Document, whole_content
from nlpctl.errors import Interrupted, RunFailed, UserError
from nlpctl.experiments.time_left import TrainingsProgress
from nlpctl.files import (
    staged_file,
    write_text_atomic,
    writing,
)
from nlpctl.launch.launch import processes_wanted
from nlpctl.layout import RECIPE, SERIES, is_inside, is_run, is_series
from nlpctl.models.families import OWN
from nlpctl.models.hugging_face_hub import with_commit
from nlpctl.names import and_more, differing
from nlpctl.outputs import refuse_lost_link, refuse_part
from nlpctl.runtime.device import choose_device, visible_devices
from nlpctl.runtime.process import prepare_process, set_up_process
from nlpctl.runtime.ranks import is_child
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.runtime.work_folder import WorkFolder
from nlpctl.training.run_setup import refuse_changed_functions
from nlpctl.training.train import train

# --------------------------------------------------------------------------------------------------
# The folder of several trainings of one recipe: series.json, what may be written there, and what a resumed one must
# have in common with the one that began.

DATA = "data"
AGAIN = "the same command with @[resume=true] goes on; finished runs are kept"
FREE_SPACE = "choose a writable folder with free space"


@dataclass(frozen=True)
class SeriesFile(Document):
    """series.json: written by `nlpctl train --folds`, `--seeds`, `sweep` and the learning curve before anything else,
    and when they end; read when they go on, and by whatever lists or joins the runs.

    `kind`: the command; `plan`: what else must be the same when it goes on; `data`, `others`: SHA-256 of the data and
    of other files, `functions` of the user's own code, and `rows` of the labels and of which rows each run takes;
    `runs`: paths in the folder; `own`: what else the command writes there; `content`: all entries, also the facts that
    `finish` adds.
    """

    FORMAT: ClassVar[int | None] = 1
    REPAIR: ClassVar[str] = "begin again with @[overwrite=true], or name another folder"

    kind: str
    state: str
    plan: Mapping[str, Any]
    data: Mapping[str, str]
    runs: tuple[str, ...]
    rows: str | None = None  # older versions did not note these four
    others: Mapping[str, str] | None = None
    functions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    own: tuple[str, ...] = ()
    content: Mapping[str, Any] = whole_content()


def read_series(folder: Path) -> SeriesFile:
    """The content of series.json. UserError: there is none, or it is damaged."""
    file = folder / SERIES
    if not file.exists():
        hint = "name the folder that holds all runs"
        raise UserError("there are no runs of folds or seeds here", str(folder), hint)
    series = SeriesFile.load(file)
    for name in series.runs:
        if Path(name).is_absolute() or not is_inside(name, folder):
            raise UserError(f"is damaged: {name} is not in the folder", str(file), SeriesFile.REPAIR)
    return series


def elsewhere(kind: str) -> str:
    """For hints: how to name another folder."""
    return "use another training.output_dir" if kind == "folds" else "name another folder: @[output]"


def missing_runs(folder: Path, names: Iterable[Any]) -> list[str]:
    """The runs of a finished series that are not there any more."""
    return [str(name) for name in names if not RunDirectory(folder / str(name)).is_finished]


def refuse_early(recipe: Recipe, kind: str, *, resume: bool, overwrite: bool, grows: bool = False) -> None:
    """UserError if the folder must not be written. Called before the data is read. `grows`: a finished series may go
    on."""
    folder = recipe.run_dir
    refuse_lost_link(folder)
    if resume and overwrite:
        message = "@[resume=true] and @[overwrite=true] cannot be combined"
        raise UserError(message, where="@[resume]", hint="keep one of them")
    if is_series(folder):
        series = None if overwrite else read_series(folder)
        if series is not None and series.kind != kind:
            hint = f"{elsewhere(kind)}, or @[overwrite=true] to replace it"
            raise UserError(f"the folder was written by another command ({series.kind})", str(folder), hint)
        ended = series is not None and series.state == "finished" and not missing_runs(folder, series.runs)
        if resume and ended and not grows:
            message = "all runs are finished; there is nothing to resume"
            raise UserError(message, str(folder), "use @[overwrite=true] to train again")
        if series is not None and not resume:
            what = "finished" if series.state == "finished" else "unfinished"
            hint = f"use {'' if what == 'finished' else '@[resume=true] to continue, '}@[overwrite=true] to train again"
            raise UserError(f"the folder holds {what} runs", str(folder), f"{hint}; or {elsewhere(kind)}")
    elif is_run(folder):
        flag = "@[training.output_dir]" if kind == "folds" else "@[output]"
        hint = f"name another folder, such as {flag} {display(folder)}-{kind}"
        raise UserError("the folder holds a single run, which is not replaced", str(folder), hint)
    elif folder.is_dir() and WorkFolder(folder).holds_more():
        message = "the folder is not empty and was not written by this command; nlpctl does not write into it"
        raise UserError(message, where=str(folder), hint=elsewhere(kind))
    elif folder.exists() and not folder.is_dir():
        where = "training.output_dir" if kind == "folds" else "@[output]"
        raise UserError(f"{folder} is a file, not a folder", where, "name another folder")
    else:
        refuse_part(folder)


@contextlib.contextmanager
def open_folder(
    recipe: Recipe,
    files: Sequence[Path],
    kind: str,
    names: Sequence[str],
    plan: Mapping[str, Any],
    *,
    resume: bool,
    overwrite: bool,
    rows: str | None = None,
    own: Sequence[str] = (),
    grows: bool = False,
) -> Iterator[Path]:
    """The folder recipe.run_dir, begun or gone on with, and locked in the context.

    `files`: of the data; `names`: of the runs. `kind` and `plan`, which is JSON-ready: what a resumed series must have
    in common with the one that began, and `rows`, as in SeriesFile. `own`: further files and folders that the command
    writes there. `grows`: a finished series may go on, with more runs.
    UserError: the folder is in use or holds something else; the recipe, the plan, the data or the rows changed.
    """
    refuse_early(recipe, kind, resume=resume, overwrite=overwrite, grows=grows)
    folder = Path(os.path.abspath(recipe.run_dir))
    work = WorkFolder(folder)
    with writing(folder, FREE_SPACE):
        folder.mkdir(parents=True, exist_ok=True)
        work.take()  # here, where an OSError is told; `held` releases it
    with work.held(UserError("another command is writing here", str(folder), f"wait for it, or {elsewhere(kind)}")):
        # now that nobody else can change it
        refuse_early(recipe, kind, resume=resume, overwrite=overwrite, grows=grows)
        with writing(folder, FREE_SPACE):
            work.remove_leftovers()
        known = {"kind": kind, "plan": dict(plan), "data": sums_of(files), "rows": rows}
        known["others"] = sums_of([*parameter_files(recipe.model), *further_files(recipe)])
        known["functions"] = code_sums(recipe)
        if resume and is_series(folder) and work.holds_more(SERIES):  # else it was killed as it began
            _refuse_changes(recipe, folder, known)
            with writing(folder, FREE_SPACE):
                write_text_atomic(folder / RECIPE, dump_recipe(recipe))  # it may ask for more
        else:
            _begin(recipe, work, known, names, own)
        yield folder


def go_on(folder: Path) -> None:
    """Say in series.json that runs are trained, which may have been finished before: `nlpctl runs clean` deletes what
    a finished series needs no more."""
    _note(folder, state="running")


def finish(folder: Path, **facts: Any) -> None:
    """Say in series.json that all is done, and `facts`."""
    _note(folder, state="finished", **facts)


def _note(folder: Path, **facts: Any) -> None:
    with writing(folder, FREE_SPACE):
        SeriesFile.from_json({**read_series(folder).content, **facts}).save(folder / SERIES)


def _begin(
    recipe: Recipe, work: WorkFolder, known: Mapping[str, Any], names: Sequence[str], own: Sequence[str]
) -> None:
    folder = work.path
    with writing(folder, FREE_SPACE):
        if is_series(folder):  # --overwrite; series.json stays to the end, so that a killed command can be called again
            old: list[str] = []
            with contextlib.suppress(UserError):
                series = read_series(folder)
                old = [*series.runs, *series.own]  # another command's, too
            paths = [folder / name for name in (*old, *names, *own, DATA)]
            # Not those of a damaged series.json; the parent of folder/.. is folder.
            work.remove(path for path in paths if path.parent == folder and path.name != "..")
        content = {"state": "running", **known, "runs": list(names), "own": list(own)}
        SeriesFile.from_json(content).save(folder / SERIES)  # first: by it the folder is known as this command's
        write_text_atomic(folder / RECIPE, dump_recipe(recipe))


def _refuse_changes(recipe: Recipe, folder: Path, known: Mapping[str, Any]) -> None:
    """UserError if runs that are there already were made of something else."""
    began = read_series(folder)
    again = "train again with @[overwrite=true]"
    changed = forbidden_changes(recipe_of(folder), recipe, "resume")
    if changed:
        message = f"the recipe changed since the first run began: {and_more(changed, 10)}"
        raise UserError(message, recipe.where(changed[0]), f"restore it, or {again}")
    if began.plan != known["plan"]:
        told = ", ".join(f"{name} {value}" for name, value in began.plan.items())
        raise UserError(f"the runs began with {told}", str(folder), f"resume with the same flags, or {again}")
    files = sorted(changed_sums(began.data, known["data"]))
    # Older versions did not note other files, such as those of starting values, nor the source of the user's own parts.
    files += [] if began.others is None else differing(began.others, known["others"])
    if files:
        message = f"the data changed since the first run began: {and_more(files, 10)}"
        raise UserError(message, str(folder), f"restore the files, or {again}")
    if began.rows not in (None, known["rows"]):
        message = "the labels, or which rows each run takes, changed since the first run began"
        hint = f"restore the label file, go on with the version of nlpctl that began, or {again}"
        raise UserError(message, str(folder), hint)
    refuse_changed_functions(began.functions, known["functions"], "the first run began", again)




@dataclass(frozen=True)
class TrainingRows:
    """The training rows of a recipe. `read`: the good ones, in order; `files`: those of all splits."""

    rows: TaskRows
    source: RowSource
    labels: LabelSet
    read: SplitRows
    files: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.read.rows)

    @cached_property
    def records(self) -> list[tuple[Records, range]]:
        """The rows as pieces of files, those of each training file apart, since formats and headers may differ.

        With each its indexes in `read.rows`.
        """
        given, starts = self.read.rows, self.read.starts
        if not isinstance(self.source, FileRows):
            return [(Records(self.source, given, starts), range(len(given)))]
        given = as_written(self.source, self.read, self.rows.data)
        found, begin = [], 0
        for file, kind in zip(self.source.files, self.source.formats, strict=True):
            end, name = begin, str(file)
            while end < len(given) and given[end].source == name:
                end += 1
            of_file = replace(self.source, files=(file,), formats=(kind,))
            found.append((Records(of_file, given[begin:end], starts), range(begin, end)))
            begin = end
        return found

    def examples(self, chosen: Iterable[int]) -> list[Any]:
        """The labelled examples in the rows at the indexes `chosen`."""
        reader = ExampleReader(self.rows, self.labels)
        return [reader.read(self.read.rows[i]) for i in chosen]


def read_rows(recipe: Recipe) -> TrainingRows:
    """The training rows of `recipe`. UserError: none, or bad ones (by data.on_bad_row)."""
    if recipe.data.dataset is not None:  # may import Paddle
        prepare_process(recipe.runtime, recipe.training.seed)
    rows = task_rows(recipe.task, recipe.data)
    source = open_split(rows, "train")
    labels = resolve_labels(rows, source)
    return TrainingRows(rows, source, labels, read_split_rows(source, rows, labels), data_files(recipe, rows, source))


def data_files(recipe: Recipe, rows: TaskRows, train: RowSource) -> tuple[Path, ...]:
    """The files of all splits. `train`: the training rows."""
    others = (split for split in ("dev", "test") if has_split(recipe.data, split))
    return (*train.files, *(file for split in others for file in open_split(rows, split).files))


@dataclass(frozen=True)
class SeriesRun:
    """One training: its name, its seed, and the training rows that it takes; None: all of them."""

    name: str
    seed: int
    rows: tuple[int, ...] | None = None


class Series:
    """The folder of several trainings; made by `open_series`."""

    def __init__(
        self, recipe: Recipe, rows: TrainingRows, folder: Path, members: Sequence[SeriesRun], one_vocabulary: bool
    ):
        self.recipe, self.rows, self.folder, self.members = recipe, rows, folder, tuple(members)
        self._one_vocabulary = one_vocabulary

    def run(self, member: SeriesRun) -> RunDirectory:
        return RunDirectory(self.folder / member.name)

    def train(self, member: SeriesRun, command: Sequence[str] = ()) -> RunDirectory:
        """Train `member`, or go on with its training; a finished one is kept. Errors as of `nlpctl train`."""
        run = self.run(member)
        if not run.is_finished:
            console.note(f"{self.place(member)}: {run.path}")
            train_member(self.member_recipe(member), command)
        return run

    def progress(self, left: Sequence[SeriesRun], workers: int | None = None) -> TrainingsProgress:
        """Shows how far the runs are. `left`: those that have not ended; `workers`: as of `TrainingsProgress`."""
        sizes = [self.size(member) for member in left]
        return TrainingsProgress("runs", "runs", len(self.members), sizes, workers)

    def size(self, member: SeriesRun) -> int:
        """Its training rows."""
        return len(self.rows if member.rows is None else member.rows)

    def place(self, member: SeriesRun) -> str:
        """Which of the runs it is, in words."""
        return f"run {self.members.index(member) + 1} of {len(self.members)}"

    def member_recipe(self, member: SeriesRun) -> Recipe:
        """The recipe of a run: the series' own with its seed, its rows, and the label set of all rows."""
        folder, data = self.folder / member.name, self.recipe.data
        if len(self.rows.labels) and data.labels is None:  # its rows may lack a label that the others have
            data = replace(data, labels=self.rows.labels.names)
        if member.rows is not None:
            data = replace(data, **self._files(member))
        logs = self.recipe.training.logging_dir
        training = replace(
            self.recipe.training,
            output_dir=str(folder),
            seed=member.seed,
            logging_dir=None if logs is None else str(Path(logs) / member.name),
        )
        return replace(self.recipe, model=self._model(), data=data, training=training)

    def _model(self) -> ModelSection:
        """Section model; new networks over word pieces get one vocabulary, so that they can be joined to one model."""
        model = self.recipe.model
        scratch = model.from_scratch
        if scratch is None or not self._one_vocabulary or scratch.vocabulary or scratch.architecture in OWN.values():
            return model
        file = self.folder / DATA / "vocab.txt"
        if not file.exists():
            set_up_process(self.recipe)
            from nlpctl.data.text.vocabulary import build_vocabulary

            texts = (text for row in self.rows.examples(range(len(self.rows))) for text in self.rows.rows.texts(row))
            entries = build_vocabulary(texts, scratch.vocab_size, scratch.min_frequency, scratch.lowercase)
            _write(file, "".join(f"{entry}\n" for entry in entries).encode())
        return replace(model, from_scratch=replace(scratch, vocabulary=str(file)))

    def _files(self, member: SeriesRun) -> dict[str, Any]:
        """The values of section data for a run with rows of its own. Missing files are written."""
        assert member.rows is not None, "a run of all rows reads the files of the recipe"
        train = self._written(f"train-{_rows_name(member)}", member.rows)
        if isinstance(self.rows.source, FileRows):
            return {"train": train}
        # What named data sets and the user's functions give is written out, so dev and test have to be, too.
        others = {split: self._written_split(split) for split in ("dev", "test") if has_split(self.recipe.data, split)}
        plain = DataSection()
        read = ("dataset", "splits", "reader", "map", "filter", "header", "numbered_labels")
        kept = {name: getattr(plain, name) for name in read}
        kept["format"] = "jsonl"  # "auto" would take rows with spans for doccano's, though the recipe read them itself
        return {**kept, "by_split": BySplitSection(), "train": train, "dev": (), "test": (), **others}

    def _written(self, name: str, chosen: Sequence[int]) -> tuple[str, ...]:
        """The files with the rows at the indexes `chosen`, one per training file; missing ones are written."""
        found, several = [], len(self.rows.records) > 1
        for number, (records, indexes) in enumerate(self.rows.records, 1):
            own = [i - indexes.start for i in chosen if i in indexes]
            if own:
                file = self.folder / DATA / f"{name}{f'-{number}' if several else ''}{records.suffix}"
                if not file.exists():
                    _write(file, records.content(own))
                found.append(str(file))
        return tuple(found)

    def _written_split(self, split: str) -> tuple[str, ...]:
        file = self.folder / DATA / f"{split}.jsonl"
        if not file.exists():
            source = open_split(self.rows.rows, split)
            read = read_split_rows(source, self.rows.rows, self.rows.labels)
            _write(file, Records(source, read.rows, read.starts).content(range(len(read.rows))))
        return (str(file),)

    def finish(self) -> None:
        """Say in series.json that all is done."""
        finish(self.folder)


def train_member(recipe: Recipe, command: Sequence[str]) -> None:
    """Train a run of a series, from `member_recipe`, or go on with its training. Errors as of `nlpctl train`."""
    try:
        train(recipe, resume=RunDirectory(recipe.run_dir).manifest_file.exists(), command=command)
    except (Interrupted, RunFailed) as error:
        first = error.problems[0]
        raise type(error)(first.message, first.where, AGAIN) from error


def _rows_name(member: SeriesRun) -> str:
    """What the file of a run's rows is called: the same for runs that differ in their seeds alone."""
    return member.name.removeprefix(f"seed-{member.seed}-")


def _write(file: Path, content: bytes) -> None:
    with writing(file, "free disk space, or name another folder"), staged_file(file) as stream:
        stream.write(content)


def resolve_values(recipe: Recipe, resume: bool) -> Recipe:
    """The recipe that its runs begin with, or began with on `resume`. UserError if this command cannot train it several
    times."""
    if is_child() or processes_wanted(recipe.runtime) > 1:
        hint = "use one device: @[runtime.nproc=1]; or train several runs side by side: @[workers=N]"
        raise UserError("each of several runs is trained in one process", recipe.where("runtime.nproc"), hint)
    refuse_wrong_sharding(recipe)
    # Before the folder is begun: the command may have to start again (NeedsRestart), and would find it there.
    choose_device(recipe.runtime.device, recipe.runtime.devices)
    visible = visible_devices(recipe.runtime.devices, os.environ)
    if visible is not None:  # once for all runs: after the first one the card is the only one, and has another number
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
        recipe = replace(recipe, runtime=replace(recipe.runtime, device="gpu", devices=()))
    folder = recipe.run_dir
    goes_on = resume and (folder / RECIPE).is_file()
    return resolve_by_model(with_commit(recipe, lambda: recipe_of(folder) if goes_on else None))


@contextlib.contextmanager
def open_series(
    recipe: Recipe,
    rows: TrainingRows,
    kind: str,
    members: Sequence[SeriesRun],
    plan: Mapping[str, Any],
    *,
    resume: bool,
    overwrite: bool,
    own: Sequence[str] = (),
    one_vocabulary: bool = False,
) -> Iterator[Series]:
    """The series in recipe.run_dir, as `open_folder`. `one_vocabulary`: that of all rows for every run.

    UserError also for bad rows of dev or test: they would end the first run, in a folder that was begun.
    """
    for split in ("dev", "test"):
        if has_split(recipe.data, split):
            examples, _, _ = read_labelled_split(rows.rows, split, rows.labels)
            groups_of(rows.rows, split, rows.labels, len(examples))
    names, taken = [member.name for member in members], [member.rows for member in members]
    flags: dict[str, Any] = {"resume": resume, "overwrite": overwrite, "own": own}
    # Rows are cut anew by a command that goes on, perhaps of another version.
    sum_of_rows = sha256_of_text(json.dumps([rows.labels.names, taken]))
    with open_folder(recipe, rows.files, kind, names, plan, rows=sum_of_rows, **flags) as folder:
        go_on(folder)
        yield Series(recipe, rows, folder, members, one_vocabulary)
