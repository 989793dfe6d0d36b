"""Whatever is declared is attacked: generator.py makes the attacks, and all must end in the same few ways.

A sample runs always, the same one each time. NLPCTL_SLOW=1 runs a thinned whole, a quarter of all: every place is
attacked, and every command with every value, but not every place with every value, and what several commands open by
one of them alone. NLPCTL_ATTACKS chooses others: thin:7 is thinned by seed 7, all is everything, which takes hours,
0.1:7 a random tenth of all, that of seed 7, and 0.1-0.2:7 the next tenth, so that all can be run in parts.
NLPCTL_ATTACKS_LOG=FILE gets a line of JSON per attack.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import generator
import pytest
import warm_python
from command_lines import CommandLines, Ended, run_in_a_new_interpreter
from generator import Attack, all_attacks, attacks, thinned
from library_tokenizers import encoder, unigram, with_sentencepiece_model
from safetensors.numpy import load_file, save_file

from nlpctl.cli.values import WRITTEN

READ_AT_IMPORT = re.compile("|".join((*warm_python.READ_AT_IMPORT, "HF_", "PPNLP_", "XDG_")))  # beginnings of names
SECONDS, MEMORY = 30, 2 << 30
PLACES = 11  # ten, and what they have in common
# `where: message`, or the command line itself, or what is missing.
PLACE = re.compile(r"error: (.* is not installed$|\S.*(: |`))", re.DOTALL | re.MULTILINE)
FAMILIES = ("keys", "large numbers", "named files", "inputs", "endings", "numbers", "texts", "outputs", "names")
FAMILIES += ("folders", "names in folders", "paths in folders", "inputs as outputs", "models", "rows", "cleaned")
FAMILIES += ("environments",)
OF_FOLDERS = ("foreign folders", "values in folders", "pieces")
FAMILIES += OF_FOLDERS
LIBRARIES = (".ses", "jieba.cache")  # what ONNX Runtime and jieba leave
SAMPLE = 3  # attacks of each family
PAIRS = """\
extends: good.yaml
task: semantic_indexing
data: {train: pairs.tsv, dev: pairs.tsv, columns: {text: a, text_pair: b}}
training: {output_dir: outputs/pairs}
"""


@pytest.fixture(scope="module")
def top(start: Path, tmp_path_factory: pytest.TempPathFactory, with_paddle: CommandLines) -> Path:
    """`start` with what the command lines of the generator name; the runs that take longer for all attacks alone."""
    folder = Path(shutil.copytree(start, tmp_path_factory.mktemp("generated") / "start"))
    (folder / "texts.txt").write_text("a clean room\nnoise\n", encoding="utf-8")
    (folder / "keys.txt").write_text("a-secret-of-some-length-0123456789\n", encoding="utf-8")
    shutil.copytree(folder / "outputs" / "finished", folder / "outputs" / "other")
    (folder / "pairs.jsonl").write_text('{"text": "a clean room", "text_pair": "noise"}\n', encoding="utf-8")
    for name, source in COPIED.items():
        shutil.copytree(FIXTURES / source, folder / name, ignore=shutil.ignore_patterns("expected.*", "word_head.npz"))
    divide(folder / "sharded")
    encoder(folder / "pieces", unigram())
    with_sentencepiece_model(encoder(folder / "spiece", unigram()))
    if "NLPCTL_SLOW" in os.environ:
        (folder / "pairs.tsv").write_text("a\tb\na clean room\ttidy\nnoise\tloud\n", encoding="utf-8")
        (folder / "pairs.yaml").write_text(PAIRS, encoding="utf-8")
        for line in PREPARED:
            ended = with_paddle.run(line.split(), folder)
            assert ended.code == 0, f"{line}\n{ended.err}"
        shutil.copy(folder / "outputs/folds/audit/findings.jsonl", folder / "ticked.jsonl")
        certificate = ["-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=localhost", "-days", "2"]
        words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *certificate]
        subprocess.run(words, cwd=folder, check=True, capture_output=True)
    return folder


def divide(folder: Path) -> None:
    """The weights of a folder in two shards, as large models have them."""
    file = folder / "model.safetensors"
    arrays = load_file(file)
    names = sorted(arrays)
    shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for shard, part in shards.items():
        save_file({name: arrays[name] for name in part}, folder / shard, {"format": "pt"})
    places = {name: shard for shard, part in shards.items() for name in part}
    index = {"metadata": {"total_size": file.stat().st_size}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    file.unlink()


FIXTURES = Path(__file__).parent.parent / "models"
COPIED = {"sentences": "sentence_folders/cls-dense", "reranker": "sentence_folders/reranker"}
COPIED |= {"modernbert": "encoders/modernbert", "sharded": "huggingface/bert-classifier"}
PREPARED = (
    "train pairs.yaml",
    "export outputs/finished -o weights --layout transformers",
    "export outputs/pairs -o vectors --layout sentence-transformers",
    "index build outputs/pairs texts.txt -o outputs/index",
    "train good.yaml --folds 2 --output_dir outputs/folds",
    "data audit outputs/folds",
)


def fingerprint(folder: Path) -> dict[str, str]:
    """Path -> what it is; files by their content, those of gigabytes by their size."""

    def of(path: Path) -> str:
        if path.is_symlink():
            return f"link to {path.readlink()}"
        if not path.is_file():
            return f"kind {path.stat().st_mode >> 12}"
        size = path.stat().st_size
        return str(size) if size > 1 << 30 else hashlib.sha256(path.read_bytes()).hexdigest()

    return {str(path.relative_to(folder)): of(path) for path in folder.rglob("*")}


def wrong(attack: Attack, top: Path, here: Path, lines: CommandLines) -> list[str]:
    """What the command did that it must not do."""
    temporary = here.parent / "temporary"
    for folder in (here, temporary):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(top, here, symlinks=True)
    temporary.mkdir()
    attack.prepare(here)
    before = fingerprint(here)
    above = {place / "secret.txt" for place in here.parents}
    there = {each for each in above if os.path.lexists(each)}
    began = time.monotonic()
    env = {"TMPDIR": str(temporary), **(attack.env or {})}
    # The process that `lines` forks from has read these already.
    run = run_in_a_new_interpreter if any(map(READ_AT_IMPORT.match, attack.env or {})) else lines.run
    try:
        ended = run(attack.words, here, env=env, timeout=180)
    except subprocess.TimeoutExpired:
        return ["it hangs"]
    found = _said_wrong(ended)
    if ended.seconds > SECONDS or ended.peak > MEMORY:
        found.append(f"{ended.seconds:.0f} s, {ended.peak >> 20} MB")
    after = fingerprint(here)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    own = attack.writes if ended.code == 0 else None
    if generator.RAN in after:
        found.append("code ran that only the folder names")
    copied = [name for name in changed if name != "secret.txt" and _holds(here / name, generator.STOLEN)]
    if copied:
        found.append(f"copied into {', '.join(copied[:4])}")
    harmed = [name for name in changed if own != "." and (own is None or not f"{name}/".startswith(f"{own}/"))]
    homes = {(attack.env or {}).get(name, "").partition("/")[0] for name in generator.HOMES}  # caches are made there
    harmed = [name for name in harmed if name in before or name.partition("/")[0] not in homes]
    if (ended.code == 0 or _diverged(ended)) and attack.words[0] == "train":  # its run directory is no flag
        harmed = [name for name in harmed if not name.startswith("outputs/new")]
    if harmed:
        found.append(f"changed {', '.join(harmed[:4])}")
    made = sorted(each for each in above - there if os.path.lexists(each))
    if made:  # by a relative path that leads out
        found.append(f"made {', '.join(map(str, made))}")
        for each in (each for each in made if each.is_relative_to(top.parent.parent)):  # others are looked at first
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    left = sorted(path.name for path in temporary.iterdir() if path.name not in LIBRARIES)
    if left:
        found.append(f"left in the folder for temporary files: {', '.join(left[:4])}")
    _log(attack, ended, time.monotonic() - began, found)
    return [f"{problem}\n{ended.err[-500:]}" for problem in found[:1]] + found[1:]


class Commands:
    """In place of those that run: each only makes the file `made`, and ends well."""

    def __init__(self, made: str = ""):
        self.made = made

    def run(self, words: tuple[str, ...], folder: Path, **rest: object) -> Ended:
        if self.made:
            (folder / self.made).touch()
        return Ended(0, "", "", False)


def test_what_others_have_above_is_neither_blamed_nor_removed(tmp_path: Path) -> None:
    (top := tmp_path / "base" / "generated" / "start").mkdir(parents=True)
    here, attack = tmp_path / "base" / "test" / "here", Attack("outputs", "a", "b", "c", ("runs", "ls"))
    here.parent.mkdir()
    theirs = [tmp_path / "base" / "secret.txt", tmp_path / "secret.txt"]
    for each in theirs:
        each.write_text("of somebody else")
    assert not wrong(attack, top, here, Commands())
    mine = here.parent / "secret.txt"
    assert f"made {mine}" in wrong(attack, top, here, Commands("../secret.txt"))[0] and not mine.exists()
    assert all(each.read_text() == "of somebody else" for each in theirs)
    theirs[1].unlink()
    assert f"made {theirs[1]}" in wrong(attack, top, here, Commands("../../../secret.txt"))[0]
    assert theirs[1].exists()  # outside of the folder of the tests nothing is removed


def test_a_variable_that_is_read_at_import_arrives(tmp_path: Path) -> None:
    """What `Commands` runs, as if forked from a process with all imports, never reads it."""
    (top := tmp_path / "generated" / "start").mkdir(parents=True)
    (tmp_path / "test").mkdir()
    words = ("params", "ls", str(FIXTURES / "huggingface" / "bert-classifier"))
    attack = Attack("environments", "params", "PPNLP_HOME", "x", words, env={"PPNLP_HOME": "x"})
    assert not wrong(attack, top, tmp_path / "test" / "here", Commands())
    assert (tmp_path / "test" / "here" / "x" / "models").is_dir()


def _holds(path: Path, text: str) -> bool:
    known = path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 28
    return known and text.encode() in path.read_bytes()


def _diverged(ended: Ended) -> bool:
    """Whether a training failed by its own values, as after a step of a learning rate of 1e30."""
    return ended.code == 1 and "the network answers NaN" in ended.err


def _said_wrong(ended: Ended) -> list[str]:
    """What is wrong with its exit code and messages."""
    found = [] if ended.code in (0, 2) or _diverged(ended) else [f"exit {ended.code}"]
    found += [word for word in ("Traceback", "internal error", "bug in nlpctl") if word in ended.err]
    if ended.code != 2:
        return found
    told = [line for line in ended.err.splitlines() if line.startswith(("error:", "  "))]
    if not 0 < sum(line.startswith("error:") for line in told) <= PLACES:
        found.append(f"{len(told)} lines of messages")
    if not PLACE.search(ended.err):
        found.append("no place")
    if not any(line.startswith("  -> ") for line in told):
        found.append("no remedy")
    return found


def _log(attack: Attack, ended: Ended, seconds: float, found: list[str]) -> None:
    if file := os.environ.get("NLPCTL_ATTACKS_LOG"):
        told = {"family": attack.family, "name": attack.name, "words": attack.words, "code": ended.code}
        told |= {"cpu": ended.seconds, "seconds": round(seconds, 2), "peak": ended.peak >> 20, "wrong": found}
        with Path(file).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(told | {"err": ended.err[-600:] if found else ended.err[:150]}) + "\n")


def sampled(made: Iterable[Attack]) -> list[Attack]:
    """The same SAMPLE attacks of each family in every run, spread over all of it."""
    families: dict[str, list[Attack]] = {}
    for attack in made:
        families.setdefault(attack.family, []).append(attack)
    return [attack for each in families.values() for attack in sorted(each, key=_digest)[:SAMPLE]]


def check(chosen: list[Attack], top: Path, tmp_path: Path, lines: CommandLines) -> None:
    failures = {}
    for attack in chosen:
        if problems := wrong(attack, top, tmp_path / "here", lines):
            failures[f"{attack.family}: {attack.name}"] = problems
            print(f"{attack.family}: {attack.name}: {' | '.join(problems)}", flush=True)
    told = "\n".join(f"{name}: {' | '.join(problems)}" for name, problems in failures.items())
    assert not failures, f"{len(failures)} of {len(chosen)} attacks:\n{told}"


def test_a_sample(top: Path, tmp_path: Path, with_all_modules: CommandLines) -> None:
    check(sampled(all_attacks(top)), top, tmp_path, with_all_modules)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_all(family: str, top: Path, tmp_path: Path, with_all_modules: CommandLines) -> None:
    check(drawn(attack for attack in all_attacks(top) if attack.family == family), top, tmp_path, with_all_modules)


def drawn(made: Iterable[Attack]) -> list[Attack]:
    """Those of NLPCTL_ATTACKS."""
    share, _, seed = os.environ.get("NLPCTL_ATTACKS", "thin").partition(":")
    if share == "thin":
        return thinned(made, lambda attack: _digest(attack, seed))
    *least, most = ("1" if share == "all" else share).split("-")
    begin, end = float(least[0]) if least else 0, float(most)
    return [each for each in made if begin <= int.from_bytes(_digest(each, seed)[:4], "big") / 2**32 < end]


def _digest(attack: Attack, seed: str = "") -> bytes:
    """A random number that each attack has in every run."""
    return hashlib.md5(f"{seed}{attack.family}: {attack.name}".encode("utf-8", "replace")).digest()


def test_every_command_is_attacked() -> None:
    """A new command needs a right command line in GOOD."""
    assert set(generator.GOOD) | set(generator.NO_FILES) == set(generator.commands())


def test_what_is_written_is_known_from_what_is_read() -> None:
    """A new flag with a path is read (READ), or must be in WRITTEN of nlpctl/cli/values.py."""
    for name, command in generator.commands().items():
        options = [param for param in command.params if param.param_type_name == "option"]
        paths = {flag: param.name for param in options for flag in param.opts}
        for flag in generator._flags(name, "Path"):
            assert (paths[flag] in WRITTEN) == (flag not in generator.READ), f"{name} {flag}"


def test_the_thinned_whole_has_every_place_and_every_value_of_every_door() -> None:
    made = attacks()
    thin = thinned(made, _digest)
    assert set().union(*(attack.pairs for attack in thin)) == set().union(*(attack.pairs for attack in made))
    assert len(thin) < len(made) / 3 and len({(each.family, each.name) for each in thin}) == len(thin)
    assert thinned(reversed(made), _digest) == thin
    other = thinned(made, lambda attack: _digest(attack, "7"))
    assert len({each.name for each in other} - {each.name for each in thin}) > len(thin) / 4


def test_there_are_many() -> None:
    counts = Counter(attack.family for attack in attacks())
    assert {*counts, "folders", "names in folders", "paths in folders", *OF_FOLDERS} == {*FAMILIES}
    assert sum(counts.values()) > 8000, counts
