"""The section `distillation`: the student, its losses against the teacher, and its texts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from nlpctl.config.declare import key
from nlpctl.config.model_section import ModelSection


@dataclass(frozen=True)
class GeneratedSection:
    """Texts generated from the training texts and labelled by the teacher (Tang et al., 2019; Jiao et al., 2020)."""

    copies: int = key(0, "New texts per training text, at most, without duplicates.")
    replace: float = key(
        0.2, "Share of a text's words that are replaced: by one with a similar vector in the teacher, or by one that "
        "occurs elsewhere between the same neighbours."
    )
    mask: float = key(0.05, "Share of words replaced by the mask token, or deleted if the student has none.")
    fragment: float = key(0.25, "Share of the texts of which only one to five words in a row are kept.")
    cross: float = key(0.25, "Share of texts that continue like another text, from a word that both contain.")


@dataclass(frozen=True)
class DistillationSection:
    """The strategy distill: a small student learns the trained model's answers to many texts."""

    student: str | None = key(
        None,
        "Recipe of the student: its model, training, optimizer, early_stopping and data.max_seq_length are used; the "
        "rest is the teacher's.",
    )
    model: ModelSection = field(
        default_factory=ModelSection,
        metadata={"help": "Or its network, as in section model. Default: layers of the teacher."},
    )
    num_hidden_layers: int | None = key(
        None, "Student of the teacher's kind: number of its layers, evenly spread; default: half of them."
    )
    layers: tuple[int, ...] = key((), "Or the layers, counted from 0: [1, 3, 5].")
    width: float = key(
        1.0, "Share of each layer's attention heads and neurons that is kept, the most important ones."
    )
    fit: int = key(
        2048,
        "Training rows on which its layers are first fitted by least squares to the outputs of the teacher's layers "
        "that each replaces; 0: no fitting.",
    )
    learning_rate: float | None = key(None, "Learning rate of the student; default: training.learning_rate.")
    num_train_epochs: float | None = key(None, "Epochs of the student; default: training.num_train_epochs.")
    loss: Literal["mse", "kl"] = key(
        "mse", "Loss between logits: mean squared error (Tang et al., 2019), or KL divergence (Hinton et al., 2015)."
    )
    temperature: float = key(1.0, "kl: temperature, which divides the logits of both.")
    hard: float = key(0.0, "Share of the task's own loss; the rest is the loss between the logits.")
    hidden: float = key(
        0.0, "Weight of the squared error of hidden states, embeddings included (TinyBERT, equations 8 and 9)."
    )
    attention: float = key(0.0, "Weight of the squared error of attention scores (TinyBERT, equation 7).")
    relations: float = key(
        0.0, "Weight of the divergence of relations between queries, keys and values (MiniLMv2, equation 5)."
    )
    relation_heads: int | None = key(None, "Number of heads for relations, in both networks; default: the teacher's.")
    embeddings: bool = key(
        True, "Student over words or characters: initialise its embedding from the teacher's, by principal components."
    )
    unlabelled: tuple[str, ...] = key((), "Files of further texts, one per line, or in the format of their ending.")
    generate: GeneratedSection = field(
        default_factory=GeneratedSection, metadata={"help": "Further texts, generated from the training texts."}
    )
