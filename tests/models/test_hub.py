"""Hub names, against a local stand-in of PaddleNLP's cache. A process each: PPNLP_HOME is read at import."""

import json
import os
import shutil
import subprocess
import sys

import pytest

LOAD = """
import sys
import nlpctl
from nlpctl.config.schema import ModelSection
from nlpctl.errors import UserError
from nlpctl.models.families import Head
from nlpctl.models.load import load_to_train, load_trained
head = Head("SequenceClassification")
for name in sys.argv[1:]:
    try:
        if name.startswith("trained:"):
            print(name, load_trained(name.removeprefix("trained:"), head).labels)
            continue
        model = load_to_train(ModelSection(name_or_path=name), head, ("neg", "pos"), vocabulary_texts=None)
        classes = type(model.network).__name__, type(model.tokenizer).__name__
        print(name, *classes, model.source.kind, model.fresh)
    except UserError as error:
        print("UserError:", str(error).replace("\\n", " "))
"""
# The smallest built-in: 3 layers of 128. Its config is in PaddleNLP, its weights are not.
BUILT_IN = "ernie-3.0-tiny-pico-v2-zh"


def load_names(home, *names):
    environment = {**os.environ, "PPNLP_HOME": str(home), "HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": ""}
    done = subprocess.run([sys.executable, "-c", LOAD, *names], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith((*names, "UserError:"))]


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home" / "models").mkdir(parents=True)
    return tmp_path / "home"


def test_community_name_from_the_cache(home, paddle_folder):
    folder = home / "models" / "somebody" / "tiny-ernie"
    shutil.copytree(paddle_folder("Ernie"), folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "ErnieTokenizer"}))
    (line,) = load_names(home, "somebody/tiny-ernie")
    fresh = "('classifier.weight', 'classifier.bias')"
    assert line == f"somebody/tiny-ernie ErnieForSequenceClassification ErnieTokenizer hub {fresh}"


def test_built_in_name_from_the_cache(home):
    import paddle
    from paddlenlp.transformers import ErnieConfig, ErnieModel, ErnieTokenizer

    folder = home / "models" / BUILT_IN
    folder.mkdir()
    network = ErnieModel(ErnieConfig.from_dict(dict(ErnieModel.pretrained_init_configuration[BUILT_IN])))
    stored = {f"ernie.{name}": value for name, value in network.state_dict().items()}
    paddle.save(stored | {"cls.predictions.bias": paddle.zeros([4])}, str(folder / "model_state.pdparams"))
    vocabulary_url = ErnieTokenizer.pretrained_resource_files_map["vocab_file"][BUILT_IN]
    (folder / vocabulary_url.rpartition("/")[2]).write_text("[PAD]\n[CLS]\n[SEP]\n[MASK]\n[UNK]\na\n")
    loaded, refused = load_names(home, BUILT_IN, f"trained:{BUILT_IN}")
    assert loaded.startswith(f"{BUILT_IN} ErnieForSequenceClassification ErnieTokenizer hub")
    assert "the task head was never trained" in refused


def test_without_network(home):
    known, typo, unknown = load_names(home, BUILT_IN, "ernie-3.0-medum-zh", "somebody/absent")
    assert f"UserError: {BUILT_IN}: cannot be downloaded" in known
    assert "did you mean ernie-3.0-medium-zh?" in typo
    assert "did you mean" not in unknown
    for line in (known, typo, unknown):
        assert "without network: put the model's files into a folder" in line
        assert f"{home}/models/" in line and "runtime.cache_dir" in line


def test_damaged_download(home, paddle_folder):
    folder = home / "models" / "somebody" / "tiny-ernie"
    shutil.copytree(paddle_folder("Ernie"), folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "ErnieTokenizer"}))
    file = folder / "model_state.pdparams"
    file.write_bytes(file.read_bytes()[:500])
    (line,) = load_names(home, "somebody/tiny-ernie")
    assert "model_state.pdparams: is cut off or damaged" in line
