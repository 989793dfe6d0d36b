"""The verification of a LAC, whose files hold no program: its network is rebuilt from the operators of Paddle 1.x."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import paddle

from nlpctl.models.viterbi import viterbi
from nlpctl.static_graph.lexical import EMBEDDING, bare_arrays
from nlpctl.static_graph.old_operators import missing_operators, run_lexical
from nlpctl.static_graph.proof import Compared, Proof
from nlpctl.static_graph.variables import StaticVariable
from nlpctl.tasks.base import as_tuple

_LENGTHS = (1, 2, 9, 24)
_SEED = 7


def prove_lexical(variables: Mapping[str, StaticVariable], network: paddle.nn.Layer) -> Proof:
    """Hidden states, tag scores and best paths of random sentences, by the old operators and by `network`.

    Where the network has no CRF there are no paths to compare.
    """
    missing = missing_operators()
    if missing:
        return Proof(False, f"this version of Paddle no longer has the operator {missing[0]}, which LAC uses")
    arrays = bare_arrays(variables)
    chance = np.random.default_rng(_SEED)
    sentences = [chance.integers(0, len(arrays[EMBEDDING]), length) for length in _LENGTHS]
    old = run_lexical(arrays, sentences)
    ids = np.full((len(sentences), max(_LENGTHS)), network.config.pad_token_id, np.int64)
    for row, sentence in zip(ids, sentences, strict=True):
        # The new network sees the sentences padded in one batch, the old operators unpadded: padding is tested too.
        row[: len(sentence)] = sentence
    network.eval()
    with paddle.no_grad():
        hidden = network.base_model(paddle.to_tensor(ids))[0].numpy()
        emissions, *transitions = (output.numpy() for output in as_tuple(network(paddle.to_tensor(ids))))
    chains = [scores[:length] for scores, length in zip(emissions, _LENGTHS, strict=True)]
    differences = {
        "hidden states": [(each.hidden, rows[: len(each.path)]) for each, rows in zip(old, hidden, strict=True)],
        "tag scores": [(each.emissions, chain) for each, chain in zip(old, chains, strict=True)],
    }
    if transitions:
        paths = viterbi(chains, *transitions)
        differences["best tags"] = [(each.path, path) for each, path in zip(old, paths, strict=True)]
    outputs = tuple(
        Compared(name, (sum(_LENGTHS), *pairs[0][0].shape[1:]), max(float(np.abs(a - b).max()) for a, b in pairs))
        for name, pairs in differences.items()
    )
    return Proof(True, "", ("words",), outputs)
