"""PaddleNLP's data augmentation without its unnecessary downloads."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any


def make_augmenter(kind: str, cut: Any, synonyms: Path | None, copies: int, share: float) -> Any:
    """An augmenter of paddlenlp.dataaug: `kind` is synonym, insert, swap or delete.

    PaddleNLP 2.8.1, dataaug/base_augment.py:90, :97: every augmenter downloads a list of stop words and a
    vocabulary of word vectors of 26 MB, from a fixed address and checked by hash, though it only cuts text into
    words with them. Here `cut`, a function from a text to its words, does that, and no word is passed over as a
    stop word. `synonyms`: {"word": ["other", ...]} in JSON in place of PaddleNLP's own list, which is downloaded
    otherwise (OSError or RuntimeError where it cannot be had). PaddleNLP changes no more than 0.3 of the words that
    can be changed, whatever `share` is (:144).
    Test: tests/upstream/test_dataaug_files.py.
    """
    from paddlenlp import dataaug

    classes = {
        "synonym": dataaug.WordSubstitute,
        "insert": dataaug.WordInsert,
        "swap": dataaug.WordSwap,
        "delete": dataaug.WordDelete,
    }
    base: Any = classes[kind]

    with tempfile.TemporaryDirectory(prefix="nlpctl-dataaug-") as folder:
        files = {"stop_words": Path(folder) / "stopwords.txt", "vocab": Path(folder) / "vocab.json"}
        files["stop_words"].write_text("", encoding="utf-8")
        vocabulary = {"token_to_idx": {"[PAD]": 0, "[UNK]": 1}, "unk_token": "[UNK]"}
        files["vocab"].write_text(json.dumps(vocabulary), encoding="utf-8")

        class Offline(base):
            def _load_file(self, mode: str) -> str:
                return str(files[mode]) if mode in files else super()._load_file(mode)

        # aug_max is 10 words by default, whatever the share.
        words: dict[str, Any] = {"create_n": copies, "aug_percent": share, "aug_max": None}
        if kind in ("synonym", "insert"):
            words |= {"aug_type": "synonym" if synonyms is None else "custom"}
            words |= {"custom_file_path": None if synonyms is None else str(synonyms)}
        augmenter = Offline(**words)
    augmenter.aug_percent = share  # WordSwap takes the argument and goes by 0.1
    # After the constructor, which builds its own tokenizer from the placeholder vocabulary.
    augmenter.tokenizer = _Cutter(cut)
    return augmenter


class _Cutter:
    def __init__(self, cut: Any):
        self._cut = cut

    def cut(self, text: str) -> list[str]:
        return list(self._cut(text))
