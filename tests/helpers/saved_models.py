"""Model folders as PaddleNLP's save_pretrained and Transformers write them, of small random networks."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

WORDS = "the room was staff food good bad clean dirty very who what in".split()
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
SIZES = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
}
_HUGGINGFACE = {
    "self_attn.q_proj": "attention.self.query",
    "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value",
    "self_attn.out_proj": "attention.output.dense",
    "norm1": "attention.output.LayerNorm",
    "linear1": "intermediate.dense",
    "linear2": "output.dense",
    "norm2": "output.LayerNorm",
}


def save_paddlenlp(folder: Path, family: str, kind: str, **config: Any) -> Any:
    """`folder` as save_pretrained leaves it, with what a Trainer adds. Returns the network."""
    import paddle
    from paddlenlp import transformers

    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    paddle.seed(3)
    network = vars(transformers)[f"{family}For{kind}"](vars(transformers)[f"{family}Config"](**SIZES, **config))
    for parameter in network.parameters():
        parameter.set_value(paddle.randn(parameter.shape) * 0.3)
    network.eval()
    network.save_pretrained(str(folder))
    vars(transformers)[f"{family}Tokenizer"].from_pretrained(str(folder)).save_pretrained(str(folder))
    for name in ("training_args.bin", "trainer_state.json", "optimizer.pdopt", "scheduler.pdparams", "rng_state.pth"):
        (folder / name).write_bytes(b"left over\n")
    (folder / "checkpoint-10").mkdir()
    return network


def save_huggingface(folder: Path, kind: str, id2label: dict[int, str] | None) -> Any:
    """`folder` as Transformers writes a Bert: its layout, its config. Returns PaddleNLP's network, same weights."""
    labels = {} if id2label is None else {"num_labels": len(id2label)}
    network = save_paddlenlp(folder, "Bert", kind, **labels)
    for path in folder.iterdir():
        if path.name != "vocab.txt":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    config = {**SIZES, "model_type": "bert", "architectures": [f"BertFor{kind}"], "pad_token_id": 0, "use_cache": True}
    config["type_vocab_size"] = network.config.type_vocab_size  # PaddleNLP's default is not that of Transformers
    if id2label is not None:
        config |= {"id2label": id2label, "label2id": {name: number for number, name in id2label.items()}}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tokenizer = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 512}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    arrays = dict(_torch(name, value.numpy(), kind) for name, value in network.state_dict().items())
    save_file(arrays, str(folder / "model.safetensors"))
    return network


def _torch(name: str, array: np.ndarray, kind: str) -> tuple[str, np.ndarray]:
    """Name and array as PyTorch has them."""
    linear = array.ndim == 2 and "embeddings" not in name
    layer = re.fullmatch(r"(bert\.encoder\.layer)s(\.\d+\.)([\w.]+)\.(\w+)", name)
    if layer:
        name = f"{layer[1]}{layer[2]}{_HUGGINGFACE[layer[3]]}.{layer[4]}"
    name = name.replace("layer_norm", "LayerNorm")
    if kind == "QuestionAnswering":
        name = name.replace("classifier", "qa_outputs")
    return name, np.ascontiguousarray(array.T if linear else array)
