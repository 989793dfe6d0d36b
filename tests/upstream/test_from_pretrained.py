"""What PaddleNLP's from_pretrained does with folders that nlpctl reads by itself."""

import json
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import paddle
import pytest
from paddlenlp.transformers import BertForSequenceClassification, ErnieConfig, ErnieForSequenceClassification

from nlpctl.config.schema import ModelSection
from nlpctl.formats.torch_file import load_torch_file
from nlpctl.models.families import Head
from nlpctl.models.load import load_to_train
from nlpctl.runtime.versions import pins

HEAD = Head("SequenceClassification")

CLASSIFIER = Path(__file__).parents[1] / "models" / "huggingface" / "bert-classifier"


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(CLASSIFIER, tmp_path / "model"))


class Creates:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def convert(folder):
    return BertForSequenceClassification.from_pretrained(str(folder), convert_from_torch=True)


def test_paddle_load_still_runs_what_is_in_the_file(tmp_path):
    (tmp_path / "a.pdparams").write_bytes(pickle.dumps(Creates(tmp_path / "was_here")))
    paddle.load(str(tmp_path / "a.pdparams"))
    assert (tmp_path / "was_here").exists()


def test_from_pretrained_still_runs_what_is_in_the_file(tmp_path, folder):
    (folder / "model.safetensors").unlink()
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"w": Creates(tmp_path / "was_here")}))
    try:
        convert(folder)
    except Exception:
        pass
    assert (tmp_path / "was_here").exists()


def test_conversion_still_writes_into_the_source(folder):
    convert(folder)
    assert (folder / "model_state.pdparams").exists()


def test_architectures_against_names_still_leave_the_encoder_random(tmp_path):
    """The file has a bare encoder's names, and architectures names a network with a head."""
    folder = Path(shutil.copytree(CLASSIFIER.with_name("bert-encoder"), tmp_path / "encoder"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["BertForMaskedLM"]}))
    file = load_torch_file(folder / "pytorch_model.bin")["encoder.layer.0.attention.self.query.weight"].T
    weight = convert(folder).bert.encoder.layers[0].self_attn.q_proj.weight.numpy()
    assert np.abs(weight - file).mean() > 0.1
    (folder / "model_state.pdparams").unlink()  # written by the conversion
    ours = load_to_train(ModelSection(name_or_path=str(folder)), HEAD, ("neg", "pos"), vocabulary_texts=None)
    np.testing.assert_array_equal(ours.network.bert.encoder.layers[0].self_attn.q_proj.weight.numpy(), file)


def test_missing_parameters_still_stay_random(tmp_path):
    sizes = {"vocab_size": 8, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}
    network = ErnieForSequenceClassification(ErnieConfig(num_hidden_layers=1, **sizes))
    network.save_pretrained(str(tmp_path))
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 2}))
    assert len(ErnieForSequenceClassification.from_pretrained(str(tmp_path)).ernie.encoder.layers) == 2


def test_paddlenlp_still_imports_pip():
    code = "import sys, nlpctl\nsys.modules['pip'] = None\nimport paddlenlp"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "import of pip halted" in done.stderr, done.stderr[-2000:]
    assert any((each.package, each.extra) == ("pip", "train") for each in pins())
