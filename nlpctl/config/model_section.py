"""Where a recipe's network comes from, and what is changed in it before it is trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from nlpctl.config.declare import Scalar, key, mapping_key


@dataclass(frozen=True)
class ScratchSection:
    """A small network trained from nothing, with a vocabulary built from the training text or read from a file."""

    architecture: Literal[
        "bert", "ernie", "roberta", "electra", "bilstm", "textcnn", "bag_of_embeddings", "bigru"
    ] = key("ernie", "Network family: a transformer as PaddleNLP names it, or one of nlpctl's own networks.")
    vocab_size: int = key(8000, "Upper limit of the vocabulary built from the training text.")
    min_frequency: int = key(2, "Pieces seen less often than this do not enter the vocabulary.")
    lowercase: bool = key(True, "Lowercase (transformers: and strip accents) before splitting.")
    hidden_size: int = key(128, "Width of the hidden states (textcnn: filters per kernel size).")
    num_hidden_layers: int = key(2, "Number of transformer or recurrent layers.")
    num_attention_heads: int = key(2, "Attention heads per layer of a transformer; must divide hidden_size.")
    intermediate_size: int = key(512, "Width of a transformer's feed-forward layer.")
    unit: Literal["characters", "words"] = key(
        "characters", "What nlpctl's own networks read: characters, or words as jieba splits them."
    )
    embedding_size: int = key(128, "Width of the embedding of nlpctl's own networks.")
    kernel_sizes: tuple[int, ...] = key((2, 3, 4), "Widths of the kernels of textcnn, in units.")
    dropout: float = key(0.1, "Share of activations dropped while training.")
    vocabulary: str | None = key(
        None,
        "File of the vocabulary, an entry per line (or what paddlenlp.data.Vocab.to_json wrote), taken whole in place "
        "of one from the training text.",
    )
    dictionaries: str | None = key(
        None, "Folder with word.dic, tag.dic and q2b.dic, in place of a vocabulary from the training text (bigru)."
    )


@dataclass(frozen=True)
class ModelSection:
    """Where the network comes from: a name, a folder, or from_scratch."""

    name_or_path: str | None = key(
        None,
        "Hub name (ernie-3.0-medium-zh), PaddleNLP or Hugging Face folder, run directory or model folder; "
        "python:PACKAGE/PATH is a folder inside an installed package.",
    )
    from_scratch: ScratchSection | None = key(None, "Build a new encoder instead of loading one.")
    config: Mapping[str, Scalar] = mapping_key(
        "Overrides of the network's own config, such as hidden_dropout_prob: 0.1."
    )
    network: str | None = key(
        None,
        "Your own network class, package.module:Class(config), in place of the task's: a paddle.nn.Layer, or a class "
        "of PaddleNLP's PretrainedModel, which can start from weights. It runs with your rights: name only code you "
        "trust.",
    )
    head: Literal["linear", "crf"] = key("linear", "Output layer of a tagger: linear, or linear with a CRF over it.")
    embeddings: str | None = key(
        None, "Text file of word vectors (word v1 v2 ...) that the embedding of a network from scratch starts from."
    )
    add_tokens: tuple[str, ...] | str | None = key(
        None,
        "Words that the tokenizer is to keep whole: a list, or a file with one per line. The embedding (and a language "
        "model's output layer) grows by a row for each, which starts as the mean of the pieces that it was read as.",
    )
    tie: tuple[tuple[str, ...], ...] = key(
        (),
        "Pairs of parameters, or of layers, that are one from here on: [[ernie.encoder.layers.0, "
        "ernie.encoder.layers.1]]. Both have the values of the first.",
    )
    set_parameters: Mapping[str, Scalar] = mapping_key(
        "Parameter name or pattern to its starting value: a number, a .npy file of the same shape, or a distribution: "
        "normal(mean, std), truncated_normal(mean, std), uniform(low, high), constant(value), xavier_normal, "
        "xavier_uniform, kaiming_normal, kaiming_uniform. A draw depends on training.seed and the parameter's name."
    )
    freeze: tuple[str, ...] = key(
        (),
        "Parameters that training leaves as they are: names, layers (ernie.embeddings), ranges of layers "
        "(ernie.encoder.layers.0-5), or patterns (*.bias). `nlpctl params ls` lists the names.",
    )
