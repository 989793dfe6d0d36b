"""Rows of token classification: texts cut into words, with one tag per word."""

from __future__ import annotations

import dataclasses
import unicodedata
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

from nlpctl import console
from nlpctl.config.input_formats import ENDINGS, INPUT_FORMATS
from nlpctl.config.schema import DataSection
from nlpctl.data.readers.annotated import Annotated, MarkedWords, tags_from_marks, with_text
from nlpctl.data.readers.row import BadWord, Row, RowSource, place
from nlpctl.data.rows.labels import LabelSet, known_label, label_name
from nlpctl.data.rows.tag_scheme import Span, TagScheme, detect_scheme
from nlpctl.data.rows.task_rows import Doubt, TaskRows
from nlpctl.data.rows.text_rows import checked_text
from nlpctl.data.text.word_spans import character_spans, is_blank, is_ideograph, word_spans
from nlpctl.names import counted, listed
from nlpctl.report.language import later
from nlpctl.spelling import option

BIO = TagScheme("BIO", "prefix")  # of tags that are made of marks


@dataclass(frozen=True, slots=True)
class TaggedExample:
    """A text cut into words, with the tag of each.

    `bounds`: int32 [2 * words]; word i is text[bounds[2i]:bounds[2i + 1]], in characters. `tags`: int32 [words], the
    ids of their tags in the label set; None where not wanted. Of "Bob sings" the bounds are 0, 3, 4, 9.
    `in_words`: whether the row gave words; the text was then put together from them, unless it stood next to them.
    `marked`: the entities as a person marked them, in characters, where one ends inside a word: no tags say that, so
    each word has the tag of the first entity in it. None: they are those of the tags.

    Arrays of 4-byte integers, because a split of a million sentences is held in memory.
    """

    text: str
    bounds: array
    tags: array | None
    in_words: bool
    marked: tuple[Span, ...] | None = None

    def __len__(self) -> int:
        """The number of words."""
        return len(self.bounds) // 2

    @property
    def byte_length(self) -> int:
        """Proportional to tokens, without tokenising: UTF-8 bytes of the text."""
        return len(self.text.encode())

    @property
    def by_character(self) -> bool:
        """Whether every word is a single character."""
        return all(end - start == 1 for start, end in zip(self.bounds[::2], self.bounds[1::2], strict=True))

    def entities(self, scheme: TagScheme, names: Sequence[str]) -> list[Span]:
        """Those of a labelled example, in characters. `names`: of the tags."""
        assert self.tags is not None, "the example is a labelled one"
        if self.marked is not None:
            return [*self.marked]
        return in_characters(self.bounds, scheme, [names[tag] for tag in self.tags])

    def word(self, i: int) -> str:
        return self.text[self.bounds[2 * i] : self.bounds[2 * i + 1]]

    def spans(self, start: int = 0, end: int | None = None) -> list[tuple[int, int]]:
        """Where the words at the positions [start, end) stand in the text."""
        bounds = self.bounds[2 * start : None if end is None else 2 * end]
        return list(zip(bounds[::2], bounds[1::2], strict=True))

    def words(self, start: int = 0, end: int | None = None) -> list[str]:
        """The words at the positions [start, end)."""
        return [self.word(i) for i in range(start, len(self) if end is None else end)]


class TaggedRows(TaskRows):
    """Rows of token classification: lists of words and tags; for prediction also plain text."""

    in_windows = True
    annotation = "spans"
    endings = {**ENDINGS, ".tsv": "joined", **dict.fromkeys((".txt", *INPUT_FORMATS["conll"].endings), "conll")}

    @property
    def plain_column(self) -> str:
        return self.data.columns.text

    @property
    def label_column(self) -> str:
        return self.data.columns.tags

    def required(self, labelled: bool) -> tuple[str, ...]:
        return (self.data.columns.tokens, self.data.columns.tags) if labelled else ()

    def collect_labels(self, source: RowSource) -> LabelSet:
        """All tags, sorted. UserError if they follow no scheme, or mix several; it names the first place of a tag."""
        places = first_places(source, self.data.columns.tags)
        detect_scheme(sorted(places), source.description, places)
        return LabelSet.collect(places, source.description)

    def read(self, values: Mapping[str, Any], labels: LabelSet | None) -> TaggedExample:
        columns = self.data.columns
        if columns.tokens not in values:
            return self._plain(values)
        words = _checked_words(values[columns.tokens])
        text = values.get(columns.text)
        bounds = None if not isinstance(text, str) else located(words, text)
        tags = None if labels is None else _tag_ids(values[columns.tags], len(words), labels)
        if bounds is not None and isinstance(values[columns.tokens], MarkedWords):
            return self._marked(self._plain(values), bounds, tags, labels)
        if bounds is None and isinstance(text, str) and labels is None:
            # An answer says where entities stand in the text, and the caller's is another than that of the tokens.
            raise ValueError(
                f"tokens are not those of the text: {columns.text!r} is not {columns.tokens!r} with blanks between; "
                "leave one of the two out"
            )
        if bounds is None:
            text, bounds = put_together(words)
        return TaggedExample(checked_text(text, "text"), bounds, tags, in_words=True)

    def _marked(
        self, example: TaggedExample, bounds: array, tags: array | None, labels: LabelSet | None
    ) -> TaggedExample:
        """`example` with the words that predict reads, and the tags of words with `bounds`, which marks have cut."""
        if tags is None or labels is None or bounds == example.bounds:
            return dataclasses.replace(example, tags=tags)
        marked = in_characters(bounds, BIO, [labels.name(tag) for tag in tags])
        starts, ends = example.bounds[::2], example.bounds[1::2]
        widened: list[Span] = []  # in words
        for mark in marked:
            first = max(bisect_right(ends, mark.start), widened[-1].end if widened else 0)
            end = bisect_left(starts, mark.end)
            if first < end:
                widened.append(Span(mark.type, first, end))
        names = BIO.tags(widened, len(example))
        example = dataclasses.replace(example, tags=_tag_ids(names, len(names), labels))
        exact = marked == in_characters(example.bounds, BIO, names)
        return example if exact else dataclasses.replace(example, marked=tuple(marked))

    def _plain(self, values: Mapping[str, Any]) -> TaggedExample:
        columns = self.data.columns
        if columns.text not in values:
            raise ValueError(f"missing key {columns.tokens!r} or {columns.text!r}: the keys are {listed(values)}")
        if isinstance(values[columns.text], list):  # .tsv is read as joined, whose cells are lists
            message = f"{columns.text} is a list, and there is no {columns.tokens!r}"
            raise ValueError(f"{message}: a table of texts is read with {option('format', 'tsv')}")
        text = checked_text(values[columns.text], "text")
        spans = character_spans(text) if self.data.unit == "characters" else word_spans(text)
        if not spans:
            raise ValueError("blank text: nothing but white space and invisible characters")
        return TaggedExample(text, array("i", chain.from_iterable(spans)), None, in_words=False)

    def check_training(self, examples: Sequence[Any], labels: LabelSet, where: str) -> None:
        """UserError if the tags follow no scheme; says so where predict would cut texts in another way, and where it
        cannot find what is marked."""
        scheme = detect_scheme(labels.names, where)
        marked = [example for example in examples if example.marked is not None]
        if marked:
            self._warn_of_parts(marked, scheme, labels, where)
        if self.data.unit == "words" and all(example.by_character for example in examples):
            console.note(
                f"the tokens of {where} are single characters, but predict cuts plain text into words such as 1949; "
                "set data.unit: characters"
            )

    def _warn_of_parts(
        self, examples: Sequence[TaggedExample], scheme: TagScheme, labels: LabelSet, where: str
    ) -> None:
        parts = []
        for example in examples:
            found = dataclasses.replace(example, marked=None).entities(scheme, labels.names)
            parts += [(example, span) for span in example.marked or () if span not in found]
        example, span = parts[0]
        word = next(each for each in example.spans() if each[1] > span.start)
        words = f"{example.text[span.start : span.end]!r} in {example.text[slice(*word)]!r}"
        remedy = "; set data.unit: characters" if self.data.unit == "words" else ""
        console.warn(
            f"{counted(len(parts), 'marked spans')} of {where} end inside a word, as {words}: a tag is that of a whole "
            f"word, so they cannot be found, and count as missed{remedy}"
        )

    def passages(self, example: TaggedExample) -> dict[str, str]:
        return {self.data.columns.text: example.text}

    def texts(self, example: TaggedExample) -> Iterator[str]:
        yield " ".join(example.words())  # as the network reads them, one by one

    def label_names(self, example: TaggedExample, labels: LabelSet) -> tuple[str, ...]:
        scheme = detect_scheme(labels.names, "the tags")
        return tuple(span.type for span in example.entities(scheme, labels.names))

    def target(self, example: TaggedExample) -> Hashable:
        # Bytes are hashable and compare as fast as integers; arrays do neither.
        assert example.tags is not None
        return example.tags.tobytes(), example.marked

    def doubts(self, example: TaggedExample, labels: LabelSet) -> Iterator[Doubt]:
        assert example.tags is not None
        tags = [labels.name(i) for i in example.tags]
        broken = detect_scheme(labels.names, "the tags").first_break(tags)
        if broken is not None:
            tag, before = [*tags, later("the end")][broken], [later("the beginning"), *tags][broken]
            yield later("tags break their scheme"), later("{} after {}, at word {}", tag, before, broken + 1)

    def from_annotation(self, record: Annotated) -> Mapping[str, Any]:
        columns = self.data.columns
        values = with_text(record, columns.text, columns.tokens, columns.tags)
        if record.marked is not None:
            values[columns.text] = record.values[record.marked]
        text = values.get(columns.text)
        if not record.labelled or not isinstance(text, str):
            return values
        if record.unread is not None:
            raise ValueError(f"bad span: of {record.unread}; label plain text (Text and Labels)")
        cut = character_spans if self.data.unit == "characters" else word_spans
        words, tags = tags_from_marks(text, record.marks, cut)
        return {**values, columns.tokens: words, columns.tags: tags}

    def columns_to_fill(self, example: TaggedExample) -> dict[str, Any]:
        return {self.data.columns.tokens: example.words(), self.data.columns.tags: None}

    def input_columns(self, example: TaggedExample) -> dict[str, Any]:
        words = {self.data.columns.tokens: example.words()} if example.in_words else {}
        return {**words, self.data.columns.text: example.text}

    def key(self, example: TaggedExample) -> Hashable:
        return example.text, example.bounds.tobytes()

    def unlabelled(self, example: TaggedExample) -> TaggedExample:
        return dataclasses.replace(example, tags=None)

    def with_answer(self, example: TaggedExample, answer: Mapping[str, Any], labels: LabelSet) -> TaggedExample:
        return dataclasses.replace(example, tags=array("i", map(labels.id, answer["tags"])))

    def words(self, example: TaggedExample) -> list[tuple[str, ...]]:
        return [tuple(example.words())]

    def with_words(self, example: TaggedExample, texts: Sequence[Sequence[str]]) -> TaggedExample | None:
        text, bounds = put_together(texts[0])
        return None if text.isspace() else TaggedExample(text, bounds, None, example.in_words)


class LexicalRows(TaggedRows):
    """Rows of lexical analysis: tagged characters; plain text is cut into characters whatever data.unit says."""

    def __init__(self, data: DataSection):
        super().__init__(dataclasses.replace(data, unit="characters"))


def first_places(source: RowSource, column: str) -> dict[str, str]:
    """Each tag of `source` and where it first stands; `column` holds the list of a row's tags. Bad rows have none."""
    places: dict[str, str] = {}
    for row in source:
        tags = row.values[column] if isinstance(row, Row) else None
        if isinstance(row, Row) and isinstance(tags, list | tuple):
            try:
                names = [label_name(tag) for tag in tags]
            except ValueError:
                continue
            for number, name in enumerate(names):
                if name not in places:
                    places[name] = place(row.source, row.line_of(number))
    return places


def in_characters(bounds: array, scheme: TagScheme, tags: Sequence[str]) -> list[Span]:
    """The entities that the tags of words say, in characters. `bounds`: of the words, as those of a TaggedExample."""
    return [Span(kind, bounds[2 * start], bounds[2 * end - 1]) for kind, start, end in scheme.entities(tags)]


def put_together(words: Sequence[str]) -> tuple[str, array]:
    """Joins words to a text; returns it and the bounds of the words in it.

    Words are joined without spaces if all are single characters or some are white space, as in files tagged by
    character. Otherwise a space separates two words, unless one of them ends or starts in a script without spaces.
    """
    by_character = all(len(word) == 1 for word in words) or any(word.isspace() for word in words)
    parts, bounds, length = [words[0]], array("i", (0, len(words[0]))), len(words[0])
    for before, word in pairwise(words):
        if not (by_character or _unspaced(before[-1]) or _unspaced(word[0])):
            parts.append(" ")
            length += 1
        parts.append(word)
        bounds.extend((length, length + len(word)))
        length += len(word)
    return "".join(parts), bounds


def located(words: Sequence[str], text: str) -> array | None:
    """The bounds of the words in `text`, where only white space and invisible characters are between; else None."""
    bounds, position = array("i"), 0
    for word in words:
        start = text.find(word, position)
        # What belongs to no word may stand between two. Anything else means that the text is not that of the tokens.
        if start < 0 or not all(map(is_blank, text[position:start])):
            return None
        position = start + len(word)
        bounds.extend((start, position))
    return bounds if all(map(is_blank, text[position:])) else None


def _unspaced(character: str) -> bool:
    """Whether a character belongs to Chinese or Japanese writing, or is full-width; Korean has spaces."""
    code = ord(character)
    # Hangul is wide (W) as well, but Korean separates words by spaces.
    if 0x1100 <= code <= 0x11FF or 0xAC00 <= code <= 0xD7FF:
        return False
    return is_ideograph(character) or unicodedata.east_asian_width(character) in "WF"


def _checked_words(value: Any) -> list[str]:
    """The tokens of a row. White space may be a token; ValueError for anything that is no text."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"tokens are not a list: got {type(value).__name__}")
    if not value:
        raise ValueError("no tokens")
    for number, word in enumerate(value, 1):
        if not isinstance(word, str):
            raise ValueError(f"token is not a string: token {number} is of type {type(word).__name__}")
        if not word:
            raise ValueError(f"empty token: token {number}; are two separators glued together?")
    return list(value)


def _tag_ids(value: Any, words: int, labels: LabelSet) -> array:
    if not isinstance(value, list | tuple):
        raise ValueError(f"tags are not a list: got {type(value).__name__}")
    if len(value) != words:
        raise ValueError(f"tags do not match the tokens: {words} tokens, {len(value)} tags")
    ids = array("i")
    for number, tag in enumerate(value):
        try:
            ids.append(known_label(tag, labels))
        except ValueError as error:
            raise BadWord(f"{error} (word {number + 1})", number) from None
    return ids
