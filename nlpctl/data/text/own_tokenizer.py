"""What the rest asks of the tokenizers that are nlpctl's own: UnitTokenizer (units.py) and LibraryTokenizer
(library_tokenizer.py). Every other is one of PaddleNLP's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence

from nlpctl.data.text.encoder import TextEncoder


class OwnTokenizer(ABC):
    """Has besides what encoders ask of a tokenizer of PaddleNLP. Can be pickled; encoding starts no threads."""

    mask_token: str | None
    mask_token_id: int | None
    all_special_ids: list[int]

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def get_vocab(self) -> dict[str, int]: ...

    @abstractmethod
    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]: ...

    @abstractmethod
    def encoder(self) -> TextEncoder:
        """The one that reads texts with it."""

    @abstractmethod
    def readable(self, ids: Iterable[int]) -> list[str]:
        """The pieces for people."""

    @abstractmethod
    def text_of(self, ids: Iterable[int]) -> str:
        """A text that is made of these pieces."""

    @abstractmethod
    def with_tokens(self, words: Sequence[str]) -> OwnTokenizer:
        """A tokenizer that also keeps `words` whole; they get the next ids. UserError if it cannot."""

    @abstractmethod
    def reduced(self, wanted: Collection[int]) -> tuple[OwnTokenizer, list[int]]:
        """A tokenizer with the pieces `wanted` and what they need, and for each of its ids the one that it had.

        Texts that are read as nothing but these are read so again. UserError if no piece can be dropped.
        """
