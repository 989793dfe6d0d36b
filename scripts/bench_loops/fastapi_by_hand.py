"""A service as one would write it by hand with FastAPI and ONNX Runtime. scripts/bench_serve.py starts it.

`python fastapi_by_hand.py SPEC PORT WORKERS`; SPEC is that of answering.py, WORKERS the number of processes. POST
/predict {"text": ...} gives a label and its probability.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import numpy as np
import onnxruntime
import uvicorn
from answering import fast_tokenizer
from fastapi import FastAPI
from pydantic import BaseModel


class Request(BaseModel):
    text: str


def application() -> FastAPI:
    """Called in every process."""
    with open(os.environ["SPEC"], encoding="utf-8") as stream:
        spec = json.load(stream)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = max(1, spec["threads"] // int(os.environ["WORKERS"]))
    if spec["exact"]:
        options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(f"{spec['folder']}/{spec['file']}", options, ["CPUExecutionProvider"])
    tokenizer = fast_tokenizer(spec)
    app = FastAPI()

    @app.post("/predict")
    def predict(request: Request) -> dict[str, Any]:  # FastAPI calls it in a pool of threads
        ids = np.array([tokenizer.encode(request.text).ids], dtype=np.int64)
        (logits,) = session.run(None, {"input_ids": ids, "token_type_ids": np.zeros_like(ids)})
        powers = np.exp(logits[0] - logits[0].max())
        label = int(logits[0].argmax())
        return {"label": label, "probability": float(powers[label] / powers.sum())}

    return app


if __name__ == "__main__":
    os.environ["SPEC"], port, os.environ["WORKERS"] = sys.argv[1:]
    asked = {"factory": True, "port": int(port), "workers": int(os.environ["WORKERS"]), "log_level": "warning"}
    uvicorn.run("fastapi_by_hand:application", app_dir=os.path.dirname(__file__), **asked)
