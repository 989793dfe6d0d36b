"""Label extension: every value that belongs to a known label is where it belongs, all others are fresh."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn as nn
import pytest

from nlpctl.models.extend import extend_head


class Crf(nn.Layer):
    def __init__(self, labels):
        super().__init__()
        self.transitions = self.create_parameter([labels + 2, labels + 2])


class Tagger(nn.Layer):
    """The shape of a tagger: an encoder, a dense layer as wide as it is deep, an output layer, a CRF."""

    def __init__(self, labels, crf=True):
        super().__init__()
        self.encoder = nn.Linear(4, 4)
        self.dense = nn.Linear(4, 4)
        self.classifier = nn.Linear(4, labels)
        if crf:
            self.crf = Crf(labels)


def arrays(network):
    return {name: value.numpy().copy() for name, value in network.state_dict().items()}


OLD = ("B-LOC", "I-LOC", "O")
NEW = ("B-DATE", "B-LOC", "I-DATE", "O", "I-LOC")  # extended, and in another order


@pytest.fixture
def trained():
    paddle.seed(1)
    network = Tagger(len(OLD))
    for value in network.parameters():
        value.set_value(paddle.randn(value.shape))
    return arrays(network)


def test_known_labels_keep_their_rows_and_transitions(trained):
    network = Tagger(len(NEW))
    fresh = arrays(network)
    extension = extend_head(network, "encoder", trained, OLD, NEW)
    now = arrays(network)
    assert extension.kept == ("B-LOC", "O", "I-LOC")
    assert extension.new == ("B-DATE", "I-DATE")
    assert extension.dropped == ()
    old, new = [*OLD, "stop", "start"], [*NEW, "stop", "start"]
    for i, a in enumerate(new):
        known = a in old
        if i < len(NEW):
            source = trained["classifier.weight"][:, old.index(a)] if known else fresh["classifier.weight"][:, i]
            assert np.array_equal(now["classifier.weight"][:, i], source), a
            bias = trained["classifier.bias"][old.index(a)] if known else fresh["classifier.bias"][i]
            assert now["classifier.bias"][i] == bias, a
        for j, b in enumerate(new):
            both = known and b in old
            source = trained["crf.transitions"][old.index(a), old.index(b)] if both else fresh["crf.transitions"][i, j]
            assert now["crf.transitions"][i, j] == source, (a, b)
    assert np.array_equal(now["dense.weight"], trained["dense.weight"])
    assert np.array_equal(now["encoder.weight"], fresh["encoder.weight"])  # not this function's business


def test_the_report_names_what_was_kept_and_what_is_new(trained):
    assert extend_head(Tagger(4), "encoder", trained, OLD, ("O", "B-LOC", "B-PER", "I-PER")).describe() == [
        "the label set changed; kept from the old model:",
        "  whole: 2 parameters of the encoder, encoder.weight to encoder.bias",
        "  the places of O, B-LOC in dense.weight, dense.bias, classifier.weight, classifier.bias, crf.transitions",
        "  the transitions between these, from the CRF's start and to its stop",
        "newly initialised: the places of B-PER, I-PER",
        "dropped: the places of I-LOC",
    ]
    assert extend_head(Tagger(3), "encoder", trained, OLD, OLD[::-1]).describe()[0] == "kept from the old model:"


def test_a_head_without_a_common_label_stays_fresh(trained):
    network = Tagger(2)
    before = arrays(network)
    assert extend_head(network, "encoder", trained, OLD, ("x", "y")) is None
    assert all(np.array_equal(value, before[name]) for name, value in arrays(network).items())


def test_a_crf_put_on_a_linear_head_begins_fresh(trained):
    network = Tagger(len(NEW))
    linear = {name: value for name, value in trained.items() if not name.startswith("crf.")}
    fresh = arrays(network)
    extension = extend_head(network, "encoder", linear, OLD, NEW)
    assert "crf.transitions" not in extension.parameters
    assert np.array_equal(arrays(network)["crf.transitions"], fresh["crf.transitions"])
    assert np.array_equal(arrays(network)["classifier.bias"][[1, 3, 4]], trained["classifier.bias"][[0, 2, 1]])


def test_a_file_without_the_output_layer_gives_nothing(trained):
    other = {"other.weight": trained["dense.weight"]}
    assert extend_head(Tagger(4), "encoder", other, OLD, ("O", "a", "b", "c")) is None


def test_a_label_may_start_as_one_of_another_name(trained):
    new = ("B-GPE", "B-PLACE", "O", "B-DATE")
    network = Tagger(len(new))
    fresh = arrays(network)
    extension = extend_head(network, "encoder", trained, OLD, new, {"B-GPE": "B-LOC", "B-PLACE": "B-LOC"})
    now = arrays(network)
    assert (extension.kept, extension.new, extension.dropped) == (new[:3], ("B-DATE",), ("I-LOC",))
    assert extension.describe()[2].startswith("  the places of B-GPE (was B-LOC), B-PLACE (was B-LOC), O in ")
    for place, source in enumerate((0, 0, 2)):
        assert np.array_equal(now["classifier.weight"][:, place], trained["classifier.weight"][:, source])
        assert now["crf.transitions"][place, 2] == trained["crf.transitions"][source, 2]
    assert np.array_equal(now["classifier.weight"][:, 3], fresh["classifier.weight"][:, 3])
