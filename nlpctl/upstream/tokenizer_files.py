"""Tokenizers that can be saved after their source folder is gone or has changed."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any


def keep_resources(tokenizer: Any) -> Any:
    """Makes `tokenizer` save its vocabulary from memory, without the path of its source. Returns it.

    PaddleNLP 2.8.1, transformers/tokenizer_utils_base.py:1739 (`save_resources`): saving copies
    vocab.txt from the folder that the tokenizer was loaded from. If that folder was moved, deleted or
    changed during a training of hours, saving a checkpoint fails or pairs a foreign vocabulary with
    the weights. And transformers/tokenizer_utils_base.py:1670 (`save_pretrained`) writes the path of
    special_tokens_map.json into tokenizer_config.json: for a vocabulary built from the training text, a temporary
    folder that is another in every run. Test: tests/upstream/test_tokenizer_files.py.
    """
    tokenizer.init_kwargs.pop("special_tokens_map_file", None)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_resources(folder)
        contents = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    # An instance attribute: other tokenizers of the class keep their method.
    tokenizer.save_resources = partial(_write, contents)
    return tokenizer


def _write(contents: dict[str, bytes], save_directory: str) -> None:
    for name, content in contents.items():
        (Path(save_directory) / name).write_bytes(content)
