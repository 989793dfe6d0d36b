"""A sentencepiece model as a tokenizer.json: the Unigram models of XLM-R, ALBERT and DeBERTa-v2 and v3.

A network's ids are not those of its sentencepiece model: each family has a layout of its own, with special tokens
before, behind or in the place of pieces. These are known by the class or the network that the folder names.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nlpctl.errors import UserError
from nlpctl.files import regular

_MOST_BYTES = 64 << 20  # of a model; that of 250,000 pieces has 5 MB
_MOST_PIECES = 2_000_000
_AGAIN = "copy it again from where the model came from"
_UNIGRAM, _UNKNOWN = 1, 2  # TrainerSpec.ModelType, ModelProto.SentencePiece.Type


@dataclass(frozen=True)
class Layout:
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
LAYOUTS = (
    # The first three pieces are <unk>, <s> and </s>; fairseq has <s>, <pad>, </s> and <unk>, so all others move by one.
    Layout(("XLMRobertaTokenizer", "xlm-roberta"), ("sentencepiece.bpe.model",), ("<s>", "<pad>", "</s>", "<unk>"), 3,
           ("<mask>",), _ROBERTA, 0, 2),
    Layout(("AlbertTokenizer", "albert"), ("spiece.model",), (), 0, (), _ALBERT, 1, 1),
    Layout(("DebertaV2Tokenizer", "deberta-v2"), ("spm.model", "spiece.model"), (), 0, ("[MASK]",), _DEBERTA, 1, 1),
)  # fmt: skip


def layout_of(tokenizer_class: str, model_type: str) -> Layout | None:
    """The layout for the class that tokenizer_config.json names, else for the model_type of config.json."""
    name = tokenizer_class.removesuffix("Fast") or model_type.replace("_", "-")
    return next((layout for layout in LAYOUTS if name in layout.names), None)


def as_tokenizer_json(file: Path, layout: Layout, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a tokenizer.json with the ids of the family. UserError: the file is damaged, or no Unigram model.

    `settings`: tokenizer_config.json, of which do_lower_case, keep_accents and split_by_punct count.
    """
    pieces, unknown, charsmap = _read(file)
    vocabulary = [(piece, 0.0) for piece in layout.front] + pieces[layout.dropped :]
    known = {piece for piece, _ in vocabulary}
    vocabulary += [(piece, 0.0) for piece in layout.behind if piece not in known]
    ids = {piece: id for id, (piece, _) in enumerate(vocabulary)}
    unknown_id = ids.get(layout.specials["unk"], unknown)
    missing = next((token for token in layout.specials.values() if token not in ids), None)
    if missing is not None:
        raise UserError(f"has no piece {missing}, which {layout.names[0]} needs", str(file), _AGAIN)
    normalizers: list[dict[str, Any]] = []
    splits: list[dict[str, Any]] = [{"type": "WhitespaceSplit"}]
    if layout.names[1] == "albert":
        # A number with a comma behind it is two pieces.
        vocabulary = [(piece, score - 100 * _ends_in_comma(piece)) for piece, score in vocabulary]
        normalizers += [{"type": "Replace", "pattern": {"String": quotes}, "content": '"'} for quotes in ("``", "''")]
        normalizers += [{"type": "NFKD"}, {"type": "StripAccents"}] if settings.get("keep_accents") is not True else []
    if settings.get("do_lower_case", layout.names[1] == "albert") is True:
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
        "added_tokens": [_special(token, ids[token]) for token in dict.fromkeys(layout.specials.values())],
        "normalizer": {"type": "Sequence", "normalizers": normalizers} if normalizers else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splits, metaspace]},
        "post_processor": _template(layout, ids),
        "decoder": metaspace,
        "model": {"type": "Unigram", "unk_id": unknown_id, "vocab": list(map(list, vocabulary))},
    }


def _ends_in_comma(piece: str) -> bool:
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def _special(token: str, id: int) -> dict[str, Any]:
    plain = dict.fromkeys(("single_word", "rstrip", "normalized"), False)
    # The blank before a mask belongs to it.
    return {"id": id, "content": token, **plain, "lstrip": token in ("<mask>", "[MASK]"), "special": True}


def _template(layout: Layout, ids: Mapping[str, int]) -> dict[str, Any]:
    begin, end = layout.specials["cls"], layout.specials["sep"]

    def special(token: str, kind: int = 0) -> dict[str, Any]:
        return {"SpecialToken": {"id": token, "type_id": kind}}

    def text(name: str, kind: int = 0) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": kind}}

    single = [special(begin), text("A"), special(end)]
    second = [text("B", layout.second), special(end, layout.second)]
    tokens = {token: {"id": token, "ids": [ids[token]], "tokens": [token]} for token in (begin, end)}
    pair = [*single, *[special(end)] * (layout.separators - 1), *second]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens}


# -- the file ---------------------------------------------------------------------------------------------------------
#
# A protobuf message ModelProto (sentencepiece_model.proto):
#   1 pieces, each: 1 piece, 2 score, 3 type     2 trainer_spec: 3 model_type     3 normalizer_spec: 2 charsmap


def _read(file: Path) -> tuple[list[tuple[str, float]], int, bytes]:
    """The pieces with their scores, the id of the unknown one, and the table of the normaliser. UserError: damaged."""
    try:
        if regular(file).stat().st_size > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES >> 20} MB")
        pieces: list[tuple[str, float]] = []
        unknown, kind, charsmap = 0, _UNIGRAM, b""
        for number, value in _fields(memoryview(file.read_bytes())):
            inner = dict(_fields(value)) if number in (1, 2, 3) and isinstance(value, memoryview) else {}
            if number == 1:
                if inner.get(3, 1) == _UNKNOWN:
                    unknown = len(pieces)
                pieces.append((str(_bytes(inner[1]), "utf-8"), struct.unpack("<f", _bytes(inner.get(2, bytes(4))))[0]))
                if len(pieces) > _MOST_PIECES:
                    raise ValueError(f"it has more than {_MOST_PIECES:,} pieces")
            elif number == 2:
                kind = inner.get(3, _UNIGRAM)
            elif number == 3:
                charsmap = bytes(_bytes(inner.get(2, b"")))
        if not pieces:
            raise ValueError("it holds no pieces")
    except (OSError, ValueError, KeyError, TypeError, IndexError, struct.error) as error:
        raise UserError(f"is no sentencepiece model ({error})", str(file), _AGAIN) from None
    if kind != _UNIGRAM:
        hint = "save it with Transformers (AutoTokenizer.from_pretrained, save_pretrained), which writes tokenizer.json"
        raise UserError("is a sentencepiece model of another kind than Unigram", str(file), hint)
    return pieces, unknown, charsmap


def _bytes(value: Any) -> memoryview | bytes:
    """`value` if it is bytes. Of a number bytes() would make that many zeros."""
    if isinstance(value, int):
        raise ValueError("it is damaged")
    return value


def _fields(data: memoryview) -> Iterator[tuple[int, Any]]:
    """Number and value of each field of a message: an int, or the bytes. ValueError, IndexError: it is damaged."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, place = _varint(data, place)
            yield number, value
            continue
        size = {1: 8, 5: 4}.get(wire)
        if wire == 2:
            size, place = _varint(data, place)
        if size is None or place + size > len(data):
            raise ValueError("it is cut off or damaged")
        yield number, data[place : place + size]
        place += size


def _varint(data: memoryview, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place += 1
        if byte < 0x80:
            return value, place
    raise ValueError("it is damaged")
