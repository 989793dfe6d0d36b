"""The pieces of a Unigram model as sentencepiece writes it: a protobuf message ModelProto."""

from __future__ import annotations

from pathlib import Path

from google.protobuf.message import DecodeError

from nlpctl.errors import UserError
from nlpctl.files import regular
from nlpctl.formats.messages import Field, message_types

_MOST_BYTES = 32 << 20  # of a model; that of 250,000 pieces has 5 MB. In memory it takes up to 28 times as much.
_MOST_PIECES = 2_000_000
_AGAIN = "copy it again from where the model came from"
_UNIGRAM, _UNKNOWN = 1, 2  # TrainerSpec.ModelType, ModelProto.SentencePiece.Type

# The used fields, as in sentencepiece_model.proto
_MESSAGES = {
    "SentencePiece": (Field("piece", 1, "bytes"), Field("score", 2, "float"), Field("type", 3, "int32")),
    "TrainerSpec": (Field("model_type", 3, "int32"),),
    "NormalizerSpec": (Field("precompiled_charsmap", 2, "bytes"),),
    "ModelProto": (
        Field("pieces", 1, "SentencePiece", repeated=True),
        Field("trainer_spec", 2, "TrainerSpec"),
        Field("normalizer_spec", 3, "NormalizerSpec"),
    ),
}
_ModelProto = message_types("sentencepiece", _MESSAGES)["ModelProto"]


def read_pieces(file: Path) -> tuple[list[tuple[str, float]], int, bytes]:
    """The pieces with their scores, the id of the unknown one, and the table of the normaliser. UserError: the file is
    damaged, or no Unigram model."""
    try:
        if regular(file).stat().st_size > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES >> 20} MB")
        model = _ModelProto.FromString(file.read_bytes())
        if len(model.pieces) > _MOST_PIECES:
            raise ValueError(f"it has more than {_MOST_PIECES:,} pieces")
        pieces = [(str(piece.piece, "utf-8"), piece.score) for piece in model.pieces]
        if not pieces or not all(text for text, _ in pieces):
            raise ValueError("it holds no pieces, or one without text")
    except (OSError, ValueError, DecodeError) as error:
        reason = "it is cut off or damaged" if isinstance(error, DecodeError) else error
        raise UserError(f"is no sentencepiece model ({reason})", str(file), _AGAIN) from None
    if model.trainer_spec.HasField("model_type") and model.trainer_spec.model_type != _UNIGRAM:
        hint = "save it with Transformers (AutoTokenizer.from_pretrained, save_pretrained), which writes tokenizer.json"
        raise UserError("is a sentencepiece model of another kind than Unigram", str(file), hint)
    unknown = next((id for id, piece in enumerate(model.pieces) if piece.type == _UNKNOWN), 0)
    return pieces, unknown, model.normalizer_spec.precompiled_charsmap
