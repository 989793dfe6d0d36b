"""A folder of sentence-transformers: what its files say of how a text becomes a vector, as keys of a recipe.

    modules.json                      the parts, in order: Transformer, Pooling, then perhaps Dense and Normalize
    1_Pooling/config.json             which states of the tokens make the vector
    2_Dense/config.json, weights      a linear layer behind it, and what is applied to its output
    config_sentence_transformers.json what stands before texts (prompts), and how vectors are compared
    sentence_bert_config.json         the longest text in tokens; since version 6 tokenizer_config.json has it. In old
                                      folders its name has the network, such as sentence_roberta_config.json

The names are those of sentence-transformers 2 to 6. What a folder says beyond this is refused; its classes are never
imported. Imports neither Paddle nor NumPy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nlpctl.errors import UserError
from nlpctl.files import json_of, read_json
from nlpctl.layout import is_inside

MODULES = "modules.json"
SETTINGS = "config_sentence_transformers.json"
_NETWORKS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
LENGTHS = tuple(f"sentence_{network}_config.json" for network in _NETWORKS)  # the first that is there is read
LENGTH = LENGTHS[0]
POOLING, DENSE, NORMALIZE = "1_Pooling", "2_Dense", "3_Normalize"  # as sentence-transformers calls the folders

POOLINGS = ("cls", "mean", "max", "weightedmean")  # of those that sentence-transformers knows
ACTIVATIONS: Mapping[str, str] = {
    "none": "torch.nn.modules.linear.Identity",
    "tanh": "torch.nn.modules.activation.Tanh",
    "relu": "torch.nn.modules.activation.ReLU",
    "gelu": "torch.nn.modules.activation.GELU",
}
QUERY_PROMPT, PASSAGE_PROMPTS = "query", ("document", "passage", "corpus")  # encode_query and encode_document look so

_LIBRARY = "sentence_transformers."
OLD_POOLINGS: Mapping[str, str] = {  # before version 6: a key for each
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_DENSE_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_COPY = "copy the whole folder again from where the model came from"
_OTHER = "take another encoder, or its network alone: a copy of the folder without modules.json and 1_Pooling"


@dataclass(frozen=True)
class Dense:
    """The linear layer over the pooled vector. `weights`: its file, with linear.weight [outputs, inputs]."""

    weights: Path
    inputs: int
    outputs: int
    bias: bool
    activation: str  # of ACTIVATIONS


@dataclass(frozen=True)
class SentenceFolder:
    """How a folder makes vectors. `prompts`: name to text; empty where none has a text.

    `similarity`: "cosine" or "dot". `normalize`: whether its vectors have unit length.
    """

    pooling: str
    dense: Dense | None
    normalize: bool
    similarity: str
    prompts: Mapping[str, str]
    default_prompt: str | None

    def retrieval(self) -> dict[str, Any]:
        """The section `retrieval` of a recipe that makes the same vectors."""
        dense = self.dense
        return {
            "pooling": self.pooling,
            "embedding_size": None if dense is None else dense.outputs,
            "activation": "none" if dense is None else dense.activation,
            "normalize": self.normalize,
            "similarity": self.similarity,
            "prompts": dict(self.prompts),
            "default_prompt": self.default_prompt,
        }


def is_sentence_folder(folder: Path) -> bool:
    """Whether sentence-transformers saved it as a model that makes vectors."""
    return (folder / MODULES).is_file() or (folder / POOLING / "config.json").is_file()


def length_file(folder: Path) -> Path | None:
    """The file that sentence-transformers wrote about the texts of its network; None if there is none."""
    return next((folder / name for name in LENGTHS if (folder / name).is_file()), None)


def reads_lower_case(folder: Path) -> bool:
    """Whether texts are lower-cased before the tokenizer of `folder` reads them."""
    length = length_file(folder)
    return length is not None and read_json(length).get("do_lower_case") is True


def read_sentence_folder(folder: Path) -> SentenceFolder | None:
    """How `folder` makes vectors; None for any other folder, and for a CrossEncoder, which makes none.

    UserError: a file is missing or damaged, or it does what nlpctl cannot, with the file, the key and what to do.
    """
    parts = _parts(folder)
    settings = read_json(folder / SETTINGS) if (folder / SETTINGS).is_file() else {}
    if not parts:
        return None
    kind = settings.get("model_type")
    if kind not in (None, "SentenceTransformer"):
        message = f"model_type: with Pooling this is a {str(kind)[:40]}, and nlpctl has the SentenceTransformer only"
        raise UserError(message, str(folder / SETTINGS), _OTHER)
    length = length_file(folder)
    of_texts = {} if length is None else read_json(length)
    _refuse_other_reading(of_texts, length, _STATES)
    pooling, rest = parts[0], parts[1:]
    width = _width(folder)
    mode = _pooling(pooling[1] / "config.json", width)
    dense = _dense(rest[0][1], width) if rest and rest[0][0] == "Dense" else None
    normalize = any(kind == "Normalize" and _of_vectors(part / "config.json") for kind, part in rest)
    prompts, default = _prompts(settings, folder / SETTINGS)
    similarity = _similarity(settings, normalize, folder / SETTINGS)
    return SentenceFolder(mode, dense, normalize, similarity, prompts, default)


def refuse_without_pooling(folder: Path) -> None:
    """UserError for a folder of sentence-transformers whose network is all of it, for whoever wants its vectors
    without saying how: they may be anything."""
    file = folder / SETTINGS
    if not (folder / MODULES).is_file() or _parts(folder) or not file.is_file():
        return
    if read_json(file).get("model_type") == "SentenceTransformer":
        message = "its modules are Transformer alone; without Pooling nlpctl does not know what its vectors are"
        hint = f"say how they are made: @[retrieval.pooling={POOLINGS[0]}], or {', '.join(POOLINGS[1:])}"
        raise UserError(message, str(folder / MODULES), hint)


def read_cross_encoder(folder: Path, config: Mapping[str, Any]) -> str | None:
    """What a CrossEncoder makes of its logits, as the last name of a class of PyTorch, such as Sigmoid; None for any
    other folder, "" where it does not say. `config`: of its network.

    UserError: it reads pairs as nlpctl does not.
    """
    file = folder / SETTINGS
    settings, old = read_json(file) if file.is_file() else {}, config.get("sentence_transformers")
    if settings.get("model_type") == "CrossEncoder":
        told = settings.get("activation_fn")
        prompts, default = _prompts(settings, file)
        if default is not None and prompts.get(default):
            message = f"default_prompt_name: it scores pairs behind the prompt {prompts[default][:40]!r}"
            hint = "set it to null, and put the prompt before the first text of each row"
            raise UserError(f"{message}, which nlpctl does not put there", str(file), hint)
        length = length_file(folder)
        _refuse_other_reading({} if length is None else read_json(length), length, _LOGITS)
    elif isinstance(old, dict) and "activation_fn" in old:  # version 4 and 5
        told = old["activation_fn"]
    elif "sbert_ce_default_activation_function" in config:
        told = config["sbert_ce_default_activation_function"]
    else:
        return None
    return told.rpartition(".")[2] if isinstance(told, str) else ""


# Of its network: how it is opened, what is called, what of its outputs is taken, and what the next module knows it by.
_STATES = ("feature-extraction", "forward", "last_hidden_state", "token_embeddings")
_LOGITS = ("sequence-classification", "forward", "logits", "scores")


def _refuse_other_reading(content: Mapping[str, Any], file: Path | None, usual: tuple[str, str, str, str]) -> None:
    """UserError if the module Transformer takes something else of the network, or reads texts otherwise, by the keys
    that version 6 writes into `file`."""
    text = content.get("modality_config") or {}
    text = text.get("text", {}) if isinstance(text, dict) else text
    told: dict[str, Any] = {"transformer_task": content.get("transformer_task")}
    told["modality_config"] = text.get("method") if isinstance(text, dict) else text
    output = text.get("method_output_name") if isinstance(text, dict) else None
    told["modality_config.text.method_output_name"] = output
    told["module_output_name"] = content.get("module_output_name")
    for (key, value), only in zip(told.items(), usual, strict=True):
        if value not in (None, only):
            message = f"{key}: {json.dumps(value)[:60]}, and nlpctl has {only} only"
            raise UserError(message, str(file), _OTHER)
    ways = content.get("processing_kwargs")
    if isinstance(ways, dict):  # those of images and of conversations are for no text
        ways = {key: ways[key] for key in ("text", "common") if ways.get(key)}
    for key, value in {"processing_kwargs": ways, **{key: content.get(key) for key in _LATE_INTERACTION}}.items():
        if value:
            message = f"{key}: {json.dumps(value)[:60]}: it reads texts so, and nlpctl does not"
            raise UserError(message, str(file), "remove the key if your use allows it")


_LATE_INTERACTION = ("query_length", "document_length", "query_expansion")


def _of_vectors(file: Path) -> bool:
    """True for a Normalize of pooled vectors. UserError: it is of something else."""
    config = read_json(file) if file.is_file() else {}
    for key in ("module_input_name", "module_output_name"):
        if config.get(key) not in (None, _POOLED):
            message = f"{key}: {json.dumps(config[key])[:60]}, and nlpctl normalises {_POOLED} only"
            raise UserError(message, str(file), _OTHER)
    return True


_POOLED = "sentence_embedding"


def _parts(folder: Path) -> list[tuple[str, Path]]:
    """The parts behind the network, from Pooling on: the name of the class and the folder of each."""
    file = folder / MODULES
    if not file.is_file():
        return [("Pooling", folder / POOLING)] if (folder / POOLING / "config.json").is_file() else []
    try:
        modules = json_of(file)
    except (OSError, ValueError) as error:
        raise UserError(f"is not valid JSON ({error})", str(file), _COPY) from None
    if not isinstance(modules, list) or not all(isinstance(each, dict) for each in modules):
        raise UserError("must hold a list of modules", str(file), _COPY)
    parts = [(_class_of(each, file), _folder_of(each, folder, file)) for each in modules]
    names = [name for name, _ in parts]
    if names[:1] != ["Transformer"] or parts[0][1] != folder:
        first = "nothing" if not names else names[0] if names[0] != "Transformer" else modules[0]["path"]
        hint = "save it again with sentence-transformers 2 or later, which writes the network into the folder itself"
        raise UserError(f"begins with {first}, where the Transformer must be, with the path ''", str(file), hint)
    if names not in _ORDERS:
        message = f"its modules are {', '.join(names)}; nlpctl has Transformer, Pooling, then Dense, then Normalize"
        raise UserError(message, str(file), _OTHER)
    return parts[1:]


_ORDERS = (
    ["Transformer"],
    *(["Transformer", "Pooling", *rest] for rest in ([], ["Dense"], ["Normalize"], ["Dense", "Normalize"])),
)


def _class_of(module: Mapping[str, Any], file: Path) -> str:
    """The name of the class, such as Pooling. UserError: it is not one of the library, or nlpctl does not have it."""
    name = module.get("type")
    if not isinstance(name, str) or not name.startswith(_LIBRARY):
        message = f"type: {json.dumps(name)[:80]} is code of the model's author, which nlpctl never runs"
        raise UserError(message, str(file), _OTHER)
    kind = name.rpartition(".")[2]
    if kind not in ("Transformer", "Pooling", "Dense", "Normalize"):
        message = f"type: {name[:120]} is a part that nlpctl does not have"
        raise UserError(message, str(file), _OTHER)
    return kind


def _folder_of(module: Mapping[str, Any], folder: Path, file: Path) -> Path:
    """Where the files of a module are. UserError: outside of the folder, or nowhere."""
    path = module.get("path")
    if not isinstance(path, str) or (path and Path(path).name != path) or not is_inside(path, folder):
        message = f"path: {json.dumps(path)[:80]} is not a folder in this one"
        raise UserError(message, str(file), _COPY)
    needed = path and not str(module["type"]).endswith("Normalize")  # which had no files before version 6
    if needed and not (folder / path / "config.json").is_file():
        raise UserError(f"{path}/config.json is missing", str(file), _COPY)
    return folder / path


def _width(folder: Path) -> int | None:
    """The width of the network's states; None if config.json does not say it plainly."""
    file = folder / "config.json"
    config = read_json(file) if file.is_file() else {}
    width = config.get("hidden_size", config.get("dim"))  # as DistilBERT calls it
    return width if type(width) is int else None


def _pooling(file: Path, width: int | None) -> str:
    config = read_json(file)
    told = config.get("pooling_mode")
    if told is None:
        told = [mode for key, mode in OLD_POOLINGS.items() if config.get(key) is True] or "mean"
    modes = [told] if isinstance(told, str) else told
    if not isinstance(modes, list) or len(modes) != 1 or modes[0] not in POOLINGS:
        names = " and ".join(map(str, modes)) if isinstance(modes, list) else json.dumps(modes)
        message = f"pooling_mode: this encoder pools by {names[:80]}, and nlpctl by {', '.join(POOLINGS)}"
        raise UserError(message, str(file), _OTHER)
    if config.get("include_prompt", True) is not True:
        told = json.dumps(config["include_prompt"])[:40]
        message = f"include_prompt: {told}: its vectors leave out the tokens of the prompt, which nlpctl's do not"
        raise UserError(message, str(file), _OTHER)
    size = config.get("embedding_dimension", config.get("word_embedding_dimension"))
    if size is not None and width is not None and size != width:
        message = f"pools states of width {size}, and those of the network have {width} (config.json)"
        raise UserError(message, str(file), _COPY)
    return str(modes[0])


def _dense(folder: Path, width: int | None) -> Dense:
    file = folder / "config.json"
    config = read_json(file)
    inputs, outputs = config.get("in_features"), config.get("out_features")
    if type(inputs) is not int or type(outputs) is not int or min(inputs, outputs) < 1:
        raise UserError("in_features and out_features must be whole numbers above 0", str(file), _COPY)
    if width is not None and inputs != width:
        message = f"in_features: {inputs}, but the pooled vector has the width {width} (config.json)"
        raise UserError(message, str(file), _COPY)
    weights = next((folder / name for name in _DENSE_WEIGHTS if (folder / name).is_file()), None)
    if weights is None:
        raise UserError(f"no weights in this folder: {' or '.join(_DENSE_WEIGHTS)}", str(folder), _COPY)
    if inputs * outputs > weights.stat().st_size:  # before a network of such a size is built
        size = f"{weights.stat().st_size:,} bytes"
        message = f"{inputs} x {outputs} numbers cannot be in {weights.name}, which has {size}"
        raise UserError(message, str(file), _COPY)
    by_class = {name: ours for ours, name in ACTIVATIONS.items()}
    activation = config.get("activation_function", ACTIVATIONS["tanh"])
    if not isinstance(activation, str) or activation not in by_class:
        message = f"activation_function: {json.dumps(activation)[:80]} is none of {', '.join(by_class)}"
        raise UserError(message, str(file), _OTHER)
    names = [config.get(key) for key in ("module_input_name", "module_output_name")]
    if config.get("use_residual") or any(name not in (None, _POOLED) for name in names):
        message = "use_residual, module_input_name, module_output_name: nlpctl's linear layer reads the pooled vector"
        message += ", and nothing else, and gives the vector of the text"
        raise UserError(message, str(file), _OTHER)
    return Dense(weights, inputs, outputs, config.get("bias", True) is not False, by_class[activation])


def _similarity(settings: Mapping[str, Any], normalize: bool, file: Path) -> str:
    name = settings.get("similarity_fn_name") or "cosine"
    if settings.get("truncate_dim") is not None:
        message = f"truncate_dim: its vectors are cut to {settings['truncate_dim']} numbers, which nlpctl does not do"
        raise UserError(message, str(file), "remove the key: the vectors keep their whole width")
    if name in ("cosine", "dot"):
        return str(name)
    if name == "euclidean" and normalize:
        return "cosine"  # the nearest of unit vectors are the same
    hint = "set it to cosine or dot if your use allows it"
    raise UserError(f"similarity_fn_name: {json.dumps(name)[:40]} is neither cosine nor dot", str(file), hint)


def _prompts(settings: Mapping[str, Any], file: Path) -> tuple[dict[str, str], str | None]:
    prompts, default = settings.get("prompts") or {}, settings.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise UserError("prompts: must hold names with a text each", str(file), _COPY)
    if default is not None and not (isinstance(default, str) and default in prompts):
        message = f"default_prompt_name: there is no prompt {json.dumps(default)[:40]}"
        raise UserError(message, str(file), f"one of {', '.join(prompts) or '(none)'}, or null")
    if not any(prompts.values()):
        return {}, None
    return {str(name): text or "" for name, text in prompts.items()}, default
