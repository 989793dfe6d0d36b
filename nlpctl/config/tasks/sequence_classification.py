"""One label per text, or per pair of texts."""

from __future__ import annotations

from nlpctl.config.tasks.info import ANNOTATED, TaskInfo
from nlpctl.config.tasks.starts import CONVOLUTION

SEQUENCE_CLASSIFICATION = TaskInfo(
    "sequence_classification",
    "One label per text, or per pair of texts.",
    ("accuracy", "macro_f1", "micro_f1", "weighted_f1", "loss"),
    task="nlpctl.tasks.sequence_classification:SequenceClassification",
    rows="nlpctl.data.rows.text_rows:TextRows",
    pipeline="text-classification",
    keys=(
        "data.columns.label", "data.columns.text_pair", "data.balance", "decode.tune", "loss",
        "inference.min_confidence",
    ),
    formats=ANNOTATED,
    explainable=True,
    augmentable=True,
    pool="probabilities",
    distillable=True,
    soft_loss="nlpctl.compress.networks.soft_targets:label_loss",
    network_class="SequenceClassification",
    from_scratch=CONVOLUTION,
)
