"""Hub names, against a local stand-in of PaddleNLP's cache. One process loads all: PPNLP_HOME is read at import."""

import json
import os
import shutil
import subprocess
import sys

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
ABSENT = "ernie-3.0-tiny-micro-v2-zh"


def cache_community_model(home, name, folder):
    copy = shutil.copytree(folder, home / "models" / name)
    (copy / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "ErnieTokenizer"}))
    return copy


def cache_built_in_model(home):
    import paddle
    from paddlenlp.transformers import ErnieConfig, ErnieModel, ErnieTokenizer

    folder = home / "models" / BUILT_IN
    folder.mkdir()
    network = ErnieModel(ErnieConfig.from_dict(dict(ErnieModel.pretrained_init_configuration[BUILT_IN])))
    stored = {f"ernie.{name}": value for name, value in network.state_dict().items()}
    paddle.save(stored | {"cls.predictions.bias": paddle.zeros([4])}, str(folder / "model_state.pdparams"))
    vocabulary_url = ErnieTokenizer.pretrained_resource_files_map["vocab_file"][BUILT_IN]
    (folder / vocabulary_url.rpartition("/")[2]).write_text("[PAD]\n[CLS]\n[SEP]\n[MASK]\n[UNK]\na\n")


def test_names(tmp_path, paddle_folder):
    home = tmp_path / "home"
    tiny = paddle_folder("Ernie")
    cache_community_model(home, "somebody/tiny-ernie", tiny)
    damaged = cache_community_model(home, "somebody/damaged", tiny) / "model_state.pdparams"
    damaged.write_bytes(damaged.read_bytes()[:500])
    cache_built_in_model(home)
    cached = ("somebody/tiny-ernie", BUILT_IN, f"trained:{BUILT_IN}", "somebody/damaged")
    absent = (ABSENT, "ernie-3.0-medum-zh", "somebody/absent")

    environment = {**os.environ, "PPNLP_HOME": str(home), "HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": ""}
    command = [sys.executable, "-c", LOAD, *cached, *absent]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith((*cached, "UserError:"))]
    community, built_in, untrained, cut, known, typo, unknown = lines

    fresh = "('classifier.weight', 'classifier.bias')"
    assert community == f"somebody/tiny-ernie ErnieForSequenceClassification LibraryTokenizer hub {fresh}"
    assert built_in.startswith(f"{BUILT_IN} ErnieForSequenceClassification LibraryTokenizer hub")
    assert "the task head was never trained" in untrained
    assert "model_state.pdparams: is cut off or damaged" in cut
    assert f"UserError: {ABSENT}: cannot be downloaded" in known
    assert "did you mean ernie-3.0-medium-zh?" in typo
    assert "did you mean" not in unknown
    for line in (known, typo, unknown):
        assert "without network: put the model's files into a folder" in line
        assert f"{home}/models/" in line and "runtime.cache_dir" in line
