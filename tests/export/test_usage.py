"""The Python of model cards; scripts/check_transformers.py runs it with the libraries that it is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from nlpctl.api import overrides_of
from nlpctl.config.load import load_recipe
from nlpctl.export.layouts.usage import usage
from nlpctl.export.layouts.weights import CROSS_ENCODER, SENTENCES, TRANSFORMERS

PROMPTS = {"query": "query: ", "passage": "passage: "}
READER = "question_answering"


@pytest.mark.parametrize(
    ("layout", "task", "keys", "told"),
    [
        (TRANSFORMERS, "sequence_classification", {}, 'pipeline("text-classification", "a \\" b", truncation=True)'),
        (TRANSFORMERS, "multi_label_classification", {}, "truncation=True, top_k=None)"),
        (TRANSFORMERS, "text_matching", {"data.columns.text_pair": "b"}, 'model([{"text": "...", "text_pair": '),
        (TRANSFORMERS, "token_classification", {"data.doc_stride": 8}, 'aggregation_strategy="first", stride=22)'),
        (TRANSFORMERS, "token_classification", {"data.doc_stride": 64}, "stride=0)"),
        (TRANSFORMERS, "masked_language_model", {}, 'tokenizer_kwargs={"truncation": True})'),
        (TRANSFORMERS, READER, {"data.doc_stride": 8}, "stride=max(0, free - 8)"),
        (TRANSFORMERS, READER, {"data.doc_stride": 8, "decode.max_answer_length": 7}, ".tril(6)  # at most 7 tokens"),
        (TRANSFORMERS, READER, {"data.doc_stride": 8, "decode.null_threshold": -1.5}, ".min()) - score > -1.5:"),
        (SENTENCES, "semantic_indexing", {}, 'vectors = model.encode(["..."])'),
        (SENTENCES, "semantic_indexing", {"retrieval.prompts": PROMPTS}, 'model.encode_document(["..."])'),
        (SENTENCES, "semantic_indexing", {"retrieval.prompts": {"query": "", "other": "x"}}, "vectors = model.encode("),
        (CROSS_ENCODER, "text_matching", {"data.columns.text_pair": "b"}, 'model.predict([["...", "..."]])'),
    ],
)
def test_the_code_answers_as_nlpctl_does(tmp_path: Path, layout: str, task: str, keys: dict, told: str):
    (tmp_path / "train.tsv").write_text("a\tb\nx\ty\n")
    (tmp_path / "recipe.yaml").write_text(f"task: {task}\nmodel: {{name_or_path: x}}\ndata: {{train: train.tsv}}\n")
    recipe = load_recipe(tmp_path / "recipe.yaml", overrides_of({"data.max_seq_length": 32, **keys}, {}), "apply")
    code = usage(layout, recipe, 'a " b', room=30)
    compile(code, "card", "exec")
    assert told in code and "question-answering" not in code
    assert ("null" in str(keys)) == ("return None\n    return {" in code)
