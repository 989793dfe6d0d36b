"""A Recipe -> the YAML that gives it back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import yaml

from nlpctl.config.coerce import Mismatch, resolve_scalar
from nlpctl.config.interpolate import escape
from nlpctl.config.keys import SECTIONS, keys_of, use_of
from nlpctl.config.positions import ScalarNode
from nlpctl.config.refused_keys import MANAGED
from nlpctl.config.schema import Origin, Recipe
from nlpctl.config.tasks import find_task
from nlpctl.names import differing

HEADER = """\
# The resolved recipe of a run: every value that differs from its default, with absolute paths.
# `nlpctl train` with this file repeats the run.
"""


def dump_recipe(recipe: Recipe) -> str:
    """The YAML of `recipe`; loading it gives an equal Recipe, but for runtime.trust_edits.

    That was for another model than the one that the recipe will stand for.
    """
    recipe = dataclasses.replace(recipe, runtime=dataclasses.replace(recipe.runtime, trust_edits=False))
    return HEADER + to_yaml(recipe_values(recipe, everything=False))


def recipe_values(recipe: Recipe, *, everything: bool) -> dict[str, Any]:
    """The recipe as nested plain values: all of them, or those that differ from their default.

    Also those whose default is what a model's folder says (config/sentence_folder.py), which may say something else.
    """
    values: dict[str, Any] = {"task": recipe.task}
    info = find_task(recipe.task)
    of_folder = info is not None and info.vectors and recipe.model.name_or_path is not None
    pooling_of_folder = recipe.few_shot.method == "contrastive" and recipe.model.name_or_path is not None
    for name, section in SECTIONS.items():
        content = _section(section, name, vars(recipe)[name], everything or (of_folder and name == "retrieval"))
        if of_folder and name == "data":
            content["max_seq_length"] = recipe.data.max_seq_length
        if pooling_of_folder and name == "few_shot":
            content["pooling"] = recipe.few_shot.pooling
        if content:
            values[name] = content
    return values


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values by their dotted names, those in mappings with free names too (model.config.hidden_dropout_prob).

    An empty mapping gives nothing.
    """
    by_name: dict[str, Any] = {}
    for name, value in values.items():
        by_name |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return by_name


def forbidden_changes(before: Recipe, after: Recipe, event: Literal["resume", "continue"]) -> list[str]:
    """The keys whose values differ and may not change on `event` (KeyUse.may_change), in alphabetical order."""
    began, now = (flat(recipe_values(recipe, everything=True)) for recipe in (before, after))
    return [name for name in differing(began, now) if not use_of(name).may_change_on(event)]


def to_yaml(values: Any) -> str:
    """`values` as YAML that the loader reads back as they are."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=4096)


def _section(section: type, prefix: str, value: Any, everything: bool) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for key in keys_of(section, prefix).values():
        part = vars(value)[key.name]
        if key.section and part is not None:
            inner = _section(key.section, key.dotted, part, everything)
            # A section that is absent by default must be named even when all inside it is default.
            if inner or key.optional:
                content[key.name] = inner
        elif part != key.default or (everything and key.dotted not in MANAGED):
            content[key.name] = _plain(part)
    return content


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value):  # an entry of a list: what differs from its defaults
        written = [field for field in dataclasses.fields(value) if field.metadata.get("written", True)]
        given = {field.name: vars(value)[field.name] for field in written if not _is_default(field, value)}
        return {name: _plain(each) for name, each in given.items()}
    return {name: _plain(each) for name, each in value.items()} if isinstance(value, Mapping) else value


def _is_default(field: dataclasses.Field, value: Any) -> bool:
    factory = field.default_factory
    return vars(value)[field.name] == (field.default if factory is dataclasses.MISSING else factory())


class _Dumper(yaml.SafeDumper):
    """Block style for mappings, flow style for lists, quotes wherever our reader needs them."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.Node:
    plain = ScalarNode(text, True, Origin(""), None)  # type: ignore[arg-type]
    try:
        style = None if resolve_scalar(plain) == text else "'"
    except Mismatch:  # a whole number that is too large to be one
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", escape(text), style=style)


def _represent_list(dumper: _Dumper, items: list[Any]) -> yaml.Node:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=True)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_multi_representer(str, _represent_text)  # of a subclass
_Dumper.add_representer(list, _represent_list)
_Dumper.add_representer(dict, lambda dumper, value: dumper.represent_dict(value.items()))
