"""Weights as Transformers and sentence-transformers load them, and with them text-embeddings-inference, vLLM, optimum.

    config.json model.safetensors          under Hugging Face's keys and names (models/huggingface_layout.py)
    tokenizer.json tokenizer_config.json   the tokenizer; vocab.txt too for WordPiece
    special_tokens_map.json
    README.md                              the model card
    modules.json 1_Pooling 2_Dense ...     sentence-transformers: how the vectors are made

No graphs are in it: these programs have the networks. What was written is read again and compared bit by bit.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

import nlpctl
from nlpctl import console
from nlpctl.checksums import sha256_of
from nlpctl.config import sentence_folder
from nlpctl.config.schema import Recipe
from nlpctl.config.sentence_folder import (
    ACTIVATIONS,
    DENSE,
    LENGTH,
    MODULES,
    NORMALIZE,
    OLD_POOLINGS,
    PASSAGE_PROMPTS,
    POOLING,
    POOLINGS,
)
from nlpctl.config.tasks import task_info
from nlpctl.config.weights_mark import MARK, WeightsMark, without_files
from nlpctl.data.rows.multi_label_rows import ancestor_ids
from nlpctl.data.text.library_tokenizer import READ_THE_FILE, SPECIALS, LibraryTokenizer
from nlpctl.engines.trained import TrainedModel
from nlpctl.errors import RunFailed, UserError
from nlpctl.export.layouts.usage import usage
from nlpctl.export.layouts.weights import CROSS_ENCODER, SENTENCES, TRANSFORMERS, WEIGHTS_FILE
from nlpctl.files import json_of, write_json_atomic, write_text_atomic
from nlpctl.layout import CARD, CONFIG_FILES, TASK
from nlpctl.models.assign import with_prefix
from nlpctl.models.calibration import LOGISTIC
from nlpctl.models.crf import CRF_SUFFIX
from nlpctl.models.families import Head
from nlpctl.models.folder import kept_values
from nlpctl.models.huggingface_layout import (
    LAYOUTS,
    computed_tables,
    config_to_huggingface,
    to_huggingface,
    to_paddle,
)
from nlpctl.models.pruned import KEY as PRUNED
from nlpctl.models.pruned import read_shape
from nlpctl.models.simulated_int8 import KEY as SIMULATED
from nlpctl.models.source import FAST_TOKENIZER
from nlpctl.models.user_network import KEY as USER_KEY
from nlpctl.models.weights import read_safetensors
from nlpctl.names import and_more
from nlpctl.report.language import Later, later
from nlpctl.runs.card import CardFacts, card_facts, card_page
from nlpctl.tasks.base import Task
from nlpctl.tasks.confidence import log_odds, scales_and_shifts, sigmoid

_GRAPHS = "export graphs, which hold every model: nlpctl export without @[layout]"
_SIGMOID = "torch.nn.modules.activation.Sigmoid"
# Heads of PaddleNLP that leave the encoder's pooler unused; the classes of Transformers have none.
_WITHOUT_POOLER = ("TokenClassification", "QuestionAnswering", "MaskedLM")


def write_weights(
    layout: str, recipe: Recipe, model: TrainedModel, network: Any, folder: Path, source: Path, name: str
) -> tuple[str, ...]:
    """Fill the empty `folder`, which will be called `name`, with the network of `model`; returns what the layout cannot
    hold, for people. `source`: the model folder, for the card.

    UserError if `layout` cannot hold it. RunFailed if what was written reads otherwise.
    """
    info, head, task = task_info(recipe.task), model.task.built_head(recipe).name, model.task
    _refuse(model.task.built_head(recipe), network)
    values = _config_values(network)
    model_type, where = values["model_type"], str(source)
    arrays = {name: np.asarray(value.numpy()) for name, value in network.state_dict().items()}
    layers = {name: arrays.pop(name) for name in ("projection.weight", "projection.bias") if name in arrays}
    if head in _WITHOUT_POOLER:
        arrays = {name: array for name, array in arrays.items() if ".pooler." not in name}
    held = _is_linear(task, head)
    if held:
        arrays = _calibrated(arrays, task)
    if layout == CROSS_ENCODER and info.matches:
        arrays, values = _with_one_logit(arrays, values)
    config = config_to_huggingface(values, head, where)
    if info.problem_type is not None:
        config["problem_type"] = info.problem_type
    if layout == CROSS_ENCODER and (info.matches or task.independent):
        config["sentence_transformers"] = {"activation_fn": _SIGMOID, "version": "4.0.0"}

    theirs = to_huggingface(arrays, model_type, head, where) | computed_tables(values, head)
    contiguous = {name: np.ascontiguousarray(array) for name, array in theirs.items()}
    save_file(contiguous, str(folder / WEIGHTS_FILE), {"format": "pt"})
    thresholds = _thresholds(task, held)
    config[MARK] = WeightsMark(
        nlpctl.__version__,
        recipe.task,
        layout,
        sha256_of(folder / WEIGHTS_FILE),
        config["architectures"][0],
        task.labels.names,
        thresholds if task.thresholds is not None or held else None,  # else decode.threshold says it
        None if task.calibration is None or held else task.calibration.to_json(),
        **without_files({name: kept_values(recipe)[name] for name in ("data", "decode")}),
    ).to_json()
    write_json_atomic(folder / CONFIG_FILES[0], config)
    write_tokenizer(folder, model.encoder.tokenizer, recipe.data.max_seq_length)
    if layout == SENTENCES:
        _write_modules(folder, recipe, network.width, layers)
    _compare(folder, arrays, model_type, head, network.base_model_prefix)
    facts = _card_facts(layout, model, source, name, thresholds, held)
    write_text_atomic(folder / CARD, card_page(facts))
    if held:
        console.note("the last layer of the written weights holds the calibration")
    return tuple(facts.left_out)


# -- what a layout cannot hold ---------------------------------------------------------------------


def _refuse(head: Head, network: Any) -> None:
    """UserError if Transformers has no network that computes what this one does."""
    config, where = vars(network.config), "@[layout]"
    kind = type(network).__name__
    if config.get(USER_KEY) is not None:
        raise UserError(f"{kind} is a class of your own, which Transformers does not know", where, _GRAPHS)
    if network.config.model_type not in LAYOUTS:
        families = ", ".join(each.model_type for each in LAYOUTS.values())
        raise UserError(f"{kind} has no network of Transformers beside it, as {families} have", where, _GRAPHS)
    if kind.endswith(CRF_SUFFIX):
        hint = f"train with model.head: linear, without the group of optimizer.groups that matches crf; or {_GRAPHS}"
        raise UserError("Transformers has no CRF, which decides the tags of this model together", where, hint)
    if head.adapt is not None and head.labelled:  # of few-shot classification: words at a mask, vectors of unit length
        message = "what gives this model's labels is nlpctl's own, and no class of Transformers"
        raise UserError(message, where, _GRAPHS)
    if config.get(SIMULATED) is not None:
        message = "this network was trained to be rounded to int8, which Transformers' network would not do"
        raise UserError(message, where, _GRAPHS)
    shape = read_shape(config, "config.json")
    if shape is not None and (set(shape.heads) != {network.config.num_attention_heads} or len(set(shape.neurons)) > 1):
        message = f"of {network.config.num_attention_heads} heads {_range(shape.heads)} are left in a layer, and"
        message += f" {_range(shape.neurons)} neurons: networks of Transformers have as many in each, and all heads"
        raise UserError(message, where, _GRAPHS)


def _range(counts: tuple[int, ...]) -> str:
    return str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"


def _left_out(task: Task, thresholds: Sequence[float] | None, held: bool) -> Iterator[Later]:
    """What decides or describes answers in nlpctl, and stays behind.

    `held`: the weights hold the calibration.
    """
    decode, names = task.recipe.decode, task.labels.names
    if thresholds is not None:
        listed = and_more([f"{name} {value:.3f}" for name, value in zip(names, thresholds, strict=True)], 5)
        yield later(
            "the thresholds of labels ({}): programs that load it take 0.5, or the largest",
            listed,
        )
    if task.independent and any(ancestor_ids(names)):
        yield later("that a label is given with all labels above it")
    if task.calibration is not None and not held:
        yield later("the calibration, which no layer of the network can hold: probabilities are those from before it")
    if decode.terms is not None:
        yield later("the dictionary of decode.terms")
    if task_info(task.name).tags:
        yield later(
            "that words are tagged as wholes, each in the window of a long text that shows the most around it: the "
            "pipeline tags pieces of words and joins the entities of all windows, so some may be others"
        )
    if task_info(task.name).reads("decode.max_answer_length"):
        yield later(
            "how answers are read from the scores of tokens, which Transformers 5 has no pipeline for: the code of the "
            "model card does it, with answers of up to {} tokens (decode.max_answer_length)",
            decode.max_answer_length,
        )
        if decode.null_threshold is not None:
            yield later(
                "decode.null_threshold, {:g}: when a question has no answer, as the code of the model card decides",
                decode.null_threshold,
            )
        yield later(
            "answers that begin in one window of a long text and end in another, where no window holds them whole"
        )


# -- calibration -----------------------------------------------------------------------------------


def _is_linear(task: Task, head: str) -> bool:
    """Whether the last layer can do what the calibration does: it scales and shifts the logits of all rows alike."""
    calibration = task.calibration
    if calibration is None or head != "SequenceClassification":
        return False
    return calibration.method == LOGISTIC or not (calibration.names or calibration.power)


def _last_layer(arrays: Mapping[str, np.ndarray]) -> tuple[str, str]:
    """The names of weight [inputs, labels] and bias [labels] of the layer that gives a classifier's logits."""
    layer = next(each for each in ("classifier.out_proj", "classifier") if f"{each}.weight" in arrays)
    return f"{layer}.weight", f"{layer}.bias"


def _calibrated(arrays: Mapping[str, np.ndarray], task: Task) -> dict[str, np.ndarray]:
    """The arrays of a classifier whose logits are the calibrated ones."""
    assert task.calibration is not None
    scales, shifts = scales_and_shifts(task.calibration, task.labels.names)
    weight, bias = _last_layer(arrays)
    made = {weight: arrays[weight] * scales, bias: arrays[bias] * scales + shifts}
    return {**arrays, **{name: array.astype(np.float32) for name, array in made.items()}}


def _thresholds(task: Task, held: bool) -> tuple[float, ...] | None:
    """Those of the labels, for the probabilities that the written weights give; None if 0.5, or the largest, decides.

    `held`: the weights hold the calibration, which has no say in what nlpctl decides.
    """
    if not task.independent and len(set(task.thresholds or ())) < 2:  # equal ones: the label with the largest p / t
        return None
    given = np.array(task.thresholds or (task.recipe.decode.threshold,) * len(task.labels))
    if held:
        assert task.calibration is not None
        scales, shifts = scales_and_shifts(task.calibration, task.labels.names)
        if task.independent:
            given = sigmoid(log_odds(given) * scales + shifts)
        else:  # the label is the one with the largest p / t
            powers = given**scales
            given = powers / powers.sum() * given.sum()
    return tuple(given.tolist()) if task.thresholds is not None or np.any(given != 0.5) else None


# -- config and weights ----------------------------------------------------------------------------


def _config_values(network: Any) -> dict[str, Any]:
    """The config of the network, under PaddleNLP's keys."""
    config = network.config
    values = {**config.to_dict(), "model_type": config.model_type}
    values |= {key: getattr(config, key) for key in ("id2label", "label2id")}
    shape = read_shape(vars(config), "config.json")
    if shape is not None:  # all heads, and as many neurons in every layer
        values["intermediate_size"] = shape.neurons[0]
    values.pop(PRUNED, None)
    return values


def _with_one_logit(
    arrays: Mapping[str, np.ndarray], values: Mapping[str, Any]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The head with the difference of its two logits: its sigmoid is the softmax of both."""
    made = {name: arrays[name][..., 1:] - arrays[name][..., :1] for name in _last_layer(arrays)}
    return {**arrays, **made}, {**values, "id2label": {0: "LABEL_0"}, "label2id": {"LABEL_0": 0}}


def _compare(folder: Path, arrays: Mapping[str, np.ndarray], model_type: str, head: str, prefix: str) -> None:
    """RunFailed if nlpctl would read other weights than were to be written."""
    read = to_paddle(read_safetensors(folder / WEIGHTS_FILE), model_type, str(folder / WEIGHTS_FILE), head)
    read = with_prefix(read, prefix, arrays.keys())
    for name, array in read.items():
        if name not in arrays or not np.array_equal(arrays[name], array):
            message = f"{name} would be read otherwise than it is in the network"
            raise RunFailed(message, str(folder / WEIGHTS_FILE), "this is a bug in nlpctl: please report it")


# -- the tokenizer ---------------------------------------------------------------------------------


def write_tokenizer(folder: Path, tokenizer: Any, longest: int) -> None:
    """tokenizer.json, tokenizer_config.json and special_tokens_map.json for the tokenizers library.

    UserError: the tokenizer is of a kind that it does not have.
    """
    if not isinstance(tokenizer, LibraryTokenizer):
        kind = type(tokenizer).__name__
        why = "splits words by jieba" if kind.startswith("RoFormer") else "is PaddleNLP's alone"
        message = f"its tokenizer cannot be written as {FAST_TOKENIZER}: {kind} {why}"
        raise UserError(message, "@[layout]", _GRAPHS)
    tokenizer.save_pretrained(folder)
    settings = json_of(folder / "tokenizer_config.json")
    # BertTokenizer, XLMRobertaTokenizer and others of Transformers 5 make a normaliser of their own.
    settings["tokenizer_class"] = READ_THE_FILE
    special = {f"{name}_token": token for name, token in tokenizer.special_names.items()}
    settings |= special | {"model_max_length": longest, "truncation_side": tokenizer.truncation_side}
    settings["model_input_names"] = list(dict.fromkeys([*tokenizer.model_input_names, "attention_mask"]))
    write_json_atomic(folder / "tokenizer_config.json", settings)
    write_json_atomic(folder / SPECIALS, special)


# -- how sentence-transformers makes the vectors ---------------------------------------------------


def _write_modules(folder: Path, recipe: Recipe, width: int, layers: Mapping[str, np.ndarray]) -> None:
    """modules.json and what it names. The keys are those that sentence-transformers 2 to 6 read."""
    retrieval, names = recipe.retrieval, [("", "Transformer"), (POOLING, "Pooling")]
    (folder / POOLING).mkdir()
    pooling = {key: mode == retrieval.pooling for key, mode in OLD_POOLINGS.items() if mode in POOLINGS}
    write_json_atomic(folder / POOLING / "config.json", {"word_embedding_dimension": width, **pooling})
    if layers:
        (folder / DENSE).mkdir()
        weight, bias = layers["projection.weight"], layers["projection.bias"]
        dense: dict[str, Any] = {"in_features": weight.shape[0], "out_features": weight.shape[1], "bias": True}
        dense["activation_function"] = ACTIVATIONS[retrieval.activation]
        write_json_atomic(folder / DENSE / "config.json", dense)
        linear = {"linear.weight": np.ascontiguousarray(weight.T), "linear.bias": bias}
        save_file(linear, str(folder / DENSE / WEIGHTS_FILE), {"format": "pt"})
        names.append((DENSE, "Dense"))
    if retrieval.normalize:
        place = NORMALIZE if layers else f"2{NORMALIZE[1:]}"
        (folder / place).mkdir()
        names.append((place, "Normalize"))
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(names)
    ]
    write_text_atomic(folder / MODULES, json.dumps(modules, indent=2) + "\n")
    write_json_atomic(folder / LENGTH, {"max_seq_length": recipe.data.max_seq_length, "do_lower_case": False})
    settings = {"prompts": _prompts(recipe), "default_prompt_name": retrieval.default_prompt}
    settings |= {"similarity_fn_name": retrieval.similarity, "model_type": "SentenceTransformer"}
    write_json_atomic(folder / sentence_folder.SETTINGS, settings)


def _prompts(recipe: Recipe) -> dict[str, str]:
    """The prompts, with that of passages as `document`, the first name that encode_document asks for."""
    prompts = dict(recipe.retrieval.prompts)
    passage = next((prompts[name] for name in PASSAGE_PROMPTS if prompts.get(name)), None)
    return prompts if passage is None else {**prompts, PASSAGE_PROMPTS[0]: passage}


# -- the card --------------------------------------------------------------------------------------


def _card_facts(
    layout: str, model: TrainedModel, source: Path, name: str, thresholds: tuple[float, ...] | None, held: bool
) -> CardFacts:
    """`name`: of the written folder; `held`: its weights hold the calibration."""
    task = model.task
    room = task.recipe.data.max_seq_length - model.encoder.overhead(pair=False)
    try:
        facts = card_facts(source)
    except UserError:  # a model that nlpctl did not train tells nothing more
        facts = CardFacts(source.name, task.recipe, task.labels.names, of_a_run=(source / TASK).is_file())
    return dataclasses.replace(
        facts,
        thresholds=thresholds,
        library=TRANSFORMERS if layout == TRANSFORMERS else SENTENCES,
        use=usage(layout, task.recipe, name, room),
        left_out=tuple(_left_out(task, thresholds, held)),
        holds_calibration=held,
    )
