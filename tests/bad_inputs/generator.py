"""Attacks made from what nlpctl declares: its recipe keys, the flags of its commands, files read and written.

A new key, command, flag or file is attacked without anyone writing a case. Each attack is one command line in a copy
of the folder of conftest.py. A new command needs a line in GOOD, which a test demands.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import yaml
from damage import damage
from hostile import FILES, NOT_UTF8, PIPE, device, put
from library_tokenizers import field, varint

from nlpctl.cli.app import COMMANDS, _load
from nlpctl.cli.options import RecipeCommand
from nlpctl.config.keys import Key, all_keys, keys_of
from nlpctl.config.paths import INPUT_PATHS, TEXT_PATHS
from nlpctl.config.schema import DataFormat, ScratchSection
from nlpctl.config.user_code import CODE_KEYS
from nlpctl.data.readers.packed import PACKED

NOT_OURS = "192.0.2.1"  # no machine has this address: a service that is told to listen there ends at once

# Command lines of each command that are right, or refused for their model alone; their paths and numbers are replaced.
# Each option is given to the first.
GOOD: dict[str, tuple[str, ...]] = {
    "new": ("new train.tsv --dev dev.tsv --model scratch --yes -o new.yaml",),
    "train": (
        "train good.yaml --max_steps 1",
        "train good.yaml --max_steps 1 --folds 2",
        "train good.yaml --max_steps 1 --seeds 1,2",
        "train good.yaml --max_steps 1 --nnodes 2 --master 127.0.0.1:9 --node_rank 1 --wait 0.1",
        "train outputs/finished --continue 1 --max_steps 1",
    ),
    "sweep": ('sweep good.yaml -o new --trials 1 --set search.space={"training.seed":[1,2]}',),
    "eval": (
        "eval outputs/finished dev.tsv",
        "eval outputs/finished dev.tsv --against exported --by length",
        "eval outputs/finished dev.tsv --workers 2",
    ),
    "predict": (
        "predict outputs/finished texts.txt",
        "predict outputs/finished texts.txt dev.tsv -o new.jsonl --workers 2",
        "predict outputs/finished texts.txt -o new --parts parquet --resume",
        "predict outputs/pairs texts.txt --embeddings new.npy",
        "predict outputs/finished texts.txt --layer-outputs * -o new.npz",
    ),
    "calibrate": ("calibrate outputs/finished dev.tsv",),
    "ensemble": ("ensemble outputs/finished outputs/other -o new", "ensemble outputs/folds -o new"),
    "export": (
        "export outputs/finished -o new --format onnx --timing 0",
        "export outputs/finished -o new --format onnx --precision fp16 --timing 0",
    ),
    "compress": ("compress outputs/finished --strategy nonesuch",),
    "bench": ("bench exported --rounds 1 --rows 2 --batch-size 1 --engine onnxruntime",),
    "serve": (
        "serve nowhere",
        f"serve exported --host {NOT_OURS} --api-key-file keys.txt",
        f"serve exported --host {NOT_OURS} --tls-cert cert.pem --tls-key key.pem",
    ),
    "explain": ("explain outputs/finished texts.txt",),
    "index build": (
        "index build outputs/pairs texts.txt -o new",
        "index build outputs/pairs texts.txt -o new --workers 2",
    ),
    "index search": ("index search outputs/index texts.txt",),
    "data inspect": ("data inspect good.yaml train.tsv",),
    "data show": ("data show good.yaml train.tsv",),
    "data split": ("data split good.yaml train.tsv -o new --dev 1 --test 0",),
    "data retag": ("data retag outputs/finished train.tsv -o new.txt",),
    "data augment": ("data augment good.yaml train.tsv -o new.jsonl --method delete",),
    "data curve": ("data curve good.yaml -o new --shares 2",),
    "data audit": ("data audit outputs/folds -o new",),
    "data apply": (
        "data apply ticked.jsonl -o new",
        "data apply outputs/folds/audit/findings.jsonl -o new --all --drop",
    ),
    "data convert": ("data convert good.yaml train.tsv -o new.jsonl --to doccano",),
    "data next": ("data next outputs/finished texts.txt -n 2 -o new.jsonl",),
    "params ls": ("params ls outputs/finished",),
    "params export": ("params export outputs/finished -o new.npz",),
    "params set": ("params set outputs/finished --value classifier.bias=0 -o new",),
    "params add": ("params add outputs/finished --name w --shape 2 --value 0 -o new",),
    "params diff": ("params diff outputs/finished outputs/finished/model",),
    "convert-static": ("convert-static exported -o new --to huggingface",),
    "runs ls": ("runs ls outputs",),
    "runs show": ("runs show outputs/finished",),
    "runs diff": ("runs diff outputs/finished outputs/finished",),
    "runs send": ("runs send outputs/finished",),
    "runs clean": ("runs clean outputs", "runs clean outputs --keep 0 --yes"),
    "ui": (f"ui outputs --host {NOT_OURS}",),
    "runs board": (f"runs board outputs --host {NOT_OURS}",),
    "report": ("report outputs/finished -o new.html",),
    "card": ("card outputs/finished -o new.md",),
    "recipe show": ("recipe show good.yaml",),
    "recipe copy": ("recipe copy quickstart new",),
    "recipe validate": ("recipe validate good.yaml",),
    "recipe flags": ("recipe flags learning_rate",),
    "doctor": ("doctor --recipe good.yaml", "doctor --nnodes 2 --master 127.0.0.1:9 --node_rank 1 --wait 0.1"),
}
NO_FILES = ("recipe ls", "recipe schema", "completion")  # nothing to attack
# Flags with a path that is read; all others are written.
READ = ("--data", "--synonyms", "--labels", "--vocabulary", "--api-key-file", "--tls-cert", "--tls-key")
WRITTEN = ("new --split",)  # a text, and a folder that is written
# Commands that add files to a folder that exists, and folders in which no file has such a name.
ADDING, ADDED = ("recipe copy", "data apply", "data split"), ("outputs", "outputs/finished", "huggingface", "mine")
# And what --overwrite replaces of theirs: a run that is no member; what was audited lies in another folder.
GIVEN_UP = {("ensemble (1)", "outputs/finished"): "outputs/finished", ("data apply (1)", "."): "train.tsv"}
GIVEN_UP |= {("recipe copy", "."): ".", ("export", "exported"): "exported", ("export (1)", "exported"): "exported"}
REPLACED = ("mine.html", "train.tsv", "huggingface")  # by --overwrite, if all else allows it
TAKE_PIPES = ("predict", "explain", "index build", "index search")
READERS = {  # folder whose every file is damaged -> the commands that read it
    "outputs/finished/model": ("predict", "params ls"),
    "outputs/finished": ("runs ls", "runs show", "report", "recipe show"),
    "exported": ("bench",),
    "outputs/index": ("index search",),
    "outputs/folds": ("data audit", "ensemble", "runs ls"),
    "outputs/folds/fold-1": ("data audit", "ensemble", "runs ls"),
    "outputs/folds/audit": ("data apply",),
}
# Folders of other programs, and weights that nlpctl writes for them -> command lines that read them: their files are
# damaged at any depth, and the values in their documents.
FOREIGN: dict[str, tuple[str, ...]] = {
    "sentences": (
        "predict sentences texts.txt --embeddings new.npy",
        "train good.yaml --model_name_or_path sentences --max_steps 1",
        "new train.tsv --dev dev.tsv --model sentences --time --yes -o new.yaml",
    ),
    "reranker": ("predict reranker pairs.jsonl", "export reranker -o new --format onnx --timing 0"),
    "modernbert": (
        "predict modernbert texts.txt --embeddings new.npy",
        "train good.yaml --model_name_or_path modernbert --max_steps 1",
        "new train.tsv --dev dev.tsv --model modernbert --time --yes -o new.yaml",
    ),
    "pieces": ("predict pieces texts.txt --embeddings new.npy", "index build pieces texts.txt -o new"),
    "spiece": (
        "predict spiece texts.txt --embeddings new.npy",
        "train good.yaml --model_name_or_path spiece --max_steps 1",
        "new train.tsv --dev dev.tsv --model spiece --time --yes -o new.yaml",
    ),
    "sharded": ("predict sharded texts.txt", "params ls sharded"),
    "weights": ("predict weights texts.txt", "eval weights dev.tsv", "export weights -o new --layout transformers"),
    "vectors": (
        "predict vectors texts.txt --embeddings new.npy",
        "export vectors -o new --layout sentence-transformers",
    ),
}

# Command lines that open a folder as a recipe, besides those of GOOD, and where each kind of folder says what it is.
OPENING = (
    "train outputs/finished --output_dir outputs/new --max_steps 1",
    "train outputs/finished --output_dir outputs/new --max_steps 1 --folds 2",
    "data show outputs/finished", "data inspect outputs/finished", "data curve outputs/finished -o new --shares 2",
    "data split outputs/finished -o new --dev 1 --test 0", "data convert outputs/finished -o new.jsonl --to doccano",
    "eval outputs/finished --split dev", "eval outputs/finished/recipe.yaml --split dev", "calibrate outputs/finished",
    "export outputs/finished/model -o new --format onnx --timing 0", "eval exported dev.tsv",
    "predict outputs/finished/model texts.txt", "recipe validate outputs/finished/recipe.yaml",
    "params ls outputs/finished/recipe.yaml",
    "params set outputs/finished/model --value classifier.bias=0 -o new",
)  # fmt: skip
OPENED = ("outputs/finished/recipe.yaml", "outputs/finished/model/task.json", "exported/task.json",
          "outputs/index/recipe.yaml", "outputs/folds/recipe.yaml", "outputs/folds/fold-1/recipe.yaml")  # fmt: skip
TOLD = ("task.json", "config.json", "tokenizer_config.json", "special_tokens_map.json", "manifest.json", "export.json",
        "series.json")  # fmt: skip
RAN, STOLEN = "it-ran", "stolen-text-4711"
EVIL = f"import pathlib\npathlib.Path({RAN!r}).touch()\ndef run(*words): raise SystemExit(words)\n"
LONG = "n" * 300
MANY = "9" * 25  # more than any machine has of anything, or can count to
ENDLESS_DIGITS = "9" * 5000  # int() raises for more than 4,300
NUMBERS = ("-1", "0", MANY, ENDLESS_DIGITS, "1e400", "nan", "-inf", "1.5", "x", "")
CROWD = "99999"  # processes, threads, rows: right as a number, and too many of some things
TEXTS = ("", LONG, "../" * 60 + "x", "\udcff", "\u200b", "a,b\nc", "=", ",", "-", "*", "${x}", "x" + ",x" * 5000)
TEXTS += ("0", "-1", MANY, ENDLESS_DIGITS, "nan")
ENDLESS = ("--wait", "--rounds", "--rows", "--timing", "--max-wait", "--drain")  # as long as the user says
FIXED = ("--host",)  # with another one it would serve
SHARED = ("--device", "--devices", "--nproc", "--threads", "--labels", "--set")  # of commands that take a recipe
VALUES: dict[Any, tuple[str, ...]] = {
    int: ("-1", "0", MANY, ENDLESS_DIGITS, "1.5", ".nan", ".inf", "x", "true", "[]", "{}", "[1, 2]"),
    float: ("-1", "1e400", ".nan", "-.inf", "x", "true", "[]", "{}", MANY, ENDLESS_DIGITS),
    bool: ("perhaps", "2", "[]", "{}", "null"),
    str: ('""', '"\\0"', LONG, "[[]]", "{a: {b: c}}", '"\\ud800"', "../" * 50 + "x", "${x}", "!!python/name:os x"),
    list: ("x", "[[[]]]", "[null]", "{}", "[-1]", f"[{ENDLESS_DIGITS}]", "[" + "a," * 5000 + "]"),
    dict: ("x", "[]", "{1: 2}", "{? [a] : b}", "{a: " * 40 + "}" * 40),
}
LARGE = {int: "1000000000", float: "1e30"}  # right as numbers; whoever makes room for as many must ask first


# Variables that are right together -> command lines that read them. `--nnodes auto` asks the scheduler.
_SCHEDULED = ("train good.yaml --max_steps 1 --nnodes auto --wait 0.1",)
HOMES = ("PPNLP_HOME", "HF_HOME", "XDG_CACHE_HOME")  # folders that may be made
ENVIRONMENTS: tuple[tuple[Mapping[str, str], tuple[str, ...]], ...] = (
    ({"LC_ALL": "zh_CN.UTF-8"}, tuple(line for name in ("report", "card", "explain", "data inspect", "runs ls", "bench")
                                      for line in GOOD[name][:1])),
    ({"LANG": "C", "TERM": "dumb", "COLUMNS": "80", "NO_COLOR": "1", "NLPCTL_TASKS": ""},
     ("runs ls outputs", "train good.yaml --max_steps 1", "recipe validate good.yaml")),
    ({"PPNLP_HOME": "cache", "HF_HOME": "cache", "HF_ENDPOINT": "http://127.0.0.1:9", "XDG_CACHE_HOME": "cache",
      "HF_HUB_ETAG_TIMEOUT": "2", "HF_HUB_DOWNLOAD_TIMEOUT": "2"},
     ("params ls sharded", "new train.tsv --dev dev.tsv --yes -o new.yaml", "predict hf:a/b texts.txt",
      "data inspect good.yaml train.tsv")),
    ({"NLPCTL_PROGRESS": "json"}, ("recipe validate good.yaml",)),
    ({"PORT_RANGE": "20000:30000"}, ("train good.yaml --max_steps 1 --nproc 2",)),
    ({"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}, ("predict outputs/finished texts.txt",)),
    ({"MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "MLFLOW_EXPERIMENT_NAME": "a"}, ("runs send outputs/finished",)),
    ({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "2", "SLURM_PROCID": "1", "SLURM_JOB_NODELIST": "127.0.0.1",
      "SLURM_LOCALID": "0", "SLURM_TASKS_PER_NODE": "2", "SLURM_NODEID": "0"}, _SCHEDULED),
    ({"PADDLE_JOB_ID": "a", "PADDLE_TRAINERS_NUM": "2", "PADDLE_TRAINER_ID": "1", "PADDLE_MASTER": "127.0.0.1:9",
      "PADDLE_LOCAL_RANK": "0", "PADDLE_LOCAL_SIZE": "1"}, _SCHEDULED),
    ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "JOB_COMPLETION_INDEX": "0"}, _SCHEDULED),
)  # fmt: skip


# In place of a value in a document of a foreign folder.
VALUES_OF_JSON: tuple[Any, ...] = (None, True, -1, 0, 3, 1.5, 10**9, 10**25, 1e300, "", "x", "\0", "../secret.txt", [])
VALUES_OF_JSON += ({}, [None], ["x"] * 3, {"x": "y"}, {"": [-1]}, float("nan"))
# In place of a model's name, besides.
MODELS = (
    "hf:", "hf:a", "hf:a/b", "hf:../..", "hf:a/b@", "hf:a/b@../../../x", "hf:a/b@" + "0" * 40, "hf:a/b/c", "hf:-a/-b",
    f"hf:{LONG}/b", f"hf:a/b@{LONG}", "hf:\udcff/b", "hf: / ", "HF:a/b", "hf:a/b@main:x", "hf:a%2Fb/c", "hf:a/..",
    "hf:a/b.git", "python:", "python:os", "python:os/..", "python:nlpctl/../../x", "python:nlpctl/nonesuch", "task:",
    "task:nonesuch", "task:../x",
)  # fmt: skip
# A row of a tagger, with the places where its spans and texts stand.
SPANS = {"text": "Anna lives in Oslo", "entities": [{"start": 0, "end": 4, "label": "PER"},
         {"start": 14, "end": 18, "label": "LOC"}], "tokens": ["a"], "id": 7}  # fmt: skip


@dataclass(frozen=True)
class Attack:
    """One hostile command line: `value` at `place` of `door`, which is a command as a rule.

    `writes`: what the user names as output, all that may change. `shared`: the place is of a folder that several doors
    open, and is attacked by one of them at least.
    """

    family: str
    door: str
    place: str
    value: str
    words: tuple[str, ...]
    prepare: Callable[[Path], None] = lambda folder: None
    writes: str | None = None
    shared: bool = False
    env: Mapping[str, str] | None = None

    @property
    def name(self) -> str:
        return f"{self.door}, {self.place}: {self.value}"

    @property
    def pairs(self) -> set[tuple[str, ...]]:
        """What a part of all attacks has once at least: a door with each of its places, and with each value."""
        door = "" if self.shared else self.door
        return {(self.family, door, "place", self.place), (self.family, self.door, "value", self.value)}


def thinned(made: Iterable[Attack], order: Callable[[Attack], Any]) -> list[Attack]:
    """Every place once at least, and every value at every door, in place of every value everywhere."""
    chosen: dict[str, Attack] = {}
    met: set[tuple[str, ...]] = set()
    ordered = sorted(made, key=order)
    for wanted in (2, 1):  # those first that bring a place and a value at once
        for attack in ordered:
            if len(attack.pairs - met) >= wanted:
                met |= attack.pairs
                chosen[f"{attack.family} {attack.name}"] = attack
    return list(chosen.values())


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


def all_attacks(start: Path) -> list[Attack]:
    """All of them, in a fixed order. `start` holds the folders that commands read."""
    on_folders = (folder_attacks, foreign_attacks, piece_attacks, name_attacks, path_attacks)
    return [*attacks(), *(attack for make in on_folders for attack in make(start))]


def attacks() -> list[Attack]:
    """Those that need no folder to be made; names are unique."""
    made = [*_keys(), *_large(), *_named_files(), *_inputs(), *_endings(), *_numbers(), *_texts(), *_outputs()]
    made += [*_names(), *_inputs_as_outputs(), *_models(), *_rows(), *_cleaned(), *_environments()]
    twice = [name for name, count in Counter((each.family, each.name) for each in made).items() if count > 1]
    assert not twice, twice[:5]
    return made


def _lines() -> Iterator[tuple[str, list[str], str]]:
    """Each command, each of its right lines in words, and what tells the line from the first."""
    for command, lines in GOOD.items():
        for number, line in enumerate(lines):
            yield command, line.split(), f" ({number})" if number else ""


def _keys() -> Iterator[Attack]:
    """Every key of a recipe, with values of the wrong type, and extremes of the right one."""
    for dotted, key in all_keys().items():
        for value in _values_for(key):
            section, words = dotted.partition(".")[0], ("recipe", "validate", "attack.yaml")
            yield Attack("keys", section, dotted, f"{value[:40]} {len(value)}", words, _recipe(dotted, value))


def _large() -> Iterator[Attack]:
    """Every number of a recipe, far beyond what a machine can hold: in a training, not a check of the recipe alone."""
    for dotted, key in all_keys().items():
        number = LARGE.get(key.scalar or key.item)  # type: ignore[arg-type]
        if number is not None and dotted != "training.max_steps":  # trains as long as the user says
            value = "[" + f"{number}, " * 10_000 + "]" if key.item else number
            yield Attack(
                "large numbers", "train", dotted, number, ("train", "attack.yaml", "--max_steps", "1"),
                _recipe(dotted, value),
            )  # fmt: skip
    for name, key in keys_of(ScratchSection, "model.config").items():
        if key.scalar is int:  # model.config has free names; these are those of most networks
            yield Attack(
                "large numbers", "train", f"model.config.{name}", LARGE[int],
                ("train", "attack.yaml", "--max_steps", "1"), _recipe(f"model.config.{name}", LARGE[int]),
            )  # fmt: skip


def _values_for(key: Key) -> tuple[str, ...]:
    if key.section or key.free or key.entry or key.axes:
        return VALUES[dict]
    if key.item or key.lists:
        return VALUES[list]
    return VALUES[key.scalar or str]


def _recipe(dotted: str, value: str) -> Callable[[Path], None]:
    """attack.yaml: good.yaml with one other value."""
    text = value
    for part in reversed(dotted.split(".")):
        text = f"{{{part}: {text}}}"
    return lambda folder: (folder / "attack.yaml").write_text(f"extends: good.yaml\n{text[1:-1]}\n") and None


def _making(make: Callable[[Path], None], name: str) -> Callable[[Path], None]:
    return lambda folder: make(folder / name)


def _both(first: Callable[[Path], None], second: Callable[[Path], None]) -> Callable[[Path], None]:
    return lambda folder: (first(folder), second(folder)) and None


def _named_files() -> Iterator[Attack]:
    """Every file that a recipe names."""
    for dotted in (*INPUT_PATHS, *TEXT_PATHS):
        for kind, make in {**FILES, **PIPE}.items():
            yield Attack(
                "named files", dotted, "file", kind, ("data", "inspect", "attack.yaml", "--estimate"),
                _both(_recipe(dotted, "hostile"), _making(make, "hostile")),
            )  # fmt: skip


def _inputs() -> Iterator[Attack]:
    """Every path of a command line, and every flag that reads a file."""
    for command, words, mark in _lines():
        kinds = FILES if command in TAKE_PIPES else {**FILES, **PIPE}
        output = _output_of(words)
        for place, word in enumerate(words):
            if ("." in word or "/" in word or word == "exported") and not _is_value(words, place):
                for kind, make in kinds.items():
                    hostile = f"hostile{Path(word).suffix or '.txt'}"
                    yield Attack(
                        "inputs", command, f"{word} {place}{mark}", kind,
                        (*words[:place], hostile, *words[place + 1 :]), _making(make, hostile), output,
                    )  # fmt: skip
        for flag in _flags(command, "Path"):
            if flag in READ and (flag in words or not mark):
                for kind, make in {**FILES, **PIPE}.items():
                    yield Attack(
                        "inputs", command, f"{flag}{mark}", kind, (*words, flag, "hostile.txt"),
                        _making(make, "hostile.txt"), output,
                    )  # fmt: skip


def _is_value(words: list[str], place: int) -> bool:
    """Whether the word at `place` belongs to a flag before it."""
    before = words[place - 1]
    return before.startswith("-") and before not in ("--all", "--drop", "--yes", "--resume")


def _endings() -> Iterator[Attack]:
    """What the ending of an input promises and its content does not hold."""
    formats = [f".{each}" for each in get_args(DataFormat) if each != "auto"]
    for ending in [".txt", ".parquet", *formats, *(f".jsonl{packed}" for packed in PACKED)]:
        for kind in ("empty", "cut", "random", "NUL", "deep", "a number", "UTF-16", "one long line", "gzip, cut",
                     "gzip, one line of 100 MB", "a folder", "an endless device"):  # fmt: skip
            name = f"hostile{ending}"
            for words in (["predict", "outputs/finished", name], ["index", "build", "outputs/pairs", name, "-o", "new"],
                          ["eval", "outputs/finished", name], ["data", "inspect", "good.yaml", name]):  # fmt: skip
                command = " ".join(words[: 2 if words[0] in ("index", "data") else 1])
                yield Attack(
                    "endings", ending, command, kind, tuple(words), _making(FILES[kind], name), _output_of(words)
                )
    for url in ("http://127.0.0.1:9/a.txt", "nonesuch://a/b.txt", "memory://a.jsonl", "file:///nonesuch.txt", "s3://"):
        yield Attack("endings", "URL", "predict", url, ("predict", "outputs/finished", url))


def folder_attacks(start: Path) -> Iterator[Attack]:
    """Damage to each file that lies in a folder which commands read; `start` holds these folders."""
    for folder, readers in READERS.items():
        files = (path for path in (start / folder).iterdir() if path.is_file()) if (start / folder).is_dir() else ()
        for file in sorted(files):
            for kind, make in {**FILES, **PIPE}.items():
                for command in readers:
                    words = ["recipe", "show", folder] if command == "recipe show" else GOOD[command][-1].split()
                    if command not in ("data apply", "ensemble"):
                        words = GOOD[command][0].split() if command != "recipe show" else words
                    name = f"{folder}/{file.name}"
                    yield Attack("folders", f"{command} {folder}", file.name, kind, tuple(words), _making(make, name),
                                 _output_of(words))  # fmt: skip


def foreign_attacks(start: Path) -> Iterator[Attack]:
    """Damage to each file of FOREIGN, and other values in their documents. Command lines take turns, and so do values:
    all of them everywhere would take half a day."""
    for folder, lines in FOREIGN.items():
        files = sorted(path for path in (start / folder).rglob("*") if path.is_file())
        for count, file in enumerate(files):
            name = str(file.relative_to(start))
            for number, (kind, make) in enumerate({**FILES, **PIPE}.items()):
                words = lines[(count + number) % len(lines)].split()
                yield Attack("foreign folders", " ".join(words), name, kind, tuple(words), _making(make, name),
                             _output_of(words))  # fmt: skip
            places = _places_in(json.loads(file.read_text(encoding="utf-8"))) if file.suffix == ".json" else ()
            for number, place in enumerate(places):
                for value in VALUES_OF_JSON[number % 4 :: 4]:
                    words = lines[number // 4 % len(lines)].split()
                    prepare = functools.partial(_replaced, file=name, place=place, value=value)
                    where = f"{name} {'.'.join(map(str, place))[:60]}"
                    yield Attack("values in folders", " ".join(words), where, ascii(value)[:20], tuple(words), prepare,
                                 _output_of(words), shared=True)  # fmt: skip


def piece_attacks(start: Path) -> Iterator[Attack]:
    """Sentencepiece models that are none, or lie: cut, with changed bytes, and well-formed ones that hold nonsense."""
    name = "spiece/sentencepiece.bpe.model"
    good = (start / name).read_bytes()
    models = {f"cut at {share}/16": good[: len(good) * share // 16] for share in range(1, 16)}
    for number in range(48):
        at = number * len(good) // 48
        for byte in (0, good[at] ^ 0x80, 0xFF):
            models[f"byte {at} is {byte}"] = good[:at] + bytes([byte]) + good[at + 1 :]
    unit, large = field(1, field(1, "a") + field(2, -1.0)), 1 << 63
    odd: dict[str, bytes] = {
        **{f"{place} of {size} bytes": varint(key) + varint(size) + b"x" for place, key in (
            ("a piece", 10), ("a spec", 18), ("a normaliser", 26), ("an unknown field", 34))
            for size in (2, 1 << 31, large)},
        **{f"wire type {wire}": varint(1 << 3 | wire) + b"\1" * 9 for wire in (0, 1, 3, 4, 5, 6, 7)},
        **{f"a piece of wire type {wire}": field(1, varint(1 << 3 | wire) + b"\1" * 8) for wire in (0, 1, 5)},
        **{f"a piece {ascii(piece)[:20]}": field(1, field(1, piece)) for piece in (
            "", "▁", "a", "<s>", "<mask>", "</s>", "\0", " ", b"\xff\xfe", "\u202e", "x" * 1_000_000, "\U0010ffff")},
        **{f"a score {score}": field(1, field(1, "zz") + field(2, score)) for score in (
            float("nan"), float("inf"), float("-inf"), 3e38, -3e38, 1e-45)},
        "a score of zeros": field(1, field(1, "zz") + field(2, 7)), "a piece without text": field(1, field(2, -1.0)),
        **{f"a piece of type {kind}": field(1, field(1, "zz") + field(3, kind)) for kind in (0, *range(2, 8), large)},
        **{f"model type {kind}": field(2, field(3, kind)) for kind in (0, 2, 3, 4, 99, large)},
        **{f"a table {ascii(table)[:30]} {len(table)}": field(3, field(2, table)) for table in (
            b"", b"\0", b"\0" * 4, b"\xff" * 4, b"\4\0\0\0\0\0\0\0", b"\4\0\0\0" + b"\xff" * 40, b"\xff" * 100_000)},
        "a table that is a number": field(3, field(2, 1 << 40)), "one more piece": unit, "many pieces": unit * 100_000,
        "pieces of another text": b"".join(field(1, field(1, f"p{n}")) for n in range(300_000)),
        "empty pieces": field(1, b"") * 1_000_000, "twice": good, "zeros": b"\0" * 1_000_000,
    }  # fmt: skip
    models |= {f"{told}, {where}": content + good if where == "before" else good + content
               for told, content in odd.items() for where in ("before", "behind")}  # fmt: skip
    models |= {"no pieces": field(2, field(3, 1)), "one piece": unit, "fewer": good[: good.index(field(1, "▁")[:-1])]}
    for number, (told, content) in enumerate(models.items()):
        words = FOREIGN["spiece"][number % len(FOREIGN["spiece"])].split()
        yield Attack("pieces", words[0], "model", told, tuple(words), _making(put(content), name), _output_of(words))


def _places_in(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where values stand in a document; of many in a list or a table some."""
    if place:
        yield place
    inside = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    for name, each in inside if len(inside) < 40 else (*inside[:2], inside[-1]):
        yield from _places_in(each, (*place, name))


def _replaced(folder: Path, file: str, place: tuple[Any, ...], value: Any) -> None:
    content = json.loads((folder / file).read_text(encoding="utf-8"))
    (folder / file).write_text(json.dumps(_with(content, place, value)), encoding="utf-8")


def _with(content: Any, place: tuple[Any, ...], value: Any) -> Any:
    """A copy of a JSON value with another one in one place."""
    copy = json.loads(json.dumps(content))
    inner = copy
    for part in place[:-1]:
        inner = inner[part]
    inner[place[-1]] = value
    return copy


def name_attacks(start: Path) -> Iterator[Attack]:
    """Code that only an opened folder names, under every key of this kind. If it runs it makes the file RAN."""
    for file in (each for each in OPENED if (start / each).is_file()):
        for words in _opening(file):
            for key in CODE_KEYS:
                name = "runpy:run_path" if key == "data.reader" else "evil:run"
                prepare = functools.partial(_name, file=file, key=key, value=name)
                yield Attack("names in folders", " ".join(words), f"{file} {key}", name, tuple(words), prepare,
                             _new(words), shared=True)  # fmt: skip


def path_attacks(start: Path) -> Iterator[Attack]:
    """A file outside in place of every text of the files by which folders tell what they are, under every key of a
    recipe that is a path, and a link in place of every file. What holds STOLEN afterwards was copied."""
    for file in (each for each in OPENED if (start / each).is_file()):
        keys = ("decode.terms", "masking.dictionary")
        keys = (*INPUT_PATHS, *TEXT_PATHS, "data.dataset") if file.endswith(".yaml") else keys
        for words in _opening(file):
            for key in keys:
                for how in ("absolute", "relative"):
                    prepare = functools.partial(_name, file=file, key=key, value=how)
                    told = " ".join(words), f"{file} {key}", how
                    yield Attack("paths in folders", *told, tuple(words), prepare, _new(words), shared=True)
        folder = Path(file).parent
        for told in sorted(path for path in (start / folder).glob("*.json") if path.name in TOLD):
            for place in _texts_in(json.loads(told.read_text(encoding="utf-8"))):
                for words in _opening(file)[:4]:
                    prepare = functools.partial(_exchange, file=f"{folder}/{told.name}", place=place)
                    where = f"{folder}/{told.name} {'.'.join(map(str, place))[:60]}"
                    yield Attack("paths in folders", " ".join(words), where, "in its place", tuple(words), prepare,
                                 _new(words), shared=True)  # fmt: skip
        for each in sorted(path for path in (start / folder).glob("*") if path.is_file()):
            for words in _opening(file):
                prepare = functools.partial(_link, file=f"{folder}/{each.name}")
                told = " ".join(words), f"{folder}/{each.name}", "a link"
                yield Attack("paths in folders", *told, tuple(words), prepare, _new(words), shared=True)


def _opening(file: str) -> list[list[str]]:
    """The command lines that open the folder of `file`, those first that copy it."""
    folder = file.rpartition("/")[0]
    lines = [*OPENING, *(line for name, command in GOOD.items() if name != "runs send" for line in command)]
    found = [line.split() for line in lines if {folder, file} & {*line.split()}]
    found += [words.split() for words in OPENING if folder == "outputs/finished/model" and "outputs/finished" in words]
    unique = [words for place, words in enumerate(found) if words not in found[:place]]
    return sorted(unique, key=lambda words: words[0] not in ("export", "params", "train", "ensemble"))


def _new(words: list[str]) -> str | None:
    """What a command line writes; one that writes into a run or its model alone is told apart by `RAN` and STOLEN."""
    if words[0] in ("calibrate", "report", "train", "bench", "compress", "data"):
        return "."
    return _output_of(words)


def _name(folder: Path, file: str, key: str, value: str) -> None:
    """Set a key in the recipe or task.json of a folder, which lists no checksums any more."""
    _plant(folder)
    path = folder / file
    content = (yaml.safe_load if path.suffix == ".yaml" else json.loads)(path.read_text(encoding="utf-8"))
    _unlist(path.parent)
    value = {"absolute": str(folder / "secret.txt"), "relative": "../" * 5 + "secret.txt"}.get(value, value)
    inner = content
    for part in key.split(".")[:-1]:
        inner[part] = inner.get(part) or {}
        inner = inner[part]
    inner[key.rpartition(".")[2]] = value
    if value == "runpy:run_path":
        content["data"] |= {split: [str(path.parent / "evil.py")] for split in ("train", "dev", "test")}
    path.write_text(json.dumps(content), encoding="utf-8")  # which is YAML too
    if path.name == "task.json" and key == "model.network":
        config = json.loads((path.parent / "config.json").read_text(encoding="utf-8"))
        config["own_network"] = {"class": value}
        (path.parent / "config.json").write_text(json.dumps(config), encoding="utf-8")
    _list_anew(path.parent)


def _exchange(folder: Path, file: str, place: tuple[Any, ...]) -> None:
    """The path of a file outside in place of one text in a JSON file."""
    _plant(folder)
    path = folder / file
    content = json.loads(path.read_text(encoding="utf-8"))
    inner: Any = content
    for part in place[:-1]:
        inner = inner[part]
    inner[place[-1]] = str(folder / "secret.txt")
    if path.name not in ("manifest.json", "export.json", "series.json"):
        _unlist(path.parent)
    path.write_text(json.dumps(content), encoding="utf-8")
    if path.name != "export.json":
        _list_anew(path.parent)


def _link(folder: Path, file: str) -> None:
    _plant(folder)
    (folder / file).unlink()
    (folder / file).symlink_to(folder / "secret.txt")
    if Path(file).name != "manifest.json":
        _unlist((folder / file).parent)
    if Path(file).name != "export.json":
        _list_anew((folder / file).parent)


def _plant(folder: Path) -> None:
    """evil.py, which tells when it runs, and secret.txt, which could be a vocabulary of the model, words or labels."""
    for place in (folder, folder / "outputs" / "finished", folder / "outputs" / "folds"):
        if place.is_dir():
            (place / "evil.py").write_text(EVIL, encoding="utf-8")
    *pieces, _ = (folder / "outputs/finished/model/vocab.txt").read_text(encoding="utf-8").splitlines()
    (folder / "secret.txt").write_text("\n".join([*pieces, STOLEN, ""]), encoding="utf-8")


def _unlist(folder: Path) -> None:
    """A stranger writes no list of checksums, or one that is right."""
    content = folder / "manifest.json"
    if content.is_file() and json.loads(content.read_text(encoding="utf-8")).get("kind") == "model":
        content.unlink()


def _list_anew(folder: Path) -> None:
    if (folder / "export.json").is_file():
        damage(folder.parent, f"sign {folder.name}")


def _texts_in(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where texts stand in a JSON value; of many in a list or a table the first."""
    if isinstance(value, str) and place:
        yield place
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in list(inside)[: 3 if isinstance(value, list) else 20]:
        yield from _texts_in(each, (*place, name))


def _numbers() -> Iterator[Attack]:
    """Every option that takes a number, and those for numbers of a recipe."""
    for command, words, mark in _lines():
        shared = ("--nproc", "--threads") if _takes_recipe(command) and not mark else ()
        for flag in dict.fromkeys((*_flags(command, "int"), *_flags(command, "float"), *shared)):
            for value in (*NUMBERS, *(() if flag in ENDLESS else (CROWD,))):
                yield Attack(
                    "numbers", command, f"{flag}{mark}", f"{value[:9]} {len(value)}", (*words, f"{flag}={value}"),
                    writes=_output_of(words),
                )  # fmt: skip


def _texts() -> Iterator[Attack]:
    """Every option that takes a text or a list of texts."""
    for command, words, mark in _lines():
        if mark and command != "train":  # its flags depend on each other
            continue
        shared = SHARED if _takes_recipe(command) and not mark else ()
        for flag in dict.fromkeys((*_flags(command, "str"), *_flags(command, "list"), *shared)):
            if flag in FIXED or f"{command} {flag}" in WRITTEN:
                continue
            for value in TEXTS:
                yield Attack(
                    "texts", command, f"{flag}{mark}", f"{value[:9]!r} {len(value)}", (*words, f"{flag}={value}"),
                    writes=_output_of(words),
                )  # fmt: skip


def _outputs() -> Iterator[Attack]:
    """Places where no output may be written, or that must stay whatever happens."""
    places: dict[str, Callable[[Path], None]] = {
        "mine.html": _making(put(b"<!doctype html>my own thesis"), "mine.html"),
        "mine": _making(put(b"my own thesis"), "mine/thesis.txt"),
        "train.tsv": lambda folder: None,
        "train.tsv/below": lambda folder: None,
        "outputs": lambda folder: None,
        "outputs/finished": lambda folder: None,
        "outputs/finished/model": lambda folder: None,
        "outputs/finished/model/config.json": lambda folder: None,
        "outputs/finished/model/sub/x.npz": lambda folder: None,
        "outputs/finished/manifest.json": lambda folder: None,
        "exported": lambda folder: None,
        "exported/model.onnx": lambda folder: None,
        "huggingface": lambda folder: None,
        ".": lambda folder: None,
        "/": lambda folder: None,
        "-": lambda folder: None,
        LONG: lambda folder: None,
        "circle": lambda folder: (folder / "circle").symlink_to("circle"),
        "dangling": lambda folder: (folder / "dangling").symlink_to("nowhere/at/all"),
        "null": _making(device(3, "/dev/null"), "null"),
        "full": _making(device(7, "/dev/full"), "full"),
        "null/below": _making(device(3, "/dev/null"), "null"),
    }
    for command, words, mark in _lines():
        flags = [flag for flag in _flags(command, "Path") if flag not in READ and (flag in words or not mark)]
        for flag in [*flags, *(["new"] if command == "recipe copy" else [])]:
            begun = words[: words.index(flag)] if flag in words else words
            after = words[words.index(flag) + (1 if flag == "new" else 2) :] if flag in words else []
            for place, prepare in places.items():
                target = (place,) if flag == "new" else (flag, place)
                for more in ((), ("--overwrite",)) if _has(command, "--overwrite") else ((),):
                    # What --overwrite is for: what is neither read nor a part of something is replaced.
                    told = place if more and place in REPLACED and place not in words else None
                    if command in ADDING and place in ADDED:
                        told = place
                    if more:
                        told = GIVEN_UP.get((f"{command}{mark}", place), told)
                    if command == "new" and flag == "-o":  # which adds the ending
                        told = f"{place}.yaml"
                    line = (*begun, *target, *after, *more)
                    yield Attack("outputs", command, " ".join((flag + mark, *more)), place[:40], line, prepare, told)


def _names() -> Iterator[Attack]:
    """Names that are not UTF-8: of every path of a command line, written or read, and of what lies in folders."""
    for command, words, mark in _lines():
        for place, word in enumerate(words):
            path = Path(word)
            if word.startswith("-") or (not path.suffix and "/" not in word and word not in ("new", "exported")):
                continue
            for hostile in (path.with_name(NOT_UTF8 + path.name), Path(NOT_UTF8, path.name)):
                line = (*words[:place], str(hostile), *words[place + 1 :])
                where = f"{word} {place}{mark}"
                yield Attack("names", command, where, ascii(str(hostile)), line, _moved(word, hostile))
    for folder, readers in READERS.items():
        for command in readers:
            words = ["recipe", "show", folder] if command == "recipe show" else GOOD[command][0].split()
            for inside in (NOT_UTF8, f"{NOT_UTF8}.txt", f"{NOT_UTF8}/manifest.json", f"{NOT_UTF8}.pdparams"):
                make = _making(put(b"{}"), f"{folder}/{inside}")
                yield Attack("names", command, folder, ascii(inside), tuple(words), make, _output_of(words))


def _moved(word: str, hostile: Path) -> Callable[[Path], None]:
    """What a command line names under its `hostile` name too, so that the name alone is wrong."""

    def make(folder: Path) -> None:
        (folder / hostile).parent.mkdir(parents=True, exist_ok=True)
        if (folder / word).is_dir():
            shutil.copytree(folder / word, folder / hostile)
        elif (folder / word).is_file():
            shutil.copy(folder / word, folder / hostile)

    return make


def _inputs_as_outputs() -> Iterator[Attack]:
    """What a command reads, as what it is to write: under its own name, by a link, and by a hard link."""
    for command, words, mark in _lines():
        for flag in (each for each in _flags(command, "Path") if each not in READ and (each in words or not mark)):
            begun = words[: words.index(flag)] if flag in words else words
            after = words[words.index(flag) + 2 :] if flag in words else []
            written = words[len(begun) : len(begun) + 2] if flag in words else []
            for word in dict.fromkeys(word for word in words if word not in written and _is_path(word)):
                kinds = {"itself": None, "a link": os.symlink, "a hard link": os.link}
                for kind, make in kinds.items():
                    if make is os.link and not Path(word).suffix:  # a folder
                        continue
                    name = word if make is None else f"other{Path(word).suffix}"
                    told = f"{name}.yaml" if command == "new" else None  # which adds the ending
                    more = ("--overwrite",) if _has(command, "--overwrite") else ()
                    yield Attack(
                        "inputs as outputs", f"{command}{mark} {flag}", word, kind,
                        (*begun, flag, name, *after, *more), functools.partial(_linked, make, word, name), told,
                    )  # fmt: skip


def _models() -> Iterator[Attack]:
    """Names of models that are none, wherever a model is named."""
    for name in MODELS:
        for line in ("predict {} texts.txt", "params ls {}", "export {} -o new", "eval {} dev.tsv",
                     "new train.tsv --dev dev.tsv --yes -o new.yaml --model {}",
                     "train good.yaml --max_steps 1 --model_name_or_path {}"):  # fmt: skip
            words = tuple(word.format(name) for word in line.split())
            value = f"{ascii(name)[:60]} {len(name)}"
            yield Attack("models", words[0], "model", value, words, writes=_output_of(list(words)))


def _rows() -> Iterator[Attack]:
    """Rows with spans, with another value in one place. Others are right, so that new and a training go on."""
    for place in _places_in(SPANS):
        for value in (*VALUES_OF_JSON, 5, 18, 19, "4", "O", "B-PER", [0, 4], [0, 4, "PER"], {"start": 0, "end": 1}):
            lines = [json.dumps(SPANS)] * 3 + [json.dumps(_with(SPANS, place, value))]
            told = ".".join(map(str, place)), ascii(value)[:30]
            make = put("".join(f"{line}\n" for line in lines).encode())
            for line in ("new spans.jsonl --dev none --model scratch --yes -o new.yaml",
                         "train spans.yaml --max_steps 1",
                         "data convert spans.yaml spans.jsonl -o new.jsonl --to doccano",
                         "data inspect spans.yaml spans.jsonl"):  # fmt: skip
                words = line.split()
                prepare = _both(_making(make, "spans.jsonl"), _making(put(SPANS_RECIPE), "spans.yaml"))
                yield Attack("rows", " ".join(words[:2]), *told, tuple(words), prepare, _output_of(words))


SPANS_RECIPE = b"""extends: good.yaml
task: token_classification
data: {train: spans.jsonl, dev: spans.jsonl, format: spans}
"""


def _environments() -> Iterator[Attack]:
    """Each variable of ENVIRONMENTS with values that no shell or scheduler gives it."""
    for variables, lines in ENVIRONMENTS:
        for variable in variables:
            # A home is made where it is named, so none leads out of the folder.
            texts = ("good.yaml", *(each for each in TEXTS if "/" not in each)) if variable in HOMES else TEXTS
            for value in (*texts, "1(x999999999999)", "n[1-999999999999]", "zh_CN.GBK", "٣"):
                for line in lines:
                    words = line.split()
                    yield Attack("environments", line, variable, f"{value[:20]!r} {len(value)}", tuple(words),
                                 writes=_new(words), env={**variables, variable: value})  # fmt: skip


def _cleaned() -> Iterator[Attack]:
    """Folders that runs clean is to leave alone: those of other programs, with files of the same names, and links."""
    words = ("runs", "clean", "mine", "outputs", "--keep", "0", "--yes")
    finished = b'{"format": 1, "state": "finished", "pid": 1, "host": "h", "started": "2026-01-02T03:04:05+00:00"}'
    documents = {
        "manifest.json": (b'{"state": "finished"}', b"{}", b"[]", b"x"),
        "series.json": (finished, b"{}"),
        "compress/plan.json": (b"{}",),
        "plan.json": (b"{}", b"[]"),
        "report.json": (b"{}", b'{"failures": []}'),
        "sweep.json": (b'{"best": "a"}', b'{"best": "../.."}', b'{"best": []}'),
    }
    for name, contents in documents.items():
        for content in contents:
            prepare = functools.partial(_mine, name=name, content=content)
            yield Attack("cleaned", "mine", name, repr(content[:30]), words, prepare, "outputs")
    for place in ("outputs/finished", "outputs/finished/checkpoints", "outputs/finished/model",
                  "outputs/finished/checkpoints/checkpoint-1", "outputs/folds", "outputs/folds/fold-1",
                  "outputs/folds/fold-1/model", "outputs/folds/fold-1/checkpoints"):  # fmt: skip
        prepare = functools.partial(_moved_away, place=place)
        for named in ("outputs", *(["outputs/finished"] if place != "outputs/finished" else [])):
            line = (*words[:2], named, *words[-3:])
            yield Attack("cleaned", named, place, "a link", line, prepare, "outputs")


def _mine(folder: Path, name: str, content: bytes) -> None:
    """A folder of another program, with names that nlpctl uses, and one document that claims to be of nlpctl."""
    for each in ("checkpoints/checkpoint-1/thesis.txt", "checkpoints/checkpoint-2/thesis.txt", "trials/a/thesis.txt",
                 "networks/a/thesis.txt", "candidates/a.txt", "exports/a.txt", "best/export.json", "thesis.tmp",
                 "compress/candidates/a.txt", "model/thesis.txt", ".thesis.part"):  # fmt: skip
        put(b"my own thesis")(folder / "mine" / each)
    put(content)(folder / "mine" / name)
    _with_checkpoints(folder)


def _with_checkpoints(folder: Path) -> None:
    for run in (folder / "outputs").rglob("checkpoints"):
        for step in (1, 2):
            shutil.copytree(run.parent / "model", run / f"checkpoint-{step}", dirs_exist_ok=True)


def _moved_away(folder: Path, place: str) -> None:
    """`place` is moved out of what is cleaned, and is a link to there."""
    _with_checkpoints(folder)
    if (folder / place).exists():
        (folder / place).rename(folder / "elsewhere")
        (folder / place).symlink_to(folder / "elsewhere")


def _is_path(word: str) -> bool:
    return ("." in word or "/" in word or word == "exported") and not set(word) & set("=*:")


def _linked(make: Callable[[Path, Path], None] | None, word: str, name: str, folder: Path) -> None:
    if make is not None and (folder / word).exists():
        make(folder / word, folder / name)


def _flags(command: str, kind: str) -> list[str]:
    """The options of a command that take a value of this type, by their first names."""
    options = [each for each in commands()[command].params if each.param_type_name == "option"]
    return [each.opts[0] for each in options if kind in _type_name(each) and not each.is_flag]


def _takes_recipe(command: str) -> bool:
    return isinstance(commands()[command], RecipeCommand)


def _type_name(param: Any) -> str:
    annotation = param.type_descriptor.annotation
    return getattr(annotation, "__name__", str(annotation))


def _has(command: str, flag: str) -> bool:
    return any(flag in each.opts for each in commands()[command].params)


def _output_of(words: list[str]) -> str | None:
    if words[:2] == ["recipe", "copy"]:
        return "new"
    given = [words[words.index(flag) + 1] for flag in ("-o", "--embeddings") if flag in words]
    return given[0] if given else None
