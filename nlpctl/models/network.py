"""Builds a network from a config with overrides and labels; refuses invalid settings."""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nlpctl.config.saved_model import first_position
from nlpctl.config.user_code import describe_error
from nlpctl.errors import Problem, UserError
from nlpctl.models.families import ENCODERS, SHARED_LAYERS, Family, Head
from nlpctl.models.huggingface_layout import ACTIVATIONS, AS_TRANSFORMERS, OTHER_MODEL, TANH_GELU
from nlpctl.models.pruned import KEY, read_shape, shrink
from nlpctl.models.simulated_int8 import KEY as SIMULATED_KEY
from nlpctl.models.simulated_int8 import read_simulation, simulate
from nlpctl.models.user_network import KEY as USER_KEY
from nlpctl.models.user_network import KIND as USER_NETWORK
from nlpctl.models.user_network import stamp
from nlpctl.names import nearest
from nlpctl.runtime.machine import memory_sizes
from nlpctl.upstream.counted_parameters import counted_parameters
from nlpctl.upstream.parameter_names import fresh_parameter_names
from nlpctl.upstream.plain_outputs import OUTPUT_KEYS, with_plain_outputs
from nlpctl.upstream.unread_config import heed_config

# Set by nlpctl from the labels, the weights, what compression did and how it calls networks; an override would
# contradict them.
_NOT_OVERRIDABLE = ("num_labels", "num_classes", "id2label", "label2id", "architectures", "model_type", "dtype", KEY,
                    SIMULATED_KEY, USER_KEY, *OUTPUT_KEYS)  # fmt: skip

_SIZES = ("hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size", "max_position_embeddings")
_ALWAYS_BUILT = 64_000_000  # weights of a network that is built whatever file it came with
_MOST_PRUNED = 16  # weights per byte of a file: of 64 weights one is left
_MOST_LAYERS = 10_000
_LARGEST_EPSILON = 1e-3
_COPY_CONFIG = "copy config.json again from where the model came from"
LEAST_LAYER = 2_500  # numbers: the objects of the narrowest layer take some 10 kB

# By PaddleNLP's class: keys of its config that its layers do not read. tests/models/test_load.py looks into their code.
_UNREAD: Mapping[str, tuple[str, ...]] = {
    "Ernie": ("pool_act", "fuse", "layer_norm_eps"),
    "DistilBert": ("pool_act", "fuse", "layer_norm_eps"),
    "TinyBert": ("pool_act",),
    **dict.fromkeys(
        ("Albert", "BigBird", "ErnieGram", "FNet", "Funnel", "MegatronBert", "Nystromformer", "RemBert", "RoFormerv2",
         "SqueezeBert", "XLNet", "XLM"),
        ("classifier_dropout",),
    ),
}  # fmt: skip


def make_config(
    family: Family, values: Mapping[str, Any], labels: Sequence[str], overrides: Mapping[str, Any],
    user_class: bool = False,
) -> Any:
    """PaddleNLP's config object for a network over `labels`, of which there may be none.

    `user_class`: for a class of the user's, which may have keys of its own. Raises UserError for override keys that
    change nothing in a network of `family`.
    """
    try:
        # Without its label entries: if they disagree, PaddleNLP warns and uses the first that it finds.
        left_out = ("num_labels", "num_classes", "id2label", "label2id", "torch_dtype", "dtype")
        config = family.config_class.from_dict({key: value for key, value in values.items() if key not in left_out})
    except UserError:
        raise
    except Exception as error:  # it takes any values, and fails on some
        reason = (str(error).splitlines() or [""])[0][:200]
        message = f"the config describes no {family.name} network ({type(error).__name__}: {reason})"
        raise UserError(message, "config.json", _COPY_CONFIG) from error
    _check_overrides(family, config, overrides, user_class)
    for key, value in overrides.items():
        setattr(config, key, value)
    if labels:
        # Sets num_labels too: it is derived from id2label in PaddleNLP's config.
        config.id2label = dict(enumerate(labels))
        config.label2id = {label: index for index, label in enumerate(labels)}
    config.dtype = "float32"  # half-precision files are widened; autocast is the Trainer's business
    return with_plain_outputs(config)


def build_network(family: Family, head: Head, config: Any, where: str) -> Any:
    """A network with new weights, drawn from Paddle's global generator: seed it before.

    Where the config is of a pruned network, so is the result (models/pruned.py), and where it is of one that
    simulates int8 (models/simulated_int8.py).
    Raises UserError when the config describes no network (heads that do not divide the width, ...).
    """
    if head.user_class is None:
        _refuse_too_large(config, where)
        _check_numbers(config, where)
    activation = config.hidden_act if "hidden_act" in vars(config) else "gelu"
    # Paddle looks the activation up by getattr, deep inside a layer: what is there computes all kinds of things.
    known = (*ACTIVATIONS, *(TANH_GELU if family.name in ENCODERS else ()))
    if activation not in known:
        message = f"hidden_act is {activation!r}: {family.name} networks here compute {', '.join(known)} only"
        raise UserError(message, where, OTHER_MODEL)
    if head.user_class is not None:
        return _build_user_network(family.network_class(head, where), head.user_class, config)
    try:
        # Optimizer states are keyed by parameter names, so these must not depend on networks built earlier in the
        # process.
        with fresh_parameter_names():
            return build_layers(family, head, config, where)
    except UserError:
        raise
    except Exception as error:  # Paddle's layers assert, raise ValueError or TypeError
        reason = (str(error).splitlines() or [""])[0][:200]
        raise UserError(
            f"the config describes no {family.name} network ({type(error).__name__}: {reason})",
            where=where,
            hint="check its sizes: hidden_size, num_attention_heads, num_hidden_layers, vocab_size, ...",
        ) from error


def build_layers(family: Family, head: Head, config: Any, where: str) -> Any:
    """The layers of `build_network`, for a part of a network: their parameters are named on from those before."""
    network = family.network_class(head, where)(config)
    heed_config(network, config, AS_TRANSFORMERS in vars(config))
    shape, simulation = read_shape(vars(config), where), read_simulation(vars(config), where)
    # Pruning first: it makes new, plain linear layers, so it would undo the simulation.
    if shape is not None:
        shrink(network, shape, where)
    if simulation is not None:
        simulate(network, simulation, where)
    return network


def _refuse_too_large(config: Any, where: str) -> None:
    """UserError if the memory of this machine is too small for the weights alone."""
    numbers, sizes = _fewest_numbers(vars(config), config.model_type), memory_sizes()
    if sizes is not None and 4 * numbers > sizes["MemTotal"]:
        message = f"this network has some {numbers:,} weights, {4 * numbers / 1e9:,.0f} GB"
        hint = f"this machine has {sizes['MemTotal'] / 1e9:,.0f} GB: make {', '.join(_SIZES[:-1])} smaller"
        raise UserError(message, where=where, hint=hint)


@contextlib.contextmanager
def like_file(config: Any, size: int, where: str, projected: int = 0) -> Iterator[None]:
    """Build a network inside this. UserError if it is so large that its weights cannot be those of a file of `size`
    bytes, however it was pruned: a config of a few lines can claim all the memory there is. `projected`: the outputs of
    a linear layer over its states.

    Many layers are refused before any is built, and every parameter before its memory is taken, whatever key of the
    config it comes from.
    """
    most, width = _ALWAYS_BUILT + _MOST_PRUNED * size, max(1, _size(vars(config), "hidden_size"))

    def refuse_above(least: int) -> None:
        if least > most:
            message = f"the config describes a network of at least {least:,} weights, and its file has {size:,} bytes"
            raise UserError(message, where, "config.json and weights belong to different models: copy both again")

    refuse_above(_fewest_numbers(vars(config), config.model_type) + projected * width)
    with counted_parameters(refuse_above):
        yield


def _fewest_numbers(config: Mapping[str, Any], model_type: Any) -> int:
    """How many weights a network has, by the sizes that most configs have; an estimate that is never too high."""
    members = config.get("members")
    if isinstance(members, list):  # of an ensemble
        return sum(_fewest_numbers(each, each.get("model_type")) for each in members if isinstance(each, Mapping))
    width, layers, inner, words, positions = (_size(config, name) for name in _SIZES)
    if model_type in SHARED_LAYERS:  # the weights are those of these
        layers = _size(config, "num_hidden_groups") * _size(config, "inner_group_num")
    layer = max(4 * width * width + 2 * width * inner, LEAST_LAYER)
    return layers * layer + words * (_size(config, "embedding_size") or width) + positions * width


def _size(config: Mapping[str, Any], name: str) -> int:
    """A whole number above 0 in a config; 0 if it has none, or something else there."""
    value = config.get(name)
    return value if type(value) is int and value > 0 else 0


def _build_user_network(network_class: Any, name: str, config: Any) -> Any:
    """A network of the user's own class. UserError if it cannot be made."""
    stamp(config, name)
    try:
        with fresh_parameter_names():
            network = network_class(config)
    except Exception as error:
        hint = "fix it; its argument is the network's config, with num_labels, vocab_size and the keys of model.config"
        raise UserError(f"{name} cannot be made: {describe_error(error, __file__)}", USER_NETWORK.key, hint) from None
    encoder = getattr(network, network.base_model_prefix, None)
    if encoder is not None:  # the other layers are the user's
        heed_config(encoder, config, AS_TRANSFORMERS in vars(config))
    return network


def max_positions(network: Any) -> int | None:
    """The maximum sequence length in tokens; None for relative positions."""
    rows = vars(network.config).get("max_position_embeddings")
    if rows is None or rows <= 0:
        return None
    first = getattr(network.base_model, "first_position", None)  # a network of nlpctl may say so
    if first is None:
        first = first_position({"model_type": network.config.model_type}, network.config.pad_token_id)
    return rows - first


def _is_no_share(key: str, value: Any) -> bool:
    """Whether a config has no probability where one belongs."""
    if not key.endswith(("_prob", "dropout")) or value is None:
        return False
    return not (isinstance(value, int | float) and 0 <= value <= 1)


def _check_numbers(config: Any, where: str) -> None:
    """UserError for a dropout that is no probability and the like: Paddle's layers say so at the first batch only."""
    defaults, problems = _defaults(config), []
    for key, value in vars(config).items():
        # An id that a tokenizer lacks may be null.
        is_number = type(defaults.get(key)) in (int, float) and not key.endswith("_token_id")
        if _is_no_share(key, value):
            hint = "correct it in config.json: a number from 0 to 1"
            problems.append(Problem(f"{key} {value!r} is not a probability", where, hint))
        elif is_number and type(value) not in (int, float):
            message = f"{key} is {json.dumps(value, default=str)[:40]}, and must be a number"
            problems.append(Problem(message, where, _COPY_CONFIG))
        elif is_number and defaults[key] >= 1 and not value >= 0:
            problems.append(Problem(f"{key} is {value}, and must not be below 0", where, _COPY_CONFIG))
        elif key == "num_hidden_layers" and is_number and value > _MOST_LAYERS:  # ALBERT's take no memory, but time
            message = f"{key} is {value:,}, and no network has more than {_MOST_LAYERS:,}"
            problems.append(Problem(message, where, _COPY_CONFIG))
        elif key.endswith("norm_eps") and is_number and not 0 <= value <= _LARGEST_EPSILON:
            message = f"{key} is {value}, and Paddle's norms take 0 to {_LARGEST_EPSILON}"
            problems.append(Problem(message, where, _COPY_CONFIG))
    if problems:
        raise UserError(problems=problems)


def _defaults(config: Any) -> dict[str, Any]:
    """The keys of a family's config, without those that every config of PaddleNLP has, and their defaults."""
    made_by = [vars(each)["__init__"] for each in reversed(type(config).__mro__) if "__init__" in vars(each)]
    parameters = [each for made in made_by[1:] for each in inspect.signature(made).parameters.values()]
    return {each.name: each.default for each in parameters}


def _check_overrides(family: Family, config: Any, overrides: Mapping[str, Any], user_class: bool) -> None:
    if not overrides:
        return
    own_keys = [key for key in (*_defaults(config), "classifier_dropout") if key in vars(config)]
    known = [key for key in own_keys if key not in _NOT_OVERRIDABLE and key not in _UNREAD.get(family.name, ())]
    problems = []
    for key, value in overrides.items():
        where = f"model.config.{key}"
        if key in _NOT_OVERRIDABLE:
            from_what = "for its own calls" if key in OUTPUT_KEYS else "from the labels and the weights"
            problems.append(Problem(f"is set by nlpctl {from_what}", where, "remove it"))
        elif key not in vars(config) and not user_class:
            near = nearest(key, known)
            hint = f"did you mean {near}?" if near else f"keys are those of PaddleNLP's {type(config).__name__}"
            problems.append(Problem("no such key in this network's config", where, hint))
        elif key not in known and not user_class:
            problems.append(Problem("cannot be changed in this network", where, f"remove it; {', '.join(known)} can"))
        elif _is_no_share(key, value):
            problems.append(Problem(f"{value!r} is not a probability", where, "give a number from 0 to 1"))
    if problems:
        raise UserError(problems=problems)


def check_length(network: Any, max_seq_length: int, where: str) -> None:
    """UserError, blaming `where`, when `max_seq_length` tokens are more than the network has positions."""
    positions = max_positions(network)
    if positions is not None and max_seq_length > positions:
        raise UserError(
            f"{max_seq_length} tokens exceed the {positions} positions of the network",
            where=where,
            hint=f"set it to {positions} or less",
        )
