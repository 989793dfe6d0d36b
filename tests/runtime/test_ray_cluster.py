"""What is refused without the right Ray. tests/end_to_end/test_divided.py runs on a cluster where Ray is installed."""

from __future__ import annotations

import platform
import sys
from types import SimpleNamespace

import pytest

from nlpctl.errors import NeedsRestart, UserError
from nlpctl.runtime.ray_cluster import _Served, ray_cluster


@pytest.mark.parametrize("address", ["", "nowhere", "http://host:1", "ray://host", "auto "])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(UserError, match="is not the address of a Ray cluster"), ray_cluster(address):
        pass


def test_no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"Ray is not installed\n.*nlpctl\[cluster\]"), ray_cluster("auto"):
        pass


@pytest.mark.parametrize("version", ["1.13.0", "2.9.3", "3.0.0"])
def test_another_ray(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(__version__=version))
    with pytest.raises(UserError, match=f"Ray {version} is installed"), ray_cluster("auto"):
        pass


def test_a_node_that_lacks_a_variable_is_named() -> None:
    """The command restarts itself on its own machine; on a node somebody has to."""

    def lacks(*_: object) -> None:
        raise NeedsRestart("no CUDA libraries", "runtime.device", "start Python with A=b", {"A": "b"})

    for served in (_Served(lacks, ()), _Served(lambda: lacks, ())):
        error = served.answer(None)
        assert type(error) is UserError and str(error).startswith(f"node {platform.node()}: no CUDA libraries")
        assert "start it there with A=b" in str(error)


def test_no_cluster() -> None:
    pytest.importorskip("ray")
    with pytest.raises(UserError, match="no Ray cluster can be used there"), ray_cluster("127.0.0.1:9"):
        pass
