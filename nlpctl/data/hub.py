"""Named data sets: PaddleNLP built-ins ("chnsenticorp", "glue/cola") and Hugging Face ("hf:NAME", or a local folder).

The libraries are imported when a data set is opened: PaddleNLP's brings Paddle with it, so the
process must be set up by then. Hugging Face data sets and folders need no Paddle.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nlpctl.config.schema import DataSection
from nlpctl.data.readers.row import NAME_COLUMNS, BadRow, Row, missing_key
from nlpctl.data.rows.labels import label_names
from nlpctl.errors import UserError
from nlpctl.extras import not_installed, require
from nlpctl.names import did_you_mean, listed

HF_PREFIX = "hf:"
_NOT_DATASETS = {"__init__", "dataset", "intokens_dataset"}  # modules of paddlenlp.datasets that hold no data set
_SAVED_BY_DATASETS = ("dataset_dict.json", "state.json")  # what datasets.save_to_disk leaves
_NO_NETWORK = (
    "check the network, or bring the data: set runtime.cache_dir to a folder that holds the downloaded files, "
    "or name local files in data.train, data.dev and data.test"
)


@dataclass(frozen=True)
class NamedRows:
    """Rows of one split of a named data set. Integer labels become names where the data set names its labels."""

    description: str
    records: Sequence[Mapping[str, Any]]
    label_column: str
    label_names: tuple[str, ...] | None
    required: tuple[str, ...]
    files: tuple[Path, ...] = ()

    def __iter__(self) -> Iterator[Row | BadRow]:
        for number, record in enumerate(self.records, 1):
            reason = missing_key(record, self.required)
            if reason is not None:
                yield BadRow(self.description, number, reason)
            elif self.label_names is None or self.label_column not in record:
                yield Row(self.description, number, record)
            else:
                yield self._named(number, record, self.label_names)

    def _named(self, number: int, record: Mapping[str, Any], names: Sequence[str]) -> Row | BadRow:
        """The row with names in place of label ids, of one label or of a list of tags."""
        label = record[self.label_column]
        ids = label if isinstance(label, list) else [label]
        # Some splits already hold names, and regression sets such as STS-B hold floats.
        if not all(isinstance(each, int) for each in ids):
            return Row(self.description, number, record)
        # Hidden test labels are written as -1 by Hugging Face.
        outside = [each for each in ids if not 0 <= each < len(names)]
        if outside and self.label_column in self.required:
            reason = f"bad label: {outside[0]} is outside 0 to {len(names) - 1}"
            return BadRow(self.description, number, f"{reason} (the labels of this split may be hidden)")
        if outside:
            return Row(self.description, number, record)
        named = [names[each] for each in ids]
        return Row(self.description, number, {**record, self.label_column: named if label is ids else named[0]})


def open_dataset(data: DataSection, split: str, required: Sequence[str], label_column: str) -> NamedRows:
    """The rows of split "train", "dev" or "test" of `data.dataset`.

    `label_column`: the column of labels or of lists of tags. UserError: the data set or its split is unknown, cannot be
    loaded, or lacks a required column.
    """
    name = data.dataset
    assert name is not None, "the caller has seen one"
    split_name = {"train": data.splits.train, "dev": data.splits.dev, "test": data.splits.test}[split]
    assert split_name is not None, f"has_split(data, {split!r}) is true"
    if name.startswith(HF_PREFIX) or Path(name).is_dir():
        rows = _open_hugging_face(name.removeprefix(HF_PREFIX), split_name, required, label_column)
    else:
        rows = _open_builtin(name, split_name, required, label_column)
    names = label_names(data)
    return rows if names is None else replace(rows, label_names=names.names)


def builtin_names() -> list[str]:
    """The names of PaddleNLP's built-in data sets. Does not import PaddleNLP."""
    spec = importlib.util.find_spec("paddlenlp")
    if spec is None or not spec.submodule_search_locations:
        raise not_installed("paddlenlp")
    folder = Path(spec.submodule_search_locations[0]) / "datasets"
    return sorted(path.stem for path in folder.glob("*.py") if path.stem not in _NOT_DATASETS)


def _open_builtin(name: str, split_name: str, required: Sequence[str], label_column: str) -> NamedRows:
    module, _, subset = name.partition("/")
    known = builtin_names()
    if module not in known:
        if module.startswith(".") or Path(name).is_absolute():
            raise UserError(f"there is no folder {name}", where="data.dataset", hint="check the path")
        hint = f"a Hugging Face data set is named with the prefix: {HF_PREFIX}{name}; built-ins are {', '.join(known)}"
        message = f"PaddleNLP has no data set {module!r}{did_you_mean(module, known)}"
        raise UserError(message, where="data.dataset", hint=hint)
    from paddlenlp.datasets.dataset import import_main_class, load_dataset

    builder = vars(import_main_class(module))
    splits = _builtin_splits(builder, module, subset)
    _check_split(split_name, splits, name)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # some builders print
            loaded = load_dataset(module, name=subset or None, splits=split_name, lazy=False)
    except Exception as error:
        raise UserError(f"cannot load {name!r}: {_first_line(error)}", where="data.dataset", hint=_NO_NETWORK) from None
    # Some built-ins have several lists of labels, some none.
    flat = isinstance(loaded.label_list, list) and not any(isinstance(each, list | tuple) for each in loaded.label_list)
    label_names = tuple(str(label) for label in loaded.label_list) if flat else None
    # Built-ins declare no columns; those of the first record stand for all.
    columns = list(loaded.new_data[0])
    return _named_rows(f"{name}[{split_name}]", loaded.new_data, label_names, columns, required, label_column)


def _builtin_splits(builder: Mapping[str, Any], module: str, subset: str) -> list[str]:
    """The split names of a built-in data set. UserError if its subset is missing or unknown."""
    if "BUILDER_CONFIGS" in builder:
        subsets = builder["BUILDER_CONFIGS"]
        if subset not in subsets:
            guess = did_you_mean(subset, subsets)
            wrong = f"{module!r} has no subset {subset!r}{guess}" if subset else f"{module!r} consists of subsets"
            hint = f"write {module}/SUBSET; subsets are {', '.join(subsets)}"
            raise UserError(wrong, where="data.dataset", hint=hint)
        return list(subsets[subset]["splits"])
    if subset:
        raise UserError(f"{module!r} has no subsets", where="data.dataset", hint=f"write {module}")
    return list(builder["SPLITS"])


def _open_hugging_face(name: str, split_name: str, required: Sequence[str], label_column: str) -> NamedRows:
    require("datasets", "data.dataset")
    try:
        dataset = _load_hugging_face(name)
    except Exception as error:
        on_hub = f"check the name (OWNER/NAME or OWNER/NAME/SUBSET); {_NO_NETWORK}"
        hint = "check the files in the folder" if Path(name).is_dir() else on_hub
        raise UserError(f"cannot load {name!r}: {_first_line(error)}", where="data.dataset", hint=hint) from None
    _check_split(split_name, list(dataset), name)
    rows = dataset[split_name]
    feature = rows.features[label_column] if label_column in rows.features else None
    from datasets import ClassLabel
    from datasets import Sequence as ListOf

    if isinstance(feature, ListOf):
        feature = feature.feature
    label_names = tuple(feature.names) if isinstance(feature, ClassLabel) else None
    return _named_rows(f"{name}[{split_name}]", rows, label_names, rows.column_names, required, label_column)


def _load_hugging_face(name: str) -> Mapping[str, Any]:
    """All splits of a folder, or of NAME, OWNER/NAME or OWNER/NAME/SUBSET on the hub."""
    from datasets import DatasetDict, load_from_disk

    # Not datasets.load_dataset: importing paddlenlp replaces that by a function that looks for its own scripts.
    from datasets.load import load_dataset

    # runtime.cache_dir sets PPNLP_HOME; datasets knows only HF_HOME, so its cache is put into the same folder.
    cache = str(Path(os.environ["PPNLP_HOME"]) / "hf_datasets") if "PPNLP_HOME" in os.environ else None
    folder = Path(name)
    if any((folder / mark).is_file() for mark in _SAVED_BY_DATASETS):
        saved = load_from_disk(name)
        return saved if isinstance(saved, DatasetDict) else {"train": saved}
    if folder.is_dir():
        # Absolute: a folder called csv or json would be taken for the builder of that name.
        return load_dataset(str(folder.resolve()), cache_dir=cache)
    parts = name.split("/")
    return load_dataset("/".join(parts[:2]), name="/".join(parts[2:]) or None, cache_dir=cache)


def _named_rows(
    description: str,
    records: Sequence[Mapping[str, Any]],
    label_names: tuple[str, ...] | None,
    columns: Sequence[str],
    required: Sequence[str],
    label_column: str,
) -> NamedRows:
    for column in required:
        if column not in columns:
            message = f"no column {column!r}{did_you_mean(column, columns)}; the columns are {listed(columns)}"
            raise UserError(message, where=description, hint=NAME_COLUMNS)
    return NamedRows(description, records, label_column, label_names, tuple(required))


def _check_split(split_name: str, splits: Sequence[str], dataset: str) -> None:
    if split_name not in splits:
        guess = did_you_mean(split_name, splits)
        raise UserError(
            f"{dataset!r} has no split {split_name!r}{guess}; its splits are {listed(splits)}",
            where="data.splits",
            hint="set data.splits.train, .dev or .test to one of these, or to null",
        )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
