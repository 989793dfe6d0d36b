"""The range of every number in a recipe for which a value outside would fail late, or train nonsense."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """`low` <= value <= `high`; with `above`, `low` itself is outside, with `below`, `high`."""

    low: float
    high: float | None = None
    above: bool = False
    below: bool = False

    def __contains__(self, value: float) -> bool:
        fits = self.high is None or (value < self.high if self.below else value <= self.high)
        return fits and (value > self.low if self.above else value >= self.low)

    def __str__(self) -> str:
        if self.below:
            return f"must be at least {self.low:,} and below {self.high:,}"
        if self.high is not None:
            return f"must lie between {self.low:,} and {self.high:,}"
        return f"must be above {self.low:,}" if self.above else f"must be at least {self.low:,}"


COUNT = Range(1)
NOT_NEGATIVE = Range(0)
POSITIVE = Range(0, above=True)
SHARE = Range(0, 1)
MOMENT = Range(0, 1, below=True)

# More would need more memory, processes or threads than any machine has.
LAYERS, WIDTH, WIDEST, PIECES = Range(1, 1_000), Range(1, 65_536), Range(1, 1_048_576), Range(10, 10_000_000)
PROCESSES = Range(1, 256)
THREADS = Range(1, 1_024)
ACCUMULATED = Range(1, 1_000_000)

_FROM_SCRATCH: Mapping[str, Range] = {
    "model.from_scratch.vocab_size": PIECES,  # the special tokens and a few pieces
    "model.from_scratch.min_frequency": COUNT,
    "model.from_scratch.hidden_size": WIDTH,
    "model.from_scratch.num_hidden_layers": LAYERS,
    "model.from_scratch.num_attention_heads": WIDTH,
    "model.from_scratch.intermediate_size": WIDEST,
    "model.from_scratch.embedding_size": WIDTH,
    "model.from_scratch.kernel_sizes": COUNT,  # each of them
    "model.from_scratch.dropout": SHARE,
}

RANGES: Mapping[str, Range] = {
    **_FROM_SCRATCH,
    **{f"distillation.{dotted}": allowed for dotted, allowed in _FROM_SCRATCH.items()},
    "optimizer.layer_decay": Range(0, 1, above=True),
    "data.doc_stride": COUNT,
    "decode.threshold": SHARE,
    "decode.n_best": COUNT,
    "decode.max_answer_length": COUNT,
    "loss.focal_gamma": NOT_NEGATIVE,
    "loss.focal_alpha": SHARE,
    "loss.label_smoothing": SHARE,
    "masking.probability": Range(0, 1, above=True),
    "few_shot.pairs": COUNT,
    "few_shot.layers": COUNT,
    "retrieval.embedding_size": COUNT,
    "retrieval.scale": POSITIVE,
    "retrieval.margin": NOT_NEGATIVE,
    "data.max_seq_length": Range(4),  # [CLS] a [SEP] and one more
    "data.shuffle_buffer": COUNT,
    "data.batch_tokens": COUNT,
    "training.per_device_train_batch_size": COUNT,
    "training.per_device_eval_batch_size": COUNT,
    "training.gradient_accumulation_steps": ACCUMULATED,
    "training.learning_rate": POSITIVE,
    "training.num_train_epochs": POSITIVE,
    "training.max_steps": Range(-1),
    "training.weight_decay": NOT_NEGATIVE,
    "training.adam_beta1": MOMENT,
    "training.adam_beta2": MOMENT,
    "training.adam_epsilon": POSITIVE,
    "training.max_grad_norm": NOT_NEGATIVE,
    "training.warmup_ratio": SHARE,
    "training.warmup_steps": NOT_NEGATIVE,
    "training.lr_end": NOT_NEGATIVE,
    "training.logging_steps": COUNT,
    "training.save_steps": COUNT,
    "training.eval_steps": COUNT,
    "training.save_total_limit": COUNT,
    "training.dataloader_num_workers": Range(0, 256),
    "training.scale_loss": POSITIVE,
    "training.seed": Range(0, 2**32 - 1),  # what NumPy takes
    "early_stopping.patience": COUNT,
    "early_stopping.min_delta": NOT_NEGATIVE,
    "compression.moving_rate": SHARE,
    "compression.batch_num_list": COUNT,
    "compression.batch_size_list": COUNT,
    "compression.max_drop": NOT_NEGATIVE,
    "compression.sure": Range(0.5, 1),
    "compression.batch_sizes": COUNT,
    "distillation.num_hidden_layers": COUNT,
    "distillation.layers": NOT_NEGATIVE,  # each of them
    "distillation.width": Range(0, 1, above=True),
    "distillation.fit": NOT_NEGATIVE,
    "distillation.learning_rate": POSITIVE,
    "distillation.num_train_epochs": POSITIVE,
    "distillation.temperature": POSITIVE,
    "distillation.hard": SHARE,
    "distillation.hidden": NOT_NEGATIVE,
    "distillation.attention": NOT_NEGATIVE,
    "distillation.relations": NOT_NEGATIVE,
    "distillation.relation_heads": COUNT,
    "distillation.generate.copies": NOT_NEGATIVE,
    "distillation.generate.replace": SHARE,
    "distillation.generate.mask": SHARE,
    "distillation.generate.fragment": SHARE,
    "distillation.generate.cross": SHARE,
    "guards.loss_factor": Range(1, above=True),
    "search.trials": Range(1, 100_000),
    "guards.gradient_factor": Range(1, above=True),
    "inference.max_drop": NOT_NEGATIVE,
    "inference.min_agreement": SHARE,
    "inference.min_confidence": SHARE,
    "runtime.devices": NOT_NEGATIVE,  # each of them
    "runtime.nproc": PROCESSES,
    "runtime.threads": THREADS,
    "runtime.watchdog_minutes": Range(0, 525_600, above=True),  # a year; the system's clock ends somewhere
}
