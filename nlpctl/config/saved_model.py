"""The recipe of a model that nlpctl did not write: a folder of PaddleNLP or Transformers, or a name of the hub.

    config.json               the network's class names the task, problem_type tells multi-label classification; where
                              nlpctl wrote the weights (weights_mark.py), it says more of what reads texts and decides
    tokenizer_config.json     may set a shorter length
    sentence_bert_config.json the same, in a folder of sentence-transformers, whose other files sentence_folder.py reads
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nlpctl.config.schema import Purpose
from nlpctl.config.sentence_folder import (
    is_sentence_folder,
    length_file,
    read_cross_encoder,
    read_sentence_folder,
    refuse_without_pooling,
)
from nlpctl.config.tasks import TaskInfo, find_task, known_tasks
from nlpctl.config.weights_mark import WeightsMark, read_mark
from nlpctl.errors import UserError
from nlpctl.files import content_of, read_json
from nlpctl.layout import ADAPTER, MERGE_ADAPTER, TASK, checkpoints_in, config_file, holds

LONGEST = 512  # tokens that are read of a text, unless the network reads fewer; sentence-transformers has no such bound
_TASK_OF_CLASS = re.compile(r"For([A-Z]\w*)$")
_ONE_LABEL = "single_label_classification"  # as problem_type, and what is meant where there is none
_COUNTED_FROM_PADDING = ("roberta", "camembert", "mpnet")  # parts of a model_type, or of the name of a class
_NO_LIMIT = 1_000_000  # tokens; Transformers writes 1e30 for a tokenizer that has none


def folder_values(folder: Path, file: Path, purpose: Purpose, *, task_given: str | None) -> dict[str, Any]:
    """The values of a recipe that applies the model in `folder`, by section; `file` is its config.

    `task_given`: the task that the command line names. UserError: no task of nlpctl has such a head, or the command
    needs a head and there is none.
    """
    config = _flat(read_json(file))
    read_sentence_folder(folder)  # whose modules may ask for code, whatever the task
    length = _length(config, folder)
    data: dict[str, Any] = {"max_seq_length": length}
    values = {"model": {"name_or_path": os.path.abspath(folder)}, "data": data}
    if task_given is not None and not _takes_scores(task_given):
        return values
    if task_given is None and (purpose == "embed" or (purpose == "observe" and _kind(config) is None)):
        return {"task": _vector_task().name, **values}
    scorer = read_cross_encoder(folder, config)
    pair = {"columns": {"text_pair": "text_pair"}}
    if task_given is not None:
        return values if scorer is None else {**values, "data": data | pair}
    task, mark = _task(config, file, purpose, scores_alone=scorer == "Sigmoid"), read_mark(config)
    if mark is not None and _is_still(mark, config):
        sections = mark.sections()
        labels = {"labels": list(mark.labels)} if _has_one_logit(config) else {}  # which two labels made
        return {"task": mark.task, **values, **sections, "data": {**data, **sections["data"], **labels}}
    if task.pairs or scorer is not None:
        data |= pair
    if task.reads("data.doc_stride"):
        data["doc_stride"] = max(1, length // 4)
    return {"task": task.name, **values}


def sentence_values(folder: Path, *, pooling_given: bool) -> dict[str, Any] | None:
    """What a folder of sentence-transformers says of vectors, by section; None for any other folder.

    `pooling_given`: the recipe has retrieval.pooling. UserError: the folder is damaged, makes vectors as nlpctl cannot,
    or nobody says how.
    """
    file = config_file(folder)
    made = None if (folder / TASK).is_file() else read_sentence_folder(folder)
    if made is None:
        if not pooling_given and not (folder / TASK).is_file():
            refuse_without_pooling(folder)
        return None
    length = {} if file is None else {"max_seq_length": _length(_flat(read_json(file)), folder)}
    return {"data": length, "retrieval": made.retrieval()}


def hub_values(name: str, purpose: Purpose, *, task_given: str | None) -> dict[str, Any]:
    """The same for a name of PaddleNLP's hub. Its files may not be here yet, so the length is the recipe's default."""
    values: dict[str, Any] = {"model": {"name_or_path": name}}
    if task_given is not None:
        return values
    if purpose in ("embed", "observe"):
        return {"task": _vector_task().name, **values}
    raise UserError("this is an encoder of PaddleNLP's hub: it has no head to answer with", name, _no_head_hint())


def without_config(folder: Path) -> str:
    """Advice for a folder that is neither a run nor a model."""
    steps = checkpoints_in(folder)
    if steps:
        return f"it holds checkpoints, each of which is a model: give {steps[-1]}"
    if (folder / ADAPTER).is_file():
        return f"it is an adapter of PEFT: {MERGE_ADAPTER}"
    if config_file(folder) is None and holds(folder, "*.pdmodel", "*.pdiparams", "*.pdparams"):
        return f"make a model of its parameters: nlpctl convert-static {shlex.quote(str(folder))} --to MODEL"
    return "give a recipe file, a run directory, or a model folder with config.json, weights and vocabulary"


def _takes_scores(task: str) -> bool:
    """Whether the task has a head as that of a CrossEncoder."""
    info = find_task(task)
    return info is not None and (info.matches or info.network_class == "SequenceClassification")


def _vector_task() -> TaskInfo:
    return next(task for task in known_tasks() if task.vectors)


def written_classes(config: Mapping[str, Any]) -> list[str]:
    """The classes that a config names, as BertForTokenClassification; what is no name is left out."""
    named = config.get("architectures")
    names = [*(named if isinstance(named, list) else ()), config.get("init_class")]
    return [name for name in names if isinstance(name, str) and name]


def written_class(config: Mapping[str, Any]) -> str:
    """The first of `written_classes`; "" where there is none."""
    return next(iter(written_classes(config)), "")


def first_position(config: Mapping[str, Any], pad: int) -> int:
    """The row of the table of positions for the first token of a text: some count from `pad` + 1, `pad` being the id of
    padding, as fairseq does, and ERNIE-M from 2."""
    model_type = config.get("model_type")
    if model_type == "ernie_m":
        return 2
    named = [model_type] if isinstance(model_type, str) else written_classes(config)
    return pad + 1 if any(kin in name.lower() for name in named for kin in _COUNTED_FROM_PADDING) else 0


def _kind(config: Mapping[str, Any]) -> str | None:
    """The end of the class name of a network with a head, such as SequenceClassification."""
    match = _TASK_OF_CLASS.search(written_class(config))
    return None if match is None else match[1]


def _no_head_hint() -> str:
    return (
        "train it: name it under model.name_or_path of a recipe; or take its vectors of texts: nlpctl index build, "
        f"nlpctl predict --embeddings, or in any command @[set=task={_vector_task().name}]"
    )


def _task(config: Mapping[str, Any], file: Path, purpose: Purpose, scores_alone: bool) -> TaskInfo:
    """`scores_alone`: where the config has no problem_type, the labels do not exclude each other."""
    name, kind = written_class(config), _kind(config)
    if kind == "MaskedLM" and purpose != "train":  # any task may be trained from it
        return next(task for task in known_tasks() if task.pipeline == "fill-mask")
    known = [task for task in known_tasks() if kind is not None and task.network_class == kind]
    problem = config.get("problem_type")
    pair = kind == "SequenceClassification" and problem in (None, _ONE_LABEL)
    if pair and _has_one_logit(config):
        return next(task for task in known_tasks() if task.matches)
    if known and problem is None and scores_alone:
        problem = next((task.problem_type for task in known if task.problem_type is not None), None)
    if known and problem != "regression":
        return next((task for task in known if task.problem_type == problem), known[0])
    if known:
        message, hint = "this network gives a number, not a label: nlpctl has no task for it", "use a classifier"
    elif name in ("UIE", "UIEM"):
        message = f"this network is a {name}, which nlpctl has no task for"
        hint = "train a token_classification on the same data, or run it with PaddleNLP's Taskflow"
    elif kind is None:
        what = f"a {name}, an encoder" if name else "of no class"
        message = f"this network is {what}: it has no head to answer with"
        hint = _no_head_hint()
    else:
        message = f"no task is known by the class {name}"
        hint = "name the task: @[set=task=...], or the folder under model.name_or_path of a recipe"
    raise UserError(message, where=str(file), hint=hint)


def _is_still(mark: WeightsMark, config: Mapping[str, Any]) -> bool:
    """Whether the head is the one that the mark tells of: Transformers keeps the mark where it trains the weights for
    another kind of problem, or for other labels."""
    told, names = find_task(mark.task), config.get("id2label")
    if told is None or mark.network != written_class(config):
        return False
    if (config.get("problem_type") or _ONE_LABEL) != (told.problem_type or _ONE_LABEL):
        return False
    if not mark.labels or _has_one_logit(config):
        return True
    return isinstance(names, dict) and [names.get(str(index)) for index in range(len(names))] == [*mark.labels]


def _has_one_logit(config: Mapping[str, Any]) -> bool:
    """Whether the head is that of a CrossEncoder of sentence-transformers: how well two texts match."""
    names = config.get("id2label")
    return len(names) == 1 if isinstance(names, dict) else 1 in (config.get("num_labels"), config.get("num_classes"))


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config as PaddleNLP writes it today. Before 2.5 it nested that of the encoder under init_args."""
    nested = config.get("init_args")
    inner = [each for each in (nested if isinstance(nested, list | tuple) else ()) if isinstance(each, dict)]
    return {name: value for each in inner for name, value in each.items()} | dict(config)


def _length(config: Mapping[str, Any], folder: Path) -> int:
    """The longest sequence in tokens that the network and its tokenizer take, at most LONGEST.

    A folder of sentence-transformers has a length of its own, which is cut at the network's positions only.
    """
    rows, pad = config.get("max_position_embeddings"), config.get("pad_token_id")
    if type(rows) is int:
        # The id of padding is 1 for most that count from it, also where their config.json says 0.
        rows -= first_position(config, max(1, pad) if type(pad) is int else 1)
    tokenizer = content_of(folder / "tokenizer_config.json")  # a damaged one is an error later, when it is loaded
    limit = tokenizer.get("model_max_length", tokenizer.get("max_len"))
    limit = limit if type(limit) is int and 0 < limit < _NO_LIMIT else None
    own = length_file(folder)
    of_library = own is not None or is_sentence_folder(folder)
    told = None if own is None else content_of(own).get("max_seq_length")  # in place of the tokenizer's
    limits = (rows, told if type(told) is int and told > 0 else limit, None if of_library else LONGEST)
    return min((each for each in limits if type(each) is int and each > 0), default=LONGEST)
