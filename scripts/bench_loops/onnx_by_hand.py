"""Hand-written inference with ONNX Runtime. scripts/bench_inference.py starts it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
from answering import Answer, fast_tokenizer, in_order, serve, sorted_batches


def load(spec: dict[str, Any]) -> Answer:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = spec["threads"]
    options.inter_op_num_threads = 1
    if spec["exact"]:
        options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(f"{spec['folder']}/{spec['file']}", options, ["CPUExecutionProvider"])
    tokenizer = fast_tokenizer(spec)

    def answer(texts: list[str], size: int) -> list[int]:
        found = []
        for places, ids in sorted_batches(tokenizer, texts, size):
            (logits,) = session.run(None, {"input_ids": ids, "token_type_ids": np.zeros_like(ids)})
            found.append((places, logits))
        return in_order(found, len(texts))

    return answer


if __name__ == "__main__":
    serve(load)
