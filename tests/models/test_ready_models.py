"""The registry of ready models: every entry can be made, and stand-ins of the same layout answer."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import nlpctl
from nlpctl.config.load import load_recipe
from nlpctl.config.tasks import task_info
from nlpctl.errors import UserError
from nlpctl.inference.ready_models import make_ready
from nlpctl.models.ready_models import ReadyModel, ready_model, ready_models
from nlpctl.models.source import package_folder

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "tasks.md"


@pytest.mark.parametrize("entry", ready_models(), ids=lambda entry: entry.name)
def test_an_entry_can_be_made_as_far_as_the_installed_packages_tell(entry: ReadyModel):
    from nlpctl.models.families import family_of_hub_name
    from nlpctl.tasks.base import task_class

    assert entry.licence and entry.tested and task_info(entry.task) is not None
    recipe = load_recipe({"task": entry.task, "model": {"name_or_path": "x"}, "data": dict(entry.data)}, (), "apply")
    if entry.convert_to is not None:
        assert package_folder(entry.source).is_dir()
        return
    head = task_class(entry.task).head(recipe)
    family = family_of_hub_name(entry.source)
    assert family is not None and family.has(head.name)
    assert head.labelled == bool(entry.labels)  # PaddleNLP's built-in configs name no labels
    assert entry.source in family.encoder_class.pretrained_resource_files_map["model_state"]


def test_names_are_unique_and_documented():
    names = [name for entry in ready_models() for name in (entry.name, *entry.also)]
    assert len(set(names)) == len(names)
    text = DOCUMENT.read_text(encoding="utf-8")
    for entry in ready_models():
        names = ", ".join(f"`{name}`" for name in (entry.name, *entry.also))
        row = f"| {names} | {entry.task} | {entry.help} | `{entry.source}` | {entry.licence} | {entry.tested} |"
        assert row in text, row


def test_an_unknown_name_lists_them():
    with pytest.raises(UserError, match="no ready model 'lexical_analysys'.*did you mean 'lexical_analysis'") as caught:
        ready_model("lexical_analysys")
    assert all(entry.name in caught.value.problems[0].hint for entry in ready_models())
    with pytest.raises(UserError, match="no ready model 'sentiment_analysis'") as caught:
        ready_model("sentiment_analysis")
    assert "did you mean" not in str(caught.value)


def test_a_cross_encoder_answers_with_the_labels_of_its_entry(paddle_folder, tmp_path):
    """RocketQA's config names no labels; its network is ERNIE with a classifier."""
    folder = paddle_folder("Ernie", "ForSequenceClassification")
    config = json.loads((folder / "config.json").read_text())
    for name in ("id2label", "label2id", "num_labels"):
        config.pop(name, None)
    (folder / "config.json").write_text(json.dumps(config))
    entry = dataclasses.replace(ready_model("text_similarity"), source=str(folder))
    make_ready(dataclasses.replace(entry, data={**entry.data, "max_seq_length": 12}), tmp_path / "made")
    answer = nlpctl.load(tmp_path / "made", device="cpu").predict({"text": "a b", "text_pair": "c d"})
    assert answer["label"] in entry.labels and 0 <= answer["score"] <= 1


def test_a_reader_of_ernie_gram_answers(paddle_folder, tmp_path):
    folder = paddle_folder("ErnieGram", "ForQuestionAnswering", embedding_size=8)
    entry = dataclasses.replace(ready_model("question_answering"), source=str(folder))
    make_ready(dataclasses.replace(entry, data={"max_seq_length": 12, "doc_stride": 4}), tmp_path / "made")
    answer = nlpctl.load(tmp_path / "made", device="cpu").predict({"question": "a b", "context": "c d e f"})
    assert answer["answer"] in "c d e f"


FROM_THE_CACHE = """
import dataclasses, sys
from pathlib import Path
import nlpctl
from nlpctl.models.ready_models import ready_model
from nlpctl.inference.ready_models import make_ready
entry = dataclasses.replace(ready_model("fill_mask"), source="somebody/stand-in", data={"max_seq_length": 12})
make_ready(entry, Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_files_in_the_cache_need_no_network(paddle_folder, tmp_path):
    """A community model's layout: PPNLP_HOME/models/OWNER/NAME."""
    folder = tmp_path / "cache" / "models" / "somebody" / "stand-in"
    shutil.copytree(paddle_folder("Bert", "ForMaskedLM"), folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    environment = {**os.environ, "PPNLP_HOME": str(tmp_path / "cache"), "HTTPS_PROXY": "http://127.0.0.1:9"}
    environment |= {"NO_PROXY": "", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", FROM_THE_CACHE, str(tmp_path / "made")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert set("abcdefghijk") & set(json.dumps(nlpctl.load(tmp_path / "made", device="cpu").predict("[MASK]")))
