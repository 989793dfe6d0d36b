"""The tokenizer that belongs to a model folder."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.config.sentence_folder import length_file, reads_lower_case
from nlpctl.data.text.library_tokenizer import (
    MOST_BYTES,
    SPECIALS,
    LibraryTokenizer,
    as_transformers_reads,
    cuts_left,
    doubts,
    has_library_tokenizer,
    read_library_tokenizer,
    read_network_config,
    read_object,
    read_tokenizer_config,
    read_word_pieces,
)
from nlpctl.data.text.units import TOKENIZER_CONFIG, UnitTokenizer
from nlpctl.data.text.wordpiece import ADDED_TOKENS, VOCABULARY, is_plain
from nlpctl.errors import UserError
from nlpctl.files import read_json, write_json_atomic, write_text_atomic
from nlpctl.layout import TASK, is_inside
from nlpctl.models.families import ADDED, ENCODERS, OWN, TOKENIZERS, Family, family_of_config
from nlpctl.models.source import FAST_TOKENIZER, VOCABULARY_FILES, read_config
from nlpctl.runtime.process import import_paddlenlp
from nlpctl.upstream.tokenizer_files import keep_resources

_PADDING = 64  # rows of an embedding that are often more than its entries, and more in large ones
_CAPITALS = "ABCDEFGHIJKLMNOPQRSTUVWXYZÄÉÑΩЖ"
_BESIDE = (SPECIALS, ADDED_TOKENS, FAST_TOKENIZER)  # what PaddleNLP reads besides vocabularies


def load_tokenizer(folder: Path, family: Family) -> Any:
    """The tokenizer of `folder`: a LibraryTokenizer of its tokenizer.json, sentencepiece model or vocab.txt, else
    PaddleNLP's, of the class that tokenizer_config.json names, else by the family.

    A folder of nlpctl's own networks has a UnitTokenizer, unless it is an ensemble of others. UserError when a file is
    missing or damaged.
    """
    tokenizer = _read(folder, family)
    if isinstance(tokenizer, LibraryTokenizer) and not (folder / TASK).is_file():
        tokenizer.check_unknown()
        for doubt in doubts(tokenizer, folder):
            console.warn(f"{folder / TOKENIZER_CONFIG}: {doubt}")
    if not reads_lower_case(folder):
        return tokenizer
    if isinstance(tokenizer, LibraryTokenizer):
        return tokenizer.lower_cased()
    # Letter by letter, since two words that are not in the vocabulary are the same token.
    if any(tokenizer.tokenize(letter) != tokenizer.tokenize(letter.lower()) for letter in _CAPITALS):
        message = "do_lower_case: its texts are lower-cased first, and the tokenizer in this folder does not do so"
        raise UserError(message, str(length_file(folder)), "set it to false and give texts in lower case")
    return tokenizer


def _read(folder: Path, family: Family) -> Any:
    config = read_tokenizer_config(folder)
    name = _class_name(folder, family, config)
    if not has_library_tokenizer(folder):
        _check_specials(folder)
    own = _own_reader(folder, name, config)
    if own is not None:
        return own()
    tokenizer_class = _class_in_paddlenlp(name)
    if tokenizer_class is None:
        declared = config.get("tokenizer_class") or config.get("init_class") or ""
        hint = "set tokenizer_class to a class of PaddleNLP, such as BertTokenizer"
        raise UserError(f"PaddleNLP has no tokenizer class {declared!r}", str(folder / TOKENIZER_CONFIG), hint)
    if (folder / FAST_TOKENIZER).is_file() and cuts_left(read_json(folder / FAST_TOKENIZER), config):
        config = {**config, "truncation_side": "left"}
    files = list(tokenizer_class.resource_files_names.values())
    present = [folder / name for name in files if (folder / name).is_file()]
    of_json = not present and (folder / FAST_TOKENIZER).is_file() and files == [VOCABULARY]
    pieces = _word_pieces(folder, config) if of_json else None
    if pieces is None and not present or any(file.stat().st_size == 0 for file in present):
        raise UserError(
            f"{' and '.join(files)} missing or empty; {tokenizer_class.__name__} needs it",
            where=str(folder),
            hint="copy the tokenizer files from where the model came from",
        )
    for file in (*present, *(folder / name for name in _BESIDE)):  # PaddleNLP reads them whole
        if file.is_file() and file.stat().st_size > MOST_BYTES:
            raise UserError(f"has more than {MOST_BYTES >> 20} MB", str(file), "no vocabulary is that large")
    try:
        if pieces is not None:
            return _of_pieces(tokenizer_class, config, *pieces)
        with _own_files(folder, config, present) as place:
            options = _plain_specials(config)
            options |= {key: config[key] for key in ("truncation_side",) if key in config}
            return keep_resources(tokenizer_class.from_pretrained(str(place), **options))
    except Exception as error:  # PaddleNLP lets anything through here, from KeyError to AssertionError
        raise _damaged(folder, error) from error


def _damaged(folder: Path, error: Exception) -> UserError:
    hint = "copy vocab.txt and tokenizer_config.json again; both must belong to this model"
    return UserError(f"the tokenizer cannot be loaded ({type(error).__name__}: {error})", str(folder), hint)


def _check_specials(folder: Path) -> None:
    """UserError for special tokens that are no text: PaddleNLP takes them, and fails with the first text."""
    for file in (folder / TOKENIZER_CONFIG, folder / SPECIALS):
        content = read_object(file)
        for name in ("unk", "pad", "cls", "sep", "mask", "bos", "eos"):
            key = f"{name}_token"
            value = content.get(key, "")
            text = value.get("content") if isinstance(value, dict) else value
            may_be_null = value is None and name in ("mask", "bos", "eos")
            if not isinstance(text, str) and not may_be_null:
                shown = "null" if value is None else json.dumps(value)[:40]
                hint = f'write a token there, such as "{key}": "[{name.upper()}]"'
                raise UserError(f"{key} is {shown}", str(file), hint)


@contextlib.contextmanager
def _own_files(folder: Path, config: Mapping[str, Any], resources: Sequence[Path]) -> Iterator[Path]:
    """`folder`; where its tokenizer_config.json names files outside, as its vocab_file, a copy that names none.

    PaddleNLP would read such a file in place of the one in the folder, and save a copy of it.
    """
    named = [value for key, value in config.items() if _names_files(key)]
    if not any(isinstance(each, list) or (isinstance(each, str) and _is_outside(each, folder)) for each in named):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="nlpctl-tokenizer-") as name:
        for file in {*resources, *(folder / each for each in _BESIDE if (folder / each).is_file())}:
            shutil.copyfile(file, Path(name) / file.name)
        kept = {key: value for key, value in config.items() if not _names_files(key)}
        write_json_atomic(Path(name) / TOKENIZER_CONFIG, kept)
        yield Path(name)


def _names_files(key: str) -> bool:
    """Whether the value of a key of tokenizer_config.json may be a path: vocab_file, merges_file, ..., or arguments."""
    return key.endswith("_file") or key == "init_args"


def _is_outside(name: str, folder: Path) -> bool:
    return os.path.isfile(name) and not is_inside(os.path.abspath(name), folder)


def export_tokenizer(folder: Path) -> Any:
    """The tokenizer of an export, without PaddleNLP if its files allow that. UserError: they are damaged."""
    own = _reader_by_files(folder)
    if own is not None:
        return own()
    import_paddlenlp()
    return load_tokenizer(folder, family_of_config(read_config(folder), str(folder / "config.json")))


def needs_paddlenlp(folder: Path) -> bool:
    """Whether `export_tokenizer` opens PaddleNLP's tokenizer. UserError if its settings are damaged."""
    return _reader_by_files(folder) is None


def check_tokenizer(folder: Path) -> None:
    """UserError if the tokenizer files in `folder` cannot be used, as far as that shows without PaddleNLP."""
    present = [folder / name for name in VOCABULARY_FILES if (folder / name).is_file()]
    empty = next((file for file in present if not file.stat().st_size), None)
    if empty is not None:
        hint = "copy the tokenizer files from where the model came from"
        raise UserError("the vocabulary is empty", where=str(empty), hint=hint)
    if not has_library_tokenizer(folder):
        _check_specials(folder)
    own = _reader_by_files(folder)
    if own is not None:
        own()


def _reader_by_files(folder: Path) -> Callable[[], Any] | None:
    """`_own_reader` by the class that is named. Without one the family decides, which PaddleNLP knows."""
    config = read_tokenizer_config(folder)
    return _own_reader(folder, _declared_class(folder, config), config)


def _own_reader(folder: Path, name: str, config: Mapping[str, Any]) -> Callable[[], Any] | None:
    """What reads the tokenizer of `folder`, whose class is called `name`, without PaddleNLP; None: nothing does."""
    if name == UnitTokenizer.__name__:
        return partial(_unit_tokenizer, folder, config)
    if has_library_tokenizer(folder):
        return partial(read_library_tokenizer, folder)
    if (folder / VOCABULARY).is_file() and is_plain(name, config):
        return partial(read_word_pieces, folder, name)
    return None


def _word_pieces(folder: Path, config: Mapping[str, Any]) -> tuple[list[str], bool]:
    """The pieces in the tokenizer.json of RoFormer, index = id, and whether text is lower-cased."""
    file = folder / FAST_TOKENIZER
    content = read_json(file)
    try:
        ids = {index: piece for piece, index in content["model"]["vocab"].items()}
        lowercase = as_transformers_reads(content, config, read_network_config(folder))["normalizer"]["lowercase"]
        broken = next((piece for piece in ids.values() if "\n" in piece or "\r" in piece), None)
        whole = sorted(ids) == list(range(len(content["model"]["vocab"])))
    except (KeyError, TypeError, AttributeError) as error:
        raise _damaged(folder, error) from None
    if not whole:
        hint = "copy tokenizer.json again, or give vocab.txt"
        raise UserError("the ids of the vocabulary have gaps", where=str(file), hint=hint)
    if broken is not None:  # all ids behind it would be those of other pieces
        hint = "write it without; a text has no such piece, since it is cut at white space"
        raise UserError(f"the piece {broken!r} has a line break, and vocab.txt a line for each", str(file), hint)
    return [ids[index] for index in range(len(ids))], lowercase


def _of_pieces(tokenizer_class: Any, config: Mapping[str, Any], pieces: list[str], lowercase: bool) -> Any:
    """PaddleNLP's tokenizer over `pieces`, as if they stood in a vocab.txt next to tokenizer_config.json."""
    with tempfile.TemporaryDirectory(prefix="nlpctl-vocabulary-") as name:
        write_text_atomic(Path(name) / VOCABULARY, "".join(f"{piece}\n" for piece in pieces))
        kept = {key: value for key, value in config.items() if not _names_files(key)} | _plain_specials(config)
        kept |= {"do_lower_case": lowercase}
        write_json_atomic(Path(name) / TOKENIZER_CONFIG, kept)
        return keep_resources(tokenizer_class.from_pretrained(name))


def _unit_tokenizer(folder: Path, config: Mapping[str, Any]) -> UnitTokenizer:
    try:
        return UnitTokenizer.load(folder, config)
    except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        raise _damaged(folder, error) from error


def check_vocabulary(entries: int, rows: int, where: str) -> None:
    """Raise UserError when a vocabulary has more entries than the embedding has rows; warn if it has far fewer."""
    if type(rows) is not int:
        raise UserError(f"vocab_size is {str(rows)[:40]!r}, which is no number", where, "copy config.json again")
    if entries > rows:
        raise UserError(
            f"the vocabulary has {entries} entries and the embedding only {rows} rows",
            where=where,
            hint="vocabulary and weights belong to different models: copy both from the same place",
        )
    if entries < min(rows / 2, rows - _PADDING):
        console.warn(
            f"{where}: the vocabulary has only {entries:,} entries for the {rows:,} rows of the embedding: "
            "if it is that of another model, every text is misread"
        )


def agree_on_inputs(tokenizer: Any, network: Any, where: str) -> None:
    """Drops token_type_ids for an encoder without them (DistilBERT, MPNet, DeBERTa-v3), or with one for all tokens, as
    RoBERTa has; its tokenizer may give more. UserError: it gives one that the network has no row for."""
    names = tokenizer.model_input_names
    if not isinstance(names, list | tuple) or list(names[:1]) != ["input_ids"]:
        message = f"model_input_names is {json.dumps(names)[:80]}: it has to begin with input_ids"
        raise UserError(message, where, f"correct {TOKENIZER_CONFIG}, or copy it again")
    if "token_type_ids" not in names:
        return
    types = tokenizer.create_token_type_ids_from_sequences
    highest = max(*types([0]), *types([0], [0]))
    rows = vars(network.config).get("type_vocab_size")
    named = "token_type_ids" in inspect.signature(network.base_model.forward).parameters
    if named and type(rows) is int and 1 < rows <= highest:
        message = f"the tokenizer gives tokens the type {highest}, and the network has {rows} types, from 0"
        hint = "tokenizer and weights belong to different models: copy both from the same place"
        raise UserError(message, where, hint)
    if not named or rows == 0 or (rows == 1 and highest > 0):
        tokenizer.model_input_names = [name for name in names if name != "token_type_ids"]
        tokenizer.init_kwargs["model_input_names"] = tokenizer.model_input_names  # so that it is saved


def _class_name(folder: Path, family: Family, config: Mapping[str, Any]) -> str:
    """The class of the tokenizer: as declared, where nlpctl or PaddleNLP has such a class, else by the family."""
    declared = _declared_class(folder, config)
    if family.name in OWN:
        return declared or UnitTokenizer.__name__
    if declared == UnitTokenizer.__name__ or _class_in_paddlenlp(declared) is not None:
        return declared
    is_ours = family.name in ENCODERS or family.name in ADDED
    usual = TOKENIZERS.get(family.name, "BertTokenizer") if is_ours else f"{family.name}Tokenizer"
    return _paddle_name(folder, usual)


def _class_in_paddlenlp(name: str) -> Any:
    """PaddleNLP's tokenizer class of this name; None where it has none."""
    from paddlenlp import transformers

    found = vars(transformers).get(name)
    return found if hasattr(found, "resource_files_names") else None


def _declared_class(folder: Path, config: Mapping[str, Any]) -> str:
    """PaddleNLP's name of the class in tokenizer_config.json; "" where there is none."""
    return _paddle_name(folder, str(config.get("tokenizer_class") or config.get("init_class") or ""))


def _paddle_name(folder: Path, name: str) -> str:
    """PaddleNLP's name of a class; Hugging Face's ...Fast has the same vocabulary."""
    name = name.removesuffix("Fast")
    if name == "RobertaTokenizer":  # two classes behind one name: by the files
        # Chinese RoBERTa uses BERT's WordPiece vocabulary; the English one is byte-level BPE and has merges.txt.
        return "RobertaBPETokenizer" if (folder / "merges.txt").is_file() else "RobertaChineseTokenizer"
    return name


def _plain_specials(config: Mapping[str, Any]) -> dict[str, str]:
    """Newer Hugging Face files write special tokens as {"content": "[CLS]", ...}; PaddleNLP wants the text."""
    return {
        key: value["content"]
        for key, value in config.items()
        if key.endswith("_token") and isinstance(value, dict) and isinstance(value.get("content"), str)
    }
