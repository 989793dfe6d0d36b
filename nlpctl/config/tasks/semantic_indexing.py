"""Vectors by which texts find each other."""

from __future__ import annotations

from nlpctl.config.tasks.info import Start, TaskInfo
from nlpctl.config.tasks.starts import TRANSFORMER

SEMANTIC_INDEXING = TaskInfo(
    "semantic_indexing",
    "Vectors by which texts that belong together find each other.",
    ("recall@1", "recall@5", "recall@10", "recall@50", "mrr", "loss"),
    task="nlpctl.tasks.semantic_indexing:SemanticIndexing",
    rows="nlpctl.data.rows.retrieval_rows:RetrievalRows",
    pipeline="sentence-similarity",
    keys=("data.columns.label", "data.columns.text_pair", "data.columns.negative", "retrieval"),
    labelled=False,
    by_row=False,
    pairs=True,
    mistakes="do not rank the right text first",
    vectors=True,
    soft_loss="nlpctl.compress.networks.soft_targets:vector_loss",
    starts=(
        Start(
            "retrieval.pooling", "mean", "the vector of a text is the mean over its tokens; or cls, its first token's"
        ),
        Start("training.metric_for_best_model", "recall@10", "share of texts whose partner is among the first ten"),
    ),
    from_scratch=TRANSFORMER,
)
