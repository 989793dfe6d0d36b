"""Structured pruning of transformers: removes attention heads, feed-forward neurons and layers.

A pruned network keeps its hidden size and head size. Each layer keeps some of its attention heads and some neurons of
its feed-forward part. config.json holds their numbers, from which the network can be rebuilt:

    "pruned": {"heads": [9, 9], "neurons": [1152, 1152]}      one number per layer

Works for every network with one `paddle.nn.TransformerEncoder`: ERNIE, BERT, RoBERTa, ELECTRA and their like; and for
ModernBERT, whose layers have the same parts and, for each neuron, a gate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from nlpctl.errors import UserError

KEY = "pruned"  # in config.json
_HINT = "ERNIE, BERT, RoBERTa, ELECTRA, ModernBERT and what is built as they are can be pruned"
_BY_HEAD = ("q_proj", "k_proj", "v_proj")  # of attention; DeBERTa has two more


@dataclass(frozen=True)
class Kept:
    """The heads and neurons to keep: per layer their indices, in their new order."""

    heads: tuple[tuple[int, ...], ...]
    neurons: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class PrunedShape:
    """The numbers of heads and neurons per layer."""

    heads: tuple[int, ...]
    neurons: tuple[int, ...]

    @staticmethod
    def of(network: Any, where: str = "model") -> PrunedShape:
        """The shape of `network`, pruned or not. UserError: it has no layers of a known kind."""
        layers = encoder_layers(network, where)
        return PrunedShape(
            tuple(layer.self_attn.num_heads for layer in layers),
            tuple(layer.linear1.weight.shape[1] for layer in layers),
        )

    def narrowed(self, width: Fraction) -> PrunedShape:
        """`width` of the heads and neurons of each layer, rounded down, but at least one of each."""
        return PrunedShape(
            tuple(max(1, int(count * width)) for count in self.heads),
            tuple(max(1, int(count * width)) for count in self.neurons),
        )

    def layers(self, chosen: Iterable[int]) -> PrunedShape:
        """The shape with the layers that are `chosen`."""
        chosen = list(chosen)
        return PrunedShape(
            tuple(self.heads[layer] for layer in chosen), tuple(self.neurons[layer] for layer in chosen)
        )


def read_shape(config: Mapping[str, Any], where: str) -> PrunedShape | None:
    """The shape that a config names, for as many layers as it says; None for one of a whole network.

    UserError, blaming `where`: it is damaged.
    """
    value = config.get(KEY)
    if value is None:
        return None
    lists = (value.get("heads"), value.get("neurons")) if isinstance(value, Mapping) else (None, None)
    layers: Any = config.get("num_hidden_layers")
    for numbers in lists:
        if not isinstance(numbers, list) or not all(type(number) is int and number > 0 for number in numbers):
            message = f'its "{KEY}" must hold a list of heads and a list of neurons, one number per layer'
            raise UserError(message, where=where, hint="copy the model folder again")
        if not isinstance(layers, int) or len(numbers) < layers:
            message = f'its "{KEY}" tells of {len(numbers)} layers, but num_hidden_layers is {layers}'
            raise UserError(message, where=where, hint="copy the model folder again, or ask for fewer layers")
    return PrunedShape(tuple(value["heads"]), tuple(value["neurons"])).layers(range(layers))


def write_shape(network: Any) -> None:
    """Note the shape of `network` in its config, so that it is saved with it."""
    shape = PrunedShape.of(network)
    setattr(network.config, KEY, {"heads": list(shape.heads), "neurons": list(shape.neurons)})


def encoder_layers(network: Any, where: str = "model") -> list[Any]:
    """The transformer layers of `network`, from the embedding up.

    UserError, blaming `where`: it has none, or other ones than `paddle.nn.TransformerEncoderLayer` and ModernBERT's.
    """
    encoder = _encoder(network, where)
    return list(encoder.layers)


def narrowable_layers(network: Any, where: str = "model") -> list[Any]:
    """The layers of `encoder_layers`. UserError, blaming `where`: their heads cannot be removed one by one."""
    layers = encoder_layers(network, where)
    if any(getattr(layer.self_attn, "heads_differ", False) for layer in layers):
        message = f"heads of a {type(network).__name__} cannot be removed: each has weights outside of its projections"
        raise UserError(message, where=where, hint="use distill, with fewer layers; or ptq, ort-static, ort-dynamic")
    return layers


def prune(network: Any, kept: Kept, where: str = "model") -> None:
    """Removes, in place, all heads and neurons except those `kept`; updates the config.

    The kept ones compute the same as before. Parameters are new objects: make optimizers afterwards.
    UserError, blaming `where`: `narrowable_layers` knows none, or `kept` is of another network.
    """
    layers = narrowable_layers(network, where)
    for layer, heads, neurons in zip(layers, kept.heads, kept.neurons, strict=True):
        attention = layer.self_attn
        if max(heads) >= attention.num_heads or max(neurons) >= layer.linear1.weight.shape[1]:
            message = f"has {attention.num_heads} heads and {layer.linear1.weight.shape[1]} neurons in a layer"
            raise UserError(f"{message}: fewer than are to be kept", where=where, hint="prune the network it is for")
        size = attention.head_dim
        # Projections hold the heads side by side, head_dim columns each.
        places = [head * size + place for head in heads for place in range(size)]
        for name in getattr(attention, "by_head", _BY_HEAD):
            if name not in attention._sub_layers:
                continue
            setattr(attention, name, _with_outputs(attention._sub_layers[name], places))
        attention.out_proj = _with_inputs(attention.out_proj, places)
        attention.num_heads = len(heads)
        for name in ("linear1", "gate"):  # ModernBERT's neurons have a gate each
            if name in layer._sub_layers:
                setattr(layer, name, _with_outputs(layer._sub_layers[name], neurons))
        layer.linear2 = _with_inputs(layer.linear2, neurons)
    write_shape(network)


def shrink(network: Any, shape: PrunedShape, where: str) -> None:
    """Gives a network the shape of a pruned one, so that its weights can be loaded."""
    kept = Kept(
        tuple(tuple(range(count)) for count in shape.heads), tuple(tuple(range(count)) for count in shape.neurons)
    )
    prune(network, kept, where)


def keep_layers(network: Any, kept: Sequence[int], where: str = "model") -> None:
    """Removes, in place, all layers except those `kept` (0 is next to the embedding); uses the order given.

    UserError, blaming `where`: `encoder_layers` knows none, or has no such layer.
    """
    import paddle

    from nlpctl.models.networks.modernbert import ModernBertConfig

    encoder = _encoder(network, where)
    layers = list(encoder.layers)
    if not kept or max(kept) >= len(layers) or min(kept) < 0:
        hint = f"name some of 0 to {len(layers) - 1}"
        raise UserError(f"there are no layers {list(kept)}", where=where, hint=hint)
    was_pruned = KEY in vars(network.config)
    encoder.layers = paddle.nn.LayerList([layers[layer] for layer in kept])
    encoder.num_layers = len(kept)
    network.config.num_hidden_layers = len(kept)
    if isinstance(network.config, ModernBertConfig):
        network.config.note_layers(list(encoder.layers))
    if was_pruned:
        write_shape(network)


def _encoder(network: Any, where: str) -> Any:
    """The network's one TransformerEncoder, or ModernBERT's, made of layers that can be pruned."""
    import paddle

    from nlpctl.models.networks.encoders import SharedLayers
    from nlpctl.models.networks.modernbert import ModernBertEncoder, ModernBertLayer

    if any(isinstance(layer, SharedLayers) for layer in network.sublayers()):
        message = "layers of ALBERT share their weights: none can be pruned or left out"
        raise UserError(message, where=where, hint="use ptq, ort-static or ort-dynamic; or distil into another network")
    kinds = (paddle.nn.TransformerEncoder, ModernBertEncoder)
    encoders = [layer for layer in network.sublayers() if isinstance(layer, kinds)]
    known = (paddle.nn.TransformerEncoderLayer, ModernBertLayer)
    if len(encoders) != 1 or not all(isinstance(layer, known) for layer in encoders[0].layers):
        raise UserError(f"{type(network).__name__} has no transformer layers to prune", where=where, hint=_HINT)
    return encoders[0]


def _with_outputs(linear: Any, places: Sequence[int]) -> Any:
    """The linear layer with the outputs `places` only."""
    # Outputs that go take their bias with them; inputs that go (below) leave it whole.
    bias = None if linear.bias is None else linear.bias.numpy()[list(places)]
    return _linear(linear.weight.numpy()[:, list(places)], bias)


def _with_inputs(linear: Any, places: Sequence[int]) -> Any:
    """The linear layer with the inputs `places` only."""
    return _linear(linear.weight.numpy()[list(places)], None if linear.bias is None else linear.bias.numpy())


def _linear(weight: Any, bias: Any) -> Any:
    import paddle

    # A new layer, because a parameter cannot change its shape; its name is new too, see fresh_parameter_names.
    linear = paddle.nn.Linear(*weight.shape, bias_attr=None if bias is not None else False)
    linear.weight.set_value(weight)
    if bias is not None:
        linear.bias.set_value(bias)
    return linear
