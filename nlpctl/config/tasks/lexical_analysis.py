"""A text cut into words, by tagging characters."""

from __future__ import annotations

from nlpctl.config.tasks.info import ANNOTATED, TAGGED, TaskInfo
from nlpctl.config.tasks.starts import RECURRENT, WITH_CRF
from nlpctl.config.tasks.token_classification import TOKEN_CLASSIFICATION

LEXICAL_ANALYSIS = TaskInfo(
    "lexical_analysis",
    "A text split into words with their part of speech or entity type, by tagging characters.",
    ("f1", "precision", "recall", "macro_f1", "weighted_f1", "entity_f1", "accuracy", "loss"),
    task="nlpctl.tasks.lexical_analysis:LexicalAnalysis",
    rows="nlpctl.data.rows.tagged_rows:LexicalRows",
    pipeline="token-classification",
    keys=(*TOKEN_CLASSIFICATION.keys, "decode.replacements"),
    formats=(*TAGGED, *ANNOTATED),
    tags=True,
    pool="probabilities",
    distillable=True,
    soft_loss="nlpctl.compress.networks.soft_targets:tag_loss",
    starts=WITH_CRF,
    from_scratch=RECURRENT,
)
