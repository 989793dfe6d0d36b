"""PaddleNLP's tokenizer over the files that nlpctl's saves, to compare the two."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def paddle_tokenizer(tokenizer: Any, folder: Path) -> Any:
    """`tokenizer`: of a class in data/text/wordpiece.py; `folder`: a new one for its files."""
    tokenizer.save_pretrained(folder)
    return load_paddle_tokenizer(folder)


def load_paddle_tokenizer(folder: Path) -> Any:
    from paddlenlp import transformers

    name = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))["tokenizer_class"]
    return getattr(transformers, name).from_pretrained(str(folder.absolute()))
