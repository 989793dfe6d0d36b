"""Steps per second of a transformer encoder in Paddle or PyTorch, for scripts/check_gpu.py. Prints one line of JSON.

    python encoder.py paddle|torch [--device gpu] [--layers 12] [--hidden 768] [--rows 32] [--length 128] [--steps 20]

Both libraries compute the same: `TransformerEncoder` on random input, in training with AdamW and dropout 0.1, and in
inference, in fp32 and, on a card, in mixed precision with fp16. The time ends when the result is on the host.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Callable
from typing import Any

WARM = 3
Cast = Callable[[], contextlib.AbstractContextManager[Any]]


def of_paddle(options: argparse.Namespace) -> tuple[Callable[[], float], Callable[[], float], Cast, str]:
    import paddle

    paddle.set_device("gpu:0" if options.device == "gpu" else "cpu")
    layer = paddle.nn.TransformerEncoderLayer(
        options.hidden, options.heads, 4 * options.hidden, dropout=0.1, activation="gelu"
    )
    network = paddle.nn.TransformerEncoder(layer, options.layers)
    optimizer = paddle.optimizer.AdamW(1e-4, parameters=network.parameters())
    scaler = paddle.amp.GradScaler(enable=options.fp16)
    batch = paddle.randn([options.rows, options.length, options.hidden])

    def train() -> float:
        network.train()
        loss = network(batch).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
        return float(loss)

    def infer() -> float:
        network.eval()
        with paddle.no_grad():
            return float(network(batch).mean())

    return train, infer, lambda: paddle.amp.auto_cast(enable=options.fp16), paddle.__version__


def of_torch(options: argparse.Namespace) -> tuple[Callable[[], float], Callable[[], float], Cast, str]:
    import torch

    device = "cuda" if options.device == "gpu" else "cpu"
    layer = torch.nn.TransformerEncoderLayer(
        options.hidden, options.heads, 4 * options.hidden, dropout=0.1, activation="gelu", batch_first=True
    )
    network = torch.nn.TransformerEncoder(layer, options.layers, enable_nested_tensor=False).to(device)
    optimizer = torch.optim.AdamW(network.parameters(), 1e-4)
    scaler = torch.amp.GradScaler(device, enabled=options.fp16)
    batch = torch.randn(options.rows, options.length, options.hidden, device=device)

    def train() -> float:
        network.train()
        loss = network(batch).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        return float(loss)

    def infer() -> float:
        network.eval()
        with torch.no_grad():
            return float(network(batch).mean())

    return train, infer, lambda: torch.autocast(device, torch.float16, enabled=options.fp16), torch.__version__


def per_second(step: Callable[[], float], cast: Cast, steps: int) -> float:
    """Steps per second, after some that are not counted."""
    with cast():
        for _ in range(WARM):
            step()
        started = time.perf_counter()
        for _ in range(steps):
            step()
    return round(steps / (time.perf_counter() - started), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=("paddle", "torch"))
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    for name, default in (("layers", 12), ("hidden", 768), ("rows", 32), ("length", 128), ("steps", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    options.heads = options.hidden // 64
    found: dict[str, Any] = {}
    for fp16 in (False, True) if options.device == "gpu" else (False,):
        options.fp16 = fp16
        train, infer, cast, version = (of_paddle if options.library == "paddle" else of_torch)(options)
        name = "fp16" if fp16 else "fp32"
        found[f"train_{name}"] = per_second(train, cast, options.steps)
        found[f"infer_{name}"] = per_second(infer, cast, options.steps)
    print(json.dumps({"library": f"{options.library} {version}", "steps_per_second": found}))


if __name__ == "__main__":
    main()
