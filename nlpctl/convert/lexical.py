"""LAC's lexical analysers (maps/lac.yaml): sizes, dictionaries and replacements that the parameters alone do not
define.

Sizes follow from the shapes of the variables; words, tags and replacements from the dictionaries next to them.

LAC was trained on half-width, lower-case text. Its dictionary q2b.dic converts input to that form. jieba ships no such
dictionary: full-width commas, capitals and quotes then use embedding rows that were never updated, which are noise.
Such rows are recognisable, because all their values still lie within the range of the initialisation. Characters with
such a row are replaced by their usual form, if the row of that form was trained.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import paddle

from nlpctl.config.load import recipe_of_values
from nlpctl.config.tasks import LEXICAL_ANALYSIS
from nlpctl.convert.proof import Compared, Proof
from nlpctl.convert.targets import Target
from nlpctl.convert.variables import StaticVariable
from nlpctl.data.readers.dictionaries import WORDS, Dictionaries, read_dictionaries
from nlpctl.data.text.units import tokenizer_of_dictionaries
from nlpctl.errors import UserError
from nlpctl.formats.program import static_mode
from nlpctl.models.crf import with_crf
from nlpctl.models.families import Head, family_by_type
from nlpctl.models.folder import make_description
from nlpctl.models.networks.common import INITIAL_RANGE
from nlpctl.models.viterbi import viterbi
from nlpctl.models.weights import to_float32
from nlpctl.report.language import later
from nlpctl.tasks.base import as_tuple

NAME = "lac"  # as --to
EMBEDDING, SCORES, GRU, TRANSITIONS = "word_emb", "fc_4.w_0", "gru_0.w_0", "crfw"
LAYERS = 2
# The network reads any length; a window bounds the memory that a text takes.
_RECIPE = {
    "task": LEXICAL_ANALYSIS.name,
    "model": {"head": "crf"},
    "data": {"unit": "characters", "max_seq_length": 512, "doc_stride": 256},
}
_HUB = re.compile(r"@HUB_[^@]*@")  # what a PaddleHub module puts before names
_PLACES = (".", "..", "conf", "../conf", "assets", "../assets")  # of the dictionaries, seen from the parameters
# Chinese punctuation and what stood for it in half-width text; other characters go by Unicode (NFKC).
_STAND_INS = dict(zip("。、“”‘’〝〞【】〖〗〔〕「」『』〈〉…—～‖", ".,\"\"''\"\"[][][]''\"\"<>.-~|", strict=True))


@dataclass(frozen=True)
class LexicalAnalyser:
    """The target of a LAC. `stand_ins`: character to the one that it is read as, those that were found out; the
    tokenizer has them and the dictionary's.
    """

    target: Target
    stand_ins: Mapping[str, str]

    def describe(self) -> list[str]:
        """For the console and the report, line by line."""
        if not self.stand_ins:
            return []
        examples = ", ".join(f"{written} as {read}" for written, read in list(self.stand_ins.items())[:3])
        return [
            later(
                "{} characters that the analyser never saw in training are replaced by a known form of them: {} and "
                "others (replacements in tokenizer_config.json)",
                len(self.stand_ins),
                examples,
            )
        ]


def is_lexical(variables: Mapping[str, StaticVariable]) -> bool:
    """Whether these are the variables of a LAC."""
    return _by_bare_name(variables).keys() >= {EMBEDDING, SCORES, GRU, TRANSITIONS}


def lexical_analyser(
    variables: Mapping[str, StaticVariable], source: Path, folder: Path | None
) -> LexicalAnalyser:
    """The target for these variables: its sizes, and what the dictionaries in `folder` (None: beside `source`) say.

    UserError: a variable or the dictionaries are missing, or they do not belong together.
    """
    bare = _by_bare_name(variables)
    missing = [name for name in (EMBEDDING, SCORES, GRU, TRANSITIONS) if name not in bare]
    if missing:
        hint = "LAC's variables are word_emb, fc_0 to fc_4, gru_0 to gru_3 and crfw; give @[to] another network"
        raise UserError(f"no LAC: it has no variable {missing[0]}", where=str(source), hint=hint)
    folder = folder if folder is not None else _beside(source)
    dictionaries = read_dictionaries(folder)
    embedding, scores = (to_float32(bare[name].array) for name in (EMBEDDING, SCORES))
    tags = _check(dictionaries, embedding, scores, folder)
    stand_ins = _stand_ins(dictionaries, embedding)
    # The dictionary's own replacements win over those found here.
    dictionaries = replace(dictionaries, replacements={**stand_ins, **dictionaries.replacements})
    tokenizer = tokenizer_of_dictionaries(dictionaries, lowercase=True)
    config = {
        "vocab_size": len(tokenizer),
        "embedding_size": int(embedding.shape[1]),
        "hidden_size": int(bare[GRU].shape[0]),
        "num_hidden_layers": LAYERS,
        "reset_gate": "before",
        "pad_token_id": tokenizer.pad_token_id,
    }
    description = make_description(recipe_of_values(_RECIPE), tags)
    head, family = Head("TokenClassification", adapt=with_crf), family_by_type("bigru", str(source))
    return LexicalAnalyser(Target(NAME, family, head, config, tags, True, tokenizer, description), stand_ins)


def bare_arrays(variables: Mapping[str, StaticVariable]) -> dict[str, np.ndarray]:
    """The arrays in float32, without the prefix of a PaddleHub module."""
    return {name: to_float32(variable.array) for name, variable in _by_bare_name(variables).items()}


def _by_bare_name(variables: Mapping[str, StaticVariable]) -> dict[str, StaticVariable]:
    bare: dict[str, StaticVariable] = {}
    for name, variable in variables.items():
        bare.setdefault(_HUB.sub("", name), variable)
    return bare


def _beside(source: Path) -> Path:
    base = source if source.is_dir() else source.parent
    for place in _PLACES:
        if (base / place / WORDS).is_file():
            return (base / place).resolve()
    raise UserError(
        f"no dictionaries beside these parameters: LAC needs {WORDS} and tag.dic",
        where=str(source),
        hint="copy them into this folder or the one above, or give their folder with @[vocabulary]",
    )


def _check(dictionaries: Dictionaries, embedding: np.ndarray, scores: np.ndarray, folder: Path) -> tuple[str, ...]:
    """The tags. UserError: there are none, or dictionaries and parameters do not belong together."""
    hint = "dictionaries and parameters belong to different models: copy both from the same place"
    if dictionaries.tags is None:
        raise UserError("no tag.dic in this folder", where=str(folder), hint="it numbers the tags: `id<TAB>tag`")
    if embedding.ndim != 2 or scores.ndim != 2 or len(dictionaries.words) != len(embedding):
        message = f"word.dic has ids up to {len(dictionaries.words) - 1} and the embedding is {list(embedding.shape)}"
        raise UserError(message, where=str(folder), hint=hint)
    if len(dictionaries.tags) != scores.shape[1]:
        message = f"tag.dic has {len(dictionaries.tags)} tags and the network scores {scores.shape[1]}"
        raise UserError(message, where=str(folder), hint=hint)
    return dictionaries.tags


def _stand_ins(dictionaries: Dictionaries, embedding: np.ndarray) -> dict[str, str]:
    """Characters that were never trained to usual forms of theirs that were."""
    characters = {word: index for index, word in enumerate(dictionaries.words) if len(word) == 1}
    # A trained row leaves +-0.1 in some dimension; an untouched one cannot.
    trained = np.abs(embedding).max(axis=1) > INITIAL_RANGE
    known = {word for word, index in characters.items() if trained[index]}
    return {
        word: form
        for word in characters
        if word not in known and word not in dictionaries.replacements
        if (form := next((form for form in _forms(word) if form in known), None)) is not None
    }


def _forms(character: str) -> Sequence[str]:
    """The forms that may replace a character, the best first."""
    normal = unicodedata.normalize("NFKC", character)
    return [form for form in (_STAND_INS.get(character), normal, normal.lower()) if form and form != character]


# -- the proof: its files hold no program, so the network is rebuilt from the operators of Paddle 1.x -----------------

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


# -- LAC as Paddle 1.x ran it: lookup_table, mul, gru and crf_decoding, without padding -------------------------------
#
# Paddle's Python code no longer calls gru and crf_decoding, but 2.6 still registers them, so a static program with them
# runs.

NEEDED = ("lookup_table", "mul", "elementwise_add", "concat", "gru", "crf_decoding")


class OldAnswer(NamedTuple):
    """One sentence: hidden states [length, 2h], tag scores [length, tags], and the best path int64 [length]."""

    hidden: np.ndarray
    emissions: np.ndarray
    path: np.ndarray


def missing_operators() -> list[str]:
    """Those of the operators that this Paddle no longer registers."""
    from paddle.base import core

    registered = set(core.get_all_op_names())
    return [name for name in NEEDED if name not in registered]


def run_lexical(arrays: Mapping[str, np.ndarray], sentences: Sequence[Sequence[int] | np.ndarray]) -> list[OldAnswer]:
    """Run sentences of ids through the network whose parameters are `arrays`, under LAC's names, float32."""
    from paddle.base import create_lod_tensor

    lengths = [len(sentence) for sentence in sentences]
    ids = np.concatenate([np.asarray(sentence, np.int64) for sentence in sentences]).reshape(-1, 1)
    place = paddle.CPUPlace()
    with static_mode():
        program = paddle.static.Program()
        scope = paddle.static.Scope()
        with paddle.static.program_guard(program, paddle.static.Program()), paddle.static.scope_guard(scope):
            outputs = _build(program.global_block(), arrays)
            for name, array in arrays.items():
                scope.var(name).get_tensor().set(np.ascontiguousarray(array), place)
            # LoD instead of padding: one row per word of all sentences, with the lengths beside it.
            fed = {"words": create_lod_tensor(ids, [lengths], place)}
            executor = paddle.static.Executor(place)
            results = executor.run(program, feed=fed, fetch_list=outputs, return_numpy=False)
    hidden, emissions, paths = (np.array(tensor) for tensor in results)
    return [
        OldAnswer(hidden[start:end], emissions[start:end], paths[start:end, 0])
        for start, end in pairwise(accumulate(lengths, initial=0))
    ]


def _build(block: Any, arrays: Mapping[str, np.ndarray]) -> list[Any]:
    """Append lex_net() of LAC's nets.py to `block`; returns hidden states, tag scores and paths."""
    build = _Builder(block, arrays)
    words = paddle.static.data("words", [-1, 1], "int64", lod_level=1)
    outputs = build.op(
        "lookup_table", {"W": build.parameter("word_emb"), "Ids": words}, "Out", {"padding_idx": -1, "is_sparse": False}
    )
    for layer in range(LAYERS):
        directions = []
        for number, is_reverse in ((2 * layer, False), (2 * layer + 1, True)):
            projected = build.linear(outputs, f"fc_{number}")
            directions.append(build.gru(projected, f"gru_{number}", is_reverse))
        outputs = build.op("concat", {"X": directions}, "Out", {"axis": 1})
    emissions = build.linear(outputs, f"fc_{2 * LAYERS}")
    inputs = {"Emission": emissions, "Transition": build.parameter("crfw")}
    return [outputs, emissions, build.op("crf_decoding", inputs, "ViterbiPath", {}, dtype="int64")]


class _Builder:
    """Appends operators by their names, with variables of their own."""

    def __init__(self, block: Any, arrays: Mapping[str, np.ndarray]):
        self._block = block
        self._arrays = arrays
        self._count = 0

    def parameter(self, name: str) -> Any:
        return self._block.create_parameter(name=name, shape=list(self._arrays[name].shape), dtype="float32")

    def linear(self, inputs: Any, name: str) -> Any:
        weight, bias = self.parameter(f"{name}.w_0"), self.parameter(f"{name}.b_0")
        product = self.op("mul", {"X": inputs, "Y": weight}, "Out", {"x_num_col_dims": 1, "y_num_col_dims": 1})
        return self.op("elementwise_add", {"X": product, "Y": bias}, "Out", {"axis": 1})

    def gru(self, inputs: Any, name: str, is_reverse: bool) -> Any:
        slots = {"Input": inputs, "Weight": self.parameter(f"{name}.w_0"), "Bias": self.parameter(f"{name}.b_0")}
        attributes = {
            "is_reverse": is_reverse,
            "gate_activation": "sigmoid",
            "activation": "tanh",
            "origin_mode": False,  # the new state is (1 - update) * old + update * candidate
            "is_test": True,
        }
        workspace = ("BatchGate", "BatchResetHiddenPrev", "BatchHidden")
        return self.op("gru", slots, "Hidden", attributes, others=workspace)

    def op(
        self,
        kind: str,
        inputs: Mapping[str, Any],
        output: str,
        attributes: Mapping[str, Any],
        dtype: str = "float32",
        others: Sequence[str] = (),
    ) -> Any:
        """Append one operator; returns its `output`. `others`: slots that it wants besides."""
        variables = {}
        for slot in (output, *others):
            self._count += 1
            name = f"lexical_{self._count}"
            variables[slot] = self._block.create_var(name=name, dtype=dtype, lod_level=1)
        self._block.append_op(type=kind, inputs=dict(inputs), outputs=variables, attrs=dict(attributes))
        return variables[output]
