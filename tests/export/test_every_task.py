"""Every task: its graphs answer as its network, through the same commands."""

from __future__ import annotations

import dataclasses
import json

import pytest

from nlpctl.config.schema import InferenceSection
from nlpctl.config.tasks import KNOWN_TASKS
from nlpctl.data.open_split import open_split
from nlpctl.data.rows.examples import ExampleReader
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.export.export import export
from nlpctl.export.request import ExportRequest
from nlpctl.inference.open_model import open_trained_model
from nlpctl.models.find import find_trained_model
from nlpctl.runtime.process import set_up_process

CASES = [
    *((info.name, "ernie", "linear") for info in KNOWN_TASKS),
    ("token_classification", "roberta", "crf"),  # without token types, with a second output
    ("masked_language_model", "electra", "linear"),  # whose encoder returns no tuple
    ("sequence_classification", "bilstm", "linear"),
    ("lexical_analysis", "bigru", "crf"),
    ("sequence_classification", "textcnn", "linear"),
]
# A head of each shape and a network of each make; the others differ from them by names.
OFTEN = {"sequence_classification", "question_answering", "semantic_indexing", "crf", "electra"}
CASES = [each if OFTEN & set(each) else pytest.param(*each, marks=pytest.mark.slow) for each in CASES]


def answers(recipe, source, engine):
    recipe = dataclasses.replace(recipe, inference=InferenceSection(engine=engine, precision="fp32"))
    model = open_trained_model(recipe, set_up_process(recipe), source, 8)
    assert model.predictor.engine == engine
    from nlpctl.engines.pipeline import prediction_pipeline

    rows = task_rows(recipe.task, recipe.data)
    reader = ExampleReader(rows, None)
    examples = [reader.read(row) for row in open_split(rows, "dev", labelled=False)]
    if recipe.task == "masked_language_model":
        examples = [dataclasses.replace(each, text=f"the [MASK] {each.text}") for each in examples]
    predictions = prediction_pipeline(model.task, model.encoder, model.predictor).predictions(examples, 8)
    return model.task.decisions(examples, predictions)


@pytest.mark.parametrize(("task", "architecture", "head"), CASES)
def test_graphs_decide_as_the_network(made_run, task, architecture, head):
    recipe = made_run(task, architecture, head)
    source = find_trained_model(recipe)
    result = export(recipe, source, ExportRequest(("paddle", "onnx"), ("fp32", "fp16")))
    assert result.folder == recipe.run_dir / "export"
    expected = answers(recipe, source, "dygraph")
    distinct = {json.dumps(each) for each in expected}
    assert len(expected) == 40 and len(distinct) > 1  # or agreement would say nothing
    for engine in ("paddle", "onnxruntime"):
        assert answers(recipe, str(result.folder), engine) == expected
    report = json.loads((result.folder / "report.json").read_text())
    fp32 = [check for graph in report["graphs"] for check in graph["checks"] if check["precision"] == "fp32"]
    assert [check["engine"] for check in fp32] == ["paddle", "onnxruntime"]
    assert all(0 <= check["relative_difference"] <= 1e-4 and check["agreement"] == 1 for check in fp32)
    assert report["rows"].pop("decisions") >= len(distinct)  # of a language model, words are masked elsewhere
    assert report["rows"] == {"count": 40, "from": "dev", "real": True}
    lengths = [length for _, length in report["shapes"]]
    assert max(lengths) == 24 and (min(lengths) == 1 or task == "few_shot_classification")
    assert {rows for rows, _ in report["shapes"]} >= {1, 3, 7}
    assert sorted(path.name for path in recipe.run_dir.iterdir()) == ["checkpoints", "export", "model", "recipe.yaml"]
    if architecture == "bigru":  # ONNX Runtime dies when it loads it, in a process of its own
        assert "ONNX Runtime cannot load the fp16 graph (killed by SIGSEGV)" in report["refused"][0]["reason"]
        return
    (fp16,) = (check for graph in report["graphs"] for check in graph["checks"] if check["precision"] == "fp16")
    assert fp16["engine"] == "onnxruntime (CPU)" and fp16["relative_difference"] < 0.02 and fp16["agreement"] >= 0.95
