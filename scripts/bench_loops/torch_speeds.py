"""Rows per second of a Transformers folder in PyTorch: outputs of the network as NumPy arrays, from ids in NumPy.

    python torch_speeds.py FOLDER 1,8,32,128 128 [gpu|cpu]

Prints one line of JSON: {"fp16": {"1": rows per second, ...}, ...}, each the median of five rounds.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import numpy as np
import torch
import transformers

SECONDS, ROUNDS = 0.4, 5


def main(folder: str, sizes: str, length: str, device: str = "gpu") -> None:
    place = "cuda" if device == "gpu" else "cpu"
    config = transformers.AutoConfig.from_pretrained(folder)
    kind = getattr(transformers, config.architectures[0])
    found = {"torch": torch.__version__, "transformers": transformers.__version__}
    kinds = {"fp32": torch.float32, "fp32 in TF32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
    kinds |= {"fp16, compiled": torch.float16}
    for name, number_type in kinds.items():
        if place == "cpu" and name != "fp32":
            continue
        torch.backends.cuda.matmul.allow_tf32 = name == "fp32 in TF32"
        network = kind.from_pretrained(folder, dtype=number_type, attn_implementation="sdpa").to(place).eval()
        if "compiled" in name:
            network = torch.compile(network, mode="reduce-overhead")
        speeds = {size: speed(network, int(size), int(length), config.vocab_size, place) for size in sizes.split(",")}
        found[name] = speeds
    print(json.dumps(found))


def speed(network: torch.nn.Module, rows: int, length: int, words: int, place: str) -> float:
    """Rows per second, the median of ROUNDS."""
    ids = np.random.default_rng(0).integers(5, words, (rows, length))
    mask = np.ones_like(ids)

    def answer() -> np.ndarray:
        with torch.inference_mode():
            given = [torch.from_numpy(each).to(place) for each in (ids, mask)]
            return network(input_ids=given[0], attention_mask=given[1])[0].float().cpu().numpy()

    for _ in range(5):
        answer()
    rounds = []
    for _ in range(ROUNDS):
        count, started = 0, time.perf_counter()
        while time.perf_counter() - started < SECONDS:
            answer()
            count += 1
        rounds.append(rows * count / (time.perf_counter() - started))
    return round(statistics.median(rounds), 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
