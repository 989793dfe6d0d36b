import subprocess
import sys

import pytest

from nlpctl.errors import UserError
from nlpctl.models.source import resolve_source


def make(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("{}")
    return folder


PADDLE = ("model_state.pdparams", "config.json", "vocab.txt")
HUGGINGFACE = ("model.safetensors", "config.json", "vocab.txt")
MODEL_FOLDER = (*PADDLE, "labels.json", "task.json")


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (PADDLE, "paddlenlp"),
        (("model_state.pdparams", "model_config.json", "vocab.txt"), "paddlenlp"),
        (HUGGINGFACE, "huggingface"),
        (("pytorch_model.bin", "config.json", "vocab.txt"), "huggingface"),
        (("model.safetensors.index.json", "config.json", "vocab.txt"), "huggingface"),
        ((*HUGGINGFACE, "model_state.pdparams"), "paddlenlp"),
        (MODEL_FOLDER, "nlpctl"),
    ],
)
def test_folder_kinds(tmp_path, names, kind):
    folder = make(tmp_path / "m", *names)
    assert resolve_source(str(folder)).kind == kind
    assert resolve_source(str(folder)).folder == folder.resolve()


@pytest.mark.parametrize("name", ["ernie-3.0-medium-zh", "hfl/rbt3", "bert-base-chinese", "ernie-3.0-medum-zh"])
def test_names_are_hub_names(name):
    source = resolve_source(name)
    assert (source.kind, source.folder, source.name) == ("hub", None, name)


@pytest.mark.parametrize("name", ["./absent", "../absent", "/absent/model", "a/b/c", "absent/", "~/absent", "a b"])
def test_missing_paths_are_no_hub_names(name):
    with pytest.raises(UserError, match="no such model folder"):
        resolve_source(name)


def test_a_path_that_starts_in_an_existing_folder_is_a_path(tmp_path, monkeypatch):
    make(tmp_path / "outputs" / "first")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="the path exists up to .*outputs, which holds first"):
        resolve_source("outputs/frist")


def test_run_directory_stands_for_its_model(tmp_path):
    run = make(tmp_path / "run", "manifest.json")
    model = make(run / "model", *MODEL_FOLDER)
    source = resolve_source(str(run))
    assert (source.kind, source.folder) == ("nlpctl", model.resolve())


def test_interrupted_run_is_refused(tmp_path):
    run = make(tmp_path / "run", "manifest.json")
    make(run / "checkpoints" / "checkpoint-20", *MODEL_FOLDER)
    with pytest.raises(UserError, match="--resume.*checkpoint-20"):
        resolve_source(str(run))
    assert resolve_source(str(run / "checkpoints" / "checkpoint-20")).kind == "nlpctl"


def test_run_without_checkpoint_is_refused(tmp_path):
    run = make(tmp_path / "run", "manifest.json")
    with pytest.raises(UserError, match="has no checkpoint"):
        resolve_source(str(run))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "not a model"),
        (("README.md",), "not a model"),
        (("config.json", "vocab.txt"), "no weights"),
        (("model.safetensors", "vocab.txt"), "no config.json"),
        (("model.safetensors", "config.json"), "no vocabulary"),
    ],
)
def test_incomplete_folders(tmp_path, names, message):
    folder = make(tmp_path / "m", *names)
    with pytest.raises(UserError, match=message) as caught:
        resolve_source(str(folder))
    assert caught.value.problems[0].hint


def test_adapters(tmp_path, monkeypatch):
    folder = make(tmp_path / "m", *HUGGINGFACE)
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "org/base"}')
    with pytest.raises(UserError, match="(?s)beside the weights is an adapter of org/base.*merge it.*or remove"):
        resolve_source(str(folder))
    (tmp_path / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path.parent)
    with pytest.raises(UserError, match="or give the path of a copy without adapter_config.json if the weights hold"):
        resolve_source(f"python:{tmp_path.name}/m")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match="adapter_config.json: this is an adapter of org/base"):
        resolve_source(str(folder))
    (folder / "config.json").unlink()
    with pytest.raises(UserError, match="(?s)adapter_config.json: this is an adapter of org/base.*-> merge it"):
        resolve_source(str(folder))


def test_empty_weights(tmp_path):
    folder = make(tmp_path / "m", *PADDLE)
    (folder / "model_state.pdparams").write_bytes(b"")
    with pytest.raises(UserError, match="model_state.pdparams: the weights file is empty"):
        resolve_source(str(folder))


@pytest.mark.parametrize("content", ['{"model_type": "be', "[1, 2]", "\x80\x81"])
def test_damaged_config(tmp_path, content):
    folder = make(tmp_path / "m", *PADDLE)
    (folder / "config.json").write_text(content, encoding="latin1")
    with pytest.raises(UserError, match="config.json: (is not valid JSON|must hold a JSON object)"):
        resolve_source(str(folder))


def test_weights_file_instead_of_folder(tmp_path):
    folder = make(tmp_path / "m", *PADDLE)
    with pytest.raises(UserError, match="this is a file"):
        resolve_source(str(folder / "model_state.pdparams"))


def test_folder_inside_a_package(tmp_path, monkeypatch):
    package = make(tmp_path / "some_package")
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    make(package / "model", *HUGGINGFACE)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert resolve_source("python:some_package/model").folder == (package / "model")
    assert "some_package" not in sys.modules


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("python:no_such_package_here/model", "no package named"),
        ("python:json/absent", "has no folder"),
        ("python:json/../xml", "must be python:PACKAGE/PATH"),
        ("python:a.b/model", "must be python:PACKAGE/PATH"),
        ("python:", "must be python:PACKAGE/PATH"),
    ],
)
def test_bad_package_paths(name, message):
    with pytest.raises(UserError, match=message):
        resolve_source(name)


def test_imports_nothing_heavy():
    code = "import sys, nlpctl.models.source; print([m for m in ('paddle', 'paddlenlp', 'numpy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
