"""Networks of a class of the user's own, which model.network names as module:Class.

config.json of a model folder names the class and holds the checksum of its source, never the source. The class is
imported only where the user names it too, on the command line or in a recipe of her own (config/user_code.py): whoever
opens a stranger's folder runs no code that the folder names.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.checksums import sha256_of
from nlpctl.config.user_code import import_code, kind_of_code, module_file, refuse_unnamed
from nlpctl.errors import UserError

KEY = "own_network"  # in config.json: {"class": module:Class, "sha256": of the module's source}
KIND = kind_of_code("model.network")


def check_named(config: Mapping[str, Any], named: str | None, folder: Path) -> None:
    """UserError if the network in `folder` is of another class than the recipe names, or only a folder names it.

    A source that changed since the training is told.
    """
    value = config.get(KEY)
    stored = value.get("class") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or stored is None:
        return
    if named != stored:
        message = f"this network is of a class of its own, {stored}" + (f", not {named}" if named else "")
        hint = f"name it, if you trust its code: @[model.network={stored}]"
        raise UserError(message, where=str(folder), hint=hint)
    refuse_unnamed(named, KIND.key)
    file = module_file(stored)
    if file is None:
        import_code(KIND, stored)  # tells what is missing
        return
    console.note(f"{KIND.key}: {stored} ({file})")
    if value.get("sha256") != sha256_of(file):
        console.warn(f"{KIND.key}: {file} changed since the network was trained")


def user_class(name: str, family: Any) -> type:
    """The class to build: the user's own where it is one of PaddleNLP's, else one around it.

    `family`: of the encoder. UserError: it cannot be imported, is no class of layers, or is of another family.
    """
    import paddle
    from paddlenlp.transformers import PretrainedModel

    network_class: Any = import_code(KIND, name)
    is_class = isinstance(network_class, type)
    if not (is_class and issubclass(network_class, paddle.nn.Layer)):
        raise UserError(f"{name} is not a class of paddle.nn.Layer", KIND.key, "name the class of the network")
    if not issubclass(network_class, PretrainedModel):
        return _around(network_class, family.config_class)
    if network_class.base_model_prefix != family.prefix:
        prefix = network_class.base_model_prefix
        message = f"{name} is built on {prefix!r}, but the model is of the family {family.name}"
        hint = f"derive it from a class of {family.name}, or name a model of its own family"
        raise UserError(message, KIND.key, hint)
    return network_class


def starts_from_weights(network_class: type) -> bool:
    """Whether the weights of an encoder fit into it: not where a class had to be made around the user's."""
    return not getattr(network_class, "made_around", False)


def stamp(config: Any, name: str) -> None:
    """Write into a network's config which class it is of."""
    file = module_file(name)
    setattr(config, KEY, {"class": name, "sha256": None if file is None else sha256_of(file)})


def user_layer(network: Any) -> Any:
    """The layer whose forward is the user's; the network itself where no class was made around one."""
    return network if starts_from_weights(type(network)) else network.network


def is_user_network(network: Any) -> bool:
    """Whether a network is of a class of the user's own."""
    return KEY in vars(network.config)


@functools.cache
def _around(layer_class: type, config_class: type) -> type:
    """A class of PaddleNLP's around a plain layer: what saves and loads its config."""
    from nlpctl.models.networks.common import NetworkModel

    class Around(NetworkModel):
        made_around = True
        base_model_prefix = "network"

        def __init__(self, config: Any):
            super().__init__(config)
            self.network = layer_class(config)

        def forward(self, *inputs: Any, **named: Any) -> Any:
            return self.network(*inputs, **named)

    Around.config_class = config_class
    Around.__name__ = Around.__qualname__ = layer_class.__name__
    return Around
