"""Which id is padding: the one that the tokenizer pads with, whatever config.json says.

The pad_token_id of published config.json files is often not that of their tokenizer: multilingual-e5-small has XLM-R's
vocabulary, whose padding is 1, and BERT's pad_token_id, 0. Transformers does not notice, since its tokenizers give an
attention mask; the networks here make the mask of pad_token_id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nlpctl.errors import UserError
from nlpctl.models.families import Family

_POSITIONS = "embeddings.position_embeddings.weight"
_COUNT_FROM_PADDING = ("Roberta", "MPNet")  # the classes of PaddleNLP; HFMPNet's positions are always behind 1


@dataclass(frozen=True)
class FirstPosition:
    """The row of the table of positions that belongs to the first token of a text: in the file, and in the network."""

    stored: int = 0
    ours: int = 0


def counts_from_padding(family: Family) -> bool:
    """Whether the positions of the family begin behind pad_token_id, as fairseq counted them."""
    return family.name in _COUNT_FROM_PADDING


def agree_on_padding(family: Family, config: Any, tokenizer: Any, where: str) -> FirstPosition:
    """Sets pad_token_id to the tokenizer's, before the network is built.

    Where positions begin behind it, the network gets as many rows more or fewer before them, and `move_positions` has
    to move those of the file, so that every token keeps its own. UserError: pad_token_id is none of the rows.
    """
    pad, declared = tokenizer.pad_token_id, config.pad_token_id
    if pad is None:
        return FirstPosition()
    config.pad_token_id = pad
    if "padding_idx" in vars(config):  # BigBird's embedding has it twice
        config.padding_idx = pad
    rows = config.max_position_embeddings if counts_from_padding(family) else None
    if type(rows) is not int or type(declared) is not int or declared == pad:
        return FirstPosition()
    # What is taken for padding is not counted: if that is the first token of every text, it has the row before.
    first = declared if declared == getattr(tokenizer, "cls_token_id", None) else declared + 1
    if not 0 <= first < rows:
        message = f"pad_token_id is {declared}, and positions begin behind it, but there are only {rows} of them"
        raise UserError(message, where, "copy config.json again from where the model came from")
    config.max_position_embeddings = rows - first + pad + 1
    return FirstPosition(first, pad + 1)


def move_positions(arrays: Mapping[str, np.ndarray], first: FirstPosition) -> dict[str, np.ndarray]:
    """The arrays of a file, where the row `first.stored` of its table of positions becomes `first.ours`."""
    return {
        name: moved_rows(array, first) if name.endswith(_POSITIONS) and array.ndim == 2 else array
        for name, array in arrays.items()
    }


def moved_rows(table: np.ndarray, first: FirstPosition) -> np.ndarray:
    """A table of positions [rows, width] that begins at `first.ours`. The rows before are 0: only padding has one."""
    return np.pad(table[first.stored :], ((first.ours, 0), (0, 0)))
