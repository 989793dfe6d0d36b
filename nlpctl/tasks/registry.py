"""The tasks by name, as a recipe writes them in `task:`. config/tasks.py lists the same names with their help."""

from __future__ import annotations

from nlpctl.config.schema import Recipe
from nlpctl.data.labels import LabelSet
from nlpctl.tasks.base import Task
from nlpctl.tasks.few_shot_classification import FewShotClassification
from nlpctl.tasks.lexical_analysis import LexicalAnalysis
from nlpctl.tasks.masked_language_model import MaskedLanguageModel
from nlpctl.tasks.multi_label_classification import MultiLabelClassification
from nlpctl.tasks.question_answering import QuestionAnswering
from nlpctl.tasks.semantic_indexing import SemanticIndexing
from nlpctl.tasks.sequence_classification import SequenceClassification
from nlpctl.tasks.text_matching import TextMatching
from nlpctl.tasks.token_classification import TokenClassification

_ALL: tuple[type[Task], ...] = (
    SequenceClassification,
    MultiLabelClassification,
    TextMatching,
    SemanticIndexing,
    QuestionAnswering,
    TokenClassification,
    LexicalAnalysis,
    MaskedLanguageModel,
    FewShotClassification,
)
TASKS: dict[str, type[Task]] = {task.name: task for task in _ALL}


def make_task(recipe: Recipe, labels: LabelSet, thresholds: tuple[float, ...] | None = None) -> Task:
    """The task that `recipe` names; the recipe's checks have made sure that it exists."""
    return TASKS[recipe.task](recipe, labels, thresholds)
