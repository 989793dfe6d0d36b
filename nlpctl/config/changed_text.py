"""Values of a recipe changed in its text; comments and layout stay. Callers check that the text says what it should."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import yaml


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
        told = " ".join(comments[dotted].split())  # a tried value may hold line ends
        text = f"{text[:start]}{indent}# {told}{end}{text[start:]}"
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
        found = [pair for pair in node.value if pair[0].value == name] if isinstance(node, yaml.MappingNode) else []
        if not found:
            return None
        if depth == len(names) - 1:
            return int(found[0][0].start_mark.index)
        node = found[0][1]
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
