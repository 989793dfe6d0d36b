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
from nlpctl.config.checks import refuse_wrong_sharding
from nlpctl.config.schema import BySplitSection, DataSection, ModelSection, Recipe
from nlpctl.config.settled import settled
from nlpctl.data.examples import ExampleReader
from nlpctl.data.labels import LabelSet
from nlpctl.data.open_split import FileRows, has_split, open_split
from nlpctl.data.records import Records
from nlpctl.data.row import RowSource
from nlpctl.data.split_rows import Readable, as_written, read_readable
from nlpctl.data.splits import groups_of, read_labelled_split, resolve_labels
from nlpctl.data.task_rows import TaskRows, task_rows
from nlpctl.errors import Interrupted, RunFailed, UserError
from nlpctl.files import staged_file, writing
from nlpctl.models.families import OWN
from nlpctl.runners.many.series_folder import AGAIN, DATA, finish, open_folder
from nlpctl.runners.train import train
from nlpctl.runtime.device import choose_device, visible_devices
from nlpctl.runtime.launch import processes_wanted
from nlpctl.runtime.process import prepare_process, set_up_process
from nlpctl.runtime.ranks import is_child
from nlpctl.runtime.run_directory import RunDirectory


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
    return TrainingRows(rows, source, labels, read_readable(source, rows, labels), data_files(recipe, rows, source))


def data_files(recipe: Recipe, rows: TaskRows, train: RowSource) -> tuple[Path, ...]:
    """The files of all splits. `train`: the training rows."""
    others = (split for split in ("dev", "test") if has_split(recipe.data, split))
    return (*train.files, *(file for split in others for file in open_split(rows, split).files))


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
        if not run.is_finished:
            console.note(f"{self.place(member)}: {run.path}")
            train_member(self.member_recipe(member), command)
        return run

    def place(self, member: Member) -> str:
        """Which of the runs it is, in words."""
        return f"run {self.members.index(member) + 1} of {len(self.members)}"

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
            read = read_readable(source, self.rows.rows, self.rows.labels)
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


def _rows_name(member: Member) -> str:
    """What the file of a run's rows is called: the same for runs that differ in their seeds alone."""
    return member.name.removeprefix(f"seed-{member.seed}-")


def _write(file: Path, content: bytes) -> None:
    with writing(file, "free disk space, or name another folder"), staged_file(file) as stream:
        stream.write(content)


def settle(recipe: Recipe) -> Recipe:
    """The recipe that its runs begin with. UserError if this command cannot train it several times."""
    if is_child() or processes_wanted(recipe.runtime) > 1:
        hint = "use one device: --nproc 1; or train several runs side by side: --workers N"
        raise UserError("each of several runs is trained in one process", recipe.where("runtime.nproc"), hint)
    refuse_wrong_sharding(recipe)
    # Before the folder is begun: the command may have to start again (NeedsRestart), and would find it there.
    choose_device(recipe.runtime.device, recipe.runtime.devices)
    visible = visible_devices(recipe.runtime.devices, os.environ)
    if visible is not None:  # once for all runs: after the first one the card is the only one, and has another number
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
        recipe = replace(recipe, runtime=replace(recipe.runtime, device="gpu", devices=()))
    return settled(recipe)


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
    """The series in recipe.run_dir, as `open_folder`. `one_vocabulary`: that of all rows for every run.

    UserError also for bad rows of dev or test: they would end the first run, in a folder that was begun.
    """
    for split in ("dev", "test"):
        if has_split(recipe.data, split):
            examples, _, _ = read_labelled_split(rows.rows, split, rows.labels)
            groups_of(rows.rows, split, rows.labels, len(examples))
    names = [member.name for member in members]
    with open_folder(recipe, rows.files, kind, names, plan, resume=resume, overwrite=overwrite, own=own) as folder:
        yield Series(recipe, rows, folder, members, one_vocabulary)
