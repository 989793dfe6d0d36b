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
from pathlib import Path

import numpy as np
import paddle

from nlpctl.config.tasks import LEXICAL_ANALYSIS
from nlpctl.convert.model_folder import recipe_card
from nlpctl.convert.proof import Compared, Proof, missing_operators, run_lexical
from nlpctl.convert.targets import Target
from nlpctl.convert.variables import StaticVariable
from nlpctl.data.readers.dictionaries import WORDS, Dictionaries, read_dictionaries
from nlpctl.data.text.units import tokenizer_of_dictionaries
from nlpctl.errors import UserError
from nlpctl.models.crf import with_crf
from nlpctl.models.families import Head, family_by_type
from nlpctl.models.networks.common import INITIAL_RANGE
from nlpctl.models.viterbi import viterbi
from nlpctl.models.weights import to_float32
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
        shown = ", ".join(f"{written} as {read}" for written, read in list(self.stand_ins.items())[:3])
        return [
            f"{len(self.stand_ins)} characters that the analyser never saw in training are replaced by a known form of "
            f"them: {shown} and others (replacements in tokenizer_config.json)"
        ]


def is_lexical(variables: Mapping[str, StaticVariable]) -> bool:
    """Whether these are the variables of a LAC."""
    return all(_named(variables, name) is not None for name in (EMBEDDING, SCORES, GRU, TRANSITIONS))


def lexical_analyser(
    variables: Mapping[str, StaticVariable], source: Path, dictionaries: Path | None
) -> LexicalAnalyser:
    """The target for these variables: its sizes, and what the dictionaries in the folder `dictionaries` (None: beside
    `source`) say.

    UserError: a variable or the dictionaries are missing, or they do not belong together.
    """
    missing = [name for name in (EMBEDDING, SCORES, GRU, TRANSITIONS) if _named(variables, name) is None]
    if missing:
        hint = "LAC's variables are word_emb, fc_0 to fc_4, gru_0 to gru_3 and crfw; give --to another network"
        raise UserError(f"no LAC: it has no variable {missing[0]}", where=str(source), hint=hint)
    folder = dictionaries if dictionaries is not None else _beside(source)
    found = read_dictionaries(folder)
    embedding, scores = (to_float32(_named(variables, name).array) for name in (EMBEDDING, SCORES))
    _check(found, embedding, scores, folder)
    stand_ins = _stand_ins(found, embedding)
    # The dictionary's own replacements win over those found here.
    found = replace(found, replacements={**stand_ins, **found.replacements})
    tokenizer = tokenizer_of_dictionaries(found, lowercase=True)
    config = {
        "vocab_size": len(tokenizer),
        "embedding_size": int(embedding.shape[1]),
        "hidden_size": int(_named(variables, GRU).shape[0]),
        "num_hidden_layers": LAYERS,
        "reset_gate": "before",
        "pad_token_id": tokenizer.pad_token_id,
    }
    card = recipe_card(_RECIPE, found.tags)
    head, family = Head("TokenClassification", adapt=with_crf), family_by_type("bigru", str(source))
    return LexicalAnalyser(Target(NAME, family, head, config, found.tags, True, tokenizer, card), stand_ins)


def bare_arrays(variables: Mapping[str, StaticVariable]) -> dict[str, np.ndarray]:
    """The arrays in float32, without the prefix of a PaddleHub module."""
    return {_HUB.sub("", name): to_float32(variable.array) for name, variable in variables.items()}


def _named(variables: Mapping[str, StaticVariable], name: str) -> StaticVariable | None:
    return next((variable for key, variable in variables.items() if _HUB.sub("", key) == name), None)


def _beside(source: Path) -> Path:
    base = source if source.is_dir() else source.parent
    for place in _PLACES:
        if (base / place / WORDS).is_file():
            return (base / place).resolve()
    raise UserError(
        f"no dictionaries beside these parameters: LAC needs {WORDS} and tag.dic",
        where=str(source),
        hint="copy them into this folder or the one above, or give their folder with --vocabulary",
    )


def _check(found: Dictionaries, embedding: np.ndarray, scores: np.ndarray, folder: Path) -> None:
    hint = "dictionaries and parameters belong to different models: copy both from the same place"
    if found.tags is None:
        raise UserError("no tag.dic in this folder", where=str(folder), hint="it numbers the tags: `id<TAB>tag`")
    if embedding.ndim != 2 or scores.ndim != 2 or len(found.words) != len(embedding):
        message = f"word.dic has ids up to {len(found.words) - 1} and the embedding is {list(embedding.shape)}"
        raise UserError(message, where=str(folder), hint=hint)
    if len(found.tags) != scores.shape[1]:
        message = f"tag.dic has {len(found.tags)} tags and the network scores {scores.shape[1]}"
        raise UserError(message, where=str(folder), hint=hint)


def _stand_ins(found: Dictionaries, embedding: np.ndarray) -> dict[str, str]:
    """Characters that were never trained to usual forms of theirs that were."""
    characters = {word: index for index, word in enumerate(found.words) if len(word) == 1}
    # A trained row leaves +-0.1 in some dimension; an untouched one cannot.
    trained = np.abs(embedding).max(axis=1) > INITIAL_RANGE
    known = {word for word, index in characters.items() if trained[index]}
    return {
        word: form
        for word in characters
        if word not in known and word not in found.replacements
        if (form := next((form for form in _forms(word) if form in known), None)) is not None
    }


def _forms(character: str) -> Sequence[str]:
    """The forms that may replace a character, the best first."""
    normal = unicodedata.normalize("NFKC", character)
    return [form for form in (_STAND_INS.get(character), normal, normal.lower()) if form and form != character]


# The verification of a LAC, whose files hold no program: its network is rebuilt from the operators of Paddle 1.x.


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
