"""PaddleNLP tokenizers cannot be pickled.

paddlenlp 2.8.1, data/vocab.py:104 and :114: Vocab keeps a defaultdict whose factory is a lambda, so
`pickle.dumps(tokenizer)` raises "Can't pickle local object 'Vocab.__init__.<locals>.<lambda>'".
DataLoader workers started by fork do not pickle; anything else that crosses processes does.
Test: tests/upstream/test_tokenizer_pickle.py.
"""

from __future__ import annotations

import importlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class PickledTokenizer:
    """A PaddleNLP tokenizer as the files that it saves, which can be pickled."""

    module: str
    class_name: str
    files: tuple[tuple[str, bytes], ...]

    @classmethod
    def pack(cls, tokenizer: Any) -> PickledTokenizer:
        """Take `tokenizer` apart."""
        kind = type(tokenizer)
        with tempfile.TemporaryDirectory() as folder:
            tokenizer.save_pretrained(folder)
            files = tuple((path.name, path.read_bytes()) for path in sorted(Path(folder).iterdir()))
        return cls(kind.__module__, kind.__qualname__, files)

    def unpack(self) -> Any:
        """An equal tokenizer."""
        kind = getattr(importlib.import_module(self.module), self.class_name)
        with tempfile.TemporaryDirectory() as folder:
            for name, content in self.files:
                (Path(folder) / name).write_bytes(content)
            # A path, never a name: nothing is looked up on the hub.
            return kind.from_pretrained(folder)
