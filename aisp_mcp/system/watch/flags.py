"""Flags from a sampler's summary, for readers of the measurement."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# Shares of noise that are flagged. Steal of 1 % is as large as effects that benchmarks claim.
STEAL, CPU_STALL, MEMORY_STALL, IO_STALL = 0.01, 0.10, 0.01, 0.10
CLOCK_SPREAD = 0.10

_REASONS = {
    "hw_slowdown": ("warn", "the hardware slowed the clocks down"),
    "hw_thermal_slowdown": ("warn", "the GPU was too hot and slowed down"),
    "hw_power_brake": ("warn", "an external power brake slowed the GPU down"),
    "sw_thermal_slowdown": ("warn", "the driver lowered the clocks because of temperature"),
    "sw_power_cap": ("note", "the power limit held the clocks down; usual under dense matrix work"),
    "sync_boost": ("note", "clocks followed another GPU of a sync boost group"),
}


def flags(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Flags in a stable order: host first, then each GPU."""
    flagged = list(_host(summary))
    for gpu in summary["gpus"]:
        flagged.extend(_gpu(gpu))
    if summary.get("gpu_problem") == "DRIVER_HUNG":
        flagged.append(_flag("DRIVER_HUNG", "warn", "The NVIDIA driver stopped answering during the measurement."))
    return flagged


def _flag(code: str, severity: str, message: str, **evidence: Any) -> dict[str, Any]:
    return {"code": code, "severity": severity, "message": message, "evidence": evidence}


def _host(summary: dict[str, Any]) -> Iterator[dict[str, Any]]:
    steal = summary["steal_share"]
    if steal is not None and steal > STEAL:
        yield _flag("CPU_STEAL", "warn", f"The hypervisor took {steal:.1%} of the CPU time.", steal_share=steal)
    throttled = summary["throttled_s"]
    if throttled:
        message = f"The control group's CPU quota stopped this process for {throttled:.3f} s."
        yield _flag("CPU_QUOTA_THROTTLED", "warn", message, throttled_s=throttled)
    pressure = summary["pressure"]
    for key, limit, what in (
        ("cpu_some", CPU_STALL, "waited for a CPU"),
        ("memory_full", MEMORY_STALL, "waited for memory"),
        ("io_full", IO_STALL, "waited for a disk"),
    ):
        share = pressure.get(key)
        if share is not None and share > limit:
            message = f"Tasks {what} during {share:.0%} of the time."
            yield _flag(f"PRESSURE_{key.partition('_')[0].upper()}", "warn", message, **{key: share})


def _gpu(gpu: dict[str, Any]) -> Iterator[dict[str, Any]]:
    uuid = gpu["uuid"]
    for reason, share in gpu["event_reasons"].items():
        if reason in _REASONS:
            severity, explanation = _REASONS[reason]
            yield _flag(
                f"GPU_{reason.upper()}", severity, f"In {share:.0%} of samples {explanation}.", uuid=uuid, share=share
            )
    if gpu["foreign_processes"]:
        message = f"{len(gpu['foreign_processes'])} other process(es) used the GPU."
        yield _flag("GPU_SHARED", "warn", message, uuid=uuid, processes=gpu["foreign_processes"])
    clock = gpu["sm_mhz"]
    if clock and clock["median"] and (clock["max"] - clock["min"]) / clock["median"] > CLOCK_SPREAD:
        message = f"The SM clock moved between {clock['min']:g} and {clock['max']:g} MHz."
        yield _flag("GPU_CLOCK_VARIED", "note", message, uuid=uuid, sm_mhz=clock)
