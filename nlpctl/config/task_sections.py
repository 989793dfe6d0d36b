"""The sections of a recipe that belong to single tasks; config/tasks says which task reads which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from nlpctl.config.declare import Scalar, key, mapping_key


@dataclass(frozen=True)
class DecodeSection:
    """Decoding a network's outputs to answers."""

    terms: str | None = key(
        None,
        "Tagging: file of TERM<TAB>TYPE lines; these terms always get these types. A header line can name more columns "
        "(term, type, id, link, alias), and JSON lines are read too; answers then carry id and link.",
    )
    replacements: bool = key(
        True,
        "Lexical analysis with a converted LAC: read characters that it never saw in training in a form that it knows "
        "(， as , and A as a). false: read every character as it stands, as jieba does.",
    )
    entity_types: tuple[str, ...] | None = key(
        None,
        "Tagging: the types that are entities, such as [PER, LOC, ORG]; default: all but parts of speech, which are "
        "known by their verb (v, VERB, VV, VB). Where all types are entities the answer holds entities, otherwise "
        "words; [] gives words. entity_f1 scores these types alone.",
    )
    tune: Literal["accuracy", "macro_f1", "weighted_f1", "f1"] | None = key(
        None,
        "Search decision thresholds on dev after training, for this score (f1: that of the second of two labels); "
        "they are stored with the model.",
    )
    threshold: float = key(
        0.5, "Multi-label: a label is predicted from this probability on, unless a threshold was tuned on dev."
    )
    n_best: int = key(5, "Question answering: number of candidates that predict writes. Masked words: the same.")
    max_answer_length: int = key(50, "Question answering: longest answer, in tokens.")
    null_threshold: float | None = key(
        None,
        "Question answering: predict no answer if its score exceeds the best answer's by more than this, such as 0.0 "
        "for SQuAD 2.0; null: every question gets an answer.",
    )


@dataclass(frozen=True)
class MaskingSection:
    """The masking of masked language model training."""

    probability: float = key(0.15, "Share of the text to predict.")
    whole_words: bool = key(True, "Hide all pieces of a word together; Chinese words are split by jieba.")
    dictionary: str | None = key(None, "File with one word per line that jieba must not split.")


@dataclass(frozen=True)
class PromptSection:
    """Few-shot classification: the task as a sentence with a mask."""

    template: str | None = key(None, "PaddleNLP template, such as \"{'text': 'text'} It was {'mask'}.\"")
    verbalizer: Mapping[str, Scalar] = mapping_key("The word for each label, such as pos: great.")


@dataclass(frozen=True)
class FewShotSection:
    """Few-shot classification: how a handful of examples teaches the encoder."""

    method: Literal["prompt", "contrastive", "auto"] = key(
        "prompt",
        "prompt: a language model fills the gap of prompt.template. contrastive: pairs of rows with equal and with "
        "different labels train a sentence encoder, and a logistic regression reads its vectors (Tunstall et al., "
        "2022). auto: prompt if there is a template and the weights hold a language-model head, else contrastive; "
        "train says which, and why.",
    )
    pairs: int = key(10, "contrastive: pairs per row and epoch with an equal label, and as many with another.")
    pooling: Literal["mean", "cls"] = key(
        "mean", "contrastive: the vector of a text, the mean over its tokens or its first token's."
    )
    layers: int = key(1, "contrastive: how many of the encoder's last layers the vector is the mean of.")


@dataclass(frozen=True)
class RetrievalSection:
    """Semantic indexing: how texts become vectors, and the loss over the negatives of a batch."""

    pooling: Literal["cls", "mean"] = key("mean", "The vector of a text: its first token's, or the mean over tokens.")
    embedding_size: int | None = key(None, "Project the vectors to this width; default: the encoder's own.")
    scale: float = key(20.0, "Factor on the cosines before the softmax.")
    margin: float = key(0.0, "Margin subtracted from the cosine of the true pair in training.")


@dataclass(frozen=True)
class LossSection:
    """The loss of a classifier with imbalanced or difficult labels."""

    class_weights: Literal["balanced"] | None = key(
        None, "balanced: weights are inversely proportional to the frequency of the labels."
    )
    weights: Mapping[str, Scalar] = mapping_key("Or the weight of each label, such as neg: 2.0; default: 1.")
    focal_gamma: float | None = key(None, "Focal loss: the exponent; 2.0 is usual. null: cross entropy.")
    focal_alpha: float | None = key(
        None, "Focal loss: weight of the second of two labels (multi-label: of a given label); the other has 1 - alpha."
    )
    label_smoothing: float = key(0.0, "Share of the target that is spread over all labels.")
