"""`nlpctl params`: read, compare and set the parameters of a model folder without building the network."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nlpctl.config.recipe_of import recipe_of
from nlpctl.config.schema import ModelSection, Recipe, RuntimeSection
from nlpctl.errors import UserError
from nlpctl.files import staged_dir, staged_file, write_npz, writing
from nlpctl.inference.named_model import model_with_weights
from nlpctl.layout import CALIBRATION, MANIFEST, RECIPE, runs_around
from nlpctl.models.model_manifest import (
    CHANGING,
    check_model_sums,
    listed_files,
    refuse_model_folder,
    sentence_modules,
    write_model_sums,
)
from nlpctl.models.parameters import matching, select, value_for
from nlpctl.models.source import HUGGINGFACE_WEIGHTS, PADDLE_WEIGHTS, WEIGHTS, ModelSource, read_config, weights_file
from nlpctl.models.weights import Weights, read_weights_file, to_float32
from nlpctl.outputs import NO_ARRAYS, refuse_output, refuse_stream
from nlpctl.report.language import later
from nlpctl.runtime.lock import sole_writer
from nlpctl.runtime.process import configure_paddle, prepare_process, quiet_libraries
from nlpctl.runtime.run_directory import RunManifest

if TYPE_CHECKING:
    from nlpctl.models.families import Family

BFLOAT16 = np.dtype(np.uint16)  # bfloat16 values are stored as their bits
_ELSEWHERE = "name another place: @[output]"
_EXISTS, _OTHER_NAME = "already exists", "name another one: @[output]"
_WEIGHTS_FILES = {*PADDLE_WEIGHTS, *HUGGINGFACE_WEIGHTS}


# -- list -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ParameterRow:
    """One entry of a weights file. `same_as`: an earlier entry with the same values, such as a tied one.

    `training`: "trained", or why no gradient changes it; None: it is not known how it is or was trained.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    parameters: int
    mean: float
    std: float
    same_as: str | None
    training: str | None = None


def list_parameters(
    model: str, patterns: Sequence[str] = ("*",), *, trust_edits: bool = False
) -> list[ParameterRow]:
    """The parameters of `model` that match `patterns`. UserError: no such model, or a pattern that matches nothing.

    `model`, here and below: what inference/named_model.py lists. `trust_edits`: accept files that do not match
    manifest.json.
    """
    source = model_with_weights(model)
    arrays = _arrays_of(source, trust_edits)
    return _listed(arrays, patterns, {} if source.folder is None else _of_run(source.folder, arrays))


def list_parameters_to_train(recipe: Recipe, patterns: Sequence[str] = ("*",)) -> list[ParameterRow]:
    """The same of the network that `recipe` would train, before the first step. UserError as for a training.

    One batch is computed, to see which parameters the gradient reaches.
    """
    from nlpctl.training.overfit import untrained_network

    network = untrained_network(recipe)
    training = training_of(network.arrays, recipe.model, network.unreached, network.fitted)
    return _listed(network.arrays, patterns, training)


def _listed(
    arrays: Mapping[str, np.ndarray], patterns: Sequence[str], training: Mapping[str, str]
) -> list[ParameterRow]:
    twins = _twins(arrays)
    return [
        _row(name, arrays[name], twins[name], training.get(name)) for name in select(patterns, arrays, "@[match]")
    ]


def _row(name: str, array: np.ndarray, twin: str | None, training: str | None) -> ParameterRow:
    values = to_float32(array).astype(np.float64)
    dtype = "bfloat16" if array.dtype == BFLOAT16 else str(array.dtype)
    return ParameterRow(name, array.shape, dtype, array.size, float(values.mean()), float(values.std()), twin, training)


def _twins(arrays: Mapping[str, np.ndarray]) -> dict[str, str | None]:
    """Each name -> the first name with the same values; None for that one itself, and for constant values."""
    first: dict[Any, str] = {}
    twins: dict[str, str | None] = {}
    for name, array in arrays.items():
        constant = array.size < 2 or bool((array == array.flat[0]).all())
        key = name if constant else (array.shape, hashlib.sha256(np.ascontiguousarray(array).tobytes()).digest())
        twins[name] = first.get(key)
        first.setdefault(key, name)
    return twins


def _of_run(folder: Path, arrays: Mapping[str, np.ndarray]) -> Mapping[str, str]:
    """How the run that `folder`, a model folder or checkpoint, belongs to trained each parameter; else {}."""
    for place in runs_around(folder)[:1]:
        manifest = RunManifest.load_if_valid(place / MANIFEST)
        if manifest is not None and (place / RECIPE).is_file():
            lists = [manifest.parameters.get(kind) for kind in ("unreached", "fitted")]
            return training_of(
                arrays, recipe_of(place).model, *(names if isinstance(names, list) else () for names in lists)
            )
    return {}


def training_of(
    names: Iterable[str], model: ModelSection, unreached: Collection[str], fitted: Collection[str] = ()
) -> dict[str, str]:
    """Name -> "trained", the pattern that freezes it, that no gradient reaches it, or that it is fitted instead.

    `unreached`, `fitted`: the first names of these parameters. A tied parameter is frozen under all its names.
    """
    names = list(names)
    owner = _owners(names, model)
    training: dict[str, str] = {name: later("not reached: the loss does not depend on it") for name in unreached}
    training |= {name: later("fitted to the encoder's vectors of the training rows") for name in fitted}
    for pattern in reversed(model.freeze):  # the first pattern that matches is the one to tell
        for name in matching(pattern, names):
            training[owner[name]] = later("frozen: model.freeze {}", pattern)
    return {name: training.get(owner[name], training.get(name, later("trained"))) for name in names}


def _owners(names: Sequence[str], model: ModelSection) -> dict[str, str]:
    """Each name -> the name that it is tied to by model.tie, or itself."""
    owner = {name: name for name in names}
    for pair in model.tie:
        kept, replaced = (matching(pattern, names) for pattern in pair)
        if kept:
            owner |= {name: owner[kept[i % len(kept)]] for i, name in enumerate(replaced)}
    return owner


# -- export -----------------------------------------------------------------------------------------------------------


def export_parameters(
    model: str, patterns: Sequence[str], output: Path, *, overwrite: bool = False, trust_edits: bool = False
) -> list[str]:
    """Write the parameters that match `patterns` to `output`, and return their names.

    A .npz file holds each under its name; a .npy file holds one array, so exactly one parameter must match.
    """
    arrays = read_parameters(model, trust_edits=trust_edits)
    names = select(patterns, arrays, "@[match]")
    if output.suffix not in (".npz", ".npy"):
        hint = "end its name in .npz, or in .npy for a single parameter"
        raise UserError("must be a .npz or .npy file", where=str(output), hint=hint)
    if output.suffix == ".npy" and len(names) != 1:
        hint = "write a .npz file, or give @[match] the full name"
        raise UserError(f"a .npy file holds one array, but {len(names)} parameters match", where=str(output), hint=hint)
    refuse_output(output, overwrite, exists=_EXISTS, elsewhere=_OTHER_NAME)
    refuse_stream(output, *NO_ARRAYS)
    values = {name: to_float32(arrays[name]) if arrays[name].dtype == BFLOAT16 else arrays[name] for name in names}
    with writing(output, _ELSEWHERE), staged_file(output) as stream:
        if output.suffix == ".npz":
            write_npz(stream, values)
        else:
            np.save(stream, values[names[0]])
    return names


# -- set and add, in a copy of the model folder -----------------------------------------------------------------------


def set_in_copy(
    model: str,
    values: Mapping[str, float | str],
    output: Path,
    *,
    seed: int = 0,
    overwrite: bool = False,
    trust_edits: bool = False,
) -> dict[str, list[str]]:
    """Write a copy of the model folder to `output` with new parameter values.

    `values`: pattern to a number, a .npy file or a distribution, which is drawn from by `seed` and name.

    Names that hold the same values (tied parameters) are set together. Returns the changed names per pattern.
    Training state is not copied: it belongs to the old values.
    """
    source = _folder_of(model)
    arrays = dict(read_parameters(model, trust_edits=trust_edits))
    twins = _twins(arrays)
    done: dict[str, list[str]] = {}
    for pattern, value in values.items():
        where = f"@[value] {pattern}"
        chosen = select([pattern], arrays, where)
        owners = {twins[name] or name for name in chosen}
        done[pattern] = [name for name in arrays if name in chosen or (twins[name] or name) in owners]
        for name in done[pattern]:
            array = value_for(twins[name] or name, arrays[name].shape, value, where, seed)
            integer = arrays[name].dtype.kind in "iu" and arrays[name].dtype != BFLOAT16
            arrays[name] = array.astype(arrays[name].dtype) if integer else array
    _write_copy(source, arrays, output, overwrite)
    return done


def add_to_copy(
    model: str,
    name: str,
    shape: Sequence[int],
    value: float | str,
    output: Path,
    *,
    seed: int = 0,
    overwrite: bool = False,
    trust_edits: bool = False,
) -> None:
    """Write a copy of the model folder to `output` with one more float32 parameter.

    A network that creates a parameter of this name (Layer.create_parameter) loads and trains it; others leave it out.
    `value` and `seed` as for `set_in_copy`. UserError: the name exists.
    """
    source = _folder_of(model)
    arrays = dict(read_parameters(model, trust_edits=trust_edits))
    if name in arrays:
        hint = "choose another name; `nlpctl params set` changes its value"
        raise UserError(f"there is a parameter {name} already, {list(arrays[name].shape)}", where="@[name]", hint=hint)
    arrays[name] = value_for(name, shape, value, "@[value]", seed)
    _write_copy(source, arrays, output, overwrite)


def _folder_of(model: str) -> Path:
    """The folder of a model that is copied. UserError: it is a name of the hub, which has no folder."""
    source = model_with_weights(model)
    if source.folder is None:
        hint = "train with it first, or give a folder that holds its files"
        raise UserError("a model of the hub has no folder to copy", where=model, hint=hint)
    return source.folder


def _write_copy(source: Path, arrays: Mapping[str, np.ndarray], output: Path, overwrite: bool) -> None:
    """Write the model folder `source` to `output` with `arrays` as its weights, and without training state."""
    with sole_writer(output):
        refuse_model_folder(output, overwrite, [source])
        _prepare()
        with writing(output, _ELSEWHERE), staged_dir(output) as folder:
            _fill_copy(folder, source, arrays)


def _fill_copy(folder: Path, source: Path, arrays: Mapping[str, np.ndarray]) -> None:
    import paddle

    from nlpctl.training.checkpoints import TRAINING_STATE_FILES

    left_out = _WEIGHTS_FILES | TRAINING_STATE_FILES | _shards(source) | {MANIFEST, CALIBRATION}
    listed = listed_files(source)  # what else is there, such as a card, tells of the source
    for file in source.iterdir():
        if file.is_file() and file.name not in left_out and (listed is None or file.name in {*listed, *CHANGING}):
            shutil.copyfile(file, folder / file.name)
    for module in sentence_modules(source):
        shutil.copytree(module, folder / module.name)
    paddle.save({name: paddle.to_tensor(array) for name, array in arrays.items()}, str(folder / WEIGHTS))
    write_model_sums(folder, copied_from=source)


def _shards(folder: Path) -> set[str]:
    """The files of sharded weights."""
    indexes = [folder / name for name in _WEIGHTS_FILES if name.endswith(".index.json") and (folder / name).is_file()]
    parts = {".pdparams", ".safetensors", ".bin"}
    return {file.name for file in folder.iterdir() if file.suffix in parts} if indexes else set()


# -- diff -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ParameterDiff:
    """`same`: number of parameters that are identical bit for bit. `reshaped`: name, first shape, second shape."""

    changed: tuple[ChangedRow, ...]
    reshaped: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    same: int


@dataclass(frozen=True)
class ChangedRow:
    """A parameter that differs between two models: largest and mean absolute difference, and the L2 norm of the
    difference relative to the first model's values (infinite if those are all 0)."""

    name: str
    largest: float
    mean: float
    share: float


def diff_parameters(
    first: str, second: str, patterns: Sequence[str] = ("*",), *, trust_edits: bool = False
) -> ParameterDiff:
    """The differences between the parameters of two models. A pattern must match in at least one of them."""
    old, new = (read_parameters(model, trust_edits=trust_edits) for model in (first, second))
    names = select(patterns, dict.fromkeys([*old, *new]), "@[match]")
    common = [name for name in names if name in old and name in new]
    reshaped = tuple((name, old[name].shape, new[name].shape) for name in common if old[name].shape != new[name].shape)
    alike = [name for name in common if old[name].shape == new[name].shape]
    changed = [
        name for name in alike if old[name].dtype != new[name].dtype or old[name].tobytes() != new[name].tobytes()
    ]
    return ParameterDiff(
        tuple(_changed(name, old[name], new[name]) for name in changed),
        reshaped,
        tuple(name for name in names if name not in new),
        tuple(name for name in names if name not in old),
        len(alike) - len(changed),
    )


def _changed(name: str, old: np.ndarray, new: np.ndarray) -> ChangedRow:
    before, after = (to_float32(array).astype(np.float64) for array in (old, new))
    difference, size = np.abs(after - before), float(np.linalg.norm(before))
    share = float(np.linalg.norm(difference)) / size if size else float("inf")
    return ChangedRow(name, float(difference.max()), float(difference.mean()), share)


# -- reading ----------------------------------------------------------------------------------------------------------


def read_parameters(model: str, *, trust_edits: bool = False) -> Mapping[str, np.ndarray]:
    """Name -> array of a model, under the names that recipes use. UserError: no such model, or damaged."""
    return _arrays_of(model_with_weights(model), trust_edits)


def _arrays_of(source: ModelSource, trust_edits: bool) -> Mapping[str, np.ndarray]:
    if source.folder is None:
        _prepare()
        from nlpctl.models.paddlenlp_hub import fetch

        model = fetch(source.name)
        return _named_as_in_recipes(read_weights_file(model.weights_file), model.family)
    check_model_sums(source.folder, trust_edits=trust_edits)
    file = weights_file(source.folder)
    assert file is not None  # resolve_source refuses a folder without
    weights = read_weights_file(file)
    if source.kind == "nlpctl":
        return weights.arrays
    _prepare()
    from nlpctl.models.families import family_of_config

    return _named_as_in_recipes(weights, family_of_config(read_config(source.folder), f"{source.folder}/config.json"))


def _named_as_in_recipes(weights: Weights, family: Family) -> Mapping[str, np.ndarray]:
    from nlpctl.models.assign import with_prefix
    from nlpctl.models.load import paddle_arrays

    return with_prefix(paddle_arrays(weights, family), family.prefix, ())


def _prepare() -> None:
    """Set up the process before Paddle is imported. The CPU is enough: nothing is computed."""
    configure_paddle(prepare_process(RuntimeSection(device="cpu"), seed=0), seed=0)
    quiet_libraries()
