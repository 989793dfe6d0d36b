"""Every family in Hugging Face's layout against what Transformers computed (scripts/make_encoder_fixtures.py)."""

import json
import shutil
from pathlib import Path

import numpy as np
import paddle
import pytest

from nlpctl.config.load import load_recipe
from nlpctl.data.text.tokenizers import build_encoder
from nlpctl.data.text.units import UnitSettings, UnitTokenizer
from nlpctl.errors import UserError
from nlpctl.formats.program import read_program
from nlpctl.graphs.to_static import write_paddle_graph
from nlpctl.models.assign import Rules, assign
from nlpctl.models.families import Head, family_of_config
from nlpctl.models.huggingface_layout import computed_tables, config_to_huggingface, to_huggingface, to_paddle
from nlpctl.models.load import load_trained
from nlpctl.models.network import build_network, make_config
from nlpctl.models.networks import encoders
from nlpctl.models.source import read_config
from nlpctl.models.tokenizer import export_tokenizer, load_tokenizer, needs_paddlenlp
from nlpctl.models.weights import read_weights_file
from nlpctl.training.fast_cpu import fast_cpu

ENCODERS = Path(__file__).parent / "encoders"
FAMILIES = [
    "albert", "convbert", "deberta-v2", "deberta-v3", "distilbert", "modernbert", "mpnet", "nezha", "roformer",
    "xlm-roberta",
]  # fmt: skip
LABELS = ("neg", "mid", "pos")
CLASSIFIER = Head("SequenceClassification")
STRICT = Rules(keep_head=True, head_may_be_fresh=False, layers_kept=None, tolerate_surplus=False)


def network_of(folder, head=CLASSIFIER, arrays=None, rules=STRICT):
    values = read_config(folder)
    family = family_of_config(values, "config.json")
    labels = LABELS if head.labelled else ()
    network = build_network(family, head, make_config(family, values, labels, {}), "config.json")
    stored = arrays or read_weights_file(folder / "model.safetensors").arrays
    assign(network, family.prefix, to_paddle(stored, family.model_type, "", head.name), rules, "")
    network.eval()
    return network


def expected_of(folder):
    return dict(np.load(folder / "expected.npz"))


def rows_of(ids, lengths):
    return np.split(ids, np.cumsum(lengths)[:-1])


def padded(rows, pad_id):
    longest = max(map(len, rows))
    return np.stack([np.pad(row, (0, longest - len(row)), constant_values=pad_id) for row in rows]).astype("int64")


def hidden_of(network, ids):
    states = network._sub_layers[network.base_model_prefix](paddle.to_tensor(ids))
    return (states[0] if isinstance(states, tuple) else states).numpy()


def tolerance(name):
    """The largest difference that the order of sums makes, which depends on the processor.

    Some states of the small ModernBERT have little variance before they are normalised: weights that differ by half a
    unit of their last bit move these by 1e-5, and processors of AMD by 1.8e-5.
    """
    return 4e-5 if name == "modernbert" else 1e-5


@pytest.mark.parametrize("name", FAMILIES)
def test_same_states_and_logits_as_transformers(name):
    """Of 50 hard texts, all in one batch with padding: what Transformers computes of each alone."""
    folder = ENCODERS / name
    network, expected = network_of(folder), expected_of(folder)
    ids = padded(rows_of(expected["ids"], expected["lengths"]), network.config.pad_token_id)
    hidden = np.concatenate(
        [states[:length] for states, length in zip(hidden_of(network, ids), expected["lengths"], strict=True)]
    )
    np.testing.assert_allclose(hidden, expected["hidden"], atol=tolerance(name))
    np.testing.assert_allclose(network(paddle.to_tensor(ids)).numpy(), expected["logits"], atol=tolerance(name))


@pytest.mark.parametrize("name", FAMILIES)
def test_pairs_as_transformers(name):
    folder = ENCODERS / name
    network, expected = network_of(folder), expected_of(folder)
    lengths = expected["pair_lengths"]
    ids = padded(rows_of(expected["pair_ids"], lengths), network.config.pad_token_id)
    inputs = {"input_ids": paddle.to_tensor(ids)}
    if expected["pair_types"].any():
        inputs["token_type_ids"] = paddle.to_tensor(padded(rows_of(expected["pair_types"], lengths), 0))
    np.testing.assert_allclose(network(**inputs).numpy(), expected["pair_logits"], atol=tolerance(name))


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "distilbert"])
def test_words_as_transformers(name):
    """The masked language model on the same encoder."""
    folder = ENCODERS / name
    expected = expected_of(folder)
    stored = dict(read_weights_file(folder / "model.safetensors").arrays)
    encoder = {key: array for key, array in stored.items() if not key.startswith(("classifier.", "pooler."))}
    head = dict(np.load(folder / "word_head.npz"))
    network = network_of(folder, Head("MaskedLM", labelled=False, predicts_words=True), encoder | head)
    rows = rows_of(expected["ids"], expected["lengths"])[4:6]
    logits = [network(paddle.to_tensor(row[None].astype("int64"))).numpy()[0] for row in rows]
    np.testing.assert_allclose(np.concatenate(logits), expected["word_logits"], atol=2e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_ids_as_transformers(name):
    """Of the same texts, from a folder that is loaded as any model is."""
    folder, expected = ENCODERS / name, expected_of(ENCODERS / name)
    texts = json.loads((ENCODERS / "texts.json").read_text(encoding="utf-8"))
    model = load_trained(folder, CLASSIFIER)
    assert model.labels == LABELS and not model.fresh
    encoder = build_encoder(model.tokenizer)
    assert encoder.kind == ("paddlenlp" if name == "roformer" else "library")
    rows = rows_of(expected["ids"], expected["lengths"])
    assert len(texts) == len(rows) == 50
    for text, row in zip(texts, rows, strict=True):
        if text in SPELLED or (encoder.kind == "paddlenlp" and text in OF_SYMBOLS):
            continue
        assert encoder.encode([text], None, 40)[0].input_ids == row.tolist(), text


# What a text spells of special tokens is text here, and the token itself in Transformers.
SPELLED = ("[CLS] [SEP] <s> </s> <mask>", "[MASK]")
# PaddleNLP's WordPiece, which RoFormer has, takes every symbol for a word.
OF_SYMBOLS = ("e=mc²", "🙂🙂🙂", "👍🏽 great 👨\u200d👩\u200d👧", "🇨🇳 flag")


@pytest.mark.parametrize("name", FAMILIES)
def test_back_in_the_layout_of_transformers(name):
    """What Transformers wrote, read and written again, is the same: names, values, config."""
    folder = ENCODERS / name
    network = network_of(folder)
    arrays = {key: array.numpy() for key, array in network.state_dict().items()}
    family = read_config(folder)["model_type"]
    written = to_huggingface(arrays, family, "SequenceClassification", "")
    stored = read_weights_file(folder / "model.safetensors").arrays
    assert written.keys() == stored.keys() - {"roformer.encoder.embed_positions.weight"}
    for key, array in written.items():
        np.testing.assert_array_equal(array, stored[key], err_msg=key)
    config = config_to_huggingface(vars(network.config), "SequenceClassification", "")
    values = json.loads((folder / "config.json").read_text())
    if name == "xlm-roberta":  # the same network
        values |= {"model_type": "roberta", "architectures": ["RobertaForSequenceClassification"]}
    ours = {key: config[key] for key in config if key in values and key not in ("id2label", "label2id")}
    assert ours == {key: values[key] for key in ours}
    assert len(ours) > 12


def test_positions_of_mpnet_with_another_padding(tmp_path):
    """Transformers does not count tokens with the id 1, though that is another word than padding."""
    folder = Path(shutil.copytree(ENCODERS / "mpnet", tmp_path / "model"))
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | {"pad_token_id": 0}))
    logits = network_of(folder)(paddle.to_tensor([[7, 1, 9, 1, 1, 33, 2, 0, 0]])).numpy()
    np.testing.assert_allclose(logits, [[0.506553, 0.763546, 0.060407]], atol=1e-5)  # of Transformers 5.24


def test_mpnet_of_an_earlier_run_counts_as_it_was_trained():
    """Its config.json does not say as_transformers: it counts every token."""
    sizes = dict.fromkeys(("hidden_size", "intermediate_size", "vocab_size"), 8) | {"num_attention_heads": 2}
    ids = paddle.to_tensor([[7, 1, 5]])
    for config, expected in (({}, [2, 3, 4]), ({"as_transformers": True}, [2, 1, 3])):
        network = encoders.HFMPNetModel(encoders.HFMPNetConfig(**sizes, num_hidden_layers=1, **config))
        assert network.embeddings.places(ids, network.first_position).tolist() == [expected]


def test_table_of_sines_of_roformer():
    """Written, since Transformers looks for it; read only where it has the values that are computed here."""
    folder, name = ENCODERS / "roformer", "roformer.encoder.embed_positions.weight"
    stored = dict(read_weights_file(folder / "model.safetensors").arrays)
    written = computed_tables(vars(network_of(folder).config), "SequenceClassification")
    np.testing.assert_allclose(written[name], stored[name], atol=1e-6)
    assert list(computed_tables(vars(network_of(folder).config), "Model")) == [name.removeprefix("roformer.")]
    assert computed_tables(read_config(ENCODERS / "mpnet"), "Model") == {}
    network_of(folder, arrays=stored | {name: stored[name].astype(np.float16)})
    for other in (stored[name] + 0.1, stored[name][:, 1:], stored[name][0]):
        with pytest.raises(UserError, match=f"{name} has other values than the sines of positions"):
            network_of(folder, arrays=stored | {name: other})


def test_camembert_is_xlm_roberta(tmp_path):
    folder = Path(shutil.copytree(ENCODERS / "xlm-roberta", tmp_path / "model"))
    values = json.loads((folder / "config.json").read_text())
    classes = ["CamembertForSequenceClassification"]
    (folder / "config.json").write_text(json.dumps(values | {"model_type": "camembert", "architectures": classes}))
    assert read_config(folder) == {**read_config(ENCODERS / "xlm-roberta"), "architectures": classes}
    network_of(folder)


def test_grouped_feed_forward_of_convbert_is_refused(tmp_path):
    folder = Path(shutil.copytree(ENCODERS / "convbert", tmp_path / "model"))
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | {"num_groups": 2}))
    with pytest.raises(UserError, match="num_groups is 2: nlpctl knows ConvBERT with plain"):
        network_of(folder)


DEBERTA = [0, 1, 7, 8, 9, 15, 16, 31, 32, 63, 64, 127, 128, 129, 192, 192, 229, 255]
MPNET = [0, 1, 7, 8, 8, 9, 10, 11, 12, 13, 14, 15, 15, 15, 15, 15, 15, 15]


def test_distances_of_the_published_sizes():
    """What Transformers counts as the same distance, at places where rounding decides."""
    apart = np.arange(-511, 512)
    at = [0, 1, 7, 8, 9, 15, 16, 31, 32, 63, 64, 127, 128, 129, 255, 256, 384, 511]
    buckets = dict(zip(apart.tolist(), encoders._deberta_buckets(apart, 256, 512).tolist(), strict=True))
    assert [buckets[distance] for distance in at] == DEBERTA
    assert all(buckets[-distance] == -buckets[distance] for distance in at)
    buckets = dict(zip(apart.tolist(), encoders._mpnet_buckets(apart).tolist(), strict=True))
    assert [buckets[-distance] for distance in at] == MPNET
    assert all(buckets[distance] == 16 + buckets[-distance] for distance in at[1:])


# What a step computes with training.fast_cpu, and without: with dropout off the same.


def gradients_of(network, ids):
    network.train()
    for layer in network.sublayers():
        for name in ("p", "dropout"):
            if isinstance(getattr(layer, name, None), float):
                setattr(layer, name, 0.0)
    logits = network(paddle.to_tensor(ids))
    paddle.nn.functional.cross_entropy(logits, paddle.to_tensor([index % 3 for index in range(len(ids))])).backward()
    return {name: each.grad.numpy() for name, each in network.named_parameters() if each.grad is not None}


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_with_fast_functions(name, tmp_path):
    (tmp_path / "train.tsv").write_text("text\tlabel\na\t0\n", encoding="utf-8")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "task: sequence_classification\nmodel: {from_scratch: {architecture: ernie}}\ndata: {train: train.tsv}\n",
        encoding="utf-8",
    )
    folder, expected = ENCODERS / name, expected_of(ENCODERS / name)
    network = network_of(folder)
    ids = padded(rows_of(expected["ids"], expected["lengths"])[:12], network.config.pad_token_id)
    paddles = gradients_of(network, ids)
    network = network_of(folder)
    with fast_cpu(load_recipe(recipe), "cpu", network):
        found = gradients_of(network, ids)
    assert found.keys() == paddles.keys() and len(found) > 30
    for key, gradient in paddles.items():
        assert np.abs(gradient).max() > 0 or key.endswith("k_proj.bias"), key
        np.testing.assert_allclose(found[key], gradient, rtol=1e-3, atol=2e-5, err_msg=key)


@pytest.mark.parametrize("name", ["convbert", "deberta-v2", "modernbert", "mpnet", "nezha", "roformer"])
@pytest.mark.parametrize("declared", [{}, {"tokenizer_class": "PreTrainedTokenizerFast"}])
def test_tokenizer_without_a_class(name, declared, tmp_path):
    """Of a vocabulary of WordPiece: by the family."""
    family = family_of_config(read_config(ENCODERS / name), "")
    words = ENCODERS / ("nezha" if name == "modernbert" else name)  # some are trained with a vocabulary of BERT
    right = load_tokenizer(words, family)
    shutil.copyfile(words / "tokenizer.json", tmp_path / "tokenizer.json")
    settings = json.loads((words / "tokenizer_config.json").read_text())
    settings.pop("tokenizer_class")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings | declared))
    found = load_tokenizer(tmp_path, family)
    for text in ("the quick brown fox", "Good GOOD bad"):
        ids = [build_encoder(each).encode([text], None, 30)[0].input_ids for each in (found, right)]
        assert ids[0] == ids[1] and len(ids[0]) > 4


def test_whether_an_export_needs_paddlenlp_is_told_before_it_is_opened(tmp_path):
    """A RoFormer's tokenizer.json does not say that its words are those of jieba."""
    for name in ("roformer", "nezha"):
        kind = type(export_tokenizer(ENCODERS / name)).__name__
        assert needs_paddlenlp(ENCODERS / name) is (kind == "RoFormerTokenizer") is (name == "roformer")


def test_units_are_read_as_such_in_a_folder_as_in_an_export(tmp_path):
    """Whatever the network, and the other files there."""
    shutil.copyfile(ENCODERS / "nezha" / "tokenizer.json", tmp_path / "tokenizer.json")
    UnitTokenizer(["[PAD]", "[UNK]", "[SEP]", "a", "b"], UnitSettings()).save_pretrained(tmp_path)
    family = family_of_config({"model_type": "bert"}, "")
    assert load_tokenizer(tmp_path, family).ids("ab") == export_tokenizer(tmp_path).ids("ab") == [3, 4]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"is_decoder": True}, "is_decoder is True: the Bert network here computes as with False only"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'.*'absolute' only"),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, "rope_scaling is .* as with None only"),
        ({"add_cross_attention": True}, "add_cross_attention is True"),
        ({"hidden_act": "softmax"}, "(?s)hidden_act is 'softmax': Bert networks here compute gelu.*another model"),
    ],
)
def test_what_computes_otherwise_in_transformers_is_refused(values, told, tmp_path):
    folder = Path(shutil.copytree(Path(__file__).parent / "huggingface" / "bert-classifier", tmp_path / "model"))
    before = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(before | values))
    with pytest.raises(UserError, match=told):
        load_trained(folder, CLASSIFIER)


TABLES = {
    "albert": "predictions.decoder.weight", "convbert": "generator_lm_head.weight", "modernbert": "decoder.weight",
    "mpnet": "lm_head.decoder.weight", "nezha": "cls.predictions.decoder.weight",
    "xlm-roberta": "lm_head.decoder.weight",
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_a_language_model_that_is_not_tied(name):
    """Words are scored by their embedding: other weights for that are refused, the same ones are no leftover."""
    folder = ENCODERS / name
    stored = dict(read_weights_file(folder / "model.safetensors").arrays)
    encoder = {key: array for key, array in stored.items() if not key.startswith(("classifier.", "pooler."))}
    arrays = encoder | dict(np.load(folder / "word_head.npz"))
    embedding = ("word_embeddings.weight", "tok_embeddings.weight")
    table = next(array for key, array in stored.items() if key.endswith(embedding))
    head = Head("MaskedLM", labelled=False, predicts_words=True)
    network_of(folder, head, arrays | {TABLES[name]: table})
    with pytest.raises(UserError, match=f"{TABLES[name]} has other values than the word embedding"):
        network_of(folder, head, arrays | {TABLES[name]: table + 5})


def test_a_tied_layer_of_paddlenlp_with_values_of_its_own(paddle_folder):
    folder = paddle_folder("Roberta", "ForMaskedLM")
    arrays = dict(read_weights_file(folder / "model_state.pdparams").arrays)
    family = family_of_config(read_config(folder), "")
    network = family.network_class(Head("MaskedLM"), "")(make_config(family, read_config(folder), (), {}))
    name = "lm_head.decoder.weight"
    arrays[name] = np.array(arrays["roberta.embeddings.word_embeddings.weight"])
    assert name not in assign(network, "roberta", arrays, STRICT, "").ignored
    with pytest.raises(UserError, match=f"{name} has other values than roberta.embeddings.word_embeddings.weight"):
        assign(network, "roberta", arrays | {name: arrays[name] + 1}, STRICT, "")


@pytest.mark.parametrize("name", FAMILIES)
def test_graphs_for_the_fast_code_of_onednn(name, tmp_path):
    """Of a sum or product of four axes one side is stretched at most, and not along the last axis alone, nor the first
    and the third: else oneDNN goes from one number to the next, for most of a network's time (docs/upstream.md)."""
    ids = np.ones((2, 8), "int64")
    write_paddle_graph(network_of(ENCODERS / name), {"input_ids": ids}, ["logits"], tmp_path / "model")
    program = read_program(tmp_path / "model.pdmodel")
    for operator in program.operators:
        if operator.type.startswith("elementwise_"):
            one, other = (program.variables[operator.inputs[slot][0]].shape for slot in "XY")
            if len(one) == len(other) == 4:
                pairs = ((one, other), (other, one))
                stretched = [{axis for axis in range(4) if y[axis] == 1 != x[axis]} for x, y in pairs]
                assert set() in stretched, (operator.type, one, other)
                assert max(stretched, key=len) not in ({3}, {1, 3}, {0, 2}), (operator.type, one, other)
