"""Label Studio's JSON, JSON_MIN and tables: tasks, each with its data, annotations and predictions.

The labels of a text are those of `choices`, those of spans of `labels`. Spans are counted in code points since about
2022, and in UTF-16 units before; the text that a span has beside it tells which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nlpctl.data.readers.annotated import Annotated, Mark, checked_mark, from_utf16, most_common_answer
from nlpctl.data.readers.json_rows import json_type

ANNOTATIONS = ("annotations", "completions")  # the second until version 1.0
TO_NAME, CHOICES, LABELS = "text", "label", "label"  # names in the labelling interface that tasks are written for
_OF_TASKS = ("annotations", "completions", "predictions", "drafts")
_OWN = ("annotator", "annotation_id", "created_at", "updated_at", "lead_time")  # of JSON_MIN, beside the data


def is_record(value: Any) -> bool:
    """Whether an object is a task, or one of JSON_MIN: by what Label Studio writes beside the data."""
    if not isinstance(value, dict):
        return False
    minimal = "annotation_id" in value and any(key in value for key in ("annotator", "lead_time"))
    return minimal or (isinstance(value.get("data"), dict) and any(key in value for key in _OF_TASKS))


def has_spans(value: Any) -> bool:
    """Whether an object of JSON_MIN has spans."""
    keys = {"start", "end", "labels"}
    lists = [each for each in value.values() if isinstance(each, list) and each] if isinstance(value, dict) else []
    return any(all(isinstance(each, dict) and keys <= each.keys() for each in listed) for listed in lists)


def annotated(value: Mapping[str, Any]) -> Annotated:
    """The record in a task, or in an object of JSON_MIN. ValueError says what is wrong."""
    if "data" not in value:
        return _minimal(value)
    if not isinstance(value["data"], dict):
        raise ValueError(f"not a task of Label Studio: data is {json_type(value['data'])}")
    values = {**({"id": value["id"]} if "id" in value else {}), **value["data"]}
    given: Any = next((value[key] for key in ANNOTATIONS if value.get(key) not in (None, [])), [])
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise ValueError("not a task of Label Studio: annotations are no list of objects")
    kept = [each for each in given if not each.get("was_cancelled") and not each.get("skipped")]
    if not kept:
        return Annotated(values)
    true = [each for each in kept if each.get("ground_truth")]  # what a reviewer declared to be right
    answers = [_answer(values, each) for each in true or kept]
    # Question by question: who differs in another one has still given this answer, and who answered others alone has
    # given none.
    choices = [
        (question, label)
        for question in dict.fromkeys(question for given, *_ in answers for question in given)
        for label in most_common_answer(
            [given.get(question, []) for given, *_ in answers if question in given or not given], frozenset
        )
    ]
    _, marks, marked, unread, left_out = most_common_answer(answers, lambda answer: answer[1:3])
    return Annotated(values, True, tuple(dict.fromkeys(choices)), marks, marked, unread=unread, left_out=left_out)


def _answer(values: Mapping[str, Any], annotation: Mapping[str, Any]) -> tuple[Any, ...]:
    """(labels by question, marks, the field with the marks, a kind of spans that is none of plain text, how many
    results are none of these) of one annotator."""
    results = annotation.get("result")
    if not isinstance(results, list):
        raise ValueError("not a task of Label Studio: an annotation has no list of results")
    choices: dict[str, list[str]] = {}
    marks: list[Mark] = []
    marked, unread, left_out = None, None, 0
    for result in results:
        value = (result.get("value") or {}) if isinstance(result, dict) else result  # a relation has none
        if not isinstance(value, dict):
            raise ValueError(f"not a task of Label Studio: {json_type(value)} in place of a result")
        if "choices" in value and "start" not in value:  # those of a span say something else
            choices.setdefault(str(result.get("from_name")), []).extend(_strings(value["choices"]))
        elif "labels" in value and "start" in value:
            marked = _field(values, value, marked, result.get("to_name"))
            marks += _marks(values[marked], value)
        else:
            unread = _other_labels(value) or unread
            left_out += 1
    return choices, tuple(sorted(set(marks))), marked, unread, left_out


def _other_labels(value: Mapping[str, Any]) -> str | None:
    """hypertextlabels, paragraphlabels, ...: what labels are called that are not of plain text."""
    return next((name for name in value if name.endswith("labels") and name != "labels"), None)


def _strings(value: Any) -> list[str]:
    strings = value if isinstance(value, list) else [value]
    if not all(isinstance(each, str) for each in strings):
        raise ValueError("bad label: choices are no list of texts")
    return strings


def _field(values: Mapping[str, Any], value: Mapping[str, Any], known: str | None, to_name: Any = None) -> str:
    """The field that a span is of: that which the labelling interface calls `to_name`, `text`, the only one, or that
    where its text stands. `known`: the field of the spans before it; ValueError if this one is of another."""
    texts = [name for name, text in values.items() if isinstance(text, str)]
    said = value.get("text")
    if to_name in texts and (not isinstance(said, str) or said in values[to_name]):
        if known not in (None, to_name):
            raise ValueError(f"bad span: of {to_name!r}, and others of {known!r}; tags are of one text")
        return to_name
    if known is not None:
        return known
    if "text" in texts:
        return "text"
    if isinstance(said, str):
        texts = [name for name in texts if said in values[name]] or texts
    if not texts:
        raise ValueError("no text: the data of the task holds none")
    return max(texts, key=lambda name: len(values[name]))


def _marks(text: str, value: Mapping[str, Any]) -> list[Mark]:
    start, end = value.get("start"), value.get("end")
    if not isinstance(start, int) or not isinstance(end, int):
        raise ValueError(f"bad span: {start!r} to {end!r} are not positions")
    said = value.get("text")
    labels = _strings(value["labels"])
    spans: list[tuple[int, int]] = [(start, end)]
    if isinstance(said, str):
        point = from_utf16(text)
        try:
            spans.append((point(start), point(end)))
        except ValueError:
            pass
        spans = [span for span in spans if _same(text[slice(*span)], said)]
        if not spans:
            raise ValueError(f"bad span: {start} to {end} is {text[start:end]!r}, not {said!r}")
    return [checked_mark(text, *spans[0], label) for label in labels]


def _same(covered: str, said: str) -> bool:
    """Whether a span covers what its task says. Line ends are written in several ways, one of them a backslash and an
    n, which a text may hold as well."""
    return _without_blanks(covered) == _without_blanks(said)


def _without_blanks(text: str) -> str:
    return "".join(text.replace("\\n", "\n").split())


def _minimal(value: Mapping[str, Any]) -> Annotated:
    """An object of JSON_MIN: the data, and of each control its answer, under its name."""
    values = dict(value)
    choices: list[tuple[str, str]] = []
    marks: list[Mark] = []
    marked, unread, answered = None, None, False
    for name, entry in value.items():
        if isinstance(entry, dict) and "choices" in entry:
            choices += [(name, label) for label in _strings(entry["choices"])]
        elif isinstance(entry, list) and any(isinstance(each, dict) and _has_labels(each) for each in entry):
            for each in entry:
                if not isinstance(each, dict):
                    raise ValueError(f"bad span: {json_type(each)} among those of {name!r}")
                if "labels" in each:
                    marked = _field(value, each, marked)
                    marks += _marks(value[marked], each)
                else:  # of another kind, or drawn without a label
                    unread = _other_labels(each) or unread
        else:
            continue
        answered = True
        del values[name]
    labelled = answered or "annotation_id" in value
    return Annotated(
        {name: each for name, each in values.items() if name not in _OWN},
        labelled,
        tuple(dict.fromkeys(choices)),
        tuple(sorted(set(marks))),
        marked,
        plain=True,
        unread=unread,
    )


def _has_labels(span: Mapping[str, Any]) -> bool:
    return "labels" in span or _other_labels(span) is not None


# -- writing -----------------------------------------------------------------------------------------------------


def task_of(data: Mapping[str, Any], answer: Sequence[dict[str, Any]] | None, guess: dict[str, Any] | None) -> Any:
    """A task to import. `answer`: the results of a person; `guess`: what `prediction` gives."""
    return {
        "data": dict(data),
        **({} if answer is None else {"annotations": [{"result": list(answer)}]}),
        **({} if guess is None else {"predictions": [guess]}),
    }


def prediction(results: Sequence[dict[str, Any]], score: float, version: str) -> dict[str, Any]:
    """What a model says of a task, shown to the annotator as a beginning."""
    return {"model_version": version, "score": score, "result": list(results)}


def results_of(text: str, labels: Sequence[str] | None, marks: Sequence[Mark], to_name: str) -> list[dict[str, Any]]:
    """Labels of a text, None where it has spans instead, as results."""
    if labels is not None:
        if not labels:
            return []
        value: dict[str, Any] = {"choices": list(labels)}
        return [{"id": "choice", "from_name": CHOICES, "to_name": to_name, "type": "choices", "value": value}]
    results = []
    for number, (start, end, label) in enumerate(marks):
        value = {"start": start, "end": end, "text": text[start:end], "labels": [label]}
        results.append(
            {"id": f"span{number}", "from_name": LABELS, "to_name": to_name, "type": "labels", "value": value}
        )
    return results


def interface(fields: Sequence[str], labels: Sequence[str], *, spans: bool, several: bool) -> str:
    """The labelling interface that the tasks are for, to be pasted into the settings of a project."""
    from xml.sax.saxutils import quoteattr

    texts = [f"  <Text name={quoteattr(name)} value={quoteattr('$' + name)}/>" for name in fields]
    tag, each = ("Labels", "Label") if spans else ("Choices", "Choice")
    choice = "" if spans else f' choice="{"multiple" if several else "single"}"'
    names = [f"    <{each} value={quoteattr(label)}/>" for label in labels]
    control = [f'  <{tag} name="{LABELS}" toName={quoteattr(fields[0])}{choice}>', *names, f"  </{tag}>"]
    return "\n".join(["<View>", *texts, *control, "</View>", ""])
