"""Inference with PyTorch and Transformers and the same weights: a hand-written loop, and Hugging Face's pipeline.

scripts/bench_inference.py starts it with a Python that has torch and transformers. The weights are in an .npz file,
under Hugging Face's names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from answering import Answer, fast_tokenizer, in_order, serve, sorted_batches
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast, TextClassificationPipeline


def load(spec: dict[str, Any]) -> Answer:
    torch.set_num_threads(spec["threads"])
    network = BertForSequenceClassification(BertConfig(**spec["config"]))
    with np.load(spec["weights"]) as arrays:
        network.load_state_dict({name: torch.from_numpy(arrays[name]) for name in arrays.files}, strict=True)
    network.eval()
    return _pipeline(network, spec) if spec["pipeline"] else _loop(network, spec)


def _loop(network: BertForSequenceClassification, spec: dict[str, Any]) -> Answer:
    if spec["precision"] == "bf16":
        network = network.to(torch.bfloat16)
    tokenizer = fast_tokenizer(spec)

    def answer(texts: list[str], size: int) -> list[int]:
        found = []
        with torch.inference_mode():
            for places, ids in sorted_batches(tokenizer, texts, size):
                tensor = torch.from_numpy(ids)
                logits = network(input_ids=tensor, attention_mask=(tensor != 0).long()).logits
                found.append((places, logits.float().numpy()))
        return in_order(found, len(texts))

    return answer


def _pipeline(network: BertForSequenceClassification, spec: dict[str, Any]) -> Answer:
    tokenizer = BertTokenizerFast(vocab_file=f"{spec['folder']}/vocab.txt", model_max_length=spec["max_length"])
    pipeline = TextClassificationPipeline(model=network, tokenizer=tokenizer, framework="pt", device=-1)

    def answer(texts: list[str], size: int) -> list[int]:
        answers = pipeline(texts, batch_size=size, truncation=True)
        return [network.config.label2id[each["label"]] for each in answers]

    return answer


if __name__ == "__main__":
    serve(load)
