"""Which kind of rows each task reads."""

from __future__ import annotations

from collections.abc import Mapping

from nlpctl.config.schema import DataSection
from nlpctl.data.corpus_rows import CorpusRows
from nlpctl.data.lexical_rows import LexicalRows
from nlpctl.data.matching_rows import MatchingRows
from nlpctl.data.multi_label_rows import MultiLabelRows
from nlpctl.data.question_rows import QuestionRows
from nlpctl.data.retrieval_rows import RetrievalRows
from nlpctl.data.tagged_rows import TaggedRows
from nlpctl.data.task_rows import TaskRows
from nlpctl.data.text_rows import TextRows

KINDS: Mapping[str, type[TaskRows]] = {
    "sequence_classification": TextRows,
    "multi_label_classification": MultiLabelRows,
    "text_matching": MatchingRows,
    "semantic_indexing": RetrievalRows,
    "question_answering": QuestionRows,
    "token_classification": TaggedRows,
    "lexical_analysis": LexicalRows,
    "masked_language_model": CorpusRows,
    "few_shot_classification": TextRows,
}


def task_rows(task: str, data: DataSection) -> TaskRows:
    """How the task called `task` reads its rows; the recipe's checks have made sure that it exists."""
    return KINDS[task](data)
