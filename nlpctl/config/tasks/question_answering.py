"""Where in a text the answer to a question stands."""

from __future__ import annotations

from nlpctl.config.tasks.info import Start, TaskInfo
from nlpctl.config.tasks.starts import SCRATCH, TRANSFORMER

QUESTION_ANSWERING = TaskInfo(
    "question_answering",
    "The position of the answer to a question in a text, or that there is none.",
    ("em", "f1", "loss"),
    task="nlpctl.tasks.question_answering:QuestionAnswering",
    rows="nlpctl.data.rows.question_rows:QuestionRows",
    pipeline="question-answering",
    keys=(
        "data.columns.question",
        "data.columns.context",
        "data.columns.answers",
        "data.doc_stride",
        "decode.n_best",
        "decode.max_answer_length",
        "decode.null_threshold",
        "inference.min_confidence",
    ),
    formats=("squad",),
    labelled=False,
    window_frame=4,  # [CLS], two [SEP], and a question of one token; the task looks at the questions themselves
    pool="scores",
    soft_loss="nlpctl.compress.networks.soft_targets:span_loss",
    network_class="QuestionAnswering",
    starts=(
        Start("data.doc_stride", 128, "longer texts are read in windows that advance by so many tokens"),
        Start("training.metric_for_best_model", "f1"),
    ),
    from_scratch=(
        *TRANSFORMER,
        Start(
            f"{SCRATCH}hidden_size", 128, "reading needs an encoder pre-trained on the language: expect poor answers"
        ),
    ),
)
