"""nlpctl's GRU and CRF against the operators of Paddle 1.x, with parameters of another size than LAC's."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import paddle
import pytest

from nlpctl.convert.lexical import missing_operators, run_lexical
from nlpctl.convert.maps import built_in_map
from nlpctl.convert.match import Matcher, target_parameters
from nlpctl.convert.variables import StaticVariable
from nlpctl.models.crf import with_crf
from nlpctl.models.networks.bigru import BiGRUConfig, BiGRUForTokenClassification
from nlpctl.models.viterbi import viterbi

WORDS, EMBEDDING, HIDDEN, TAGS = 30, 6, 10, 5
LENGTHS = (4, 1, 17, 2)
pytestmark = pytest.mark.skipif(bool(missing_operators()), reason="this Paddle registers the old operators no more")


def parameters(seed: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {"word_emb": (WORDS, EMBEDDING), "crfw": (TAGS + 2, TAGS)}
    for number in range(4):
        shapes[f"fc_{number}.w_0"] = (EMBEDDING if number < 2 else 2 * HIDDEN, 3 * HIDDEN)
        shapes[f"fc_{number}.b_0"] = (3 * HIDDEN,)
        shapes[f"gru_{number}.w_0"] = (HIDDEN, 3 * HIDDEN)
        shapes[f"gru_{number}.b_0"] = (1, 3 * HIDDEN)
    shapes |= {"fc_4.w_0": (2 * HIDDEN, TAGS), "fc_4.b_0": (TAGS,)}
    # Weights around 1 would make the GRU chaotic: a rounding error in the first word would grow to the last.
    scale = {"crfw": 1.0}
    return {name: draw.normal(0, scale.get(name, 0.4), shape).astype(np.float32) for name, shape in shapes.items()}


def sentences(seed: int) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [draw.integers(0, WORDS, length) for length in LENGTHS]


def converted(arrays: Mapping[str, np.ndarray], reset_gate: str = "before") -> paddle.nn.Layer:
    """The network by the map of LAC; two more words are padding and separator."""
    config = BiGRUConfig(
        vocab_size=WORDS + 2, embedding_size=EMBEDDING, hidden_size=HIDDEN, reset_gate=reset_gate, pad_token_id=WORDS,
        num_labels=TAGS,
    )  # fmt: skip
    network = with_crf(BiGRUForTokenClassification)(config)
    variables = {name: StaticVariable(name, array) for name, array in arrays.items()}
    matcher = Matcher(target_parameters(network, "bigru"), variables, "bigru")
    matcher.use_map(built_in_map("lac"))
    result = matcher.result()
    assert not result.unused and not result.missing and not result.mismatches
    for match in result.matches:
        network.state_dict()[match.parameter.name].set_value(match.array)
    network.eval()
    return network


def answers(network: paddle.nn.Layer) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Per sentence: hidden states, tag scores, best path; all sentences in one padded batch."""
    ids = np.full((len(LENGTHS), max(LENGTHS)), WORDS, np.int64)
    for row, sentence in zip(ids, sentences(2), strict=True):
        row[: len(sentence)] = sentence
    hidden = network.base_model(paddle.to_tensor(ids))[0].numpy()
    scores, transitions = (output.numpy() for output in network(paddle.to_tensor(ids)))
    chains = [row[:length] for row, length in zip(scores, LENGTHS, strict=True)]
    paths = viterbi(chains, transitions)
    return [(row[: len(chain)], chain, path) for row, chain, path in zip(hidden, chains, paths, strict=True)]


def largest(network: paddle.nn.Layer, arrays: Mapping[str, np.ndarray]) -> tuple[float, float, int]:
    """The largest difference of hidden states and of tag scores, and how many tags differ."""
    pairs = list(zip(run_lexical(arrays, sentences(2)), answers(network), strict=True))
    hidden = max(float(np.abs(old.hidden - new[0]).max()) for old, new in pairs)
    scores = max(float(np.abs(old.emissions - new[1]).max()) for old, new in pairs)
    return hidden, scores, sum(int((old.path != new[2]).sum()) for old, new in pairs)


@pytest.mark.parametrize("seed", range(4))
def test_hidden_states_scores_and_paths_are_those_of_the_old_operators(seed: int) -> None:
    arrays = parameters(seed)
    hidden, scores, tags = largest(converted(arrays), arrays)
    assert hidden < 1e-5 and scores < 1e-5 and tags == 0


def swapped(array: np.ndarray) -> np.ndarray:
    """Update and reset gate in each other's place, of a gru's w_0."""
    flat = array.reshape(-1).copy()
    gates = flat[: 2 * HIDDEN * HIDDEN].reshape(HIDDEN, 2 * HIDDEN)
    gates[:] = np.roll(gates, HIDDEN, axis=1)
    return flat.reshape(array.shape)


def test_the_comparison_sees_a_gate_in_the_wrong_place() -> None:
    arrays = parameters(0)
    wrong = {**arrays, "gru_2.w_0": swapped(arrays["gru_2.w_0"])}
    assert largest(converted(wrong), arrays)[0] > 0.1


def test_the_comparison_sees_a_bias_that_is_left_out() -> None:
    arrays = parameters(0)
    wrong = {**arrays, "gru_1.b_0": np.zeros_like(arrays["gru_1.b_0"])}
    assert largest(converted(wrong), arrays)[0] > 0.1


def test_the_comparison_sees_start_and_stop_exchanged() -> None:
    differing = 0
    for seed in range(4):
        arrays = parameters(seed)
        order = [1, 0, *range(2, TAGS + 2)]
        differing += largest(converted({**arrays, "crfw": arrays["crfw"][order]}), arrays)[2]
    assert differing > 0


def test_dynamic_mode_is_what_it_was() -> None:
    run_lexical(parameters(0), sentences(1))
    assert paddle.in_dynamic_mode()
