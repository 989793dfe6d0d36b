"""A sentencepiece model as a tokenizer.json: the Unigram models of XLM-R, ALBERT and DeBERTa-v2 and v3.

A network's ids are not those of its sentencepiece model: each family numbers its pieces in its own way, with special
tokens before, behind or in the place of pieces. These are known by the class or the network that the folder names.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nlpctl.errors import UserError

_AGAIN = "copy it again from where the model came from"


@dataclass(frozen=True)
class PieceNumbers:
    """How a family numbers the pieces of its model. `names`: class of the tokenizer and model_type of the network.

    `front` stands in the place of the first `dropped` pieces, `behind` follows the last one. `specials`: their names.
    """

    names: tuple[str, str]
    files: tuple[str, ...]
    front: tuple[str, ...]
    dropped: int
    behind: tuple[str, ...]
    specials: Mapping[str, str]
    second: int  # token type of the second text
    separators: int  # between two texts


_ROBERTA = {"bos": "<s>", "eos": "</s>", "cls": "<s>", "sep": "</s>", "pad": "<pad>", "unk": "<unk>", "mask": "<mask>"}
_ALBERT = {"cls": "[CLS]", "sep": "[SEP]", "pad": "<pad>", "unk": "<unk>", "mask": "[MASK]"}
_DEBERTA = {"cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "unk": "[UNK]", "mask": "[MASK]"}
PIECE_NUMBERS = (
    # The first three pieces are <unk>, <s> and </s>; fairseq has <s>, <pad>, </s> and <unk>, so all others move by one.
    PieceNumbers(("XLMRobertaTokenizer", "xlm-roberta"), ("sentencepiece.bpe.model",),
                 ("<s>", "<pad>", "</s>", "<unk>"), 3, ("<mask>",), _ROBERTA, 0, 2),
    PieceNumbers(("AlbertTokenizer", "albert"), ("spiece.model",), (), 0, (), _ALBERT, 1, 1),
    PieceNumbers(("DebertaV2Tokenizer", "deberta-v2"), ("spm.model", "spiece.model"), (), 0, ("[MASK]",), _DEBERTA,
                 1, 1),
)  # fmt: skip


def numbers_of(tokenizer_class: str, model_type: str) -> PieceNumbers | None:
    """The numbers for the class that tokenizer_config.json names, else for the model_type of config.json."""
    name = tokenizer_class.removesuffix("Fast") or model_type.replace("_", "-")
    return next((numbers for numbers in PIECE_NUMBERS if name in numbers.names), None)


def as_tokenizer_json(file: Path, numbers: PieceNumbers, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a tokenizer.json with the ids of the family. UserError: the file is damaged, or no Unigram model.

    `settings`: tokenizer_config.json, of which do_lower_case, keep_accents and split_by_punct count.
    """
    # Not at the top: most tokenizers do without protobuf, which takes a while to import.
    from nlpctl.formats.sentencepiece_file import read_pieces

    pieces, unknown, charsmap = read_pieces(file)
    vocabulary = [(piece, 0.0) for piece in numbers.front] + pieces[numbers.dropped :]
    known = {piece for piece, _ in vocabulary}
    vocabulary += [(piece, 0.0) for piece in numbers.behind if piece not in known]
    ids = {piece: id for id, (piece, _) in enumerate(vocabulary)}
    unknown_id = ids.get(numbers.specials["unk"], unknown)
    missing = next((token for token in numbers.specials.values() if token not in ids), None)
    if missing is not None:
        raise UserError(f"has no piece {missing}, which {numbers.names[0]} needs", str(file), _AGAIN)
    normalizers: list[dict[str, Any]] = []
    splits: list[dict[str, Any]] = [{"type": "WhitespaceSplit"}]
    if numbers.names[1] == "albert":
        # A number with a comma behind it is two pieces.
        vocabulary = [(piece, score - 100 * _ends_in_comma(piece)) for piece, score in vocabulary]
        normalizers += [{"type": "Replace", "pattern": {"String": quotes}, "content": '"'} for quotes in ("``", "''")]
        normalizers += [{"type": "NFKD"}, {"type": "StripAccents"}] if settings.get("keep_accents") is not True else []
    if settings.get("do_lower_case", numbers.names[1] == "albert") is True:
        normalizers.append({"type": "Lowercase"})
    if charsmap:
        normalizers.append({"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()})
    if settings.get("split_by_punct") is True:
        splits.append({"type": "Punctuation", "behavior": "Isolated"})
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_special(token, ids[token]) for token in dict.fromkeys(numbers.specials.values())],
        "normalizer": {"type": "Sequence", "normalizers": normalizers} if normalizers else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splits, metaspace]},
        "post_processor": _template(numbers, ids),
        "decoder": metaspace,
        "model": {"type": "Unigram", "unk_id": unknown_id, "vocab": list(map(list, vocabulary))},
    }


def _ends_in_comma(piece: str) -> bool:
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def _special(token: str, id: int) -> dict[str, Any]:
    plain = dict.fromkeys(("single_word", "rstrip", "normalized"), False)
    # The blank before a mask belongs to it.
    return {"id": id, "content": token, **plain, "lstrip": token in ("<mask>", "[MASK]"), "special": True}


def _template(numbers: PieceNumbers, ids: Mapping[str, int]) -> dict[str, Any]:
    begin, end = numbers.specials["cls"], numbers.specials["sep"]

    def special(token: str, kind: int = 0) -> dict[str, Any]:
        return {"SpecialToken": {"id": token, "type_id": kind}}

    def text(name: str, kind: int = 0) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": kind}}

    single = [special(begin), text("A"), special(end)]
    second = [text("B", numbers.second), special(end, numbers.second)]
    tokens = {token: {"id": token, "ids": [ids[token]], "tokens": [token]} for token in (begin, end)}
    pair = [*single, *[special(end)] * (numbers.separators - 1), *second]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens}
