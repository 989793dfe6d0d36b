"""Hand-written inference with Paddle Inference and oneDNN. scripts/bench_inference.py starts it."""

from __future__ import annotations

import zlib  # noqa: F401  before Paddle, or it crashes
from typing import Any

import numpy as np
import paddle.inference as paddle_inference
from answering import Answer, fast_tokenizer, in_order, serve, sorted_batches


def load(spec: dict[str, Any]) -> Answer:
    file = f"{spec['folder']}/{spec['file']}"
    config = paddle_inference.Config(file, file.removesuffix(".pdmodel") + ".pdiparams")
    config.disable_glog_info()
    config.disable_gpu()
    config.enable_memory_optim()
    config.set_cpu_math_library_num_threads(spec["threads"])
    config.enable_mkldnn()
    config.set_mkldnn_cache_capacity(200)
    if spec["precision"] == "bf16":
        config.enable_mkldnn_bfloat16()
    predictor = paddle_inference.create_predictor(config)
    inputs = {name: predictor.get_input_handle(name) for name in predictor.get_input_names()}
    output = predictor.get_output_handle(predictor.get_output_names()[0])
    tokenizer = fast_tokenizer(spec)

    def answer(texts: list[str], size: int) -> list[int]:
        found = []
        for places, ids in sorted_batches(tokenizer, texts, size):
            inputs["input_ids"].copy_from_cpu(ids)
            inputs["token_type_ids"].copy_from_cpu(np.zeros_like(ids))
            predictor.run()
            found.append((places, output.copy_to_cpu()))
        return in_order(found, len(texts))

    return answer


if __name__ == "__main__":
    serve(load)
