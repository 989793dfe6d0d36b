"""Vectors by which texts find each other."""

from __future__ import annotations

from nlpctl.config.tasks.info import TaskInfo

SEMANTIC_INDEXING = TaskInfo(
    "semantic_indexing",
    "Vectors by which texts that belong together find each other.",
    ("recall@1", "recall@5", "recall@10", "recall@50", "mrr", "loss"),
    task="nlpctl.tasks.semantic_indexing:SemanticIndexing",
    rows="nlpctl.data.retrieval_rows:RetrievalRows",
    keys=("data.columns.label", "data.columns.text_pair", "data.columns.negative", "retrieval"),
    labelled=False,
    pairs=True,
    mistakes="do not rank the right text first",
    vectors=True,
    soft_loss="nlpctl.compression.networks.soft_targets:vector_loss",
)
