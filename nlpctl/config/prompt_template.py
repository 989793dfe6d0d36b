"""The template of a prompt, in PaddleNLP's notation, read without running anything that stands in it.

PaddleNLP itself hands every {...} to `eval`; see nlpctl/upstream/prompt.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

Part = dict[str, Any]

KINDS = ("text", "mask", "hard", "sep")
ATTRIBUTES = {"text": ("truncate",), "mask": ("length",), "hard": (), "sep": ()}
COMMON = ("add_space", "token_type")
TEXTS = ("text", "text_pair")  # what {'text': ...} may name: the columns of data.columns


def parse_template(template: str) -> list[Part]:
    """The parts of a template as PaddleNLP's `parse_template_string` gives them. ValueError says what is wrong.

    A part has one of KINDS: {'text': 'text'} (or 'text_pair'), {'mask': None, 'length': 1}, {'hard': words},
    {'sep': None}; "add_space" stands for a blank before it.
    """
    parts = list(_parts(template))
    if not any("text" in part for part in parts):
        raise ValueError("it has no {'text': 'text'}, so no text would be read")
    masks = [part for part in parts if "mask" in part]
    if len(masks) != 1:
        raise ValueError(
            "it has no {'mask'}, so no word would be predicted"
            if not masks
            else f"it has {len(masks)} masks; a word of several pieces is {{'mask': None, 'length': 2}}"
        )
    return parts


def mask_length(parts: list[Part]) -> int:
    """How many tokens the gap of a template has."""
    return next(part["length"] for part in parts if "mask" in part)


def _parts(template: str) -> Iterator[Part]:
    position = 0
    while position < len(template):
        start = position
        while position < len(template) and template[position] == " ":
            position += 1
        if position == len(template):
            return
        part: Part = {"add_space": " "} if position > start else {}
        if template[position] == "{":
            end = _closing(template, position) + 1
            yield part | _block(template[position:end])
        else:
            end = template.find("{", position)
            end = len(template) if end < 0 else end
            # The blanks before a block go with the block.
            words = template[position:end].rstrip(" ")
            yield part | {"hard": words}
            end = position + len(words)
        position = end


def _closing(template: str, start: int) -> int:
    depth = 0
    for i in range(start, len(template)):
        depth += (template[i] == "{") - (template[i] == "}")
        if depth == 0:
            return i
    raise ValueError(f"the {{ at character {start + 1} is never closed")


def _block(text: str) -> Part:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise ValueError(f"{text} is not a mapping such as {{'text': 'text'}} or {{'mask'}}") from None
    part = dict.fromkeys(value) if isinstance(value, set) else value
    if not isinstance(part, dict) or not all(isinstance(key, str) for key in part):
        raise ValueError(f"{text} is not a mapping such as {{'text': 'text'}} or {{'mask'}}")
    kinds = [key for key in part if key in KINDS]
    if len(kinds) != 1:
        raise ValueError(f"{text} must have one of the keys {', '.join(KINDS)}")
    kind = kinds[0]
    unknown = [key for key in part if key != kind and key not in (*ATTRIBUTES[kind], *COMMON)]
    if unknown:
        raise ValueError(f"{text}: {unknown[0]!r} is not supported with {kind!r}")
    _check_values(kind, part, text)
    return part | ({"length": part.get("length", 1)} if kind == "mask" else {})


def _check_values(kind: str, part: Part, text: str) -> None:
    if kind == "text" and part["text"] not in TEXTS:
        raise ValueError(f"{text}: the text is 'text' or 'text_pair', the names of data.columns")
    if kind == "hard" and not (isinstance(part["hard"], str) and part["hard"].strip()):
        raise ValueError(f"{text}: 'hard' must be words")
    if "length" in part and (type(part["length"]) is not int or not 1 <= part["length"] <= 16):
        raise ValueError(f"{text}: 'length' is the number of tokens of the gap, 1 to 16")
    if "token_type" in part and part["token_type"] not in (0, 1):
        raise ValueError(f"{text}: 'token_type' is 0 or 1")
    if "truncate" in part and not isinstance(part["truncate"], bool):
        raise ValueError(f"{text}: 'truncate' is True or False")
