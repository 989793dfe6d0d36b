"""Changing the files that section data of a recipe names, in the recipe's text: comments and layout stay."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

import yaml

from nlpctl.config.library import shipped_root
from nlpctl.config.positions import display
from nlpctl.config.schema import Recipe
from nlpctl.errors import UserError
from nlpctl.files import write_text_atomic
from nlpctl.layout import MANIFEST

_PASTE = "paste the lines that are printed without --write"
_OTHER_SOURCES = ("dataset", "reader")
_SAFE = re.compile(r"[\w./][\w./-]*")


def in_recipe(recipe: Recipe, file: Path) -> str:
    """`file` as the recipe is to name it: relative to its folder; absolute in a shipped recipe or that of a run."""
    path = _own_file(recipe)
    return os.path.abspath(file) if path is None else named_from(path.parent, file)


def named_from(folder: Path, file: Path) -> str:
    """`file` as a recipe in `folder` is to name it: relative where that leads to the same file."""
    folder, absolute = Path(os.path.abspath(folder)), os.path.abspath(file)
    relative = os.path.relpath(absolute, folder)
    # Where the way leads through a link, .. may be another folder than its name says.
    return relative if (folder / relative).resolve() == Path(absolute).resolve() else absolute


def as_yaml(name: str) -> str:
    """The path `name` as a value of YAML, quoted if it must be."""
    return name if _SAFE.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def refuse_rewriting(recipe: Recipe) -> None:
    """UserError if `write_files` cannot change the recipe: it is shipped with nlpctl, or reads no files."""
    if _own_file(recipe) is None:
        hint = "copy it first: nlpctl recipe copy"
        raise UserError("--write changes a recipe file of your own only", where="--write", hint=hint)
    for key in _OTHER_SOURCES:
        if getattr(recipe.data, key) is not None:
            message = f"the recipe reads its rows by data.{key}, not from files"
            raise UserError(message, where=recipe.where(f"data.{key}"), hint=f"leave out --write; {_PASTE}")


def write_files(recipe: Recipe, files: Mapping[str, Path]) -> None:
    """Let data.train, dev, test of the recipe name `files`; all else in it stays as it is.

    UserError if the text cannot be changed without changing more than that.
    """
    path = _own_file(recipe)
    assert path is not None  # refuse_rewriting
    with open(path, encoding="utf-8", newline="") as stream:
        text = stream.read()
    names = {part: in_recipe(recipe, file) for part, file in files.items()}
    changed = with_data(text, names)
    if changed is None:
        raise UserError("the recipe's text cannot be changed safely", where=display(path), hint=_PASTE)
    write_text_atomic(path, changed)


def with_data(text: str, values: Mapping[str, str]) -> str | None:
    """`text` of a recipe with `values` in its section data; None if more than these values would change."""
    wanted = dict(yaml.safe_load(text) or {})
    if any((wanted.get("data") or {}).get(key) is not None for key in _OTHER_SOURCES):
        return None
    wanted["data"] = {**(wanted.get("data") or {}), **values}
    changed = _edited(text, {key: as_yaml(value) for key, value in values.items()})
    try:
        found = None if changed is None else yaml.safe_load(changed)
    except yaml.YAMLError:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("data"), dict):
        return None
    found["data"] |= {key: values[key] for key in values if found["data"].get(key) == [values[key]]}
    return changed if found == wanted else None


def _edited(text: str, values: Mapping[str, str]) -> str | None:
    """`text` with `values`, which are YAML; None if section data is written in a way that this does not know."""
    end = "\r\n" if "\r\n" in text else "\n"
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    sections = {key.value: node for key, node in root.value}
    block = "".join(f"{end}  {key}: {value}" for key, value in values.items())
    if "data" not in sections:
        return f"{text.rstrip()}{end}data:{block}{end}"
    data = sections["data"]
    if not isinstance(data, yaml.MappingNode):
        place = data.end_mark.index
        return text[:place] + block + text[place:] if not data.value else None
    known = {key.value: node for key, node in data.value}
    edits = [(*_span(known[key]), value) for key, value in values.items() if key in known]
    new = [f"{key}: {value}" for key, value in values.items() if key not in known]
    if new:
        edits.append(_insertion(text, data, new, end))
    for start, stop, put in sorted(edits, reverse=True):
        text = text[:start] + put + text[stop:]
    return text


def _span(node: yaml.Node) -> tuple[int, int]:
    """Where the value stands; of a list of lines its items, which become one."""
    if isinstance(node, yaml.SequenceNode) and not node.flow_style and node.value:
        return node.value[0].start_mark.index, node.value[-1].end_mark.index
    return node.start_mark.index, node.end_mark.index


def _insertion(text: str, data: yaml.MappingNode, new: list[str], end: str) -> tuple[int, int, str]:
    """The edit that adds the entries `new` at the beginning of the section, or at its end where it has braces."""
    if not data.value or data.flow_style:
        place = data.end_mark.index - 1
        return place, place, (", " if data.value else "") + ", ".join(new)
    first = data.value[0][0].start_mark
    return first.index, first.index, "".join(f"{entry}{end}{' ' * first.column}" for entry in new)


def _own_file(recipe: Recipe) -> Path | None:
    """The recipe's file; None if it is shipped, or that of a run or a model."""
    path = recipe.path
    if path is None or path.suffix not in (".yaml", ".yml") or path.with_name(MANIFEST).exists():
        return None
    shipped = (shipped_root() / name for name in ("recipes", "configs"))
    return None if any(path.resolve().is_relative_to(folder.resolve()) for folder in shipped) else path
