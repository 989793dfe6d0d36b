"""`nlpctl predict --layer-outputs`: the outputs of inner layers for every row, in one .npz file."""

from __future__ import annotations

import shutil
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nlpctl import console
from nlpctl.config.schema import Recipe
from nlpctl.data.predict_input import PredictInput
from nlpctl.data.readers.readers import no_rows
from nlpctl.data.readers.row import BadRow, is_bad
from nlpctl.errors import UserError
from nlpctl.files import staged_file
from nlpctl.inference.open_model import find_network
from nlpctl.inference.predict import PredictResult, check_bad_row, refuse_output
from nlpctl.outputs import NO_ARRAYS, refuse_stream
from nlpctl.runtime.interrupt import sigterm_interrupts
from nlpctl.runtime.process import set_up_process

if TYPE_CHECKING:
    from nlpctl.engines.trained import TrainedModel

ROW, OFFSETS, INPUT_IDS = "row", "offsets", "input_ids"


@dataclass(frozen=True)
class LayerOutputsResult(PredictResult):
    """`shapes`: name and shape of every array in the file."""

    shapes: dict[str, tuple[int, ...]]


def write_layer_outputs(
    recipe: Recipe,
    source: PredictInput,
    patterns: Sequence[str],
    output: Path,
    *,
    batch_size: int = 64,
    float16: bool = False,
    overwrite: bool = False,
) -> LayerOutputsResult:
    """Write the outputs of the layers that match `patterns` to the .npz file `output`.

    Each array has its layer's name: [texts, ...], or for an output per token [tokens, ...], where text i has the tokens
    offsets[i] to offsets[i + 1]. input_ids [tokens] are the tokens themselves, special ones included; row [texts] is
    the input row of each text: a long row may be cut into several texts, and bad rows (data.on_bad_row: skip) have
    none. `float16`: outputs have half the size and about three digits. Memory is constant. The expected size is told
    after the first batch, before anything is written.

    UserError: a pattern matches no layer, an output has neither texts nor tokens, the disk is too small, or the file
    cannot be written.
    """
    model_source = find_network(recipe)
    if output.suffix != ".npz":
        raise UserError("must be a .npz file", where=str(output), hint="@[output=OUTPUTS.npz]")
    refuse_output(output, overwrite)
    refuse_stream(output, *NO_ARRAYS)
    count = source.check() if source.rereadable else None  # finds a bad row in the last line before an hour of work
    setup = set_up_process(recipe)
    from nlpctl.engines.trained import open_network

    model = open_network(recipe, setup, model_source)
    started = time.monotonic()
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with sigterm_interrupts(), tempfile.TemporaryDirectory(dir=output.parent) as folder:
            arrays = _Arrays(Path(folder), count, np.dtype(np.float16) if float16 else None)
            with arrays:
                rows, bad, truncated = _write(recipe, model, source, patterns, batch_size, arrays)
            if not rows:
                raise no_rows(source.name)
            with staged_file(output) as stream:
                arrays.pack(stream)
    except OSError as error:
        message = f"cannot write here ({error.strerror or error})"
        raise UserError(message, where=str(output), hint="name another file") from None
    return LayerOutputsResult(rows, bad, truncated, time.monotonic() - started, output, arrays.shapes)


def _write(
    recipe: Recipe,
    model: TrainedModel,
    source: PredictInput,
    patterns: Sequence[str],
    batch_size: int,
    arrays: _Arrays,
) -> tuple[int, int, int]:
    """Run every text; returns the number of rows, of bad rows and of rows that were cut at data.max_seq_length."""
    from nlpctl.data.batches.collate import failures_as_errors
    from nlpctl.engines.engine import DygraphPredictor
    from nlpctl.engines.pipeline import chunks, prediction_pipeline
    from nlpctl.inference.layer_hooks import LayerOutputs, token_counts

    pipeline = prediction_pipeline(model.task, model.encoder, model.predictor)
    assert isinstance(model.predictor, DygraphPredictor), "open_network has opened it"
    layers = LayerOutputs(model.predictor.network, patterns)
    pad_id = layers.network.config.pad_token_id
    seen, truncated = _Seen(), set()
    tokens = 0
    with console.progress(None, "layer outputs") as bar:
        for chunk in chunks(_texts(recipe, pipeline, source, seen), batch_size):
            features = [feature for _, feature in chunk]
            with failures_as_errors():
                encodings = pipeline.collate.encodings(features)
                batch = pipeline.collate.arrays(features, encodings)
            truncated |= {row for (row, _), each in zip(chunk, encodings, strict=True) if each.truncated}
            by_row, by_token = layers.of(batch)
            lengths = token_counts(batch, pad_id)
            ids = [row[:length] for row, length in zip(batch[INPUT_IDS], lengths, strict=True)]
            facts = {
                ROW: np.array([row for row, _ in chunk], np.int64),
                OFFSETS: tokens + np.cumsum(lengths),
                INPUT_IDS: np.concatenate(ids),
            }
            tokens += int(lengths.sum())
            arrays.append_all({**by_row, **by_token, **facts}, seen.rows)
            bar.advance(len(chunk))
    for name, reason in layers.left_out.items():
        console.warn(f"{name} is left out: {reason}")
    for name, number in arrays.too_large.items():
        console.warn(f"{name}: {number:,} values beyond 65,504 became infinite in float16; leave out @[float16=true]")
    return seen.rows, seen.bad, len(truncated)


@dataclass
class _Seen:
    rows: int = 0
    bad: int = 0


def _texts(recipe: Recipe, pipeline: Any, source: PredictInput, seen: _Seen) -> Iterator[tuple[int, Any]]:
    """(row number, encoded texts of one window) in input order."""
    for number, row in enumerate(source.rows()):
        seen.rows += 1
        if isinstance(row, BadRow):
            check_bad_row(row, recipe.data.on_bad_row)
            seen.bad += is_bad(row)
            continue
        for feature in pipeline.task.features(row, pipeline.encoder):
            yield number, feature


def told_bytes(count: float) -> str:
    """A number of bytes for messages: 3.4 kB, 222 MB."""
    units = ["B", "kB", "MB", "GB", "TB"]
    while count >= 999.5 and len(units) > 1:
        count /= 1000
        del units[0]
    return f"{count:.3g} {units[0]}"


class _Arrays(ExitStack):
    """Growing arrays, each in a .npy file of `folder`. `rows`: rows of the input, None if nobody knows; `floats`: the
    type of arrays of floating point numbers, None: as they come."""

    def __init__(self, folder: Path, rows: int | None, floats: np.dtype | None):
        super().__init__()
        self._folder = folder
        self._rows = rows
        self._floats = floats
        self._files: dict[str, Any] = {}
        self.too_large: dict[str, int] = {}  # array -> number of values that became infinite

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: (file.rows, *file.shape) for name, file in self._files.items()}

    def append_all(self, batch: Mapping[str, np.ndarray], rows: int) -> None:
        """Append to every array; the first time, tell the expected size. `rows`: of the input that were read so far."""
        batch = {name: self._converted(name, array) for name, array in batch.items()}
        if not self._files:
            self._announce(sum(array.nbytes for array in batch.values()) / rows)
            self._append(OFFSETS, np.zeros(1, np.int64))
        for name, array in batch.items():
            self._append(name, array)

    def _converted(self, name: str, array: np.ndarray) -> np.ndarray:
        if self._floats is None or not np.issubdtype(array.dtype, np.floating):
            return array
        with np.errstate(over="ignore"):
            narrow = array.astype(self._floats)
        lost = int((np.isinf(narrow) & np.isfinite(array)).sum())
        if lost:
            self.too_large[name] = self.too_large.get(name, 0) + lost
        return narrow

    def _announce(self, row: float) -> None:
        """Tell how much will be written, with `row` bytes per row. UserError if the disk cannot hold it."""
        smaller = "" if self._floats is not None else "; @[float16=true] halves it"
        if self._rows is None:
            console.note(f"layer outputs: about {told_bytes(row)} per row{smaller}")
            return
        size, free = row * self._rows, shutil.disk_usage(self._folder).free
        console.note(f"layer outputs: about {told_bytes(size)} for {self._rows:,} rows{smaller}")
        if 2 * size > free:  # the arrays exist twice while they are packed
            message = f"writing needs about {told_bytes(2 * size)}, and {told_bytes(free)} are free"
            raise UserError(message, where="@[layer-outputs]", hint="name fewer layers, or give @[float16=true]")

    def _append(self, name: str, rows: np.ndarray) -> None:
        from nlpctl.inference.embed import ArrayFile

        if name not in self._files:
            stream = self.enter_context((self._folder / f"{name}.npy").open("w+b"))
            self._files[name] = ArrayFile(stream, rows.shape[1:], rows.dtype)
            self.callback(self._files[name].finish)  # must happen before the stream is closed
        self._files[name].append(rows)

    def pack(self, stream: Any) -> None:
        """Put the closed files into a .npz file."""
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name in self._files:
                archive.write(self._folder / f"{name}.npy", f"{name}.npy")
