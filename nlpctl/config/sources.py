"""The sources of a recipe (file, mapping, run, model folder), each read as a tree of values."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nlpctl.config.hub_names import HF_PREFIX, hub_names, is_repository
from nlpctl.config.library import PREFIX, find_recipe, shipped_path, shipped_recipes
from nlpctl.config.positions import ListNode, LoadLog, Node, ScalarNode, TableNode, merge, parse_yaml, read_yaml
from nlpctl.config.saved_model import folder_values, hub_values, without_config
from nlpctl.config.schema import Origin, Purpose
from nlpctl.config.sentence_folder import read_sentence_folder
from nlpctl.config.task_file import task_values
from nlpctl.console import display
from nlpctl.errors import UserError
from nlpctl.layout import (
    CHECKPOINTS,
    EVENTS,
    JSON_LINES,
    LABELS,
    MANIFEST,
    MODEL,
    PLAN,
    RECIPE,
    SERIES,
    TASK,
    config_file,
    holds,
)
from nlpctl.names import in_utf8, link_hint, nearest, nearest_file

GIVEN = "recipe"  # what messages call a recipe that a program gives as a mapping
# What stands beside the recipe.yaml of a run, of several, of an index. One of these is enough: a stranger may have
# deleted the others.
_WRITTEN_BESIDE = (MANIFEST, EVENTS, f"{MODEL}/{TASK}", f"{CHECKPOINTS}/*/{TASK}", SERIES, PLAN)
DATA_SUFFIXES = (".tsv", ".csv", *JSON_LINES, ".txt")  # .json is YAML too


def read_source(
    source: str | Path | Mapping[str, Any], log: LoadLog, purpose: Purpose = "train", *, task_given: str | None = None
) -> tuple[TableNode, Path | None]:
    """The tree of a recipe file, run directory, model folder or name of PaddleNLP's hub, and the file it starts from.

    No file: a mapping, or a name of the hub. `task_given`: the task that the command line names, which a model that
    nlpctl did not write may leave open.
    Raises UserError when `source` is none of them.
    """
    if isinstance(source, Mapping):
        tree = parse_yaml(_as_yaml(source), GIVEN, Path.cwd(), log.problems)
        if not isinstance(tree, TableNode) or not tree.entries:
            raise UserError("the recipe is empty", GIVEN, "give at least {'task': 'sequence_classification'}")
        return _over_parents(tree, log, ()), None
    path = _locate(str(source))
    if path is None:
        name = str(source)
        return _node(hub_values(name, purpose, task_given=task_given), Origin(name), Path.cwd()), None
    if path.is_dir():
        if (path / RECIPE).is_file():
            tree = read_recipe_file(path / RECIPE, log, (), path)
            return _with(
                tree, {"training": {"output_dir": os.path.abspath(path)}}, path / RECIPE
            ), path / RECIPE
        if (path / TASK).is_file():
            task = path / TASK
            return _with(TableNode({}, _of_folder(task), path), task_values(path), task), task
        file = config_file(path)
        if file is not None and not (path / LABELS).is_file():  # with labels.json it is a model of nlpctl, not whole
            values = folder_values(path, file, purpose, task_given=task_given)
            return _with(TableNode({}, _of_folder(file), path), values, file), file
        read_sentence_folder(path)  # one whose network has no config.json: its error says what it is
        kinds = f"a run (no {RECIPE}) nor a model of nlpctl (no {TASK})"
        message = f"the folder is neither {kinds}{'' if file else ', nor any model (no config.json)'}"
        raise UserError(message, where=display(path), hint=without_config(path))
    return read_recipe_file(path, log, ()), path


def read_recipe_file(
    path: Path, log: LoadLog, chain: tuple[Path, ...], opened: Path | None = None
) -> TableNode:
    """The file's tree laid over those it extends. `chain` holds the files that led here.

    `opened`: the folder of a run that is opened, or whose recipe extends this file; that of a run's recipe.yaml is its
    own also where a file names it.
    """
    real = Path(os.path.realpath(path))
    if opened is None and path.name == RECIPE and holds(path.parent, *_WRITTEN_BESIDE):
        opened = path.parent
    if (real, opened) not in log.trees:  # 30 files of which each extends the next one twice are read once
        tree = read_yaml(path, log.problems, opened)
        log.trees[real, opened] = _over_parents(tree, log, (*chain, real), opened)
    return log.trees[real, opened]


def own_recipe_instead(opened: Path) -> str:
    """What the user can do whose own recipe.yaml is taken for that of a run, or who opens the folder of another."""
    hint = "or give your own recipe in place of the folder"
    beside = next((name for name in _WRITTEN_BESIDE if holds(opened, name)), None)
    if beside is None or holds(opened, MODEL, CHECKPOINTS):
        return hint
    return f"{hint} ({RECIPE} is taken for a run's, with {beside} beside it: rename it if it is yours)"


def _over_parents(
    tree: TableNode, log: LoadLog, chain: tuple[Path, ...], opened: Path | None = None
) -> TableNode:
    """`tree` laid over the files that it extends. `chain` holds the files that led here, its own too."""
    extends = tree.entries.pop("extends", None)
    below = TableNode({}, tree.origin, tree.folder)
    for parent in _parents(extends, log):
        base = _parent_path(parent)
        # Real paths: a circle through a symbolic link would have a new name in every round.
        if Path(os.path.realpath(base)) in chain:
            names = " -> ".join(display(file) for file in (*chain, base))
            log.report("extends", parent.origin, f"the files extend each other: {names}", "remove one `extends`")
        elif base.exists() and not base.is_file():
            log.report("extends", parent.origin, f"{display(base)} is not a regular file", "name a recipe file")
        elif not base.is_file():
            near = nearest_file(base.name, _yaml_files(base.parent))
            hint = f"did you mean {near}?" if near else "paths in `extends` are relative to the file that has them"
            log.report("extends", parent.origin, f"there is no file {display(base)}", link_hint(base) or hint)
        else:
            below = merge(below, read_recipe_file(base, log, chain, opened))
    return merge(below, tree)


def _as_yaml(recipe: Mapping[str, Any]) -> str:
    """A recipe that a program gives, as the text of a file: what it may hold is decided in one place."""
    try:
        # JSON is YAML, so a mapping passes the same parser and the same checks as a file.
        text = json.dumps(dict(recipe), ensure_ascii=False, default=os.fspath)
        return in_utf8(text)  # the name of a file that is not UTF-8 becomes an escape, which is refused with its key
    except (TypeError, ValueError) as error:
        hint = "give what YAML can hold: texts, numbers, true and false, None, lists, dicts"
        raise UserError(f"a value cannot be part of a recipe: {error}", GIVEN, hint) from None


def _locate(source: str) -> Path | None:
    """The existing path that `source` names: a path, else a recipe of the library; None for a name of the hub."""
    path = Path(os.path.expanduser(source))
    if source and path.is_file() and path.suffix in DATA_SUFFIXES:
        raise UserError(
            "this is a data file, not a recipe", where=source, hint="name it under data.train in a recipe (.yaml)"
        )
    if source and (path.is_dir() or path.is_file()):
        return path
    if source and path.exists():
        raise UserError(
            "is not a regular file", where=source, hint="give a recipe file, a run directory or a model folder"
        )
    shipped = find_recipe(source) if source else None
    if shipped is not None:
        return shipped.path
    if source in hub_names():
        return None
    beside = nearest_file(path.name, _loadable(path.parent))
    names = [recipe.name for recipe in shipped_recipes()]
    # There are hundreds of hub names, and they are long and alike.
    near = path.parent / beside if beside else nearest(source, names) or nearest(source, hub_names(), cutoff=0.8)
    hint = "`nlpctl recipe ls` lists the recipes that come with nlpctl"
    if near:
        hint = f"did you mean {near}?"
    elif source.count("/") == 1 and is_repository(source) and not path.parent.is_dir():
        hint = f"did you mean {HF_PREFIX}{source}, of the Hugging Face hub? Otherwise, {hint}"
    message = "no such recipe, run directory or model folder"
    raise UserError(message, where=source or "(empty)", hint=link_hint(source) or hint)


def _loadable(folder: Path) -> list[str]:
    """The recipe files, and the folders of runs, models and exports, in a folder."""
    try:
        inside = [entry.name for entry in folder.iterdir() if (entry / RECIPE).is_file() or (entry / TASK).is_file()]
    except OSError:
        return []
    return [*_yaml_files(folder), *sorted(inside)]


def _yaml_files(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir() if entry.suffix in (".yaml", ".yml"))
    except OSError:
        return []


def _parents(extends: Node | None, log: LoadLog) -> list[ScalarNode]:
    if extends is None or (isinstance(extends, ScalarNode) and extends.is_null):
        return []
    nodes = extends.items if isinstance(extends, ListNode) else (extends,)
    good = [node for node in nodes if isinstance(node, ScalarNode) and node.text]
    if len(good) < len(nodes):
        log.report(
            "extends", extends.origin, "expected a file or a list of files", "extends: nlpctl:configs/base.yaml"
        )
    return good


def _parent_path(node: ScalarNode) -> Path:
    if node.text.startswith(PREFIX):
        return shipped_path(node.text)
    return node.folder / os.path.expanduser(node.text)


def _of_folder(file: Path) -> Origin:
    return Origin(display(file), opened=file.parent)


def tree_of_values(values: Mapping[str, Any], origin: Origin | None = None) -> TableNode:
    """Plain values, by section, as a tree."""
    return _node(values, origin or Origin("default"), Path.cwd())


def _with(tree: TableNode, values: dict[str, Any], file: Path) -> TableNode:
    """`tree` with `values` laid over it."""
    above = _node(values, _of_folder(file), file.parent)
    return merge(tree, above)


def _node(value: Any, origin: Origin, folder: Path) -> Any:
    if isinstance(value, Mapping):
        return TableNode({str(name): _node(item, origin, folder) for name, item in value.items()}, origin, folder)
    if isinstance(value, list):
        return ListNode(tuple(_node(item, origin, folder) for item in value), origin, folder)
    if isinstance(value, str):
        # What nlpctl wrote is final: a text that happens to hold ${ is no reference.
        return ScalarNode(value.replace("${", "$${"), False, origin, folder)
    if value is None or isinstance(value, bool | int | float):
        return ScalarNode(json.dumps(value), True, origin, folder)
    raise TypeError(f"{type(value).__name__} in {TASK}")
