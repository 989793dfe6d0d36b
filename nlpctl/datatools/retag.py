"""`nlpctl data retag`: training data that keep an analyser's own words and tags, with the entities of other data."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import task_info
from nlpctl.data.changed_rows import warn_of_labels
from nlpctl.data.open_split import open_files
from nlpctl.data.readers.row import RowSource
from nlpctl.data.rows.examples import BadRowLog, ExampleReader, iter_examples
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.tag_scheme import OUTSIDE, Span, TagScheme, detect_scheme
from nlpctl.data.rows.tagged_rows import TaggedExample, first_places
from nlpctl.data.rows.task_rows import TaskRows, task_rows
from nlpctl.datatools.split import refuse_files
from nlpctl.errors import UserError
from nlpctl.files import staged_file, writing
from nlpctl.inference.open_model import find_model, open_trained_model
from nlpctl.models.folder import read_labels
from nlpctl.models.source import resolve_source
from nlpctl.names import counted, did_you_mean, listed
from nlpctl.runtime.process import set_up_process
from nlpctl.spelling import option

if TYPE_CHECKING:
    pass


# -- entities of one guideline put among the words of an analyser -----------------------------------------------------
#
# Positions are those of tokens. Imports neither Paddle nor NumPy.

# What an analyser calls a name that is no entity: other person, other place, other organisation.
PLAIN = {"PER": "nr", "LOC": "ns", "ORG": "nt"}


@dataclass
class Changes:
    """What retagging changed. `agreed`: entities that the analyser found itself; `inserted`: the others, by type.

    `plain`: names of the analyser, by type, that are none in the data. `cut`: words that an entity replaced or cut.
    `changed`: sentences with other tags than the analyser's.
    """

    sentences: int = 0
    changed: int = 0
    agreed: int = 0
    cut: int = 0
    inserted: Counter[str] = field(default_factory=Counter)
    plain: Counter[str] = field(default_factory=Counter)

    def add(self, words: Sequence[Span], entities: Sequence[Span], plain: Mapping[str, str]) -> list[Span]:
        """`merged`, counted."""
        spans, own, taken = merged(words, entities, plain), set(words), covered(entities)
        self.sentences += 1
        self.changed += spans != list(words)
        self.agreed += sum(entity in own for entity in entities)
        self.inserted.update(entity.type for entity in entities if entity not in own)
        overlapped = [word for word in words if not taken.isdisjoint(range(word.start, word.end))]
        self.cut += len(set(overlapped) - set(entities))
        self.plain.update(word.type for word in words if word.type in plain and word not in overlapped)
        return spans

    def to_json(self) -> dict[str, Any]:
        """For --json."""
        counts = {"sentences": self.sentences, "changed_sentences": self.changed, "agreed": self.agreed}
        return {**counts, "inserted": dict(self.inserted), "cut_words": self.cut, "made_plain": dict(self.plain)}


def merged(words: Sequence[Span], entities: Sequence[Span], plain: Mapping[str, str]) -> list[Span]:
    """The entities, and what they leave of the words, in order; a word around an entity falls in two.

    `plain`: type of a word that is no entity of the data to the type that it gets.
    """
    taken, spans = covered(entities), list(entities)
    for kind, start, end in words:
        places = [place for place in range(start, end) if place not in taken]
        begins = [place for place in places if place == start or place - 1 in taken]
        ends = [place + 1 for place in places if place + 1 == end or place + 1 in taken]
        spans += [Span(plain.get(kind, kind), *part) for part in zip(begins, ends, strict=True)]
    return sorted(spans, key=lambda span: span.start)


def covered(spans: Sequence[Span]) -> set[int]:
    """The positions in `spans`."""
    return {place for span in spans for place in range(span.start, span.end)}


BATCH = 64
CHUNK_BATCHES = 32  # sentences sorted by length together: this many batches
JSONL = ".jsonl"


@dataclass(frozen=True)
class RetagResult:
    """What was changed; `new_types`: types of the data that the model does not know, each with its first place.

    `skipped`: bad rows that were left out (data.on_bad_row: skip).
    """

    changes: Changes
    new_types: dict[str, str] = field(default_factory=dict)
    skipped: int = 0

    def to_json(self) -> dict[str, Any]:
        """For --json."""
        return {**self.changes.to_json(), "new_types": self.new_types, "skipped_rows": self.skipped}

    def lines(self) -> list[str]:
        """For the console, line by line."""
        changes, new = self.changes, self.changes.inserted
        of_file, plain = counted(changes.agreed + new.total(), "entities"), changes.plain
        lines = [
            f"{counted(changes.sentences, 'sentences')}, {changes.changed:,} of them changed",
            f"{of_file} of the file: {changes.agreed:,} as the model has them, {new.total():,} others{_each(new)}",
            f"{counted(changes.cut, 'words')} of the model made room for them",
        ]
        if plain:
            lines.append(f"{counted(plain.total(), 'names')} of the model became plain names{_each(plain)}")
        for kind, where in self.new_types.items():
            remark = f"{kind} is a type that the model does not know (first at {where})"
            lines.append(f"{remark}; to write one that it knows: {option('map')} {kind}=TYPE")
        if self.skipped:
            lines.append(f"{counted(self.skipped, 'bad rows')} left out")
        return lines


def _each(counts: Counter[str]) -> str:
    listed = ", ".join(f"{kind} {count:,}" for kind, count in sorted(counts.items()))
    return f" ({listed})" if listed else ""


@dataclass(frozen=True)
class _Given:
    """The tagged sentences of a file. `types`: the model's name of each of its types."""

    rows: TaskRows
    source: RowSource
    labels: LabelSet
    scheme: TagScheme | None  # None: every tag is O
    types: Mapping[str, str]

    def examples(self, log: BadRowLog) -> Iterator[Any]:
        return iter_examples(self.source, ExampleReader(self.rows, self.labels), log)

    def entities(self, example: TaggedExample) -> list[Span]:
        """In tokens, as the model calls them."""
        tags = [self.labels.name(i) for i in example.tags or ()]
        entities = [] if self.scheme is None else self.scheme.entities(tags)
        return [span._replace(type=self.types[span.type]) for span in entities]


def retag(
    recipe: Recipe,
    file: Path,
    output: Path,
    *,
    renamed: Mapping[str, str] | None = None,
    plain: Mapping[str, str] | None = None,
    overwrite: bool = False,
) -> RetagResult:
    """Write `output`: the sentences of `file` with the words that the model of `recipe` finds, and the file's entities.

    `renamed`: types of the file to those that are written. `plain`: what names of the model become that the file does
    not have, in place of datatools/retag.py's PLAIN, for types that the file tags. A name that ends in .jsonl gets JSON
    lines, any other a token and its tag per line. Memory is constant.

    Raises UserError for bad rows (by data.on_bad_row), tags of no scheme, an existing output, and a model that tags
    entities alone.
    """
    if not task_info(recipe.task).tags:
        hint = "give a lexical analyser, such as a converted LAC"
        raise UserError(f"a model for {recipe.task} does not tag words", recipe.where("task"), hint)
    refuse_files([output], overwrite)
    rows = task_rows(recipe.task, recipe.data)
    model_source = find_model(recipe)
    folder = resolve_source(model_source).folder
    assert folder is not None, "find_model gives a folder"
    labels, _ = read_labels(folder)
    known = set(_types(labels))
    given, new = _read(rows, file, dict(renamed or {}), known)
    log = BadRowLog(recipe.data.on_bad_row)
    for _ in given.examples(log):  # all rows are read first: a bad last line is told before the work
        pass
    log.finish()
    named = set(given.types.values())
    wanted = {**{kind: name for kind, name in PLAIN.items() if name in known}, **(plain or {})}
    _check_plain(plain or {}, known)
    model = open_trained_model(recipe, set_up_process(recipe), model_source, BATCH)
    from nlpctl.engines.pipeline import chunks, prediction_pipeline
    from nlpctl.tasks.token_classification import predicted_tags

    task: Any = model.task  # TokenClassification
    if not task.in_words:
        message = "this model tags entities alone, so it has no words to keep"
        raise UserError(message, model_source, "give a lexical analyser, such as a converted LAC")
    changes, made_plain = Changes(), {kind: name for kind, name in wanted.items() if kind in named}

    def finish(examples: Sequence[TaggedExample], predictions: Sequence[Sequence[Any]]) -> bytes:
        lines = []
        for example, parts in zip(examples, predictions, strict=True):
            words = task.scheme.entities([labels[tag] for tag in predicted_tags(parts)])
            tags = task.scheme.tags(changes.add(words, given.entities(example), made_plain), len(example))
            lines.append(_written(example.words(), tags, output))
        return "".join(lines).encode()

    pipeline = prediction_pipeline(task, model.encoder, model.predictor)
    read = chunks(given.examples(BadRowLog("skip")), BATCH * CHUNK_BATCHES)
    with writing(output, "name another file: @[output]"), staged_file(output) as stream:
        with closing(pipeline.stream(read, BATCH, finish)) as parts:
            for part in parts:
                stream.write(part)
    warn_of_labels(recipe.data, output)
    return RetagResult(changes, new, log.total)


def _read(rows: TaskRows, file: Path, renamed: dict[str, str], known: set[str]) -> tuple[_Given, dict[str, str]]:
    """The tags of `file`, which is read once for them, and the types among them that are not `known`.

    UserError: the tags follow no scheme, or `renamed` names a type that is not there.
    """
    if not file.is_file() and file.exists():
        raise UserError("this is no regular file, and it is read several times", str(file), "write it to a file first")
    source = open_files(rows, (file,), rows.required(labelled=True), "FILE")
    places = first_places(source, rows.label_column)
    tags = sorted(places)
    scheme = detect_scheme(tags, str(file), places) if set(tags) - {OUTSIDE} else None
    kinds: dict[str, str] = {}
    for tag in tags:
        if scheme is not None and tag != OUTSIDE:
            kinds.setdefault(scheme.split(tag)[1], places[tag])
    for name in (name for name in renamed if name not in kinds):
        message = f"no tag of {file} has the type {name!r}{did_you_mean(name, kinds)}"
        raise UserError(message, "@[map]", f"types there: {listed(kinds)}")
    types = {kind: renamed.get(kind, kind) for kind in kinds}
    new = {types[kind]: place for kind, place in kinds.items() if types[kind] not in known}
    return _Given(rows, source, LabelSet(tags), scheme, types), new


def _check_plain(plain: Mapping[str, str], known: set[str]) -> None:
    for name in (name for name in [*plain, *plain.values()] if name not in known):
        message = f"the model has no type {name!r}{did_you_mean(name, known)}"
        raise UserError(message, "@[plain]", f"types of the model: {listed(sorted(known))}")


def _types(labels: Sequence[str]) -> set[str]:
    scheme = detect_scheme(labels, "the model's tags")
    return {scheme.split(tag)[1] for tag in labels if tag != OUTSIDE}


def _written(words: Sequence[str], tags: Sequence[str], output: Path) -> str:
    """A sentence as it stands in the file. UserError for a token that a line of a token and a tag cannot hold."""
    if output.suffix.lower() == JSONL:
        return json.dumps({"tokens": list(words), "tags": list(tags)}, ensure_ascii=False) + "\n"
    for word in words:
        if not word.strip(" ") or any(sign in word for sign in "\t\n\r\002"):
            hint = f"write JSON lines: @[output] {output.with_suffix(JSONL)}"
            raise UserError(f"the token {word!r} cannot stand on a line with its tag", str(output), hint)
    return "".join(f"{word}\t{tag}\n" for word, tag in zip(words, tags, strict=True)) + "\n"
