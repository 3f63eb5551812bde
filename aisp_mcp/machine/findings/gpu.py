"""Findings about GPUs and their driver."""

from __future__ import annotations

import os
from collections.abc import Iterator

from aisp_mcp.envelope import NextStep
from aisp_mcp.machine.snapshot import Snapshot
from aisp_mcp.system.records.device import Finding, Gpu

_INFO = NextStep(tool="aisp_gpu_info", why="all counters and processes of each GPU")
_OLD_DRIVER_GAPS = 12
_SLOW = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake", "sw_thermal_slowdown")


def find(s: Snapshot) -> Iterator[Finding]:
    """The driver first, then each GPU in order."""
    yield from _driver(s)
    for gpu in s.gpus.gpus:
        for rule in (_lost, _memory_errors, _slowed, _power, _link, _modes, _busy, _gaps):
            yield from rule(gpu)


def _driver(s: Snapshot) -> Iterator[Finding]:
    problem = s.gpus.problem
    if problem is None:
        return
    if problem.code == "NO_DRIVER" and s.drivers.nvidia_cards == 0:
        yield Finding(
            severity="note",
            code="NO_GPU",
            message="No NVIDIA GPU: no card on the PCI bus and no libnvidia-ml.so.1. CPU variants of the tools work.",
            next=NextStep(tool="aisp_system_dependencies", why="what works without a GPU, and what is missing"),
        )
        return
    yield Finding(
        severity="critical",
        code=problem.code,
        message=problem.message,
        evidence={"nvidia_cards_on_pci": s.drivers.nvidia_cards, "kernel_module": s.software.driver},
        fix=problem.hint or "Install the NVIDIA driver of the distribution, then reboot.",
        next=NextStep(tool="aisp_system_software", why="driver, module and toolkit versions side by side"),
    )


def _lost(g: Gpu) -> Iterator[Finding]:
    if g.problem is not None:
        yield Finding(
            severity="critical",
            code=g.problem.code,
            message=f"GPU {g.index}: {g.problem.message}",
            fix=g.problem.hint,
            next=_INFO,
        )


def _memory_errors(g: Gpu) -> Iterator[Finding]:
    h = g.health
    counts = {"uncorrected_volatile": h.uncorrected_volatile, "uncorrected_aggregate": h.uncorrected_aggregate}
    if h.remap_failed:
        message = f"GPU {g.index}: a memory row could not be remapped. The card must be replaced."
        yield Finding(
            severity="critical", code="ROW_REMAP_FAILED", message=message, fix="Drain and replace the card.", next=_INFO
        )
    if h.uncorrected_volatile:
        yield Finding(
            severity="critical",
            code="ECC_UNCORRECTED",
            message=f"GPU {g.index}: {h.uncorrected_volatile} uncorrected memory errors since the driver was loaded.",
            evidence=counts,
            fix=f"Drain the GPU, then sudo nvidia-smi --gpu-reset -i {g.index}; replace it if they return.",
            next=_INFO,
        )
    if h.remap_pending or h.retirement_pending:
        yield Finding(
            severity="warning",
            code="MEMORY_REPAIR_PENDING",
            message=f"GPU {g.index}: a memory repair waits for a reset.",
            evidence={"remap_pending": h.remap_pending, "retirement_pending": h.retirement_pending},
            fix=f"sudo nvidia-smi --gpu-reset -i {g.index}",
            next=_INFO,
        )
    repaired = {"retired_pages": h.retired_pages, "remapped_rows": h.remapped_uncorrectable}
    if any(repaired.values()) and not h.remap_failed:
        message = f"GPU {g.index}: memory was repaired before (retired pages or remapped rows)."
        yield Finding(severity="note", code="MEMORY_REPAIRED", message=message, evidence=repaired, next=_INFO)


def _slowed(g: Gpu) -> Iterator[Finding]:
    reasons = g.clocks.event_reasons or []
    slow = [reason for reason in reasons if reason in _SLOW]
    if slow:
        yield Finding(
            severity="warning",
            code="GPU_THROTTLED",
            message=f"GPU {g.index}: clocks are currently reduced by {', '.join(slow)}.",
            evidence={"sm_mhz": g.clocks.sm_mhz, "sm_max_mhz": g.clocks.sm_max_mhz, "gpu_c": g.thermal.gpu_c},
            fix="Check cooling, power cables and the node's power budget.",
            next=_INFO,
        )
    elif "sw_power_cap" in reasons:
        yield Finding(
            severity="note",
            code="GPU_AT_POWER_LIMIT",
            message=f"GPU {g.index}: the power limit currently reduces the clocks.",
            evidence={"draw_w": g.power.draw_w, "limit_w": g.power.limit_w},
            next=_INFO,
        )


def _power(g: Gpu) -> Iterator[Finding]:
    limit, default = g.power.limit_w, g.power.default_limit_w
    if limit is not None and default is not None and limit < 0.99 * default:
        yield Finding(
            severity="warning",
            code="POWER_LIMIT_LOWERED",
            message=f"GPU {g.index}: the power limit is {limit:g} W, {default:g} W by default.",
            evidence={"limit_w": limit, "default_limit_w": default},
            fix=f"sudo nvidia-smi -i {g.index} -pl {default:g}",
            next=_INFO,
        )
    sm, best = g.clocks.sm_application_mhz, g.clocks.sm_max_mhz
    if sm is not None and best is not None and sm < best:
        yield Finding(
            severity="note",
            code="APPLICATION_CLOCK_BELOW_MAX",
            message=f"GPU {g.index}: application clock {sm} MHz, highest {best} MHz.",
            fix=f"sudo nvidia-smi -i {g.index} --reset-applications-clocks",
            next=_INFO,
        )


def _link(g: Gpu) -> Iterator[Finding]:
    p = g.pcie
    if p.width and p.width_max and p.width < p.width_max:
        yield Finding(
            severity="warning",
            code="PCIE_WIDTH",
            message=f"GPU {g.index}: PCIe trained at x{p.width}, x{p.width_max} is possible.",
            evidence=p.model_dump(exclude_none=True),
            fix="Reseat the card or riser; check the slot's wiring and bifurcation in the firmware.",
            next=_INFO,
        )
    busy = (g.activity.gpu_percent or 0) > 0
    if p.generation and p.generation_max and p.generation < p.generation_max:
        # An idle card lowers its link generation to save power; only under load is it a fault.
        yield Finding(
            severity="warning" if busy else "note",
            code="PCIE_GENERATION",
            message=f"GPU {g.index}: PCIe runs at generation {p.generation} of {p.generation_max}"
            + ("." if busy else "; normal while idle, measure under load."),
            evidence=p.model_dump(exclude_none=True),
            next=_INFO,
        )


def _modes(g: Gpu) -> Iterator[Finding]:
    if g.modes.persistence is False:
        yield Finding(
            severity="warning",
            code="PERSISTENCE_OFF",
            message=f"GPU {g.index}: persistence mode is off; the first call of each process waits for the driver.",
            fix=f"sudo nvidia-smi -i {g.index} -pm 1",
            next=_INFO,
        )
    if g.modes.compute_mode == "prohibited":
        yield Finding(
            severity="critical",
            code="COMPUTE_PROHIBITED",
            message=f"GPU {g.index}: compute mode is prohibited; no CUDA program can run.",
            fix=f"sudo nvidia-smi -i {g.index} -c DEFAULT",
            next=_INFO,
        )
    elif g.modes.compute_mode in ("exclusive_process", "exclusive_thread"):
        yield Finding(
            severity="note",
            code="COMPUTE_EXCLUSIVE",
            message=f"GPU {g.index}: one process at a time; two-worker comparisons cannot run on it.",
            fix=f"sudo nvidia-smi -i {g.index} -c DEFAULT",
            next=_INFO,
        )
    if g.modes.mig:
        message = f"GPU {g.index}: MIG is on; rates are those of an instance, not of the card."
        yield Finding(severity="note", code="MIG_ON", message=message, next=_INFO)
    if g.health.ecc_enabled is False:
        message = f"GPU {g.index}: ECC is off; memory errors go unnoticed."
        fix = f"sudo nvidia-smi -i {g.index} -e 1, then reboot"
        yield Finding(severity="note", code="ECC_OFF", message=message, fix=fix, next=_INFO)


def _busy(g: Gpu) -> Iterator[Finding]:
    others = [p for p in g.activity.processes or [] if p.pid != os.getpid()]
    if others:
        yield Finding(
            severity="warning",
            code="GPU_IN_USE",
            message=f"GPU {g.index}: {len(others)} process(es) hold it; measurements will be disturbed.",
            evidence={"processes": [p.model_dump(exclude_none=True) for p in others[:8]]},
            fix="Wait for them, or choose another GPU with CUDA_VISIBLE_DEVICES.",
            next=_INFO,
        )


def _gaps(g: Gpu) -> Iterator[Finding]:
    if len(g.unread) >= _OLD_DRIVER_GAPS and g.problem is None:
        yield Finding(
            severity="note",
            code="NVML_GAPS",
            message=f"GPU {g.index}: {len(g.unread)} values could not be read: old driver, vGPU or consumer card.",
            evidence={"unread": g.unread},
            next=NextStep(tool="aisp_system_software", why="driver version"),
        )
