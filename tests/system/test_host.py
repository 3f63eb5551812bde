"""The host as its files say, on recorded trees of machines that are not this one."""

from __future__ import annotations

from pathlib import Path

import pytest
from trees import CONTAINER, EMPTY, GIB, NONSENSE, SERVER, TREES, plant

from aisp_mcp.machine import snapshot
from aisp_mcp.machine.findings import all_findings, host_findings, mismatches
from aisp_mcp.machine.snapshot import Snapshot
from aisp_mcp.system import container, cpu, disk, memory, network, software
from aisp_mcp.system.gpu import nvml
from aisp_mcp.system.records import GpuReading, Problem


@pytest.fixture(autouse=True)
def _no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorded machines have no NVML of their own; the one of this machine must not shine through."""
    problem = Problem(code="NO_DRIVER", message="No NVIDIA driver.")
    monkeypatch.setattr(nvml, "read", lambda *_, **__: GpuReading(problem=problem))


def machine(folder: Path, tree: dict[str, str]) -> Snapshot:
    return snapshot.take([Path("/")], plant(folder, tree))


@pytest.mark.parametrize("name", TREES)
def test_no_tree_makes_a_reader_raise(name: str, tmp_path: Path) -> None:
    seen = machine(tmp_path, TREES[name])
    assert all(f.severity in ("critical", "warning", "note") for f in all_findings(seen))


def test_a_machine_without_files_is_unknown_not_healthy(tmp_path: Path) -> None:
    seen = machine(tmp_path, EMPTY)
    assert seen.cpu.governor == "unknown"
    assert seen.cpu.smt == "unknown"
    assert seen.memory.total_bytes is None
    assert seen.memory.transparent_hugepages == "unknown"
    assert seen.memory.numa_balancing == "unknown"
    assert seen.pressure.steal_percent is None
    assert seen.limits.version == "none"
    assert "GOVERNOR_UNKNOWN" in {f.code for f in host_findings(seen)}


def test_nonsense_is_not_taken_for_numbers(tmp_path: Path) -> None:
    root = plant(tmp_path, NONSENSE)
    assert memory.cpu_times(root) is None
    assert memory.pressure(root).load_1m is None
    assert memory.read(root).total_bytes is None
    assert container.limits(root).cpus is None
    assert software.toolkit(root) is None


def test_a_server_is_read_in_full(tmp_path: Path) -> None:
    root = plant(tmp_path, SERVER)
    processor = cpu.read(root)
    assert (processor.model, processor.logical, processor.physical, processor.sockets) == (
        "Intel(R) Xeon(R) Platinum 8480C",
        4,
        4,
        2,
    )
    assert processor.isa == ["avx2", "fma", "avx512f", "amx_tile", "amx_bf16"]
    assert [(c.level, c.size_bytes, c.shared_by) for c in processor.caches] == [(1, 48 << 10, 2), (3, 107520 << 10, 2)]
    assert (processor.smt, processor.governor, processor.frequency_max_mhz) == ("on", "powersave", 3800.0)
    nodes = cpu.numa(root)
    assert [(n.cpus, n.memory_bytes, n.distances) for n in nodes] == [
        ("0-1", 528000000 << 10, [10, 21]),
        ("2-3", 528000000 << 10, [21, 10]),
    ]
    assert memory.read(root).swap_used_bytes == 2097152 << 10
    assert memory.read(root).hugepages == 16


def test_cgroup_v2_takes_the_tightest_ancestor(tmp_path: Path) -> None:
    limits = container.limits(plant(tmp_path, SERVER))
    assert limits.version == "2"
    assert limits.cpus == 1.5
    assert limits.memory_bytes == 64 * GIB
    assert limits.cpuset == "0-3"
    assert (limits.throttled_periods, limits.throttled_s) == (7, 2.5)


def test_cgroup_v1_in_a_container_reads_its_own_mount(tmp_path: Path) -> None:
    limits = container.limits(plant(tmp_path, CONTAINER))
    assert limits.version == "1"
    assert limits.cpus == 0.5
    assert limits.memory_bytes == 8 * GIB
    assert limits.throttled_s == 3.0


def test_container_and_hypervisor_are_told_with_their_signs(tmp_path: Path) -> None:
    inside = container.read(plant(tmp_path / "a", CONTAINER))
    assert (inside.container, inside.hypervisor) == ("docker", "kvm")
    assert len(inside.evidence) >= 2
    outside = container.read(plant(tmp_path / "b", SERVER))
    assert (outside.container, outside.hypervisor) == ("none seen", "none seen")


def test_a_board_maker_is_no_hypervisor(tmp_path: Path) -> None:
    bare = {**SERVER, "/sys/class/dmi/id/sys_vendor": "Microsoft Corporation"}
    assert container.read(plant(tmp_path, bare)).hypervisor == "none seen"


def test_disks_and_networks(tmp_path: Path) -> None:
    root = plant(tmp_path, SERVER)
    (system,) = disk.read([Path("/")], root)
    assert (system.device, system.kind, system.scheduler) == ("/dev/nvme0n1p2", "nvme", "none")
    assert disk.read([Path("/data/set")], root)[0].kind == "network"
    net = network.read(root)
    assert net.gpudirect_rdma is True
    assert (net.hcas[0].device, net.hcas[0].state, net.hcas[0].numa_node) == ("mlx5_0", "ACTIVE", 0)
    (nic,) = net.nics
    assert (nic.kind, nic.speed_mbps, nic.mtu, nic.numa_node) == ("ethernet", 100000, 9000, 1)


def test_software_is_found_in_folders(tmp_path: Path) -> None:
    root = plant(tmp_path, SERVER)
    assert software.driver(root) == "580.159.04"
    assert software.toolkit(root) == "13.0.1"
    profilers = software.profilers(root)
    assert profilers.ncu is not None
    assert profilers.ncu_version == "2025.3.1"
    assert profilers.nsys is not None
    assert profilers.nsys.endswith("target-linux-x64/nsys")


def test_the_toolkits_launcher_has_the_version_of_what_it_starts(tmp_path: Path) -> None:
    launcher = tmp_path / "usr/local/cuda-13.0/bin/ncu"
    for name in ("nsight-compute/2025.2.0/ncu", "nsight-compute/2025.10.1/ncu"):
        (tmp_path / "opt/nvidia" / name).parent.mkdir(parents=True)
        (tmp_path / "opt/nvidia" / name).touch()
    assert software._path_version(software._launched(tmp_path, str(launcher))) == "2025.10.1"
    assert software._launched(tmp_path / "elsewhere", str(tmp_path / "bin/ncu")) is None


def test_an_nvswitch_is_no_card(tmp_path: Path) -> None:
    seen = snapshot.drivers(plant(tmp_path, SERVER))
    assert seen.nvidia_cards == 1
    assert seen.profiling_admin_only is True


def test_findings_of_a_server(tmp_path: Path) -> None:
    findings = {f.code: f for f in all_findings(machine(tmp_path, SERVER))}
    assert {"GOVERNOR", "NUMA_BALANCING", "THP_ALWAYS", "SWAP_IN_USE", "CPU_QUOTA", "MEMORY_LIMIT"} <= set(findings)
    assert "sysctl" in (findings["NUMA_BALANCING"].fix or "")
    # a card on the bus without a driver library is not "no GPU"
    assert findings["NO_DRIVER"].severity == "critical"
    assert "NO_GPU" not in findings


def test_findings_of_a_container(tmp_path: Path) -> None:
    findings = {f.code: f for f in all_findings(machine(tmp_path, CONTAINER))}
    expected = {"CPU_STEAL", "CPU_BUSY", "CPU_QUOTA", "MEMORY_PRESSURE", "IO_PRESSURE", "VIRTUAL_MACHINE", "NO_GPU"}
    assert expected <= set(findings)
    assert findings["CPU_STEAL"].evidence == {"steal_percent": 10.0}


def test_counters_are_restricted_only_for_ordinary_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container.os, "geteuid", lambda: 1000)
    codes = {f.code for f in mismatches(machine(tmp_path / "a", SERVER))}
    assert {"COUNTERS_RESTRICTED", "CPU_SAMPLING_RESTRICTED"} <= codes
    monkeypatch.setattr(container.os, "geteuid", lambda: 0)
    assert not {"COUNTERS_RESTRICTED"} & {f.code for f in mismatches(machine(tmp_path / "b", SERVER))}


def test_steal_needs_two_readings() -> None:
    assert memory.steal_share([0] * 8, [10, 0, 10, 70, 0, 0, 0, 10]) == pytest.approx(0.1)
    assert memory.steal_share(None, [1] * 8) is None
    assert memory.steal_share([5] * 8, [5] * 8) is None


def test_small_shared_memory_is_found(tmp_path: Path) -> None:
    seen = machine(tmp_path, SERVER)
    small = seen.memory.model_copy(update={"shm_bytes": 64 << 20})
    codes = {f.code for f in host_findings(Snapshot(**{**vars(seen), "memory": small}))}
    assert "SHM_SMALL" in codes
