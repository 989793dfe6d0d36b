"""Padding is the tokenizer's, whatever config.json says: no answer depends on that, nor on the texts beside it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime
import paddle
import pytest
from safetensors.numpy import load_file, save_file

from nlpctl.compress.networks.prune_embeddings import _with_rows
from nlpctl.config.load import load_recipe
from nlpctl.data.text.tokenizers import build_encoder
from nlpctl.engines.paddle_inference import PaddlePredictor
from nlpctl.errors import UserError
from nlpctl.export.export import export
from nlpctl.export.request import ExportRequest
from nlpctl.graphs.graph_files import paddle_files
from nlpctl.graphs.onnx import write_onnx_graph
from nlpctl.graphs.to_static import write_paddle_graph
from nlpctl.models.export_folder import ExportManifest, Graph, TensorSpec
from nlpctl.models.families import Head
from nlpctl.models.find import find_trained_model
from nlpctl.models.folder import make_description, save_model_folder
from nlpctl.models.load import load_trained
from nlpctl.models.network import max_positions
from nlpctl.models.networks.ensemble import EnsembleConfig, EnsembleForSequenceClassification
from nlpctl.runtime.process import ProcessSetup

ENCODERS = Path(__file__).parent / "encoders"
FAMILIES = sorted(folder.name for folder in ENCODERS.iterdir() if folder.is_dir())
CLASSIFIER = Head("SequenceClassification")
TEXTS = ("the", "the quick brown fox and a much longer text")
NO_KEY = "no key"


def changed(folder: Path, to: Path, pad) -> Path:
    """A copy of a model whose config.json has another pad_token_id."""
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns("*.npz"))
    values = json.loads((to / "config.json").read_text()) | {"pad_token_id": pad}
    (to / "config.json").write_text(json.dumps({key: value for key, value in values.items() if value != NO_KEY}))
    return to


def batch_of(tokenizer, texts) -> np.ndarray:
    rows = [build_encoder(tokenizer).encode([text], None, 30)[0].input_ids for text in texts]
    longest = max(map(len, rows))
    return np.array([[*row, *[tokenizer.pad_token_id] * (longest - len(row))] for row in rows], np.int64)


def answers(network, ids) -> np.ndarray:
    network.eval()
    out = network(paddle.to_tensor(ids))
    return (out[0] if isinstance(out, tuple) else out).numpy()


@pytest.mark.parametrize("pad", [5, None, NO_KEY])
@pytest.mark.parametrize("name", FAMILIES)
def test_config_does_not_say_what_is_padding(name, pad, tmp_path):
    folder = changed(ENCODERS / name, tmp_path / "model", pad)
    if name == "xlm-roberta" and type(pad) is int:  # whose positions begin behind it: see below
        as_transformers_reads_it(folder, pad)
    right, model = load_trained(ENCODERS / name, CLASSIFIER), load_trained(folder, CLASSIFIER)
    ids = batch_of(right.tokenizer, TEXTS)
    expected = answers(right.network, ids)
    np.testing.assert_allclose(answers(model.network, ids), expected, atol=1e-5)
    alone = answers(model.network, batch_of(right.tokenizer, TEXTS[:1]))
    np.testing.assert_allclose(alone, expected[:1], atol=1e-5)
    assert model.network.config.pad_token_id == right.tokenizer.pad_token_id
    assert max_positions(model.network) == max_positions(right.network)


def as_transformers_reads_it(folder: Path, pad: int) -> None:
    """Moves the rows of the positions, so that what begins behind `pad` for Transformers is what began behind 1.

    <s> is 0, so with that as pad_token_id it is not counted.
    """
    arrays = load_file(folder / "model.safetensors")
    name = "roberta.embeddings.position_embeddings.weight"
    before = 0 if pad == 0 else pad + 1
    arrays[name] = np.pad(arrays[name][2:], ((before, 0), (0, 0)), constant_values=9.0)
    save_file(arrays, folder / "model.safetensors")
    values = json.loads((folder / "config.json").read_text())
    values["max_position_embeddings"] = len(arrays[name])
    (folder / "config.json").write_text(json.dumps(values))


@pytest.mark.parametrize("family", ["Bert", "Ernie", "Electra", "Roberta", "MPNet"])
@pytest.mark.parametrize("declared", [1, 3])
def test_networks_of_paddlenlp(paddle_folder, family, declared, tmp_path):
    """Of folders as PaddleNLP and earlier versions of nlpctl wrote them; [CLS] is 1, and 3 is in no text."""
    from paddlenlp import transformers

    folder = paddle_folder(family, "ForSequenceClassification", pad_token_id=declared)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    model = load_trained(folder, CLASSIFIER)
    ids = batch_of(model.tokenizer, ("a", "a b c d e f g"))
    expected = answers(model.network, ids)
    np.testing.assert_allclose(answers(model.network, ids[:1, :3]), expected[:1], atol=1e-5)
    assert model.network.config.pad_token_id == 0

    # PaddleNLP's own, told what is padding: positions are as they were.
    theirs = vars(transformers)[f"{family}ForSequenceClassification"].from_pretrained(str(folder))
    theirs.eval()
    embeddings = theirs.base_model.embeddings
    for each in (embeddings.word_embeddings, embeddings.position_embeddings):
        each._padding_idx = -1  # Paddle gives 0 for that row, whatever it holds
    mask = paddle.to_tensor(ids != 0).astype("int64")
    if family not in ("Bert", "Ernie", "MPNet"):  # which take other masks than 0 and 1
        mask = ((1 - mask).astype("float32") * -1e4).unsqueeze([1, 2])
    logits = theirs(paddle.to_tensor(ids), attention_mask=mask)
    np.testing.assert_allclose((logits[0] if isinstance(logits, tuple) else logits).numpy(), expected, atol=1e-5)

    # What is saved says the tokenizer's, and is read to the same.
    recipe = load_recipe(folder, purpose="apply")
    save_model_folder(tmp_path / "saved", model.network, model.tokenizer, make_description(recipe, model.labels))
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["pad_token_id"] == 0
    again = load_trained(tmp_path / "saved", CLASSIFIER)
    np.testing.assert_array_equal(answers(again.network, ids), expected)


def test_padding_behind_all_positions(paddle_folder):
    folder = paddle_folder("Roberta", "ForSequenceClassification", pad_token_id=15)
    with pytest.raises(UserError, match="pad_token_id is 15, and positions begin behind it, but there are only 16"):
        load_trained(folder, CLASSIFIER)


def test_a_table_of_positions_that_is_none(tmp_path):
    folder = changed(ENCODERS / "xlm-roberta", tmp_path / "model", 0)
    arrays = load_file(folder / "model.safetensors")
    name = "roberta.embeddings.position_embeddings.weight"
    save_file({**arrays, name: arrays[name].ravel()}, folder / "model.safetensors")
    with pytest.raises(UserError, match="position_embeddings.weight is .* in the file and"):
        load_trained(folder, CLASSIFIER)


def test_padding_that_moves_in_a_smaller_vocabulary(paddle_folder):
    """compress prune_embeddings: positions begin behind it, and every token keeps its own."""
    folder = paddle_folder("Roberta", "ForSequenceClassification", pad_token_id=5)
    network = load_network_of(folder)
    rows = [0, 1, 2, 4, 5, 8, 9]  # without [UNK]: padding is 4 now
    task = SimpleNamespace(recipe=None, head=lambda recipe: CLASSIFIER)
    small = _with_rows(network, rows, task, str(folder))
    assert small.config.pad_token_id == 4
    ids = np.array([[1, 8, 9, 9, 2]])
    places = np.array([[rows.index(each) for each in row] for row in ids])
    np.testing.assert_allclose(answers(small, places), answers(network, ids), atol=1e-6)


def load_network_of(folder: Path):
    """With the padding of config.json."""
    from paddlenlp.transformers import RobertaForSequenceClassification

    return RobertaForSequenceClassification.from_pretrained(str(folder))


def test_member_of_an_ensemble():
    """Of an earlier version, which saved the member's own pad_token_id."""
    sizes = {"vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    member = {**sizes, "intermediate_size": 8, "model_type": "bert", "pad_token_id": 3}
    config = EnsembleConfig([member], vocab_size=9, pad_token_id=0, id2label={0: "a", 1: "b"})
    assert EnsembleForSequenceClassification(config).members[0].network.config.pad_token_id == 0


def test_layout_of_transformers(tmp_path):
    """Whose positions begin behind pad_token_id as well."""
    folder = changed(ENCODERS / "xlm-roberta", tmp_path / "model", 0)
    as_transformers_reads_it(folder, 0)
    recipe = load_recipe(folder, purpose="apply")
    request = ExportRequest()
    export(recipe, find_trained_model(recipe), request, output=tmp_path / "written", layout="transformers")
    assert json.loads((tmp_path / "written" / "config.json").read_text())["pad_token_id"] == 1
    right = load_trained(ENCODERS / "xlm-roberta", CLASSIFIER)
    ids = batch_of(right.tokenizer, TEXTS)
    written = load_trained(tmp_path / "written", CLASSIFIER)
    np.testing.assert_allclose(answers(written.network, ids), answers(right.network, ids), atol=1e-5)


def test_in_both_engines(tmp_path):
    folder = changed(ENCODERS / "convbert", tmp_path / "model", 5)
    model = load_trained(folder, CLASSIFIER)
    ids = batch_of(model.tokenizer, TEXTS)
    expected = answers(load_trained(ENCODERS / "convbert", CLASSIFIER).network, ids)
    write_paddle_graph(model.network, {"input_ids": ids}, ("logits",), tmp_path / "model")
    write_onnx_graph(tmp_path / "model", tmp_path / "model.onnx", model.network.config.pad_token_id)
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"input_ids": ids})[0], expected, atol=1e-5)
    graph = Graph("paddle", "fp32", paddle_files("model"))
    inputs, outputs = TensorSpec("input_ids", "int64", (None, None)), TensorSpec("logits", "float32", (None, 3))
    manifest = ExportManifest("sequence_classification", (inputs,), (outputs,), 80, (graph,), 0, "", {})
    engine = PaddlePredictor(tmp_path, manifest, graph, "fp32", ProcessSetup("cpu", threads=1, rank=0, world_size=1))
    np.testing.assert_allclose(engine.outputs({"input_ids": ids})[0], expected, atol=1e-5)
