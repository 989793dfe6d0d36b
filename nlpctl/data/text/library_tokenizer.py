"""Tokenizers of a tokenizer.json, read by the `tokenizers` library: Unigram, BPE, byte-level BPE, WordPiece.

The library splits texts and knows where pieces stand in them. Ids around a text are put there by `LibraryTokenizer`,
from the template in the file. Special tokens are hidden from the library, so that a text that spells one is text.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import math
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal

from tokenizers import AddedToken, Tokenizer
from tokenizers import Encoding as LibraryEncoding
from tokenizers.models import Unigram, WordPiece

from nlpctl import console
from nlpctl.data.text.encoder import Encoding, PiecesOfWords, Span, TextEncoder, longest_first
from nlpctl.data.text.own_tokenizer import OwnTokenizer
from nlpctl.data.text.sentencepiece_model import PIECE_NUMBERS, PieceNumbers, as_tokenizer_json, numbers_of
from nlpctl.data.text.word_spans import is_blank, is_mark
from nlpctl.data.text.wordpiece import (
    ADDED_TOKENS,
    CLASSES,
    LONGEST_WORD,
    PARTS,
    VOCABULARY,
    token_text,
    word_piece_json,
)
from nlpctl.errors import UserError, is_failure
from nlpctl.files import parse_json, regular, write_json_atomic, write_text_atomic
from nlpctl.layout import TASK
from nlpctl.runtime.process_state import silent_stderr

TOKENIZER, SETTINGS, SPECIALS = "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"
CONFIG = "config.json"
_AGAIN = "copy the tokenizer files again from where the model came from"
MOST_BYTES = 128 << 20  # of a file; the largest vocabularies of today, of 256,000 pieces, have some 35 MB
_MOST_ID = 10_000_000
_MOST_CHARACTERS = 4096  # of a piece: the library's tree of Unigram's pieces is as deep, and taking it down recurses
_MOST_GROWTH = 5000  # times that a text may grow; ALBERT's normaliser could make 2,592 characters of one
# Characters that other parts may make of one, such as 18 of U+FDFA.
_GROWTH = {"NFKC": 18, "NFKD": 18, "NFC": 3, "NFD": 4, "Lowercase": 2, "BertNormalizer": 3, "ByteLevel": 4,
           "Metaspace": 2}  # fmt: skip
_PARTS = ("normalizer", "pre_tokenizer", "decoder")
_KINDS = ("Unigram", "BPE", "WordPiece", "WordLevel")
_NAMES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
# Where neither tokenizer_config.json nor special_tokens_map.json names one.
_USUAL = {"unk": ("[UNK]", "<unk>"), "pad": ("[PAD]", "<pad>"), "mask": ("[MASK]", "<mask>")}
# The classes of Transformers whose networks get no token types, whatever the template says.
_WITHOUT_TYPES = ("XLMRoberta", "Roberta", "Camembert", "MPNet", "DistilBert", "Longformer", "GPT2")
_BYTE = re.compile("<0x[0-9A-F]{2}>")  # what byte fallback calls a byte
_SURROGATES = re.compile("[\ud800-\udfff]")
_TRIAL = "a b 1, 中国e\u0301!"  # shows before the work what the library cannot do
_UNKNOWN = "\U00013000"  # a hieroglyph
_A, _B = "a", "b"  # the texts of a row of which the template is read


class LibraryTokenizer(OwnTokenizer):
    """`len()` is one more than the highest id, which is the least number of rows of an embedding: ids may have gaps.
    `init_kwargs`: the content of tokenizer_config.json.
    """

    pad_token_type_id = 0
    pad_token_id: int
    unk_token_id: int
    mask_token: str | None
    mask_token_id: int | None

    def __init__(
        self,
        text: str,
        settings: Mapping[str, Any],
        where: str,
        content: dict[str, Any] | None = None,
        file: str | None = None,
    ):
        """`text`: tokenizer.json, and `content`, the same parsed; `settings`: tokenizer_config.json; `where`: the
        folder, and `file`: what it was made of, if not tokenizer.json, for messages. UserError: they are damaged, or of
        a kind that the library does not know."""
        self._text, self._where = text, where
        self.init_kwargs = dict(settings)
        content = _parsed(text, where) if content is None else content
        file = file or f"{where}/{TOKENIZER}"
        self._tokens = _tokens(content, file)
        self._ids = {token: id for id, token in self._tokens.items()}
        self._size = max(self._tokens) + 1
        self._single, self._pair = _templates(content.get("post_processor"), file)
        ends = [id for id, number, _ in self._single if number is None]
        around = [*ends, *(id for id, number, _ in self._pair if number is None)]
        outside = next((id for id in around if id not in self._tokens), None)
        if outside is not None:
            raise UserError(f"its post_processor has the id {outside}, which is no token", file, _AGAIN)
        self.special_names = self._special_names(content["model"], ends)
        for name in _NAMES:
            token = self.special_names.get(name)
            setattr(self, f"{name}_token", token)
            setattr(self, f"{name}_token_id", None if token is None else self._ids[token])
        if self.pad_token_id in around:
            raise self._pads_wrongly("stands around every text")
        used = {*around, self.pad_token_id, self.unk_token_id, self.mask_token_id}
        self._added = [entry["content"] for entry in _added(content)]
        # Another that is named may be a piece like any.
        named = [token for token in self.special_names.values() if self._ids[token] in used or token in self._added]
        self.all_special_tokens = list(dict.fromkeys([*named, *(self._tokens[id] for id in around)]))
        self.all_special_ids = [self._ids[token] for token in self.all_special_tokens]
        self.additional_special_tokens: list[str] = []
        names = settings.get("model_input_names")
        kind = str(settings.get("tokenizer_class") or "").removesuffix("Fast").removesuffix("Tokenizer")
        typed = "token_type_ids" in names if isinstance(names, list) else kind not in _WITHOUT_TYPES
        self.model_input_names = ["input_ids", "token_type_ids"] if typed else ["input_ids"]
        self.truncation_side = "left" if settings.get("truncation_side") == "left" else "right"
        self._blanks: dict[str, bool] = {}
        self._lstrip = {entry["content"] for entry in _added(content) if entry.get("lstrip") is True}
        hidden = {self._ids[token]: token for token in self.all_special_tokens}
        if settings.get("split_special_tokens") is True:
            hidden |= {entry["id"]: entry["content"] for entry in _added(content) if entry.get("special") is True}
        self._library = _library(content, hidden, file)
        # How the file writes a blank before a piece.
        self.blank = "Ġ" if any(each["type"] == "ByteLevel" for each in _parts(self._library, *_PARTS)) else "▁"
        key = "unk_id" if content["model"]["type"] == "Unigram" else "unk_token"
        self._name_unknown = f"name a piece of model.vocab as model.{key}"
        with _told(file, hint=f"{_AGAIN}; where a text is unknown to it, {self._name_unknown}"), silent_stderr:
            self.convert_tokens_to_string(self._library.encode(_TRIAL).tokens)

    def check_unknown(self) -> None:
        """UserError if what no piece has would be lost: it is read as padding, or cannot be read at all.

        For a folder of another program; a model of nlpctl has learned it so.
        """
        content = _parsed(self._text, self._where)
        if self.pad_token_id in (self.unk_token_id, _unknown_id(content["model"], self._ids)):
            raise self._pads_wrongly("stands for what is unknown")
        if self.pad_token_id == self.mask_token_id:
            raise self._pads_wrongly("is the mask")
        if self.blank == "▁":  # the others know every byte
            file = f"{self._where}/{TOKENIZER}"
            with _told(file, "read what no piece has", self._name_unknown), silent_stderr:
                self._library.model.tokenize(_UNKNOWN)

    def _pads_wrongly(self, use: str) -> UserError:
        """Networks take it for padding wherever it stands."""
        message = f"pads with {self.special_names['pad']}, which also {use}"
        return UserError(message, f"{self._where}/{SETTINGS}", 'give "pad_token" a token of its own')

    def _special_names(self, model: Mapping[str, Any], ends: Sequence[int]) -> dict[str, str]:
        """pad, unk and so on to their tokens, as far as the vocabulary has them. UserError if there is no pad token."""
        named: dict[str, str] = {}
        for name in _NAMES:
            value = token_text(self.init_kwargs.get(f"{name}_token"))
            candidates = _USUAL.get(name, ()) if value is None else (value,)
            token = next((each for each in candidates if each in self._ids), None)
            if token is not None:
                named[name] = token
        if ends:
            named.setdefault("cls", self._tokens[ends[0]])
            named.setdefault("sep", self._tokens[ends[-1]])
        unknown = _unknown_id(model, self._ids)
        if unknown is not None and unknown in self._tokens:
            named.setdefault("unk", self._tokens[unknown])
        if "pad" not in named:
            message = "names no pad_token that the vocabulary has, and batches have to be padded"
            raise UserError(message, f"{self._where}/{SETTINGS}", 'add it, such as "pad_token": "<pad>"')
        # A vocabulary of bytes knows every text; the unknown token then stands for a text of which nothing is left.
        others = [named[name] for name in ("mask", "sep", "eos") if named.get(name) not in (None, named["pad"])]
        named.setdefault("unk", others[0] if others else named["pad"])
        return named

    # -- tokens and ids ----------------------------------------------------------------------

    def __len__(self) -> int:
        return self._size

    @property
    def vocab_size(self) -> int:
        return self._size

    def get_vocab(self) -> dict[str, int]:
        return dict(self._ids)

    def get_added_vocab(self) -> dict[str, int]:
        """The tokens beside the pieces that texts may have, such as those of model.add_tokens."""
        return {token: self._ids[token] for token in self._added if token not in self.all_special_tokens}

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """An id that stands for nothing is [unused7] and the like."""
        return [self._tokens.get(int(id), f"[unused{id}]") for id in ids]

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        if isinstance(tokens, str):
            return self._ids.get(tokens, self.unk_token_id)
        return [self.convert_tokens_to_ids(token) for token in tokens]

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        decoder = self._library.decoder
        with _told(self._where, f"join the pieces {str(tokens)[:40]}"), silent_stderr:
            return " ".join(tokens) if decoder is None else decoder.decode(list(tokens))

    def readable(self, ids: Iterable[int]) -> list[str]:
        """As the vocabulary writes them, but bytes as the characters that they make."""
        tokens = self.convert_ids_to_tokens(ids)
        if self.blank != "Ġ":
            return tokens
        plain = [_of_bytes(token) for token in tokens]
        return [token if text is None else text for token, text in zip(tokens, plain, strict=True)]

    def text_of(self, ids: Iterable[int]) -> str:
        return self.convert_tokens_to_string(self.convert_ids_to_tokens(ids)).strip()

    def strips_before(self, token: str | None) -> bool:
        """Whether blanks before a special token belong to it."""
        return token in self._lstrip

    # -- texts -------------------------------------------------------------------------------

    def split(self, text: str) -> LibraryEncoding:
        """The pieces of a text and their places in it, without special tokens."""
        return _encode(self._library, text, self._where)

    def ids(self, text: str) -> list[int]:
        return self.split(text).ids

    def first_ids(self, text: str, most: int) -> list[int]:
        """The ids of `text`, of which those behind the first `most` may be left out."""
        size = 2 * most
        while self._ends_by_words and len(text) > size:
            split = self.split(text[:size])
            ids, words = split.ids, split.word_ids
            # The last word may go on where the text was cut; all before it is as in the whole.
            whole = words.index(words[-1]) if words else 0
            if whole >= most:
                return ids[:whole]
            size *= 4
        return self.ids(text)

    @functools.cached_property
    def _ends_by_words(self) -> bool:
        """Whether the pieces of a word do not depend on what stands behind it."""
        return self._parts_of_bert is not None and not self.get_added_vocab()

    @functools.cached_property
    def _parts_of_bert(self) -> Literal["library", "paddlenlp"] | None:
        """Whose way of splitting texts for WordPiece it has: the library's, PaddleNLP's (wordpiece.py), or another."""
        kinds = tuple(each["type"] for each in _parts(self._library, "normalizer", "pre_tokenizer"))
        if not isinstance(self._library.model, WordPiece):
            return None
        if kinds == PARTS:
            return "paddlenlp"
        return "library" if kinds == ("BertNormalizer", "BertPreTokenizer") else None

    def tokenize(self, text: str) -> list[str]:
        return self.convert_ids_to_tokens(self.ids(text))

    def words(self, text: str) -> list[str]:
        """The words of a text, normalised, as they are cut into pieces. For tokenizers with a pre-tokenizer."""
        normal = self._normal_form(text)
        with _told_of(text, self._where):
            return [word for word, _ in self._library.pre_tokenizer.pre_tokenize_str(normal)]

    @property
    def do_lower_case(self) -> bool:
        """Whether texts are lower-cased, as PaddleNLP calls it."""
        return self._normalized("A") == "a"

    @property
    def strips_accents(self) -> bool:
        return self._normalized("é") == "e"

    def _normal_form(self, text: str) -> str:
        normalizer, text = self._library.normalizer, _plain(text)
        with _told_of(text, self._where):
            return text if normalizer is None else normalizer.normalize_str(text)

    def _normalized(self, character: str) -> str:
        return self._normal_form(character).strip(f"{self.blank} ")

    @functools.cached_property
    def begins_words(self) -> bool:
        """Whether a text begins like a word after a blank, as sentencepiece models read it."""
        return self.split("a").ids != self.inside("a")

    def inside(self, text: str) -> list[int]:
        """The ids of what stands in a text, where no blank is before it."""
        return _encode(self._continuing, text, self._where).ids

    @functools.cached_property
    def _continuing(self) -> Tokenizer:
        """The same tokenizer, but a text does not begin like a word."""
        names = ("normalizer", "pre_tokenizer")
        parts = {name: _without_prefix(_state(self._library, name) or {}) or None for name in names}
        with _told(self._where), silent_stderr:
            components = Tokenizer.from_str(json.dumps({**_EMPTY, **parts}))
            library = Tokenizer(self._library.model)
            if parts["normalizer"] is not None:
                library.normalizer = components.normalizer
            if parts["pre_tokenizer"] is not None:
                library.pre_tokenizer = components.pre_tokenizer
            added = self._library.get_added_tokens_decoder()
            library.add_tokens([added[id] for id in sorted(added)])
        return library

    def reads_blank(self, character: str) -> bool:
        """Whether the normaliser makes a blank of a character."""
        if character not in self._blanks:
            self._blanks[character] = not self._normalized(character)
        return self._blanks[character]

    def rules(self) -> list[Any]:
        """All but the pieces: two tokenizers with equal rules and pieces read texts alike."""
        content = _parsed(self._text, self._where)
        parts = [dict(each) for each in _parts(self._library, "normalizer", "pre_tokenizer")]
        for part in parts:
            if part["type"] == "BertNormalizer" and part["strip_accents"] is None:
                part["strip_accents"] = part["lowercase"]
        model = {key: value for key, value in content["model"].items() if key not in ("vocab", "merges", "dropout")}
        if model["type"] == "Unigram":
            model["scores"] = [score for _, score in content["model"]["vocab"]]
        model["merges"] = _merges(content["model"])
        flags = [{key: each.get(key) for key in ("single_word", "lstrip", "rstrip")} for each in _added(content)]
        added = sorted({json.dumps(each) for each in flags})
        return [parts, model, self._single, self._pair, added, self.truncation_side]

    def as_it_stands(self, text: str) -> list[int]:
        """The ids of a part of a text: only a blank before it makes its beginning that of a word."""
        return self.ids(text) if self.begins_words and text[:1].isspace() else self.inside(text)

    def encode(
        self, text: str, add_special_tokens: bool = True, return_token_type_ids: bool = True
    ) -> dict[str, list[int]]:
        """For PaddleNLP's prompts, which put a row together from parts: special tokens in them are such."""
        ids: list[int] = []
        for part in self._special_pattern.split(text):
            if part in self.all_special_tokens:
                ids.append(self._ids[part])
            elif part.strip() or part == text:
                ids += self.as_it_stands(part)
        return {"input_ids": ids}

    @functools.cached_property
    def _special_pattern(self) -> re.Pattern[str]:
        tokens = sorted(self.all_special_tokens, key=len, reverse=True)  # the longest of those that begin at a place
        return re.compile(f"({'|'.join(map(re.escape, tokens))})")

    # -- rows --------------------------------------------------------------------------------

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        return sum(number is None for _, number, _ in (self._pair if pair else self._single))

    def build_inputs_with_special_tokens(self, first: list[int], second: list[int] | None = None) -> list[int]:
        row: list[int] = []
        for id, number, _ in self._single if second is None else self._pair:
            row += [id] if number is None else first if number == 0 else second or []
        return row

    def create_token_type_ids_from_sequences(self, first: list[int], second: list[int] | None = None) -> list[int]:
        types: list[int] = []
        for _, number, kind in self._single if second is None else self._pair:
            types += [kind] * (1 if number is None else len(first) if number == 0 else len(second or ()))
        return types

    def get_special_tokens_mask(self, first: list[int], second: list[int] | None = None) -> list[int]:
        """1 where a row has a special token."""
        mask: list[int] = []
        for _, number, _ in self._single if second is None else self._pair:
            mask += [1] if number is None else [0] * len(first if number == 0 else second or ())
        return mask

    def pad(
        self, rows: Sequence[Mapping[str, Any]], return_tensors: str | None = None, **options: Any
    ) -> dict[str, Any]:
        """For collators of PaddleNLP: `rows` as one dict, their inputs padded on the right to the longest.

        Of `options` those that choose another length have no effect. `return_tensors`: "pd" or "np", else lists.
        """
        longest = max(len(row["input_ids"]) for row in rows)
        batch: dict[str, Any] = {}
        for name in rows[0]:
            padding = self.pad_token_id if name == "input_ids" else 0
            values = [row[name] for row in rows]
            if name in ("input_ids", "token_type_ids", "attention_mask"):
                values = [[*value, *[padding] * (longest - len(value))] for value in values]
            batch[name] = values
        if options.get("return_attention_mask"):
            ones = [[int(id != self.pad_token_id) for id in ids] for ids in batch["input_ids"]]
            batch.setdefault("attention_mask", ones)
        if return_tensors == "np":
            import numpy as np

            return {name: np.array(values) for name, values in batch.items()}
        if return_tensors == "pd":
            import paddle

            return {name: paddle.to_tensor(values) for name, values in batch.items()}
        return batch

    # -- changing and keeping ----------------------------------------------------------------

    def with_tokens(self, words: Sequence[str]) -> LibraryTokenizer:
        forms = ["".join(each if each.isspace() else self._normalized(each) for each in word) for word in words]
        # Found in normalised texts, so Müller is also muller, but exactly where that is another token: cafe of café.
        known = {*self._ids, *words}
        others = [form != word and form in known for word, form in zip(words, forms, strict=True)]
        tokens = [AddedToken(word, normalized=not other) for word, other in zip(words, others, strict=True)]
        with _told(self._where), silent_stderr:
            library = Tokenizer.from_str(self._text)
            library.add_tokens(tokens)
        expected = range(self._size, self._size + len(words))
        given = [library.token_to_id(word) for word in words]
        if given != list(expected):
            message = f"the ids of new tokens would not be {expected.start} and the next ones: the vocabulary has gaps"
            raise UserError(message, f"{self._where}/{TOKENIZER}", "leave model.add_tokens out")
        return LibraryTokenizer(library.to_str(), self.init_kwargs, self._where)

    def lower_cased(self) -> LibraryTokenizer:
        """The same for texts that are lower-cased first, as sentence-transformers does."""
        if self.do_lower_case:
            return self
        content = _parsed(self._text, self._where)
        parts = [{"type": "Lowercase"}, content.get("normalizer")]
        content["normalizer"] = {"type": "Sequence", "normalizers": [part for part in parts if part is not None]}
        return LibraryTokenizer(json.dumps(content, ensure_ascii=False), self.init_kwargs, self._where, content)

    def reduced(self, wanted: Collection[int]) -> tuple[LibraryTokenizer, list[int]]:
        """UserError if the model is none of Unigram, BPE and WordPiece."""
        content = _parsed(self._text, self._where)
        model = dict(content["model"])
        if model["type"] not in ("Unigram", "BPE", "WordPiece"):
            message = f"no piece of a {model['type']} tokenizer can be dropped"
            raise UserError(message, f"{self._where}/{TOKENIZER}", "leave prune_embeddings out")
        added = {entry["id"] for entry in _added(content)}
        unknown = _unknown_id(model, self._ids)
        kept = {*wanted, *added, *self.all_special_ids, unknown} & self._tokens.keys()
        kept |= {id for id, token in self._tokens.items() if _BYTE.fullmatch(token)}
        if model["type"] == "Unigram":
            # What no piece has costs ten more than the worst piece: with that one it costs what it did.
            kept.add(min(range(len(model["vocab"])), key=lambda id: model["vocab"][id][1]))
            own = range(len(model["vocab"]))
        elif model["type"] == "WordPiece":
            own = model["vocab"].values()
        else:
            merges = _merges(model)
            # Pieces inside a word begin with it; joining takes it off.
            mark = len(model.get("continuing_subword_prefix") or "")
            parts: dict[str, list[list[str]]] = {}
            for one, other in merges:
                parts.setdefault(one + other[mark:], []).append([one, other])
            # A merge that led to a kept piece stays, and so do the pieces that it joins.
            waiting = [self._tokens[id] for id in kept]
            while waiting:
                for pair in parts.pop(waiting.pop(), ()):
                    waiting += pair
                    kept |= {model["vocab"][piece] for piece in pair}
            names = {self._tokens[id] for id in kept}
            model["merges"] = [[one, other] for one, other in merges if one + other[mark:] in names]
            own = model["vocab"].values()
        # Added tokens that are no pieces stand behind these.
        behind = added - set(own)
        rows = [*sorted(kept - behind), *sorted(behind)]
        places = {old: new for new, old in enumerate(rows)}
        if model["type"] == "Unigram":
            model["vocab"] = [model["vocab"][id] for id in sorted(kept - behind)]
            model["unk_id"] = places.get(model.get("unk_id"))
        else:
            model["vocab"] = {piece: places[id] for piece, id in model["vocab"].items() if id in places}
        content["model"] = model
        content["added_tokens"] = [{**entry, "id": places[entry["id"]]} for entry in _added(content)]
        content["post_processor"] = _renumbered(content.get("post_processor"), places)
        small = LibraryTokenizer(json.dumps(content, ensure_ascii=False), self.init_kwargs, self._where, content)
        return small, rows

    def save_pretrained(self, folder: str | Path) -> None:
        """Write tokenizer.json and tokenizer_config.json into `folder`."""
        write_text_atomic(Path(folder) / TOKENIZER, self._text)
        kept = {name: value for name, value in self.init_kwargs.items() if not _is_not_kept(name)}
        for key in _FURTHER:
            if isinstance(kept.get(key), list):
                kept[key] = [token for token in kept[key] if token_text(token) in self._ids]
        named: dict[str, Any] = {f"{name}_token": token for name, token in self.special_names.items()}
        if self._parts_of_bert != "paddlenlp":  # which no key changes
            kept = {name: value for name, value in kept.items() if name not in _COUNTED}
        # What tokenizer.json says of a blank before a text is changed by Transformers to what this file says, or False.
        for part in _parts(self._library, "pre_tokenizer"):
            named |= {key: value for key, value in part.items() if key == "add_prefix_space"}
        name = self._paddle_class()
        if name is not None:
            # The case is told, since Transformers and PaddleNLP go by what this file says of it.
            (state,) = (each for each in _parts(self._library, "normalizer") if each["type"] == "BertNormalizer")
            told = _CASE if self._parts_of_bert == "paddlenlp" else _OF_BERT
            named |= {key: state[theirs] for key, theirs in told.items()}
            self._save_for_paddlenlp(Path(folder))
        # Without a class, a folder of nlpctl's own networks would have a UnitTokenizer.
        named["tokenizer_class"] = name or kept.get("tokenizer_class") or READ_THE_FILE
        write_json_atomic(Path(folder) / SETTINGS, {**kept, **named})

    def _paddle_class(self) -> str | None:
        """PaddleNLP's class that reads texts as this one, but for symbols where the file does not split them off."""
        model = self._library.model
        if self._parts_of_bert is None or model.continuing_subword_prefix != "##":
            return None
        if model.max_input_chars_per_word != LONGEST_WORD:
            return None
        name = str(self.init_kwargs.get("tokenizer_class") or "").removesuffix("Fast")
        first, last = self.special_names.get("cls"), self.special_names.get("sep")
        ends = [None if id < 0 else self._tokens[id] for id in self.build_inputs_with_special_tokens([-1], [-1])]
        if name == "MPNetTokenizer" and ends == [first, None, last, last, None, last]:
            return name
        if ends != [first, None, last, None, last]:
            return None
        name = "RobertaChineseTokenizer" if name == "RobertaTokenizer" else name
        # PaddleNLP's ERNIE has no settings for accents and ideographs.
        if name == "ErnieTokenizer" and self.words("É中中") not in (["e", "中", "中"], ["É", "中", "中"]):
            name = "BertTokenizer"
        return name if name in CLASSES - {"MPNetTokenizer"} else "BertTokenizer"

    def _save_for_paddlenlp(self, folder: Path) -> None:
        """Write vocab.txt and, if there are such, added_tokens.json."""
        pieces = {id: piece for piece, id in _parsed(self._text, self._where)["model"]["vocab"].items()}
        last = max(pieces)
        # Of equal lines the last one counts, so a gap can have any later piece.
        lines = [pieces.get(id, pieces[last]) for id in range(last + 1)]
        if not any("\n" in line or "\r" in line for line in lines):
            write_text_atomic(folder / VOCABULARY, "".join(f"{line}\n" for line in lines))
            added = {token: id for id, token in self._tokens.items() if id not in pieces}
            if added:
                write_json_atomic(folder / ADDED_TOKENS, added)

    def encoder(self) -> LibraryEncoder:
        return LibraryEncoder(self)

    def __reduce__(self) -> tuple:
        return LibraryTokenizer, (self._text, self.init_kwargs, self._where)


class LibraryEncoder(TextEncoder):
    """Texts are read whole by the library; words of a tagged text one by one, each in the form that it has there."""

    kind = "library"
    tokenizer: LibraryTokenizer

    def __init__(self, tokenizer: LibraryTokenizer):
        super().__init__(tokenizer)
        self._after_blank = PiecesOfWords(self._beginning, self._unknown)
        self._joined = PiecesOfWords(tokenizer.inside, self._unknown)

    def _encode(
        self, texts: Sequence[str], pairs: Sequence[str] | None, max_length: int, tell_cut: bool
    ) -> list[Encoding]:
        left = self.tokenizer.truncation_side == "left"
        room = max_length - self.overhead(pairs is not None)
        # One more than fits shows that a text is cut.
        read = self.tokenizer.ids if left else functools.partial(self.tokenizer.first_ids, most=room + 1)
        encodings = []
        for i, text in enumerate(texts):
            first = read(text)
            second = None if pairs is None else read(pairs[i])
            counts = [len(first), 0 if second is None else len(second)]
            # The longer side has the odd token; one of more than `room` may not have been read to its end.
            if pairs is not None and room % 2 and min(counts) > room:
                counts = [len(self.tokenizer.ids(text)), len(self.tokenizer.ids(pairs[i]))]
            keep = longest_first(counts[0], counts[1], room)
            kept = [
                ids[len(ids) - count :] if left else ids[:count]
                for ids, count in zip((first, second or []), keep, strict=True)
            ]
            encoding = self.assemble(kept[0], None if second is None else kept[1])
            encoding.truncated = sum(counts) > room
            encodings.append(encoding)
        return encodings

    def _word(self, word: str) -> list[int]:
        return self.tokenizer.ids(word)

    def forms(self, ids: Sequence[int]) -> list[str]:
        return self.tokenizer.readable(ids)

    def strips_before(self, token: str | None) -> bool:
        return self.tokenizer.strips_before(token)

    def pieces_in(self, text: str, spans: Sequence[Span]) -> list[list[int]]:
        begins = self.tokenizer.begins_words
        words = []
        for start, end in spans:
            after_blank = begins if start == 0 else is_blank(text[start - 1])
            words.append((self._after_blank if after_blank else self._joined)[text[start:end]])
        return words

    def _beginning(self, word: str) -> list[int]:
        """The pieces of a word after a blank. A piece for the blank alone is left out: the first one is the word's."""
        ids = self.tokenizer.ids(word if self.tokenizer.begins_words else f" {word}")
        if len(ids) > 1 and self.tokenizer.convert_ids_to_tokens(ids[:1]) == [self.tokenizer.blank]:
            return ids[1:]
        return ids

    def located(self, text: str) -> tuple[list[int], list[Span]]:
        """The ids of `text` and the spans of their pieces in it, in order, without the blanks around pieces.

        A piece for nothing but a blank has the span of the piece that follows it, the last ones that of the one before.
        Nothing for a text of nothing but blanks.
        """
        encoding = self.tokenizer.split(text)
        begins, ends = _around_marks(text)
        spans: list[Span | None] = []
        started = reached = 0
        for token, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True):
            after_blank = token.startswith(self.tokenizer.blank)
            while start < end and (is_blank(text[start]) or (after_blank and self.tokenizer.reads_blank(text[start]))):
                start += 1
            while end > start and is_blank(text[end - 1]):
                end -= 1
            if start < end and token.strip(self.tokenizer.blank):
                # Marks stay with their character: a normaliser may join them, or put them in another order.
                started, reached = max(started, begins[start]), max(reached, ends[end])
                spans.append((started, reached))
            else:
                spans.append(None)
        # From behind: up to the next piece, what a normaliser drops or joins, such as accents, is of the piece before.
        result: list[Span] = []
        after, following = None, len(text)
        for span, (first, _) in zip(reversed(spans), reversed(encoding.offsets), strict=True):
            if span is not None:
                start, end = span
                while end < following and not is_blank(text[end]):
                    end += 1
                after = (start, end)
            following = min(following, first)
            if after is not None:
                result.append(after)
        result.reverse()
        if not result:
            return [], []
        return encoding.ids, result + [result[-1]] * (len(spans) - len(result))

    def __reduce__(self) -> tuple:
        return LibraryEncoder, (self.tokenizer,)


def _around_marks(text: str) -> tuple[Sequence[int], Sequence[int]]:
    """For each place in `text`, and for its end: where the character begins whose marks stand there, and where they
    end. Both are the place itself where no mark stands."""
    marks = {character for character in set(text) if is_mark(character)}
    begins, ends = list(range(len(text) + 1)), list(range(len(text) + 1))
    places = [i for i, character in enumerate(text) if character in marks]
    for i in places:
        if i > 0 and not is_blank(text[i - 1]):
            begins[i] = begins[i - 1]
    for i in reversed(places):
        ends[i] = ends[i + 1]
    return begins, ends


# -- reading the files ------------------------------------------------------------------------------------------------


def has_library_tokenizer(folder: Path) -> bool:
    """Whether the library reads the texts of `folder`: by its tokenizer.json, else by a sentencepiece model.

    Not by a RoFormer's tokenizer.json, which does not say that its words are those of jieba: PaddleNLP's tokenizer
    does. UserError: a file is damaged.
    """
    if (folder / TOKENIZER).is_file():
        return class_in_transformers(read_settings(folder), read_network_config(folder)) != "RoFormerTokenizer"
    return _sentencepiece_model(folder) is not None


def read_library_tokenizer(folder: Path) -> LibraryTokenizer | None:
    """The tokenizer of the tokenizer.json in `folder`, or of a sentencepiece model.

    None if it has none (`has_library_tokenizer`). UserError: it cannot be used.
    """
    if not has_library_tokenizer(folder):
        return None
    where, settings, config = str(folder), read_settings(folder), read_network_config(folder)
    if (found := _sentencepiece_model(folder)) is not None:
        model, numbers = found
        content = _with_added_tokens(as_tokenizer_json(model, numbers, settings), settings, config, folder)
        named = {f"{name}_token": token for name, token in numbers.specials.items()}
        named["tokenizer_class"] = numbers.names[0]
        text = json.dumps(content, ensure_ascii=False)
        return LibraryTokenizer(text, {**named, **settings}, where, content)
    text = _file_text(folder / TOKENIZER)
    content = _parsed(text, where)
    if not (folder / TASK).is_file():  # a model of nlpctl goes on reading texts as it was trained
        content, given = _with_added_tokens(content, settings, config, folder), content
        content = as_transformers_reads(content, settings, config)
        text = text if content is given else json.dumps(content, ensure_ascii=False)
        settings |= {"truncation_side": "left"} if cuts_left(content, settings) else {}
    return LibraryTokenizer(text, settings, where, content)


def _sentencepiece_model(folder: Path) -> tuple[Path, PieceNumbers] | None:
    """The sentencepiece model that `folder` has in place of a tokenizer.json, and how its pieces are numbered."""
    # Models that nlpctl trained with PaddleNLP's tokenizer over such a file go on reading texts with that.
    if (folder / TOKENIZER).is_file() or (folder / TASK).is_file():
        return None
    if not any((folder / name).is_file() for numbers in PIECE_NUMBERS for name in numbers.files):
        return None
    tokenizer_class = str(read_settings(folder).get("tokenizer_class") or "")
    numbers = numbers_of(tokenizer_class, str(read_network_config(folder).get("model_type") or ""))
    model = None if numbers is None else next((folder / f for f in numbers.files if (folder / f).is_file()), None)
    return None if numbers is None or model is None else (model, numbers)


def read_word_pieces(folder: Path, name: str) -> LibraryTokenizer:
    """The tokenizer of the vocab.txt in `folder`, with the ids that PaddleNLP's class `name` gives.

    UserError: it cannot be used.
    """
    file = folder / VOCABULARY
    text = _file_text(file).removeprefix("\ufeff")  # a mark of Windows editors
    if not text:
        raise UserError("the vocabulary is empty", str(file), _AGAIN)
    beside = folder / ADDED_TOKENS
    added = read_object(beside)
    wrong = next((token for token, id in added.items() if type(id) is not int or id < 0 or not token.strip()), None)
    if wrong is not None:
        raise UserError(f"{wrong[:40]!r} is no token with a number", str(beside), _AGAIN)
    # Not splitlines: it also splits at U+2028 and others, which are pieces like any.
    lines = text.removesuffix("\n").split("\n")
    settings = {**read_settings(folder), "tokenizer_class": name}
    written = read_tokenizer_config(folder)  # with null, which is false here
    settings |= {key: bool(written[key]) for key in ("do_lower_case", "tokenize_chinese_chars") if key in written}
    try:  # of equal lines the last one counts
        content = word_piece_json({piece: id for id, piece in enumerate(lines)}, added, settings)
    except KeyError as error:
        raise UserError(f"the vocabulary has no {error.args[0]}", str(file), _AGAIN) from None
    if not (folder / TASK).is_file():
        content = _with_added_tokens(content, settings, read_network_config(folder), folder)
    text = json.dumps(content, ensure_ascii=False)
    return LibraryTokenizer(text, settings, str(folder), content, str(beside if added else file))


def tokenizer_of_pieces(pieces: Sequence[str], settings: Mapping[str, Any], where: str) -> LibraryTokenizer:
    """A WordPiece tokenizer over `pieces`. `settings`: tokenizer_config.json; `where`: for messages."""
    content = word_piece_json({piece: id for id, piece in enumerate(pieces)}, {}, settings)
    return LibraryTokenizer(json.dumps(content, ensure_ascii=False), settings, where, content, where)


def _with_added_tokens(
    content: dict[str, Any], settings: Mapping[str, Any], config: Mapping[str, Any], folder: Path
) -> dict[str, Any]:
    """A tokenizer.json with the tokens that other files of `folder` add, and with their flags, as in Transformers:
    added_tokens_decoder in `settings`, tokenizer_config.json, else added_tokens.json, and further special tokens in
    `settings`, which have no ids. The same object if that changes nothing. A warning names a token that cannot be
    added. UserError: what stands there is no token."""
    beside, decoder = folder / ADDED_TOKENS, settings.get(_DECODER)
    entries: list[tuple[Path, Any, Any]] = []  # where it stands, id, token
    if isinstance(decoder, dict):
        entries = [(folder / SETTINGS, int(id) if id.isdecimal() else id, token) for id, token in decoder.items()]
    else:
        entries = [(beside, id, token) for token, id in read_object(beside).items()]
    further = [settings[name] for name in _FURTHER if isinstance(settings.get(name), list)]
    entries += [(folder / SETTINGS, None, token) for tokens in further for token in tokens]
    for file, id, token in entries:
        if not token_text(token) or type(id) not in (int, NoneType):
            raise UserError(f"{str(token)[:40]!r} is no token with a number", str(file), _AGAIN)
    if not entries:
        return content
    ids = {token: id for id, token in _tokens(content, str(folder / TOKENIZER)).items()}
    size, rows = max(ids.values()) + 1, config.get("vocab_size")
    added = {entry["content"]: entry for entry in _added(content)}
    special = {token_text(settings.get(f"{name}_token")) for name in _NAMES}
    for file, id, token in sorted(entries, key=lambda entry: math.inf if entry[1] is None else entry[1]):
        name = str(token_text(token))
        if name not in ids:
            wrong = f"the next id of the vocabulary is {size}" if id not in (None, size) else None
            wrong = f"the network has {rows} rows (config.json)" if type(rows) is int and size >= rows else wrong
            if wrong is not None:
                console.warn(f"{file}: the token {name[:40]!r} is left out, and read as text: {wrong}")
                continue
            ids[name], size = size, size + 1
        if name not in added or isinstance(token, dict):
            is_special = id is None or name in special
            flags = {**_FLAGS, "normalized": not is_special, "special": is_special}
            told = token.items() if isinstance(token, dict) else ()
            flags |= {key: value for key, value in told if key in flags and isinstance(value, bool)}
            added[name] = {"id": ids[name], "content": name, **flags}
    return content if [*added.values()] == _added(content) else {**content, "added_tokens": [*added.values()]}


_FLAGS = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
_DECODER, _FURTHER = "added_tokens_decoder", ("additional_special_tokens", "extra_special_tokens")


def as_transformers_reads(
    content: dict[str, Any], settings: Mapping[str, Any], config: Mapping[str, Any]
) -> dict[str, Any]:
    """A tokenizer.json as Transformers 5 reads it beside `settings`, tokenizer_config.json, and `config`, config.json:
    some classes make the parts anew whose keys stand in `settings`. The same object if that changes nothing."""
    parts = (content.get(place) for place in ("normalizer", "pre_tokenizer"))
    kinds = tuple(step.get("type") for part in parts for step in _steps(part))
    if kinds == PARTS:  # nlpctl's own, of a vocab.txt: it has settled what the keys say
        return content
    changed, name = dict(content), class_in_transformers(settings, config)
    for part in _MADE_ANEW:
        if name in part.classes and part.place in content:
            given = {theirs: settings[key] for key, theirs in part.keys.items() if type(settings.get(key)) is bool}
            told = {theirs: part.true if value else part.false for theirs, value in given.items()}
            changed[part.place] = _changed(content[part.place], functools.partial(_with_values, part.kind, told))
    return content if changed == content else changed


def doubts(tokenizer: LibraryTokenizer, folder: Path) -> Iterator[str]:
    """What tokenizer_config.json says and the tokenizer of `folder` does not do, or does to the harm of texts."""
    settings = read_settings(folder)
    kind = class_in_transformers(settings, read_network_config(folder))
    strips = tokenizer.strips_accents
    reads = {"do_lower_case": tokenizer.do_lower_case, "strip_accents": strips, "keep_accents": not strips}
    for key in _OF_NORMALIZERS.get(kind, ()):
        if type(settings.get(key)) is bool and settings[key] is not reads[key]:
            told = f"{key} is {json.dumps(settings[key])}, and the tokenizer reads texts otherwise, which counts"
            yield f"{told}; {kind} of Transformers goes by the key"
    for name, token in tokenizer.special_names.items():
        if token in tokenizer.all_special_tokens and (token.isalnum() or len(token) == 1):
            yield f"{name}_token is {token!r}, so that word is unknown in texts: name a token that no text has"


def class_in_transformers(settings: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """The class that reads the tokenizer, without "Fast": a name in the files, else by model_type. Whatever class is
    named, Transformers reads a ModernBERT with the one that takes the file as it is."""
    told, model_type = settings.get("tokenizer_class") or config.get("tokenizer_class"), config.get("model_type")
    if isinstance(told, str) and not str(model_type).startswith("modernbert"):
        return told.removesuffix("Fast")
    return _CLASS_OF_TYPE.get(str(model_type), READ_THE_FILE)


READ_THE_FILE = "PreTrainedTokenizerFast"  # the class of Transformers that takes tokenizer.json as it is
_BERTS = (
    *("BertTokenizer", "ElectraTokenizer", "DistilBertTokenizer", "MPNetTokenizer", "MobileBertTokenizer"),
    *("SqueezeBertTokenizer", "LayoutLMTokenizer", "FunnelTokenizer", "SplinterTokenizer"),
)  # ConvBertTokenizer is one of them, but takes the file, since it has no __init__ of its own
_ROBERTAS = (
    *("RobertaTokenizer", "GPT2Tokenizer", "BartTokenizer", "LongformerTokenizer", "DebertaTokenizer"),
    *("LEDTokenizer", "MvpTokenizer"),
)
_OF_NORMALIZERS = dict.fromkeys(_BERTS, ("do_lower_case", "strip_accents")) | {
    "AlbertTokenizer": ("do_lower_case", "keep_accents"), "DebertaV2Tokenizer": ("do_lower_case",),
}  # fmt: skip
_XLM_ROBERTAS = ("XLMRobertaTokenizer", "CamembertTokenizer", "AlbertTokenizer")
_CLASS_OF_TYPE = dict.fromkeys(
    ("bert", "electra", "distilbert", "ernie", "convbert", "megatron-bert", "mobilebert", "squeezebert", "layoutlm"),
    "BertTokenizer",
) | {
    "mpnet": "MPNetTokenizer", "funnel": "FunnelTokenizer", "splinter": "SplinterTokenizer",
    "roformer": "RoFormerTokenizer", "roberta": "RobertaTokenizer", "longformer": "RobertaTokenizer",
    "deberta": "DebertaTokenizer", "xlm-roberta": "XLMRobertaTokenizer", "camembert": "CamembertTokenizer",
    "albert": "AlbertTokenizer", "deberta-v2": "DebertaV2Tokenizer",
}  # fmt: skip


@dataclass(frozen=True)
class _Part:
    """A part of tokenizer.json that `classes` of Transformers make anew: keys of tokenizer_config.json -> those of the
    part, and what these say for true and for false."""

    place: str
    kind: str
    classes: Collection[str]
    keys: Mapping[str, str]
    true: Any = True
    false: Any = False


_CASE = {"do_lower_case": "lowercase", "strip_accents": "strip_accents"}
_OF_BERT = {**_CASE, "tokenize_chinese_chars": "handle_chinese_chars"}
_BLANK = {"add_prefix_space": "prepend_scheme"}
_MADE_ANEW = (
    _Part("normalizer", "BertNormalizer", _BERTS, _OF_BERT),
    _Part("normalizer", "BertNormalizer", ("RoFormerTokenizer",), _CASE),
    _Part("pre_tokenizer", "ByteLevel", _ROBERTAS, {"add_prefix_space": "add_prefix_space"}),
    _Part("pre_tokenizer", "Metaspace", _XLM_ROBERTAS, _BLANK, "always", "never"),
    _Part("pre_tokenizer", "Metaspace", ("DebertaV2Tokenizer",), _BLANK, "always", "first"),
)
_COUNTED = {key for part in _MADE_ANEW for key in part.keys}


def cuts_left(content: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Whether long texts lose their beginning: by tokenizer_config.json, else by tokenizer.json."""
    cut = content.get("truncation")
    told = settings.get("truncation_side") or (cut.get("direction") if isinstance(cut, dict) else None)
    return isinstance(told, str) and told.lower() == "left"


def read_network_config(folder: Path) -> dict[str, Any]:
    """config.json; {} where there is none. UserError: it is damaged."""
    return read_object(folder / CONFIG)


def read_tokenizer_config(folder: Path) -> dict[str, Any]:
    """tokenizer_config.json as it stands; {} where there is none. UserError: it is damaged."""
    return read_object(folder / SETTINGS)


def read_settings(folder: Path) -> dict[str, Any]:
    """tokenizer_config.json, and what special_tokens_map.json says besides; without null. UserError: one of them is
    damaged."""
    said = (*read_object(folder / SPECIALS).items(), *read_tokenizer_config(folder).items())
    settings = {key: value for key, value in said if value is not None}
    if _SURROGATES.search(json.dumps(settings, ensure_ascii=False)):
        raise UserError("has half of a surrogate pair, which no file can hold", str(folder / SETTINGS), _AGAIN)
    return settings


def read_object(file: Path) -> dict[str, Any]:
    """The JSON object in `file`; {} where there is none. UserError: it is damaged."""
    return _object(_file_text(file), str(file)) if file.is_file() else {}


def _file_text(file: Path) -> str:
    try:
        if regular(file).stat().st_size > MOST_BYTES:
            raise UserError(f"has more than {MOST_BYTES >> 20} MB", str(file), "no tokenizer is that large")
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot be read ({error})", where=str(file), hint=_AGAIN) from None


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        content = parse_json(text)
    except ValueError as error:
        raise UserError(f"is not valid JSON ({error})", where, _AGAIN) from None
    if not isinstance(content, dict):
        raise UserError("must hold a JSON object", where, _AGAIN)
    return content


def _parsed(text: str, folder: str) -> dict[str, Any]:
    return _object(text, f"{folder}/{TOKENIZER}")


def _is_not_kept(key: str) -> bool:
    """What of tokenizer_config.json: files beside the old folder, code, and tokens that tokenizer.json has now."""
    return key.endswith("_file") or key in ("init_args", "auto_map", "name_or_path", _DECODER)


def _tokens(content: Mapping[str, Any], file: str) -> dict[int, str]:
    """Id to token, of the model and added. UserError: there is no such model, or its vocabulary is damaged."""
    model = content.get("model")
    kind = model.get("type") if isinstance(model, dict) else None
    if not isinstance(model, dict) or kind not in _KINDS:
        hint = f"nlpctl reads tokenizers of the types {', '.join(_KINDS)}"
        raise UserError(f"model.type is {str(kind)[:40]!r}, an unknown kind of tokenizer", file, hint)
    vocabulary, added = model.get("vocab"), content.get("added_tokens") or []
    entries: list[tuple[Any, Any]] = []
    if kind == "Unigram" and isinstance(vocabulary, list):
        entries = [(i, entry[0] if isinstance(entry, list) and entry else None) for i, entry in enumerate(vocabulary)]
    elif isinstance(vocabulary, dict):
        entries = [(id, token) for token, id in vocabulary.items()]
    if not entries:
        raise UserError("model.vocab holds no pieces", file, _AGAIN)
    if not isinstance(added, list) or not all(isinstance(entry, dict) for entry in added):
        raise UserError("added_tokens is no list of tokens", file, _AGAIN)
    tokens: dict[int, str] = {}
    for id, token in [*entries, *((entry.get("id"), entry.get("content")) for entry in added)]:
        if type(id) is not int or not 0 <= id <= _MOST_ID or not isinstance(token, str):
            message = f"its vocabulary has the token {str(token)[:40]!r} with the id {str(id)[:40]}"
            raise UserError(message, file, _AGAIN)
        if len(token) > _MOST_CHARACTERS:
            raise UserError(f"its vocabulary has a piece of {len(token):,} characters", file, _AGAIN)
        tokens[id] = token
    return tokens


def _unknown_id(model: Mapping[str, Any], ids: Mapping[str, int]) -> int | None:
    """Of what the model gives for what no piece has."""
    id = model.get("unk_id") if model["type"] == "Unigram" else ids.get(str(model.get("unk_token")))
    return id if type(id) is int else None


_EMPTY: dict[str, Any] = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": None,
    "post_processor": None,
    "decoder": None,
    "model": {"type": "WordLevel", "vocab": {_A: 0, _B: 1}, "unk_token": _A},
}

_Template = list[tuple[int, int | None, int]]  # of a row: id, which text stands there instead (0, 1), token type


def _templates(post_processor: Any, file: str) -> tuple[_Template, _Template]:
    """What a row of one text is, and of two."""
    with _told(file), silent_stderr:
        library = Tokenizer.from_str(json.dumps({**_EMPTY, "post_processor": post_processor}))
        rows = library.encode(_A), library.encode(_A, _B)
    single, pair = (list(zip(row.ids, row.sequence_ids, row.type_ids, strict=True)) for row in rows)
    if [number for _, number, _ in single if number is not None] != [0] or \
       [number for _, number, _ in pair if number is not None] != [0, 1]:  # fmt: skip
        raise UserError("its post_processor does not give a text, and two texts in order", file, _AGAIN)
    return single, pair


def _library(content: Mapping[str, Any], hidden: Mapping[int, str], file: str) -> Tokenizer:
    """The tokenizer of the library. `hidden`: special tokens by id, which get names that no text can spell."""
    model = dict(content["model"])
    secret = secrets.token_hex(16)
    names = {token: f"{secret}-{id}" for id, token in hidden.items()}
    added = [{**entry, "content": names.get(entry["content"], entry["content"])} for entry in _added(content)]
    bare = {**content, "post_processor": None, "truncation": None, "padding": None}
    with _told(file), silent_stderr:
        if model["type"] == "Unigram":  # half the time of the same in JSON
            library = Tokenizer.from_str(json.dumps({**bare, "added_tokens": [], "model": _EMPTY["model"]}))
            pieces = [(names.get(piece, piece), _finite(score)) for piece, score in model["vocab"]]
            library.model = Unigram(pieces, model.get("unk_id"), model.get("byte_fallback") is True)
            library.add_tokens([_added_token(entry) for entry in added])
        else:
            model["vocab"] = {names.get(token, token): id for token, id in model["vocab"].items()}
            if model.get("unk_token") in names:
                model["unk_token"] = names[model["unk_token"]]
            if "dropout" in model:
                model["dropout"] = None  # a text has one reading
            whole = {**bare, "model": model, "added_tokens": added}
            library = Tokenizer.from_str(json.dumps(whole, ensure_ascii=False))
    _refuse_growth(library, file)
    for entry, theirs in zip(_added(content), added, strict=True):
        given = library.token_to_id(theirs["content"])
        if given != entry["id"]:
            message = f"the added token {entry['content']!r} has the id {entry['id']}, but the library gives it {given}"
            raise UserError(message, file, f"Transformers reads it as {given}, too: write that id if it was trained so")
    return library


def _finite(score: Any) -> float:
    if type(score) not in (int, float) or not math.isfinite(score):
        raise ValueError(f"a piece has the score {str(score)[:40]}")
    return float(score)


def _merges(model: Mapping[str, Any]) -> list[list[str]]:
    """Of BPE, the two pieces of each; [] of another model. Older files have "a b" for ["a", "b"]."""
    return [each.split(" ") if isinstance(each, str) else each for each in model.get("merges") or []]


def _added(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    return content.get("added_tokens") or []


def _added_token(entry: Mapping[str, Any]) -> AddedToken:
    options = {name: entry.get(name) is True for name in ("single_word", "lstrip", "rstrip", "normalized", "special")}
    return AddedToken(entry["content"], **options)


def _encode(library: Tokenizer, text: str, where: str) -> LibraryEncoding:
    """`encode`, not `encode_batch`: the latter starts threads, which a fork would lose."""
    with _told_of(text, where):
        try:
            return library.encode(text, add_special_tokens=False)
        except TypeError:  # half of a surrogate pair, which UTF-8 does not have
            return library.encode(_plain(text), add_special_tokens=False)


def _plain(text: str) -> str:
    return _SURROGATES.sub("\ufffd", text)


@contextlib.contextmanager
def _told(where: str, what: str = "use it", hint: str = _AGAIN) -> Iterator[None]:
    """UserError for what the library raises. Around every call of it.

    A panic also prints a trace. silent_stderr drops that where a file is opened; around each text it would take longer
    than the text does, and drop what other threads print.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, UserError) or not is_failure(error):
            raise
        raise UserError(f"the tokenizers library cannot {what} ({str(error)[:200]})", where, hint) from None


def _told_of(text: str, where: str) -> contextlib.AbstractContextManager[None]:
    return _told(where, f"read the text {text[:40]!r}")


def _parts(library: Tokenizer, *names: str) -> Iterator[dict[str, Any]]:
    """The parts of the normaliser, the pre-tokenizer or the decoder, those in sequences one by one."""
    for name in names:
        yield from _flat(_state(library, name))


def _state(library: Tokenizer, name: str) -> dict[str, Any] | None:
    """A part as the library has understood it: a file may leave out types, or say more than the library reads."""
    part = getattr(library, name)
    return None if part is None else json.loads(part.__getstate__())


def _flat(part: Any) -> Iterator[dict[str, Any]]:
    if part is not None and part["type"] == "Sequence":
        for each in next(part[name] for name in ("normalizers", "pretokenizers", "decoders") if name in part):
            yield from _flat(each)
    elif part is not None:
        yield part


def _renumbered(part: Any, places: Mapping[int, int]) -> Any:
    """A post-processor with other ids of its special tokens."""
    if isinstance(part, list):
        return [_renumbered(each, places) for each in part]
    if not isinstance(part, dict):
        return part
    named = part.get("special_tokens")
    if isinstance(named, dict):  # one that no template uses may be of a piece that is no more
        named = {name: each for name, each in named.items() if places.keys() >= {*each["ids"]}}
        part = {**part, "special_tokens": named}
    changed = {name: _renumbered(value, places) for name, value in part.items()}
    if isinstance(part.get("ids"), list):
        changed["ids"] = [places[id] for id in part["ids"]]
    for name in ("cls", "sep"):  # of BERT's and RoBERTa's
        if isinstance(part.get(name), list):
            changed[name] = [part[name][0], places[part[name][1]]]
    return changed


def _steps(part: Any) -> list[Mapping[str, Any]]:
    """A normaliser or pre-tokenizer of a file, or what its sequence consists of."""
    if not isinstance(part, dict):
        return []
    of_sequence = (part[name] for name in ("normalizers", "pretokenizers") if isinstance(part.get(name), list))
    return [step for step in next(of_sequence, [part]) if isinstance(step, dict)]


def _changed(part: Any, change: Callable[[Mapping[str, Any]], Any]) -> Any:
    """A normaliser or pre-tokenizer with a change made to it, or to each part of a sequence; None leaves that out."""
    if not isinstance(part, dict):
        return part
    for name in ("normalizers", "pretokenizers"):
        if isinstance(part.get(name), list):
            parts = [change(each) if isinstance(each, dict) else each for each in part[name]]
            return {**part, name: [each for each in parts if each is not None]}
    return change(part)


def _with_values(kind: str, values: Mapping[str, Any], part: Mapping[str, Any]) -> Mapping[str, Any]:
    if part.get("type") != kind:
        return part
    changed = {**part, **values}
    if "prepend_scheme" in values:  # older files have both keys, which the library takes only while they agree
        changed.pop("add_prefix_space", None)
    return changed


def _without_prefix(part: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """A normaliser or pre-tokenizer that puts no blank before a text."""
    if part.get("type") == "Sequence":
        return _changed(part, _without_prefix)
    if part.get("type") == "Prepend":
        return None
    if part.get("type") == "Metaspace":
        return {**part, "prepend_scheme": "never"}
    if part.get("type") == "ByteLevel":
        return {**part, "add_prefix_space": False}
    return part


def _refuse_growth(library: Tokenizer, file: str) -> None:
    """UserError if replacements, one after the other, could make a short text fill the memory."""
    for names in (("normalizer", "pre_tokenizer"), ("decoder",)):
        if math.prod(map(_growth, _parts(library, *names))) > _MOST_GROWTH:
            message = f"its replacements make texts more than {_MOST_GROWTH:,} times as long"
            raise UserError(message, f"{file}:{names[0]}", _AGAIN)


def _growth(part: Mapping[str, Any]) -> float:
    """How many characters a part may make of one."""
    if part["type"] in ("Replace", "Prepend"):
        pattern = part.get("pattern", {}).get("String")
        # A regular expression may match a single character, or even nothing.
        shortest = len(pattern) if pattern else 0.5
        return max(1.0, len(part.get("content", part.get("prepend", ""))) / shortest)
    if part["type"] == "Precompiled":  # a table of places, behind its size, and the forms at these, each up to a zero
        table = base64.b64decode(part["precompiled_charsmap"])
        forms = table[4 + int.from_bytes(table[:4], "little") :].split(b"\0")
        return max(1, *(len(form.decode(errors="replace")) for form in forms))
    return _GROWTH.get(part["type"], 1)


@functools.cache
def _bytes_of_characters() -> dict[str, int]:
    """How byte-level BPE writes bytes: printable ones of Latin-1 as they are, the others from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


def _of_bytes(token: str) -> str | None:
    """The characters that a piece of bytes stands for, a blank before it as Ġ; None if it has no whole characters."""
    known = _bytes_of_characters()
    if not all(character in known for character in token):
        return None
    try:
        text = bytes(known[character] for character in token).decode()
    except UnicodeDecodeError:
        return None
    return f"Ġ{text[1:]}" if text.startswith(" ") else text
