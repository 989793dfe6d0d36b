"""How many training rows are longer than data.max_seq_length, and how much of their text no network will read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from nlpctl import console
from nlpctl.data.inspect.lengths import CountedTokens, row_tokens
from nlpctl.data.splits import TrainingData
from nlpctl.data.text.encoder import TextEncoder
from nlpctl.errors import Problem
from nlpctl.names import counted
from nlpctl.report.model import percent
from nlpctl.tasks.base import Task

MOST_ROWS = 2000  # that are tokenised, taken evenly from all
FIRST_ROWS = 300  # of a stream: reading may be slow, and a training may need no more
MOST_BYTES = 4_000_000  # of their texts: seconds with PaddleNLP's tokenizer


@dataclass(frozen=True)
class CutRows:
    """Of `seen` rows, those that are `cut`; and the share of all tokens that is not read."""

    seen: int
    cut: int
    unread: float


def warn_of_cut_rows(task: Task, data: TrainingData, encoder: TextEncoder, positions: int | None) -> None:
    """Warn if training rows are cut. `positions`: the longest rows that the network takes; None: there is no limit."""
    if data.rows.in_windows:
        return
    rows = list(islice(data.training_examples(), FIRST_ROWS)) if data.train is None else data.train
    sample = _sample(rows)
    found = cut_rows(task, data, encoder, sample)
    if not found.cut:
        return
    limit, share = task.data.max_seq_length, found.cut / found.seen
    stream = data.train is None
    if len(sample) == len(rows):
        told = f"{found.cut:,} of {'the first ' if stream else ''}{counted(found.seen, 'training rows')}"
    else:
        told = "nearly all" if share >= 0.9995 else f"about {percent(share)}"  # 100.0 % would claim all
        told += f" of the {f'first {len(rows):,} ' if stream else ''}training rows"
    unread = f"{percent(found.unread)} of {'their' if stream else 'all'} tokens are not read"
    message = f"cut to {limit} tokens: {told}; {unread}"
    if positions is None or limit < positions:
        most = "" if positions is None else f", at most to {positions}"
        hint = f"raise it{most}, if what stands at the end matters; longer rows cost more time and memory"
    else:
        hint = "this network takes no longer rows; if what stands at the end matters, cut the texts into several rows"
    console.warn(str(Problem(message, "data.max_seq_length", hint)))


def cut_rows(task: Task, data: TrainingData, encoder: TextEncoder, examples: Sequence[Any]) -> CutRows:
    """What data.max_seq_length does to the examples of a task without windows."""
    rows, limit = data.rows, task.data.max_seq_length
    counter = _TokensOfRows(encoder, "")
    counter.around = {pair: task.overhead(encoder, pair) for pair in (False, True)}
    tokens = [row_tokens(list(rows.texts(example)), counter, rows.one_sequence) for example in examples]
    unread = sum(max(0, count - limit) for count in tokens)
    return CutRows(len(tokens), sum(count > limit for count in tokens), unread / max(1, sum(tokens)))


class _TokensOfRows(CountedTokens):
    """`around`: the tokens around one text, and around two, as the task has them."""

    around: dict[bool, int]

    def overhead(self, pair: bool) -> int:
        return self.around[pair]


def _sample(rows: Sequence[Any]) -> list[Any]:
    """Some of the rows, taken evenly; all, if these are few and short."""
    chosen = _evenly(rows, MOST_ROWS)
    size = sum(row.byte_length for row in chosen)
    return chosen if size <= MOST_BYTES else _evenly(chosen, max(1, len(chosen) * MOST_BYTES // size))


def _evenly(rows: Sequence[Any], most: int) -> list[Any]:
    count = min(most, len(rows))
    return [rows[i * len(rows) // count] for i in range(count)]
