"""The recipe of a folder that PaddleNLP or Transformers saved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nlpctl.config.load import Override, load_recipe
from nlpctl.config.weights_mark import without_files
from nlpctl.errors import UserError


def folder(path: Path, name: str = "config.json", **config: object) -> Path:
    (path / name).write_text(json.dumps(config))
    return path


@pytest.mark.parametrize(
    ("config", "task", "length"),
    [
        ({"architectures": ["ErnieForSequenceClassification"], "max_position_embeddings": 2048},
         "sequence_classification", 512),
        ({"architectures": ["RobertaForTokenClassification"], "max_position_embeddings": 514, "pad_token_id": 1},
         "token_classification", 512),
        ({"architectures": ["RobertaForTokenClassification"], "max_position_embeddings": 64, "pad_token_id": 1},
         "token_classification", 62),
        ({"architectures": ["BertForQuestionAnswering"]}, "question_answering", 512),
        ({"architectures": ["BertForMaskedLM"]}, "masked_language_model", 512),
        ({"architectures": ["BertForSequenceClassification"], "problem_type": "multi_label_classification"},
         "multi_label_classification", 512),
        ({"architectures": ["BertForSequenceClassification"], "problem_type": "single_label_classification"},
         "sequence_classification", 512),
        ({"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}, "text_matching", 512),
        ({"architectures": ["BertForSequenceClassification"], "id2label": {"0": "toxic"},
          "problem_type": "multi_label_classification"}, "multi_label_classification", 512),
    ],
)  # fmt: skip
def test_the_class_names_the_task(tmp_path: Path, config: dict, task: str, length: int) -> None:
    recipe = load_recipe(folder(tmp_path, **config), purpose="apply")
    assert (recipe.task, recipe.data.max_seq_length) == (task, length)
    assert recipe.model.name_or_path == str(tmp_path)
    assert 0 < recipe.data.doc_stride <= length


def test_a_language_model_is_trained_for_the_task_that_is_named(tmp_path: Path) -> None:
    folder(tmp_path, architectures=["BertForMaskedLM"])
    with pytest.raises(UserError, match="no task is known by the class BertForMaskedLM"):
        load_recipe(tmp_path, purpose="train")


@pytest.mark.parametrize("named", [5, {"x": []}, [[]], [5], "BertModel"])
def test_what_names_no_class(tmp_path: Path, named: object) -> None:
    with pytest.raises(UserError, match="this network is of no class"):
        load_recipe(folder(tmp_path, architectures=named), purpose="apply")
    assert load_recipe(tmp_path, purpose="embed").task == "semantic_indexing"


def test_the_config_of_old_folders(tmp_path: Path) -> None:
    inner = {"init_class": "ErnieModel", "max_position_embeddings": 100}
    old = {"init_args": [inner], "init_class": "ErnieForSequenceClassification", "num_classes": 4}
    recipe = load_recipe(folder(tmp_path, "model_config.json", **old), purpose="apply")
    assert (recipe.task, recipe.data.max_seq_length) == ("sequence_classification", 100)


def test_the_tokenizer_may_read_less(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 40}')
    recipe = load_recipe(folder(tmp_path, architectures=["BertForSequenceClassification"]), purpose="apply")
    assert recipe.data.max_seq_length == 40


@pytest.mark.parametrize(
    ("config", "length"),
    [
        ({"model_type": "xlm-roberta", "pad_token_id": 1}, 62),
        ({"model_type": "mpnet", "pad_token_id": 0}, 62),
        ({"model_type": "bert", "architectures": ["RobertaModel"], "pad_token_id": 1}, 64),  # by its type, as it loads
        ({"model_type": "ernie_m", "architectures": ["ErnieMModel"], "pad_token_id": 1}, 62),
        ({"architectures": ["CamembertModel"], "pad_token_id": 5}, 58),
    ],
)
def test_rows_of_positions_that_no_token_has(tmp_path: Path, config: dict, length: int) -> None:
    folder(tmp_path, max_position_embeddings=64, **config)
    assert load_recipe(tmp_path, purpose="embed").data.max_seq_length == length


def test_an_encoder_gives_vectors_where_no_head_is_needed(tmp_path: Path) -> None:
    folder(tmp_path, architectures=["BertModel"])
    for purpose in ("embed", "observe"):
        assert load_recipe(tmp_path, purpose=purpose).task == "semantic_indexing"
        assert load_recipe("ernie-3.0-medium-zh", purpose=purpose).model.name_or_path == "ernie-3.0-medium-zh"
    folder(tmp_path, architectures=["BertForSequenceClassification"])
    assert load_recipe(tmp_path, purpose="embed").task == "semantic_indexing"
    assert load_recipe(tmp_path, purpose="observe").task == "sequence_classification"
    with pytest.raises(UserError, match=r"(?s)bert-base-chinese: .* no head to answer with.*--embeddings"):
        load_recipe("bert-base-chinese", purpose="apply")


def test_what_sentence_transformers_says(tmp_path: Path) -> None:
    folder(tmp_path, architectures=["BertModel"])
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 128, "do_lower_case": false}')
    (tmp_path / "1_Pooling").mkdir()
    modes = {"word_embedding_dimension": 8, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    folder(tmp_path / "1_Pooling", **modes)
    recipe = load_recipe(tmp_path, purpose="embed")
    assert (recipe.retrieval.pooling, recipe.data.max_seq_length) == ("cls", 128)
    folder(tmp_path / "1_Pooling", pooling_mode_cls_token=False, pooling_mode_mean_tokens=True)
    assert load_recipe(tmp_path, purpose="embed").retrieval.pooling == "mean"


@pytest.mark.parametrize(
    ("name", "own", "config", "limit", "length"),
    [
        ("sentence_bert_config.json", 8192, {"max_position_embeddings": 8192}, 8192, 8192),
        ("sentence_bert_config.json", 8192, {"max_position_embeddings": 600}, 8192, 600),
        ("sentence_bert_config.json", 700, {"max_position_embeddings": 8192}, 512, 700),  # in place of the tokenizer's
        ("sentence_roberta_config.json", 128, {}, 512, 128),
        ("sentence_xlm-roberta_config.json", 8194,
         {"architectures": ["XLMRobertaModel"], "max_position_embeddings": 8194, "pad_token_id": 1}, 512, 8192),
        ("modules.json", None, {"max_position_embeddings": 8192}, 4096, 4096),
        ("modules.json", None, {"max_position_embeddings": 8192}, 10**30, 8192),
        ("modules.json", None, {}, 10**30, 512),
        ("other.json", None, {"max_position_embeddings": 8192}, 8192, 512),  # not of sentence-transformers
    ],
)  # fmt: skip
def test_the_length_of_a_folder_of_sentence_transformers(
    tmp_path: Path, name: str, own: int | None, config: dict, limit: int, length: int
) -> None:
    folder(tmp_path, **{"architectures": ["BertModel"], **config})
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": limit}))
    transformer = [{"path": "", "type": "sentence_transformers.models.Transformer"}]
    (tmp_path / name).write_text(json.dumps(transformer if own is None else {"max_seq_length": own}))
    assert load_recipe(tmp_path, purpose="embed").data.max_seq_length == length


def test_another_task_by_name(tmp_path: Path) -> None:
    folder(tmp_path, architectures=["BertModel"])
    recipe = load_recipe(tmp_path, [Override("task", "semantic_indexing", "--set task")], "apply")
    assert recipe.task == "semantic_indexing"
    with pytest.raises(UserError, match=r"(?s)config.json: this network is a BertModel, an encoder.*--set task="):
        load_recipe(tmp_path, purpose="apply")


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"architectures": ["BertForSequenceClassification"], "problem_type": "regression"}, "gives a number"),
        ({"architectures": ["BertForMultipleChoice"]}, "no task is known by the class BertForMultipleChoice"),
        ({}, "this network is of no class"),
        ({"architectures": ["UIE"]}, "this network is a UIE, which nlpctl has no task for"),
    ],
)
def test_what_has_no_task(tmp_path: Path, config: dict, told: str) -> None:
    with pytest.raises(UserError, match=told):
        load_recipe(folder(tmp_path, **config), purpose="apply")


@pytest.mark.parametrize("name", ["inference.pdmodel", "model_state.pdparams"])
def test_parameters_without_a_config(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(UserError, match=f"nlpctl convert-static {tmp_path} --to MODEL"):
        load_recipe(tmp_path, purpose="apply")


def test_an_adapter_without_a_network(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(UserError, match="(?s)neither a run .*-> it is an adapter of PEFT: merge it with PyTorch"):
        load_recipe(tmp_path, purpose="apply")


def test_a_folder_of_checkpoints(tmp_path: Path) -> None:
    for step in (5, 40):
        (tmp_path / f"checkpoint-{step}").mkdir()
    with pytest.raises(UserError, match="checkpoint-40"):
        load_recipe(tmp_path, purpose="apply")


def marked(**changes: object) -> dict:
    """The config of an exported multi-label classifier, with what nlpctl notes of it."""
    mark = {
        "version": "0.1", "task": "multi_label_classification", "layout": "transformers", "sha256": "0" * 64,
        "network": "BertForSequenceClassification", "labels": ["a", "b"],
        "data": {"columns": {"text": "body", "label": "tags"}}, "decode": {"threshold": 0.3},
    }  # fmt: skip
    config = {
        "architectures": ["BertForSequenceClassification"], "problem_type": "multi_label_classification",
        "id2label": {"0": "a", "1": "b"}, "nlpctl": mark,
    }  # fmt: skip
    return {**config, **changes}


def test_what_nlpctl_noted_of_a_network(tmp_path: Path) -> None:
    recipe = load_recipe(folder(tmp_path, **marked()), purpose="apply")
    assert recipe.task == "multi_label_classification"
    assert (recipe.data.columns.text, recipe.decode.threshold) == ("body", 0.3)


@pytest.mark.parametrize(
    ("changes", "task"),
    [
        ({"problem_type": "single_label_classification"}, "sequence_classification"),
        ({"id2label": {"0": "a", "1": "c"}}, "multi_label_classification"),
        ({"id2label": {"0": "b", "1": "a"}}, "multi_label_classification"),
        ({"architectures": ["BertForTokenClassification"], "problem_type": None}, "token_classification"),
    ],
)
def test_the_note_of_a_network_that_was_trained_for_something_else(tmp_path: Path, changes: dict, task: str) -> None:
    recipe = load_recipe(folder(tmp_path, **marked(**changes)), purpose="apply")
    assert (recipe.task, recipe.data.columns.text) == (task, "text")


def test_a_note_names_no_files() -> None:
    sections = {"decode": {"terms": "/home/name/terms.tsv", "threshold": 0.3}, "data": {"unit": "words"}}
    assert without_files(sections) == {"decode": {"threshold": 0.3}, "data": {"unit": "words"}}
