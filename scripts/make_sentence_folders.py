#!/usr/bin/env python
"""Small folders of sentence-transformers with what it computes from them: tests/models/sentence_folders/.

Needs PyTorch, Transformers 5 and sentence-transformers 6, which the tests do without:

    python scripts/make_sentence_folders.py tests/models/sentence_folders

Weights are random and drawn with a fixed seed. Each folder is as `save` writes it, without its README.md, and has
expected.json: texts or pairs, and the vectors or scores of them.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ":", ",", *LETTERS, *(f"##{letter}" for letter in LETTERS)]
WORDS += ["the", "room", "was", "good", "bad", "query", "passage", *"房间很干净服务差"]
TEXTS = ["the room was good", "bad", "房间很干净,服务差", "THE Passage: was Bad good good good", "a longer one " * 9]
PAIRS = [["the room was good", "bad"], ["房间很干净", "服务差"], ["good", "the passage " * 9], ["bad", "bad"]]
WIDTH, LENGTH = 16, 24

# Name: pooling, width and activation of Dense, whether Normalize follows, what SentenceTransformer takes besides.
VECTORS = {
    "mean": ("mean", None, True, {"prompts": {"query": "query: ", "document": "passage: "}}),
    "cls-dense": ("cls", (12, nn.Tanh()), True, {}),
    "max-dot": ("max", None, False, {"similarity_fn_name": "dot"}),
    "weightedmean-dense": (
        "weightedmean",
        (20, nn.Identity()),
        False,
        {"prompts": {"passage": "passage: ", "other": "good "}, "default_prompt_name": "other"},
    ),
}
SCORES = {"reranker": 1, "three-labels": 3}  # name and number of labels


def main(target: Path) -> None:
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=40, initializer_range=0.5,
    )  # fmt: skip
    for name, (pooling, dense, normalize, settings) in VECTORS.items():
        with tempfile.TemporaryDirectory() as encoder:
            save(encoder, BertModel, config)
            parts = [modules.Transformer(encoder, max_seq_length=LENGTH), modules.Pooling(WIDTH, pooling)]
        if dense is not None:
            parts.append(modules.Dense(WIDTH, dense[0], bias=pooling == "cls", activation_function=dense[1]))
        parts += [modules.Normalize()] if normalize else []
        model = SentenceTransformer(modules=parts, **settings)
        model.save(str(target / name))
        queries, documents = model.encode_query(TEXTS), model.encode_document(TEXTS)
        if "passage" in model.prompts:  # encode_document does not ask for it where `document` is empty
            documents = model.encode(TEXTS, prompt_name="passage")
        expected = {"texts": TEXTS, "encode": rounded(model.encode(TEXTS))}
        expected |= {"query": rounded(queries), "document": rounded(documents)}
        expected["similarity"] = rounded(model.similarity(queries, documents).numpy())
        finish(target / name, expected)
    for name, labels in SCORES.items():
        with tempfile.TemporaryDirectory() as encoder:
            config.num_labels = labels
            save(encoder, BertForSequenceClassification, config)
            cross = CrossEncoder(encoder, max_length=LENGTH)
        cross.save(str(target / name))
        finish(target / name, {"pairs": PAIRS, "scores": rounded(cross.predict(PAIRS))})


def save(folder: str, network: type, config: BertConfig) -> None:
    torch.manual_seed(1)
    network(config).save_pretrained(folder)
    BertTokenizer(vocab={word: number for number, word in enumerate(WORDS)}).save_pretrained(folder)


def rounded(array) -> list:
    return [[round(value, 7) for value in row] if isinstance(row, list) else round(row, 7) for row in array.tolist()]


def finish(folder: Path, expected: dict) -> None:
    (folder / "README.md").unlink()
    for weights in folder.rglob("*.safetensors"):
        weights.chmod(0o644)
    (folder / "expected.json").write_text(json.dumps(expected, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    main(Path(sys.argv[1]))
