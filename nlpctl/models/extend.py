"""Transfers a trained head to a new label set: weights of labels that both have are kept, some under a new name.

The output layer has one column per label. A CRF has one row and one column per tag, followed by those of its start and
stop. Weights of new labels are initialised as in a new network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nlpctl.data.rows.tag_scheme import OUTSIDE, UNTYPED, TagScheme, detect_scheme
from nlpctl.errors import UserError
from nlpctl.models.weights import to_float32
from nlpctl.names import and_more, did_you_mean, listed

CRF_TRANSITIONS = "crf.transitions"
CRF_ENDS = 2  # start and stop, behind the tags


@dataclass(frozen=True)
class Extension:
    """The parameters taken over from the old model.

    Labels of the new model that were `kept` or are `new`, labels of the old one that were `dropped`; the
    `encoder`'s parameters, all of which were kept, and the head's `parameters` that were set, wholly or in part.
    `renamed`: kept labels to what the old model calls them, where that is another name.
    """

    kept: tuple[str, ...]
    new: tuple[str, ...]
    dropped: tuple[str, ...]
    encoder: tuple[str, ...]
    parameters: tuple[str, ...]
    renamed: Mapping[str, str] = field(default_factory=dict)

    def describe(self) -> list[str]:
        """For the console, line by line."""
        kept = [f"{label} (was {self.renamed[label]})" if label in self.renamed else label for label in self.kept]
        changed = "the label set changed; " if self.new or self.dropped or self.renamed else ""
        lines = [
            f"{changed}kept from the old model:",
            f"  whole: {len(self.encoder)} parameters of the encoder, {self.encoder[0]} to {self.encoder[-1]}",
            f"  the places of {and_more(kept, 8) or 'no label'} in {', '.join(self.parameters)}",
        ]
        if CRF_TRANSITIONS in self.parameters:
            lines.append("  the transitions between these, from the CRF's start and to its stop")
        if self.new:
            lines.append(f"newly initialised: the places of {and_more(self.new, 8)}")
        if self.dropped:
            lines.append(f"dropped: the places of {and_more(self.dropped, 8)}")
        return lines


def extend_head(
    network: Any,
    prefix: str,
    arrays: Mapping[str, np.ndarray],
    old: Sequence[str],
    new: Sequence[str],
    renamed: Mapping[str, str] | None = None,
) -> Extension | None:
    """Transfers the head of `arrays` (trained on the labels `old`) to `network` (built for the labels `new`).

    `prefix` is the encoder's, which is left alone. `renamed`: new labels to the old ones that they start as; several
    may start as the same. Returns None, having changed nothing, where the two have no
    label in common or the file's head is another one (a linear head for a network with a CRF still gives its rows).
    """
    origin = {label: label for label in new if label in set(old)} | dict(renamed or {})
    kept = tuple(label for label in new if label in origin)
    parameters = {name: value for name, value in network.state_dict().items() if not name.startswith(f"{prefix}.")}
    targets = _label_parameters(parameters, len(new))
    sources = [list(old).index(origin[label]) for label in kept]
    places = [list(new).index(label) for label in kept]
    values = {}
    for name, parameter in parameters.items():
        value = _merged(name, parameter.numpy(), arrays.get(name), name in targets, (places, len(new)),
                        (sources, len(old)))  # fmt: skip
        if value is not None:
            values[name] = value
    # Half a head is worse than a new one. Transitions may be missing: a CRF over a linear head of the same labels
    # starts with new transitions.
    if not kept or not targets <= values.keys() | {CRF_TRANSITIONS}:
        return None
    for name, value in values.items():
        parameters[name].set_value(value)
    return Extension(
        kept,
        tuple(label for label in new if label not in kept),
        tuple(label for label in old if label not in origin.values()),
        tuple(name for name, _ in network.named_parameters() if name.startswith(f"{prefix}.")),
        tuple(values),
        {label: source for label, source in origin.items() if label != source},
    )


def _label_parameters(parameters: Mapping[str, Any], labels: int) -> set[str]:
    """The parameters with a place per label: the last linear layer of that width, and the CRF."""
    weights = [name for name, value in parameters.items()
               if name.endswith(".weight") and value.ndim == 2 and value.shape[1] == labels]  # fmt: skip
    output = {weights[-1], weights[-1].removesuffix("weight") + "bias"} if weights else set()
    return (output | {CRF_TRANSITIONS}) & parameters.keys()


def _merged(
    name: str,
    fresh: np.ndarray,
    trained: np.ndarray | None,
    by_label: bool,
    places: tuple[list[int], int],
    sources: tuple[list[int], int],
) -> np.ndarray | None:
    """`fresh` with the `trained` values of the kept labels; None if the two do not belong together.

    `places` and `sources`: positions of the kept labels and the number of labels, in `fresh` and in `trained`.
    """
    if trained is None:
        return None
    trained = to_float32(trained)
    if not by_label:
        return trained if trained.shape == fresh.shape else None
    to, labels = places
    at, old_labels = sources
    merged = fresh.copy()
    if name == CRF_TRANSITIONS:
        # The rows and columns of start and stop stand behind those of the tags, so their places move with the number of
        # tags.
        to, at = [*to, labels, labels + 1], [*at, old_labels, old_labels + 1]
        if fresh.shape != (labels + CRF_ENDS,) * 2 or trained.shape != (old_labels + CRF_ENDS,) * 2:
            return None
        merged[np.ix_(to, to)] = trained[np.ix_(at, at)]
        return merged
    if fresh.shape[:-1] != trained.shape[:-1] or (fresh.shape[-1], trained.shape[-1]) != (labels, old_labels):
        return None
    # Paddle's linear layers are [in, out]: labels are the last axis of weight and bias alike.
    merged[..., to] = trained[..., at]
    return merged


# -- data.tag_map: which tags of the model that training starts from stand for tags of the data -----------------------
#
# `{PERSON: PER}` says that a PERSON of the data is a PER of the model: B-PERSON starts with what the model learnt of
# B-PER, or of PER-B. An entry may also name two whole tags.

KEY = "data.tag_map"
_NEXT_BEST = {"E": "I", "S": "B"}  # of a model whose scheme lacks these marks


def learnt_tags(tag_map: Mapping[str, str], new: Sequence[str], old: Sequence[str] | None) -> dict[str, str]:
    """Tag of the data -> the tag of the model that it starts as, for those that `tag_map` names.

    `new`: the tags of the data. `old`: those of the model. UserError: an entry names none of them, or the model has no
    tags. A model that has the data's names already needs no map.
    """
    if not tag_map:
        return {}
    if not old:
        message = "the model that training starts from has no tags"
        raise UserError(message, KEY, "remove the key, or name a trained tagger under model.name_or_path")
    marks, sources = detect_scheme(new, "the tags of the data"), detect_scheme(old, "the tags of the model")
    learnt_as: dict[str, str] = {}
    for name, learnt in tag_map.items():
        if name in new and learnt in old:
            learnt_as[name] = learnt
            continue
        own, known = _by_mark(marks, new, name), _by_mark(sources, old, learnt)
        if own and not known and _by_mark(sources, old, name):  # it was trained with this map: it has the data's names
            continue
        if not own or not known:
            raise _unknown(name, learnt, (marks, new), (sources, old))
        pairs = {tag: known.get(mark) or known.get(_NEXT_BEST.get(mark, "")) for mark, tag in own.items()}
        learnt_as |= {tag: source for tag, source in pairs.items() if source is not None}
    return learnt_as


def _by_mark(scheme: TagScheme, tags: Sequence[str], kind: str) -> dict[str, str]:
    """mark -> tag, of the tags of type `kind`."""
    split = {tag: scheme.split(tag) for tag in tags if tag != OUTSIDE}
    return {mark: tag for tag, (mark, own) in split.items() if own == kind != UNTYPED}


def _unknown(
    name: str, learnt: str, data: tuple[TagScheme, Sequence[str]], model: tuple[TagScheme, Sequence[str]]
) -> UserError:
    """The error for an entry of which one side names nothing."""
    of_data, of_model = _types(*data), _types(*model)
    if name in of_model and learnt in of_data:
        message = f"{name} is a type of the model, and {learnt} one of the data"
        return UserError(message, KEY, f"write the data's first: {{{learnt}: {name}}}")
    whose, wrong, known = ("data", name, of_data) if name not in of_data else ("model", learnt, of_model)
    message = f"no tag of the {whose} has the type {wrong!r}{did_you_mean(wrong, known)}"
    return UserError(message, KEY, f"types of the {whose}: {listed(known)}")


def _types(scheme: TagScheme, tags: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(scheme.split(tag)[1] for tag in tags if tag != OUTSIDE))
