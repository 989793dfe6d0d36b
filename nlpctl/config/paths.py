"""Which values are paths, and what they are relative to.

Inputs are relative to the file that names them, so a recipe can be started from anywhere; the run
directory is relative to the current directory, so a recipe can live in a read-only place.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpctl.config.coerce import resolve_scalar
from nlpctl.config.distributions import is_distribution
from nlpctl.config.hub_names import PREFIXES
from nlpctl.config.keys import keys_with_path, use_of
from nlpctl.config.positions import ListNode, Node, ScalarNode, TableNode
from nlpctl.config.schema import ModelSection
from nlpctl.layout import EXPORT_MANIFEST, PLAN, SERIES, TASK, is_run
from nlpctl.names import refuse_not_utf8

if TYPE_CHECKING:
    from nlpctl.config.schema import Recipe

INPUT_PATHS, OUTPUT_PATHS = keys_with_path("input"), keys_with_path("output")
TEXT_PATHS, VALUE_PATHS, NAMES = keys_with_path("text"), keys_with_path("values"), keys_with_path("name")
_OUTPUTS = {EXPORT_MANIFEST, TASK, SERIES, PLAN}  # files of exports, models, folds and sweeps, compressions


def holds_path(dotted: str) -> bool:
    """Whether a text under this key is a path, if it is absolute; also where search.space names the key."""
    own = dotted.removeprefix("search.space.").removesuffix(".choices")
    return own in (*INPUT_PATHS, *TEXT_PATHS, *OUTPUT_PATHS, *NAMES) or own.rpartition(".")[0] in VALUE_PATHS


def parameter_files(model: ModelSection) -> list[Path]:
    """The files from which a network that is to be trained takes words and starting values."""
    files = [model.embeddings, *_files_of(model.set_parameters)]
    files += [model.from_scratch.vocabulary] if model.from_scratch is not None else []
    files += [model.add_tokens] if isinstance(model.add_tokens, str) else []
    return [Path(file) for file in files if file is not None]


def further_files(recipe: Recipe) -> list[Path]:
    """What else a training depends on beside the files of its data: dictionaries, and a folder in data.dataset."""
    scratch, masked = recipe.model.from_scratch, recipe.masking.dictionary
    files = [] if masked is None else [Path(masked)]
    if scratch is not None and scratch.dictionaries is not None:
        files += sorted(file for file in Path(scratch.dictionaries).glob("*") if file.is_file())
    files += dataset_files(recipe)
    for file in files:
        refuse_not_utf8(file)  # a run's manifest names them
    return files


def files_beside_rows(recipe: Recipe) -> list[tuple[str, Path]]:
    """What rows and answers depend on beside the data files, such as lists of labels or terms; each with its key."""
    data = ("data.train", "data.dev", "data.test", "data.dataset")
    of_answers = [(key, Path(text)) for text, key in inputs_of(recipe) if use_of(key).role in ("rows", "answers")]
    return [(key, path) for key, path in of_answers if key not in data]


def inputs_of(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """The files and folders that the recipe names to be read, with the keys; they need not exist."""
    for dotted in (*INPUT_PATHS, *TEXT_PATHS, *NAMES, *VALUE_PATHS):
        value: Any = recipe
        for part in dotted.split("."):
            value = getattr(value, part, None)
        if dotted in VALUE_PATHS:
            texts = _files_of(value or {})
        elif isinstance(value, str):
            texts = [value]
        else:  # of TEXT_PATHS, a list holds texts and no paths
            texts = [] if value is None or dotted in TEXT_PATHS else list(value)
        if dotted != "runtime.cache_dir":  # which is written, too
            yield from ((text, dotted) for text in texts if os.path.isabs(text))


def dataset_files(recipe: Recipe) -> list[Path]:
    """The files below data.dataset where that is a folder, but hidden ones, what the library datasets keeps there
    itself, and outputs of nlpctl."""
    name, own = recipe.data.dataset, recipe.run_dir.absolute()
    if name is None or not Path(name).is_dir():
        return []
    kept: list[Path] = []
    for folder, folders, files in os.walk(name):
        if Path(folder).absolute() == own or is_run(Path(folder)) or not _OUTPUTS.isdisjoint(files):
            folders.clear()
            continue
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        paths = (Path(folder, each) for each in sorted(files) if not each.startswith((".", "cache-")))
        kept += [path for path in paths if path.is_file()]  # no pipes, and no links that lead nowhere
    return kept


def _files_of(values: Mapping[str, Any]) -> list[str]:
    return [value for value in values.values() if isinstance(value, str) and not is_distribution(value)]


def resolve_paths(tree: TableNode) -> TableNode:
    """`tree` with every path absolute."""
    for dotted in (*INPUT_PATHS, *TEXT_PATHS, *VALUE_PATHS, *OUTPUT_PATHS, *NAMES):
        tree = _rewrite(tree, dotted.split("."), dotted)
    search = tree.entries.get("search")
    if isinstance(search, TableNode) and "space" in search.entries:
        tried = {"space": _tried(search.entries["space"], "")}
        search = dataclasses.replace(search, entries=search.entries | tried)
        tree = dataclasses.replace(tree, entries=tree.entries | {"search": search})
    return tree


def _tried(node: Node, dotted: str) -> Node:
    """The values that search.space names for the key `dotted`, or for keys inside it, with every path absolute."""
    if isinstance(node, TableNode):
        names = {name: dotted if name == "choices" else f"{dotted}.{name}".lstrip(".") for name in node.entries}
        entries = {name: _tried(entry, names[name]) for name, entry in node.entries.items()}
        return dataclasses.replace(node, entries=entries)
    if isinstance(node, ListNode):
        return dataclasses.replace(node, items=tuple(_tried(item, dotted) for item in node.items))
    return _resolve(node, dotted) if dotted in (*INPUT_PATHS, *TEXT_PATHS, *NAMES) else node


def _rewrite(table: TableNode, parts: list[str], dotted: str) -> TableNode:
    node = table.entries.get(parts[0])
    if node is None:
        return table
    if len(parts) > 1:
        new: Node = _rewrite(node, parts[1:], dotted) if isinstance(node, TableNode) else node
    elif isinstance(node, TableNode) and dotted in VALUE_PATHS:
        new = dataclasses.replace(node, entries={name: _resolve(entry, dotted) for name, entry in node.entries.items()})
    elif isinstance(node, ListNode) and dotted not in TEXT_PATHS:
        new = dataclasses.replace(node, items=tuple(_resolve(item, dotted) for item in node.items))
    else:
        new = _resolve(node, dotted)
    return dataclasses.replace(table, entries=table.entries | {parts[0]: new})


def _resolve(node: Node, dotted: str) -> Node:
    if not isinstance(node, ScalarNode) or node.is_null or not node.text:
        return node
    if dotted in VALUE_PATHS and (not isinstance(resolve_scalar(node), str) or is_distribution(node.text)):
        return node
    if dotted in NAMES and not _is_path(node.text, node.folder):
        return node
    # Outputs belong to where the user works; the recipe may lie in a folder that is read-only.
    folder = Path.cwd() if dotted in OUTPUT_PATHS else node.folder
    return dataclasses.replace(node, text=absolute(node.text, folder), plain=False)


def absolute(text: str, folder: Path) -> str:
    """`text` as an absolute path, `~` expanded, `..` taken out."""
    return os.path.abspath(os.path.join(folder, os.path.expanduser(text)))


def _is_path(text: str, folder: Path) -> bool:
    if text.startswith(("./", "../", "~", "/")) or text in (".", ".."):
        return True
    # A hub name such as bert-base-chinese and a folder look alike; a folder that exists wins.
    return not text.startswith(PREFIXES) and (folder / text).is_dir()
