"""What the kernel says of the machine: cores as it grants them, memory, and the work of other programs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nlpctl.errors import UserError
from nlpctl.runtime import machine as cpu
from nlpctl.runtime.machine import Contention, CpuTimes, cpu_times, refuse_processes

HYPER_THREADED = ((0, 0), (0, 1), (0, 0), (0, 1))  # (package, core) of each logical processor


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Write files below a made-up root; four hyper-threads on two cores unless told otherwise."""

    def build(files: dict[str, str], processors: tuple[tuple[int, int], ...] = HYPER_THREADED) -> Path:
        for number, (package, core) in enumerate(processors):
            topology = f"sys/devices/system/cpu/cpu{number}/topology"
            files = {**files, f"{topology}/core_id": f"{core}\n", f"{topology}/physical_package_id": f"{package}\n"}
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(len(processors))), raising=False)
        return tmp_path

    return build


def test_hyper_threads_count_once(machine):
    assert cpu.physical_cores(machine({})) == 2


def test_two_sockets_with_the_same_core_ids_are_two_cores(machine):
    assert cpu.physical_cores(machine({}, ((0, 0), (1, 0)))) == 2


def test_affinity_limits(machine, monkeypatch):
    root = machine({})
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 3})  # two hyper-threads of one core
    assert cpu.physical_cores(root) == 1


def test_without_topology_every_processor_is_a_core(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 5}, raising=False)
    assert cpu.physical_cores(tmp_path) == 3


FOUR_CORES = ((0, 0), (0, 1), (0, 2), (0, 3))


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 4),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "250000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        ({"proc/self/cgroup": "0::/pod/me\n", "sys/fs/cgroup/pod/cpu.max": "300000 100000\n"}, 3),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/box\n1:memory:/box\n",
                "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "200000\n",
                "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "100000\n",
            },
            2,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            4,
        ),
    ],
    ids=["v2 unlimited", "v2 2.5 processors", "v2 half a processor", "v2 limit on the parent", "v1", "v1 unlimited"],
)
def test_container_quota_limits(machine, files, cores):
    assert cpu.physical_cores(machine(files, FOUR_CORES)) == cores


def test_cpu_info(machine):
    text = (
        "processor : 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n"
        "flags\t: fpu avx2 avx512f amx_tile\n"
    )
    info = cpu.cpu_info(machine({"proc/cpuinfo": f"{text}\nprocessor : 1\nvendor_id : Other\n"}))
    assert info == cpu.CpuInfo("AuthenticAMD", "AMD EPYC", ("avx2", "avx512f", "amx_tile"), "25", "17")
    assert str(info) == "AMD EPYC (family 25, model 17), avx2 avx512f amx_tile"
    assert info.is_amd and not cpu.CpuInfo("GenuineIntel", "", ()).is_amd


def test_unreadable_cpuinfo_is_not_an_error(tmp_path):
    assert cpu.cpu_info(tmp_path) == cpu.CpuInfo("", "", ())


def test_this_machine():
    assert 1 <= cpu.physical_cores() <= (os.cpu_count() or 1)


@pytest.mark.parametrize(
    ("flags", "native"),
    [
        ("avx2", {"fp32"}),
        ("avx2 avx512f", {"fp32"}),
        ("avx2 avx_vnni", {"fp32", "int8"}),
        ("avx2 avx512f avx512_vnni avx512_bf16", {"fp32", "int8", "bf16"}),
        ("avx512f amx_int8 amx_bf16", {"fp32", "int8", "bf16"}),
        ("", {"fp32"}),
    ],
)
def test_what_a_processor_computes_natively(machine, flags, native):
    found = cpu.cpu_info(machine({"proc/cpuinfo": f"vendor_id\t: AuthenticAMD\nflags\t\t: fpu {flags}\n"}))
    assert {each for each in ("fp32", "bf16", "fp16", "int8") if found.computes(each)} == native


# -- memory


def with_memory(root: Path, gigabytes: int) -> Path:
    (root / "proc").mkdir()
    (root / "proc" / "meminfo").write_text(f"MemTotal: {gigabytes << 20} kB\nMemAvailable: 1 kB\n")
    return root


def test_processes_that_fit_and_one_more(tmp_path):
    root = with_memory(tmp_path, gigabytes=2)
    refuse_processes(10, "--workers", root)
    with pytest.raises(UserError, match=r"--workers: 11 processes (.|\n)* at most 10"):
        refuse_processes(11, "--workers", root)


def test_an_unknown_memory_refuses_nothing(tmp_path):
    refuse_processes(10_000, "--workers", tmp_path)


# -- other programs


@pytest.mark.parametrize(
    ("threads", "by_all", "by_this", "share"),
    [
        (2, 20.0, 20.0, 0.0),  # on 2 cores, in 10 seconds
        (2, 20.0, 19.0, 0.05),
        (2, 20.0, 12.0, 0.4),
        (1, 20.0, 10.0, 0.0),  # the other core is another program's, and is not wanted
        (1, 15.0, 0.0, 0.5),
        (4, 20.0, 10.0, 0.5),  # more threads than cores cannot have more than these
        (2, 40.0, 2.0, 1.0),  # what a hyper-thread does counts as much as a core
        (2, 9.0, 10.0, 0.0),  # the clocks of the system are coarser than those of a process
    ],
)
def test_the_share_that_others_took(threads: int, by_all: float, by_this: float, share: float) -> None:
    clocks = iter([CpuTimes(100.0, 50.0, 5.0), CpuTimes(110.0, 50.0 + by_all, 5.0 + by_this)])
    assert Contention(threads, lambda: next(clocks), cores=2).share() == pytest.approx(share)


def test_where_the_system_does_not_tell() -> None:
    assert Contention(2, lambda: None).share() == 0.0
    assert Contention(2, lambda: CpuTimes(1.0, 1.0, 1.0)).share() == 0.0  # no time has passed


def test_the_clocks_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the processors that this process may use, without those that wait; what a host took counts."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 2})
    (tmp_path / "proc").mkdir()
    assert cpu_times(tmp_path) is None
    lines = ("cpu  9 9 9 9 9 9 9", "cpu0 100 20 3 7777 555 4 5 8 66 1", "cpu1 9 9 9 9 9 9 9", "cpu2 60 0 0 1 0 0 0")
    (tmp_path / "proc/stat").write_text("\n".join(lines))
    assert cpu_times(tmp_path).by_all == 200 / os.sysconf("SC_CLK_TCK")
    (tmp_path / "proc/stat").write_text("cpu0 none\n")
    assert cpu_times(tmp_path) is None
    found = cpu_times()
    assert found is None or found.by_all >= found.by_this > 0
