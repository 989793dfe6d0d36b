"""Models of Paddle 1.x: their names, their one file per variable, their programs of old operators."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from nlpctl.config.schema import ModelSection
from nlpctl.convert.convert_static import (
    ConversionAmbiguous,
    ConversionFailed,
    ConversionRequest,
    Converted,
    convert_static,
    plan_static,
)
from nlpctl.errors import UserError
from nlpctl.models.families import Head
from nlpctl.models.load import load_to_train
from nlpctl.models.source import WEIGHTS
from nlpctl.models.weights import read_weights_file


def _load_old_ernie():
    """The module beside this file; tests are no package."""
    file = Path(__file__).with_name("old_ernie.py")
    spec = importlib.util.spec_from_file_location("old_ernie", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules["old_ernie"] = module
    spec.loader.exec_module(module)
    return module


old_ernie = _load_old_ernie()
# Where some of ERNIE 1.0's variables belong, written down again here: not by the map that is tested.
PLACES = {
    "word_embedding": "embeddings.word_embeddings.weight",
    "pos_embedding": "embeddings.position_embeddings.weight",
    "sent_embedding": "embeddings.token_type_embeddings.weight",
    "pre_encoder_layer_norm_scale": "embeddings.layer_norm.weight",
    "encoder_layer_11_multi_head_att_query_fc.w_0": "encoder.layers.11.self_attn.q_proj.weight",
    "encoder_layer_11_multi_head_att_key_fc.b_0": "encoder.layers.11.self_attn.k_proj.bias",
    "encoder_layer_0_multi_head_att_value_fc.w_0": "encoder.layers.0.self_attn.v_proj.weight",
    "encoder_layer_10_multi_head_att_output_fc.w_0": "encoder.layers.10.self_attn.out_proj.weight",
    "encoder_layer_1_post_att_layer_norm_scale": "encoder.layers.1.norm1.weight",
    "encoder_layer_1_post_ffn_layer_norm_bias": "encoder.layers.1.norm2.bias",
    "encoder_layer_2_ffn_fc_0.w_0": "encoder.layers.2.linear1.weight",
    "encoder_layer_2_ffn_fc_1.b_0": "encoder.layers.2.linear2.bias",
    "pooled_fc.w_0": "pooler.dense.weight",
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "ernie_config.json"
    file.write_text(json.dumps(old_ernie.CONFIG))
    return file


def request(source: Path, to: Path, class_name: str = "ErnieModel", **more) -> ConversionRequest:
    return ConversionRequest(str(source), str(to), class_name=class_name, **more)


def assert_all_there(done: Converted, arrays: dict[str, np.ndarray], how: str, prefix: str = "") -> None:
    report = done.report
    assert report.complete and not report.unused and not report.fresh
    assert {row.how for row in report.matched} == {how} and len(report.matched) == report.parameters
    written = read_weights_file(done.output / WEIGHTS).arrays
    assert len(written) == len(arrays)
    for variable, parameter in PLACES.items():
        np.testing.assert_array_equal(written[prefix + parameter], arrays[variable])
    by_variable = {row.variables: row.parameter for row in report.matched}
    assert len(by_variable) == len(arrays)  # no variable twice


@pytest.mark.parametrize("prefix", ["", old_ernie.HUB])
def test_ernie_1_0_with_map_auto(tmp_path, config, prefix):
    arrays = old_ernie.parameters()
    source = old_ernie.write_folder(tmp_path / "params", arrays, prefix)
    done = convert_static(request(source, config), tmp_path / "ernie")
    assert_all_there(done, arrays, "built-in map ernie")
    assert done.report.layout == "one file per variable" and done.report.parameters == 5 + 12 * 16 + 2
    assert done.report.proof.reason == "the source has no program to run"


def test_the_program_of_old_operators_proves_it(tmp_path, config):
    arrays = old_ernie.parameters()
    source = old_ernie.write_folder(tmp_path / "params", arrays)
    old_ernie.write_program(source)
    proof = convert_static(request(source, config), tmp_path / "ernie").report.proof
    assert proof.holds and proof.epsilon == pytest.approx(1e-5)
    assert [each.shape for each in proof.outputs] == [(3, 13, old_ernie.HIDDEN), (3, old_ernie.HIDDEN)]
    assert set(proof.inputs) == {"src_ids", "pos_ids", "sent_ids", "input_mask"}


def test_a_map_that_exchanges_query_and_key_is_disproved(tmp_path, config):
    source = old_ernie.write_folder(tmp_path / "params", old_ernie.parameters())
    old_ernie.write_program(source)
    wrong = tmp_path / "wrong.yaml"
    att = "ernie.encoder.layers.{n}.self_attn"
    wrong.write_text(
        f"rules:\n- static: encoder_layer_{{n}}_multi_head_att_query_fc.w_0\n  dygraph: '{att}.k_proj.weight'\n"
        f"- static: encoder_layer_{{n}}_multi_head_att_key_fc.w_0\n  dygraph: '{att}.q_proj.weight'\n"
    )
    with pytest.raises(ConversionFailed, match="differ by") as failed:
        convert_static(request(source, config, map_name=str(wrong)), tmp_path / "ernie")
    assert failed.value.exit_code == 1 and failed.value.report.proof.fails
    assert not (tmp_path / "ernie").exists()


@pytest.mark.slow
def test_without_any_known_name_the_place_in_the_graph_tells(tmp_path, config):
    """Another program than PaddleNLP's network makes, with names that say nothing, in no order."""
    arrays = old_ernie.parameters()
    order = np.random.default_rng(1).permutation(len(arrays))
    rename = {name: f"v{number}" for name, number in zip(arrays, order, strict=True)}
    source = old_ernie.write_folder(tmp_path / "params", {rename[name]: array for name, array in arrays.items()})
    old_ernie.write_program(source, rename)
    done = convert_static(request(source, config), tmp_path / "ernie")
    assert_all_there(done, arrays, "place in the graph")
    assert done.report.proof.holds


def test_the_encoder_trains_on(tmp_path, config):
    """The folder is what model.name_or_path takes: only the new task's head is new."""
    arrays = old_ernie.parameters()
    source = old_ernie.write_folder(tmp_path / "params", arrays)
    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", *(chr(0x4E00 + index) for index in range(35))]
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\t{i}\n" for i, word in enumerate(words)), encoding="utf-8")
    done = convert_static(request(source, config, vocabulary=tmp_path / "vocab.txt"), tmp_path / "ernie")
    assert done.usable and done.task is None
    model = ModelSection(name_or_path=str(tmp_path / "ernie"))
    loaded = load_to_train(model, Head("SequenceClassification"), ("a", "b"), vocabulary_texts=None)
    assert set(loaded.fresh) == {"classifier.weight", "classifier.bias"} and not loaded.ignored
    word = loaded.network.state_dict()["ernie.embeddings.word_embeddings.weight"].numpy()
    np.testing.assert_array_equal(word, arrays["word_embedding"])
    assert loaded.tokenizer.convert_tokens_to_ids([chr(0x4E00 + 7)]) == [12]


def test_ernie_2_0_has_a_task_embedding(tmp_path, config):
    arrays = old_ernie.parameters(tasks=3)
    source = old_ernie.write_folder(tmp_path / "params", arrays)
    values = {**old_ernie.CONFIG, "sent_type_vocab_size": 2, "task_type_vocab_size": 3}
    del values["type_vocab_size"]
    config.write_text(json.dumps(values))
    done = convert_static(request(source, config), tmp_path / "ernie")
    assert_all_there(done, arrays, "built-in map ernie")
    written = read_weights_file(tmp_path / "ernie" / WEIGHTS).arrays
    np.testing.assert_array_equal(written["embeddings.task_type_embeddings.weight"], arrays["task_embedding"])


@pytest.mark.parametrize(("family", "prefix"), [("Bert", "bert."), ("Ernie", "ernie.")])
def test_a_classifier_with_a_number_of_labels_that_only_the_source_knows(tmp_path, config, family, prefix):
    arrays = old_ernie.parameters(classes=7)
    source = old_ernie.write_folder(tmp_path / "params", arrays)
    done = convert_static(request(source, config, f"{family}ForSequenceClassification"), tmp_path / "model")
    assert_all_there(done, arrays, f"built-in map {family.lower()}", prefix)
    assert done.report.labels == tuple(f"LABEL_{index}" for index in range(7))
    assert len(json.loads((tmp_path / "model" / "config.json").read_text())["id2label"]) == 7


def test_roberta_classifies_through_what_was_the_pooler(tmp_path, config):
    arrays = old_ernie.parameters(classes=2)
    source = old_ernie.write_folder(tmp_path / "params", arrays)
    done = convert_static(request(source, config, "RobertaForSequenceClassification"), tmp_path / "model")
    assert done.report.complete and not done.report.unused
    written = read_weights_file(tmp_path / "model" / WEIGHTS).arrays
    np.testing.assert_array_equal(written["classifier.dense.weight"], arrays["pooled_fc.w_0"])
    np.testing.assert_array_equal(written["classifier.out_proj.bias"], arrays["cls_out_b"])


def test_the_same_variable_with_and_without_a_prefix_is_ambiguous(tmp_path, config):
    arrays = old_ernie.parameters()
    source = old_ernie.write_folder(tmp_path / "params", {**arrays, f"{old_ernie.HUB}pooled_fc.b_0": np.ones(16, "f4")})
    with pytest.raises(ConversionAmbiguous, match=r"pooler.dense.bias: 2 candidates.*@HUB_ernie@pooled_fc.b_0") as told:
        convert_static(request(source, config), tmp_path / "ernie")
    assert told.value.exit_code == 2 and len(told.value.problems) == 1
    assert not (tmp_path / "ernie").exists()
    # the plan shows both, and is a map once one is chosen
    plan = tmp_path / "plan.yaml"
    report = plan_static(request(source, config), plan)
    assert [row.parameter for row in report.ambiguous] == ["pooler.dense.bias"]
    text = plan.read_text()
    chosen = '# - static: pooled_fc.b_0\n#   dygraph: pooler.dense.bias'
    assert chosen in text and '# - static: "@HUB_ernie@pooled_fc.b_0"' in text
    plan.write_text(text.replace(chosen, chosen.replace("# ", "", 1).replace("#  ", " ", 1)))
    done = convert_static(request(source, config, map_name=str(plan)), tmp_path / "ernie")
    assert done.report.complete and done.report.ways == {"map": len(arrays)}


@pytest.mark.slow
def test_what_is_missing_fails_unless_it_is_allowed(tmp_path, config):
    arrays = old_ernie.parameters()
    source = old_ernie.write_folder(tmp_path / "params", arrays)
    wanted = request(source, config, "ErnieForTokenClassification")
    with pytest.raises(ConversionFailed, match="2 of 201 parameters have no value: classifier.weight and 1 more"):
        convert_static(wanted, tmp_path / "model")
    assert not (tmp_path / "model").exists()
    with pytest.raises(UserError, match="'clasifier' matches no parameter"):
        convert_static(dataclasses.replace(wanted, allow_missing=("clasifier",)), tmp_path / "model")
    done = convert_static(dataclasses.replace(wanted, allow_missing=("classifier",)), tmp_path / "model")
    assert [row.parameter for row in done.report.fresh] == ["classifier.weight", "classifier.bias"]
    assert done.task is None
    page = (tmp_path / "model" / "conversion.md").read_text()
    assert "new, as --allow-missing says" in page and "| classifier.weight | 16 x 2 |" in page
