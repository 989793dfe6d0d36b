import dataclasses
import inspect
import json
import re
import shutil
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from library_tokenizers import encoder, fallback_bpe
from safetensors.numpy import load_file, save_file
from tokenizers import processors

from nlpctl.config.load import load_recipe
from nlpctl.config.schema import ModelSection
from nlpctl.errors import UserError
from nlpctl.models.crf import with_crf
from nlpctl.models.families import Head, family_of_config
from nlpctl.models.folder import make_description, save_model_folder
from nlpctl.models.load import load_to_train, load_trained
from nlpctl.models.network import _UNREAD, max_positions
from nlpctl.models.tokenizer import agree_on_inputs, check_vocabulary

HEAD = Head("SequenceClassification")

FAMILIES = ["Bert", "Ernie", "Roberta", "Electra"]


def load(folder, labels=("neg", "pos"), **config):
    return load_to_train(ModelSection(name_or_path=str(folder), config=config), HEAD, labels, vocabulary_texts=None)


def description(labels=("neg", "pos"), trained=True):
    return dataclasses.replace(make_description(load_recipe("quickstart"), labels), trained=trained)


def state(network):
    return {name: parameter.numpy() for name, parameter in network.state_dict().items()}


@pytest.mark.parametrize("family", FAMILIES)
def test_bare_encoder(paddle_folder, family):
    folder = paddle_folder(family)
    stored = {name: value.numpy() for name, value in paddle.load(str(folder / "model_state.pdparams")).items()}
    model = load(folder)
    loaded = state(model.network)
    prefix = model.network.base_model_prefix
    kept = [name for name in stored if f"{prefix}.{name}" in loaded]
    assert len(kept) >= 37
    for name in kept:
        np.testing.assert_array_equal(loaded[f"{prefix}.{name}"], stored[name])
    assert model.fresh and all(name.startswith("classifier") for name in model.fresh)
    assert model.source.kind == "paddlenlp"


@pytest.mark.parametrize("family", FAMILIES)
def test_save_and_load_again(paddle_folder, tmp_path, family):
    model = load(paddle_folder(family), ("a", "b", "c"))
    save_model_folder(tmp_path / "out", model.network, model.tokenizer, description(("a", "b", "c")))
    again = load_trained(tmp_path / "out", HEAD)
    assert (again.labels, again.fresh, again.source.kind) == (("a", "b", "c"), (), "nlpctl")
    assert again.network.config.id2label == {0: "a", 1: "b", 2: "c"}
    for name, array in state(model.network).items():
        np.testing.assert_array_equal(state(again.network)[name], array)
    assert again.tokenizer.ids("abc xyz") == model.tokenizer.ids("abc xyz") != []


def test_logits_survive_the_round_trip_and_stock_from_pretrained_agrees(paddle_folder, tmp_path):
    from paddlenlp.transformers import ErnieForSequenceClassification

    model = load(paddle_folder("Ernie", use_task_id=True))
    save_model_folder(tmp_path / "out", model.network, model.tokenizer, description())
    ids = paddle.to_tensor([[1, 5, 6, 7, 2]])
    ours = load_trained(tmp_path / "out", HEAD).network
    stock = ErnieForSequenceClassification.from_pretrained(str(tmp_path / "out"))
    for network in (model.network, ours, stock):
        network.eval()
    np.testing.assert_array_equal(ours(ids).numpy(), model.network(ids).numpy())
    np.testing.assert_array_equal(stock(ids).numpy(), model.network(ids).numpy())


def test_warm_start_from_a_trained_folder(paddle_folder, tmp_path):
    model = load(paddle_folder())
    out = tmp_path / "out"
    save_model_folder(out, model.network, model.tokenizer, description())
    same = load(out)
    assert same.fresh == () and same.ignored == ()
    other = load(out, ("x", "y", "z"))
    assert other.fresh == ("classifier.weight", "classifier.bias")
    assert other.ignored == ("classifier.bias", "classifier.weight")
    swapped = load(out, ("pos", "neg"))
    assert swapped.fresh == () and swapped.extension.kept == ("pos", "neg")
    swapped_columns = state(model.network)["classifier.weight"][:, ::-1]
    np.testing.assert_array_equal(state(swapped.network)["classifier.weight"], swapped_columns)
    assert same.extension is None and other.extension is None
    for warm in (same, other, swapped):
        for name, array in state(model.network).items():
            if name.startswith("ernie."):
                np.testing.assert_array_equal(state(warm.network)[name], array)


def test_untrained_folder_is_refused_for_evaluation(paddle_folder, tmp_path):
    model = load(paddle_folder())
    save_model_folder(tmp_path / "out", model.network, model.tokenizer, description(trained=False))
    for folder in (tmp_path / "out", paddle_folder("Bert"), paddle_folder("Bert", "ForMaskedLM")):
        with pytest.raises(UserError, match="(?s)the task head was never trained.*nlpctl train"):
            load_trained(folder, HEAD)


def test_labels_that_do_not_fit_the_head(paddle_folder, tmp_path):
    model = load(paddle_folder())
    save_model_folder(tmp_path / "out", model.network, model.tokenizer, description(("a", "b", "c")))
    with pytest.raises(UserError, match=r"labels.json: names 3 labels, but the network was trained on 2"):
        load_trained(tmp_path / "out", HEAD)


def test_trained_paddlenlp_classifier(paddle_folder):
    trained = load_trained(paddle_folder("Bert", "ForSequenceClassification"), HEAD)
    assert trained.labels == ("LABEL_0", "LABEL_1") and trained.fresh == ()


@pytest.mark.parametrize("labels", [("neg", "pos"), ("pos", "neg")])
def test_a_head_without_names_is_kept_by_position(paddle_folder, labels):
    folder = paddle_folder("Bert", "ForSequenceClassification")
    stored = paddle.load(str(folder / "model_state.pdparams"), return_numpy=True)
    model = load(folder, labels)
    assert (model.labels, model.fresh, model.extension) == (labels, (), None)
    assert "is kept" in model.head_note and f"{labels[0]!r}, {labels[1]!r}" in model.head_note
    trained = load_trained(folder, HEAD, lambda own: labels)
    assert trained.labels == labels
    for network in (model.network, trained.network):
        np.testing.assert_array_equal(state(network)["classifier.weight"], stored["classifier.weight"])
        assert network.config.id2label == dict(enumerate(labels))


def test_a_tagger_that_gets_a_crf_tells_the_order_too(paddle_folder):
    folder, tags = paddle_folder("Ernie", "ForTokenClassification", num_labels=3), ("B-A", "I-A", "O")
    head = Head("TokenClassification", adapt=with_crf)
    model = load_to_train(ModelSection(name_or_path=str(folder)), head, tags, vocabulary_texts=None)
    assert model.fresh == ("crf.transitions",) and model.extension.kept == tags
    assert "in this order: 'B-A', 'I-A', 'O'" in model.head_note


def test_another_number_of_labels_begins_a_new_head(paddle_folder):
    model = load(paddle_folder("Bert", "ForSequenceClassification"), ("a", "b", "c"))
    assert model.fresh == ("classifier.weight", "classifier.bias")
    assert "has 2 outputs without names, and the data 3 labels: the head is new" in model.head_note


def test_names_in_the_config_count(paddle_folder):
    folder = paddle_folder("Ernie", "ForSequenceClassification", id2label={0: "neg", 1: "pos"})
    stored = paddle.load(str(folder / "model_state.pdparams"), return_numpy=True)
    model = load(folder, ("pos", "neg"))
    assert model.fresh == () and model.extension.kept == ("pos", "neg")
    np.testing.assert_array_equal(state(model.network)["classifier.weight"], stored["classifier.weight"][:, ::-1])
    other = load(folder, ("0", "1"))
    assert other.fresh == ("classifier.weight", "classifier.bias") and "other labels" in other.head_note


def test_a_plain_encoder_has_no_head_to_speak_of(paddle_folder):
    assert load(paddle_folder("Bert")).head_note is None
    assert load(paddle_folder("Bert", num_labels=3)).head_note is None


@pytest.mark.parametrize("names", [{"a": "neg", "b": "pos"}, {"0": "neg", "1": "neg"}])
def test_labels_that_are_none(paddle_folder, names):
    folder = paddle_folder("Bert", "ForSequenceClassification")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"id2label": names}))
    with pytest.raises(UserError, match="id2label in config.json: (the keys are not numbers|'neg' is there twice)"):
        load(folder)


def test_language_model(paddle_folder):
    model = load(paddle_folder("Ernie", "ForMaskedLM"))
    assert {"classifier.weight", "classifier.bias"} <= set(model.fresh)
    assert all(name.startswith(("classifier", "ernie.pooler")) for name in model.fresh)


def test_old_model_config_json(paddle_folder):
    folder = paddle_folder("Ernie")
    config = json.loads((folder / "config.json").read_text())
    for key in ("model_type", "architectures", "paddlenlp_version"):
        config.pop(key, None)
    old = {"init_args": [{**config, "init_class": "ErnieModel"}], "init_class": "ErnieForSequenceClassification"}
    (folder / "config.json").unlink()
    (folder / "model_config.json").write_text(json.dumps(old | {"num_classes": 4}))
    assert load(folder).network.ernie.config.hidden_size == 8


def test_incomplete_weights_of_a_paddle_folder(paddle_folder):
    folder = paddle_folder("Ernie")
    stored = paddle.load(str(folder / "model_state.pdparams"))
    del stored["encoder.layers.0.norm1.weight"]
    paddle.save(stored, str(folder / "model_state.pdparams"))
    with pytest.raises(UserError, match="(?s)1 of the encoder's .*encoder.layers.0.norm1.weight.*would stay random"):
        load(folder)


def test_cut_off_paddle_weights(paddle_folder):
    file = paddle_folder("Ernie") / "model_state.pdparams"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(UserError, match="model_state.pdparams: is cut off or damaged"):
        load(file.parent)


@pytest.mark.parametrize("name", _UNREAD)
def test_no_layer_reads_a_key_that_is_refused(name):
    module = family_of_config({"architectures": [f"{name}Model"]}, "config.json").module
    assert not re.search(rf"\b({'|'.join(_UNREAD[name])})\b", inspect.getsource(module))


def test_config_overrides(paddle_folder):
    model = load(paddle_folder(), hidden_dropout_prob=0.3, attention_probs_dropout_prob=0)
    assert model.network.ernie.embeddings.dropout.p == 0.3
    assert model.network.config.hidden_dropout_prob == 0.3


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"hidden_dropout": 0.1}, "(?s)model.config.hidden_dropout: no such key.*did you mean hidden_dropout_prob"),
        ({"num_labels": 3}, "model.config.num_labels: is set by nlpctl"),
        ({"output_attentions": True}, "model.config.output_attentions: is set by nlpctl"),
        # Of every config of PaddleNLP, or of this one, and no layer reads them.
        ({"is_decoder": True}, "(?s)config.is_decoder: cannot be changed in this network.*remove it; vocab_size"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings: cannot be changed"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps: cannot be changed"),
        ({"pool_act": "relu"}, "pool_act: cannot be changed"),
        ({"hidden_size": 16}, "parameters have another shape"),
        ({"num_attention_heads": 3}, "(?s)describes no Ernie network.*num_attention_heads"),
        ({"hidden_act": "gelu_fast"}, "hidden_act is 'gelu_fast': Ernie networks here compute gelu, relu"),
        ({"max_position_embeddings": 99}, r"position_embeddings.weight is \[16, 8\] in the file and \[99, 8\]"),
    ],
)
def test_bad_overrides(paddle_folder, config, message):
    with pytest.raises(UserError, match=message):
        load(paddle_folder(), **config)


def test_all_bad_override_keys_are_reported_at_once(paddle_folder):
    with pytest.raises(UserError) as caught:
        load(paddle_folder(), foo=1, bar=2)
    assert [problem.where for problem in caught.value.problems] == ["model.config.foo", "model.config.bar"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "bret"}, "(?s)no network family 'bret'.*did you mean bert"),
        ({}, "names no network"),
        ({"model_type": "blenderbot"}, "no BlenderbotForSequenceClassification"),
        ({"model_type": 3, "architectures": "x"}, "names no network"),
    ],
)
def test_bad_model_types(paddle_folder, config, message):
    folder = paddle_folder("Bert")
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=message):
        load(folder)


@pytest.mark.parametrize("value", ["eight", -1, None, 1.5, [8]])
def test_nonsense_in_the_config(paddle_folder, value):
    folder = paddle_folder("Bert")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_size": value}))
    with pytest.raises(UserError, match="the config describes no Bert network|have another shape|hidden_size is"):
        load(folder)


@pytest.mark.parametrize(("value", "message"), [("x", "vocab_size is 'x', which is no"), (10**12, "its file has")])
def test_a_vocabulary_size_that_is_none(paddle_folder, value, message):
    """The second claims all memory there is, in a few bytes."""
    folder = paddle_folder("Bert")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": value}))
    with pytest.raises(UserError, match=message):
        load(folder)


def test_vocabulary_longer_than_the_embedding(paddle_folder):
    folder = paddle_folder()
    with (folder / "vocab.txt").open("a") as file:
        file.write("l\nm\n")
    with pytest.raises(UserError, match="the vocabulary has 18 entries and the embedding only 16 rows"):
        load(folder)


def test_a_vocabulary_of_another_model_is_told(capsys):
    check_vocabulary(17_964, 18_000, "ernie")  # Paddle pads its vocabularies
    check_vocabulary(20, 64, "small")
    assert capsys.readouterr().err == ""
    check_vocabulary(5, 495, "--to ernie")
    told = "warning: --to ernie: the vocabulary has only 5 entries for the 495 rows of the embedding"
    assert told in " ".join(capsys.readouterr().err.split())


def test_damaged_tokenizer_files(paddle_folder):
    folder = paddle_folder()
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": tr')
    with pytest.raises(UserError, match="tokenizer_config.json: is not valid JSON"):
        load(folder)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "NoSuchTokenizer"}')
    assert load(folder).tokenizer.init_kwargs["tokenizer_class"] == "ErnieTokenizer"
    (folder / "vocab.txt").write_text("")
    with pytest.raises(UserError, match="vocab.txt: the vocabulary is empty"):
        load(folder)
    (folder / "vocab.txt").unlink()
    with pytest.raises(UserError, match="copy the tokenizer files of the model into it"):
        load(folder)


def test_special_tokens_as_objects(paddle_folder):
    folder = paddle_folder("Bert")
    specials = {"unk_token": {"content": "[UNK]", "lstrip": False}, "tokenizer_class": "BertTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(specials))
    assert load(folder).tokenizer.unk_token == "[UNK]"


def test_tokenizer_can_be_saved_after_its_folder_is_gone(paddle_folder, tmp_path):
    folder = paddle_folder()
    model = load(folder)
    shutil.rmtree(folder)
    save_model_folder(tmp_path / "out", model.network, model.tokenizer, description())
    assert load_trained(tmp_path / "out", HEAD).tokenizer.ids("abc") == model.tokenizer.ids("abc")


def test_second_network_has_the_same_parameter_names(paddle_folder):
    folder = paddle_folder()
    names = [[parameter.name for parameter in load(folder).network.parameters()] for _ in range(2)]
    assert names[0] == names[1]


def test_fresh_head_comes_from_the_seed(paddle_folder):
    folder = paddle_folder()
    heads = []
    for seed in (3, 3, 4):
        paddle.seed(seed)
        heads.append(load(folder).network.classifier.weight.numpy())
    np.testing.assert_array_equal(heads[0], heads[1])
    assert (heads[0] != heads[2]).any()


@pytest.mark.parametrize("family", [*FAMILIES, "ErnieM"])
def test_max_positions_is_the_longest_sequence_that_runs(paddle_folder, family):
    folder = paddle_folder(family)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    network = load(folder).network
    network.eval()
    longest = max_positions(network)
    assert longest == {"Roberta": 15, "ErnieM": 14}.get(family, 16)
    assert network(paddle.full([1, longest], 5, "int64")).shape == [1, 2]
    with pytest.raises(ValueError, match="out of range|expected >= 0 and <"):
        network(paddle.full([1, longest + 1], 5, "int64"))


def test_no_model_at_all():
    with pytest.raises(UserError, match="(?s)model: no model given.*from_scratch"):
        load_to_train(ModelSection(), HEAD, ("a", "b"), vocabulary_texts=None)


@pytest.mark.parametrize("family", ["TinyBert", "RoFormer", "Skep", "MegatronBert", "DistilBert"])
def test_other_families_of_paddlenlp(paddle_folder, family):
    """Whatever PaddleNLP can classify with loads, though only four families are converted from Hugging Face."""
    model = load(paddle_folder(family))
    model.network.eval()
    assert model.network(paddle.to_tensor([[1, 5, 6, 2]])).shape == [1, 2]
    assert model.fresh and not [name for name in model.fresh if "embeddings" in name or "encoder" in name]


def typed(folder, rows, second=1):
    """An encoder with `rows` token types, whose tokenizer gives the second text of a pair the type `second`."""
    library = fallback_bpe()
    ends = [("<s>", 0), ("</s>", 2)]
    pair = f"<s> $A </s> $B:{second} </s>:{second}"
    library.post_processor = processors.TemplateProcessing("<s> $A </s>", pair, ends)
    encoder(folder, library)
    arrays = load_file(folder / "model.safetensors")
    name = "bert.embeddings.token_type_embeddings.weight"
    save_file({**arrays, name: arrays[name][:rows]}, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "type_vocab_size": rows}), encoding="utf-8")
    return folder


def test_a_token_type_that_the_network_has_no_row_for(tmp_path):
    """Paddle would read beyond the table, or raise in the first batch with a pair."""
    assert load(typed(tmp_path / "both", 2)).tokenizer.model_input_names == ["input_ids", "token_type_ids"]
    with pytest.raises(UserError, match="gives tokens the type 2, and the network has 2 types"):
        load(typed(tmp_path / "other", 2, second=2))
    one = load(typed(tmp_path / "one", 1))  # as RoBERTa has it: all tokens are of it
    assert one.tokenizer.model_input_names == ["input_ids"]
    encoding = one.tokenizer.encoder().encode(["fine"], ["food"], 16)[0]
    assert one.network(paddle.to_tensor([encoding.input_ids])).shape == [1, 2] and not encoding.token_type_ids


@pytest.mark.parametrize("names", ["\0", "input_ids", [None], ["../secret.txt", "token_type_ids"], [], None])
def test_names_of_inputs_that_are_none(names):
    """Of a tokenizer_config.json. PaddleNLP takes them, and fails with the first text."""
    with pytest.raises(UserError, match="model_input_names is .*: it has to begin with input_ids"):
        agree_on_inputs(SimpleNamespace(model_input_names=names), None, "folder")
