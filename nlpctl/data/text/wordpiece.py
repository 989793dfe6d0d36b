"""vocab.txt of BERT's kind as the tokenizer.json that reads texts as PaddleNLP's tokenizers do.

These lower-case a text, strip accents, split it at white space and around ideographs, marks and symbols, and cut each
word into the longest pieces. The `tokenizers` library does the same with the parts below, and gives equal ids for real
text and for all but two characters that Python and the library both know (tests/data/text/test_wordpiece.py).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

VOCABULARY, ADDED_TOKENS = "vocab.txt", "added_tokens.json"
# The classes of PaddleNLP that do what is said above and nothing else.
CLASSES = frozenset(
    {
        "BertTokenizer", "ConvBertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "ErnieTokenizer",
        "MPNetTokenizer", "RobertaChineseTokenizer",
    }
)  # fmt: skip
_MPNET = {"pad": "<pad>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}  # as fairseq names them
PARTS = ("Replace", "BertNormalizer", "WhitespaceSplit", "Split")  # types of the parts below, in their order
LONGEST_WORD = 100  # characters; a longer one is unknown
# What stands alone: marks and symbols, and what PaddleNLP counts among these (transformers/tokenizer_utils.py:247).
_ALONE = r"\p{P}\p{S}\x{B2}\x{B5}\x{BA}\x{D8}\x{14B}\x{1B1}\x{3007}"
# And ideographs (:171), split off here since it takes the normaliser 1.4 times as long.
_IDEOGRAPHS = (
    r"\x{3400}-\x{4DBF}\x{4E00}-\x{9FFF}\x{F900}-\x{FAFF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}"
    r"\x{2B820}-\x{2CEAF}\x{2F800}-\x{2FA1F}"
)
# What is dropped, beyond what the library knows of: no characters, and accents of newer versions of Unicode.
_NO_CHARACTERS, _ACCENTS = r"\p{Cn}\p{Cf}", r"\p{Mn}"


def is_plain(name: str, settings: Mapping[str, Any]) -> bool:
    """Whether PaddleNLP's class `name` does nothing else with these `settings` (tokenizer_config.json)."""
    if name == "ErnieTokenizer":  # which does not look at them
        return True
    return name in CLASSES and bool(settings.get("do_basic_tokenize", True)) and not settings.get("never_split")


def word_piece_json(
    pieces: Mapping[str, int], added: Mapping[str, int], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The content of tokenizer.json. `pieces`, `added`: tokens and their ids; `settings`: tokenizer_config.json, which
    names one of CLASSES. KeyError, naming it, for a special token that is missing."""
    name = settings.get("tokenizer_class")
    usual = _MPNET if name == "MPNetTokenizer" else {}
    specials = [_special(settings, each, usual) for each in ("pad", "unk", "cls", "sep", "mask")]
    ids = {**pieces, **added}
    missing = next((token for token in specials[:4] if token not in ids), None)
    if missing is not None:
        raise KeyError(missing)
    _, unknown, first, last, _ = specials
    ends = {"sep": [last, ids[last]], "cls": [first, ids[first]]}
    options = {} if name == "ErnieTokenizer" else settings
    lowercase = settings.get("do_lower_case", True) is True
    ideographs = options.get("tokenize_chinese_chars", True) is True
    accents = options.get("strip_accents")
    strips = lowercase if accents is None else bool(accents)
    more = settings.get("additional_special_tokens")
    whole = {each for token in more if (each := token_text(token))} if isinstance(more, list) else set()
    beside = {*added, *specials, *whole} & ids.keys()
    # Found in normalised texts, so müller is also muller, but exactly where that is another token: cafe of café.
    accented = {token for token in added if strips and (form := without_accents(token)) != token and form in ids}
    exact = {*specials, *whole, *accented}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [  # in the order of ids, which the library gives them itself
            {
                **{"id": ids[token], "content": token, "single_word": False, "lstrip": False, "rstrip": False},
                **{"normalized": token not in exact, "special": token in specials},
            }
            for token in sorted(beside, key=ids.__getitem__)
        ],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {
                    "type": "Replace",
                    "pattern": {"Regex": f"[{_NO_CHARACTERS}{_ACCENTS if strips else ''}]"},
                    "content": "",
                },
                {
                    "type": "BertNormalizer",
                    "clean_text": True,
                    "handle_chinese_chars": False,
                    "strip_accents": strips,
                    "lowercase": lowercase,
                },
            ],
        },
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "WhitespaceSplit"},
                {
                    "type": "Split",
                    "pattern": {"Regex": f"[{_ALONE}{_IDEOGRAPHS if ideographs else ''}]"},
                    "behavior": "Isolated",
                    "invert": False,
                },
            ],
        },
        "post_processor": {"type": "BertProcessing", **ends}
        if name != "MPNetTokenizer"  # two of them between the texts of a pair, and one token type
        else {"type": "RobertaProcessing", **ends, "trim_offsets": False, "add_prefix_space": False},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": unknown,
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": LONGEST_WORD,
            "vocab": dict(pieces),
        },
    }


def _special(settings: Mapping[str, Any], name: str, usual: Mapping[str, str]) -> str:
    """The token for pad, unk, cls, sep or mask."""
    return token_text(settings.get(f"{name}_token")) or usual.get(name, f"[{name.upper()}]")


def token_text(token: Any) -> str | None:
    """The text of a special token, which newer files write as {"content": "[CLS]", ...}; None if it has none."""
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) else None


def without_accents(token: str) -> str:
    decomposed = unicodedata.normalize("NFD", token)
    kept = "".join(each for each in decomposed if unicodedata.category(each) != "Mn")
    return unicodedata.normalize("NFC", kept)
