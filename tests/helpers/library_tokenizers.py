"""Small tokenizers of every kind, as a tokenizer.json in a folder, and a network of Hugging Face's layout for them."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
SETTINGS = {"cls_token": "<s>", "sep_token": {"content": "</s>"}, "pad_token": "<pad>", "mask_token": "<mask>"}
CORPUS = 4 * [
    "这家酒店的房间很干净，服务也不错！WiFi很快，¥300性价比高。",
    "北京的酒店 房间 不错，早餐 也 很好",
    "the quick brown foxes jumped over a lazy dog's bed, unbelievable café fine",
    "fine food at the bed of the dog. quick service 300 1234 hello world",
]


def unigram() -> Tokenizer:
    """As XLM-R has it: NFKC, a blank before every text, two separators between texts."""
    words = [f"▁{word}" for word in " ".join(CORPUS[1:4:2]).split()] + ["▁the", "酒店", "房间", "好，", "fox", "es"]
    characters = sorted({"▁", *"".join(CORPUS).lower()} - {" "})
    vocabulary = [(piece, 0.0) for piece in SPECIALS]
    vocabulary += [(piece, -3.0 - i / 99) for i, piece in enumerate(dict.fromkeys(words)) if len(piece) > 1]
    vocabulary += [(piece, -9.0 - i / 99) for i, piece in enumerate(characters)]
    made = Tokenizer(models.Unigram(vocabulary, 3, False))
    made.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    made.add_special_tokens(SPECIALS)
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return made


def bytes_bpe() -> Tokenizer:
    """As RoBERTa and ModernBERT have it."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(CORPUS, trainer)
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return made


def fallback_bpe() -> Tokenizer:
    """As Llama has it: what is unknown is read as bytes. Token types differ for the two texts."""
    made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    made.normalizer = normalizers.Replace(" ", "▁")
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    specials = [*SPECIALS, *(f"<0x{i:02X}>" for i in range(256))]
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=450, special_tokens=specials, show_progress=False))
    ends = [("<s>", 0), ("</s>", 2)]
    made.post_processor = processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> $B:1 </s>:1", ends)
    return made


def gemma_bpe() -> Tokenizer:
    """As Gemma and mmBERT have it: a text is one word, whose blanks are ▁, and none stands before it; what is unknown
    is read as bytes; line breaks, blanks in a row and tags are added tokens, and no special ones."""
    made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.normalizer = normalizers.Replace(" ", "▁")
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")  # so that only a first sign may be ▁
    specials = [*SPECIALS, *(f"<0x{i:02X}>" for i in range(256))]
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=450, special_tokens=specials, show_progress=False))
    made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    made.add_tokens([AddedToken(token, normalized=False) for token in ("\n", "\n\n", "▁▁", "<table>")])
    ends = [("<s>", 0), ("</s>", 2)]
    made.post_processor = processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> $B </s>", ends)
    return made


def odd_wordpiece() -> Tokenizer:
    """WordPiece, but not BERT's normaliser, nor its way of marking what goes on."""
    made = Tokenizer(models.WordPiece(unk_token="<unk>", continuing_subword_prefix="@@"))
    made.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation()])
    trainer = trainers.WordPieceTrainer(
        vocab_size=300, special_tokens=SPECIALS, continuing_subword_prefix="@@", show_progress=False
    )
    made.train_from_iterator(CORPUS, trainer)
    made.post_processor = processors.BertProcessing(("</s>", 2), ("<s>", 0))
    return made


KINDS = (unigram, bytes_bpe, fallback_bpe, gemma_bpe, odd_wordpiece)


def written(folder, library, **settings):
    folder.mkdir(exist_ok=True)
    library.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({**SETTINGS, **settings}), encoding="utf-8")
    return folder


def field(number: int, value: int | float | str | bytes) -> bytes:
    """A field of a protobuf message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    lower, rest = value & 0x7F, value >> 7
    return bytes([lower | 0x80]) + varint(rest) if rest else bytes([lower])


def with_sentencepiece_model(folder: Path) -> Path:
    """`folder` with its Unigram vocabulary as a sentencepiece model of XLM-R in place of tokenizer.json."""
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    words = content["model"]["vocab"][len(SPECIALS) :]
    pieces = [field(1, "<unk>") + field(3, 2), field(1, "<s>") + field(3, 3), field(1, "</s>") + field(3, 3)]
    pieces += [field(1, piece) + field(2, score) for piece, score in words]
    (folder / "sentencepiece.bpe.model").write_bytes(
        b"".join(field(1, piece) for piece in pieces) + field(2, field(3, 1)) + field(3, field(1, "identity"))
    )
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "XLMRobertaTokenizer"}', encoding="utf-8")
    return folder


def encoder(folder: Path, library: Tokenizer, **settings: str) -> Path:
    """A folder as Hugging Face lays it out: a random BERT of one layer, and `library` as its tokenizer."""
    written(folder, library, **settings)
    chance = np.random.default_rng(7)
    size, inner, entries = 16, 32, library.get_vocab_size()
    config = {
        "model_type": "bert",
        "architectures": ["BertForMaskedLM"],
        "vocab_size": entries,
        "hidden_size": size,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": inner,
        "max_position_embeddings": 64,
        "type_vocab_size": 2,
        "pad_token_id": 1,
    }
    (folder / "config.json").write_text(json.dumps(config))
    layer = "bert.encoder.layer.0."
    linear = {f"{layer}attention.self.{name}": (size, size) for name in ("query", "key", "value")}
    linear |= {f"{layer}attention.output.dense": (size, size), f"{layer}intermediate.dense": (inner, size)}
    linear |= {f"{layer}output.dense": (size, inner), "bert.pooler.dense": (size, size)}
    linear |= {"cls.predictions.transform.dense": (size, size)}
    norms = ("bert.embeddings.LayerNorm", f"{layer}attention.output.LayerNorm", f"{layer}output.LayerNorm",
             "cls.predictions.transform.LayerNorm")  # fmt: skip
    tables = {"word": entries, "position": 64, "token_type": 2}
    shapes = {f"bert.embeddings.{name}_embeddings.weight": (rows, size) for name, rows in tables.items()}
    shapes |= {f"{name}.weight": shape for name, shape in linear.items()}
    shapes |= {f"{name}.bias": shape[:1] for name, shape in linear.items()}
    shapes |= {f"{name}.{part}": (size,) for name in norms for part in ("weight", "bias")}
    shapes |= {"cls.predictions.bias": (entries,)}
    arrays = {name: chance.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(arrays, str(folder / "model.safetensors"), metadata={"format": "pt"})
    return folder
