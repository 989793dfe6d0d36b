"""YAML read so that every value knows the file and line it came from, and its text as written.

PyYAML's usual route throws both away, and reads `5e-5` as a string and `no` as false on the way.
Here scalars stay text; config/coerce.py turns them into values by their declared type.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from nlpctl.config.schema import Origin, Recipe
from nlpctl.console import display
from nlpctl.errors import NeedsRestart, Problem, UserError
from nlpctl.names import full_width_signs

PICKLED = b"\x80"  # how weights files of Paddle begin; no text in UTF-8 does
MAX_BYTES = 1_000_000  # a recipe is a page of text; a data file given by mistake is not
MAX_NODES = 20_000  # a handful of nested aliases can unfold into millions of values

MAX_DEPTH = 30  # a recipe needs four

_TAGS = {
    f"tag:yaml.org,2002:{name}"
    for name in ("str", "int", "float", "bool", "null", "timestamp", "map", "seq", "value", "merge")
}
_NULLS = {"", "~", "null", "Null", "NULL"}


@dataclass(frozen=True)
class ScalarNode:
    """A scalar as written. `plain`: not quoted, so that `null` means null and `no` may mean false."""

    text: str
    plain: bool
    origin: Origin
    folder: Path  # what relative paths in this value are relative to

    @property
    def is_null(self) -> bool:
        return self.plain and self.text in _NULLS


@dataclass(frozen=True)
class ListNode:
    items: tuple[Node, ...]
    origin: Origin
    folder: Path


@dataclass(frozen=True)
class TableNode:
    entries: dict[str, Node]
    origin: Origin
    folder: Path


Node = ScalarNode | ListNode | TableNode


def merge(below: TableNode, above: TableNode) -> TableNode:
    """`above` laid over `below`: tables merge key by key, everything else replaces."""
    entries = dict(below.entries)
    for name, node in above.entries.items():
        old = entries.get(name)
        entries[name] = merge(old, node) if isinstance(old, TableNode) and isinstance(node, TableNode) else node
    return TableNode(entries, above.origin, above.folder)


def read_yaml(path: Path, problems: list[Problem], opened: Path | None = None) -> TableNode:
    """The mapping in the file `path`. Duplicate keys and the like are added to `problems`. `opened`: see Origin.

    Raises UserError when the file cannot be read as a YAML mapping at all.
    """
    name = display(path)
    text = _read_text(path, name)
    node = parse_yaml(text, name, Path(os.path.abspath(path)).parent, problems, opened)
    if node is None:
        raise UserError("the recipe is empty", where=name, hint="write at least: task: sequence_classification")
    if not isinstance(node, TableNode):
        hint = "write lines such as `task: sequence_classification`"
        hint += full_width_signs(node.text) if isinstance(node, ScalarNode) else ""
        raise UserError("a recipe is a mapping of keys to values", where=f"{name}:1", hint=hint)
    return node


def parse_yaml(
    text: str, name: str, folder: Path, problems: list[Problem], opened: Path | None = None
) -> Node | None:
    """`text` as a node, None when there is nothing in it. `name` is what origins and messages show."""
    try:
        root = yaml.compose(text, Loader=_Loader)
        return None if root is None else _Builder(name, folder, problems, opened).build(root, root.start_mark.line + 1)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, name, text) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UserError(
            f"the character U+{error.character:04X} may not appear in YAML",
            where=f"{name}:{line}",
            hint="delete it; is this a text file?",
        ) from error


def _read_text(path: Path, name: str) -> str:
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise UserError(
                f"{size:,} bytes are too many for a recipe",
                where=name,
                hint="is this a data file? name it under data.train in a recipe",
            )
        raw = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"cannot be read: {error.strerror}", where=name, hint="check the path and its permissions"
        ) from error
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise UserError("this file is UTF-16", where=name, hint="save it as UTF-8")
    if raw.count(b"\0") > 3 or raw.startswith(PICKLED):
        raise UserError("this is not a text file", where=name, hint="give a recipe, which is YAML")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"not UTF-8 (byte 0x{raw[error.start]:02x})", where=f"{name}:{line}", hint="save the file as UTF-8"
        ) from error


def _syntax_error(error: yaml.MarkedYAMLError, name: str, source: str) -> UserError:
    mark = error.problem_mark or error.context_mark
    where = name if mark is None else f"{name}:{mark.line + 1}"
    text = error.problem or error.context or "cannot be parsed"
    if "'\\t'" in text:
        if mark is not None and source[: mark.index].rpartition("\n")[2].strip():
            return UserError("a tab before a # is no space for YAML", where=where, hint="put a space before the #")
        return UserError("a tab cannot indent YAML", where=where, hint="indent with spaces")
    hint = _syntax_hint(text)
    if mark is not None:
        first = (error.context_mark or mark).line
        hint += full_width_signs("".join(source.splitlines()[first : mark.line + 1]))
    return UserError(f"not valid YAML: {text}{_context(error)}", where=where, hint=hint)


def _context(error: yaml.MarkedYAMLError) -> str:
    return f" ({error.context})" if error.context and error.problem else ""


def _syntax_hint(text: str) -> str:
    if text == "mapping values are not allowed here":
        return "check the indentation, and quote a value that contains ': '"
    if text.startswith("but found another document"):
        return "a recipe file holds one document: delete the `---` line"
    if "'{'" in text:
        return "quote a ${...} that stands inside { } or [ ]"
    return "check indentation, quotes and brackets on this line and the one before"


class _Loader(yaml.SafeLoader):
    """Composes nodes to a limited depth: PyYAML recurses, and a deep file would exhaust the stack."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: object) -> yaml.Node | None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise yaml.composer.ComposerError(None, None, "nested too deeply", self.peek_event().start_mark)
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


class _Builder:
    """PyYAML's nodes -> ours, one file."""

    def __init__(self, name: str, folder: Path, problems: list[Problem], opened: Path | None):
        self.name, self.folder, self.problems, self.opened = name, folder, problems, opened
        self.open: set[int] = set()  # nodes being built, to notice an alias inside its own anchor
        self.count = 0

    def build(self, node: yaml.Node, line: int) -> Node:
        self.count += 1
        if self.count > MAX_NODES:
            raise UserError(
                f"more than {MAX_NODES:,} values", where=self.name, hint="remove the nested aliases (`*name`)"
            )
        origin = Origin(self.name, line, self.opened)
        if id(node) in self.open:
            raise UserError("an alias stands inside its own anchor", where=str(origin), hint="write the value out")
        if node.tag not in _TAGS:
            self._problem(line, f"the tag {node.tag} is not allowed in a recipe", "delete the tag")
        if isinstance(node, yaml.ScalarNode):
            if "\0" in node.value:
                self._problem(line, "a value holds the character NUL, which no name can have", "delete it")
            return ScalarNode(node.value, node.style is None, origin, self.folder)
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                items = tuple(self.build(item, item.start_mark.line + 1) for item in node.value)
                return ListNode(items, origin, self.folder)
            return self._table(node, origin)
        finally:
            self.open.discard(id(node))

    def _table(self, node: yaml.MappingNode, origin: Origin) -> TableNode:
        entries: dict[str, Node] = {}
        merged: list[Node] = []
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self._problem(line, "a key must be a word", "put quotes around a value that starts with { or [")
                continue
            name = key_node.value
            value = self.build(value_node, line)
            if key_node.tag == "tag:yaml.org,2002:merge":
                merged += value.items if isinstance(value, ListNode) else (value,)
            elif name in entries:
                self._problem(
                    line,
                    f"the key {name} appears twice (first on line {entries[name].origin.line})",
                    "keep one of them",
                )
            else:
                entries[name] = value
        table = TableNode(entries, origin, self.folder)
        for below in merged:
            if isinstance(below, TableNode):
                table = merge(below, table)
            else:
                self._problem(origin.line, "`<<` needs a mapping", "use `extends` to build on another file")
        return table

    def _problem(self, line: int | None, message: str, hint: str) -> None:
        self.problems.append(Problem(message, where=f"{self.name}:{line}", hint=hint))


# -- messages about a key say where the key was set ------------------------------------------------


@contextlib.contextmanager
def located(recipe: Recipe) -> Iterator[None]:
    """A UserError of the body that blames a key of `recipe` names the file and line, or the flag, that set it.

    The modules that do the work are given sections of a recipe and know only the keys.
    """
    try:
        yield
    except NeedsRestart:  # blames no key
        raise
    except UserError as error:
        problems = [dataclasses.replace(problem, where=recipe.where(problem.where)) for problem in error.problems]
        raise UserError(problems=problems) from error


# --------------------------------------------------------------------------------------------------
# What loading a recipe has noted so far. All problems are collected first and reported together.
#
# The later checks of values yield a `Finding` each (schema.py).


class Mismatch(Exception):
    """A text that is not of the declared type; the message says what was expected."""


@dataclass
class LoadLog:
    """The problems, the keys that no check should build on, where each value came from, and the files read."""

    problems: list[Problem] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    origins: dict[str, Origin] = field(default_factory=dict)
    trees: dict[tuple[Path, Path | None], TableNode] = field(default_factory=dict)
    referenced: set[str] = field(default_factory=set)  # the keys that others name as ${section.key}

    def report(self, dotted: str, origin: Origin, message: str, hint: str) -> None:
        """Note that the value of `dotted` is wrong."""
        self.broken.add(dotted)
        problem = Problem(f"{dotted}: {message}", where=str(origin), hint=hint)
        if problem not in self.problems:
            self.problems.append(problem)
