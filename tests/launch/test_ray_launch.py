"""Ranks on a Ray cluster, with stand-ins for its actors; tests/end_to_end/test_several_machines.py has real ones."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from nlpctl.config.schema import RuntimeSection
from nlpctl.errors import UserError
from nlpctl.launch.peers import DATA, VERSIONS, file_facts
from nlpctl.launch.ray_launch import MachineFacts, RayRanks


class Actor:
    """An actor on a machine with these versions, where the data are `data` in place of those here."""

    def __init__(self, host: str, versions: dict[str, str], data: str | None):
        self.host, self.versions, self.data = host, versions, data

    def begin(self, method: str, mark: str, names: list[str]) -> MachineFacts:
        assert method == "facts"
        equal = file_facts(map(Path, names)) if self.data is None else dict.fromkeys(names, self.data)
        if self.data == "absent":
            equal = {}
        return MachineFacts(self.host, "10.0.0.1", Path(mark).exists(), {VERSIONS: self.versions, DATA: equal})

    def given(self, begun: MachineFacts) -> MachineFacts:
        return begun


def compare(folder: Path, *actors: Actor) -> None:
    data = folder / "train.tsv"
    data.write_text("label\ttext\n")
    request = SimpleNamespace(runtime=RuntimeSection(), cards=0)
    RayRanks(request, actors, 1).compare({"nlpctl": "1.0", "paddlepaddle": "2.6.2"}, [data], folder)


def test_machines_that_are_alike(tmp_path, capsys):
    """A machine may have what this one lacks, and another wheel of Paddle."""
    compare(tmp_path, Actor("a", {"paddlepaddle": "2.6.2"}, None), Actor("b", {"paddlepaddle-gpu": "3.1.1"}, None))
    assert "2 machines with 2 processes: a, b" in capsys.readouterr().err


@pytest.mark.parametrize("data", ["0123456789abcdef", "absent"])
def test_machines_that_differ_are_told_as_processes_are(tmp_path, data):
    with pytest.raises(UserError) as told:
        compare(tmp_path, Actor("a", {"paddlepaddle": "2.6.2"}, None), Actor("b", {"paddlepaddle": "2.6.1"}, data))
    versions, files = told.value.problems
    assert (versions.where, versions.message) == (
        "machine 1 (b)", "differs in its versions: paddlepaddle is 2.6.1, not 2.6.2"
    )  # fmt: skip
    assert files.message.startswith(f"differs in its data files: {tmp_path}/train.tsv is {data}, not ")
    assert files.hint.startswith("make them equal everywhere; this machine (")
