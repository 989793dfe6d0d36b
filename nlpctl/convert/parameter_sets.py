"""The sets of parameters among the files of a source, and how each is read with what lies next to it."""

from __future__ import annotations

import dataclasses
import enum
import os
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nlpctl.convert.archive import looks_like_archive
from nlpctl.convert.variables import dtype_name, optimizer_state
from nlpctl.errors import UserError
from nlpctl.formats.array_files import Pickled, read_numpy, read_pickle
from nlpctl.formats.lod_tensor import looks_like_tensor, read_tensors
from nlpctl.formats.program import Program, ProgramVariable, looks_like_program
from nlpctl.names import listed
from nlpctl.outputs import refuse_pipe
from nlpctl.report.language import later

ONE_SET_HINT = "give the one you mean: its folder, or its parameter file"


def parameter_sets(kinds: Mapping[Path, FileKind]) -> tuple[list[ParameterSet], list[Pickled]]:
    """The sets of parameters among the files, and the notes of jit.save."""
    files: dict[FileKind, list[Path]] = {kind: [file for file in kinds if kinds[file] is kind] for kind in FileKind}
    sets: list[ParameterSet] = []
    singles: dict[Path, np.ndarray] = {}
    for file in files[FileKind.TENSOR]:
        tensors = read_tensors(file)
        if len(tensors) > 1:
            sets.append(Combined(file, tensors))
        else:
            singles[file] = np.array(tensors[0])  # a copy: a thousand mapped files are more than a process may open
    if singles:
        sets.append(Separate(_common_folder(singles), later("one file per variable"), singles, ""))
    arrays = {file: np.array(read_numpy(file)) for file in files[FileKind.NUMPY]}
    if arrays:
        sets.append(Separate(_common_folder(arrays), later("NumPy arrays (.npy)"), arrays, ".npy"))
    pickles = [read_pickle(file) for file in files[FileKind.PICKLE]]
    by_name: dict[Path, list[Pickled]] = defaultdict(list)
    for pickled in pickles:
        if not pickled.is_info:
            by_name[pickled.file.with_suffix("")].append(pickled)
    sets += [Saved(group[0].file, group) for group in by_name.values()]
    return sets, [pickled for pickled in pickles if pickled.is_info]


def _common_folder(files: Mapping[Path, np.ndarray]) -> Path:
    return Path(os.path.commonpath([file.parent for file in files]))


@dataclass(frozen=True)
class Named:
    """Arrays by name, and what is known about them. `structured`: dygraph names of those that have one."""

    layout: str
    arrays: Mapping[str, np.ndarray]
    structured: Mapping[str, str]
    program: Program | None
    notes: tuple[str, ...] = ()


class ParameterSet(ABC):
    """One set of parameters; `place`: its file or folder; `label`: its format, in words."""

    place: Path
    label: str

    @abstractmethod
    def named(self, programs: Sequence[Program], infos: Sequence[Pickled]) -> Named:
        """The arrays by name, with what `programs` and `infos`, the notes of jit.save, say about them."""


@dataclass(frozen=True)
class Combined(ParameterSet):
    """Many tensors in one file, without names."""

    place: Path
    tensors: Sequence[np.ndarray]
    label = later("one combined file")

    def named(self, programs: Sequence[Program], infos: Sequence[Pickled]) -> Named:
        # The notes named after this file, or the only ones.
        named_after = [info for info in infos if info.file.name == f"{self.place.name}.info"]
        info = next(iter(named_after if named_after or len(infos) > 1 else infos), None)
        arrays, program = name_tensors(self.place, self.tensors, programs, info)
        beside: list[str] = [later("its program {}", program.file.name)] if program else []
        beside += [info.file.name] if info else []
        template = "{} with {} and {}" if len(beside) == 2 else "{} with {}"
        structured = {name: info.structured[name] for name in arrays if info.structured.get(name)} if info else {}
        for name, array in arrays.items():
            check_byte_order(self.place, name, array)
        return Named(later(template, self.label, *beside), arrays, structured, program)


@dataclass(frozen=True)
class Separate(ParameterSet):
    """A file per variable, named after it: raw tensors or .npy."""

    place: Path
    label: str
    arrays: Mapping[Path, np.ndarray]
    suffix: str

    def named(self, programs: Sequence[Program], infos: Sequence[Pickled]) -> Named:
        arrays = {
            file.relative_to(self.place).as_posix().removesuffix(self.suffix): array
            for file, array in self.arrays.items()
        }
        if len(arrays) == 1 and programs and not any(arrays.keys() & program.variables.keys() for program in programs):
            ((file, array),) = self.arrays.items()  # a combined file of one
            return Combined(file, [array]).named(programs, infos)
        self._check_folders()
        for (name, array), file in zip(arrays.items(), self.arrays, strict=True):
            check_byte_order(file, name, array)
        program, notes = program_of(arrays, programs, self.place)
        layout = _with_program(self.label, program)
        structured = {name: text for info in infos for name, text in info.structured.items() if text and name in arrays}
        return Named(layout, arrays, structured, program, notes)

    def _check_folders(self) -> None:
        """UserError: raw tensors of one name in two folders. These are two models, not Paddle's names with a slash."""
        if self.suffix:
            return
        folders: dict[str, Path] = {}
        for file in self.arrays:
            other = folders.setdefault(file.name, file.parent)
            if other != file.parent:
                raise UserError(
                    f"holds two sets of parameters: {file.name} lies in {other} and in {file.parent}",
                    where=str(self.place),
                    hint=ONE_SET_HINT,
                )


@dataclass(frozen=True)
class Saved(ParameterSet):
    """Pickled arrays: a .pdparams, and the .pdopt of the same name."""

    place: Path
    pickles: Sequence[Pickled]
    label = later("pickled arrays (.pdparams)")

    def named(self, programs: Sequence[Program], infos: Sequence[Pickled]) -> Named:
        arrays: dict[str, np.ndarray] = {}
        for pickled in self.pickles:
            twice = arrays.keys() & pickled.arrays.keys()
            if twice:
                names = f"{pickled.file.name} and the others of its name hold {listed(sorted(twice))}"
                raise UserError(f"two files hold the same variables: {names}", str(self.place), ONE_SET_HINT)
            arrays |= pickled.arrays
        others = [name for pickled in self.pickles for name in pickled.others]
        program, notes = program_of(arrays, programs, self.place)
        notes += (later("entries that are no arrays, not used: {}", listed(others)),) if others else ()
        structured = {name: text for pickled in self.pickles for name, text in pickled.structured.items()}
        layout = _with_program(self.label, program)
        return Named(layout, arrays, structured, program, notes)


def _with_program(label: str, program: Program | None) -> str:
    return label if program is None else later("{} with {}", label, later("its program {}", program.file.name))


def program_of(
    arrays: Mapping[str, np.ndarray], programs: Sequence[Program], place: Path
) -> tuple[Program | None, tuple[str, ...]]:
    """The one program that declares these arrays, and notes about programs that are not used.

    UserError: it declares one of them with another shape or number type.
    """
    using = [program for program in programs if any(name in program.variables for name in arrays)]
    if len(using) != 1:
        names = listed(program.file.name for program in programs)
        why = "programs that are not used, as {} declare these variables: {}"
        none = "programs that are not used, as they declare none of these variables: {}"
        note = later(why, len(using), names) if using else later(none, names)
        return None, (note,) if programs else ()
    (program,) = using
    wrong = misfit(program, arrays)
    if wrong is not None:
        hint = "the parameters and the program were not saved together, or a file is damaged"
        raise UserError(f"does not belong to {program.file.name}: {wrong}", where=str(place), hint=hint)
    absent = sorted(set(program.persistables) - arrays.keys() - optimizer_state(program.persistables))
    note = later("variables of {} that no file holds: {}", program.file.name, listed(absent))
    return program, (note,) if absent else ()


# -- names for the tensors of a combined file, which stores them without ----------------------------------------------
#
# Paddle writes them sorted by name (`save_vars`, `save_inference_model` and `jit.save` alike), so the names come from
# the program, and the shapes and number types that the program declares prove that they are the right ones.

_PAIR_HINT = "give the program that was saved together with this file (__model__ or .pdmodel)"


def name_tensors(
    file: Path, tensors: Sequence[np.ndarray], programs: Sequence[Program], info: Pickled | None
) -> tuple[dict[str, np.ndarray], Program | None]:
    """The tensors of `file` by name, and the program that says so (None: `info` does).

    UserError: no program declares just these tensors, two do and disagree, or there is neither program nor info.
    """
    if not programs:
        return _by_info(file, tensors, info, ()), None
    fitting: dict[tuple[str, ...], Program] = {}
    for program in _with_union(programs):
        for names in _candidates(program):
            if misfit(program, dict(zip(names, tensors, strict=False))) is None and len(names) == len(tensors):
                # Two programs with the same list of names are no conflict.
                fitting.setdefault(names, program)
    if not fitting and info is not None and len(info.structured) == len(tensors):
        return _by_info(file, tensors, info, programs), None  # the program is that of one function among several
    if not fitting:
        raise _no_fit(file, tensors, programs)
    if len(fitting) > 1:
        files = ", ".join(sorted({str(program.file) for program in fitting.values()}))
        raise UserError(
            f"its {len(tensors)} tensors fit to {len(fitting)} lists of names ({files})",
            where=str(file),
            hint="leave only the program that was saved with it next to it",
        )
    (names, program), *_ = fitting.items()
    return dict(zip(names, tensors, strict=True)), program


def _with_union(programs: Sequence[Program]) -> Iterator[Program]:
    """Each program, and all together: `jit.save` writes several functions to one file with combine_params."""
    yield from programs
    if len(programs) > 1:
        merged = {name: variable for program in programs for name, variable in program.variables.items()}
        yield dataclasses.replace(programs[0], variables=merged)


def _candidates(program: Program) -> Iterator[tuple[str, ...]]:
    """The possible lists of saved names: all (save_persistables), parameters (save_params), all but optimizer state."""
    everything = program.persistables
    yield everything
    yield tuple(name for name in everything if program.variables[name].is_parameter)
    yield tuple(name for name in everything if name not in optimizer_state(everything))


def _by_info(
    file: Path, tensors: Sequence[np.ndarray], info: Pickled | None, programs: Sequence[Program]
) -> dict[str, np.ndarray]:
    """The names that jit.save noted, in their order; what `programs` declare of them has to fit."""
    if info is None:
        why = f"holds {len(tensors)} tensors without names, and neither a program nor .info lies next to it"
        raise UserError(why, where=str(file), hint=_PAIR_HINT)
    if len(info.structured) != len(tensors):
        why = f"holds {len(tensors)} tensors, and {info.file.name} describes {len(info.structured)}"
        raise UserError(why, where=str(file), hint=_PAIR_HINT)
    arrays = dict(zip(sorted(info.structured), tensors, strict=True))
    if any(misfit(program, arrays) for program in programs):
        raise _no_fit(file, tensors, programs)
    return arrays


def _no_fit(file: Path, tensors: Sequence[np.ndarray], programs: Sequence[Program]) -> UserError:
    closest = min(programs, key=lambda program: abs(len(program.persistables) - len(tensors)))
    names = closest.persistables
    if len(names) != len(tensors):
        why = f"holds {len(tensors)} tensors, and {closest.file.name} declares {len(names)}"
    else:
        why = f"does not belong to {closest.file.name}: {misfit(closest, dict(zip(names, tensors, strict=True)))}"
    return UserError(why, where=str(file), hint=_PAIR_HINT)


def misfit(program: Program, arrays: Mapping[str, np.ndarray]) -> str | None:
    """The first array that is not what the program declares, in words; None when all are. -1 fits any size."""
    for name, array in arrays.items():
        declared = program.variables.get(name)
        if declared is not None and not _fits(declared, array):
            return (
                f"{name} is {dtype_name(array)} {list(array.shape)}, "
                f"and the program declares {declared.dtype} {list(declared.shape)}"
            )
    return None


def _fits(declared: ProgramVariable, array: np.ndarray) -> bool:
    same_sizes = len(declared.shape) == array.ndim and all(
        free in (-1, size) for free, size in zip(declared.shape, array.shape, strict=True)
    )
    return same_sizes and declared.dtype == dtype_name(array)


# -- the kind of a file, by its first bytes ---------------------------------------------------------------------------


class FileKind(str, enum.Enum):  # enum.StrEnum needs Python 3.11
    """What a file of a source holds; the values are for messages."""

    TENSOR = "raw tensors"
    PROGRAM = "a program"
    PICKLE = "a pickle"
    NUMPY = "a NumPy array"
    ARCHIVE = "an archive"
    OTHER = "something else"


def kind_of(file: Path) -> FileKind:
    """The kind of one file, damaged ones too as far as their beginning tells."""
    refuse_pipe(file)
    with file.open("rb") as stream:
        head = stream.read(512)
    size = file.stat().st_size
    # The opcode PROTO with protocol 2 to 5; Paddle never wrote protocols 0 and 1.
    if head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5"):
        return FileKind.PICKLE
    if head.startswith(b"\x93NUMPY"):
        return FileKind.NUMPY
    if looks_like_archive(head):
        return FileKind.ARCHIVE
    if looks_like_program(head, size):
        return FileKind.PROGRAM
    return FileKind.TENSOR if head and looks_like_tensor(head, size) else FileKind.OTHER


# -- swapped byte order, seen by the values of an array: lengths and types in the file do not reveal it ---------------

_LOOKED_AT = 4096
_ENOUGH = 16  # different values; fewer may look plausible the other way round by chance


def check_byte_order(file: Path, name: str, array: np.ndarray) -> None:
    """UserError when the values of a float32 or float64 array make sense with their bytes swapped, and only so.

    Weights lie between 1e-20 and 1e20. With swapped bytes the low bits of the mantissa become the exponent, so that
    about half of them do not. Of a constant, such as the 1 of a layer norm, only what is no normal number counts:
    a mask may well be -1e30.
    """
    if array.dtype.name not in ("float32", "float64"):
        return
    values = array.reshape(-1)[:_LOOKED_AT]
    values = values[values != 0]  # NaN stays
    if values.size < _ENOUGH:
        return
    # A layer norm of ones swapped is denormal throughout; any other constant could be meant.
    if len(np.unique(values)) < _ENOUGH:
        strange = bool((np.abs(values) < np.finfo(values.dtype).tiny).all())
    else:
        strange = _plausible(values) < 0.9
    if strange and _plausible(values.byteswap()) == 1.0:
        raise UserError(
            f"the byte order of {name} is swapped: its values make sense the other way round only",
            where=str(file),
            hint="write it on a little-endian machine, or swap it with NumPy: array.byteswap()",
        )


def _plausible(values: np.ndarray) -> float:
    """The share of values in the usual range of weights."""
    with np.errstate(invalid="ignore"):
        size = np.abs(values.astype(np.float64))
    return float(np.mean((size > 1e-20) & (size < 1e20)))
