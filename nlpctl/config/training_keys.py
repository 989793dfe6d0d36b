"""The keys of section training that are nlpctl's own: parts that PaddleNLP's Trainer takes as arguments, and speed."""

from __future__ import annotations

from dataclasses import dataclass

from nlpctl.config.declare import key

_TRUST = "Named as package.module:function; runs with your rights: name only code you trust."


@dataclass(frozen=True)
class TrainingKeys:
    """Parts of one's own (docs/own-parts.md), named and called as in PaddleNLP's Trainer; and how it computes."""

    criterion: str | None = key(
        None,
        "Your own loss, function(outputs, labels) -> scalar, or a class of layers such as paddle.nn:CrossEntropyLoss. "
        + _TRUST,
    )
    compute_metrics: str | None = key(
        None,
        "Your own scores on dev, function(eval_prediction) -> dict of numbers; eval_prediction holds predictions and "
        "label_ids. metric_for_best_model may name one of them. " + _TRUST,
    )
    preprocess_logits_for_metrics: str | None = key(
        None,
        "What compute_metrics is to get of the outputs, function(logits, labels) -> tensor, such as their argmax, "
        "which takes less memory. " + _TRUST,
    )
    callbacks: tuple[str, ...] = key(
        (), "Your own callbacks, classes of paddlenlp.trainer.TrainerCallback or functions that return one. " + _TRUST
    )
    optimizer: str | None = key(
        None,
        "Your own optimizer, function(model, args) -> paddle.optimizer.Optimizer, in place of AdamW. Its learning rate "
        "follows the schedule unless it has one of its own. " + _TRUST,
    )
    scheduler: str | None = key(
        None,
        "Your own schedule, function(args, num_training_steps) -> paddle.optimizer.lr.LRScheduler, in place of "
        "lr_scheduler_type. " + _TRUST,
    )
    data_collator: str | None = key(
        None,
        "Your own maker of training batches, function(tokenizer) -> function(features) -> dict of arrays, or a class "
        "such as paddlenlp.data:DataCollatorWithPadding. " + _TRUST,
    )
    calibrate: bool = key(
        True,
        "After training, fit the probabilities in answers to dev, so that of those at 0.9 some 90 % are right "
        "(docs/decisions.md). Decisions and scores stay the same.",
    )
    fast_cpu: bool = key(
        True,
        "On a CPU, compute attention, GELU, softmax, LayerNorm, biases and dropout by faster functions (oneDNN's; "
        "docs/training.md). false: by Paddle's own, which draw other dropout masks from the same seed.",
    )
