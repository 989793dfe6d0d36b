"""Models named hf:ORG/NAME, from a local hub. The library reads HF_ENDPOINT and the like once, so each case of the
network has a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hugging_face_server import TOKEN, files_of, hugging_face_server

from nlpctl.config.hub_names import HuggingFaceName
from nlpctl.config.load import load_recipe
from nlpctl.errors import UserError
from nlpctl.models.hugging_face_hub import wanted_files

TINY = files_of(Path(__file__).parent / "huggingface" / "bert-classifier")
del TINY["expected.json"]
OTHER = TINY | {"special_tokens_map.json": b"{}"}
RESOLVE = """
import json, sys
from nlpctl.errors import UserError
from nlpctl.models.source import resolve_source
for name in sys.argv[1:]:
    try:
        print(json.dumps([str(resolve_source(name).folder)]), flush=True)
    except UserError as error:
        print(json.dumps(str(error)), flush=True)
"""


def run(code, *arguments, home, endpoint, **environment):
    """The lines that a process prints whose hub is at `endpoint` and whose cache is in `home`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    kept |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), **environment}
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=kept)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line[:1] in '["{'], done.stderr


def resolved(*names, **where):
    answers, stderr = run(RESOLVE, *names, **where)
    assert len(answers) == len(names)
    return [Path(answer[0]) if isinstance(answer, list) else answer for answer in answers], stderr


def test_from_the_first_download_to_a_machine_without_network(tmp_path):
    extra = {"onnx/model.onnx": b"x", "modeling_bert.py": b"import os", "pytorch_model.bin": b"x", "README.md": b""}
    with hugging_face_server() as hub:
        repository = hub.add("org/tiny", TINY | extra)
        first = repository.refs["main"]
        second = repository.commit(OTHER, "v2")
        where = {"home": tmp_path, "endpoint": hub.endpoint}
        (main, tag, commit), stderr = resolved("hf:org/tiny", "hf:org/tiny@v2", f"hf:org/tiny@{first}", **where)
        assert (main.name, tag.name, commit) == (first, second, main)
        assert f"downloading hf:org/tiny@{first}" in stderr
        assert files_of(main) == TINY  # neither code, nor weights twice, nor what no folder of a model needs
        asked = len(hub.asked)
        (again,), _ = resolved(f"hf:org/tiny@{first}", **where)
        assert again == main and not [each for each in hub.asked[asked:] if "org/tiny" in each]

        repository.commit(TINY | {"special_tokens_map.json": b"{ }"})
        (moved,), _ = resolved("hf:org/tiny", **where)
        assert moved.name == repository.refs["main"] != first

    gone = {"home": tmp_path, "endpoint": hub.endpoint}
    (cached, absent, bad), stderr = resolved("hf:org/tiny", "hf:org/other", "hf:org/tiny/inner", **gone)
    assert cached == moved
    assert "hf:org/tiny: the hub did not answer (" in stderr and "the files in the cache are taken" in stderr
    assert "hf:org/other: cannot be downloaded from http://127.0.0.1" in absent
    assert "-> check the network" in absent and "HF_ENDPOINT" in absent and str(tmp_path) in absent
    assert "must be hf:ORG/NAME or hf:ORG/NAME@REVISION" in bad

    (cached, absent), stderr = resolved("hf:org/tiny@v2", "hf:org/other", **gone, HF_HUB_OFFLINE="1")
    assert cached == tag and not stderr
    assert "is not in the cache, and HF_HUB_OFFLINE forbids" in absent and "unset HF_HUB_OFFLINE" in absent
    (moved / "model.safetensors").unlink()  # as an interrupted download leaves it
    (half,), _ = resolved("hf:org/tiny", **gone, HF_HUB_OFFLINE="1")
    assert "is not in the cache" in half


def test_what_a_hub_refuses(tmp_path):
    names = ["hf:org/absent", "hf:org/tiny@absent", "hf:org/gated", "hf:org/flax", "hf:org/adapter", "hf:org/cut"]
    with hugging_face_server() as hub:
        hub.add("org/tiny", TINY)
        hub.add("org/gated", TINY, gated=True)
        hub.add("org/flax", {"config.json": b"{}", "flax_model.msgpack": b"x", "onnx/model.onnx": b"x"})
        hub.add("org/adapter", {"adapter_config.json": b"{}", "adapter_model.safetensors": b"x"})
        hub.add("org/cut", TINY, cut=True)
        where = {"home": tmp_path, "endpoint": hub.endpoint}
        (absent, revision, gated, flax, adapter, cut), _ = resolved(*names, **where)
        (allowed,), _ = resolved("hf:org/gated", **where, HF_TOKEN=TOKEN)
        hub.repositories["org/cut"].cut = False
        (gone_on,), _ = resolved("hf:org/cut", **where)
    assert "there is no such model on the hub, or it is private" in absent and "HF_TOKEN" in absent
    assert "has no revision absent" in revision and "lists its branches" in revision
    assert "wants its terms to be accepted" in gated and "HF_TOKEN" in gated
    assert "no weights that nlpctl reads, only flax_model.msgpack" in flax and "model.safetensors" in flax
    assert "is an adapter" in adapter and "merge it" in adapter
    assert "cannot be downloaded" in cut and "try again: what has arrived is kept" in cut
    assert files_of(allowed) == files_of(gone_on) == TINY


SENTENCES = files_of(Path(__file__).parent / "sentence_folders" / "cls-dense")
del SENTENCES["expected.json"]
NETWORK = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


def test_what_another_program_left_in_the_cache_is_completed(tmp_path):
    with hugging_face_server() as hub:
        repository = hub.add("org/enc", SENTENCES)
        commit = repository.refs["main"]
        cache = tmp_path / "hub" / "models--org--enc"
        snapshot = cache / "snapshots" / commit
        snapshot.mkdir(parents=True)
        for name in NETWORK:  # as AutoModel.from_pretrained of Transformers leaves it
            (snapshot / name).write_bytes(SENTENCES[name])
        (cache / "refs").mkdir()
        (cache / "refs" / "main").write_text(commit)
        where = {"home": tmp_path, "endpoint": hub.endpoint}
        (offline,), warned = resolved("hf:org/enc", **where, HF_HUB_OFFLINE="1")
        assert offline == snapshot and "files may be missing" in warned and "modules.json" in warned
        (folder,), _ = resolved(f"hf:org/enc@{commit}", **where)
        assert folder == snapshot and files_of(folder) == SENTENCES

        (snapshot / "2_Dense" / "model.safetensors").unlink()
        (missing, branch), _ = resolved(f"hf:org/enc@{commit}", "hf:org/enc", **where, HF_HUB_OFFLINE="1")
        assert "is not in the cache" in missing and "is not in the cache" in branch
        (again,), _ = resolved(f"hf:org/enc@{commit}", **where)
        assert files_of(again) == SENTENCES
    (unasked,), silent = resolved(f"hf:org/enc@{commit}", home=tmp_path, endpoint="http://127.0.0.1:9")
    assert unasked == snapshot and not silent


def test_weights_in_shards(tmp_path):
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    files = {name: content for name, content in TINY.items() if name != "model.safetensors"}
    files |= {"model.safetensors.index.json": json.dumps(index).encode()}
    files |= {name: b"x" for name in index["weight_map"].values()}
    with hugging_face_server() as hub:
        hub.add("org/shards", files)
        where = {"home": tmp_path, "endpoint": hub.endpoint}
        (folder,), _ = resolved("hf:org/shards", **where)
    assert files_of(folder) == files
    (folder / "model-00002-of-00002.safetensors").unlink()
    (half,), _ = resolved("hf:org/shards", **where, HF_HUB_OFFLINE="1")
    assert "is not in the cache" in half


@pytest.mark.parametrize(
    ("there", "wanted"),
    [
        ("config.json vocab.txt pytorch_model.bin tf_model.h5", "config.json pytorch_model.bin vocab.txt"),
        ("config.json model_state.pdparams pytorch_model.bin", "config.json model_state.pdparams"),
        ("config.json model.fp16.safetensors model.safetensors", "config.json model.safetensors"),
        ("pytorch_model.bin.index.json pytorch_model-00001-of-00001.bin x-00001-of-00001.bin",
         "pytorch_model-00001-of-00001.bin pytorch_model.bin.index.json"),
        ("modules.json 1_Pooling/config.json 2_Dense/model.safetensors 2_Dense/pytorch_model.bin openvino/config.json",
         "1_Pooling/config.json 2_Dense/model.safetensors modules.json"),
        ("config.json sentence_xlm-roberta_config.json sentence_x_config.json",
         "config.json sentence_xlm-roberta_config.json"),
        ("../config.json 1_x/../config.json /config.json .gitattributes config.json", "config.json"),
        ("task.json own.txt model_state.pdparams run.py", "model_state.pdparams own.txt task.json"),
        ("export.json model.onnx setup.sh", "export.json model.onnx"),
        ("task.json vocab.txt a.pkl b.exe c.pyc d.bash e.dll f", "task.json vocab.txt"),
    ],
)  # fmt: skip
def test_files_that_are_downloaded(there, wanted):
    assert sorted(wanted_files(there.split())) == sorted(wanted.split())


BAD = ["hf:", "hf:a/b/c", "hf:../b", "hf:a/b@", "hf:a/b@../c", "hf:a b", "hf:a/b@x@y", "hf:/b"]
# What huggingface_hub takes for no name: the end of an address to clone, and the like.
BAD += ["hf:a/b.git", "hf:a/b--c", "hf:a/b..c", "hf:a/b-", "hf:a./b", f"hf:{'n' * 97}/b"]


@pytest.mark.parametrize("name", BAD)
def test_names_that_cannot_be(name, tmp_path):
    with pytest.raises(UserError, match="must be hf:ORG/NAME"):
        HuggingFaceName.of(name)
    (tmp_path / "r.yaml").write_text(f"task: sequence_classification\nmodel: {{name_or_path: '{name}'}}\n")
    with pytest.raises(UserError, match="must be hf:ORG/NAME"):
        load_recipe(tmp_path / "r.yaml")


TRAIN = """
import json, os, shutil, sys
from pathlib import Path
sys.path += sys.argv[1:3]
from hugging_face_server import hugging_face_server
from test_hugging_face_hub import OTHER, TINY

folder = Path(sys.argv[3])
with hugging_face_server() as hub:
    os.environ["HF_ENDPOINT"] = hub.endpoint
    import nlpctl
    from nlpctl.config.load import load_recipe
    from nlpctl.models.hugging_face_hub import snapshot_folder
    from nlpctl.runs.runs import open_run

    repository = hub.add("org/tiny", TINY)
    values = {"task": "sequence_classification", "model": {"name_or_path": "hf:org/tiny"}}
    values |= {"data": {"train": f"{folder}/train.tsv", "max_seq_length": 16}, "runtime": {"device": "cpu"}}
    values |= {"training": {"output_dir": f"{folder}/run", "max_steps": 2, "save_steps": 1}}

    def began():
        print(json.dumps(load_recipe(folder / "run", purpose="apply").model.name_or_path))

    def train(**options):
        snapshot_folder.cache_clear()  # as in another process
        nlpctl.train(values, **options)
        began()

    print(json.dumps(repository.refs["main"]))
    train()
    repository.commit(OTHER)  # the branch moves on, and the run is interrupted
    shutil.rmtree(folder / "run" / "model")
    manifest = folder / "run" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"finished"', '"interrupted"'))
    train(resume=True)
    train(overwrite=True)
    print(json.dumps(repository.refs["main"]))
    print(json.dumps(open_run(folder / "run").model))
    print(json.dumps(nlpctl.load("hf:org/tiny").predict("a b")["label"]))
"""


def test_a_run_can_be_repeated(tmp_path):
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "a b c\tneg\nd e f\tpos\ng h\tmid\n" * 8)
    here = Path(__file__).parent
    arguments = [str(here), str(here.parent / "helpers"), str(tmp_path)]
    answers, _ = run(TRAIN, *arguments, home=tmp_path / "home", endpoint="")
    first, new, resumed, again, second, shown, label = answers
    assert new == resumed == f"hf:org/tiny@{first}"
    assert again == f"hf:org/tiny@{second}" and second != first
    assert shown == f"org/tiny@{second[:7]}"
    assert label in ("neg", "mid", "pos")


@pytest.mark.parametrize(
    ("name", "meant"), [("somebody/encoder", "hf:somebody/encoder"), ("outputs/run", None), ("a/b/c", None)]
)
def test_a_name_of_the_hub_without_its_prefix(name, meant, tmp_path, monkeypatch):
    (tmp_path / "outputs").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="no such recipe, run directory or model folder") as caught:
        load_recipe(name, (), "apply")
    assert (f"did you mean {meant}" in str(caught.value)) == (meant is not None)
    assert ("hf:" in str(caught.value)) == (meant is not None)


def test_names_in_the_cache_complete(tmp_path, monkeypatch):
    for name in ("models--org--tiny", "models--bert", "datasets--org--rows"):
        (tmp_path / "hub" / name).mkdir(parents=True)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    line = {"COMP_WORDS": "nlpctl predict hf:", "COMP_CWORD": "2", "_NLPCTL_COMPLETE": "complete_bash"}
    done = subprocess.run([sys.executable, "-m", "nlpctl"], env={**os.environ, **line}, capture_output=True, text=True)
    assert done.stdout.split() == ["hf:bert", "hf:org/tiny"]
