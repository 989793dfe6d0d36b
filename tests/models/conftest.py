"""Tiny model folders for the tests of nlpctl.models."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import nlpctl  # noqa: F401  (imports zlib, which has to come before Paddle)

HUGGINGFACE = Path(__file__).parent / "huggingface"
VOCABULARY = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", *"abcdefghijk"]
SIZES = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 16,
}


@pytest.fixture
def hugging_face(tmp_path):
    """A function that copies one of the recorded Hugging Face folders, to be damaged at will."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(HUGGINGFACE / name, tmp_path / name))

    return copy


@pytest.fixture
def paddle_folder(tmp_path):
    """A function that saves a tiny PaddleNLP network and returns its folder."""

    def save(family: str = "Ernie", kind: str = "Model", **values) -> Path:
        import paddle
        from paddlenlp import transformers

        paddle.seed(1)
        config = vars(transformers)[f"{family}Config"](**(SIZES | values))
        network_class = vars(transformers)[f"{family}{kind}"]
        folder = tmp_path / f"{family}{kind}"
        network_class(config).save_pretrained(str(folder))
        write_vocabulary(folder)
        return folder

    return save


def write_vocabulary(folder: Path) -> None:
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
