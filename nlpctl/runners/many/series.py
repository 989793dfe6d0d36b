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
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.config.dump import dump_recipe
from nlpctl.config.load import load_recipe
from nlpctl.config.positions import display
from nlpctl.config.schema import BySplitSection, DataSection, ModelSection, Recipe
from nlpctl.config.settled import settled
from nlpctl.data.examples import ExampleReader
from nlpctl.data.labels import LabelSet
from nlpctl.data.open_split import FileRows, has_split, open_split
from nlpctl.data.records import Records
from nlpctl.data.row import RowSource
from nlpctl.data.split_rows import Readable, read_readable
from nlpctl.data.splits import resolve_labels
from nlpctl.data.task_rows import TaskRows, task_rows
from nlpctl.errors import Interrupted, RunFailed, UserError
from nlpctl.files import (
    STAGING_PREFIX,
    parse_json,
    regular,
    remove_dir,
    remove_leftovers,
    sha256_of,
    staged_file,
    write_json_atomic,
    write_text_atomic,
    writing,
)
from nlpctl.layout import RECIPE, is_run
from nlpctl.models.families import OWN
from nlpctl.runners.train import FREE_TO_CHANGE, changed_keys, train
from nlpctl.runtime.device import choose_device, visible_devices
from nlpctl.runtime.launch import processes_wanted
from nlpctl.runtime.lock import take_lock
from nlpctl.runtime.process import prepare_process, set_up_process
from nlpctl.runtime.ranks import is_child
from nlpctl.runtime.run_directory import RunDirectory

SERIES, DATA = "series.json", "data"
FORMAT = 1
AGAIN = "the same command with --resume goes on; finished runs are kept"
_ELSEWHERE = "use another training.output_dir"


@dataclass(frozen=True)
class TrainingRows:
    """The training rows of a recipe. `read`: the good ones, in order; `files`: those of all splits."""

    rows: TaskRows
    source: RowSource
    labels: LabelSet
    read: Readable
    files: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.read.rows)

    @cached_property
    def records(self) -> Records:
        """The rows as pieces of files."""
        return Records(self.source, self.read.rows, self.read.starts)

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
    files = list(source.files)
    for split in ("dev", "test"):
        if has_split(recipe.data, split):
            files += open_split(rows, split).files
    return TrainingRows(rows, source, labels, read_readable(source, rows, labels), tuple(files))


@dataclass(frozen=True)
class Member:
    """One training: its name, its seed, and the training rows that it takes; None: all of them."""

    name: str
    seed: int
    rows: tuple[int, ...] | None = None


class Series:
    """The folder of several trainings; made by `open_series`."""

    def __init__(
        self, recipe: Recipe, rows: TrainingRows, folder: Path, members: Sequence[Member], one_vocabulary: bool
    ):
        self.recipe, self.rows, self.folder, self.members = recipe, rows, folder, tuple(members)
        self._one_vocabulary = one_vocabulary

    def run(self, member: Member) -> RunDirectory:
        return RunDirectory(self.folder / member.name)

    def train(self, member: Member, command: Sequence[str] = ()) -> RunDirectory:
        """Train `member`, or go on with its training; a finished one is kept. Errors as of `nlpctl train`."""
        run = self.run(member)
        if run.is_finished:
            return run
        place = f"run {self.members.index(member) + 1} of {len(self.members)}"
        console.note(f"{place}: {run.path}")
        try:
            train(self.member_recipe(member), resume=run.manifest_file.exists(), command=command)
        except (Interrupted, RunFailed) as error:
            first = error.problems[0]
            raise type(error)(first.message, first.where, AGAIN) from error
        return run

    def member_recipe(self, member: Member) -> Recipe:
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
            from nlpctl.data.vocabulary import build_vocabulary  # imports PaddleNLP

            texts = (text for row in self.rows.examples(range(len(self.rows))) for text in self.rows.rows.texts(row))
            entries = build_vocabulary(texts, scratch.vocab_size, scratch.min_frequency, scratch.lowercase)
            _write(file, "".join(f"{entry}\n" for entry in entries).encode())
        return replace(model, from_scratch=replace(scratch, vocabulary=str(file)))

    def _files(self, member: Member) -> dict[str, Any]:
        """The values of section data for a run with rows of its own. Missing files are written."""
        train = self._written(f"train-{_rows_name(member)}", member.rows)
        if isinstance(self.rows.source, FileRows):
            return {"train": train}
        # What named data sets and the user's functions give is written out, so dev and test have to be, too.
        others = {split: self._written_split(split) for split in ("dev", "test") if has_split(self.recipe.data, split)}
        plain = DataSection()
        read = ("dataset", "splits", "reader", "map", "filter", "format", "header")
        kept = {name: getattr(plain, name) for name in read}
        return {**kept, "by_split": BySplitSection(), "train": train, "dev": (), "test": (), **others}

    def _written(self, name: str, chosen: Sequence[int]) -> tuple[str, ...]:
        file = self.folder / DATA / f"{name}{self.rows.records.suffix}"
        if not file.exists():
            _write(file, self.rows.records.content(chosen))
        return (str(file),)

    def _written_split(self, split: str) -> tuple[str, ...]:
        file = self.folder / DATA / f"{split}.jsonl"
        if not file.exists():
            source = open_split(self.rows.rows, split)
            read = read_readable(source, self.rows.rows, self.rows.labels)
            _write(file, Records(source, read.rows, read.starts).content(range(len(read.rows))))
        return (str(file),)

    def finish(self) -> None:
        """Say in series.json that all is done."""
        write_json_atomic(self.folder / SERIES, {**read_series(self.folder), "state": "finished"})


def _rows_name(member: Member) -> str:
    """What the file of a run's rows is called: the same for runs that differ in their seeds alone."""
    return member.name.removeprefix(f"seed-{member.seed}-")


def _write(file: Path, content: bytes) -> None:
    with writing(file, "free disk space, or use another training.output_dir"), staged_file(file) as stream:
        stream.write(content)


def read_series(folder: Path) -> dict[str, Any]:
    """The content of series.json. UserError: there is none, or it is damaged."""
    file = folder / SERIES
    try:
        content = parse_json(regular(file).read_text(encoding="utf-8"))
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError("it is not of this version of nlpctl")
        kinds = {"kind": str, "state": str, "runs": list, "data": dict, "plan": dict}
        wrong = [name for name, kind in kinds.items() if not isinstance(content.get(name), kind)]
        if wrong:
            raise ValueError(f"{wrong[0]} is missing")
        return content
    except FileNotFoundError:
        hint = "name the folder that holds all runs"
        raise UserError("there are no runs of folds or seeds here", str(folder), hint) from None
    except (OSError, ValueError) as error:
        hint = "train again with --overwrite, or use another training.output_dir"
        raise UserError(f"the list of the runs cannot be read ({error})", str(file), hint) from None


def is_series(folder: Path) -> bool:
    """Whether `folder` holds several trainings of one recipe."""
    return (folder / SERIES).is_file()


# -- beginning ---------------------------------------------------------------------------------------------------


def settle(recipe: Recipe) -> Recipe:
    """The recipe that its runs begin with. UserError if this command cannot train it several times."""
    if is_child() or processes_wanted(recipe.runtime) > 1:
        message = "several runs are trained one after the other, each in one process"
        raise UserError(message, recipe.where("runtime.nproc"), "use one device: --nproc 1")
    # Before the folder is begun: the command may have to start again (NeedsRestart), and would find it there.
    choose_device(recipe.runtime.device, recipe.runtime.devices)
    visible = visible_devices(recipe.runtime.devices, os.environ)
    if visible is not None:  # once for all runs: after the first one the card is the only one, and has another number
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
        recipe = replace(recipe, runtime=replace(recipe.runtime, device="gpu", devices=()))
    return settled(recipe)


def refuse_early(recipe: Recipe, kind: str, *, resume: bool, overwrite: bool) -> None:
    """UserError if the folder must not be written. Called before the data is read."""
    folder = recipe.run_dir
    if resume and overwrite:
        raise UserError("--resume and --overwrite cannot be combined", where="--resume", hint="keep one of them")
    if is_series(folder):
        content = {} if overwrite else read_series(folder)
        if content and content["kind"] != kind:
            hint = f"{_ELSEWHERE}, or --overwrite to replace it"
            raise UserError(f"the folder was written by another command ({content['kind']})", str(folder), hint)
        if content and resume and content["state"] == "finished":
            message = "all runs are finished; there is nothing to resume"
            raise UserError(message, str(folder), "use --overwrite to train again")
        if content and not resume:
            what = "finished" if content["state"] == "finished" else "unfinished"
            hint = f"use {'' if what == 'finished' else '--resume to continue, '}--overwrite to train again, "
            raise UserError(f"the folder holds {what} runs", str(folder), f"{hint}or {_ELSEWHERE.removeprefix('use ')}")
    elif is_run(folder):
        hint = f"{_ELSEWHERE}, such as --output_dir {display(folder)}-{kind}"
        raise UserError("the folder holds a single run, which is not replaced", str(folder), hint)
    elif folder.is_dir() and any(not path.name.startswith(STAGING_PREFIX) for path in folder.iterdir()):
        message = "the folder is not empty and was not written by this command; nlpctl does not write into it"
        raise UserError(message, where=str(folder), hint=_ELSEWHERE)
    elif folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file, not a folder", "training.output_dir", "name another folder")


@contextlib.contextmanager
def open_series(
    recipe: Recipe,
    rows: TrainingRows,
    kind: str,
    members: Sequence[Member],
    plan: Mapping[str, Any],
    *,
    resume: bool,
    overwrite: bool,
    own: Sequence[str] = (),
    one_vocabulary: bool = False,
) -> Iterator[Series]:
    """The series in recipe.run_dir, begun or gone on with, and locked in the context.

    `kind` and `plan`, which is JSON-ready: what a resumed series must have in common with the one that began. `own`:
    further files and folders that the command writes there. `one_vocabulary`: that of all rows for every run.
    UserError: the folder is in use or holds something else; the recipe, the plan or the data changed.
    """
    refuse_early(recipe, kind, resume=resume, overwrite=overwrite)
    folder = Path(os.path.abspath(recipe.run_dir))
    with writing(folder, "choose a writable training.output_dir with free space"):
        folder.mkdir(parents=True, exist_ok=True)
        lock = take_lock(folder)
    if lock is None:
        raise UserError("another command is writing here", str(folder), f"wait for it, or {_ELSEWHERE}")
    try:
        refuse_early(recipe, kind, resume=resume, overwrite=overwrite)  # now that nobody else can change it
        known = {"kind": kind, "plan": dict(plan), "data": {str(path): sha256_of(path) for path in rows.files}}
        if resume and is_series(folder):
            _refuse_changes(recipe, folder, known)
        else:
            _begin(recipe, folder, known, members, own)
        yield Series(recipe, rows, folder, members, one_vocabulary)
    finally:
        os.close(lock)


def _begin(
    recipe: Recipe, folder: Path, known: Mapping[str, Any], members: Sequence[Member], own: Sequence[str]
) -> None:
    with writing(folder, "choose a writable training.output_dir with free space"):
        names = [member.name for member in members]
        if is_series(folder):  # --overwrite; series.json stays to the end, so that a killed command can be called again
            old = []
            with contextlib.suppress(UserError):
                old = read_series(folder)["runs"]
            _clear(folder, [*old, *names, *own])
        remove_leftovers(folder)
        write_text_atomic(folder / RECIPE, dump_recipe(recipe))
        write_json_atomic(folder / SERIES, {"format": FORMAT, "state": "running", **known, "runs": names})


def _clear(folder: Path, names: Iterable[str]) -> None:
    for path in (folder / str(name) for name in (*names, DATA)):
        if path.parent != folder or path.name == "..":  # a damaged series.json; the parent of folder/.. is folder
            continue
        if path.is_dir():
            remove_dir(path)
        else:
            path.unlink(missing_ok=True)


def _refuse_changes(recipe: Recipe, folder: Path, known: Mapping[str, Any]) -> None:
    """UserError if runs that are there already were made of something else."""
    began = read_series(folder)
    again = "train again with --overwrite"
    before = load_recipe(folder / RECIPE, purpose="apply")
    changed = changed_keys(before, recipe, FREE_TO_CHANGE)
    if changed:
        message = f"the recipe changed since the first run began: {', '.join(changed)}"
        raise UserError(message, recipe.where(changed[0]), f"restore it, or {again}")
    if began["plan"] != known["plan"]:
        told = ", ".join(f"{name} {value}" for name, value in began["plan"].items())
        raise UserError(f"the runs began with {told}", str(folder), f"resume with the same flags, or {again}")
    files = sorted(name for name, digest in known["data"].items() if began["data"].get(name) != digest)
    if files:
        message = f"the data changed since the first run began: {', '.join(files)}"
        raise UserError(message, str(folder), f"restore the files, or {again}")
