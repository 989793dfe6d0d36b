"""Assigns names to the tensors of a combined file, which stores them without names.

Paddle writes them sorted by name (`save_vars`, `save_inference_model` and `jit.save` alike), so the names come from
the program, and the shapes and number types that the program declares prove that they are the right ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from nlpctl.errors import UserError
from nlpctl.formats.array_files import Pickled
from nlpctl.formats.program import Program, ProgramVariable
from nlpctl.static_graph.optimizer_state import optimizer_state
from nlpctl.static_graph.variables import dtype_name

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


def _candidates(program: Program) -> Iterator[tuple[str, ...]]:
    """The possible lists of saved names: all (save_persistables), parameters (save_params), all but optimizer state."""
    everything = program.persistables
    yield everything
    yield tuple(name for name in everything if program.variables[name].is_parameter)
    yield tuple(name for name in everything if name not in optimizer_state(everything))


def _with_union(programs: Sequence[Program]) -> Iterator[Program]:
    """Each program, and all together: `jit.save` writes several functions to one file with combine_params."""
    yield from programs
    if len(programs) > 1:
        merged = {name: variable for program in programs for name, variable in program.variables.items()}
        yield dataclasses.replace(programs[0], variables=merged)


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
