"""The network families of PaddleNLP: which class a config asks for."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nlpctl.errors import UserError
from nlpctl.names import nearest

_TASK_CLASS = "ForSequenceClassification"


@dataclass(frozen=True)
class Family:
    """One family, such as Ernie: its classification class and everything that hangs on it."""

    name: str  # PaddleNLP's class prefix: "Ernie"
    model_type: str  # its module, and model_type in config.json: "ernie"
    network_class: type  # ErnieForSequenceClassification

    @property
    def prefix(self) -> str:
        """What the encoder's parameter names start with, without the dot."""
        return self.network_class.base_model_prefix

    @property
    def config_class(self) -> type:
        return self.network_class.config_class

    @property
    def hub_configs(self) -> Mapping[str, Any]:
        """The built-in models of the family: hub name to config."""
        return self.network_class.pretrained_init_configuration


def family_by_type(model_type: str, where: str) -> Family:
    """The family of a `model_type`. Raises UserError when PaddleNLP cannot classify with it."""
    by_type = {module: name for name, module in _names().items()}
    normal = model_type.lower().replace("-", "_")
    if normal not in by_type:
        near = nearest(normal, by_type)
        hint = f"did you mean {near}?" if near else "tested families: bert, ernie, roberta, electra"
        raise UserError(f"PaddleNLP has no network family {model_type!r}", where=where, hint=hint)
    return _family(by_type[normal], where)


def family_of_config(config: Mapping[str, Any], where: str) -> Family:
    """The family that a config.json asks for: by model_type, in old folders by the class it names."""
    if isinstance(config.get("model_type"), str):
        return family_by_type(config["model_type"], where)
    for class_name in (*(config.get("architectures") or ()), config.get("init_class")):
        matches = [name for name in _names() if isinstance(class_name, str) and class_name.startswith(name)]
        if matches:
            return _family(max(matches, key=len), where)
    raise UserError(
        "names no network: model_type, architectures and init_class are all missing or unknown",
        where=where,
        hint='add "model_type", such as "model_type": "bert"',
    )


def family_of_hub_name(name: str) -> Family | None:
    """The family that knows `name` as a built-in model; None when no family does."""
    return next((family for family in _all_families() if name in family.hub_configs), None)


def known_hub_names() -> list[str]:
    """Every built-in model name that has a classification network."""
    return sorted({name for family in _all_families() for name in family.hub_configs})


def _names() -> dict[str, str]:
    """Class prefix to module, for example Ernie: ernie."""
    from paddlenlp.transformers.auto.modeling import MAPPING_NAMES

    return dict(MAPPING_NAMES)


def _all_families() -> Iterator[Family]:
    for name in _names():
        try:
            yield _family(name, "")
        except UserError:  # families that generate or see cannot classify text
            continue


def _family(name: str, where: str) -> Family:
    module_name = _names()[name]
    module = importlib.import_module(f"paddlenlp.transformers.{module_name}.modeling")
    class_name = name + _TASK_CLASS
    if class_name not in vars(module):
        raise UserError(
            f"PaddleNLP has no {class_name}: a {name} network cannot classify sequences",
            where=where,
            hint="take an encoder such as ernie-3.0-medium-zh, bert-base-chinese or a RoBERTa or ELECTRA model",
        )
    return Family(name, module_name, vars(module)[class_name])
