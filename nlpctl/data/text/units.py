"""The tokenizer of nlpctl's own networks. Its units are characters, or words segmented by jieba.

A unit is looked up in the vocabulary as written, then in lower case. White space is no unit. PaddleNLP's JiebaTokenizer
is not used: it passes the vocabulary to jieba without the prefixes of its words. jieba walks its prefix dictionary, so
it then misses words of the vocabulary (if it holds 长江大桥 alone, nothing is found).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from nlpctl import console
from nlpctl.data.readers.dictionaries import UNKNOWN_ENTRIES, Dictionaries
from nlpctl.data.readers.lines import read_lines
from nlpctl.data.text.encoder import Encoding, TextEncoder, longest_first
from nlpctl.data.text.own_tokenizer import OwnTokenizer
from nlpctl.data.text.word_spans import load_jieba
from nlpctl.errors import Problem, UserError
from nlpctl.files import read_json, write_json_atomic, write_text_atomic

# -- a vocabulary in a file, for networks trained from nothing --------------------------------------------------------
#
# vocab.txt     an entry per line, its id the line, as Vocab.load_vocabulary reads it and BERT's tokenizers save it
# vocab.json    what Vocab.to_json writes: token_to_idx, and which entries stand for padding and the unknown
#
# Imports neither Paddle nor NumPy.

_MAX_ID = 10_000_000  # a typing error in an id must not take gigabytes


@dataclass(frozen=True)
class Entries:
    """`tokens`: index = id. A blank line, all but the last of equal ones, and what has a line break itself, are
    [unused7] and the like.

    `specials`: pad_token, unk_token and so on, where the file says so.
    """

    tokens: tuple[str, ...]
    specials: Mapping[str, str] = field(default_factory=dict)

    def completed(self, specials: Iterable[str]) -> list[str]:
        """The tokens, behind them those of `specials` that are missing."""
        known = set(self.tokens)
        return [*self.tokens, *(special for special in specials if special not in known)]


def read_entries(path: Path) -> Entries:
    """Read the file. UserError: it cannot be read, or holds no entries."""
    entries = (
        _read_vocab_json(path)
        if path.suffix == ".json"
        else Entries(_unique(path, [text for _, text in read_lines(path, "vocabulary")]))
    )
    if not entries.tokens:
        raise UserError("holds no entries", where=str(path), hint="write an entry per line")
    return entries


def _read_vocab_json(path: Path) -> Entries:
    content = read_json(path)
    ids = content.get("token_to_idx")
    if not isinstance(ids, dict) or not all(type(each) is int and 0 <= each <= _MAX_ID for each in ids.values()):
        hint = "give a file of paddlenlp.data.Vocab.to_json, or a text file with an entry per line"
        raise UserError("has no token_to_idx with an id for every entry", where=str(path), hint=hint)
    by_id = {index: token for token, index in ids.items()}
    named = {**_texts(content.get("identifiers_to_tokens")), **_texts({"unk_token": content.get("unk_token")})}
    size = max(by_id, default=-1) + 1
    return Entries(_unique(path, [by_id.get(index, "") for index in range(size)]), named)


def _texts(values: Any) -> dict[str, str]:
    return {name: text for name, text in values.items() if isinstance(text, str)} if isinstance(values, dict) else {}


def _unique(path: Path, lines: Sequence[str]) -> tuple[str, ...]:
    last = {text: index for index, text in enumerate(lines)}
    # Vocabularies are written a line for each entry: a line break would move the ids of all entries behind it.
    unused = [
        index for index, text in enumerate(lines) if not text or last[text] != index or "\n" in text or "\r" in text
    ]
    if unused:
        reason = "are blank, repeated or a line break"
        console.note(f"{path}: {len(unused):,} of {len(lines):,} lines {reason}, and stand for nothing")
    left_out = set(unused)
    return tuple(f"[unused{index}]" if index in left_out else text for index, text in enumerate(lines))


Unit = Literal["characters", "words"]

PAD, UNK, SEP = "[PAD]", "[UNK]", "[SEP]"
VOCABULARY, TOKENIZER_CONFIG = "vocab.txt", "tokenizer_config.json"


@dataclass(frozen=True)
class UnitSettings:
    """The settings of a UnitTokenizer: kind of unit, normalisation, special entries of the vocabulary.

    `replacements`: character -> the one that it is read as, such as full-width -> half-width.
    """

    unit: Unit = "characters"
    lowercase: bool = True
    replacements: Mapping[str, str] = field(default_factory=dict)
    pad: str = PAD
    unk: str = UNK
    sep: str = SEP

    def __post_init__(self) -> None:
        """ValueError for values that no recipe can give, but a damaged file."""
        if self.unit not in get_args(Unit) or not isinstance(self.lowercase, bool):
            raise ValueError(f"units are characters or words, and lowercase is true or false, not {self!r}")
        if not all(len(written) == 1 for written in self.replacements):
            raise ValueError("replacements are for single characters")


class UnitTokenizer(OwnTokenizer):
    """Text to units to ids, and the files that keep it: vocab.txt (line = id) and tokenizer_config.json."""

    model_input_names = ("input_ids",)
    pad_token_type_id = 0
    mask_token = None
    mask_token_id = None

    def __init__(self, vocabulary: Sequence[str], settings: UnitSettings, *, as_written: bool = False):
        """`as_written`: read every character as it stands, whatever the settings say; they are saved unchanged.

        Raises ValueError for a vocabulary that lacks a special entry or has one twice.
        """
        self.vocabulary = tuple(vocabulary)
        self.settings = settings
        # Later entries overwrite earlier ones, so fewer keys than entries mean a repetition.
        ids = {unit: index for index, unit in enumerate(self.vocabulary)}
        if len(ids) != len(self.vocabulary):
            twice = next(unit for index, unit in enumerate(self.vocabulary) if ids[unit] != index)
            raise ValueError(f"{twice!r} is in the vocabulary twice")
        missing = [special for special in (settings.pad, settings.unk, settings.sep) if special not in ids]
        if missing:
            raise ValueError(f"{missing[0]} is not in the vocabulary")
        self.pad_token_id = ids[settings.pad]
        self.unk_token_id = ids[settings.unk]
        self.sep_token_id = ids[settings.sep]
        self.all_special_ids = [self.pad_token_id, self.unk_token_id, self.sep_token_id]
        self.do_lower_case = settings.lowercase
        # What a text says must never become padding.
        specials = (settings.pad, settings.unk, settings.sep)
        known = {unit: i for unit, i in ids.items() if unit not in specials}
        self._ids = _UnitIds(known, self.unk_token_id, settings.lowercase and not as_written)
        replacements = {} if as_written else settings.replacements
        self._replacements = {ord(written): read for written, read in replacements.items()}

    def __len__(self) -> int:
        return len(self.vocabulary)

    def get_vocab(self) -> dict[str, int]:
        return {unit: index for index, unit in enumerate(self.vocabulary)}

    def get_added_vocab(self) -> dict[str, int]:
        """Nothing: words that are added stand in the vocabulary like any."""
        return {}

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        """A separator between the two texts of a pair; nothing else."""
        return int(pair)

    def build_inputs_with_special_tokens(self, first: list[int], second: list[int] | None = None) -> list[int]:
        return list(first) if second is None else [*first, self.sep_token_id, *second]

    def create_token_type_ids_from_sequences(self, first: list[int], second: list[int] | None = None) -> list[int]:
        return [0] * len(self.build_inputs_with_special_tokens(first, second))

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        return [self.vocabulary[index] for index in ids]

    def readable(self, ids: Iterable[int]) -> list[str]:
        return self.convert_ids_to_tokens(ids)

    def text_of(self, ids: Iterable[int]) -> str:
        return " ".join(self.convert_ids_to_tokens(ids))

    def encoder(self) -> UnitEncoder:
        return UnitEncoder(self)

    def with_tokens(self, words: Sequence[str]) -> UnitTokenizer:
        """UserError for words that are always split."""
        problems = [
            Problem(
                f"{word!r} is never one unit: the network reads {self.settings.unit}, here {self.units(word)}",
                "model.add_tokens",
                "delete it",
            )
            for word in words
            if self.units(word) != [word]
        ]
        if problems:
            raise UserError(problems=problems)
        return UnitTokenizer([*self.vocabulary, *words], self.settings)

    def reduced(self, wanted: Collection[int]) -> tuple[UnitTokenizer, list[int]]:
        kept = sorted({*wanted, *self.all_special_ids})
        return UnitTokenizer(self.convert_ids_to_tokens(kept), self.settings), kept

    def units(self, text: str) -> list[str]:
        """The units of `text`, in order."""
        return split_units(text.translate(self._replacements), self.settings.unit)

    def ids(self, text: str) -> list[int]:
        """Ids of the units of `text`."""
        return list(map(self._ids.__getitem__, self.units(text)))

    def word_ids(self, word: str) -> list[int]:
        """Ids of one pre-tokenised word: its own id, or those of its characters. White space has none."""
        if self.settings.unit == "words" and not word.isspace():
            return [self._ids[word.translate(self._replacements)]]
        return self.ids(word)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write vocab.txt and tokenizer_config.json into `folder`."""
        settings = {
            "tokenizer_class": type(self).__name__,
            "unit": self.settings.unit,
            "lowercase": self.settings.lowercase,
            "replacements": dict(self.settings.replacements),
            "pad_token": self.settings.pad,
            "unk_token": self.settings.unk,
            "sep_token": self.settings.sep,
        }
        write_text_atomic(Path(folder) / VOCABULARY, "".join(f"{unit}\n" for unit in self.vocabulary))
        write_json_atomic(Path(folder) / TOKENIZER_CONFIG, settings)

    @classmethod
    def load(cls, folder: Path, config: Mapping[str, Any]) -> UnitTokenizer:
        """The tokenizer in `folder`; `config` is its tokenizer_config.json. KeyError, ValueError: it is damaged."""
        # Not splitlines: it also splits at U+2028 and others, which are units like any.
        lines = (folder / VOCABULARY).read_text(encoding="utf-8").removesuffix("\n").split("\n")
        settings = UnitSettings(
            unit=config["unit"],
            lowercase=config["lowercase"],
            replacements=config["replacements"],
            pad=config["pad_token"],
            unk=config["unk_token"],
            sep=config["sep_token"],
        )
        return cls(lines, settings)


class _UnitIds(dict[str, int]):
    """Unit -> id. Unknown characters are cached, since their number is limited; unknown words are not."""

    def __init__(self, known: Mapping[str, int], unknown: int, lowercase: bool):
        super().__init__(known)
        self._unknown, self._lowercase = unknown, lowercase

    def __missing__(self, unit: str) -> int:
        index = self.get(unit.lower(), self._unknown) if self._lowercase else self._unknown
        # Words are not cached: a stream of new ones would grow the process without end.
        if len(unit) == 1:
            self[unit] = index
        return index

    def __reduce__(self) -> tuple:
        return type(self), (dict(self), self._unknown, self._lowercase)


def tokenizer_of_dictionaries(dictionaries: Dictionaries, lowercase: bool) -> UnitTokenizer:
    """A tokenizer over characters with the ids of word.dic; what it lacks of special entries goes behind its last."""
    unknown = dictionaries.unknown if dictionaries.unknown is not None else UNK
    settings = UnitSettings("characters", lowercase, dictionaries.replacements, unk=unknown)
    extra = [special for special in (PAD, unknown, SEP) if special not in dictionaries.words]
    return UnitTokenizer([*dictionaries.words, *extra], settings)


def tokenizer_of_entries(entries: Entries, unit: Unit, lowercase: bool) -> UnitTokenizer:
    """A tokenizer with the ids of a vocabulary file; what it lacks of special entries goes behind its last."""
    pad = entries.specials.get("pad_token", PAD)
    unknown = next((entry for entry in (UNK, *UNKNOWN_ENTRIES) if entry in entries.tokens), UNK)
    settings = UnitSettings(unit, lowercase, pad=pad, unk=entries.specials.get("unk_token", unknown))
    return UnitTokenizer(entries.completed((settings.pad, settings.unk, settings.sep)), settings)


def known_share(tokenizer: UnitTokenizer, texts: Iterable[str]) -> float:
    """The share of the units of `texts` that the vocabulary has; 1 for no text."""
    ids = [each for text in texts for each in tokenizer.ids(text)]
    return 1 - ids.count(tokenizer.unk_token_id) / len(ids) if ids else 1.0


def special_ids(tokenizer: Any) -> set[int]:
    """The ids that are no text: the tokens around a text, between two, and padding. The unknown token is text."""
    return set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}


class UnitEncoder(TextEncoder):
    """Rows of ids: a text as it is, a pair with a separator between."""

    kind = "units"

    def _encode(
        self, texts: Sequence[str], pairs: Sequence[str] | None, max_length: int, tell_cut: bool
    ) -> list[Encoding]:
        if pairs is None:
            return [self._single(text, max_length) for text in texts]
        return [self._pair(text, pair, max_length - 1) for text, pair in zip(texts, pairs, strict=True)]

    def _single(self, text: str, room: int) -> Encoding:
        ids = self._text(text)
        return replace(self.assemble(ids[:room]), truncated=len(ids) > room)

    def _pair(self, text: str, pair: str, room: int) -> Encoding:
        first, second = self._text(text), self._text(pair)
        keep_first, keep_second = longest_first(min(len(first), room), min(len(second), room), room)
        whole = len(first) + len(second) <= room
        return replace(self.assemble(first[:keep_first], second[:keep_second]), truncated=not whole)

    def _text(self, text: str) -> list[int]:
        return self.tokenizer.ids(text) or [self.tokenizer.unk_token_id]  # a row of nothing but padding has no answer

    def _word(self, word: str) -> list[int]:
        return self.tokenizer.word_ids(word)


def split_units(text: str, unit: Unit) -> list[str]:
    """The units of `text`: its characters, or jieba's words, without white space."""
    if unit == "characters":
        # str.split knows every kind of white space, U+3000 included.
        return list("".join(text.split()))
    return [word for word in load_jieba().lcut(text) if not word.isspace()]


def build_unit_vocabulary(
    texts: Iterable[str], unit: Unit, vocab_size: int, min_frequency: int, lowercase: bool
) -> list[str]:
    """Special entries, then the units of `texts` that occur `min_frequency` times or more, frequent ones first.

    At most `vocab_size` entries; memory is bounded, whatever the number of texts. UserError if no unit would be left.
    """
    from nlpctl.data.text.vocabulary import count_bounded  # the library takes its time

    specials = [PAD, UNK, SEP]
    counts = count_bounded(_lowered(texts, unit, lowercase))
    # Ties go by code point, so that the same texts always give the same ids.
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    known = [unit for unit, count in ranked if count >= min_frequency and unit not in specials]
    vocabulary = [*specials, *known][:vocab_size]
    if len(vocabulary) <= len(specials):
        raise UserError(
            f"no entries besides the {len(specials)} special ones",
            where="model.from_scratch.vocab_size",
            hint="vocab_size 8000 with min_frequency 1 or 2 suits most texts",
        )
    return vocabulary


def _lowered(texts: Iterable[str], unit: Unit, lowercase: bool) -> Iterator[list[str]]:
    for text in texts:
        units = split_units(text, unit)
        yield [unit.lower() for unit in units] if lowercase else units
