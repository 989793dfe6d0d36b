"""Checks before training only: is there a model to start from, data to train on, and do the files exist."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from nlpctl.config.finding import Check, Finding
from nlpctl.config.positions import display
from nlpctl.config.schema import ColumnsSection, Recipe, SplitFilesSection
from nlpctl.config.tasks import task_info
from nlpctl.names import and_more, nearest


def _some_model(recipe: Recipe) -> Iterator[Finding]:
    if recipe.model.name_or_path is None and recipe.model.from_scratch is None:
        hint = "write model: {name_or_path: ernie-3.0-medium-zh}, or model: {from_scratch: {}}"
        keys = ("model.name_or_path", "model.from_scratch")
        yield Finding(keys, "no model: neither model.name_or_path nor model.from_scratch is set", hint)


def _model_folder_exists(recipe: Recipe) -> Iterator[Finding]:
    name = recipe.model.name_or_path
    if name is not None and os.path.isabs(name) and not os.path.isdir(name):
        message = "is a file, not a folder" if os.path.exists(name) else "does not exist"
        hint = "give the folder with config.json and the weights"
        yield Finding(("model.name_or_path",), f"the model folder {display(name)} {message}", hint)


def _some_data(recipe: Recipe) -> Iterator[Finding]:
    data = recipe.data
    if data.dataset is not None:
        beside = {"train": data.train, "dev": data.dev, "test": data.test, "reader": data.reader}
        for name in (name for name, value in beside.items() if value):
            keys = (f"data.{name}", "data.dataset")
            yield Finding(keys, f"both data.{name} and data.dataset are set", "delete one of them")
        if data.splits.train is None:
            hint = "name the split that holds the training rows"
            yield Finding(
                ("data.splits.train", "data.dataset"), "nothing to train from: data.splits.train is null", hint
            )
        return
    needs_no_file = data.reader is not None and not data.dev and not data.test
    if not data.train and not needs_no_file:
        hint = "set data.train to a file, or data.dataset to a name"
        yield Finding(("data.train", "data.dataset"), "nothing to train from", hint)


def _split_settings(recipe: Recipe) -> Iterator[Finding]:
    data, known = recipe.data, [field.name for field in dataclasses.fields(ColumnsSection)]
    for split, own in (("train", data.by_split.train), ("dev", data.by_split.dev), ("test", data.by_split.test)):
        place = f"data.by_split.{split}"
        if own != SplitFilesSection() and (data.dataset is not None or data.reader is not None):
            other = "data.dataset" if data.dataset is not None else "data.reader"
            yield Finding((place, other), "data.by_split applies to files", f"delete it, or {other}")
        for name in own.columns:
            key = f"{place}.columns.{name}"
            if name not in known:
                near = nearest(name, known)
                hint = f"did you mean {near}?" if near else f"columns are {', '.join(known)}"
                yield Finding((key,), f"{key}: there is no column {name}", hint)
            elif getattr(data.columns, name) is None:
                message = f"{key} names a column that the other splits lack: data.columns.{name} is not set"
                yield Finding((key,), message, f"set data.columns.{name} too")


def _evaluation_has_data(recipe: Recipe) -> Iterator[Finding]:
    if recipe.training.evaluation_strategy == "no" or recipe.data.dev:
        return
    if recipe.data.dataset is None or recipe.data.splits.dev is None:
        dev = "data.dev" if recipe.data.dataset is None else "data.splits.dev"
        keys = ("training.evaluation_strategy", dev)
        hint = (
            f"set {dev}, or training.evaluation_strategy: no (with save_strategy and load_best_model_at_end to match)"
        )
        yield Finding(keys, f"evaluation during training needs {dev}", hint)


def _streaming(recipe: Recipe) -> Iterator[Finding]:
    if not recipe.data.streaming:
        return
    if recipe.training.max_steps <= 0:
        keys = ("data.streaming", "training.max_steps")
        hint = "set training.max_steps: rows divided by the batch size, times the epochs"
        yield Finding(keys, "a stream has no known length: data.streaming needs training.max_steps", hint)
    task = task_info(recipe.task)
    if recipe.data.labels is None and recipe.data.numbered_labels is None and (task is None or task.labelled):
        keys = ("data.streaming", "data.labels")
        hint = "set data.labels to the list of labels, or a file with one per line"
        yield Finding(keys, "labels cannot be collected from a stream: data.streaming needs data.labels", hint)


def _batch_tokens(recipe: Recipe) -> Iterator[Finding]:
    data = recipe.data
    if data.batch_tokens is None:
        return
    if data.streaming:
        hint = "remove data.batch_tokens, or read the data into memory: data.streaming: false"
        yield Finding(("data.batch_tokens", "data.streaming"), "a stream cannot be sorted by length", hint)
    if not data.length_grouped:
        message = "batches by tokens are made of rows of similar length, which data.length_grouped: false forbids"
        yield Finding(("data.batch_tokens", "data.length_grouped"), message, "remove one of them")
    if data.batch_tokens < data.max_seq_length:
        message = f"a row may have {data.max_seq_length} tokens, more than a batch ({data.batch_tokens})"
        keys = ("data.batch_tokens", "data.max_seq_length")
        yield Finding(keys, message, "raise data.batch_tokens, or lower data.max_seq_length")


def _pair_column(recipe: Recipe) -> Iterator[Finding]:
    task = task_info(recipe.task)
    if task is not None and task.pairs and recipe.data.columns.text_pair is None:
        message = f"{task.name} needs the column of the second text"
        yield Finding(("data.columns.text_pair", "task"), message, "name it: data.columns.text_pair: COLUMN")


def _window(recipe: Recipe) -> Iterator[Finding]:
    data, task = recipe.data, task_info(recipe.task)
    if task is None or task.window_frame is None:
        return
    free = data.max_seq_length - task.window_frame
    if data.doc_stride > free:
        message = f"windows of {data.max_seq_length} tokens with a stride of {data.doc_stride} would skip text"
        hint = f"set data.doc_stride to {max(free // 2, 1)}, so that windows overlap"
        yield Finding(("data.doc_stride", "data.max_seq_length"), message, hint)


def _columns_differ(recipe: Recipe) -> Iterator[Finding]:
    columns = recipe.data.columns
    for other in ("text_pair", "label"):
        name = {"text_pair": columns.text_pair, "label": columns.label}[other]
        if name == columns.text:
            keys = ("data.columns.text", f"data.columns.{other}")
            yield Finding(keys, f"text and {other} are read from the same column {name!r}", "name two columns")


def _label_list(recipe: Recipe) -> Iterator[Finding]:
    for key, labels in _lists_of_labels(recipe):
        if not isinstance(labels, tuple):
            continue
        repeated = sorted(label for label, times in Counter(labels).items() if times > 1)
        if repeated:
            yield Finding((key,), f"{key} repeats {and_more(repeated, 10)}", "name each label once")
        elif len(labels) < 2:
            yield Finding((key,), f"{key} has fewer than two labels", "name every label, or delete the key")
        if any(not label.strip() for label in labels):
            yield Finding((key,), f"{key} has a blank label", "delete it")


def _label_file_exists(recipe: Recipe) -> Iterator[Finding]:
    for key, labels in _lists_of_labels(recipe):
        if isinstance(labels, str) and not os.path.isfile(labels):
            hint = "give a file with one label per line, or a list: [neg, pos]"
            yield Finding((key,), f"{key}: there is no file {display(labels)}", hint)


def _lists_of_labels(recipe: Recipe) -> tuple[tuple[str, tuple[str, ...] | str | None], ...]:
    return (("data.labels", recipe.data.labels), ("data.numbered_labels", recipe.data.numbered_labels))


def _term_file_exists(recipe: Recipe) -> Iterator[Finding]:
    terms = recipe.decode.terms
    if terms is not None and not os.path.isfile(terms):
        hint = "give a file of TERM<TAB>TYPE lines, or remove the key"
        yield Finding(("decode.terms",), f"decode.terms: there is no file {display(terms)}", hint)


def _dataset_folder_exists(recipe: Recipe) -> Iterator[Finding]:
    name = recipe.data.dataset
    if name is not None and os.path.isabs(name) and not os.path.isdir(name):
        message = "is a file, not a folder" if os.path.exists(name) else "does not exist"
        hint = "give a folder of data files, or the name of a data set; files go under data.train, data.dev, data.test"
        yield Finding(("data.dataset",), f"the data set folder {display(name)} {message}", hint)


_TOLD = 4  # wrong files of a split, as many as a message has room for


def _data_files_exist(recipe: Recipe) -> Iterator[Finding]:
    if recipe.data.reader is not None:
        return  # the user's reader interprets its paths itself
    for name, paths in {"train": recipe.data.train, "dev": recipe.data.dev, "test": recipe.data.test}.items():
        yield from islice(_wrong_files(f"data.{name}", dict.fromkeys(paths)), _TOLD)


def _wrong_files(key: str, paths: Iterable[str]) -> Iterator[Finding]:
    for path in paths:
        if os.path.isdir(path):
            yield Finding((key,), f"{key}: {display(path)} is a folder", "name the files in it")
        elif not os.path.exists(path):
            hint = "relative paths start at the file that names them; on the command line, at the current directory"
            yield Finding((key,), f"{key}: there is no file {display(path)}", hint)


def _run_directory(recipe: Recipe) -> Iterator[Finding]:
    output_dir = recipe.training.output_dir
    if not output_dir:
        yield Finding(("training.output_dir",), "training.output_dir is empty", "name a folder: outputs/first")
        return
    # The folder itself, or its nearest existing parent.
    there = next(path for path in (Path(output_dir), *Path(output_dir).parents) if path.exists())
    if not there.is_dir():
        message = f"training.output_dir: {display(there)} is a file"
        yield Finding(("training.output_dir",), message, "name a folder that is new or holds an earlier run")


DATA_CHECKS: tuple[Check, ...] = (
    _some_model,
    _model_folder_exists,
    _some_data,
    _split_settings,
    _evaluation_has_data,
    _streaming,
    _batch_tokens,
    _pair_column,
    _window,
    _columns_differ,
    _label_list,
    _label_file_exists,
    _term_file_exists,
    _dataset_folder_exists,
    _data_files_exist,
    _run_directory,
)
