"""A WordPiece tokenizer as one file of an export, so that texts are read without importing PaddleNLP.

The file holds what PaddleNLP's tokenizer answered at export: its pieces, its special tokens, and what it makes of each
character of the planes that texts use. So nothing here has rules of its own. A character beyond them, or a text with an
added token in it, is asked of PaddleNLP's tokenizer, which is opened then.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar

from nlpctl.documents import Count, Document, MissingDocument, OtherFormat

FILE = "fast_tokenizer.json"
_RANGES = (range(0xD800), range(0xE000, 0x10000), range(0x1F000, 0x1FC00))  # the first plane, and emoji
_SAME, _ALONE, _GONE, _SPACE, _OTHER = range(5)  # kinds of runs of characters


class StoredCharacters(dict[int, str]):
    """Code point -> its normalised form, as a CharacterTable (wordpiece.py); filled on demand.

    `runs`: first code point and kind of each run, rising; the last one ends with the stored ranges. `others`: the forms
    in runs of _OTHER. `beyond`: the table that is asked for characters that are not stored.
    """

    def __init__(
        self, runs: Sequence[tuple[int, int]], others: Mapping[int, str], beyond: Callable[[], Mapping[int, str]]
    ):
        super().__init__()
        self._starts, self._kinds = [start for start, _ in runs], [kind for _, kind in runs]
        self._others, self._beyond = others, beyond

    def __missing__(self, code_point: int) -> str:
        if any(code_point in stored for stored in _RANGES):
            kind = self._kinds[bisect_right(self._starts, code_point) - 1]
            form = self._others[code_point] if kind == _OTHER else _form(code_point, kind)
        else:
            form = self._beyond()[code_point]
        self[code_point] = form
        return form


def _form(code_point: int, kind: int) -> str:
    return (chr(code_point), f" {chr(code_point)} ", "", " ")[kind]


def _kind(code_point: int, form: str) -> int:
    character = chr(code_point)
    if form == character:
        return _SAME
    if form.strip(" ") == character:
        return _ALONE if form == f" {character} " else _OTHER
    return _GONE if not form else _SPACE if form == " " else _OTHER


def stored_runs(table: Mapping[int, str]) -> tuple[list[tuple[int, int]], dict[int, str]]:
    """`runs` and `others` of StoredCharacters that give what `table` gives."""
    runs: list[tuple[int, int]] = []
    others: dict[int, str] = {}
    for code_point in (each for stored in _RANGES for each in stored):
        form = table[code_point]
        kind = _kind(code_point, form)
        if kind == _OTHER:
            others[code_point] = form
        if not runs or runs[-1][1] != kind:
            runs.append((code_point, kind))
    return runs, others


def _character_kind(value: int) -> None:
    if not 0 <= value <= _OTHER:
        raise ValueError(f"is {value}, no kind of characters")


@dataclass(frozen=True)
class StoredTokenizerFile(Document):
    """fast_tokenizer.json of an export: what a StoredTokenizer needs, written by `nlpctl export`.

    `ids`: of [PAD] and the like; `pieces`: the vocabulary, index = id, and `added`: tokens beside it; `runs`, `others`:
    as in StoredCharacters. The other entries are attributes of PaddleNLP's tokenizer.
    """

    FORMAT: ClassVar[int | None] = 1
    REPAIR: ClassVar[str] = "copy the export again, or make it again with `nlpctl export`"

    model_input_names: list[str]
    pad_token_type_id: int
    do_lower_case: bool
    mask_token: str | None
    all_special_tokens: list[str]
    unique_no_split_tokens: list[str]
    all_special_ids: list[int]
    ids: Mapping[str, int | None]
    added: Mapping[str, int]
    unk_token: str
    max_input_chars_per_word: int
    pieces: list[str]
    runs: list[tuple[Count, Annotated[int, _character_kind]]]
    others: Mapping[int, str]

    def __post_init__(self) -> None:
        if not self.runs or self.runs[0][0] != 0:
            raise ValueError("is damaged: its runs of characters are not whole")


class StoredTokenizer:
    """What encoders and tasks ask of a PaddleNLP WordPiece tokenizer: [CLS] text [SEP], or [CLS] text [SEP] pair [SEP].

    What it does not have is an attribute of `full`, PaddleNLP's own tokenizer, which is opened for it.
    """

    def __init__(
        self, content: StoredTokenizerFile, full: Callable[[], Any], beyond: Callable[[Any], Mapping[int, str]]
    ):
        """`full` opens PaddleNLP's tokenizer; `beyond`: from that to its table of characters."""
        self._full = functools.cache(full)
        self.model_input_names = content.model_input_names
        self.pad_token_type_id = content.pad_token_type_id
        self.do_lower_case = content.do_lower_case
        self.mask_token = content.mask_token
        self.all_special_tokens = content.all_special_tokens
        self.unique_no_split_tokens = content.unique_no_split_tokens
        self.all_special_ids = content.all_special_ids
        for name, value in content.ids.items():
            setattr(self, f"{name}_token_id", value)
        self._added = dict(content.added)
        self._tokens = dict(enumerate(content.pieces)) | {id: token for token, id in self._added.items()}
        self.wordpiece_tokenizer = SimpleNamespace(
            vocab=SimpleNamespace(token_to_idx={piece: id for id, piece in enumerate(content.pieces)}),
            unk_token=content.unk_token,
            max_input_chars_per_word=content.max_input_chars_per_word,
        )
        characters = functools.cache(lambda: beyond(self._full()))
        self.characters = StoredCharacters(content.runs, content.others, characters)

    @property
    def full(self) -> Any:
        """PaddleNLP's tokenizer."""
        return self._full()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_full" not in vars(self):
            raise AttributeError(name)
        return getattr(self.full, name)

    def __len__(self) -> int:
        return len(self._tokens)

    def get_added_vocab(self) -> dict[str, int]:
        return dict(self._added)

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        return [self._tokens[int(id)] for id in ids]

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        return 3 if pair else 2

    def build_inputs_with_special_tokens(self, first: list[int], second: list[int] | None = None) -> list[int]:
        after = [] if second is None else [*second, self.sep_token_id]
        return [self.cls_token_id, *first, self.sep_token_id, *after]

    def create_token_type_ids_from_sequences(self, first: list[int], second: list[int] | None = None) -> list[int]:
        return [0] * (len(first) + 2) + ([] if second is None else [1] * (len(second) + 1))


def write_stored_tokenizer(folder: Path, tokenizer: Any, table: Mapping[int, str]) -> None:
    """Write `tokenizer`, PaddleNLP's, of a class whose `unsupported_reason` is None; `table`: its characters."""
    runs, others = stored_runs(table)
    pieces = sorted(tokenizer.wordpiece_tokenizer.vocab.token_to_idx.items(), key=lambda entry: entry[1])
    names = ("pad", "unk", "cls", "sep", "mask")
    StoredTokenizerFile(
        model_input_names=list(tokenizer.model_input_names),
        pad_token_type_id=tokenizer.pad_token_type_id,
        do_lower_case=tokenizer.do_lower_case,
        mask_token=tokenizer.mask_token,
        all_special_tokens=list(map(str, tokenizer.all_special_tokens)),
        unique_no_split_tokens=list(map(str, tokenizer.unique_no_split_tokens)),
        all_special_ids=list(tokenizer.all_special_ids),
        ids={name: getattr(tokenizer, f"{name}_token_id") for name in names},
        added=tokenizer.get_added_vocab(),
        unk_token=tokenizer.wordpiece_tokenizer.unk_token,
        max_input_chars_per_word=tokenizer.wordpiece_tokenizer.max_input_chars_per_word,
        pieces=[piece for piece, _ in pieces],
        runs=runs,
        others=others,
    ).save(folder / FILE)


def read_stored_tokenizer(
    folder: Path, full: Callable[[], Any], beyond: Callable[[Any], Mapping[int, str]]
) -> StoredTokenizer | None:
    """The tokenizer in `folder`; None if there is none, or of another format, as in exports of another nlpctl.
    UserError: it is damaged."""
    try:
        return StoredTokenizer(StoredTokenizerFile.load(folder / FILE), full, beyond)
    except (MissingDocument, OtherFormat):
        return None
