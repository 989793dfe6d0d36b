"""Loading a network with its tokenizer; nothing that should be loaded stays random.

One path for every source: read the config, build the network, read the weights as arrays, bring
them to PaddleNLP's names, assign them strictly. `from_pretrained` is not used; see docs/upstream.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nlpctl.config.schema import ModelSection
from nlpctl.errors import UserError
from nlpctl.models.add_tokens import (
    AddedTokens,
    add_tokens,
    make_room,
    read_tokens,
    start_as_mean,
    vocabulary_parameters,
)
from nlpctl.models.assign import Rules, assign, with_prefix
from nlpctl.models.changes import Changes, change_parameters
from nlpctl.models.crf import CRF_SUFFIX
from nlpctl.models.extend import Extension, extend_head
from nlpctl.models.families import Family, Head, family_of_config
from nlpctl.models.folder import read_card, read_trained_card, untrained
from nlpctl.models.hub import fetch
from nlpctl.models.huggingface import is_huggingface_layout, to_paddle_layout
from nlpctl.models.network import build_network, make_config
from nlpctl.models.scratch import make_vocabulary
from nlpctl.models.source import ModelSource, read_config, resolve_source, weights_file
from nlpctl.models.tokenizer import agree_on_inputs, check_vocabulary, load_tokenizer
from nlpctl.models.vectors import fill_embedding
from nlpctl.models.weights import Weights, read_weights_file


@dataclass(frozen=True)
class LoadedModel:
    """A network and its tokenizer.

    `fresh`: parameters that are newly initialised. `ignored`: entries of the weights file that were
    not used (a language-model head, an old task head). `source` is None for from_scratch.
    `thresholds`: one per label, where the model has been given some. `extension`: what was carried over
    from a head with other labels. `changes`: what the recipe changed.
    """

    network: Any
    tokenizer: Any
    labels: tuple[str, ...]
    fresh: tuple[str, ...]
    ignored: tuple[str, ...]
    source: ModelSource | None
    thresholds: tuple[float, ...] | None = None
    extension: Extension | None = None
    changes: Changes = field(default_factory=Changes)


@dataclass(frozen=True)
class _Parts:
    """The parts of a source, before anything is built."""

    family: Family
    config: Mapping[str, Any]
    weights_file: Path
    tokenizer: Any
    labels: tuple[str, ...] | None  # of the head in the file, where they are known
    thresholds: tuple[float, ...] | None


def load_to_train(
    model: ModelSection,
    head: Head,
    labels: Sequence[str],
    *,
    vocabulary_texts: Callable[[], Iterable[str]] | None,
    seed: int = 0,
) -> LoadedModel:
    """A network over `labels` (none for a head without labels) to be trained, on the encoder that `model` names.

    The task head is taken from the source only when it was trained on exactly these labels in this order
    and for the same kind of task. From a model of nlpctl with other labels, the places of those that the two
    have in common are taken (models/extend.py). Otherwise the head is new. Everything else comes from the
    source. Seed Paddle before the call; `seed` is for model.set_parameters alone. `vocabulary_texts` is called for
    from_scratch only.

    Raises UserError when the model is missing, damaged, or config and weights do not belong together.
    """
    loaded = _from_scratch if model.from_scratch is not None else _from_source
    found = loaded(model, head, tuple(labels), vocabulary_texts)
    return replace(found, changes=change_parameters(found.network, model, found.changes.added, seed))


def _from_scratch(
    model: ModelSection, head: Head, labels: tuple[str, ...], texts: Callable[[], Iterable[str]] | None
) -> LoadedModel:
    where = "model.from_scratch"
    family, values, tokenizer = make_vocabulary(model.from_scratch, texts)
    added = _added(tokenizer, model)
    tokenizer = tokenizer if added is None else added.tokenizer
    network = _build(family, head, make_config(family, values, labels, model.config), tokenizer, added, where)
    if added is not None:
        start_as_mean(network, vocabulary_parameters(network, head.predicts_words), added)
    if model.embeddings is not None:
        fill_embedding(network.base_model.get_input_embeddings(), tokenizer.vocabulary, Path(model.embeddings))
    return LoadedModel(network, tokenizer, labels, tuple(network.state_dict()), (), None, changes=Changes(added))


def _from_source(model: ModelSection, head: Head, labels: tuple[str, ...], texts: object) -> LoadedModel:
    if model.name_or_path is None:
        raise UserError("no model given", where="model", hint="set model.name_or_path or model.from_scratch")
    source = resolve_source(model.name_or_path)
    parts = _parts(source, head)
    layers = model.config.get("num_hidden_layers")
    rules = Rules(
        keep_head=_same_head(source, parts, head, labels),
        head_may_be_fresh=True,
        layers_kept=layers if isinstance(layers, int) else None,
        tolerate_surplus=source.kind == "hub",
    )
    extends = _may_extend(source, parts, head, rules)
    return _load(source, parts, head, labels, model.config, rules, extends, _added(parts.tokenizer, model))


def load_trained(name_or_path: str | Path, head: Head) -> LoadedModel:
    """A trained network for evaluation and prediction: a model folder, run directory or trained checkpoint.

    Raises UserError when its task head was never trained.
    """
    source = resolve_source(str(name_or_path))
    parts = _parts(source, head)
    if source.kind == "nlpctl":
        read_trained_card(source.folder)
    if head.labelled and not parts.labels:
        raise untrained(str(name_or_path))
    labels = parts.labels if head.labelled else ()
    if source.kind == "paddlenlp" and head.adapt is None and not _same_head(source, parts, head, labels):
        raise untrained(str(name_or_path))  # a head of another task, whose parameters may bear the same names
    rules = Rules(
        keep_head=True,
        head_may_be_fresh=False,
        layers_kept=None,
        tolerate_surplus=source.kind == "hub",
        pooler_unused=head.predicts_words,
    )
    return _load(source, parts, head, labels, {}, rules, extends=False)


def _same_head(source: ModelSource, parts: _Parts, head: Head, labels: Sequence[str]) -> bool:
    """Whether the head in the file, if there is one, does what the new one is to do.

    Heads of different tasks may bear the same parameter names, so what PaddleNLP or nlpctl wrote has to name the
    same class too. Hugging Face's names differ by task, and its "architectures" cannot be relied on.
    """
    if head.predicts_words:  # whatever else the file was for: no other head has such names
        return True
    if head.labelled and parts.labels != tuple(labels):
        return False
    if source.kind == "huggingface" or source.kind == "hub":
        return True
    written = parts.config.get("architectures") or [parts.config.get("init_class")]
    return written[0] in (None, parts.family.network_class(head, str(parts.weights_file)).__name__)


def _may_extend(source: ModelSource, parts: _Parts, head: Head, rules: Rules) -> bool:
    """Whether the head in the file is of the same kind and its labels are known; a CRF may come or go."""
    if rules.keep_head or source.kind != "nlpctl" or not head.labelled or not parts.labels:
        return False
    written = (parts.config.get("architectures") or [""])[0]
    built = parts.family.network_class(head, str(parts.weights_file)).__name__
    return written.removesuffix(CRF_SUFFIX) == built.removesuffix(CRF_SUFFIX)


def _load(
    source: ModelSource,
    parts: _Parts,
    head: Head,
    labels: tuple[str, ...],
    overrides: Mapping[str, Any],
    rules: Rules,
    extends: bool,
    added: AddedTokens | None = None,
) -> LoadedModel:
    where, prefix = str(parts.weights_file), parts.family.prefix
    tokenizer = parts.tokenizer if added is None else added.tokenizer
    config = make_config(parts.family, parts.config, labels, overrides)
    network = _build(parts.family, head, config, tokenizer, added, where)
    arrays = paddle_arrays(read_weights_file(parts.weights_file), parts.family)
    if added is not None:
        axes = vocabulary_parameters(network, head.predicts_words)
        arrays = make_room(with_prefix(arrays, prefix, network.state_dict()), network, axes)
    assigned = assign(network, prefix, arrays, rules, where)
    if added is not None:
        start_as_mean(network, axes, added)
    extension = extend_head(network, prefix, arrays, parts.labels, labels) if extends else None
    taken = () if extension is None else extension.parameters
    return LoadedModel(
        network,
        tokenizer,
        labels,
        tuple(name for name in assigned.fresh if name not in taken),
        tuple(name for name in assigned.ignored if name not in taken),
        source,
        parts.thresholds if extension is None else None,  # thresholds go with the labels
        extension,
        Changes(added),
    )


def _added(tokenizer: Any, model: ModelSection) -> AddedTokens | None:
    """The tokenizer with the recipe's words in it; None if there are none."""
    return add_tokens(tokenizer, read_tokens(model.add_tokens)) if model.add_tokens else None


def _build(
    family: Family, head: Head, config: Any, tokenizer: Any, added: AddedTokens | None, where: str
) -> Any:
    """The network, with a row for each token of `tokenizer`, which knows those that were `added`."""
    check_vocabulary(len(tokenizer) - (0 if added is None else len(added.new)), config.vocab_size, where)
    config.vocab_size = max(config.vocab_size, len(tokenizer))
    network = build_network(family, head, config, where)
    agree_on_inputs(tokenizer, network)
    return network


def paddle_arrays(weights: Weights, family: Family) -> Mapping[str, Any]:
    """The arrays of a weights file under PaddleNLP's names; those of a bare encoder may lack its prefix."""
    # Some families of PaddleNLP (MegatronBert) name their own layers as Hugging Face does.
    if not weights.file.name.startswith("model_state.") and is_huggingface_layout(weights.arrays):
        return to_paddle_layout(weights.arrays, family.model_type, str(weights.file))
    return weights.arrays


def _parts(source: ModelSource, head: Head) -> _Parts:
    if source.folder is None:
        model = fetch(source.name)
        labels = config_labels(model.config)
        return _Parts(model.family, model.config, model.weights_file, model.tokenizer, labels, None)
    folder = source.folder
    if source.kind == "export":
        hint = "use the run directory or model folder that it was made from"
        raise UserError("this is an export: it has graphs, but no network to load", str(folder), hint)
    config = read_config(folder)
    family = family_of_config(config, str(folder / "config.json"))
    family.network_class(head, str(folder / "config.json"))  # told before the tokenizer, which it may lack too
    card = read_card(folder) if source.kind == "nlpctl" else None
    return _Parts(
        family,
        config,
        weights_file(folder),
        load_tokenizer(folder, family),
        card.labels if card is not None else config_labels(config),
        card.thresholds if card is not None else None,
    )


def config_labels(config: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The labels that a config names (id2label, or LABEL_0 ... by num_labels); None when it names none."""
    names = config.get("id2label")
    if isinstance(names, dict) and names:
        return tuple(str(names[key]) for key in sorted(names, key=int))
    count = config.get("num_labels") or config.get("num_classes")
    classifier = any("SequenceClassification" in str(name) for name in config.get("architectures") or ())
    if count is None and not classifier:
        return None
    return tuple(f"LABEL_{index}" for index in range(count or 2))
