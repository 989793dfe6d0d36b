"""A tag for every word."""

from __future__ import annotations

from nlpctl.config.tasks.info import ANNOTATED, TAGGED, TaskInfo
from nlpctl.config.tasks.starts import RECURRENT, WITH_CRF

TOKEN_CLASSIFICATION = TaskInfo(
    "token_classification",
    "Entities in a text: a tag for every word (BIO, BIOES, BMES, BILOU).",
    ("f1", "precision", "recall", "macro_f1", "weighted_f1", "accuracy", "loss"),
    task="nlpctl.tasks.token_classification:TokenClassification",
    rows="nlpctl.data.rows.tagged_rows:TaggedRows",
    pipeline="token-classification",
    keys=(
        "model.head",
        "data.columns.tokens",
        "data.columns.tags",
        "data.tag_map",
        "data.doc_stride",
        "data.unit",
        "decode.terms",
        "decode.entity_types",
        "inference.min_confidence",
    ),
    formats=(*TAGGED, *ANNOTATED),
    tags=True,
    pool="probabilities",
    distillable=True,
    soft_loss="nlpctl.compress.networks.soft_targets:tag_loss",
    network_class="TokenClassification",
    starts=WITH_CRF,
    from_scratch=RECURRENT,
)
