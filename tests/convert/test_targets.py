"""What --to may name, and what becomes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nlpctl.convert.targets import find_target, tokenizer_from
from nlpctl.errors import UserError
from nlpctl.models.families import family_of_config

SIZES = {"vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", "好", "坏", "大", "小"]


def write(folder: Path, name: str = "config.json", **values) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(json.dumps({**SIZES, **values}))
    return file


def test_a_built_in_name_gives_paddlenlp_s_config_without_download(tmp_path):
    target = find_target("ernie-1.0", None)
    assert target.config["max_position_embeddings"] == 513 and target.head.name == "Model"
    assert (target.family.name, target.tokenizer, target.labels) == ("Ernie", None, ())
    head = find_target("ernie-1.0", "ErnieForSequenceClassification")
    assert head.labels == ("LABEL_0", "LABEL_1") and not head.labels_known


def test_a_class_with_sizes_from_the_command_line():
    network = find_target("BertForMaskedLM", None).build({**SIZES, "intermediate_size": 16})
    assert type(network).__name__ == "BertForMaskedLM" and network.config.hidden_size == 8


def test_a_folder_with_nothing_but_a_config(tmp_path):
    write(tmp_path / "m", architectures=["ElectraForTokenClassification"], model_type="electra",
          id2label={"0": "B-A", "1": "I-A", "2": "O"})  # fmt: skip
    target = find_target(str(tmp_path / "m"), None)
    assert type(target.build({})).__name__ == "ElectraForTokenClassification"
    assert target.labels == ("B-A", "I-A", "O") and target.labels_known and target.tokenizer is None


def test_an_old_config_needs_no_model_type(tmp_path):
    old = write(tmp_path, "ernie_config.json", sent_type_vocab_size=4, task_type_vocab_size=16)
    target = find_target(str(old), None)
    config = target.build({}).config
    assert (config.type_vocab_size, config.use_task_id, config.intermediate_size) == (4, True, 32)
    named = write(tmp_path, "some.json")
    assert find_target(str(named), "BertModel").family.name == "Bert"
    with pytest.raises(UserError, match="names no network"):
        find_target(str(named), None)


@pytest.mark.parametrize("head", ["BiLSTMForSequenceClassification", "TextCNNForSequenceClassification",
                                  "BiGRUForTokenClassification", "BiGRUForTokenClassificationWithCrf"])  # fmt: skip
def test_networks_of_nlpctl(head):
    network = find_target(head, None).build({"vocab_size": 9, "embedding_size": 4, "hidden_size": 4})
    assert type(network).__name__ == head


@pytest.mark.parametrize(
    ("to", "class_name", "message"),
    [
        ("ernie-1.O", None, "no model that PaddleNLP knows(.|\n)*did you mean ernie-1.0"),
        ("nowhere/config.json", None, "no such folder or config file"),
        ("bert-base-chinese", "ErnieModel", "ErnieModel is no Bert network"),
        ("bert-base-chinese", "BertForPainting", "BertForPainting is no Bert network"),
        ("NobodyForSequenceClassification", None, "names no network"),
    ],
)
def test_what_is_not_there(to, class_name, message):
    with pytest.raises(UserError, match=message):
        find_target(to, class_name)


def test_the_class_of_an_old_folder_is_not_taken_for_ernie_m():
    assert family_of_config({"architectures": ["ErnieModel"]}, "x").name == "Ernie"
    assert family_of_config({"init_class": "ErnieMModel"}, "x").name == "ErnieM"


def test_a_vocabulary_of_paddle_1x_has_ids(tmp_path):
    file = tmp_path / "vocab.txt"
    file.write_text("".join(f"{word}\t{index}\n" for index, word in enumerate(WORDS)), encoding="utf-8")
    tokenizer = tokenizer_from(file, family_of_config({"model_type": "ernie"}, "x"))
    assert tokenizer.convert_tokens_to_ids(["[CLS]", "坏"]) == [1, 6]
    file.write_text("[PAD]\t0\n[CLS]\t2\n", encoding="utf-8")
    with pytest.raises(UserError, match="vocab.txt:2: the id '2' stands where 1 is expected"):
        tokenizer_from(file, family_of_config({"model_type": "ernie"}, "x"))
