"""Whether two texts match."""

from __future__ import annotations

from nlpctl.config.tasks.info import ANNOTATED, TaskInfo
from nlpctl.config.tasks.starts import TRANSFORMER

TEXT_MATCHING = TaskInfo(
    "text_matching",
    "Whether two texts match, and how likely it is.",
    ("accuracy", "f1", "auc", "macro_f1", "loss"),
    task="nlpctl.tasks.text_matching:TextMatching",
    rows="nlpctl.data.rows.matching_rows:MatchingRows",
    pipeline="text-classification",
    keys=(
        "data.columns.label", "data.columns.text_pair", "data.balance", "decode.tune", "loss",
        "inference.min_confidence",
    ),
    formats=ANNOTATED,
    pairs=True,
    explainable=True,
    augmentable=True,
    pool="probabilities",
    distillable=True,
    soft_loss="nlpctl.compress.networks.soft_targets:label_loss",
    from_scratch=TRANSFORMER,
)
