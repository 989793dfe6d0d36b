"""data.tag_map: which tags of the model that training starts from stand for tags of the data.

`{PERSON: PER}` says that a PERSON of the data is a PER of the model: B-PERSON starts with what the model learnt of
B-PER, or of PER-B. An entry may also name two whole tags. Imports neither Paddle nor NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nlpctl.data.tag_scheme import OUTSIDE, UNTYPED, TagScheme, detect_scheme
from nlpctl.errors import UserError
from nlpctl.names import did_you_mean, listed

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
    found: dict[str, str] = {}
    for name, learnt in tag_map.items():
        if name in new and learnt in old:
            found[name] = learnt
            continue
        own, known = _by_mark(marks, new, name), _by_mark(sources, old, learnt)
        if own and not known and _by_mark(sources, old, name):  # it was trained with this map: it has the data's names
            continue
        if not own or not known:
            raise _unknown(name, learnt, (marks, new), (sources, old))
        pairs = {tag: known.get(mark) or known.get(_NEXT_BEST.get(mark, "")) for mark, tag in own.items()}
        found |= {tag: source for tag, source in pairs.items() if source is not None}
    return found


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
