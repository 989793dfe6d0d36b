"""The tokenizer that belongs to a model folder."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.data.text.library_tokenizer import (
    READ_THE_FILE,
    SPECIALS,
    as_transformers_reads,
    cuts_left,
    makes_case_anew,
    read_library_tokenizer,
    read_network_config,
)
from nlpctl.data.text.stored_tokenizer import FILE as STORED
from nlpctl.data.text.stored_tokenizer import read_stored_tokenizer
from nlpctl.data.text.units import UnitTokenizer
from nlpctl.data.text.wordpiece import character_table
from nlpctl.errors import UserError
from nlpctl.files import read_json, write_json_atomic, write_text_atomic
from nlpctl.layout import TASK, is_inside
from nlpctl.models.families import ADDED, ENCODERS, OWN, Family, family_of_config
from nlpctl.models.source import FAST_TOKENIZER, PADDLE_WEIGHTS, read_config
from nlpctl.runtime.process import import_paddlenlp
from nlpctl.upstream.tokenizer_files import keep_resources

_MOST_BYTES = 128 << 20  # of a file, as in data/text/library_tokenizer.py
_PADDING = 64  # rows of an embedding that are often more than its entries, and more in large ones
_TOKENIZER_CONFIG = "tokenizer_config.json"
# PaddleNLP's classes for vocabularies of WordPiece, where a family of nlpctl has another than BERT's.
_OF_OURS = {"HFConvBert": "ConvBertTokenizer", "HFMPNet": "MPNetTokenizer", "HFRoFormer": "RoFormerTokenizer"}
_BESIDE = (SPECIALS, "added_tokens.json", FAST_TOKENIZER)  # what PaddleNLP reads besides vocabularies


def load_tokenizer(folder: Path, family: Family) -> Any:
    """The tokenizer of `folder`: of its tokenizer.json or sentencepiece model, else PaddleNLP's, of the class that
    tokenizer_config.json names, else by the family. BERT's own WordPiece is always read by PaddleNLP's.

    A folder of nlpctl's own networks has a UnitTokenizer, unless it is an ensemble of others. UserError when a file is
    missing or damaged.
    """
    config = _config(folder)
    if family.name in OWN and config.get("tokenizer_class", UnitTokenizer.__name__) == UnitTokenizer.__name__:
        return _unit_tokenizer(folder, config)
    library = read_library_tokenizer(folder)
    if library is not None:
        return library
    for name in (_TOKENIZER_CONFIG, SPECIALS):
        _check_specials(folder / name)
    tokenizer_class = _tokenizer_class(folder, family, config)
    files = list(tokenizer_class.resource_files_names.values())
    present = [folder / name for name in files if (folder / name).is_file()]
    if _cuts_left(folder, config):
        config = {**config, "truncation_side": "left"}
    if not present and (pieces := _word_pieces(folder)) is not None:
        return _of_pieces(tokenizer_class, config, *pieces)
    if not present or any(file.stat().st_size == 0 for file in present):
        raise UserError(
            f"{' and '.join(files)} missing or empty; {tokenizer_class.__name__} needs it",
            where=str(folder),
            hint="copy the tokenizer files from where the model came from",
        )
    for file in (*present, *(folder / name for name in _BESIDE)):  # PaddleNLP reads them whole
        if file.is_file() and file.stat().st_size > _MOST_BYTES:
            raise UserError(f"has more than {_MOST_BYTES >> 20} MB", str(file), "no vocabulary is that large")
    try:
        with _own_files(folder, config, present) as place:
            options = _plain_specials(config) | _lowercase(folder, config)
            options |= {key: config[key] for key in ("truncation_side",) if key in config}
            return keep_resources(tokenizer_class.from_pretrained(str(place), **options))
    except Exception as error:  # PaddleNLP lets anything through here, from KeyError to AssertionError
        raise _damaged(folder, error) from error


def _damaged(folder: Path, error: Exception) -> UserError:
    hint = "copy vocab.txt and tokenizer_config.json again; both must belong to this model"
    return UserError(f"the tokenizer cannot be loaded ({type(error).__name__}: {error})", str(folder), hint)


def _check_specials(file: Path) -> None:
    """UserError for special tokens that are no text: PaddleNLP takes them, and fails with the first text."""
    content = read_json(file) if file.is_file() else {}
    for name in ("unk", "pad", "cls", "sep", "mask", "bos", "eos"):
        key = f"{name}_token"
        value = content.get(key, "")
        text = value.get("content") if isinstance(value, dict) else value
        may_be_null = value is None and name in ("mask", "bos", "eos")
        if not isinstance(text, str) and not may_be_null:
            shown = "null" if value is None else json.dumps(value)[:40]
            raise UserError(f"{key} is {shown}", str(file), f'write a token there, such as "{key}": "[{name.upper()}]"')


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
        write_json_atomic(Path(name) / _TOKENIZER_CONFIG, kept)
        yield Path(name)


def _names_files(key: str) -> bool:
    """Whether the value of a key of tokenizer_config.json may be a path: vocab_file, merges_file, ..., or arguments."""
    return key.endswith("_file") or key == "init_args"


def _is_outside(name: str, folder: Path) -> bool:
    return os.path.isfile(name) and not is_inside(os.path.abspath(name), folder)


def export_tokenizer(folder: Path, mode: str) -> Any:
    """The tokenizer of an export: without PaddleNLP, if its files allow that and `mode` (data.tokenizer) does.

    UserError when a file is missing or damaged.
    """
    if _has_units(folder):
        return _unit_tokenizer(folder, _config(folder))
    if _has_library(folder) and (library := read_library_tokenizer(folder)) is not None:
        return library

    def full() -> Any:
        import_paddlenlp()  # perhaps for one text among thousands, in any thread
        return load_tokenizer(folder, family_of_config(read_config(folder), str(folder / "config.json")))

    stored = None if mode == "paddlenlp" else read_stored_tokenizer(folder, full, character_table)
    return full() if stored is None else stored


def needs_paddlenlp(folder: Path, mode: str) -> bool:
    """Whether `export_tokenizer` opens PaddleNLP's tokenizer. UserError if tokenizer_config.json is damaged."""
    return not (_has_units(folder) or _has_library(folder)) and (
        mode == "paddlenlp" or not (folder / STORED).is_file()
    )


def _has_library(folder: Path) -> bool:
    """Whether an export has a LibraryTokenizer: PaddleNLP's write no tokenizer.json."""
    return (folder / FAST_TOKENIZER).is_file()


def _has_units(folder: Path) -> bool:
    return _config(folder).get("tokenizer_class") == UnitTokenizer.__name__


def _config(folder: Path) -> dict[str, Any]:
    return read_json(folder / _TOKENIZER_CONFIG) if (folder / _TOKENIZER_CONFIG).is_file() else {}


def _lowercase(folder: Path, config: Mapping[str, Any]) -> dict[str, bool]:
    """do_lower_case of the tokenizer.json, where Transformers goes by that alone; other classes have it in `config`."""
    file = folder / FAST_TOKENIZER
    if not file.is_file():
        return {}
    of_paddle = (folder / TASK).is_file() or any((folder / name).is_file() for name in PADDLE_WEIGHTS)
    network = {} if of_paddle else read_network_config(folder)
    if of_paddle and config.get("tokenizer_class") not in READ_THE_FILE:  # PaddleNLP's own go by `config` as well
        return {}
    return {} if makes_case_anew(config, network) else {"do_lower_case": read_json(file)["normalizer"]["lowercase"]}


def _word_pieces(folder: Path) -> tuple[list[str], bool] | None:
    """The pieces in tokenizer.json, index = id, and whether text is lower-cased; None where there is none.

    It is a WordPiece of BERT's kind: every other is a LibraryTokenizer.
    """
    file = folder / FAST_TOKENIZER
    if not file.is_file():
        return None
    content = read_json(file)
    model = content["model"]
    ids = {index: piece for piece, index in model["vocab"].items()}
    if sorted(ids) != list(range(len(model["vocab"]))):
        hint = "copy tokenizer.json again, or give vocab.txt"
        raise UserError("the ids of the vocabulary have gaps", where=str(file), hint=hint)
    broken = next((piece for piece in model["vocab"] if "\n" in piece or "\r" in piece), None)
    if broken is not None:  # all ids behind it would be those of other pieces
        hint = "write it without; a text has no such piece, since it is cut at white space"
        raise UserError(f"the piece {broken!r} has a line break, and vocab.txt a line for each", str(file), hint)
    told = as_transformers_reads(content, _config(folder), read_network_config(folder))["normalizer"]["lowercase"]
    return [ids[index] for index in range(len(ids))], told


def _cuts_left(folder: Path, config: Mapping[str, Any]) -> bool:
    """Whether the tokenizer.json of another program says so, of which PaddleNLP's tokenizers read nothing."""
    file = folder / FAST_TOKENIZER
    return file.is_file() and not (folder / TASK).is_file() and cuts_left(read_json(file), config)


def _of_pieces(tokenizer_class: Any, config: Mapping[str, Any], pieces: list[str], lowercase: bool) -> Any:
    """PaddleNLP's tokenizer over `pieces`, as if they stood in a vocab.txt next to tokenizer_config.json."""
    with tempfile.TemporaryDirectory(prefix="nlpctl-vocabulary-") as name:
        write_text_atomic(Path(name) / "vocab.txt", "".join(f"{piece}\n" for piece in pieces))
        kept = {key: value for key, value in config.items() if not _names_files(key)} | _plain_specials(config)
        kept |= {"do_lower_case": lowercase}
        write_json_atomic(Path(name) / _TOKENIZER_CONFIG, kept)
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
        raise UserError(message, where, f"correct {_TOKENIZER_CONFIG}, or copy it again")
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


def _tokenizer_class(folder: Path, family: Family, config: Mapping[str, Any]) -> Any:
    """By the declared class (Hugging Face's ...Fast has the same vocabulary), else by the family."""
    from paddlenlp import transformers

    declared = config.get("tokenizer_class") or config.get("init_class") or ""
    is_ours = family.name in ENCODERS or family.name in ADDED
    usual = _OF_OURS.get(family.name, "BertTokenizer") if is_ours else f"{family.name}Tokenizer"
    for name in (str(declared).removesuffix("Fast"), usual):
        if name == "RobertaTokenizer":  # two classes behind one name: by the files
            # Chinese RoBERTa uses BERT's WordPiece vocabulary; the English one is byte-level BPE and has merges.txt.
            name = "RobertaBPETokenizer" if (folder / "merges.txt").is_file() else "RobertaChineseTokenizer"
        if name in transformers.__dict__ and hasattr(transformers.__dict__[name], "resource_files_names"):
            return transformers.__dict__[name]
    raise UserError(
        f"PaddleNLP has no tokenizer class {declared!r}",
        where=str(folder / _TOKENIZER_CONFIG),
        hint="set tokenizer_class to a class of PaddleNLP, such as BertTokenizer",
    )


def _plain_specials(config: Mapping[str, Any]) -> dict[str, str]:
    """Newer Hugging Face files write special tokens as {"content": "[CLS]", ...}; PaddleNLP wants the text."""
    return {
        key: value["content"]
        for key, value in config.items()
        if key.endswith("_token") and isinstance(value, dict) and isinstance(value.get("content"), str)
    }
