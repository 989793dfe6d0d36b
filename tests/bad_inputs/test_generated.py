"""Whatever is declared is attacked: generator.py makes the attacks, and all must end in the same few ways.

A sample runs always, the same one each time; NLPCTL_SLOW=1 runs all.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import generator
import pytest
from command_lines import CommandLines
from generator import Attack, attacks, folder_attacks

SECONDS, MEMORY, LINES = 30, 2 << 30, 40
SAMPLE = 3  # attacks of each family


@pytest.fixture(scope="module")
def top(start: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`start` with what the command lines of the generator name."""
    folder = Path(shutil.copytree(start, tmp_path_factory.mktemp("generated") / "start"))
    (folder / "texts.txt").write_text("a clean room\nnoise\n", encoding="utf-8")
    return folder


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
    shutil.rmtree(here, ignore_errors=True)
    shutil.copytree(top, here)
    attack.prepare(here)
    before = fingerprint(here)
    try:
        ended = lines.run(attack.words, here, timeout=180)
    except subprocess.TimeoutExpired:
        return ["it hangs"]
    found = []
    if ended.code not in (0, 2):
        found.append(f"exit {ended.code}")
    found += [word for word in ("Traceback", "internal error", "bug in nlpctl") if word in ended.err]
    told = [line for line in ended.err.splitlines() if line.startswith(("error:", "  "))]
    if ended.code == 2 and (not told or len(told) > LINES):
        found.append(f"{len(told)} lines of messages")
    if ended.seconds > SECONDS or ended.peak > MEMORY:
        found.append(f"{ended.seconds:.0f} s, {ended.peak >> 20} MB")
    after = fingerprint(here)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    own = attack.writes if ended.code == 0 else None
    harmed = [name for name in changed if own is None or not f"{name}/".startswith(f"{own}/")]
    if ended.code == 0 and attack.words[0] == "train":  # its run directory is no flag
        harmed = [name for name in harmed if not name.startswith("outputs/new")]
    if harmed:
        found.append(f"changed {', '.join(harmed[:4])}")
    return [f"{problem}\n{ended.err[-500:]}" for problem in found[:1]] + found[1:]


def sampled(made: Iterable[Attack]) -> list[Attack]:
    """The same SAMPLE attacks of each family in every run, spread over all of it."""
    families: dict[str, list[Attack]] = {}
    for attack in made:
        families.setdefault(attack.family, []).append(attack)
    spread = [sorted(each, key=lambda one: hashlib.md5(one.name.encode()).digest()) for each in families.values()]
    return [attack for each in spread for attack in each[:SAMPLE]]


def check(chosen: list[Attack], top: Path, tmp_path: Path, lines: CommandLines) -> None:
    failures = {}
    for attack in chosen:
        if problems := wrong(attack, top, tmp_path / "here", lines):
            failures[f"{attack.family}: {attack.name}"] = problems
            print(f"{attack.family}: {attack.name}: {' | '.join(problems)}", flush=True)
    told = "\n".join(f"{name}: {' | '.join(problems)}" for name, problems in failures.items())
    assert not failures, f"{len(failures)} of {len(chosen)} attacks:\n{told}"


def test_a_sample(top: Path, tmp_path: Path, with_paddle: CommandLines) -> None:
    check(sampled([*attacks(), *folder_attacks(top)]), top, tmp_path, with_paddle)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["keys", "named files", "inputs", "numbers", "outputs", "folders"])
def test_all(family: str, top: Path, tmp_path: Path, with_paddle: CommandLines) -> None:
    made = [*attacks(), *folder_attacks(top)]
    check([attack for attack in made if attack.family == family], top, tmp_path, with_paddle)


def test_every_command_is_attacked() -> None:
    """A new command needs a right command line in GOOD."""
    assert set(generator.GOOD) | set(generator.NO_FILES) == set(generator.commands())


def test_there_are_many() -> None:
    made = attacks()
    assert len(made) > 3000 and len({attack.family for attack in made}) == 5
