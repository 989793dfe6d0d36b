"""Attacks made from what nlpctl declares: its recipe keys, the flags of its commands, files read and written.

A new key, command, flag or file is attacked without anyone writing a case. Each attack is one command line in a copy
of the folder of conftest.py. A new command needs a line in GOOD, which a test demands.
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nlpctl.cli.app import COMMANDS, _load
from nlpctl.config.keys import Key, all_keys
from nlpctl.config.paths import INPUT_PATHS, TEXT_PATHS

# A command line of each command that is right, or refused for its model alone; its paths and numbers are replaced.
GOOD = {
    "new": "new train.tsv --dev dev.tsv --model scratch --yes -o new.yaml",
    "train": "train good.yaml --max_steps 1",
    "eval": "eval outputs/finished dev.tsv",
    "predict": "predict outputs/finished texts.txt",
    "calibrate": "calibrate outputs/finished dev.tsv",
    "ensemble": "ensemble outputs/finished -o new",
    "export": "export outputs/finished -o new --format onnx",
    "compress": "compress outputs/finished --strategy nonesuch",
    "bench": "bench exported --rounds 1 --rows 2 --batch-size 1 --engine onnxruntime",
    "serve": "serve nowhere",
    "explain": "explain outputs/finished texts.txt",
    "index build": "index build outputs/finished texts.txt -o new",
    "index search": "index search exported texts.txt",
    "data inspect": "data inspect good.yaml train.tsv",
    "data show": "data show good.yaml train.tsv",
    "data split": "data split good.yaml train.tsv -o new --dev 1 --test 0",
    "data retag": "data retag outputs/finished train.tsv -o new.txt",
    "data augment": "data augment good.yaml train.tsv -o new.jsonl --method delete",
    "data curve": "data curve good.yaml -o new --shares 2",
    "data audit": "data audit outputs/finished",
    "data apply": "data apply hostile.jsonl -o new",
    "params ls": "params ls outputs/finished",
    "params export": "params export outputs/finished -o new.npz",
    "params set": "params set outputs/finished --value classifier.bias=0 -o new",
    "params add": "params add outputs/finished --name w --shape 2 --value 0 -o new",
    "params diff": "params diff outputs/finished outputs/finished/model",
    "convert-static": "convert-static exported -o new --to huggingface",
    "runs ls": "runs ls outputs",
    "runs show": "runs show outputs/finished",
    "runs diff": "runs diff outputs/finished outputs/finished",
    "runs board": "runs board nowhere",
    "report": "report outputs/finished -o new.html",
    "recipe show": "recipe show good.yaml",
    "recipe copy": "recipe copy quickstart new",
    "recipe validate": "recipe validate good.yaml",
}
NO_FILES = ("recipe ls", "recipe schema", "recipe flags", "completion", "doctor")  # nothing to attack
# Flags with a path that is read; all others are written.
READ = ("--data", "--synonyms", "--labels", "--vocabulary", "--api-key-file", "--tls-cert", "--tls-key")
READERS = {  # folder whose every file is damaged -> the commands that read it
    "outputs/finished/model": ("predict", "params ls"),
    "outputs/finished": ("runs ls", "runs show", "report", "recipe show"),
    "exported": ("bench",),
}

LONG = "n" * 300
DEEP = "[" * 100_000 + "]" * 100_000
NUMBERS = ("-1", "0", "1" + "0" * 25, "1e400", "nan", "-inf", "1.5", "x", "")
VALUES: dict[Any, tuple[str, ...]] = {
    int: ("-1", "0", "1" + "0" * 25, "1.5", ".nan", ".inf", "x", "true", "[]", "{}", "[1, 2]"),
    float: ("-1", "1e400", ".nan", "-.inf", "x", "true", "[]", "{}", "1" + "0" * 25),
    bool: ("perhaps", "2", "[]", "{}", "null"),
    str: ('""', '"\\0"', LONG, "[[]]", "{a: {b: c}}", '"\\ud800"', "../" * 50 + "x", "${x}", "!!python/name:os x"),
    list: ("x", "[[[]]]", "[null]", "{}", "[-1]", "[" + "a," * 5000 + "]"),
    dict: ("x", "[]", "{1: 2}", "{? [a] : b}", "{a: " * 40 + "}" * 40),
}


@dataclass(frozen=True)
class Attack:
    """One hostile command line. `writes`: what the user names as output, all that may change."""

    family: str
    name: str
    words: tuple[str, ...]
    prepare: Callable[[Path], None] = lambda folder: None
    writes: str | None = None


# -- hostile files -----------------------------------------------------------------------------------------------


def _put(content: bytes) -> Callable[[Path], None]:
    return lambda path: _fresh(path).write_bytes(content) and None


def _fresh(path: Path) -> Path:
    if path.is_symlink() or path.exists():
        path.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _halved(path: Path) -> None:
    content = path.read_bytes() if path.is_file() else b"a,b\n"
    _put(content[: len(content) // 2])(path)


def _sparse(path: Path) -> None:
    with _fresh(path).open("wb") as stream:
        stream.truncate(3 << 30)


def _null(path: Path) -> None:
    try:
        os.mknod(_fresh(path), stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:  # devices are made by root alone
        os.symlink(os.devnull, path)


FILES: dict[str, Callable[[Path], None]] = {
    "missing": lambda path: _fresh(path) and None,
    "empty": _put(b""),
    "cut": _halved,
    "random": _put(bytes((i * 197 + i // 7) % 256 for i in range(3000))),
    "NUL": _put(b"\0" * 3000),
    "deep": _put(DEEP.encode()),
    "a list": _put(b"[1, 2]\n"),
    "a number": _put(b"7\n"),
    "no keys": _put(b"{}\n"),
    "NaN": _put(b"NaN\n"),
    "UTF-16": _put("text\tlabel\n好\tpos\n".encode("utf-16")),
    "GBK": _put("text\tlabel\n好\tpos\n".encode("gbk")),
    "one long line": _put(b"a" * 2_000_000),
    "sparse": _sparse,
    "a folder": lambda path: _fresh(path).mkdir(),
    "a device": _null,
    "a circle of links": lambda path: _fresh(path).symlink_to(path.name),
    "a dangling link": lambda path: _fresh(path).symlink_to("nowhere"),
}
PIPE = {"a pipe": lambda path: os.mkfifo(_fresh(path))}  # waits for a writer, which is right where a pipe is taken
TAKE_PIPES = ("predict", "explain", "index build", "index search")


# -- the attacks -------------------------------------------------------------------------------------------------


@functools.cache
def commands() -> dict[str, Any]:
    """Every command that does something, by its words."""
    found: dict[str, Any] = {}
    for command in COMMANDS:
        loaded = _load(command)
        below = getattr(loaded, "commands", None)
        found |= {f"{command.name} {name}": each for name, each in below.items()} if below else {command.name: loaded}
    return found


def attacks() -> list[Attack]:
    """All of them, in a fixed order; names are unique."""
    made = [*_keys(), *_inputs(), *_numbers(), *_outputs()]
    assert len({(each.family, each.name) for each in made}) == len(made)
    return made


def _keys() -> Iterator[Attack]:
    for dotted, key in all_keys().items():
        for value in _values_for(key):
            section, _, name = dotted.rpartition(".")
            yield Attack(
                "keys", f"{dotted}: {value[:40]}", ("recipe", "validate", "attack.yaml"), _recipe(section, name, value)
            )
    for dotted in (*INPUT_PATHS, *TEXT_PATHS):
        for kind, make in {**FILES, **PIPE}.items():
            section, _, name = dotted.rpartition(".")
            yield Attack(
                "named files", f"{dotted}: {kind}", ("data", "inspect", "attack.yaml", "--estimate"),
                _both(_recipe(section, name, "hostile"), _making(make, "hostile")),
            )  # fmt: skip


def _values_for(key: Key) -> tuple[str, ...]:
    if key.section or key.free or key.entry:
        return VALUES[dict]
    if key.item or key.lists:
        return VALUES[list]
    return VALUES[key.scalar or str]


def _recipe(section: str, name: str, value: str) -> Callable[[Path], None]:
    """attack.yaml: good.yaml with one other value."""
    text = f"{name}: {value}"
    for part in reversed(section.split(".") if section else []):
        text = f"{part}: {{{text}}}"
    return lambda folder: (folder / "attack.yaml").write_text(f"extends: good.yaml\n{text}\n") and None


def _making(make: Callable[[Path], None], name: str) -> Callable[[Path], None]:
    return lambda folder: make(folder / name)


def _both(first: Callable[[Path], None], second: Callable[[Path], None]) -> Callable[[Path], None]:
    return lambda folder: (first(folder), second(folder)) and None


def _inputs() -> Iterator[Attack]:
    """Every path of a command line, every flag that reads a file, and every file of the folders that are read."""
    for command, line in GOOD.items():
        words = line.split()
        kinds = FILES if command in TAKE_PIPES else {**FILES, **PIPE}
        output = _output_of(words)
        for place, word in enumerate(words):
            if "." in word or "/" in word or word == "exported":
                if words[place - 1].startswith("-"):
                    continue
                for kind, make in kinds.items():
                    suffix = Path(word).suffix or ".txt"
                    yield Attack(
                        "inputs", f"{command}, {word} {place}: {kind}",
                        (*words[:place], f"hostile{suffix}", *words[place + 1 :]), _making(make, f"hostile{suffix}"),
                        output,
                    )  # fmt: skip
        for flag in _flags(command, "Path"):
            if flag in READ:
                for kind, make in {**FILES, **PIPE}.items():
                    yield Attack(
                        "inputs", f"{command} {flag}: {kind}", (*words, flag, "hostile.txt"),
                        _making(make, "hostile.txt"), output,
                    )  # fmt: skip


def folder_attacks(start: Path) -> Iterator[Attack]:
    """Damage to each file that lies in a folder which commands read; `start` holds these folders."""
    for folder, readers in READERS.items():
        for file in sorted(path for path in (start / folder).iterdir() if path.is_file()):
            for kind, make in {**FILES, **PIPE}.items():
                for command in readers:
                    words = GOOD[command].split()
                    if command == "recipe show":
                        words = ["recipe", "show", folder]
                    name = f"{folder}/{file.name}"
                    yield Attack(
                        "folders", f"{command}, {name}: {kind}", tuple(words), _making(make, name), _output_of(words)
                    )


def _numbers() -> Iterator[Attack]:
    for command, line in GOOD.items():
        for flag in (*_flags(command, "int"), *_flags(command, "float")):
            for value in NUMBERS:
                if (flag, value) == ("--port", "0"):
                    continue
                words = line.split()
                yield Attack(
                    "numbers", f"{command} {flag} {value[:9]}", (*words, f"{flag}={value}"), writes=_output_of(words)
                )


def _outputs() -> Iterator[Attack]:
    """Places where no output may be written, or that must stay whatever happens."""
    places: dict[str, Callable[[Path], None]] = {
        "mine.html": _making(_put(b"<!doctype html>my own thesis"), "mine.html"),
        "train.tsv": lambda folder: None,
        "train.tsv/below": lambda folder: None,
        "outputs/finished/model/config.json": lambda folder: None,
        "outputs/finished/model/sub/x.npz": lambda folder: None,
        "outputs/finished/manifest.json": lambda folder: None,
        "exported/model.onnx": lambda folder: None,
        "huggingface": lambda folder: None,
        ".": lambda folder: None,
        LONG: lambda folder: None,
        "circle": lambda folder: (folder / "circle").symlink_to("circle"),
    }
    for command, line in GOOD.items():
        words = line.split()
        flags = [flag for flag in _flags(command, "Path") if flag not in READ]
        for flag in [*flags, *(["new"] if command == "recipe copy" else [])]:
            begun = words[: words.index(flag)] if flag in words else words
            for place, prepare in places.items():
                for more in ((), ("--overwrite",)) if _has(command, "--overwrite") else ((),):
                    # What --overwrite is for: what is neither read nor a part of something is replaced.
                    told = more and place in ("mine.html", "huggingface", "train.tsv") and place not in words
                    name = f"{command} {flag} {place[:40]}{' --overwrite' if more else ''}"
                    target = (place,) if flag == "new" else (flag, place)
                    after = words[words.index(flag) + (1 if flag == "new" else 2) :] if flag in words else []
                    yield Attack(
                        "outputs", name, (*begun, *target, *after, *more), prepare, place if told else None
                    )


def _flags(command: str, kind: str) -> list[str]:
    """The options of a command that take a value of this type, by their first names."""
    options = [each for each in commands()[command].params if each.param_type_name == "option"]
    return [each.opts[0] for each in options if kind in _type_name(each)]


def _type_name(param: Any) -> str:
    annotation = param.type_descriptor.annotation
    return getattr(annotation, "__name__", str(annotation))


def _has(command: str, flag: str) -> bool:
    return any(flag in each.opts for each in commands()[command].params)


def _output_of(words: list[str]) -> str | None:
    if words[:2] == ["recipe", "copy"]:
        return "new"
    return words[words.index("-o") + 1] if "-o" in words else None
