"""Examples to padded NumPy batches, also in worker processes, with failures passed to the main process.

An exception in a collator hangs Paddle's loader forever (its reader thread dies silently), so `Collator` never raises:
it returns a batch that carries the failure, and `raise_failure` raises it where the batch is used. Paddle tensors must
not be made here: they crash the workers.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from nlpctl.errors import NlpctlError, Problem, RunFailed, UserError

if TYPE_CHECKING:
    from nlpctl.data.text.encoder import Encoding, TextEncoder

Batch = dict[str, np.ndarray]  # what a network takes, by name

FAILURE_KEY = "loader_failure"


@dataclass(frozen=True)
class LoaderFailure:
    """An error raised while a batch was made, in picklable form. `user`: the user can fix it."""

    problems: tuple[Problem, ...]
    user: bool

    @classmethod
    def from_exception(cls, error: Exception) -> LoaderFailure:
        if isinstance(error, NlpctlError):
            return cls(error.problems, isinstance(error, UserError))
        # A traceback does not survive the pipe to the parent process, so the place is kept as text.
        frame = traceback.extract_tb(error.__traceback__)[-1]
        message = f"making a batch failed: {type(error).__name__}: {error} ({frame.filename}:{frame.lineno})"
        return cls((Problem(message),), user=False)

    def error(self) -> NlpctlError:
        return (UserError if self.user else RunFailed)(problems=self.problems)


def raise_failure(batch: Any) -> None:
    """Raise the failure that `batch` carries, if it carries one: UserError or RunFailed."""
    if isinstance(batch, Mapping) and FAILURE_KEY in batch:
        raise batch[FAILURE_KEY].error()


@contextmanager
def failures_as_errors() -> Iterator[None]:
    """Turns any exception of the body into UserError or RunFailed, as `raise_failure` does."""
    try:
        yield
    except Exception as error:
        raise LoaderFailure.from_exception(error).error() from error


def failure_batch(failure: LoaderFailure) -> dict[str, Any]:
    """A batch that carries `failure` through Paddle's loader, which expects at least one array in every mode."""
    return {FAILURE_KEY: failure, "padding": np.zeros(1, np.int64)}


class Collator:
    """Collates examples into padded arrays: input_ids, token_type_ids if the model takes them, labels if wanted."""

    def __init__(self, encoder: TextEncoder, max_length: int, with_labels: bool) -> None:
        self.encoder = encoder
        self.max_length = max_length
        self.with_labels = with_labels

    def __call__(self, examples: Sequence[Any]) -> dict[str, Any]:
        """int64 arrays [batch, longest] (labels [batch]), or a batch that carries a failure."""
        try:
            for example in examples:
                if isinstance(example, LoaderFailure):
                    return failure_batch(example)
            return self.collate(examples)
        except Exception as error:
            return failure_batch(LoaderFailure.from_exception(error))

    def collate(self, examples: Sequence[Any]) -> dict[str, np.ndarray]:
        """The batch. May raise."""
        return self.arrays(examples, self.encodings(examples, tell_cut=False))

    def encodings(self, examples: Sequence[Any], tell_cut: bool = True) -> list[Encoding]:
        """The token ids of each example; `tell_cut`: as of TextEncoder.encode. Tasks with other kinds of examples
        override it. May raise."""
        pairs = None if examples[0].text_pair is None else [example.text_pair for example in examples]
        return self.encoder.encode([example.text for example in examples], pairs, self.max_length, tell_cut)

    def arrays(self, examples: Sequence[Any], encodings: Sequence[Encoding]) -> dict[str, np.ndarray]:
        """The batch of encoded examples. Tasks with further arrays in their batches override it. May raise."""
        batch = self.pad(encodings)
        if self.with_labels:
            batch["labels"] = self.label_array(examples)
        return batch

    def pad(self, encodings: Sequence[Encoding]) -> dict[str, np.ndarray]:
        """`pad_batch` with the padding ids of the encoder."""
        pad_type = self.encoder.pad_token_type_id if self.encoder.uses_token_types else None
        return pad_batch(encodings, self.encoder.pad_id, pad_type)

    def label_array(self, examples: Sequence[Any]) -> np.ndarray:
        """The labels of `examples`. Tasks whose examples have no one `label` override it."""
        return np.array([example.label for example in examples], np.int64)


def pad_batch(encodings: Sequence[Encoding], pad_id: int, pad_token_type_id: int | None) -> dict[str, np.ndarray]:
    """Pad on the right to the longest of the batch: int64 arrays [batch, length].

    `pad_token_type_id` None: the model takes no token types. There is no attention_mask, because
    PaddleNLP's encoders make it from the pad ids.
    """
    width = max(len(encoding.input_ids) for encoding in encodings)
    batch = {"input_ids": padded([encoding.input_ids for encoding in encodings], width, pad_id)}
    if pad_token_type_id is not None:
        batch["token_type_ids"] = padded([encoding.token_type_ids for encoding in encodings], width, pad_token_type_id)
    return batch


def padded(rows: Sequence[Sequence[int] | np.ndarray], width: int, value: int) -> np.ndarray:
    """`rows` as one int64 array [rows, width], padded with `value` on the right."""
    array = np.full((len(rows), width), value, np.int64)
    # One masked assignment: a loop over rows is several times slower for large batches.
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    values = np.fromiter(chain.from_iterable(rows), np.int64, int(lengths.sum()))
    array[np.arange(width) < lengths[:, None]] = values
    return array
