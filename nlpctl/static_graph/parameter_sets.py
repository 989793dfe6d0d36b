"""The sets of parameters among the files of a source, and how each is read with what lies next to it."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nlpctl.errors import UserError
from nlpctl.formats.array_files import Pickled, read_numpy, read_pickle
from nlpctl.formats.lod_tensor import read_tensors
from nlpctl.formats.program import Program
from nlpctl.names import listed
from nlpctl.static_graph.byte_order import check_byte_order
from nlpctl.static_graph.naming import misfit, name_tensors
from nlpctl.static_graph.optimizer_state import optimizer_state
from nlpctl.static_graph.sniff import Kind

ONE_SET_HINT = "give the one you mean: its folder, or its parameter file"


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
    label = "one combined file"

    def named(self, programs: Sequence[Program], infos: Sequence[Pickled]) -> Named:
        info = self._own(infos)
        arrays, program = name_tensors(self.place, self.tensors, programs, info)
        beside = [f"its program {program.file.name}"] if program else []
        beside += [info.file.name] if info else []
        structured = {name: info.structured[name] for name in arrays if info.structured.get(name)} if info else {}
        for name, array in arrays.items():
            check_byte_order(self.place, name, array)
        return Named(f"{self.label} with {' and '.join(beside)}", arrays, structured, program)

    def _own(self, infos: Sequence[Pickled]) -> Pickled | None:
        """The notes named after this file, or the only ones."""
        named_after = [info for info in infos if info.file.name == f"{self.place.name}.info"]
        return next(iter(named_after if named_after or len(infos) > 1 else infos), None)


@dataclass(frozen=True)
class Separate(ParameterSet):
    """A file per variable, named after it: raw tensors or .npy."""

    place: Path
    label: str
    arrays: Mapping[Path, np.ndarray]
    suffix: str

    def named(self, programs: Sequence[Program], infos: Sequence[Pickled]) -> Named:
        arrays = {self._name(file): array for file, array in self.arrays.items()}
        if len(arrays) == 1 and programs and not any(arrays.keys() & program.variables.keys() for program in programs):
            ((file, array),) = self.arrays.items()  # a combined file of one
            return Combined(file, [array]).named(programs, infos)
        self._check_folders()
        for (name, array), file in zip(arrays.items(), self.arrays, strict=True):
            check_byte_order(file, name, array)
        program, notes = program_of(arrays, programs, self.place)
        beside = f" with its program {program.file.name}" if program else ""
        structured = {name: text for info in infos for name, text in info.structured.items() if text and name in arrays}
        return Named(f"{self.label}{beside}", arrays, structured, program, notes)

    def _name(self, file: Path) -> str:
        return file.relative_to(self.place).as_posix().removesuffix(self.suffix)

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
    label = "pickled arrays (.pdparams)"

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
        notes += (f"entries that are no arrays, not used: {listed(others)}",) if others else ()
        structured = {name: text for pickled in self.pickles for name, text in pickled.structured.items()}
        beside = f" with its program {program.file.name}" if program else ""
        return Named(f"{self.label}{beside}", arrays, structured, program, notes)


def program_of(
    arrays: Mapping[str, np.ndarray], programs: Sequence[Program], place: Path
) -> tuple[Program | None, tuple[str, ...]]:
    """The one program that declares these arrays, and notes about programs that are not used.

    UserError: it declares one of them with another shape or number type.
    """
    using = [program for program in programs if any(name in program.variables for name in arrays)]
    if len(using) != 1:
        names = listed(program.file.name for program in programs)
        why = "declare these variables" if using else "declare none of these variables"
        return None, (f"programs that are not used, as {len(using) or 'they'} {why}: {names}",) if programs else ()
    (program,) = using
    wrong = misfit(program, arrays)
    if wrong is not None:
        hint = "the parameters and the program were not saved together, or a file is damaged"
        raise UserError(f"does not belong to {program.file.name}: {wrong}", where=str(place), hint=hint)
    absent = sorted(set(program.persistables) - arrays.keys() - optimizer_state(program.persistables))
    return program, (f"variables of {program.file.name} that no file holds: {listed(absent)}",) if absent else ()


def parameter_sets(kinds: Mapping[Path, Kind]) -> tuple[list[ParameterSet], list[Pickled]]:
    """The sets of parameters among the files, and the notes of jit.save."""
    files: dict[Kind, list[Path]] = {kind: [file for file in kinds if kinds[file] is kind] for kind in Kind}
    found: list[ParameterSet] = []
    singles: dict[Path, np.ndarray] = {}
    for file in files[Kind.TENSOR]:
        tensors = read_tensors(file)
        if len(tensors) > 1:
            found.append(Combined(file, tensors))
        else:
            singles[file] = np.array(tensors[0])  # a copy: a thousand mapped files are more than a process may open
    if singles:
        found.append(Separate(_common_folder(singles), "one file per variable", singles, ""))
    arrays = {file: np.array(read_numpy(file)) for file in files[Kind.NUMPY]}
    if arrays:
        found.append(Separate(_common_folder(arrays), "NumPy arrays (.npy)", arrays, ".npy"))
    pickles = [read_pickle(file) for file in files[Kind.PICKLE]]
    by_name: dict[Path, list[Pickled]] = defaultdict(list)
    for pickled in pickles:
        if not pickled.is_info:
            by_name[pickled.file.with_suffix("")].append(pickled)
    found += [Saved(group[0].file, group) for group in by_name.values()]
    return found, [pickled for pickled in pickles if pickled.is_info]


def _common_folder(files: Mapping[Path, np.ndarray]) -> Path:
    return Path(os.path.commonpath([file.parent for file in files]))
