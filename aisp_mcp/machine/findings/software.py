"""Findings about mismatched versions and missing tools."""

from __future__ import annotations

from collections.abc import Iterator

from aisp_mcp.envelope import NextStep
from aisp_mcp.machine.snapshot import Snapshot
from aisp_mcp.system.records.device import Finding
from aisp_mcp.system.software import torch_needs_triton

_VERSIONS = NextStep(tool="aisp_system_software", why="all versions side by side")
_NEEDS = NextStep(tool="aisp_system_dependencies", why="which tools lack what, with install commands")


def numbers(version: str | None) -> tuple[int, ...]:
    """`13.0` as (13, 0); stops at the first part that is not a number."""
    parts: list[int] = []
    for part in (version or "").split("."):
        if not part.isdigit():
            break
        parts.append(int(part))
    return tuple(parts)


def find(s: Snapshot) -> Iterator[Finding]:
    """Mismatches, then missing profilers."""
    yield from mismatches(s)
    yield from _profilers(s)


def mismatches(s: Snapshot) -> Iterator[Finding]:
    """Mismatches of torch and driver, toolkit and driver, triton and torch, and missing rights to profile."""
    yield from _torch(s)
    yield from _toolkit(s)
    yield from _triton(s)
    yield from _rights(s)


def _torch(s: Snapshot) -> Iterator[Finding]:
    torch, built = s.software.packages.get("torch"), s.software.torch_cuda
    if torch is None:
        yield Finding(
            severity="warning",
            code="NO_TORCH",
            message="torch is not installed: benchmarks and most probes cannot run.",
            fix="pip install 'aisp-mcp[bench]'",
            next=_NEEDS,
        )
    elif s.gpus.gpus and built is None and "rocm" not in torch:
        yield Finding(
            severity="critical",
            code="TORCH_WITHOUT_CUDA",
            message=f"torch {torch} is a CPU build, but this machine has {len(s.gpus.gpus)} NVIDIA GPU(s).",
            fix="pip install --force-reinstall torch from the index of a CUDA build (pytorch.org, Get Started)",
            next=_VERSIONS,
        )
    elif built and s.gpus.cuda_driver:
        yield from _torch_driver(s, torch, built, s.gpus.cuda_driver)


def _torch_driver(s: Snapshot, torch: str, built: str, supported: str) -> Iterator[Finding]:
    want, have = numbers(built), numbers(supported)
    evidence = {"torch": torch, "torch_cuda": built, "cuda_driver": supported, "driver": s.gpus.driver}
    if want[:1] > have[:1]:  # within a major version the driver runs newer minor ones
        yield Finding(
            severity="critical",
            code="DRIVER_TOO_OLD_FOR_TORCH",
            message=f"torch was built for CUDA {built}; the driver supports up to {supported}.",
            evidence=evidence,
            fix="Install a newer driver, or a torch build for an older CUDA.",
            next=_VERSIONS,
        )
    elif want > have:
        yield Finding(
            severity="note",
            code="DRIVER_MINOR_BEHIND_TORCH",
            message=f"torch was built for CUDA {built}, the driver supports {supported}: kernels run, PTX may not.",
            evidence=evidence,
            next=_VERSIONS,
        )


def _toolkit(s: Snapshot) -> Iterator[Finding]:
    toolkit, supported = s.software.toolkit, s.gpus.cuda_driver
    if toolkit and supported and numbers(toolkit)[:2] > numbers(supported):
        major = numbers(toolkit)[:1] > numbers(supported)[:1]
        yield Finding(
            severity="warning" if major else "note",
            code="DRIVER_TOO_OLD_FOR_TOOLKIT",
            message=f"CUDA toolkit {toolkit} is newer than what the driver supports ({supported}).",
            evidence={"toolkit": toolkit, "cuda_driver": supported},
            fix="Install a newer driver, or compile with an older toolkit (within a major version: to SASS, not PTX).",
            next=_VERSIONS,
        )


def _triton(s: Snapshot) -> Iterator[Finding]:
    needed, have = torch_needs_triton(), s.software.packages.get("triton")
    if needed and have and needed != have:
        yield Finding(
            severity="warning",
            code="TRITON_MISMATCH",
            message=f"triton {have} is installed; this torch asks for {needed}.",
            fix=f"pip install triton=={needed}",
            next=_VERSIONS,
        )


def _profilers(s: Snapshot) -> Iterator[Finding]:
    severity = "warning" if s.gpus.gpus else "note"
    missing = [(s.software.profilers.nsys, "NO_NSYS", "Nsight Systems (nsys)", "sudo apt-get install nsight-systems")]
    if s.gpus.gpus:  # without a GPU, ncu has nothing to profile; nsys also traces the host
        ncu = (s.software.profilers.ncu, "NO_NCU", "Nsight Compute (ncu)", "sudo apt-get install nsight-compute")
        missing.append(ncu)
    for path, code, name, fix in missing:
        if path is None:
            message = f"{name} was not found on PATH, in /opt/nvidia or in /usr/local/cuda*."
            yield Finding(severity=severity, code=code, message=message, fix=fix, next=_NEEDS)


def _rights(s: Snapshot) -> Iterator[Finding]:
    if s.drivers.profiling_admin_only and s.surroundings.user != "root":
        yield Finding(
            severity="warning",
            code="COUNTERS_RESTRICTED",
            message="Only root may read GPU performance counters: ncu will end with ERR_NVGPUCTRPERM.",
            fix="echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | sudo tee"
            " /etc/modprobe.d/nvidia-prof.conf, then reload the driver",
            next=_NEEDS,
        )
    paranoid = s.drivers.perf_event_paranoid
    if paranoid is not None and paranoid > 2 and s.surroundings.user != "root":
        yield Finding(
            severity="note",
            code="CPU_SAMPLING_RESTRICTED",
            message=f"kernel.perf_event_paranoid is {paranoid}: perf and the CPU sampling of nsys are refused.",
            fix="sudo sysctl kernel.perf_event_paranoid=2",
            next=_NEEDS,
        )
