"""Texts to vectors with a semantic indexing model: `nlpctl predict --embeddings`, and the index of texts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from nlpctl import console
from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import known_tasks, task_info
from nlpctl.data.predict_input import PredictInput
from nlpctl.data.readers.readers import no_rows
from nlpctl.data.readers.row import BadRow, is_bad
from nlpctl.data.rows.task_rows import TaskRows
from nlpctl.errors import UserError
from nlpctl.files import staged_file
from nlpctl.inference.open_model import find_model, open_trained_model, set_up_to_answer
from nlpctl.inference.predict import CHUNK_BATCHES, PredictResult, check_bad_row, refuse_output
from nlpctl.outputs import NO_ARRAYS, refuse_stream
from nlpctl.runtime.interrupt import sigterm_interrupts

if TYPE_CHECKING:
    import numpy as np

    from nlpctl.data.predict_shards import ShardRows
    from nlpctl.engines.pipeline import Pipeline
    from nlpctl.engines.trained import TrainedModel
    from nlpctl.tasks.base import Predictions


def require_vectors(recipe: Recipe) -> None:
    """UserError for a model of a task that has no text vectors."""
    if not task_info(recipe.task).vectors:
        fitting = " or ".join(task.name for task in known_tasks() if task.vectors)
        raise UserError(
            f"a model of {recipe.task} has no text vectors",
            where=recipe.where("task"),
            hint=f"train one with task: {fitting}; recipes/indexing shows how",
        )


def write_embeddings(
    recipe: Recipe, source: PredictInput, output: Path, *, batch_size: int = 64, overwrite: bool = False
) -> PredictResult:
    """Write the vector of every row of `source` to the .npy file `output`: float32 [rows, dim], in input order.

    Vectors have unit length; a bad row (data.on_bad_row: skip) and a blank line have zeros. The file is written to a
    temporary name and renamed when complete. Memory is constant.
    """
    require_vectors(recipe)
    model_source = find_model(recipe)
    refuse_output(output, overwrite)
    refuse_stream(output, *NO_ARRAYS)
    total = source.check() if source.rereadable else None  # finds a bad row in the last line before an hour of work
    model = open_trained_model(recipe, set_up_to_answer(recipe, model_source), model_source, batch_size, total)

    started, file, bad, truncated = time.monotonic(), None, 0, 0
    try:
        with sigterm_interrupts(), staged_file(output) as stream:
            for rows, vectors, truncated_rows in embedded(recipe, model, source, batch_size, total):
                file = ArrayFile(stream, vectors.shape[1:], vectors.dtype) if file is None else file
                file.append(vectors)
                bad += sum(map(is_bad, rows))
                truncated += truncated_rows
            if file is None:
                raise no_rows(source.name)
            file.finish()
    except OSError as error:
        message = f"cannot write here ({error.strerror or error})"
        raise UserError(message, where=str(output), hint="name another file") from None
    return PredictResult(file.rows, bad, truncated, time.monotonic() - started, output)


def embedded(
    recipe: Recipe, model: TrainedModel, source: PredictInput | ShardRows, batch_size: int, total: int | None = None
) -> Iterator[tuple[list[Any], np.ndarray, int]]:
    """Chunks of rows (examples and bad rows), in order, each with float32 vectors [rows, dim], and the number of texts
    that were truncated; bad rows have zeros.

    UserError for a bad row where data.on_bad_row is "error". `total`: expected rows, for the progress bar.
    """
    from nlpctl.engines.pipeline import chunks_to_answer, prediction_pipeline

    pipeline = prediction_pipeline(model.task, model.encoder, model.predictor)
    dim = _width(pipeline, source.task_rows)

    def finished(chunk: list[Any], predictions: Predictions) -> tuple[list[Any], np.ndarray, int]:
        for row in chunk:
            if isinstance(row, BadRow):
                check_bad_row(row, recipe.data.on_bad_row)
        return chunk, _vectors(chunk, predictions, dim), len(predictions.truncated)

    read = chunks_to_answer(source.rows(), batch_size * CHUNK_BATCHES)
    with console.progress(total, "embed") as bar, closing(pipeline.stream(read, batch_size, finished)) as parts:
        for chunk, vectors, truncated in parts:
            yield chunk, vectors, truncated
            bar.advance(len(chunk))


def _width(pipeline: Pipeline, rows: TaskRows) -> int:
    """Dimension of the vectors, from the vector of a sample text."""
    any_text = rows.read(dict.fromkeys(rows.required(labelled=False), "1"), None)
    ((vector,),) = pipeline.predictions([any_text], 1)[0]
    return len(vector)


def _vectors(chunk: list[Any], predictions: list[list[Any]], dim: int) -> np.ndarray:
    places = [place for place, row in enumerate(chunk) if not isinstance(row, BadRow)]
    vectors = np.zeros((len(chunk), dim), np.float32)
    for place, ((vector,),) in zip(places, predictions, strict=True):
        vectors[place] = vector
    return vectors


# -- writing an array to a .npy file in constant memory, with an unknown number of rows ------------


class ArrayFile:
    """An array [rows, *shape] in NumPy's format, written row by row into an empty binary stream.

    NumPy pads the header so that the number of rows can grow in place: it is written first with none, and
    again by `finish`.
    """

    def __init__(self, stream: BinaryIO, shape: Sequence[int], dtype: np.dtype | type):
        """`shape`: of one row."""
        self.stream = stream
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self.rows = 0
        self._start = self._write_header()

    def append(self, rows: np.ndarray) -> None:
        """Add rows [n, *shape]."""
        if rows.shape[1:] != self.shape:
            raise ValueError(f"rows of shape {list(rows.shape[1:])} in a file of {list(self.shape)}")
        self.stream.write(np.ascontiguousarray(rows, self.dtype).tobytes())
        self.rows += len(rows)

    def finish(self) -> None:
        """Write the number of rows into the header."""
        self.stream.seek(0)
        if self._write_header() != self._start:
            raise ValueError("the header of the .npy file grew over its first row")

    def _write_header(self) -> int:
        """Write the header for the rows so far; returns the offset of the first row."""
        header = {
            "descr": np.lib.format.dtype_to_descr(self.dtype),
            "fortran_order": False,
            "shape": (self.rows, *self.shape),
        }
        np.lib.format.write_array_header_1_0(self.stream, header)
        return self.stream.tell()
