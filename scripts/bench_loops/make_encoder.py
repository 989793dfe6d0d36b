"""A new encoder for a benchmark: BERT of 6 layers of 768, weights at random.

    python make_encoder.py TOKENIZER FOLDER      (scripts/bench_train.py calls it)

TOKENIZER: a model folder whose tokenizer it takes. Needs torch and transformers.
"""

from __future__ import annotations

import sys

import torch
from transformers import AutoTokenizer, BertConfig, BertModel


def main(tokenizer_folder: str, folder: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=768,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=3072,
    )
    BertModel(config).save_pretrained(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
