"""The text of a recipe: a new one, written with reasons as comments; and values changed in place, where comments and
layout stay.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from nlpctl.config.dump import to_yaml
from nlpctl.config.library import shipped_root
from nlpctl.config.schema import SPLITS, Recipe, SplitFilesSection
from nlpctl.config.tasks import Preset
from nlpctl.console import display, display_width, wrapped
from nlpctl.errors import UserError
from nlpctl.files import write_text_atomic
from nlpctl.layout import MANIFEST
from nlpctl.report.chinese import CHINESE
from nlpctl.report.language import in_language, later, say, say_counted

_WIDTH = 120
_SMALL = 0.01  # smaller numbers are written as 5e-3
_COMMENT_AT = 36  # the column of the comments, where the line is short enough

Tree = dict[str, Any]  # name -> Preset or Tree


def recipe_text(head: Sequence[str], presets: Sequence[Preset], hints: Sequence[Preset] = ()) -> str:
    """The text of a recipe, its reasons in the language of now. `head`: the lines of the comment above; `hints`: values
    that stand as comments below.

    Of several presets with the same key the last one counts, at the place of the first.
    """
    lines = [f"# {line}".rstrip() for line in head]
    lines += _lines(_tree(presets), "")
    if hints:
        lines += ["", f"# {say('To try:')}"]
        lines += [line for hint in hints for line in _hint(hint)]
    return "\n".join(lines) + "\n"


def value_text(value: Any) -> str:
    """A value as YAML in one line: 5e-5, [a, b], {a: b}."""
    return to_yaml({"": value}).partition(":")[2].strip() if isinstance(value, str) else _inner(value)


def _inner(value: Any) -> str:
    """A value inside brackets or braces as YAML."""
    if isinstance(value, float):
        mantissa, _, exponent = f"{value:e}".partition("e")
        return f"{float(mantissa):g}e{int(exponent)}" if 0 < abs(value) < _SMALL else f"{value:g}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_inner(name)}: {_inner(each)}' for name, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_inner, value))}]"
    return to_yaml([value]).strip()[1:-1]


def _tree(presets: Sequence[Preset]) -> Tree:
    tree: Tree = {}
    for preset in presets:
        *sections, name = preset.key.split(".")
        place = tree
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = preset
    return tree


def _lines(tree: Tree, indent: str) -> list[str]:
    lines: list[str] = []
    for name, entry in tree.items():
        if isinstance(entry, Preset):
            lines += _commented(f"{indent}{name}: {value_text(entry.value)}", entry.why, indent)
        else:
            lines += [f"{indent}{name}:", *_lines(entry, f"{indent}  ")]
    return lines


def _hint(hint: Preset) -> list[str]:
    """A value as a comment that works once its mark is removed."""
    section, _, rest = hint.key.partition(".")
    inner: Any = hint.value
    for name in reversed(rest.split(".") if rest else []):
        inner = {name: inner}
    return _commented(f"# {section}: {value_text(inner)}", hint.why, "")


def _commented(line: str, why: str, indent: str) -> list[str]:
    """The line with its comment behind it, or above it where there is no room."""
    if not why:
        return [line]
    behind = _behind(line, say(why))
    if display_width(behind) <= _WIDTH:
        return [behind]
    mark = f"{indent}# "
    return [*(f"{mark}{each}" for each in wrapped(say(why), _WIDTH - len(mark))), line]


def _behind(line: str, comment: str) -> str:
    """The line with the comment behind it, under those of other lines, also where Chinese is before them."""
    return f"{line}{' ' * (_COMMENT_AT - 1 - display_width(line))} # {comment}"


# --------------------------------------------------------------------------------------------------
# Values of a recipe changed in its text; comments and layout stay. Callers check that the text says what it should.


def edited(text: str, path: Sequence[str], values: Mapping[str, str], *, last: bool = False) -> str | None:
    """`text` with `values`, which are YAML, in the section at `path`, which is made if it is missing.

    New entries become the first ones of the section, or with `last` the last ones. None if the section is written in a
    way that this does not know.
    """
    end = "\r\n" if "\r\n" in text else "\n"
    node: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(node, yaml.MappingNode):
        return None
    for depth, name in enumerate(path):
        sections = {key.value: value for key, value in node.value}
        if name not in sections:
            if depth == 0:
                return f"{text.rstrip()}{end}{_block(path, values, '', end)}{end}"
            new = _inline(path[depth:], values) if node.flow_style else ""
            indent = "" if not node.value else " " * node.value[0][0].start_mark.column
            entry = new or _block(path[depth:], values, indent, end).lstrip()
            start, stop, put = _insertion(text, node, [entry], end, last)
            return text[:start] + put + text[stop:]
        section = sections[name]
        if not isinstance(section, yaml.MappingNode):
            place = section.end_mark.index
            inner = "  " * (depth + 1)
            lines = [_block(path[depth + 1 :], values, inner, end)] if depth + 1 < len(path) else [
                f"{inner}{key}: {value}" for key, value in values.items()
            ]  # fmt: skip
            return None if section.value else text[:place] + "".join(f"{end}{line}" for line in lines) + text[place:]
        node = section
    known = {key.value: value for key, value in node.value}
    edits = [(*_span(known[key]), value) for key, value in values.items() if key in known]
    new_entries = [f"{key}: {value}" for key, value in values.items() if key not in known]
    if new_entries:
        edits.append(_insertion(text, node, new_entries, end, last))
    for start, stop, put in sorted(edits, reverse=True):
        text = text[:start] + put + text[stop:]
    return text


def commented(text: str, comments: Mapping[str, str]) -> str:
    """`text` with a line of comment above the line of each key, given by its dotted name."""
    end = "\r\n" if "\r\n" in text else "\n"
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    places = {dotted: place for dotted in comments if (place := _place(root, dotted.split("."))) is not None}
    for dotted, place in sorted(places.items(), key=lambda entry: -entry[1]):
        start = text.rfind("\n", 0, place) + 1
        line = text[start:place]
        indent = line[: len(line) - len(line.lstrip())]
        comment = " ".join(comments[dotted].split())  # a tried value may hold line ends
        text = f"{text[:start]}{indent}# {comment}{end}{text[start:]}"
    return text


def without(text: str, name: str) -> str:
    """`text` without the lines of a section, its name and the comment right above it included."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    for key, value in root.value if isinstance(root, yaml.MappingNode) and not root.flow_style else ():
        if key.value == name:
            stop = text.find("\n", max(_last(value), key.end_mark.index))
            above = text[: key.start_mark.index].splitlines(keepends=True)
            while above and above[-1].startswith("#"):
                above.pop()
            return "".join(above) + ("" if stop < 0 else text[stop + 1 :])
    return text


def holds(text: str, dotted: str) -> bool:
    """Whether the text itself sets the key."""
    return _place(yaml.compose(text, Loader=yaml.SafeLoader), dotted.split(".")) is not None


def _place(node: yaml.Node | None, names: Sequence[str]) -> int | None:
    """Where a key begins."""
    for depth, name in enumerate(names):
        pairs = [pair for pair in node.value if pair[0].value == name] if isinstance(node, yaml.MappingNode) else []
        if not pairs:
            return None
        if depth == len(names) - 1:
            return int(pairs[0][0].start_mark.index)
        node = pairs[0][1]
    return None


def _last(node: yaml.Node) -> int:
    """Where a value ends; that of a block includes what follows it up to the next key."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    return _last(node.value[-1][1] if isinstance(node, yaml.MappingNode) else node.value[-1])


def _block(path: Sequence[str], values: Mapping[str, str], indent: str, end: str) -> str:
    """Nested lines."""
    lines = [f"{indent}{'  ' * depth}{name}:" for depth, name in enumerate(path)]
    lines += [f"{indent}{'  ' * len(path)}{key}: {value}" for key, value in values.items()]
    return end.join(lines)


def _inline(path: Sequence[str], values: Mapping[str, str]) -> str:
    text = ", ".join(f"{key}: {value}" for key, value in values.items())
    for name in reversed(path):
        text = f"{name}: {{{text}}}"
    return text


def _span(node: yaml.Node) -> tuple[int, int]:
    """Where the value stands; of a list of lines its items, which become one."""
    if isinstance(node, yaml.SequenceNode) and not node.flow_style and node.value:
        return node.value[0].start_mark.index, node.value[-1].end_mark.index
    return node.start_mark.index, node.end_mark.index


def _insertion(text: str, section: yaml.MappingNode, new: list[str], end: str, last: bool) -> tuple[int, int, str]:
    """The edit that adds the entries `new` at the beginning of the section, or at its end where it has braces."""
    if not section.value or section.flow_style:
        place = section.end_mark.index - 1
        return place, place, (", " if section.value else "") + ", ".join(new)
    first = section.value[0][0].start_mark
    indent = " " * first.column
    if not last:
        return first.index, first.index, "".join(f"{entry}{end}{indent}" for entry in new)
    stop = text.find("\n", max(_last(section), section.value[-1][0].end_mark.index))
    lines = "".join(f"{indent}{entry}{end}" for entry in new)
    return (len(text), len(text), f"{end}{lines}") if stop < 0 else (stop + 1, stop + 1, lines)


# What `nlpctl new` says of the rows in a recipe (datatools/recipe_defaults.py), which other files make untrue.
NO_DEV = later("there is no dev file: delete these three lines once there is one")
CANNOT_BE_USED = "{} cannot be used, such as {}: {}"
MORE_ROWS = "more than {:,} rows"
UPDATES, MORE_UPDATES = "{:,} updates per epoch", "more than {:,} updates per epoch"


def _said(*templates: str) -> str:
    """A pattern of what these templates may have said, in each language."""
    texts = [text for template in templates for text in (template, CHINESE[template])]
    parts = [re.split(r"({[^}]*})", text) for text in texts]  # every second one is a place
    places = {"{:,}": r"[\d,]+", "{}": r"[^\r\n]*"}
    return f"(?:{'|'.join(''.join(places.get(part) or re.escape(part) for part in each) for each in parts)})"


_ROWS = f"(?:1 row|{_said('{:,} rows', MORE_ROWS)})"
_UPDATES = re.compile(rf"^( *per_device_train_batch_size: (\d{{1,9}}) +# ){_said(UPDATES, MORE_UPDATES)}(?=\r?$)", re.M)
_BAD_ROWS = re.compile(rf"^( *on_bad_row: skip) +# {_said(CANNOT_BE_USED)}(?=\r?$)", re.M)
_WITHOUT_DEV = re.compile(
    rf"^ *evaluation_strategy: .*# {_said(NO_DEV)}\r?\n *save_strategy: ['\"]?no['\"]? *\r?\n"
    r" *load_best_model_at_end: false\r?(?:\n|\Z)",
    re.M,
)

_PASTE = "paste the lines that are printed without @[write=true]"
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
        raise UserError("@[write=true] changes a recipe file of your own only", where="@[write]", hint=hint)
    for key in _OTHER_SOURCES:
        if getattr(recipe.data, key) is not None:
            message = f"the recipe reads its rows by data.{key}, not from files"
            raise UserError(message, where=recipe.where(f"data.{key}"), hint=f"leave out @[write=true]; {_PASTE}")
    for part in SPLITS:
        if getattr(recipe.data.by_split, part) != SplitFilesSection():
            message = f"the new {part} file would be read by this, and is like the training files"
            hint = f"leave out @[write=true]; {_PASTE}, and set it anew"
            raise UserError(message, where=recipe.where(f"data.by_split.{part}"), hint=hint)


def write_files(recipe: Recipe, files: Mapping[str, Path], rows: Mapping[str, int]) -> bool:
    """Let data.train, dev, test of the recipe name `files`, which have so many `rows`.

    Comments of `new` that count rows count these, and with dev rows its lines that do without go, which is returned.
    All else stays as it is.

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
    counting = _with_counts(changed, rows)
    complete = _WITHOUT_DEV.sub("", counting) if "dev" in rows else counting
    if (yaml.safe_load(complete) or {}).get("training", {}) is None:  # a section of these three lines alone
        complete = counting
    write_text_atomic(path, complete)
    return complete != counting


def _with_counts(text: str, rows: Mapping[str, int]) -> str:
    """`text` of a recipe with new files, which have so many `rows`, none of them bad, in the comments of `new`, and in
    the language of these."""
    told = re.search(rf"^ *train: .*# ({_ROWS})\r?$|^ *# ({_ROWS})\r?\n *(?:train|dev|test): ", text, re.M)
    updates = _UPDATES.search(text)
    shown = (told[1] or told[2] if told else "") + (updates[0] if updates else "")
    with in_language("zh" if re.search("行|更新", shown) else "en"):
        for part, count in rows.items() if told else ():
            line = rf"^(?: *# {_ROWS}\r?\n)?( *{part}: [^#\r\n]*?) *(?:# {_ROWS})?(?=\r?$)"
            if found := re.search(line, text, re.M):
                text = text[: found.start()] + _behind(found[1], say_counted(count, "rows")) + text[found.end() :]
        text = _UPDATES.sub(lambda found: found[1] + say(UPDATES, -(-rows["train"] // int(found[2]))), text)
    return _BAD_ROWS.sub(r"\1", text)


def with_data(text: str, values: Mapping[str, str]) -> str | None:
    """`text` of a recipe with `values` in its section data; None if more than these values would change."""
    wanted = dict(yaml.safe_load(text) or {})
    if any((wanted.get("data") or {}).get(key) is not None for key in _OTHER_SOURCES):
        return None
    wanted["data"] = {**(wanted.get("data") or {}), **values}
    changed = edited(text, ("data",), {key: as_yaml(value) for key, value in values.items()})
    try:
        result = None if changed is None else yaml.safe_load(changed)
    except yaml.YAMLError:
        return None
    if not isinstance(result, dict) or not isinstance(result.get("data"), dict):
        return None
    # A list of files that had lines of its own stays a list, with the one new file.
    result["data"] |= {key: values[key] for key in values if result["data"].get(key) == [values[key]]}
    return changed if result == wanted else None


def _own_file(recipe: Recipe) -> Path | None:
    """The recipe's file; None if it is shipped, or that of a run or a model."""
    path = recipe.path
    if path is None or path.suffix not in (".yaml", ".yml") or path.with_name(MANIFEST).exists():
        return None
    shipped = (shipped_root() / name for name in ("recipes", "configs"))
    return None if any(path.resolve().is_relative_to(folder.resolve()) for folder in shipped) else path
