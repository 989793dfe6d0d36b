"""Joins trained networks to an ensemble (networks/ensemble.py), with one vocabulary for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

from nlpctl.data.text.library_tokenizer import LibraryTokenizer
from nlpctl.data.text.units import UnitTokenizer
from nlpctl.errors import UserError
from nlpctl.models.families import OWN, Head, family_by_type
from nlpctl.models.load import LoadedModel
from nlpctl.models.network import build_network, make_config, max_positions

MODEL_TYPE = OWN["Ensemble"]
HEADS = ("SequenceClassification", "TokenClassification", "QuestionAnswering")


def join(models: Sequence[LoadedModel], names: Sequence[str], pool: str, *, crf: bool) -> tuple[Any, Any]:
    """The ensemble of `models` and its tokenizer. `names`: for messages; `crf`: the networks end in a CRF.

    UserError: their networks have different heads, or read texts in different ways.
    """
    tokenizer, tables = _common(models, names)
    heads = []
    for model, name in zip(models, names, strict=True):
        # ErnieForTokenClassificationWithCrf is Ernie + For + TokenClassification; the members keep their CRFs.
        class_name = type(model.network).__name__
        heads.append((class_name.removesuffix("WithCrf") if crf else class_name).partition("For")[2])
        if heads[-1] != heads[0] or heads[-1] not in HEADS:
            raise UserError("networks of this kind cannot be joined", name, "leave this model out")
    family = family_by_type(MODEL_TYPE, MODEL_TYPE)
    limits = [limit for model in models if (limit := max_positions(model.network)) is not None]
    values = {
        # Their networks are built from these again; the labels are the ensemble's.
        "members": [
            {
                key: value
                for key, value in model.network.config.to_dict().items()
                if key not in ("id2label", "label2id", "dtype")
            }
            for model in models
        ],
        "pool": pool,
        "tables": tables is not None,
        "crf": crf,
        "vocab_size": len(tokenizer)
        if tables is not None
        else min(model.network.config.vocab_size for model in models),
        "pad_token_id": tokenizer.pad_token_id,
        "max_position_embeddings": min(limits, default=0),
    }
    head = Head(heads[0], labelled=bool(models[0].labels))
    network = build_network(family, head, make_config(family, values, models[0].labels, {}), MODEL_TYPE)
    for i, (member, model) in enumerate(zip(network.members, models, strict=True)):
        member.network.set_state_dict(model.network.state_dict())
        if tables is not None:
            member.table.set_value(paddle.to_tensor(tables[i]))
    network.eval()
    return network, tokenizer


def _common(models: Sequence[LoadedModel], names: Sequence[str]) -> tuple[Any, list[np.ndarray] | None]:
    """One tokenizer for all, and for each model the table from its ids to the model's own; None where they are equal.

    Units do not depend on the vocabulary, so vocabularies of units are joined; pieces of words do.
    """
    first = models[0].tokenizer
    entries = [tuple(model.tokenizer.convert_ids_to_tokens(list(range(len(model.tokenizer))))) for model in models]
    other = next((i for i, each in enumerate(entries) if not _alike(models[i].tokenizer, first)), None)
    if other is not None:
        hint = "join models that cut texts in the same way"
        raise UserError(f"it cuts texts in another way than {names[0]}", names[other], hint)
    if all(each == entries[0] for each in entries):
        return first, None
    if not isinstance(first, UnitTokenizer):
        other = next(i for i, each in enumerate(entries) if each != entries[0])
        hint = "train the models with one vocabulary: model.from_scratch.vocabulary: FILE, or a pretrained encoder"
        raise UserError(f"its vocabulary of word pieces is not that of {names[0]}", names[other], hint)
    union = list(dict.fromkeys(entry for each in entries for entry in each))
    tokenizer = UnitTokenizer(union, first.settings)
    tables = []
    for model, own in zip(models, entries, strict=True):
        ids = {entry: i for i, entry in enumerate(own)}
        tables.append(np.array([_own_id(entry, ids, model.tokenizer) for entry in union], np.int64))
    return tokenizer, tables


def _own_id(entry: str, ids: dict[str, int], tokenizer: UnitTokenizer) -> int:
    """The id by which a model reads an entry that another one may have brought."""
    if entry in ids:
        return ids[entry]
    if tokenizer.settings.lowercase and entry.lower() in ids:
        return ids[entry.lower()]
    return tokenizer.unk_token_id


def _alike(one: Any, other: Any) -> bool:
    """Whether two tokenizers cut a text in the same places, whatever their vocabularies."""
    if isinstance(one, UnitTokenizer) or isinstance(other, UnitTokenizer):
        return isinstance(one, UnitTokenizer) and isinstance(other, UnitTokenizer) and one.settings == other.settings
    if isinstance(one, LibraryTokenizer) and isinstance(other, LibraryTokenizer):
        return one.rules() == other.rules()
    return type(one) is type(other)
