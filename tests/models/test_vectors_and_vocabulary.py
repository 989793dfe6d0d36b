"""Networks from scratch, for every task: their vocabulary from a file, their embedding from a file of vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nlpctl.config.load import load_recipe
from nlpctl.errors import UserError
from nlpctl.models.folder import make_description, save_model_folder
from nlpctl.models.load import LoadedModel, load_to_train
from nlpctl.tasks.base import task_class

WORDS = ["房", "间", "很", "干", "净"]
LABELS = {"token_classification": ("B-X", "I-X", "O"), "lexical_analysis": ("B-n", "I-n", "O")}
PAIRS = ("text_matching", "semantic_indexing")
OWN = [
    ("sequence_classification", "bilstm"),
    ("sequence_classification", "textcnn"),
    ("multi_label_classification", "bag_of_embeddings"),
    ("text_matching", "textcnn"),
    ("semantic_indexing", "bilstm"),
    ("token_classification", "bigru"),
    ("lexical_analysis", "bigru"),
]
TRANSFORMERS = [
    ("sequence_classification", "ernie"),
    ("semantic_indexing", "roberta"),
    ("token_classification", "electra"),
    ("question_answering", "bert"),
    ("masked_language_model", "ernie"),
]


def built(folder: Path, task: str, architecture: str, texts: Any = None) -> tuple[Any, LoadedModel]:
    (folder / "words.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    vectors = "".join(f"{word} {' '.join([str(number)] * 8)}\n" for number, word in enumerate(WORDS, 1))
    (folder / "vectors.txt").write_text(f"5 8\n{vectors}", encoding="utf-8")
    sizes = {"hidden_size": 8, "embedding_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    scratch = {"architecture": architecture, "vocabulary": str(folder / "words.txt"), **sizes}
    data = {"columns": {"text_pair": "other"}} if task in PAIRS else {}
    model = {"from_scratch": scratch, "embeddings": str(folder / "vectors.txt")}
    recipe = load_recipe({"task": task, "model": model, "data": data}, purpose="apply")
    head = task_class(task).head(recipe)
    labels = LABELS.get(task, ("a", "b")) if head.labelled else ()
    return recipe, load_to_train(recipe.model, head, labels, vocabulary_texts=texts)


@pytest.mark.parametrize(("task", "architecture"), OWN + TRANSFORMERS)
def test_every_task_has_both(tmp_path: Path, capsys: pytest.CaptureFixture, task: str, architecture: str) -> None:
    recipe, model = built(tmp_path, task, architecture)
    weights = model.network.base_model.get_input_embeddings().weight.numpy()
    ids = [model.tokenizer.convert_ids_to_tokens(list(range(len(model.tokenizer)))).index(word) for word in WORDS]
    assert ids == [0, 1, 2, 3, 4]  # the lines of the file
    np.testing.assert_array_equal(weights[ids], np.repeat(np.arange(1.0, 6.0)[:, None], 8, axis=1))
    assert "vectors: 5 of" in capsys.readouterr().err
    save_model_folder(tmp_path / "model", model.network, model.tokenizer, make_description(recipe, model.labels))
    again = task_class(task).load_trained(load_recipe(tmp_path / "model", purpose="apply"), tmp_path / "model")
    assert len(again.tokenizer) == len(model.tokenizer)
    np.testing.assert_array_equal(again.network.base_model.get_input_embeddings().weight.numpy(), weights)


def test_a_vocabulary_of_other_units_is_told(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    built(tmp_path, "sequence_classification", "textcnn", lambda: iter(["房间很好", "服务"]))
    told = capsys.readouterr().err
    assert "50.0% of the characters of the training text are in it" in told and "warning" not in told
    built(tmp_path, "sequence_classification", "textcnn", lambda: iter(["服务好"]))
    assert "most characters are unknown: does the file hold words" in capsys.readouterr().err


def test_vectors_of_another_width(tmp_path: Path) -> None:
    (tmp_path / "narrow.txt").write_text("房 1 2\n", encoding="utf-8")
    model = {"from_scratch": {"architecture": "bert", "vocabulary": str(tmp_path / "words.txt"), "hidden_size": 8},
             "embeddings": str(tmp_path / "narrow.txt")}  # fmt: skip
    (tmp_path / "words.txt").write_text("房\n", encoding="utf-8")
    recipe = load_recipe({"task": "sequence_classification", "model": model}, purpose="apply")
    with pytest.raises(UserError, match="(?s)narrow.txt:1: 2 numbers where 8 are expected.*hidden_size"):
        load_to_train(recipe.model, task_class(recipe.task).head(recipe), ("a", "b"), vocabulary_texts=None)


def test_the_file_is_checked_and_kept_in_the_manifest(tmp_path: Path) -> None:
    from nlpctl.config.paths import parameter_files

    (tmp_path / "recipe.yaml").write_text(
        json.dumps({"task": "sequence_classification", "data": {"train": "rows.tsv"},
                    "model": {"from_scratch": {"vocabulary": "words.txt"}}})
    )  # fmt: skip
    (tmp_path / "rows.tsv").write_text("text\tlabel\na\tb\n")
    with pytest.raises(UserError, match="from_scratch.vocabulary: there is no file"):
        load_recipe(tmp_path / "recipe.yaml")
    (tmp_path / "words.txt").write_text("a\n")
    assert parameter_files(load_recipe(tmp_path / "recipe.yaml").model) == [tmp_path / "words.txt"]
