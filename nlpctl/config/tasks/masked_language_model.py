"""Words of plain text are hidden and predicted."""

from __future__ import annotations

from nlpctl.config.tasks.info import TaskInfo
from nlpctl.config.tasks.starts import TRANSFORMER

MASKED_LANGUAGE_MODEL = TaskInfo(
    "masked_language_model",
    "Continues the pre-training of an encoder: words of plain text are hidden and predicted.",
    ("perplexity", "masked_accuracy", "loss"),
    task="nlpctl.tasks.masked_language_model:MaskedLanguageModel",
    rows="nlpctl.data.rows.corpus_rows:CorpusRows",
    pipeline="fill-mask",
    keys=("decode.n_best", "masking"),
    labelled=False,
    by_row=False,
    falling=("perplexity", "loss"),
    mistakes="have hidden tokens that were not predicted",
    augmentable=True,
    from_scratch=TRANSFORMER,
)
