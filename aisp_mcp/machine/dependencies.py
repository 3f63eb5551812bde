"""Programs and packages that tools need beyond this package, their presence, and the install command."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass

from aisp_mcp.machine.snapshot import Snapshot
from aisp_mcp.records import Record


class Dependency(Record):
    """A dependency of some tools. found is its version or path; install is a command, for Debian if it uses apt."""

    name: str
    found: str | None
    needed_by: list[str]
    install: str


@dataclass(frozen=True)
class _Need:
    name: str
    find: Callable[[Snapshot], str | None]
    tools: str
    install: str


def _package(name: str) -> Callable[[Snapshot], str | None]:
    return lambda s: s.software.packages.get(name)


def _program(name: str) -> Callable[[Snapshot], str | None]:
    return lambda _: shutil.which(name)


_BENCH = "pip install 'aisp-mcp[bench]'"
_NEEDS = (
    _Need("torch", _package("torch"), "aisp_run_benchmarks aisp_profile_torch aisp_hw_speed aisp_hw_tc", _BENCH),
    _Need("triton", _package("triton"), "aisp_run_benchmarks", _BENCH),
    _Need("numpy", _package("numpy"), "aisp_run_benchmarks aisp_hw_cache", _BENCH),
    _Need("NVIDIA driver", lambda s: s.gpus.driver, "aisp_gpu_info aisp_gpu_power aisp_hw_pcie aisp_hw_p2p", ""),
    _Need("nvidia-smi", _program("nvidia-smi"), "aisp_gpu_topology_matrix", "sudo apt-get install nvidia-utils"),
    _Need("nsys", lambda s: s.software.profilers.nsys, "aisp_profile_nsys", "sudo apt-get install nsight-systems"),
    _Need("ncu", lambda s: s.software.profilers.ncu, "aisp_profile_ncu", "sudo apt-get install nsight-compute"),
    _Need("py-spy", _program("py-spy"), "aisp_profile_torch", "pip install py-spy"),
    _Need("fio", _program("fio"), "aisp_hw_disk", "sudo apt-get install fio"),
    _Need("iperf3", _program("iperf3"), "aisp_hw_network", "sudo apt-get install iperf3"),
    _Need("perftest", _program("ib_write_bw"), "aisp_hw_ib", "sudo apt-get install perftest"),
    _Need("nccl-tests", _program("all_reduce_perf"), "aisp_hw_nccl", "build github.com/NVIDIA/nccl-tests"),
    _Need("bubblewrap", _program("bwrap"), "aisp_run_benchmarks", "sudo apt-get install bubblewrap"),
)
_DRIVER = "sudo apt-get install nvidia-driver (Debian non-free), then reboot"
# Without a card, these would only repeat that the card is missing.
_CARD_ONLY = ("NVIDIA driver", "nvidia-smi", "nccl-tests")


def check(s: Snapshot) -> list[Dependency]:
    """Every dependency with its version or path; those that need an NVIDIA card only if the machine has one."""
    card = bool(s.gpus.gpus) or s.drivers.nvidia_cards > 0
    return [
        Dependency(
            name=need.name,
            found=need.find(s),
            needed_by=need.tools.split(),
            install=need.install or _DRIVER,
        )
        for need in _NEEDS
        if card or need.name not in _CARD_ONLY
    ]
