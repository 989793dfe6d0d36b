"""`nlpctl data next`: the rows whose labels would teach a model most.

unlabelled rows --network--> how unsure it is, and vectors --> the most uncertain --k-centre--> rows to label
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpctl import console
from nlpctl.config.schema import SPLITS, Recipe
from nlpctl.config.tasks import known_tasks, task_info
from nlpctl.console import display
from nlpctl.data.changed_rows import warn_of_labels
from nlpctl.data.inspection.report import shortened
from nlpctl.data.open_split import has_split
from nlpctl.data.passthrough_columns import GIVEN
from nlpctl.data.predict_input import PredictInput, ReadPosition, rows_at
from nlpctl.data.readers.row import BadRow, Row, place
from nlpctl.data.rows.examples import ExampleReader
from nlpctl.data.rows.task_rows import TaskRows
from nlpctl.data.text.truncated import warn_of_truncated
from nlpctl.data.training_data import labelled_texts, text_key
from nlpctl.datatools.convert import (
    JSONL,
    AnnotationWriter,
    Guess,
    answer_of,
    interface_of,
    refuse_kind,
    refuse_outputs,
    write_records,
)
from nlpctl.errors import UserError
from nlpctl.inference.open_model import find_network
from nlpctl.inference.predict import check_bad_row, refuse_output
from nlpctl.models.source import resolve_source
from nlpctl.runtime.interrupt import sigterm_interrupts
from nlpctl.runtime.process import set_up_process

if TYPE_CHECKING:
    import numpy as np

    from nlpctl.datatools.uncertain import Doubt
    from nlpctl.engines.trained import TrainedModel

POOL = 10  # uncertain rows among which diversity chooses, per row that is wanted
CHUNK = 2048  # rows answered together, sorted by length
CHOSEN = "chosen"  # the key that tells of a row why it was chosen


@dataclass(frozen=True)
class ChosenRow:
    """A row to label. `values`: its keys as the file has them, with the columns to fill in.

    `predicted`: the answer of the model; `confidence`: the probability in it where it is least sure, calibrated if the
    model is; `uncertainty`: by the network's own probabilities (datatools/uncertain.py); `stands_for`: how many of the
    uncertain rows are nearest to this one.
    """

    where: str
    text: str
    values: Mapping[str, Any]
    example: Any = field(repr=False)
    predicted: Mapping[str, Any]
    confidence: float
    uncertainty: float
    stands_for: int

    @property
    def answer_text(self) -> str:
        """The answer of the model, for people."""
        answer = next(self.predicted[key] for key in ("label", "labels", "entities", "words") if key in self.predicted)
        if not isinstance(answer, list):
            return str(answer)
        return ", ".join(
            f"{each['text']}/{each.get('type', each.get('tag'))}" if isinstance(each, dict) else each for each in answer
        )

    def line(self) -> dict[str, Any]:
        """The row as it is written, ready to be labelled."""
        reason = {"where": self.where, "predicted": self.predicted, "confidence": self.confidence}
        values = {GIVEN + name if name == CHOSEN else name: value for name, value in self.values.items()}
        return {**values, CHOSEN: {**reason, "uncertainty": self.uncertainty, "stands_for": self.stands_for}}


def _least_confidence(answer: Mapping[str, Any], shares: Mapping[str, float] | None, of_network: float) -> float:
    """The probability of the least sure decision in an answer; `of_network` where it tells none, as without
    entities. `shares`: of the labels of a text."""
    if shares is not None:
        return shares[answer["label"]] if "label" in answer else min(max(each, 1 - each) for each in shares.values())
    confidences = [each.get("confidence") for key in ("entities", "words") for each in answer.get(key, ())]
    return min((each for each in confidences if each is not None), default=of_network)


def without_reason(values: Mapping[str, Any]) -> dict[str, Any]:
    """A row without what an earlier choice told of it; a column of the user that is called so stays."""
    reason = values.get(CHOSEN)
    is_reason = isinstance(reason, dict) and "stands_for" in reason
    return {name: value for name, value in values.items() if name != CHOSEN or not is_reason}


@dataclass(frozen=True)
class NextRows:
    """`rows`: how many were read, `bad` ones among them; `known`: left out, since they are in the labelled data.

    `interface`: the labelling interface beside tasks of Label Studio.
    """

    rows: int
    bad: int
    known: int
    chosen: list[ChosenRow]
    output: Path | None
    interface: Path | None = None

    def to_json(self) -> dict[str, Any]:
        counts = {"rows": self.rows, "bad_rows": self.bad, "known": self.known}
        files = {"output": self.output, "interface": self.interface}
        return {**counts, CHOSEN: [each.line() for each in self.chosen], **files}


def next_rows(
    recipe: Recipe,
    source: PredictInput,
    count: int,
    output: Path | None = None,
    *,
    kind: str = JSONL,
    measure: str = "margin",
    pool: int | None = None,
    batch_size: int = 64,
    overwrite: bool = False,
) -> NextRows:
    """Choose `count` rows of `source` to label, and write them to `output`, if one is named.

    `kind`: the format of `output`, one of WRITTEN; tasks of Label Studio hold what the model answers as predictions.
    `measure`: how doubt is measured (MEASURES of datatools/uncertain.py). `pool`: the most uncertain rows among which
    those are chosen that are unlike each other; `count` of them: by doubt alone. Memory holds these, not all rows. The
    same input and model give the same rows. UserError: the task has no labels, the model is an export, a bad row.
    """
    pool = POOL * count if pool is None else pool
    if pool < count:
        raise UserError(f"{pool} rows are too few to choose {count} from", "@[pool]", "give @[count] or more")
    _refuse_task(recipe)
    refuse_kind(recipe, kind)
    model_source = find_network(recipe)
    if resolve_source(model_source).kind == "export":
        hint = "name the run or the model folder that was exported"
        raise UserError("an export gives answers, but not the vectors of texts", model_source, hint)
    if output is not None:
        refuse_output(output, overwrite)
        refuse_outputs(output, kind, overwrite)
    total = source.check() if source.rereadable else None  # finds a bad row in the last line before an hour of work
    known = known_texts(recipe, source.task_rows)
    setup = set_up_process(recipe)
    from nlpctl.engines.trained import open_network

    model = open_network(recipe, setup, model_source)
    search = _Search(recipe, model, source, known, measure, pool, batch_size)
    with sigterm_interrupts():
        candidates = search.run(total)
    if not candidates:
        message = f"there is no row to choose: {search.known:,} of {search.rows:,} are in the labelled data"
        raise UserError(message, source.name, "give rows without labels, of the kind that the model reads")
    chosen = search.choose(candidates, count)
    if output is not None:
        writer = AnnotationWriter(kind, source.task_rows, model.task.labels.names)
        name = display(model_source)
        write_records(output, writer, [_record(writer, row, name) for row in chosen], chosen[0].example)
        if kind != JSONL:  # jsonl leaves the label empty, for one as the files have them
            warn_of_labels(recipe.data, output)
    interface = None if output is None else interface_of(output, kind)
    return NextRows(search.rows, search.bad, search.known, chosen, output, interface)


def _record(writer: AnnotationWriter, row: ChosenRow, model: str) -> Mapping[str, Any]:
    if writer.kind == JSONL:
        return row.line()
    return writer.record(row.values, row.example, guess=Guess(answer_of(row.predicted), row.confidence, model))


def _refuse_task(recipe: Recipe) -> None:
    """UserError for a task whose rows have no labels."""
    if not task_info(recipe.task).labelled:
        fitting = ", ".join(task.name for task in known_tasks() if task.labelled)
        raise UserError(f"rows of {recipe.task} have no labels", recipe.where("task"), f"it is for {fitting}")


def known_texts(recipe: Recipe, rows: TaskRows) -> set[bytes]:
    """The keys of the labelled rows of the recipe: train, dev and test. What cannot be read is told, and left out."""
    keys: set[bytes] = set()
    for split in SPLITS:
        if not has_split(recipe.data, split):
            continue
        try:
            keys.update(text_key(rows, example) for example in labelled_texts(rows, split))
        except UserError as error:
            reason = error.problems[0].message
            console.warn(f"rows of the {split} data are not left out, since they cannot be read: {reason}")
    return keys


@dataclass(frozen=True)
class _Candidate:
    """An uncertain row. `number`: its place in the input; `predictions`: those of its parts."""

    number: int
    row: Row
    example: Any
    predictions: list[Any]
    doubt: Doubt
    vector: np.ndarray


class _Search:
    """Reads the rows, and keeps the `pool` most uncertain ones."""

    def __init__(
        self,
        recipe: Recipe,
        model: TrainedModel,
        source: PredictInput,
        known: set[bytes],
        measure: str,
        pool: int,
        batch_size: int,
    ):
        self._recipe, self._model, self._source = recipe, model, source
        self._known_keys, self._measure, self._pool, self._batch_size = known, measure, pool, batch_size
        self.rows = self.bad = self.known = self.truncated = 0

    def run(self, total: int | None) -> list[_Candidate]:
        """The most uncertain rows, the most uncertain first."""
        from nlpctl.datatools.uncertain import HeadVectors
        from nlpctl.engines.pipeline import chunks, prediction_pipeline

        model = self._model
        kept: list[_Candidate] = []
        predictor: Any = model.predictor  # of a network
        pipeline = prediction_pipeline(model.task, model.encoder, model.predictor)
        with console.progress(total, "next") as bar, HeadVectors(predictor.network) as vectors:
            for chunk in chunks(self._read(), CHUNK):
                kept += self._doubted(chunk, pipeline, vectors)
                kept = self._most_uncertain(kept)
                bar.advance(len(chunk))
        warn_of_truncated(self._recipe, self.truncated, self.rows - self.bad - self.known)
        return kept

    def choose(self, candidates: Sequence[_Candidate], count: int) -> list[ChosenRow]:
        """`count` of the candidates that are unlike each other."""
        import numpy as np

        from nlpctl.datatools.uncertain import spread_out

        doubts = [each.doubt.uncertainty for each in candidates]
        spread = spread_out(np.stack([each.vector for each in candidates]), doubts, count)
        chosen = [candidates[number] for number in spread.chosen]
        answers = self._model.task.labelled_answers(
            [each.example for each in chosen], [each.predictions for each in chosen]
        )
        shares = [self._model.task.label_probabilities(each.predictions) for each in chosen]
        return [
            ChosenRow(
                place(each.row.source, each.row.line),
                shortened(" ∥ ".join(self._source.task_rows.passages(each.example).values())),
                self._to_label(each),
                each.example,
                answer,
                round(_least_confidence(answer, share, each.doubt.confidence), 6),
                round(each.doubt.uncertainty, 6),
                stands_for,
            )
            for each, answer, share, stands_for in zip(chosen, answers, shares, spread.stands_for, strict=True)
        ]

    def _to_label(self, row: _Candidate) -> dict[str, Any]:
        """The values of a row and the columns of its labels, empty unless the row has them already."""
        own = without_reason(row.row.values)
        to_fill = self._source.task_rows.columns_to_fill(row.example)
        return own | {name: value for name, value in to_fill.items() if name not in own}

    def _read(self) -> Iterator[tuple[int, Row, Any]]:
        """Place, row and example of the good rows that are not labelled yet."""
        rows = self._source.task_rows
        reader = ExampleReader(rows, None)
        for file in self._source.files:
            for row in rows_at(file, rows, ReadPosition()):
                self.rows += 1
                example = reader.read(row)
                if isinstance(example, BadRow):
                    check_bad_row(example, self._recipe.data.on_bad_row)
                    self.bad += 1
                elif text_key(rows, example) in self._known_keys:
                    self.known += 1
                else:
                    yield self.rows, row, example

    def _doubted(self, chunk: Sequence[tuple[int, Row, Any]], pipeline: Any, vectors: Any) -> Iterator[_Candidate]:
        import numpy as np

        from nlpctl.datatools.uncertain import doubt

        task, examples = self._model.task, [example for _, _, example in chunk]
        features = [task.features(example, self._model.encoder) for example in examples]
        shares: list[list[Any]] = [[None] * len(parts) for parts in features]
        chunk_vectors: list[list[Any]] = [[None] * len(parts) for parts in features]

        def watch(places: Sequence[tuple[int, int]], batch: Any, outputs: tuple[np.ndarray, ...]) -> None:
            probabilities: Any = task.probabilities(outputs, [features[i][part] for i, part in places])
            of_batch: Any = vectors.read(batch)
            for (i, part), share, vector in zip(places, probabilities, of_batch, strict=True):
                shares[i][part], chunk_vectors[i][part] = share, vector

        predictions = pipeline.predictions(examples, self._batch_size, watch)
        self.truncated += len(predictions.truncated)
        for i, (number, row, example) in enumerate(chunk):
            unsure = doubt(task, np.concatenate(shares[i]), self._measure)
            yield _Candidate(number, row, example, predictions[i], unsure, np.mean(chunk_vectors[i], axis=0))

    def _most_uncertain(self, rows: Sequence[_Candidate]) -> list[_Candidate]:
        """The `pool` most uncertain rows, of those with the same texts the first."""
        kept: dict[bytes, _Candidate] = {}
        for each in sorted(rows, key=lambda row: (-row.doubt.uncertainty, row.number)):
            if len(kept) == self._pool:
                break
            kept.setdefault(text_key(self._source.task_rows, each.example), each)
        return list(kept.values())
