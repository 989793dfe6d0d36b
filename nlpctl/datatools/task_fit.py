"""What a data file would mean to a task, for `nlpctl new`: which columns hold what, and how telling the signs are.

Each kind of rows (data/rows/) has an entry in RECOGNISERS, which looks at the Preview of a file. The task with the
surest match is proposed first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nlpctl.config.tasks import Preset, TaskInfo, load_class
from nlpctl.data.readers.conll import TAGS, TOKENS
from nlpctl.data.rows.corpus_rows import CorpusRows
from nlpctl.data.rows.matching_rows import OPPOSITES, MatchingRows
from nlpctl.data.rows.multi_label_rows import SEPARATORS, MultiLabelRows
from nlpctl.data.rows.question_rows import QuestionRows
from nlpctl.data.rows.retrieval_rows import RetrievalRows
from nlpctl.data.rows.tag_scheme import OUTSIDE
from nlpctl.data.rows.tagged_rows import LexicalRows, TaggedRows
from nlpctl.data.rows.task_rows import TaskRows
from nlpctl.data.rows.text_rows import TextRows
from nlpctl.datatools.file_sniffer import NAMES, Preview, few_values, is_tags, says_label
from nlpctl.report.language import Later, later

Columns = Mapping[str, str]  # name in data.columns -> name in the file

_SEVERAL = 0.05  # share of rows with several labels, at the least
# Labels of pairs in plain words, in lower case, for recipes that must say which one means a match. No other numbers are
# here: of 1 and 2, either may be the match.
_MATCH = """
    same match matching matched similar duplicate paraphrase equivalent equal positive related relevant entailment
    yes y true 相似 相同 匹配 一致 等价 相关 是
""".split()
_NO_MATCH = """
    different differ mismatch dissimilar unmatched unrelated irrelevant negative no n none false 0 -1
    不同 不相似 不相同 不匹配 不一致 不等价 不相关 无关 否
""".split()
_UNTAGGED = 0.05  # share of O, at the most, where a text is cut into words rather than searched for entities
_EITHER = ("{}", "{} or {}", "{} or {} or {}")  # one to three labels


@dataclass(frozen=True)
class Match:
    """What a file means to a task: its columns by their names in data.columns, and why (`later`).

    `sure`: how telling the signs are, to compare tasks by. `presets`: values that follow from the rows. `unordered`:
    two labels of pairs, of which the file does not tell which one means a match; the recipe must, in data.labels.
    """

    columns: Columns
    reason: str
    sure: int
    presets: tuple[Preset, ...] = ()
    unordered: tuple[str, ...] = ()


def task_roles(task: TaskInfo) -> tuple[str, ...]:
    """The columns (of data.columns) that a labelled row of the task must have."""
    return _recogniser(task).roles


def match_task(task: TaskInfo, preview: Preview, given: Columns) -> Match | None:
    """What a file would mean to the task; None if it does not look like its data. `given`: columns that are known."""
    return _recogniser(task).match(preview, given)


@dataclass(frozen=True)
class Recogniser:
    """What `nlpctl new` knows of a kind of rows; see `task_roles` and `match_task`."""

    roles: tuple[str, ...]
    match: Callable[[Preview, Columns], Match | None]


def _recogniser(task: TaskInfo) -> Recogniser:
    """That of the task's rows, or of the nearest class that they are derived from."""
    rows: type[TaskRows] = load_class(task.rows)
    known = (RECOGNISERS[each] for each in rows.__mro__ if each in RECOGNISERS)
    # A task of the user's own with rows of its own is written by hand: `new` proposes it for no file.
    return next(known, Recogniser(("text",), lambda preview, given: None))


def _match_texts(preview: Preview, given: Columns) -> Match | None:
    """A text, or two that belong together, and a column of labels."""
    pair = preview.pair(given)
    label = preview.role("label", given, ("label",), pair or ())
    text = pair[0] if pair else preview.role("text", given, ("text",), [label] if label else [])
    if text is None or label is None:
        return None
    names = {"text": text, **({"text_pair": pair[1]} if pair else {}), "label": label}
    column = preview.column(label)
    labels = () if column is None else column.values
    if not labels:
        says = later("{!r} is one of many labels", label)
    elif len(labels) > len(_EITHER):
        says = later("{!r} is one of {} labels", label, len(labels))
    else:
        says = later("{!r} is {}", label, later(_EITHER[len(labels) - 1], *labels))
    return Match(names, later("{}, {}", _hold_texts(pair or (text,)), says), sure=5)


def _hold_texts(names: Sequence[str]) -> Later:
    return later("{!r} and {!r} hold texts", *names) if len(names) > 1 else later("{!r} holds texts", *names)


def _match_matching_pairs(preview: Preview, given: Columns) -> Match | None:
    """As `_match_texts`, of two texts with two labels.

    Labels such as 0 and 1 are a sign of this task. Any two others are its labels only where somebody asks for it: they
    are less sure than a class per text.
    """
    match = _match_texts(preview, given)
    if match is not None and "text_pair" not in match.columns:
        names = [column.name for column in preview.of_kind("text") if column.name != match.columns["label"]]
        first = given.get("text", names[0] if names else "")
        others = [name for name in names if name != first]
        # where names do not tell that two texts belong together, only the number of columns can
        match = _match_texts(preview, {**given, "text": first, "text_pair": others[0]}) if len(others) == 1 else None
    column = None if match is None else preview.column(match.columns["label"])
    if match is None or column is None or len(column.values) != 2:
        return None
    says = later("{!r} says {}", match.columns["label"], later(_EITHER[1], *column.values))
    texts = _hold_texts((match.columns["text"], match.columns["text_pair"]))
    match = dataclasses.replace(match, reason=later("{}, {}", texts, says))
    if tuple(value.lower() for value in column.values) in OPPOSITES:
        return dataclasses.replace(match, sure=6)
    ordered = _no_match_first(column.values)
    if ordered is None:
        return dataclasses.replace(match, sure=3, unordered=column.values)
    return dataclasses.replace(match, sure=3, presets=(matching_labels(*ordered),))


def _no_match_first(labels: Sequence[str]) -> tuple[str, str] | None:
    """Two labels with the one that means a match last; None if their words do not tell."""
    for words, place in ((_MATCH, 1), (_NO_MATCH, 0)):
        meant = [label for label in labels if label.strip().lower() in words]
        if len(meant) == 1:
            other = next(label for label in labels if label != meant[0])
            return (other, meant[0]) if place else (meant[0], other)
    return None


def matching_labels(no_match: str, match: str) -> Preset:
    """data.labels of a recipe for pairs of texts."""
    return Preset("data.labels", [no_match, match], later("{} means that the two texts match", match))


def _match_label_lists(preview: Preview, given: Columns) -> Match | None:
    """A text, and a column of lists of labels, or of labels with a sign between them."""
    separators = {
        column.name: separator
        for column in preview.columns
        if (separator := _separator(preview, column.name)) is not None
    }
    label = given.get("label") or next((name for name in NAMES["label"] if name in separators), None)
    label = label or next(iter(separators), None)
    text = preview.role("text", given, ("text",), [label] if label else [])
    if text is None or label not in separators:  # one that is given may hold single labels
        return None
    separator = separators[label]
    columns = {"text": text, "label": label}
    if not separator:
        return Match(columns, later("{!r} holds texts, {!r} lists of labels", text, label), sure=7)
    presets = () if separator == SEPARATORS[0] else (Preset("data.label_separator", separator),)
    why = later("{!r} holds texts, {!r} labels with {!r} between them", text, label, separator)
    return Match(columns, why, 6, presets)


def _separator(preview: Preview, name: str) -> str | None:
    """What stands between the labels of a column, "" where it holds lists; None if it does not hold several labels."""
    values = [row[name] for row in preview.rows if row.get(name)]
    if values and all(isinstance(value, list) and all(isinstance(each, str) for each in value) for value in values):
        labels = [each for value in values for each in value]
        return "" if name in preview.questions or few_values(labels, says_label(name)) else None
    if not all(isinstance(value, str) for value in values):
        return None
    for separator in SEPARATORS:
        several = sum(separator in value for value in values)
        parts = [part.strip() for value in values for part in value.split(separator)]
        if several > _SEVERAL * len(values) and few_values(parts, says_label(name)):
            return separator
    return None


def _match_retrieval_pairs(preview: Preview, given: Columns) -> Match | None:
    """Two texts that belong together; labels such as 0 and 1, and hard negatives, where there are such columns."""
    pair = preview.pair(given)
    if pair is None:
        return None
    names = dict(zip(("text", "text_pair"), pair, strict=True)) | {role: given[role] for role in given}
    label = preview.role("label", given, ("label",), pair)
    column = None if label is None else preview.column(label)
    if label is not None and column is not None and tuple(map(str.lower, column.values)) in OPPOSITES:
        names["label"] = label
    texts = preview.of_kind("text")
    negative = next((column.name for column in texts if column.name.casefold() in NAMES["negative"]), None)
    names |= {"negative": negative} if negative is not None else {}
    return Match(names, later("{!r} and {!r} hold texts that belong together", *pair), sure=4)


def _match_questions(preview: Preview, given: Columns) -> Match | None:
    """A question, a text, and answers with their places in the text."""
    answers = preview.role("answers", given, ("answers",))
    question = preview.role("question", given, ("text", "label"))
    context = preview.role("context", given, ("text", "label"), [question] if question else [])
    if answers is None or question is None or context is None:
        return None
    columns = {"question": question, "context": context, "answers": answers}
    values = [row.get(answers) for row in preview.rows]
    unanswered = sum(not (value.get("text") if isinstance(value, Mapping) else value) for value in values)
    why = later(
        "{:,} of the first {:,} questions have no answer in their text: the model may say so",
        unanswered,
        len(preview.rows),
    )
    presets = (Preset("decode.null_threshold", 0.0, why),) if unanswered else ()
    return Match(columns, later("there are questions, texts, and where the answers are in them"), 9, presets)


def _match_tagged(preview: Preview, given: Columns) -> Match | None:
    """Lists of words, or of characters, and of their tags."""
    columns = _tagged_columns(preview, given)
    if columns is None:
        return None
    words = [word for row in preview.rows for word in row.get(columns[0]) or ()]
    characters = all(len(str(word)) == 1 for word in words)
    why = later("every word of the files is one character, so predict cuts its texts the same way")
    presets = (Preset("data.unit", "characters", why),) if characters else ()
    why = later("there are characters and their tags" if characters else "there are words and their tags")
    names = dict(zip(("tokens", "tags"), columns, strict=True))
    if preview.marked is not None:  # sentences without a span do not tell where their text is
        names["text"] = preview.marked
        why = later("there are texts with spans")
    return Match(names, why, 8, presets)


def _match_analysed(preview: Preview, given: Columns) -> Match | None:
    """As `_match_tagged`; surer than that where almost every character has a tag."""
    match = _match_tagged(preview, given)
    if match is None:
        return None
    tags = [tag for row in preview.rows for tag in row.get(match.columns["tags"]) or ()]
    analysed = tags.count(OUTSIDE) <= _UNTAGGED * len(tags)
    why = later("almost every character has a tag: words and their classes") if analysed else match.reason
    return Match(match.columns, why, match.sure + 1 if analysed and match.presets else 2)


def _tagged_columns(preview: Preview, given: Columns) -> tuple[str, str] | None:
    """The columns of words and of their tags."""
    if preview.format in ("conll", "segmented"):
        return (TOKENS, TAGS) if preview.column(TAGS) is not None else None
    lists = [column.name for column in preview.of_kind("list")]
    tags = given.get("tags") or next(
        (name for name in lists if all(is_tags(row[name]) for row in preview.rows[:50] if row.get(name))),
        next((name for name in lists if name.casefold() in NAMES["tags"] and _are_numbers(preview, name)), None),
    )
    tokens = preview.role("tokens", given, ("list",), [tags] if tags else [])
    return None if tags is None or tokens is None else (tokens, tags)


def _are_numbers(preview: Preview, name: str) -> bool:
    """Whether lists hold whole numbers, as many as there are words: tags whose names the recipe must tell."""
    tokens = preview.role("tokens", {}, ("list",), [name])
    rows: Sequence[Mapping[str, Any]] = [row for row in preview.rows if row.get(name)]
    return (
        tokens is not None
        and bool(rows)
        and all(
            isinstance(row.get(tokens), list)
            and len(row[tokens]) == len(row[name])
            and all(type(tag) is int for tag in row[name])
            for row in rows
        )
    )


def _match_corpus(preview: Preview, given: Columns) -> Match | None:
    """Texts, and no column that is called a label."""
    text = preview.role("text", given, ("text",))
    labelled = any(column.name.strip().casefold() in ("label", "labels", "标签") for column in preview.columns)
    if text is None or (labelled and "text" not in given):
        return None
    return Match({"text": text}, later("there are texts, and no labels"), sure=1)


RECOGNISERS: Mapping[type[TaskRows], Recogniser] = {
    CorpusRows: Recogniser(("text",), _match_corpus),
    TextRows: Recogniser(("text", "label"), _match_texts),
    MatchingRows: Recogniser(("text", "text_pair", "label"), _match_matching_pairs),
    MultiLabelRows: Recogniser(("text", "label"), _match_label_lists),
    RetrievalRows: Recogniser(("text", "text_pair"), _match_retrieval_pairs),
    QuestionRows: Recogniser(("question", "context", "answers"), _match_questions),
    TaggedRows: Recogniser(("tokens", "tags"), _match_tagged),
    LexicalRows: Recogniser(("tokens", "tags"), _match_analysed),
}
