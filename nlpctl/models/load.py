"""Loads a network with its tokenizer. No weight that should be loaded stays random.

One path for every source: read the config, build the network, read the weights as arrays, bring
them to PaddleNLP's names, assign them strictly. `from_pretrained` is not used; see docs/upstream.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from nlpctl import console
from nlpctl.config.saved_model import written_class
from nlpctl.config.schema import ModelSection, ScratchSection
from nlpctl.config.sentence_folder import read_cross_encoder
from nlpctl.config.weights_mark import read_mark
from nlpctl.documents import Mismatch
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
from nlpctl.models.calibration import Calibration
from nlpctl.models.changes import Changes, change_parameters
from nlpctl.models.crf import CRF_SUFFIX
from nlpctl.models.extend import KEY as TAG_MAP
from nlpctl.models.extend import Extension, extend_head, learnt_tags
from nlpctl.models.families import Family, Head, family_of_config
from nlpctl.models.folder import read_description, read_trained_description, untrained
from nlpctl.models.head_labels import (
    NAME_THEM,
    are_names,
    config_labels,
    counted_labels,
    is_match_logit,
    serves_another_task,
    tell_unnamed,
)
from nlpctl.models.huggingface_layout import is_huggingface_layout, to_paddle
from nlpctl.models.network import build_network, like_file, make_config
from nlpctl.models.padding import agree_on_padding, move_positions
from nlpctl.models.paddlenlp_hub import fetch
from nlpctl.models.scratch import fill_embedding, make_vocabulary
from nlpctl.models.source import ModelSource, read_config, resolve_source, weights_file
from nlpctl.models.tokenizer import agree_on_inputs, check_vocabulary, load_tokenizer
from nlpctl.models.two_tower import makes_vectors, vector_layers
from nlpctl.models.user_network import KEY as USER_KEY
from nlpctl.models.user_network import check_named, starts_from_weights
from nlpctl.models.weights import Weights, read_weights_file, weights_size
from nlpctl.names import listed


@dataclass(frozen=True)
class LoadedModel:
    """A network and its tokenizer.

    `fresh`: parameters that are newly initialised. `ignored`: entries of the weights file that were
    not used (a language-model head, an old task head). `source` is None for from_scratch.
    `thresholds`: one per label, where the model has been given some. `extension`: what was carried over
    from a head with other labels. `changes`: what the recipe changed. `head_note`: what became of the head of a model
    that PaddleNLP or Transformers saved, for people. `calibration`: what is known of its probabilities.
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
    head_note: str | None = None
    calibration: Calibration | None = None


@dataclass(frozen=True)
class _Parts:
    """The parts of a source, before anything is built."""

    family: Family
    config: Mapping[str, Any]
    weights_file: Path
    tokenizer: Any
    labels: tuple[str, ...] | None  # of the head in the file, where they are known
    thresholds: tuple[float, ...] | None
    calibration: Calibration | None = None


def load_to_train(
    model: ModelSection,
    head: Head,
    labels: Sequence[str],
    *,
    vocabulary_texts: Callable[[], Iterable[str]] | None,
    seed: int = 0,
    tag_map: Mapping[str, str] | None = None,
) -> LoadedModel:
    """A network over `labels` (none for a head without labels) to be trained, on the encoder that `model` names.

    The task head is taken from the source where it is one for the same kind of task. If it has other labels, or the
    same in another order, the places of those that the two have in common are taken (models/extend.py). If it has only
    a number of labels (models/head_labels.py), it is taken where the number is the same, by position. Otherwise the
    head is new. Everything else comes from the source. Seed Paddle before the call; `seed` is for
    model.set_parameters alone. `vocabulary_texts` is called for from_scratch only. `tag_map`: data.tag_map, labels that
    the source knows by another name.

    Raises UserError when the model is missing, damaged, or config and weights do not belong together.
    """
    if model.from_scratch is not None:
        loaded = _from_scratch(model, model.from_scratch, head, tuple(labels), vocabulary_texts)
    else:
        loaded = _from_source(model, head, tuple(labels), tag_map or {})
    return replace(loaded, changes=change_parameters(loaded.network, model, loaded.changes.added, seed))


def _from_scratch(
    model: ModelSection,
    scratch: ScratchSection,
    head: Head,
    labels: tuple[str, ...],
    texts: Callable[[], Iterable[str]] | None,
) -> LoadedModel:
    where = "model.from_scratch"
    family, values, tokenizer = make_vocabulary(scratch, texts)
    added = _added(tokenizer, model)
    tokenizer = tokenizer if added is None else added.tokenizer
    network = _build(family, head, _config(family, values, labels, model.config, head), tokenizer, added, where)
    if added is not None:
        start_as_mean(network, vocabulary_parameters(network, head.predicts_words), added)
    if model.embeddings is not None:
        entries = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        fill_embedding(network.base_model.get_input_embeddings(), entries, Path(model.embeddings))
    return LoadedModel(network, tokenizer, labels, tuple(network.state_dict()), (), None, changes=Changes(added))


def _from_source(
    model: ModelSection, head: Head, labels: tuple[str, ...], tag_map: Mapping[str, str]
) -> LoadedModel:
    if model.name_or_path is None:
        raise UserError("no model given", where="model", hint="set model.name_or_path or model.from_scratch")
    source = resolve_source(model.name_or_path)
    parts = as_stored = _parts(source, head, counted_labels)
    _refuse_lost_weights(parts, head)
    if _by_position(source, parts, head) and (len(parts.labels or ()) == len(labels) or _is_match_logit(parts, head)):
        parts = replace(parts, labels=labels)
    renamed = learnt_tags(tag_map, labels, parts.labels)
    layers = model.config.get("num_hidden_layers")
    rules = Rules(
        keep_head=_same_head(source, parts, head, labels) and not renamed,
        head_may_be_fresh=True,
        layers_kept=layers if isinstance(layers, int) else None,
        tolerate_surplus=source.kind == "hub",
    )
    extends = _may_extend(source, parts, head, rules)
    added = _added(parts.tokenizer, model)
    loaded = _load(source, parts, head, labels, model.config, rules, extends, added, renamed)
    if renamed and loaded.extension is None:
        message = "the output layer of this model cannot be carried over: it is of another kind"
        raise UserError(message, TAG_MAP, "remove the key: the tags start anew")
    return replace(loaded, head_note=_head_note(source, as_stored, head, loaded))


def load_trained(
    name_or_path: str | Path,
    head: Head,
    wanted: Callable[[tuple[str, ...]], tuple[str, ...]] | None = None,
    labels_of_head: Sequence[str] = (),
    named: bool = False,
) -> LoadedModel:
    """A trained network for evaluation and prediction: a model folder, run directory or trained checkpoint.

    `wanted` gives the labels of a model that is not nlpctl's, from those that its config names or counts: the same
    in the order that the network is to have (models/head_labels.py). `named`: it knows the names without the config's.
    `labels_of_head`: its labels by id, for a model whose config does not even count them.
    Raises UserError when its task head was never trained.
    """
    source = resolve_source(str(name_or_path))
    parts = _parts(source, head, counted_labels if named or labels_of_head else config_labels)
    if labels_of_head:
        parts = replace(parts, labels=tuple(labels_of_head))
    if source.kind == "nlpctl" and source.folder is not None:
        read_trained_description(source.folder)
    if head.labelled and not parts.labels:
        raise untrained(str(name_or_path))
    if head.adapt is None and source.kind != "nlpctl" and not _same_kind(source, parts, head):
        # A head of another task, whose parameters may bear the same names.
        written = written_class(parts.config)
        if not serves_another_task(written, head.name):
            raise untrained(str(name_or_path))
        message = f"the task head was never trained: its class is {written}, of another task"
        hint = "give the recipe the task of this model; or train it for yours first (nlpctl train)"
        raise UserError(message, str(name_or_path), hint)
    labels = own_labels = (parts.labels or ()) if head.labelled else ()
    if own_labels and source.kind != "nlpctl" and wanted is not None:
        labels = wanted(own_labels)
        tell_unnamed(labels, source.name)
        parts = parts if are_names(own_labels) else replace(parts, labels=labels)
    rules = Rules(
        keep_head=True,
        head_may_be_fresh=False,
        layers_kept=None,
        tolerate_surplus=source.kind == "hub",
        pooler_unused=head.predicts_words or head.name in ("TokenClassification", "QuestionAnswering"),
    )
    moved = head.labelled and labels != parts.labels
    loaded = _load(source, parts, head, labels, {}, rules, extends=moved)
    if moved and loaded.extension is None:
        hint = "leave out data.labels, which has another order"
        raise UserError("the outputs of this head cannot be put in another order", str(name_or_path), hint)
    if source.kind == "nlpctl":
        return loaded
    thresholds, ordered = parts.thresholds, None
    by_label = dict(zip(parts.labels or (), thresholds or (), strict=False))
    if thresholds is not None and by_label.keys() == {*labels}:  # or else somebody changed config.json
        ordered = tuple(by_label[label] for label in labels)
    return replace(loaded, thresholds=ordered, calibration=parts.calibration)


def _same_head(source: ModelSource, parts: _Parts, head: Head, labels: Sequence[str]) -> bool:
    """Whether the head in the file, if there is one, does what the new one is to do."""
    if head.predicts_words:  # whatever else the file was for: no other head has such names
        return True
    if head.labelled and parts.labels != tuple(labels):
        return False
    return _same_kind(source, parts, head)


def _same_kind(source: ModelSource, parts: _Parts, head: Head) -> bool:
    """Whether the head in the file, if there is one, is of the class that `head` is.

    Heads of different tasks may bear the same parameter names, so the class that PaddleNLP or nlpctl wrote has to be
    the same. Hugging Face's "architectures" cannot be relied on, but say so where the head is of another task.
    """
    if head.predicts_words:
        return True
    written = written_class(parts.config)
    if source.kind in ("huggingface", "hub"):
        return not serves_another_task(written, head.name)
    return written in ("", parts.family.network_class(head, str(parts.weights_file)).__name__)


def _may_extend(source: ModelSource, parts: _Parts, head: Head, rules: Rules) -> bool:
    """Whether the head in the file is of the same kind and its labels are known; a CRF may come or go."""
    if rules.keep_head or head.predicts_words or not head.labelled or not parts.labels:
        return False
    if _by_position(source, parts, head):
        return False
    if source.kind in ("huggingface", "hub"):
        return _same_kind(source, parts, head)
    written = written_class(parts.config)
    built = parts.family.network_class(head, str(parts.weights_file)).__name__
    return written.removesuffix(CRF_SUFFIX) == built.removesuffix(CRF_SUFFIX)


def _by_position(source: ModelSource, parts: _Parts, head: Head) -> bool:
    """Whether the outputs of the head in the file are counted, not named."""
    if source.kind == "nlpctl" or not head.labelled or not parts.labels:
        return False
    return not are_names(parts.labels)


def _is_match_logit(parts: _Parts, head: Head) -> bool:
    return head.matches and is_match_logit(parts.labels)


def _with_zero_logit(arrays: Mapping[str, Any], network: Any, prefix: str) -> dict[str, Any]:
    """`arrays`, where a head with one logit has two, of which the first is always 0: softmax then gives the sigmoid of
    the second. Other heads stay as they are."""
    heads = {name: parameter for name, parameter in network.state_dict().items() if not name.startswith(f"{prefix}.")}
    widened = dict(arrays)
    for name, parameter in heads.items():
        array = arrays.get(name)
        if array is not None and list(array.shape) == [*parameter.shape[:-1], 1] and parameter.shape[-1] == 2:
            widened[name] = np.concatenate([np.zeros_like(array), array], axis=-1)
    return widened


def _head_note(source: ModelSource, parts: _Parts, head: Head, loaded: LoadedModel) -> str | None:
    """What became of the head in the file of a model that is not nlpctl's; None where there was none, or all is plain.

    `parts`: as the source has them.
    """
    if source.kind == "nlpctl" or head.predicts_words or not (head.labelled and parts.labels):
        return None
    if _is_match_logit(parts, head) and not loaded.fresh:
        return f"the head of {source.name} has one logit, which stands for {loaded.labels[1]!r}"
    counted = _by_position(source, parts, head)
    order = (
        "its config counts the labels without naming them, so its outputs are taken to be, in this order: "
        f"{listed(loaded.labels)} (another order: {NAME_THEM})"
    )
    if loaded.extension is not None:  # which is described elsewhere
        return f"of the head of {source.name}: {order}" if counted else None
    if parts.labels == loaded.labels or not _same_kind(source, parts, head):
        return None
    own = {name for name in loaded.network.state_dict() if not name.startswith(f"{parts.family.prefix}.")}
    if counted and not own & set(loaded.fresh):
        return f"the head of {source.name} is kept; {order}"
    if not own & set(loaded.fresh) & set(loaded.ignored):  # the file had no head
        return None
    if counted:
        counts = f"{len(parts.labels)} outputs without names, and the data {len(loaded.labels)} labels"
        return f"the head of {source.name} has {counts}: the head is new"
    return (
        f"the head of {source.name} has other labels, {listed(parts.labels)} (id2label), so the head is new; to keep "
        "it, write the labels of the data like these"
    )


def _load(
    source: ModelSource,
    parts: _Parts,
    head: Head,
    labels: tuple[str, ...],
    overrides: Mapping[str, Any],
    rules: Rules,
    extends: bool,
    added: AddedTokens | None = None,
    renamed: Mapping[str, str] | None = None,
) -> LoadedModel:
    where, prefix = str(parts.weights_file), parts.family.prefix
    tokenizer = parts.tokenizer if added is None else added.tokenizer
    config = _config(parts.family, parts.config, labels, overrides, head)
    first = agree_on_padding(parts.family, config, tokenizer, str(parts.weights_file.parent / "config.json"))
    with contextlib.ExitStack() as limits:
        if not overrides and head.user_class is None:
            projected = 0 if rules.head_may_be_fresh else head.projects_to
            limits.enter_context(like_file(config, weights_size(parts.weights_file), where, projected))
        network = _build(parts.family, head, config, tokenizer, added, where)
    arrays = paddle_arrays(read_weights_file(parts.weights_file), parts.family, head)
    if first.stored != first.ours:
        arrays = move_positions(arrays, first)
    if makes_vectors(network) and source.folder is not None and source.kind != "nlpctl":
        arrays = {**arrays, **vector_layers(source.folder, network)}
    if head.matches and source.kind != "nlpctl":
        arrays = _with_zero_logit(arrays, network, prefix)
    if added is not None:
        axes = vocabulary_parameters(network, head.predicts_words)
        arrays = make_room(with_prefix(arrays, prefix, network.state_dict()), network, axes)
    assigned = assign(network, prefix, arrays, rules, where)
    if added is not None:
        start_as_mean(network, axes, added)
    extension = extend_head(network, prefix, arrays, parts.labels or (), labels, renamed) if extends else None
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
        calibration=parts.calibration if extension is None else None,
    )


def _config(family: Family, values: Mapping[str, Any], labels: Sequence[str], overrides: Any, head: Head) -> Any:
    return make_config(family, values, labels, overrides, user_class=head.user_class is not None)


def _refuse_lost_weights(parts: _Parts, head: Head) -> None:
    """UserError if the weights of the source have no place in the user's own network."""
    if head.user_class is None or USER_KEY in parts.config:
        return
    if not starts_from_weights(parts.family.network_class(head, str(parts.weights_file))):
        message = f"{head.user_class} is a plain layer, so the weights of {parts.family.name} have no place in it"
        name, prefix = parts.family.name, parts.family.prefix
        hint = f"derive it from {name}PretrainedModel, with self.{prefix} = {name}Model(config); or use "
        raise UserError(message, where="model.network", hint=f"{hint}model.from_scratch")


def _added(tokenizer: Any, model: ModelSection) -> AddedTokens | None:
    """The tokenizer with the recipe's words in it; None if there are none."""
    return add_tokens(tokenizer, read_tokens(model.add_tokens)) if model.add_tokens else None


def _build(
    family: Family, head: Head, config: Any, tokenizer: Any, added: AddedTokens | None, where: str
) -> Any:
    """The network, with one embedding row per token of `tokenizer`, including the `added` ones."""
    # Counted without the added tokens: they get rows of their own below.
    check_vocabulary(len(tokenizer) - (0 if added is None else len(added.new)), config.vocab_size, where)
    # Vocabularies are often padded to a multiple of 8 or 64, so there may be more rows than tokens.
    config.vocab_size = max(config.vocab_size, len(tokenizer))
    network = build_network(family, head, config, where)
    agree_on_inputs(tokenizer, network, where)
    return network


def paddle_arrays(weights: Weights, family: Family, head: Head | None = None) -> Mapping[str, Any]:
    """The arrays of a weights file under PaddleNLP's names; those of a bare encoder may lack its prefix.

    `head`: without the heads of other tasks that would get the same names.
    """
    # Some families of PaddleNLP (MegatronBert) name their own layers as Hugging Face does.
    theirs = not weights.file.name.startswith("model_state.")
    if theirs and is_huggingface_layout(weights.arrays, family.model_type):
        return to_paddle(weights.arrays, family.model_type, str(weights.file), None if head is None else head.name)
    return weights.arrays


def _parts(
    source: ModelSource, head: Head, labels_of: Callable[[Mapping[str, Any]], tuple[str, ...] | None]
) -> _Parts:
    """`labels_of`: reads the labels of a head out of a config that nlpctl did not write."""
    if source.folder is None:
        model = fetch(source.name)
        labels = labels_of(model.config) if head.labelled else None
        return _Parts(model.family, model.config, model.weights_file, model.tokenizer, labels, None)
    folder = source.folder
    if source.kind == "export":
        hint = "use the run directory or model folder that it was made from"
        raise UserError("this is an export: it has graphs, but no network to load", str(folder), hint)
    config = read_config(folder)
    check_named(config, head.user_class, folder)
    family = family_of_config(config, str(folder / "config.json"))
    # Its error is more useful than that of a tokenizer, which such a folder may lack too.
    family.network_class(head, str(folder / "config.json"))
    weights = weights_file(folder)
    assert weights is not None  # resolve_source refuses a folder without
    if source.kind == "huggingface" and config.get("auto_map"):
        message = f"{folder / 'config.json'} names code (auto_map), which is never run: the network is read as"
        console.warn(f"{message} {family.name}, which is right only if that code computes the same")
    if source.kind == "nlpctl":
        description = read_description(folder)
        return _Parts(
            family, config, weights, load_tokenizer(folder, family),
            description.labels, description.thresholds, description.calibration,
        )
    if head.name == "SequenceClassification":
        read_cross_encoder(folder, config)  # of a recipe that names the folder, which nothing has asked before
    known = _written(config, weights)
    labels = labels_of(config) if head.labelled else None
    return _Parts(family, config, weights, load_tokenizer(folder, family), labels, *known)


def _written(config: Mapping[str, Any], weights: Path) -> tuple[tuple[float, ...] | None, Calibration | None]:
    """The thresholds of the labels and the calibration, where nlpctl wrote these weights for other programs."""
    mark = read_mark(config)
    if mark is None or (mark.thresholds is None and mark.calibration is None) or not mark.is_of(weights):
        return None, None
    try:
        return mark.thresholds, None if mark.calibration is None else Calibration.from_json(mark.calibration)
    except Mismatch:  # somebody changed it
        return mark.thresholds, None
