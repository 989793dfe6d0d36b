"""Reads pickled weights without executing code in them.

`model_state.pdparams` and `pytorch_model.bin` are pickles; unpickling an untrusted file runs any code that it names.
Neither `paddle.load` nor PaddleNLP's own reader prevents that. nlpctl reads both with an unpickler that only accepts
arrays and plain containers.

NumPy's classes are never handed out: a pickle may set the state of the objects it builds, and a
forged dtype or array state could reach into memory. Small stand-ins take their place and become
arrays once everything is checked.
"""

from __future__ import annotations

import collections
import contextlib
import mmap
import pickletools
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nlpctl.errors import UserError
from nlpctl.files import regular
from nlpctl.formats.bounds import MOST_SHARED, Allowance, check_shape

MOST_STEPS = 1 << 21  # opcodes of a pickle; an array takes some 30 of them
_MOST_ARGUMENTS = 16  # of a function that a pickle calls
_LONGEST_INTEGER = 512  # bits; a file of PyTorch begins with a number of 80
_LONGEST_NAME = 120  # characters of a name in messages

_VALUES = {
    *("NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    *("NONE", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
}
_EMPTY: Mapping[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_DICT": dict}
_PLACES = {"PUT", "BINPUT", "LONG_BINPUT", "FRAME"}  # their numbers are none that Python's own pickler would write
_CONSTANTS = {"NEWTRUE": True, "NEWFALSE": False}


class ForbiddenGlobal(Exception):
    """A pickle named something that is not on the list. `str()` is its dotted name."""

    def __init__(self, name: str):
        super().__init__(name[:_LONGEST_NAME])


class RestrictedUnpickler:
    """Reads a pickle as Python's unpickler does, but resolves only the globals it was given, and is bounded.

    Python's own reader clears a table of 34 GB for five bytes, and hashes a key of nested tuples for ever. This one
    knows only the opcodes that arrays and plain containers need. ValueError, IndexError or TypeError: the pickle is
    damaged, or claims more than a file of `size` bytes holds.
    """

    def __init__(
        self,
        stream: Any,
        size: int,
        allowed: Mapping[tuple[str, str], Any],
        persistent: Callable[[Any], Any] | None = None,
    ):
        """`stream`: read no further than the end of one pickle; a claim of its read() beyond the end costs no memory.

        `persistent`: gives what an id in the pickle stands for.
        """
        self._stream, self._allowed, self._persistent = stream, allowed, persistent
        self._size = size
        self._bytes = Allowance(MOST_SHARED * size, "values")
        self._steps = Allowance(MOST_STEPS, "entries")

    def load(self) -> Any:
        """The value of the pickle that begins here; may be called again for the next one."""
        stack: list[Any] = []
        marked: list[list[Any]] = []
        memo: dict[int, Any] = {}
        argument: Any  # its type follows from the opcode
        for opcode, argument, position in pickletools.genops(self._stream):
            self._steps.take(1)
            name = opcode.name
            if name in _PLACES and argument > self._size - (position if name == "FRAME" and position else 0):
                raise ValueError(f"{name} at byte {position} claims {argument} in {self._size} bytes")
            if name in _VALUES:
                if type(argument) is int and argument.bit_length() > _LONGEST_INTEGER:
                    raise ValueError(f"an integer of {argument.bit_length()} bits")
                stack.append(_CONSTANTS.get(name, argument))
            elif name in _EMPTY:
                stack.append(_EMPTY[name]())
            elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
                memo[argument] = stack[-1]
            elif name == "MEMOIZE":
                memo[len(memo)] = stack[-1]
            elif name in ("GET", "BINGET", "LONG_BINGET"):
                stack.append(memo[argument])
            elif name == "MARK":
                marked.append(stack)
                stack = []
            elif name in ("TUPLE", "LIST", "DICT", "APPENDS", "SETITEMS"):
                items, stack = stack, marked.pop()
                if name in ("TUPLE", "LIST"):
                    stack.append(tuple(items) if name == "TUPLE" else items)
                elif name == "APPENDS":
                    as_kind(list, stack[-1]).extend(items)
                else:
                    if name == "DICT":
                        stack.append({})
                    _set_items(stack[-1], zip(items[::2], items[1::2], strict=True))
            elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
                count = int(name[-1])
                if len(stack) < count:
                    raise IndexError("nothing to make a tuple of")
                stack[-count:] = [tuple(stack[-count:])]
            elif name == "APPEND":
                item = stack.pop()
                as_kind(list, stack[-1]).append(item)
            elif name == "SETITEM":
                value, key = stack.pop(), stack.pop()
                _set_items(stack[-1], [(key, value)])
            elif name == "GLOBAL":
                module, _, attribute = argument.partition(" ")
                stack.append(self._global(module, attribute))
            elif name == "STACK_GLOBAL":
                attribute, module = as_kind(str, stack.pop()), as_kind(str, stack.pop())
                stack.append(self._global(module, attribute))
            elif name == "REDUCE":
                arguments, function = as_kind(tuple, stack.pop()), stack.pop()
                stack.append(self._called(function, arguments))
            elif name == "BUILD":
                state = stack.pop()
                self._build(stack[-1], state)
            elif name == "BINPERSID" and self._persistent is not None:
                stack.append(self._persistent(stack.pop()))
            elif name == "STOP":
                return stack.pop()
            elif name not in ("PROTO", "FRAME"):
                raise ValueError(f"the opcode {name}, which no arrays need")
        raise ValueError("it has no end")

    def _global(self, module: str, name: str) -> Any:
        try:
            return self._allowed[module, name]
        except KeyError:
            raise ForbiddenGlobal(f"{module}.{name}") from None

    def _called(self, function: Any, arguments: tuple) -> Any:
        """What a function of the list gives. It may copy its arguments, which cost the file nothing the second time."""
        if len(arguments) > _MOST_ARGUMENTS or not callable(function):
            raise ValueError("a call that no arrays need")
        self._pay(arguments)
        value = function(*arguments)
        if isinstance(value, np.ndarray) and not any(value is argument for argument in arguments):
            self._bytes.take(value.nbytes)  # of a view too: what uses it copies it
        return value

    def _build(self, value: Any, state: Any) -> None:
        if isinstance(value, _Dtype | _Array):
            self._pay(as_kind(tuple, state))
            value.set_state(state)
        # Else the attributes of a dict, such as the `_metadata` of PyTorch: nobody reads them.
        elif not isinstance(value, dict):
            raise ValueError("the state of something that is no array")

    def _pay(self, arguments: tuple) -> None:
        for argument in arguments:
            if isinstance(argument, str | bytes | bytearray):
                self._bytes.take(len(argument))
            elif isinstance(argument, list | tuple | dict):
                self._steps.take(len(argument))


def as_kind(kind: Any, value: Any) -> Any:
    """`value`; ValueError if it is not of this kind."""
    if not isinstance(value, kind):
        raise ValueError(f"a {type(value).__name__} where a {getattr(kind, '__name__', kind)} belongs")
    return value


def _set_items(target: Any, items: Any) -> None:
    """Set the keys of a dict. Keys are names and small numbers: the hash of nested tuples may take for ever."""
    for key, value in items:
        plain = isinstance(key, str | bytes | float | bool | None) or (type(key) is int and key.bit_length() <= 64)
        if not plain:
            raise ValueError("a key that is neither text nor a number")
        as_kind(dict, target)[key] = value


@contextlib.contextmanager
def mapped(path: Path) -> Iterator[mmap.mmap]:
    """The bytes of a regular file, as a stream whose read() never allocates more than is there."""
    with regular(path).open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        yield content


def load_pdparams(path: Path) -> dict[str, np.ndarray]:
    """Read a file written by `paddle.save(network.state_dict())`: parameter name to array.

    Raises UserError when the file is cut off, is no such file, or names anything but arrays.
    """
    loaded = _load_dict(path, "parameters")
    slices = loaded.pop(_SLICES, {})
    return _join_slices(path, {name: _array(path, name, value) for name, value in loaded.items()}, slices)


def load_state(path: Path) -> dict[str, Any]:
    """Read a dict written by `paddle.save`, such as the state of an optimizer: arrays, numbers, and dicts of them.

    Raises UserError as `load_pdparams` does.
    """
    loaded = _load_dict(path, "training state")
    slices = loaded.pop(_SLICES, {})
    return _join_slices(path, _plain_state(path, loaded), slices)


def _load_dict(path: Path, what: str) -> dict[str, Any]:
    def read() -> Any:
        with mapped(path) as stream:
            return RestrictedUnpickler(stream, len(stream), ALLOWED).load()

    loaded = guarded(path, read)
    if not isinstance(loaded, dict):
        raise UserError(f"holds no {what}", where=str(path), hint=BROKEN_HINT)
    # Names, not arrays: Paddle's table from dygraph to internal names.
    loaded.pop("StructuredToParameterName@@", None)
    return loaded


def _plain_state(path: Path, contents: Mapping[str, Any]) -> dict[str, Any]:
    """Dicts inside dicts, but not deep, and no more entries than the file has bytes: a few kilobytes can nest dicts, or
    hold a wide one in many places, so that walking them never ends."""
    entries = Allowance(min(path.stat().st_size, MOST_STEPS), "entries")

    def plain(name: str, value: Any, depth: int) -> Any:
        if isinstance(value, dict) and depth < 3:
            entries.take(len(value))
            return {inner: plain(f"{name}.{str(inner)[:80]}", item, depth + 1) for inner, item in value.items()}
        return value if isinstance(value, bool | int | float | str | None) else _array(path, name, value)

    return {name: guarded(path, partial(plain, str(name)[:80], value, 0)) for name, value in contents.items()}


def guarded(path: Path, read: Callable[[], Any]) -> Any:
    """Run `read`, turning every way in which a bad pickle fails into one UserError."""
    try:
        return read()
    except UserError:
        raise
    except ForbiddenGlobal as error:
        raise UserError(
            f"refused: this weights file wants to load {error}, which is code, not an array",
            where=str(path),
            hint="the file may be malicious: do not load it elsewhere; ask its author for safetensors",
        ) from None
    except MemoryError as error:
        raise UserError("claims more data than fits into memory", where=str(path), hint=BROKEN_HINT) from error
    except Exception as error:  # a broken pickle may raise nearly anything
        raise UserError(f"is cut off or damaged ({reason_of(error)})", where=str(path), hint=BROKEN_HINT) from error


def reason_of(error: BaseException) -> str:
    """The first line of what an error says, and not too much of it: it may quote the file."""
    return (str(error).splitlines() or [""])[0][:200] or type(error).__name__


BROKEN_HINT = "copy or download the weights again and compare their size with the original"

# Paddle splits arrays above 1 GiB into slices when it saves with pickle protocol 2 or 3.
_SLICES = "UnpackBigParamInfor@@"


def _join_slices(path: Path, arrays: dict[str, np.ndarray], slices: Any) -> dict[str, np.ndarray]:
    def join() -> dict[str, np.ndarray]:
        for name, info in slices.items():
            # pop: a slice that is listed twice fails instead of filling the memory.
            parts = [arrays.pop(as_kind(str, part)) for part in info["slices"]]
            arrays[name] = np.concatenate(parts).reshape(info["OriginShape"])
        return arrays

    return guarded(path, join)


def _array(path: Path, name: Any, value: Any) -> np.ndarray:
    """The array of one entry; Paddle stores tensors as arrays or as (internal name, array)."""
    if isinstance(value, tuple) and len(value) == 2:
        value = value[1]
    if not isinstance(name, str) or not isinstance(value, _Array) or value.data is None:
        raise UserError(f"entry {str(name)[:80]!r} is not an array", where=str(path), hint=BROKEN_HINT)
    return value.data


class _Dtype:
    """Stand-in for numpy.dtype: numeric kinds only, and no state but the byte order."""

    def __init__(self, code: str, align: bool = False, copy: bool = False):
        self.dtype = np.dtype(as_kind(str, code)[:_LONGEST_NAME])
        # Object arrays would unpickle further objects; strings and records are no parameters.
        if self.dtype.kind not in "fiub":
            raise ForbiddenGlobal(f"numpy.dtype({code!r})")

    def set_state(self, state: tuple) -> None:
        # The rest of the state can describe sub-arrays and fields, by which a forged dtype reads out of bounds.
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """Stand-in for numpy.ndarray while it is being rebuilt."""

    data: np.ndarray | None = None

    def set_state(self, state: tuple) -> None:
        # frombuffer checks the length against shape and dtype; ndarray.__setstate__ would trust them.
        _, shape, dtype, fortran, raw = state
        self.data = _from_bytes(raw, dtype, shape, "F" if fortran else "C")


def _from_bytes(raw: bytes | str, dtype: _Dtype, shape: tuple, order: Any) -> np.ndarray:
    raw = raw.encode("latin1") if isinstance(raw, str) else raw
    return np.frombuffer(raw, dtype=dtype.dtype).reshape(
        check_shape(shape, dtype.dtype.itemsize, len(raw)), order=order
    )


def _reconstruct(subtype: Any, shape: Any, typecode: Any) -> _Array:
    return _Array()


def _frombuffer(raw: Any, dtype: _Dtype, shape: tuple, order: Any) -> _Array:
    array = _Array()
    # bytes() of a number would be so many zeros.
    array.data = _from_bytes(bytes(as_kind(bytes | bytearray, raw)), dtype, shape, order)
    return array


def _encode(text: str, codec: str) -> bytes:
    if as_kind(str, codec) != "latin1":
        raise ForbiddenGlobal(f"_codecs.encode to {codec}")
    return as_kind(str, text).encode("latin1")


def _no_bytes() -> bytes:
    """Stands for bytes(), by which pickle protocol 2 writes b""."""
    return b""


def ordered_dict(items: Any = ()) -> dict:
    """An OrderedDict; Python 2 writes its items as one list of pairs."""
    made: dict = collections.OrderedDict()
    _set_items(made, items)
    return made


def _tuple(items: Any) -> tuple:
    return as_kind(tuple, items)


_CORE = ("numpy.core", "numpy._core")  # NumPy 1 and NumPy 2
ALLOWED: Mapping[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): ordered_dict,
    ("builtins", "tuple"): _tuple,
    ("__builtin__", "tuple"): _tuple,
    ("numpy", "ndarray"): "ndarray",  # only ever an argument of _reconstruct, which ignores it
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): _no_bytes,
    **{(f"{core}.multiarray", "_reconstruct"): _reconstruct for core in _CORE},
    **{(f"{core}.numeric", "_frombuffer"): _frombuffer for core in _CORE},
}
