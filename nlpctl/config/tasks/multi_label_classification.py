"""Any number of labels per text."""

from __future__ import annotations

from nlpctl.config.tasks.info import ANNOTATED, Start, TaskInfo
from nlpctl.config.tasks.starts import CONVOLUTION

MULTI_LABEL_CLASSIFICATION = TaskInfo(
    "multi_label_classification",
    "Any number of labels per text, flat or hierarchical (food##fruit).",
    ("micro_f1", "macro_f1", "weighted_f1", "exact_match", "loss"),
    task="nlpctl.tasks.multi_label_classification:MultiLabelClassification",
    rows="nlpctl.data.rows.multi_label_rows:MultiLabelRows",
    pipeline="text-classification",
    keys=(
        "data.columns.label", "data.columns.text_pair", "data.label_separator", "decode.threshold", "loss",
        "inference.min_confidence",
    ),
    formats=ANNOTATED,
    explainable=True,
    augmentable=True,
    pool="odds",
    distillable=True,
    soft_loss="nlpctl.compress.networks.soft_targets:many_label_loss",
    network_class="SequenceClassification",
    problem_type="multi_label_classification",
    starts=(Start("training.metric_for_best_model", "micro_f1"),),
    from_scratch=CONVOLUTION,
)
