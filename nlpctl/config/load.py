"""A recipe file, run directory or model folder plus command-line values -> one checked Recipe.

The order of precedence: default < extended config < recipe < command line.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nlpctl.config.checks import check
from nlpctl.config.coerce import coerce_sections
from nlpctl.config.interpolate import escape, interpolate
from nlpctl.config.keys import all_keys, find_key
from nlpctl.config.opened_files import refuse_files_outside, with_copies, without_new_cache
from nlpctl.config.paths import NAMES, absolute, dataset_files, inputs_of, resolve_paths
from nlpctl.config.positions import ListNode, LoadLog, Node, ScalarNode, TableNode, merge, parse_yaml
from nlpctl.config.refused_keys import MANAGED
from nlpctl.config.saved_model import sentence_values
from nlpctl.config.schema import DataSection, ModelSection, Origin, Purpose, Recipe, RetrievalSection
from nlpctl.config.sentence_folder import POOLINGS
from nlpctl.config.sources import read_source, tree_of_values
from nlpctl.config.task_file import TaskFile
from nlpctl.config.tasks import find_task, known_tasks, nearest_task
from nlpctl.config.user_code import marked
from nlpctl.console import display
from nlpctl.errors import UserError
from nlpctl.layout import MODEL, TASK
from nlpctl.names import refuse_not_utf8
from nlpctl.outputs import note_inputs


@dataclass(frozen=True)
class Override:
    """A value from the command line: the dotted key, its text (several texts for a list given as several
    words), and the flag as typed, for messages. `literal`: the text is the value, whatever signs it holds."""

    key: str
    text: str | tuple[str, ...]
    flag: str
    literal: bool = False


def load_recipe(
    source: str | Path | Mapping[str, Any],
    overrides: Sequence[Override] = (),
    purpose: Purpose = "train",
    *,
    reads_files: bool = True,
) -> Recipe:
    """Read, merge, coerce and check. A mapping holds what a recipe file holds; its paths begin at the current folder.

    `purpose`: see Purpose (schema.py). "train" also wants a model, data to train from, and the data files to exist.
    `reads_files`: False where only the values are wanted, and the recipe of the command says which files are read.

    The code that a run or model names which is opened is not to be run: see config/user_code.py.
    Raises UserError with every problem found, and for files that such a folder names outside of it (opened_files.py).
    """
    if not isinstance(source, Mapping):
        refuse_not_utf8(os.path.abspath(source))
    log = LoadLog()
    tasks = [str(each.text) for each in overrides if each.key == "task"]
    tree, path = read_source(source, log, purpose, task_given=tasks[-1] if tasks else None)
    for override in overrides:
        tree = _apply(tree, override, log)
    recipe = without_new_cache(_resolved(tree, path, purpose, log))
    if reads_files:
        recipe = recipe if purpose == "train" else with_copies(recipe)
        refuse_files_outside(recipe, trains=purpose == "train")
    return marked(recipe, trains=purpose == "train")


def recipe_of_values(values: Mapping[str, Any]) -> Recipe:
    """The recipe that says `values`, by section, and leaves the rest as it is by default; to apply a model with."""
    return _resolved(tree_of_values(values), None, "apply", LoadLog())


def _resolved(tree: TableNode, path: Path | None, purpose: Purpose, log: LoadLog) -> Recipe:
    """The recipe of a tree with everything laid over it. UserError with what `log` holds, and all that is found."""
    tree = _without_managed(tree, log)
    tree = _with_vectors(resolve_paths(interpolate(tree, log)), path, purpose, log)
    _refuse_not_utf8(tree)
    task = _task(tree, log)
    sections = coerce_sections(tree, log)
    output_dir = sections["training"].output_dir
    if output_dir:  # an empty one is reported by the checks; the default one is relative to the current folder, too
        sections["training"] = dataclasses.replace(sections["training"], output_dir=absolute(output_dir, Path.cwd()))
    sections["training"] = _with_metric(sections["training"], task, log)
    sections["data"] = _labels_of_dictionaries(sections["model"], sections["data"])
    recipe = Recipe(task=task, **sections, origins=dict(log.origins), path=path)
    log.problems += check(recipe, purpose, log.broken)
    if log.problems:
        raise UserError(problems=log.problems)
    _note_inputs(recipe, purpose, log)
    return recipe if purpose == "train" else _as_trained(recipe)


def _as_trained(recipe: Recipe) -> Recipe:
    """`recipe` with what its run was trained with where the model's files decide it: the few-shot method "auto", and
    few_shot.pooling that is left out; unchanged without a run."""
    task, few_shot = find_task(recipe.task), recipe.few_shot
    if task is None or not task.reads("few_shot") or few_shot.method == "prompt":
        return recipe
    saved = TaskFile.load_if_valid(recipe.run_dir / MODEL / TASK)  # whoever opens the model says what is damaged
    kept = {} if saved is None else saved.sections.get("few_shot", {})
    if few_shot.method == "auto" and kept.get("method") in ("prompt", "contrastive"):
        few_shot = dataclasses.replace(few_shot, method=kept["method"])
    if recipe.leaves_out("few_shot.pooling") and kept.get("pooling") in POOLINGS:
        few_shot = dataclasses.replace(few_shot, pooling=kept["pooling"])
    return dataclasses.replace(recipe, few_shot=few_shot)


def _with_vectors(tree: TableNode, path: Path | None, purpose: Purpose, log: LoadLog) -> TableNode:
    """`tree` over what is known of vectors, for the task that makes them: of a recipe that was run, what the model of
    the run says, else what a folder of sentence-transformers under model.name_or_path says. The recipe.yaml of a run
    has said it already, and what it leaves out is the default."""
    task, model = tree.entries.get("task"), tree.entries.get("model")
    named = model.entries.get("name_or_path") if isinstance(model, TableNode) else None
    info = find_task(task.text) if isinstance(task, ScalarNode) else None
    if info is None or not info.vectors or not isinstance(named, ScalarNode) or named.is_null:
        return tree
    folder, opened = Path(named.text).expanduser(), named.origin.opened
    values, origin = None, Origin(display(folder))
    if opened is None and path is not None and purpose != "train":  # such a recipe stands for its run
        trained = _run_dir(tree) / MODEL
        values, origin = _trained_vectors(trained), Origin(display(trained / TASK), opened=trained)
    of_run = opened is not None and opened.absolute() != folder.absolute()
    if values is None and not of_run and folder.is_dir():
        retrieval = tree.entries.get("retrieval")
        pooling = retrieval.entries.get("pooling") if isinstance(retrieval, TableNode) else None
        values, origin = sentence_values(folder, pooling_given=pooling is not None), Origin(display(folder))
    return tree if values is None else merge(interpolate(tree_of_values(values, origin), log), tree)


def _run_dir(tree: TableNode) -> Path:
    """The run directory of a recipe that is not checked yet."""
    training = tree.entries.get("training")
    node = training.entries.get("output_dir") if isinstance(training, TableNode) else None
    text = node.text if isinstance(node, ScalarNode) and node.text else all_keys()["training.output_dir"].default
    return Path(absolute(text, Path.cwd()))


def _trained_vectors(model: Path) -> dict[str, Any] | None:
    """How a trained model makes vectors, by section; None if there is none. What an older version did not write down
    was the default then."""
    saved = TaskFile.load_if_valid(model / TASK)  # whoever opens the model says what is damaged
    if saved is None:
        return None
    known = asdict(RetrievalSection())
    kept = {key: value for key, value in saved.sections.get("retrieval", {}).items() if key in known}
    length = {key: saved.data[key] for key in ("max_seq_length",) if key in saved.data}
    return {"data": length, "retrieval": known | kept}


def _refuse_not_utf8(node: Node, key: str = "") -> None:
    """UserError for a value that is not UTF-8: the path of a file that a program names, or an escape in the YAML."""
    if isinstance(node, TableNode):
        for name, entry in node.entries.items():
            _refuse_not_utf8(entry, f"{key}.{name}".lstrip("."))
    elif isinstance(node, ListNode):
        for item in node.items:
            _refuse_not_utf8(item, key)
    else:
        refuse_not_utf8(node.text, f"{node.origin} ({key})")


def _note_inputs(recipe: Recipe, purpose: Purpose, log: LoadLog) -> None:
    """No output of the command is the recipe, a file that it extends, or one that it names."""
    note_inputs((file for file, _ in log.trees), "the recipe")
    for path, dotted in inputs_of(recipe):
        note_inputs([path], recipe.where(dotted))
        if purpose == "train" and dotted in NAMES and (Path(path) / MODEL).is_dir():  # of a run, this is what is read
            note_inputs([Path(path) / MODEL], recipe.where(dotted))
    note_inputs(dataset_files(recipe), recipe.where("data.dataset"))


def _labels_of_dictionaries(model: ModelSection, data: DataSection) -> DataSection:
    """The tags of model.from_scratch.dictionaries are the labels where the recipe gives none."""
    folder = model.from_scratch.dictionaries if model.from_scratch is not None else None
    tags = None if folder is None else Path(folder) / "tag.dic"
    if tags is None or data.labels is not None or not tags.is_file():
        return data
    return dataclasses.replace(data, labels=str(tags))


def _with_metric(training: Any, task: str, log: LoadLog) -> Any:
    """Where the best model is to be kept and no score is named, the task's first one chooses it.

    PaddleNLP would take the loss; a fixed default such as accuracy says little of a tagger and nothing of an index.
    """
    known = find_task(task)
    if known is None or training.metric_for_best_model is not None or not training.load_best_model_at_end:
        return training
    log.origins["training.metric_for_best_model"] = Origin(f"task {task}")
    return dataclasses.replace(training, metric_for_best_model=known.metrics[0])


def _apply(tree: TableNode, override: Override, log: LoadLog) -> TableNode:
    """`tree` with one command-line value laid over it."""
    origin, folder = Origin(override.flag), Path.cwd()
    origin = dataclasses.replace(origin, by_flag=not origin.is_trial)
    node = _command_line_node(override, origin, folder, log)
    section, *inner = override.key.split(".")
    for part in reversed(inner):
        node = TableNode({part: node}, origin, folder)
    return merge(tree, TableNode({section: node}, origin, folder))


def _command_line_node(override: Override, origin: Origin, folder: Path, log: LoadLog) -> Node:
    """Words as typed -> a node. Lists split at commas; `[a, b]` and `{a: 1}` are read as YAML."""
    key = find_key(override.key)
    texts = (override.text,) if isinstance(override.text, str) else override.text
    if override.literal:
        value = ScalarNode(escape(" ".join(texts)), False, origin, folder)
        return ListNode((value,), origin, folder) if key is not None and key.is_list else value
    structured = key is None or key.is_list or key.section or key.axes or (key.free and key.dotted == override.key)
    if structured and len(texts) == 1 and texts[0][:1] in ("[", "{"):
        try:
            node = parse_yaml(texts[0], override.flag, folder, log.problems)
        except UserError as error:
            log.report(override.key, origin, error.problems[0].message, "write [a, b] or {key: value}, in quotes")
            node = None
        return _placed(node, origin) if node is not None else ScalarNode("", True, origin, folder)
    is_list = key is not None and key.item is not None
    if is_list and (len(texts) > 1 or "," in texts[0]):
        words = [word.strip() for text in texts for word in text.split(",")]
        return ListNode(tuple(ScalarNode(word, False, origin, folder) for word in words if word), origin, folder)
    is_text = key is not None and key.scalar is str and not key.item
    return ScalarNode(" ".join(texts), not (is_text and texts == ("",)), origin, folder)


def _placed(node: Node, origin: Origin) -> Node:
    """`node` with every line number replaced by the flag."""
    if isinstance(node, TableNode):
        return TableNode({name: _placed(entry, origin) for name, entry in node.entries.items()}, origin, node.folder)
    if isinstance(node, ListNode):
        return ListNode(tuple(_placed(item, origin) for item in node.items), origin, node.folder)
    return ScalarNode(node.text, node.plain, origin, node.folder)


def _without_managed(tree: TableNode, log: LoadLog) -> TableNode:
    """`tree` without the fields that nlpctl sets itself; each one found is reported."""
    for dotted, remedy in MANAGED.items():
        section, name = dotted.split(".")
        table = tree.entries.get(section)
        if isinstance(table, TableNode) and name in table.entries:
            log.report(dotted, table.entries[name].origin, "nlpctl sets this field itself", remedy)
            kept = {key: node for key, node in table.entries.items() if key != name}
            tree = TableNode(
                tree.entries | {section: TableNode(kept, table.origin, table.folder)}, tree.origin, tree.folder
            )
    return tree


def _task(tree: TableNode, log: LoadLog) -> str:
    """The task name; "" when it is missing or unknown (and reported)."""
    names = [task.name for task in known_tasks()]
    node = tree.entries.get("task")
    if "task" in log.broken:
        return ""
    if node is None or (isinstance(node, ScalarNode) and node.is_null):
        origin = Origin(tree.origin.source) if node is None else node.origin
        log.report("task", origin, "is missing", f"write `task: {names[0]}`; known tasks: {', '.join(names)}")
        return ""
    log.origins["task"] = node.origin
    if not isinstance(node, ScalarNode):
        log.report("task", node.origin, "expected the name of a task", f"known tasks: {', '.join(names)}")
        return ""
    if find_task(node.text) is None:
        near = nearest_task(node.text)
        hint = f"did you mean {near}?" if near else f"known tasks: {', '.join(names)}"
        log.report("task", node.origin, f"there is no task {node.text!r}", hint)
        return ""
    return node.text
