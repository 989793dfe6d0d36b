"""Checks of a recipe's values before anything heavy is imported: keys that exclude each other, numbers out of range,
files that are not there, what PaddleNLP would refuse late or fail on without a reason.

Each check is a small function that yields findings, and stands with the others of its subject: compression, networks
from scratch, distillation, parameters, training, user code, search, tasks, data; and those of every recipe. A finding
names the keys that it is about, so that the message can say where each was set, and so that it is dropped when one of
them is wrong already.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from nlpctl.config.distributions import BadDistribution, is_distribution, read_distribution
from nlpctl.config.environment import checked_environment, flag_environment
from nlpctl.config.hub_names import HF_PREFIX, HuggingFaceName
from nlpctl.config.keys import all_keys, keys_of
from nlpctl.config.paths import INPUT_PATHS, TEXT_PATHS
from nlpctl.config.ranges import RANGES
from nlpctl.config.refused_keys import UNSUPPORTED, turned_on
from nlpctl.config.schema import (
    Check,
    ColumnsSection,
    Finding,
    LossSection,
    ModelSection,
    Origin,
    Purpose,
    Recipe,
    ScratchSection,
    SplitFilesSection,
    parse_budget,
    parse_width,
    value_of,
)
from nlpctl.config.tasks import KNOWN_TASKS, TaskInfo, find_task, known_tasks, scores, unknown_prompt
from nlpctl.config.user_code import CODE_KEYS, names_of
from nlpctl.console import display
from nlpctl.errors import Problem, UserError
from nlpctl.extras import install, is_installed
from nlpctl.names import and_more, full_width_signs, link_hint, nearest
from nlpctl.outputs import READ_AGAIN, is_pipe


def check(recipe: Recipe, purpose: Purpose, broken: Collection[str] = ()) -> list[Problem]:
    """All problems of `recipe`, except those about keys in `broken`."""
    always = (*CHECKS, *NETWORK_CHECKS, *COMPRESSION_CHECKS, *DISTILLATION_CHECKS, *SEARCH_CHECKS)
    to_train = (*PROCESS_CHECKS, *USER_CODE_CHECKS, *TASK_CHECKS, *TRAINING_CHECKS, *DATA_CHECKS, *PARAMETER_CHECKS)
    checks = (*always, *to_train, *SCRATCH_CHECKS, *DISTILLATION_FILES) if purpose == "train" else always
    findings = [finding for each in checks for finding in each(recipe)]
    return [_problem(recipe, finding) for finding in findings if not _touches(finding.keys, broken)]


def refuse_half_precision_on_cpu(recipe: Recipe, computes_bf16: bool) -> None:
    """Raise UserError if the recipe wants a precision that this CPU does not train in; `computes_bf16`: it does so.

    For commands, once `auto` has turned out to be the CPU.
    """
    _refuse(recipe, _half_precision(recipe, computes_bf16))


def refuse_wrong_sharding(recipe: Recipe, several_machines: bool = False) -> None:
    """Raise UserError if the optimizer cannot be spread over all processes. For commands, which know of other nodes."""
    _refuse(recipe, _sharding_processes(recipe, several_machines))


def refuse_unknown_prompt(recipe: Recipe) -> None:
    """Raise UserError if there is no such prompt as the recipe names. For commands, which know the model."""
    _refuse(recipe, unknown_prompt(recipe))


def _refuse(recipe: Recipe, findings: Iterable[Finding]) -> None:
    problems = [_problem(recipe, finding) for finding in findings]
    if problems:
        raise UserError(problems=problems)


def _problem(recipe: Recipe, finding: Finding) -> Problem:
    """The finding with the places that set its keys: the first one's as `where`, of several keys all in the message."""
    origins = {key: recipe.origins[key] for key in finding.keys if key in recipe.origins}
    set_by = {key: str(origin) for key, origin in origins.items() if origin.source != "default"}
    where = next(iter(set_by.values()), display(recipe.path) if recipe.path else finding.keys[0])
    more = ""
    if len(finding.keys) > 1:
        more = " [" + ", ".join(f"{key}: {set_by.get(key, 'not set')}" for key in finding.keys) + "]"
    return Problem(finding.message + more, where=where, hint=finding.hint)


def _of_a_run(recipe: Recipe, dotted: str) -> bool:
    """Whether a run that is opened says so. An earlier version may have begun it, and it must go on as it is."""
    origin = recipe.origins.get(dotted)
    return origin is not None and origin.opened is not None


def _touches(keys: tuple[str, ...], broken: Collection[str]) -> bool:
    """Whether one of `keys`, or a section around it or a key inside it, is in `broken`."""
    return any(key == bad or key.startswith(f"{bad}.") or bad.startswith(f"{key}.") for key in keys for bad in broken)


# -- checks of section compression -----------------------------------------------------------------

# What its texts mean, and what PaddlePaddle 2.6 takes but does not do.

_BUDGET_FORM = "write 30m, 1h30m or 90s"


def _parsed(key: str, text: str, parse: Callable[[str], Any], hint: str) -> Iterator[Finding]:
    try:
        parse(text)
    except ValueError as error:
        yield Finding((key,), f"{key}: {error}", hint)


def _widths(recipe: Recipe) -> Iterator[Finding]:
    for text in recipe.compression.width_mult_list or ():
        yield from _parsed("compression.width_mult_list", text, parse_width, "write fractions: 3/4, 1/2")


def _budget(recipe: Recipe) -> Iterator[Finding]:
    if recipe.compression.budget is not None:
        yield from _parsed("compression.budget", recipe.compression.budget, parse_budget, _BUDGET_FORM)


def _algorithms(recipe: Recipe) -> Iterator[Finding]:
    if "min_max" in (recipe.compression.algo_list or ()):
        message = "compression.algo_list: PaddlePaddle takes min_max and then quantises nothing"
        yield Finding(("compression.algo_list",), message, "use avg, mse, emd, hist, abs_max or KL")


def _input_type(recipe: Recipe) -> Iterator[Finding]:
    if recipe.compression.input_dtype == "int32":
        message = "compression.input_dtype: graphs need the int64 ids that tokenizers produce"
        yield Finding(("compression.input_dtype",), message, "leave it out")


def _batch_sizes(recipe: Recipe) -> Iterator[Finding]:
    if not recipe.compression.batch_sizes:
        yield Finding(("compression.batch_sizes",), "compression.batch_sizes is empty", "write [1, 32]")


COMPRESSION_CHECKS: tuple[Check, ...] = (
    _widths,
    _budget,
    _algorithms,
    _input_type,
    _batch_sizes,
)


# -- checks of the keys that describe a network built from scratch ---------------------------------

# What each architecture reads of model.from_scratch that some other does not (models/scratch.py).
_OF_TRANSFORMERS = ("num_hidden_layers", "num_attention_heads", "intermediate_size")
READ_BY_ARCHITECTURE: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("bert", "ernie", "roberta", "electra"), _OF_TRANSFORMERS),
    "bilstm": ("unit", "embedding_size", "num_hidden_layers"),
    "textcnn": ("unit", "embedding_size", "kernel_sizes"),
    "bag_of_embeddings": ("unit", "embedding_size"),
    "bigru": ("unit", "embedding_size", "num_hidden_layers"),
}
OWN_NETWORKS = tuple(name for name, keys in READ_BY_ARCHITECTURE.items() if "unit" in keys)


def _heads_divide_width(recipe: Recipe) -> Iterator[Finding]:
    scratch = recipe.model.from_scratch
    if scratch is None or _own(scratch) is not None or scratch.num_attention_heads <= 0:
        return
    if scratch.hidden_size % scratch.num_attention_heads:
        keys = ("model.from_scratch.hidden_size", "model.from_scratch.num_attention_heads")
        message = (
            f"hidden_size {scratch.hidden_size} cannot be split over {scratch.num_attention_heads} attention heads"
        )
        yield Finding(keys, message, "make hidden_size a multiple of num_attention_heads")


def _vectors_have_an_embedding(recipe: Recipe) -> Iterator[Finding]:
    if recipe.model.embeddings is not None and recipe.model.from_scratch is None:
        yield Finding(
            ("model.embeddings", "model.from_scratch"),
            "word vectors are for networks trained from scratch: a trained one has its own",
            "set model.from_scratch in place of model.name_or_path, or remove model.embeddings",
        )


def _one_vocabulary(recipe: Recipe) -> Iterator[Finding]:
    scratch = recipe.model.from_scratch
    if scratch is not None and scratch.vocabulary is not None and scratch.dictionaries is not None:
        keys = ("model.from_scratch.vocabulary", "model.from_scratch.dictionaries")
        yield Finding(keys, "both vocabulary and dictionaries are set", "remove one: each is a whole vocabulary")


def _dictionaries_hold_characters(recipe: Recipe) -> Iterator[Finding]:
    scratch = recipe.model.from_scratch
    if scratch is None or scratch.dictionaries is None:
        return
    if scratch.architecture not in OWN_NETWORKS:
        keys = ("model.from_scratch.dictionaries", "model.from_scratch.architecture")
        message = f"{scratch.architecture} builds its own vocabulary and reads no dictionaries"
        yield Finding(keys, message, "set architecture: bigru, or remove dictionaries")
    elif scratch.unit != "characters":
        keys = ("model.from_scratch.dictionaries", "model.from_scratch.unit")
        yield Finding(keys, "dictionaries are read by character", "set unit: characters")


def _network_does_the_task(recipe: Recipe) -> Iterator[Finding]:
    own = _own(recipe.model.from_scratch)
    task = find_task(recipe.task)
    if own is None or task is None or recipe.model.network is not None:
        return
    if task.tags != (own.architecture == "bigru"):
        keys = ("model.from_scratch.architecture", "task")
        fitting = "bigru" if task.tags else " | ".join(name for name in OWN_NETWORKS if name != "bigru")
        yield Finding(keys, f"{own.architecture} cannot do {recipe.task}", f"set architecture: {fitting}")


def _user_class(recipe: Recipe) -> Iterator[Finding]:
    model = recipe.model
    if model.network is None:
        return
    if model.head != "linear":
        message = "model.network is the whole network, and model.head would change the task's"
        yield Finding(("model.network", "model.head"), message, "remove one of them")
    if model.embeddings is not None:
        message = "model.embeddings fills nlpctl's own networks, not model.network"
        yield Finding(("model.network", "model.embeddings"), message, "read the vectors in your class")


def _own(scratch: ScratchSection | None) -> ScratchSection | None:
    return scratch if scratch is not None and scratch.architecture in OWN_NETWORKS else None


def _keys_of_other_architectures(recipe: Recipe) -> Iterator[Finding]:
    """Of the network and of a student."""
    readers: dict[str, list[str]] = {}
    for architecture, names in READ_BY_ARCHITECTURE.items():
        for name in names:
            readers.setdefault(name, []).append(architecture)
    for section in ("model.from_scratch", "distillation.model.from_scratch"):
        scratch, chosen_by = value_of(recipe, section), f"{section}.architecture"
        if scratch is None or chosen_by in recipe.search.space:
            continue
        for name, known in readers.items():
            dotted = f"{section}.{name}"
            if scratch.architecture in known or value_of(recipe, dotted) == all_keys()[dotted].default:
                continue
            if not _of_a_run(recipe, dotted) and not _is_of_an_earlier_choice(recipe, dotted, chosen_by):
                message = f"{dotted} has no effect for {scratch.architecture}"
                yield Finding((dotted, chosen_by), message, f"delete it; it applies to {', '.join(known)}")


def _is_of_an_earlier_choice(recipe: Recipe, dotted: str, chosen_by: str) -> bool:
    """Whether `dotted` may be for what the key `chosen_by` was before a file over it, a flag or a trial of a sweep
    changed that. A trial also draws values that its own choice does not read."""
    key, choice = (recipe.origins.get(each, Origin("default")) for each in (dotted, chosen_by))

    def layer(origin: Origin) -> int:
        if origin.line is None:
            return 0 if origin.source == "default" else 3
        return 2 if recipe.path is not None and origin.source == display(recipe.path) else 1  # it extends the others

    return key.is_trial or choice.is_trial or layer(key) < layer(choice)


NETWORK_CHECKS = (
    _heads_divide_width,
    _vectors_have_an_embedding,
    _one_vocabulary,
    _dictionaries_hold_characters,
    _network_does_the_task,
    _user_class,
)
# Of the keys alone: a network that was trained is what it is.
SCRATCH_CHECKS: tuple[Check, ...] = (_keys_of_other_architectures,)


# -- checks of section distillation ----------------------------------------------------------------

# Keys that exclude each other, or that belong to another kind of student.

# Keys of a student that is made of the teacher's layers.
_OF_LAYERS = ("num_hidden_layers", "layers", "width")
# Weights of losses between two transformers with the same tokens.
_INSIDE = ("hidden", "attention", "relations")


def _one_student(recipe: Recipe) -> Iterator[Finding]:
    section = recipe.distillation
    given = [name for name in _OF_LAYERS if vars(section)[name] not in (None, (), 1.0)]
    own_model = section.model != ModelSection()
    if section.student is not None and own_model:
        keys = ("distillation.student", "distillation.model")
        yield Finding(keys, "two students: distillation.student and distillation.model", "give one of them")
    if given and (section.student is not None or section.model.from_scratch or section.model.name_or_path):
        other = "distillation.student" if section.student is not None else "distillation.model"
        keys = (f"distillation.{given[0]}", other)
        message = f"distillation.{given[0]} is for a student made of the teacher's layers"
        yield Finding(keys, message, f"remove it, or remove {other}")
    if section.model.name_or_path is not None and section.model.from_scratch is not None:
        keys = ("distillation.model.name_or_path", "distillation.model.from_scratch")
        yield Finding(keys, "both name_or_path and from_scratch of the student are set", "set one of them to null")
    if section.layers and section.num_hidden_layers is not None:
        keys = ("distillation.layers", "distillation.num_hidden_layers")
        yield Finding(keys, "distillation.layers and distillation.num_hidden_layers are both set", "keep one of them")
    if len(set(section.layers)) < len(section.layers):
        yield Finding(("distillation.layers",), "distillation.layers names a layer twice", "name it once")


def _inside_needs_the_same_tokens(recipe: Recipe) -> Iterator[Finding]:
    section = recipe.distillation
    if section.model.from_scratch is None:
        return
    for name in _INSIDE:
        if vars(section)[name]:
            keys = (f"distillation.{name}", "distillation.model.from_scratch")
            message = f"distillation.{name} compares layers, but this student has its own vocabulary"
            yield Finding(keys, message, "set it to 0: this student learns from the logits")


def _unread_by_student(recipe: Recipe) -> Iterator[Finding]:
    """Keys that change nothing in this kind of student; as in `_unread`, a file over theirs may have chosen it."""
    section, model = recipe.distillation, recipe.distillation.model
    of_layers = section.student is None and model.from_scratch is None and model.name_or_path is None
    readers = {
        "fit": (of_layers, "made of the teacher's layers"),
        "embeddings": (section.student is not None or _own(model.from_scratch) is not None, "over words or characters"),
    }
    choice = ("distillation.student", "distillation.model")
    chosen_by = [each for each in recipe.origins if each.startswith(choice)]
    for name, (is_read, kind) in readers.items():
        key = f"distillation.{name}"
        if is_read or value_of(recipe, key) == all_keys()[key].default or _of_a_run(recipe, key):
            continue
        if not any(_is_of_an_earlier_choice(recipe, key, each) for each in chosen_by):
            yield Finding((key,), f"{key} has no effect: it is for a student {kind}", "delete it")


_READ_TO_COMPRESS: Mapping[str, tuple[str, tuple[object, ...]]] = {  # as _READ_BY_CHOICE
    **{
        f"distillation.generate.{name}": ("distillation.generate.copies", ())
        for name in ("replace", "mask", "fragment", "cross")
    },
    "distillation.relation_heads": ("distillation.relations", ()),
    "distillation.temperature": ("distillation.loss", ("kl",)),
    "compression.moving_rate": ("compression.activation_quantize_type", (None, "moving_average_abs_max")),
}


def _unread_to_compress(recipe: Recipe) -> Iterator[Finding]:
    yield from _unread(recipe, _READ_TO_COMPRESS)


def _network(recipe: Recipe) -> Iterator[Finding]:
    """The checks of the section model, of the student's."""
    student = dataclasses.replace(recipe, model=recipe.distillation.model)
    for check in NETWORK_CHECKS:
        for finding in check(student):
            keys = tuple(f"distillation.{key}" if key.startswith("model.") else key for key in finding.keys)
            hint = finding.hint.replace("model.", "distillation.model.")
            yield Finding(keys, f"the student: {finding.message}", hint)


def _files(recipe: Recipe) -> Iterator[Finding]:
    section = recipe.distillation
    files = {"student": () if section.student is None else (section.student,), "unlabelled": section.unlabelled}
    for name, paths in files.items():
        for path in paths:
            if not os.path.isfile(path):
                key = f"distillation.{name}"
                yield Finding((key,), f"{key}: there is no file {display(path)}", "relative paths start at the recipe")


DISTILLATION_CHECKS: tuple[Check, ...] = (
    _one_student,
    _inside_needs_the_same_tokens,
    _unread_by_student,
    _unread_to_compress,
    _network,
)
DISTILLATION_FILES: tuple[Check, ...] = (_files,)  # of which a trained model needs none


# -- checks of the keys that change, freeze or group parameters ------------------------------------

# Which names match is known once there is a network.

_RATE, _DECAY = "learning_rate", "weight_decay"


def _groups(recipe: Recipe) -> Iterator[Finding]:
    for i, group in enumerate(recipe.optimizer.groups):
        where = f"optimizer.groups.{i}"
        if not group.match:
            yield Finding((where,), f"{where} matches nothing", "give it match: a name or a pattern")
        if group.learning_rate is None and group.weight_decay is None:
            yield Finding((where,), f"{where} changes nothing", f"give it {_RATE} or {_DECAY}, or delete it")
        if group.learning_rate is not None and group.learning_rate <= 0:
            message = f"{where}.{_RATE} is {group.learning_rate}"
            yield Finding((f"{where}.{_RATE}",), message, "it must be above 0; model.freeze stops training")
        if group.weight_decay is not None and group.weight_decay < 0:
            message = f"{where}.{_DECAY} is {group.weight_decay}"
            yield Finding((f"{where}.{_DECAY}",), message, "it must be at least 0")


def _pairs(recipe: Recipe) -> Iterator[Finding]:
    for pair in recipe.model.tie:
        if len(pair) != 2:
            hint = "write [[classifier.weight, other.weight]]; several pairs share with one: [[a, b], [a, c]]"
            yield Finding(("model.tie",), f"model.tie: {list(pair)} is not a pair", hint)


def _values(recipe: Recipe) -> Iterator[Finding]:
    texts = [value for value in recipe.model.set_parameters.values() if isinstance(value, str)]
    cut = any(is_distribution(text) and text.count("(") > text.count(")") for text in texts)
    for name, value in recipe.model.set_parameters.items():
        key = f"model.set_parameters.{name}"
        if isinstance(value, str) and is_distribution(value):
            yield from _distribution(key, value)
        elif isinstance(value, str) and not value.endswith(".npy"):
            yield Finding((key,), f"{key}: {display(value)} is no .npy file", "numpy.save(FILE, array) writes one")
        elif isinstance(value, str) and not os.path.isfile(value):
            yield Finding((key,), f"{key}: there is no file {display(value)}", "relative paths start at the recipe")
        elif value is None and cut:
            continue  # YAML cuts {w: normal(0, 0.02)} at the comma: the first half is reported, this is the second
        elif not isinstance(value, str) and (value is None or isinstance(value, bool)):
            hint = "give a number, a .npy file, or a distribution such as normal(0, 0.02)"
            yield Finding((key,), f"{key} has no number", hint)


def _distribution(key: str, text: str) -> Iterator[Finding]:
    try:
        read_distribution(text)
    except BadDistribution as error:
        yield Finding((key,), f"{key}: {error}", error.hint)


def _tokens(recipe: Recipe) -> Iterator[Finding]:
    tokens = recipe.model.add_tokens
    if isinstance(tokens, str) and not os.path.isfile(tokens):
        hint = "give a file with one word per line, or a list: [新冠, 比亚迪]"
        yield Finding(("model.add_tokens",), f"model.add_tokens: there is no file {display(tokens)}", hint)


def _no_crf(recipe: Recipe) -> Iterator[Finding]:
    """The transitions of a CRF, the one layer that another value of a key takes away; else the network is asked."""
    model = recipe.model
    if model.head == "crf" or model.network is not None:
        return
    named = {f"optimizer.groups.{i}.match": group.match for i, group in enumerate(recipe.optimizer.groups)}
    named |= {"model.freeze": model.freeze, "model.tie": tuple(name for pair in model.tie for name in pair)}
    named |= {f"model.set_parameters.{name}": (name,) for name in model.set_parameters}
    for key, patterns in named.items():
        if any(pattern.partition(".")[0] == "crf" for pattern in patterns):
            what = "remove the group" if key.startswith("optimizer.") else "remove it"
            message = f"{key}: there is no crf with model.head: {model.head}"
            info = find_task(recipe.task)
            can_have_one = info is not None and info.reads("model.head")
            yield Finding((key, "model.head"), message, f"{what}, or set model.head: crf" if can_have_one else what)


# A model that was trained needs none of them any more, nor the files that they name.
PARAMETER_CHECKS: tuple[Check, ...] = (_groups, _pairs, _values, _tokens, _no_crf)


# -- checks before training: settings of the Trainer -----------------------------------------------

# PaddleNLP refuses them only once everything is loaded, or fails on them without saying why.

MLFLOW = "mlflow"  # what training.report_to calls it; PaddleNLP does not know it

# What training.report_to names -> the packages of which it needs one.
_REPORTERS = {
    "visualdl": ("visualdl",),
    "tensorboard": ("tensorboardX", "tensorboard"),
    "wandb": ("wandb",),
    "autonlp": ("ray",),
    MLFLOW: ("mlflow",),
}


def _optimizer(recipe: Recipe) -> Iterator[Finding]:
    if recipe.training.optim == "adafactor":
        yield Finding(("training.optim",), "PaddleNLP's Trainer has no adafactor", "set training.optim: adamw")


def _reporters(recipe: Recipe) -> Iterator[Finding]:
    for name in recipe.training.report_to or ():
        packages = _REPORTERS.get(name, ())  # "all" and "none" need nothing
        if name == "visualdl" and not is_installed("paddle"):
            continue  # both come together, and what trains says so
        if packages and not any(map(is_installed, packages)):
            message = f"training.report_to: {name} is not installed"
            yield Finding(("training.report_to",), message, f"{install(packages[0])}, or set it to visualdl or none")


def _polynomial(recipe: Recipe) -> Iterator[Finding]:
    training = recipe.training
    if training.lr_scheduler_type == "polynomial" and training.scheduler is None:
        if training.lr_end >= training.learning_rate:
            message = f"the rate falls from learning_rate ({training.learning_rate}) to lr_end ({training.lr_end})"
            keys = ("training.lr_end", "training.learning_rate")
            yield Finding(keys, f"{message}, which must be lower", "lower training.lr_end")


_WITH_WARMUP = ("linear", "cosine", "constant_with_warmup", "polynomial")
# Keys that one choice of another key reads: key -> the key that chooses, and the values that do; () any but null, 0.
_READ_BY_CHOICE: Mapping[str, tuple[str, tuple[object, ...]]] = {
    "training.eval_steps": ("training.evaluation_strategy", ("steps",)),
    "training.minimum_eval_times": ("training.evaluation_strategy", ("steps",)),
    "training.save_steps": ("training.save_strategy", ("steps",)),
    "training.warmup_ratio": ("training.lr_scheduler_type", _WITH_WARMUP),
    "training.warmup_steps": ("training.lr_scheduler_type", _WITH_WARMUP),
    "training.num_cycles": ("training.lr_scheduler_type", ("cosine",)),
    "training.lr_end": ("training.lr_scheduler_type", ("polynomial",)),
    "training.power": ("training.lr_scheduler_type", ("polynomial",)),
    "data.shuffle_buffer": ("data.streaming", (True,)),
    "early_stopping.min_delta": ("early_stopping.patience", ()),
}


def _keys_of_other_choices(recipe: Recipe) -> Iterator[Finding]:
    yield from _unread(recipe, _READ_BY_CHOICE)


def _unread(recipe: Recipe, table: Mapping[str, tuple[str, tuple[object, ...]]]) -> Iterator[Finding]:
    """Keys that would do nothing. One that stands in a file under the file or flag that chooses may stay there."""
    for dotted, (chosen_by, read) in table.items():
        chosen = value_of(recipe, chosen_by)
        is_read = chosen in read if read else bool(chosen)
        if is_read or chosen_by in recipe.search.space or value_of(recipe, dotted) == all_keys()[dotted].default:
            continue
        if chosen_by == "training.lr_scheduler_type" and recipe.training.scheduler is not None:
            continue  # the user's own function may read any of them
        if not _of_a_run(recipe, dotted) and not _is_of_an_earlier_choice(recipe, dotted, chosen_by):
            message = f"{dotted} has no effect with {chosen_by}: {_spelled(chosen)}"
            choices = " or ".join(map(_spelled, read)) or "a number"
            yield Finding((dotted, chosen_by), message, f"delete it, or set {chosen_by}: {choices}")


def _spelled(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _some_steps(recipe: Recipe) -> Iterator[Finding]:
    if recipe.training.max_steps == 0 and not _of_a_run(recipe, "training.max_steps"):
        hint = "give a number of steps, or -1: then training.num_train_epochs counts"
        yield Finding(("training.max_steps",), "training.max_steps is 0, which PaddleNLP reads as no limit", hint)


def _evaluation_steps(recipe: Recipe) -> Iterator[Finding]:
    training = recipe.training
    in_steps = training.evaluation_strategy == "steps"
    if in_steps and training.minimum_eval_times is not None and training.eval_steps is None:
        keys = ("training.minimum_eval_times", "training.eval_steps")
        yield Finding(keys, "minimum_eval_times lowers eval_steps, which is not set", "set training.eval_steps")


TRAINING_CHECKS: tuple[Check, ...] = (
    _optimizer,
    _reporters,
    _polynomial,
    _keys_of_other_choices,
    _some_steps,
    _evaluation_steps,
)


# -- checks of the user's code, which a recipe names as module:function ----------------------------


def _user_optimizer(recipe: Recipe) -> Iterator[Finding]:
    if recipe.training.optimizer is None:
        return
    for key in ("groups", "layer_decay"):
        if getattr(recipe.optimizer, key):
            keys = ("training.optimizer", f"optimizer.{key}")
            hint = f"set the rates in your function, or remove training.optimizer or optimizer.{key}"
            yield Finding(keys, f"training.optimizer makes the optimizer, and optimizer.{key} would not reach it", hint)
    if recipe.training.sharding:
        keys = ("training.optimizer", "training.sharding")
        yield Finding(keys, "sharding spreads the state of nlpctl's own optimizer only", "remove one of them")


def _user_loss(recipe: Recipe) -> Iterator[Finding]:
    if recipe.training.criterion is None:
        return
    for key in keys_of(LossSection, "loss").values():
        dotted = key.dotted
        if value_of(recipe, dotted) != key.default and not _of_a_run(recipe, dotted):
            message = f"training.criterion replaces the loss of the task, and {dotted} would not reach it"
            hint = f"put it into your function, or remove training.criterion or {dotted}"
            yield Finding((dotted, "training.criterion"), message, hint)


def _lonely_preprocessing(recipe: Recipe) -> Iterator[Finding]:
    training = recipe.training
    if training.preprocess_logits_for_metrics is not None and training.compute_metrics is None:
        keys = ("training.preprocess_logits_for_metrics", "training.compute_metrics")
        yield Finding(keys, "preprocess_logits_for_metrics prepares for compute_metrics, which is not set", "set both")


_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")  # package.module:function


def _form_of_user_code(recipe: Recipe) -> Iterator[Finding]:
    yield from _wrong_names(recipe, (key for key in CODE_KEYS if not key.startswith("training.")))


def _form_of_training_code(recipe: Recipe) -> Iterator[Finding]:
    yield from _wrong_names(recipe, (key for key in CODE_KEYS if key.startswith("training.")))


def _wrong_names(recipe: Recipe, keys: Iterable[str]) -> Iterator[Finding]:
    """What an opened folder names is refused where it would be imported, and a command may not need it."""
    for key in keys:
        for name in () if _of_a_run(recipe, key) else names_of(recipe, key):
            if not _FUNCTION.fullmatch(name):
                message = f"{key} {name!r} is not of the form package.module:function"
                yield Finding((key,), message, f"for example my_project.parts:my_{key.rpartition('.')[2]}")


USER_CODE_CHECKS: tuple[Check, ...] = (
    _form_of_training_code,
    _user_optimizer,
    _user_loss,
    _lonely_preprocessing,
)


# -- checks of section search that need the rest of the recipe -------------------------------------


def _search_budget(recipe: Recipe) -> Iterator[Finding]:
    if recipe.search.budget is not None:
        yield from _parsed("search.budget", recipe.search.budget, parse_budget, _BUDGET_FORM)


def _metric(recipe: Recipe) -> Iterator[Finding]:
    known, metric = scores(recipe.task), recipe.search.metric
    if not known or metric is None:
        return
    name = metric.removeprefix("eval_")
    own = recipe.training.compute_metrics is not None and name != "loss"  # told by its first call
    if name not in known and not own:
        message = f"search.metric: reports of {recipe.task} have no score named {metric}"
        yield Finding(("search.metric", "task"), message, f"one of: {', '.join(known)}")


def _grid(recipe: Recipe) -> Iterator[Finding]:
    if recipe.search.sampler == "grid":
        for dotted, axis in recipe.search.space.items():
            if axis.points is None:
                keys = (f"search.space.{dotted}", "search.sampler")
                hint = "name the values, or give uniform a step; or set search.sampler: tpe"
                yield Finding(keys, f"search.space.{dotted}: a grid has single values, and this is {axis.text}", hint)


def _sections(recipe: Recipe) -> Iterator[Finding]:
    """A key of a section that is null would have no place."""
    for dotted in recipe.search.space:
        names = dotted.split(".")
        for place in (".".join(names[:count]) for count in range(2, len(names))):
            if value_of(recipe, place) is None:
                hint = f"write {place}: {{}} to have the section, or leave it out"
                yield Finding((f"search.space.{dotted}",), f"search.space.{dotted}: the recipe has no {place}", hint)
                break


def _labels(recipe: Recipe) -> Iterator[Finding]:
    """Without data.labels, they are those of the training rows, and so others for each trial."""
    task = find_task(recipe.task)
    given = recipe.data.labels is not None or recipe.data.numbered_labels is not None
    if task is not None and task.labelled and not given and "data.train" in recipe.search.space:
        message = "search.space.data.train: trials with other rows may have other labels, which no score compares"
        yield Finding(("search.space.data.train",), message, "write data.labels: [A, B] for all of them")


_OF_VOCABULARY = (
    "model.name_or_path",
    "model.add_tokens",
    "model.from_scratch.vocab_size",
    "model.from_scratch.min_frequency",
    "model.from_scratch.lowercase",
    "model.from_scratch.vocabulary",
)


def _vocabularies(recipe: Recipe) -> Iterator[Finding]:
    """A network from scratch has the vocabulary of its training rows."""
    task, scratch = find_task(recipe.task), recipe.model.from_scratch
    if task is None or not task.token_scores:
        return
    of_rows = scratch is not None and scratch.vocabulary is None
    for dotted in (*_OF_VOCABULARY, "data.train") if of_rows else _OF_VOCABULARY:
        if dotted in recipe.search.space and not _of_a_run(recipe, f"search.space.{dotted}"):
            message = f"search.space.{dotted}: trials may have other tokens, which no score of {recipe.task} compares"
            hint = "leave it out; nlpctl eval compares models whose tokens are the same"
            yield Finding((f"search.space.{dotted}",), message, hint)


SEARCH_CHECKS: tuple[Check, ...] = (_search_budget, _metric, _grid, _sections, _labels, _vocabularies)


# -- checks of keys that not every task reads, and of each task ------------------------------------

# A key without effect would mislead readers of the recipe.


def _named(tasks: Iterable[TaskInfo]) -> str:
    *others, last = [task.name for task in tasks]
    return f"{', '.join(others)} and {last}" if others else last


def keys_of_other_tasks(recipe: Recipe) -> Iterator[Finding]:
    """Keys that differ from their defaults, and that the task does not read."""
    info = find_task(recipe.task)
    if info is None:
        return
    for dotted, key in all_keys().items():
        if key.section or info.reads(dotted) or not any(task.reads(dotted) for task in KNOWN_TASKS):
            continue
        if value_of(recipe, dotted) != key.default:
            message = f"{dotted} has no effect for {recipe.task}"
            hint = f"delete it; it applies to {_named(task for task in known_tasks() if task.reads(dotted))}"
            if dotted == "data.columns.label" and info.tags:
                hint = "name the column of the tags: data.columns.tags"
            yield Finding((dotted, "task"), message, hint)


def _format_of_other_tasks(recipe: Recipe) -> Iterator[Finding]:
    info, by_split = find_task(recipe.task), recipe.data.by_split
    places = {"data.format": recipe.data.format, "data.by_split.train.format": by_split.train.format}
    places |= {"data.by_split.dev.format": by_split.dev.format, "data.by_split.test.format": by_split.test.format}
    for key, value in places.items():
        readers = [task for task in known_tasks() if value in task.formats]
        if info is not None and readers and info not in readers:
            message = f"{recipe.task} cannot read {key}: {value}"
            yield Finding((key, "task"), message, f"it is for {_named(readers)}; convert the file to jsonl")


def _checks_of_the_task(recipe: Recipe) -> Iterator[Finding]:
    info = find_task(recipe.task)
    for check in info.checks if info is not None else ():
        yield from check(recipe)


def _balance(recipe: Recipe) -> Iterator[Finding]:
    balance, loss = recipe.data.balance, recipe.loss
    if balance.method is not None and balance.counts:
        keys = ("data.balance.method", "data.balance.counts")
        yield Finding(keys, "both data.balance.method and data.balance.counts are set", "delete one of them")
    if loss.class_weights is not None and loss.weights:
        keys = ("loss.class_weights", "loss.weights")
        yield Finding(keys, "both loss.class_weights and loss.weights are set", "delete one of them")
    if loss.focal_alpha is not None and loss.focal_gamma is None:
        keys = ("loss.focal_alpha", "loss.focal_gamma")
        yield Finding(keys, "focal_alpha without focal loss", "set loss.focal_gamma: 2.0, or use loss.weights")
    for dotted, used in (
        ("data.balance.method", balance.method is not None),
        ("data.balance.counts", bool(balance.counts)),
        ("loss.class_weights", loss.class_weights is not None),
    ):
        if used and recipe.data.streaming:
            message = f"{dotted} counts the rows, and a stream cannot be counted before it is read"
            yield Finding((dotted, "data.streaming"), message, "set data.streaming: false, or give loss.weights")


def _tag_map_has_a_model(recipe: Recipe) -> Iterator[Finding]:
    if recipe.data.tag_map and recipe.model.from_scratch is not None:
        message = "data.tag_map names what a trained model learnt, and this one starts from scratch"
        yield Finding(("data.tag_map", "model.from_scratch"), message, "delete one of them")


def _weights_are_numbers(recipe: Recipe) -> Iterator[Finding]:
    for label, weight in recipe.loss.weights.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or weight < 0:
            message = f"loss.weights.{label}: {weight!r} is not a weight"
            yield Finding(("loss.weights",), message, "give a number of 0 or more")
            return
    if recipe.loss.weights and not any(recipe.loss.weights.values()):
        message = "loss.weights are all 0, so no row would count"
        yield Finding(("loss.weights",), message, "give at least one label a weight above 0")


def _tuning_has_data(recipe: Recipe) -> Iterator[Finding]:
    has_dev = recipe.data.dev or (recipe.data.dataset is not None and recipe.data.splits.dev is not None)
    if recipe.decode.tune is not None and not has_dev:
        message = "thresholds are searched on dev data, and there is none"
        yield Finding(("decode.tune", "data.dev"), message, "set data.dev")


TASK_CHECKS: tuple[Check, ...] = (
    keys_of_other_tasks,
    _format_of_other_tasks,
    _checks_of_the_task,
    _balance,
    _tag_map_has_a_model,
    _weights_are_numbers,
    _tuning_has_data,
)


# -- checks before training: model and data --------------------------------------------------------

# Is there a model to start from, data to train on, and do the files exist.


def _some_model(recipe: Recipe) -> Iterator[Finding]:
    if recipe.model.name_or_path is None and recipe.model.from_scratch is None:
        hint = "write model: {name_or_path: ernie-3.0-medium-zh}, or model: {from_scratch: {}}"
        keys = ("model.name_or_path", "model.from_scratch")
        yield Finding(keys, "no model: neither model.name_or_path nor model.from_scratch is set", hint)


def _model_folder_exists(recipe: Recipe) -> Iterator[Finding]:
    name = recipe.model.name_or_path
    if name is not None and name.startswith(HF_PREFIX):
        try:
            HuggingFaceName.of(name)
        except UserError as error:
            problem = error.problems[0]
            yield Finding(("model.name_or_path",), f"{display(name)}: {problem.message}", problem.hint)
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
    both = ("training.evaluation_strategy", "training.save_strategy")
    waiting = [name for name in both if value_of(recipe, name) == "epoch" and not _of_a_run(recipe, name)]
    if waiting:
        message = f"a stream has no epochs: {' and '.join(waiting)}: epoch would wait for the last step"
        steps = {"training.evaluation_strategy": "training.eval_steps", "training.save_strategy": "training.save_steps"}
        hint = f"set {' and '.join(f'{name}: steps with {steps[name]}' for name in waiting)}"
        yield Finding((*waiting, "data.streaming"), message, hint)
    if recipe.training.max_steps <= 0:
        keys = ("data.streaming", "training.max_steps")
        hint = "set training.max_steps: rows divided by the batch size, times the epochs"
        yield Finding(keys, "a stream has no known length: data.streaming needs training.max_steps", hint)
    task = find_task(recipe.task)
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
    task = find_task(recipe.task)
    if task is not None and task.pairs and recipe.data.columns.text_pair is None:
        message = f"{task.name} needs the column of the second text"
        yield Finding(("data.columns.text_pair", "task"), message, "name it: data.columns.text_pair: COLUMN")


def _window(recipe: Recipe) -> Iterator[Finding]:
    data, task = recipe.data, find_task(recipe.task)
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
            hint = "name every label, or delete the key" + full_width_signs("".join(labels))
            yield Finding((key,), f"{key} has fewer than two labels", hint)
        if any(not label.strip() for label in labels):
            yield Finding((key,), f"{key} has a blank label", "delete it")


def _label_file_exists(recipe: Recipe) -> Iterator[Finding]:
    for key, labels in _lists_of_labels(recipe):
        if isinstance(labels, str) and not os.path.isfile(labels):
            hint = "give a file with one label per line, or a list: [neg, pos]" + full_width_signs(labels)
            yield Finding((key,), f"{key}: there is no file {display(labels)}", hint)


def _lists_of_labels(recipe: Recipe) -> tuple[tuple[str, tuple[str, ...] | str | None], ...]:
    return (("data.labels", recipe.data.labels), ("data.numbered_labels", recipe.data.numbered_labels))


_NAMED_FILES = {  # key: what its file holds
    "decode.terms": "TERM<TAB>TYPE lines",
    "masking.dictionary": "one word per line",
    "model.embeddings": "word vectors, WORD NUMBER NUMBER ...",
    "model.from_scratch.vocabulary": "one entry per line",
}


def _named_files_exist(recipe: Recipe) -> Iterator[Finding]:
    for key, holds in _NAMED_FILES.items():
        file = value_of(recipe, key)
        if file is not None and not os.path.isfile(file):
            hint = f"give a file of {holds}, or remove the key"
            yield Finding((key,), f"{key}: there is no file {display(file)}", hint)


def _dataset_folder_exists(recipe: Recipe) -> Iterator[Finding]:
    name = recipe.data.dataset
    if name is not None and os.path.isabs(name) and not os.path.isdir(name):
        message = "is a file, not a folder" if os.path.exists(name) else "does not exist"
        hint = "give a folder of data files, or the name of a data set; files go under data.train, data.dev, data.test"
        yield Finding(("data.dataset",), f"the data set folder {display(name)} {message}", hint)


_MOST_LISTED = 4  # wrong files of a split, as many as a message has room for


def _data_files_exist(recipe: Recipe) -> Iterator[Finding]:
    if recipe.data.reader is not None:
        return  # the user's reader interprets its paths itself
    for name, paths in {"train": recipe.data.train, "dev": recipe.data.dev, "test": recipe.data.test}.items():
        yield from islice(_wrong_files(f"data.{name}", dict.fromkeys(paths)), _MOST_LISTED)


def _wrong_files(key: str, paths: Iterable[str]) -> Iterator[Finding]:
    for path in paths:
        if os.path.isdir(path):
            yield Finding((key,), f"{key}: {display(path)} is a folder", "name the files in it")
        elif not os.path.exists(path):
            hint = "relative paths start at the file that names them; on the command line, at the current directory"
            yield Finding((key,), f"{key}: there is no file {display(path)}", link_hint(path) or hint)


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
    _named_files_exist,
    _dataset_folder_exists,
    _data_files_exist,
    _run_directory,
)


# -- checks of every recipe, for whatever command --------------------------------------------------


def _ranges(recipe: Recipe) -> Iterator[Finding]:
    for dotted, allowed in RANGES.items():
        value = value_of(recipe, dotted)
        values = value if isinstance(value, tuple) else (value,)
        for each in values:
            if each is not None and each not in allowed:
                yield Finding((dotted,), f"{dotted} is {each}", f"it {allowed}")


def _no_pipes(recipe: Recipe) -> Iterator[Finding]:
    """A pipe without a writer waits for ever, and every input is read more than once."""
    for dotted in (*INPUT_PATHS, *TEXT_PATHS):
        value = value_of(recipe, dotted)
        for path in value if isinstance(value, tuple) else (value,):
            own_reader = dotted.startswith("data.") and recipe.data.reader is not None
            if isinstance(path, str) and not own_reader and is_pipe(path):
                message = f"{dotted}: {display(path)} is a pipe or a device, and inputs are read more than once"
                yield Finding((dotted,), message, READ_AGAIN)


def _model_is_one_thing(recipe: Recipe) -> Iterator[Finding]:
    if recipe.model.name_or_path is not None and recipe.model.from_scratch is not None:
        keys = ("model.name_or_path", "model.from_scratch")
        yield Finding(keys, "both model.name_or_path and model.from_scratch are set", "set one of them to null")


def _best_model(recipe: Recipe) -> Iterator[Finding]:
    training = recipe.training
    if not training.load_best_model_at_end:
        return
    keys = ("training.load_best_model_at_end", "training.evaluation_strategy", "training.save_strategy")
    if training.evaluation_strategy != training.save_strategy:
        message = (
            "load_best_model_at_end needs evaluation_strategy and save_strategy to be the same, "
            f"found {training.evaluation_strategy} and {training.save_strategy}"
        )
        yield Finding(keys, message, "set both to epoch, or both to steps; or load_best_model_at_end: false")
    elif training.evaluation_strategy == "no":
        hint = "set both strategies to epoch, or load_best_model_at_end: false"
        yield Finding(keys, "load_best_model_at_end needs evaluations to compare", hint)


def _best_model_steps(recipe: Recipe) -> Iterator[Finding]:
    training = recipe.training
    if not (training.load_best_model_at_end and training.evaluation_strategy == training.save_strategy == "steps"):
        return
    eval_steps = training.logging_steps if training.eval_steps is None else training.eval_steps
    if eval_steps > 0 and training.save_steps % eval_steps:
        source = "logging_steps" if training.eval_steps is None else "eval_steps"
        keys = ("training.save_steps", f"training.{source}", "training.load_best_model_at_end")
        message = f"save_steps ({training.save_steps}) is not a multiple of {source} ({eval_steps})"
        yield Finding(keys, message, "load_best_model_at_end compares saved checkpoints: evaluate at each save")


def _early_stopping(recipe: Recipe) -> Iterator[Finding]:
    if recipe.early_stopping.patience is not None and not recipe.training.load_best_model_at_end:
        keys = ("early_stopping.patience", "training.load_best_model_at_end")
        hint = "set training.load_best_model_at_end: true"
        yield Finding(keys, "early_stopping.patience needs load_best_model_at_end", hint)


def _lonely_do_eval(recipe: Recipe) -> Iterator[Finding]:
    if recipe.training.do_eval and recipe.training.evaluation_strategy == "no":
        keys = ("training.do_eval", "training.evaluation_strategy")
        message = "do_eval alone would evaluate every logging_steps, whatever evaluation_strategy says"
        yield Finding(keys, message, "delete do_eval and set training.evaluation_strategy: epoch or steps")


def _best_metric(recipe: Recipe) -> Iterator[Finding]:
    task, metric = find_task(recipe.task), recipe.training.metric_for_best_model
    if task is None or metric is None:
        return
    name = metric.removeprefix("eval_")
    if name not in task.metrics and recipe.training.compute_metrics is not None:
        return  # one of the user's own, which the first call tells
    if name not in task.metrics:
        keys = ("training.metric_for_best_model", "task")
        hint = f"set training.metric_for_best_model to one of: {', '.join(task.metrics)}"
        yield Finding(keys, f"metric_for_best_model: {task.name} has no score named {metric}", hint)
        return
    greater = recipe.training.greater_is_better
    if greater is not None and greater is not task.greater_is_better(name):
        keys = ("training.greater_is_better", "training.metric_for_best_model")
        message = (
            f"greater_is_better is {str(greater).lower()}, but a better {name} is {'lower' if greater else 'higher'}"
        )
        yield Finding(keys, message, "delete greater_is_better: it follows from the metric")


def _one_precision(recipe: Recipe) -> Iterator[Finding]:
    training = recipe.training
    if training.fp16 and training.bf16:
        yield Finding(("training.fp16", "training.bf16"), "fp16 and bf16 are both true", "choose one")


def _no_half_precision_on_cpu(recipe: Recipe) -> Iterator[Finding]:
    if recipe.runtime.device == "cpu":
        yield from _half_precision(recipe, computes_bf16=None)  # the recipe may be for another machine


def _half_precision(recipe: Recipe, computes_bf16: bool | None) -> Iterator[Finding]:
    """`computes_bf16`: None where the processor is not known."""
    training = recipe.training
    needs = {"fp16": "fp16 needs a GPU: Paddle crashes with fp16 on a CPU"}
    if computes_bf16 is False:
        needs["bf16"] = "bf16 needs a GPU, or a processor with AVX512-BF16 or AMX, and this one has neither"
    for name, message in needs.items():
        if getattr(training, name):
            keys = (f"training.{name}", "runtime.device")
            yield Finding(keys, message, _other_precision(name, computes_bf16))
    if not training.bf16 or computes_bf16 is False:
        return
    if not training.fast_cpu:
        message = "on a CPU, bf16 is computed by the faster functions, which are off"
        hint = "set training.fast_cpu: true, or training.bf16: false"
        yield Finding(("training.bf16", "training.fast_cpu"), message, hint)
    if training.fp16_opt_level == "O2":
        message = "on a CPU, bf16 keeps weights in 32 bits"
        yield Finding(("training.fp16_opt_level", "training.bf16"), message, "set training.fp16_opt_level: O1")


def _other_precision(name: str, computes_bf16: bool | None) -> str:
    """What to do about the key `name` of section training, which asks for a precision that no CPU trains in, or not
    this one."""
    if name != "fp16" or computes_bf16 is False:
        return f"set training.{name}: false, or use a GPU"
    where = "this processor computes in it" if computes_bf16 else "where the processor has AVX512-BF16 or AMX"
    return f"use @[training.bf16=true] in its place ({where}), or a GPU"


def _processes(recipe: Recipe) -> Iterator[Finding]:
    runtime = recipe.runtime
    if runtime.devices and runtime.nproc > 1:
        keys = ("runtime.devices", "runtime.nproc")
        yield Finding(keys, "runtime.devices and runtime.nproc are both set", "devices is for GPUs, nproc for the CPU")
    elif runtime.devices and runtime.device == "cpu":
        yield Finding(("runtime.devices", "runtime.device"), "runtime.devices names GPU cards", "use runtime.nproc")
    elif runtime.nproc > 1 and runtime.device == "gpu":
        keys = ("runtime.nproc", "runtime.device")
        yield Finding(keys, "runtime.nproc starts processes on the CPU", "name the cards: runtime.devices: [0, 1]")
    if len(set(runtime.devices)) < len(runtime.devices):
        yield Finding(("runtime.devices",), "runtime.devices names a card twice", "one process per card: name it once")


def _sharding_processes(recipe: Recipe, several_machines: bool) -> Iterator[Finding]:
    """Sharding spreads the optimizer over all processes of a training, of which there must be several."""
    training, processes = recipe.training, max(len(recipe.runtime.devices), recipe.runtime.nproc)
    if training.sharding and processes == 1 and not several_machines:
        keys: tuple[str, ...] = ("training.sharding", "runtime.devices", "runtime.nproc")
        hint = "set runtime.devices: [0, 1] (@[runtime.devices=0,1]) or runtime.nproc: 2 (@[runtime.nproc=2]), "
        hint += "train on several nodes (@[nnodes=2]), or leave it out"
        yield Finding(keys, "training.sharding needs several processes to spread the optimizer over", hint)
    degree = training.sharding_parallel_degree
    if degree > 1 and (several_machines or not (training.sharding and degree == processes)):
        keys = ("training.sharding_parallel_degree", "training.sharding", "runtime.devices", "runtime.nproc")
        message = f"training.sharding_parallel_degree is {degree}: nlpctl spreads over all processes or not at all"
        yield Finding(keys, message, "leave it out; training.sharding: stage1 uses all processes")


def _unsupported(recipe: Recipe) -> Iterator[Finding]:
    for dotted, reason in UNSUPPORTED.items():
        if turned_on(value_of(recipe, dotted)) and not _of_a_run(recipe, dotted):
            yield Finding((dotted,), f"{dotted} is not supported: {reason}", "leave it out")


def _sharding_stage(recipe: Recipe) -> Iterator[Finding]:
    sharding = recipe.training.sharding
    if sharding not in ("", "stage1"):
        message = f"training.sharding: {sharding!r} is not supported"
        hint = "set it to stage1: Paddle runs stage2, stage3 and offload on GPUs alone, where nlpctl was not tested"
        yield Finding(("training.sharding",), message, hint)


def _flags(recipe: Recipe) -> Iterator[Finding]:
    yield from _problems_of(flag_environment, recipe.runtime.flags)


def _environment(recipe: Recipe) -> Iterator[Finding]:
    yield from _problems_of(checked_environment, recipe.runtime.env)


def _problems_of(check: Callable[[Any], Any], value: Any) -> Iterator[Finding]:
    try:
        check(value)
    except UserError as error:
        for problem in error.problems:
            yield Finding((problem.where,), problem.message, problem.hint)


def _ascii_cache(recipe: Recipe) -> Iterator[Finding]:
    cache = recipe.runtime.cache_dir
    if cache is not None and not cache.isascii():
        message = f"runtime.cache_dir {cache} is not plain ASCII: Paddle cannot open files there"
        yield Finding(("runtime.cache_dir",), message, "choose a folder whose whole path is ASCII")


CHECKS: tuple[Check, ...] = (
    _ranges,
    _form_of_user_code,
    _no_pipes,
    _model_is_one_thing,
    _best_model,
    _best_model_steps,
    _early_stopping,
    _lonely_do_eval,
    _best_metric,
    _one_precision,
    _no_half_precision_on_cpu,
    _unsupported,
    _sharding_stage,
    _flags,
    _environment,
    _ascii_cache,
)

# Commands that use a model need not be distributed like its training.
PROCESS_CHECKS: tuple[Check, ...] = (_processes,)
