"""`${env:NAME}` and `${section.key}` inside recipe values; `$${` stands for a literal `${`."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from pathlib import Path
from typing import Any, NoReturn

from nlpctl.config.keys import all_keys, nearest_key
from nlpctl.config.positions import ListNode, LoadLog, Node, ScalarNode, TableNode
from nlpctl.config.sources import own_recipe_instead

_PATTERN = re.compile(r"\$\$\{|\$\{([^{}]*)\}|\$\{")


def interpolate(tree: TableNode, log: LoadLog) -> TableNode:
    """`tree` with every reference replaced; unknown names and cycles are added to `log`."""
    return _Interpolator(tree, log).table(tree, "")


def escape(text: str) -> str:
    """`text` written so that reading it back yields `text`."""
    return text.replace("${", "$${")


class _Unresolved(Exception):
    """A reference could not be replaced; the problem is already noted."""


class _Interpolator:
    """Replaces the references in one tree. They are resolved in the tree as it was, so that their order is of no
    importance; `open` are the keys on the way, to notice a circle."""

    def __init__(self, tree: TableNode, log: LoadLog):
        self.tree, self.log = tree, log
        self.cycles: set[frozenset[str]] = set()  # those reported

    def table(self, table: TableNode, prefix: str) -> TableNode:
        """`table` resolved; an entry that cannot be is left out, so that only its reference is reported."""
        entries: dict[str, Node] = {}
        for name, node in table.entries.items():
            with contextlib.suppress(_Unresolved):
                entries[name] = self.node(node, f"{prefix}{name}", ())
        return dataclasses.replace(table, entries=entries)

    def node(self, node: Node, dotted: str, open: tuple[str, ...]) -> Node:
        """`node`, the value of `dotted`, resolved; `open` are the keys whose references led here."""
        if isinstance(node, TableNode):
            return self.table(node, f"{dotted}.")
        if isinstance(node, ListNode):
            return dataclasses.replace(node, items=tuple(self.node(item, dotted, open) for item in node.items))
        return self._scalar(node, dotted, (*open, dotted)) if "${" in node.text else node

    def _scalar(self, node: ScalarNode, dotted: str, open: tuple[str, ...]) -> Node:
        whole = _PATTERN.fullmatch(node.text)
        if whole and whole[1] is not None and not whole[1].startswith("env:"):
            # A reference that is the whole value keeps its type; inside a text it becomes text.
            value = self._reference(whole[1].strip(), node, dotted, open)
            return dataclasses.replace(value, origin=node.origin)

        def replaced(match: re.Match[str]) -> str:
            if match[0] == "$${":
                return "${"
            if match[1] is None:
                hint = "write ${section.key}, ${env:NAME}, or $${ for the characters themselves"
                self._fail(node, dotted, "`${` is not closed", hint)
            name = match[1].strip()
            if name.startswith("env:"):
                return self._variable(name.removeprefix("env:"), node, dotted)
            value = self._reference(name, node, dotted, open)
            if not isinstance(value, ScalarNode) or value.is_null:
                self._fail(node, dotted, f"${{{name}}} has no single value to put into a text", "write the value out")
            return value.text

        # A path in a variable was written in the shell, so it starts where the shell is.
        folder = Path.cwd() if node.text.startswith("${env:") else node.folder
        return dataclasses.replace(node, text=_PATTERN.sub(replaced, node.text), folder=folder)

    def _variable(self, name: str, node: ScalarNode, dotted: str) -> str:
        if node.origin.opened is not None:  # what nlpctl writes there is resolved; a stranger would learn of secrets
            hint = f"write the value out; {own_recipe_instead(node.origin.opened)}"
            self._fail(node, dotted, "the recipe of a run reads no environment variables", hint)
        value = os.environ.get(name, "")
        if not value:
            state = "empty" if name in os.environ else "not set"
            variable = name or "NAME"
            self._fail(node, dotted, f"the environment variable {variable} is {state}", f"export {variable}=...")
        return value

    def _reference(self, name: str, node: ScalarNode, dotted: str, open: tuple[str, ...]) -> Node:
        if name in open:
            cycle = open[open.index(name) :]
            # Every key of a cycle leads into it; it is reported once.
            if frozenset(cycle) in self.cycles:
                raise _Unresolved
            self.cycles.add(frozenset(cycle))
            chain = " -> ".join((*cycle, name))
            self._fail(node, dotted, f"the reference is circular: {chain}", "write one of the values out")
        self.log.referenced.add(name)
        target = self._lookup(name)
        if isinstance(target, TableNode):
            self._fail(node, dotted, f"${{{name}}} is a section, not a value", "name a key inside it")
        if target is not None:
            return self.node(target, name, open)
        key = all_keys().get(name)
        if key is None or key.section or key.free or key.axes:
            near = nearest_key(name)
            hint = f"did you mean ${{{near}}}?" if near else "write ${section.key}"
            self._fail(node, dotted, f"${{{name}}} names no value", hint)
        return self._default(key.default, node)

    def _default(self, default: Any, node: ScalarNode) -> Node:
        if default is None:
            return ScalarNode("null", True, node.origin, node.folder)
        if isinstance(default, tuple):
            items = tuple(ScalarNode(str(each), False, node.origin, node.folder) for each in default)
            return ListNode(items, node.origin, node.folder)
        return ScalarNode(str(default), False, node.origin, node.folder)

    def _lookup(self, name: str) -> Node | None:
        node: Node = self.tree
        for part in name.split("."):
            if not isinstance(node, TableNode) or part not in node.entries:
                return None
            node = node.entries[part]
        return node

    def _fail(self, node: ScalarNode, dotted: str, message: str, hint: str) -> NoReturn:
        self.log.report(dotted, node.origin, message, hint)
        raise _Unresolved
