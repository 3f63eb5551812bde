"""Watch the machine while something is measured: clocks, throttling, heat, power, neighbours, steal, pressure.

One thread wakes every `interval_s`, reads a few files and a handful of NVML values (about 1 ms per GPU, outside the
interpreter lock) and goes back to sleep. Counters that the kernel and the driver integrate themselves (steal, pressure,
quota throttling, energy) are read at both ends, so that they miss nothing between samples. It only reads.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from aisp_mcp.system import container, memory
from aisp_mcp.system.files import ROOT, as_int, text
from aisp_mcp.system.gpu import nvml
from aisp_mcp.system.gpu.nvml import DeviceReader, decode_reasons, processes

_PROCESS_EVERY = 5  # the list of processes is the costliest value: every fifth sample


@dataclass
class _GpuSeries:
    """Samples of one GPU."""

    uuid: str | None
    sm_mhz: list[int] = field(default_factory=list)
    temperature_c: list[int] = field(default_factory=list)
    power_w: list[float] = field(default_factory=list)
    memory_bytes: list[int] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    reason_samples: int = 0
    foreign: dict[int, str | None] = field(default_factory=dict)
    unresolved: set[int] = field(default_factory=set)
    energy_j: list[float] = field(default_factory=list)


class Sampler:
    """`with Sampler() as watch: measure(); watch.summary()`. Never raises for a missing device or file."""

    def __init__(self, interval_s: float = 0.2, root: Path = ROOT, own_pids: frozenset[int] = frozenset()) -> None:
        """own_pids: processes of this measurement that are not descendants of this process."""
        self._interval_s = interval_s
        self._root = root
        self._own = own_pids | {os.getpid()}
        self._stop = threading.Event()
        self._gpus: list[_GpuSeries] = []
        self._gpu_problem: str | None = None
        self._samples = 0
        self._start: dict[str, Any] = {}
        self._end: dict[str, Any] = {}
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self._start = self._counters()
        self._take()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(timeout=5)
        self._take()
        self._end = self._counters()

    def summary(self) -> dict[str, Any]:
        """Summary of all samples; before the end of the `with` block, of those so far.

        Shares are in [0, 1]; event_reasons is the share of samples in which each was set. `flags` are records of
        {code, severity, message, evidence}.
        """
        end = self._end or self._counters()
        seen: dict[str, Any] = {
            "seconds": round(end["clock"] - self._start["clock"], 3),
            "samples": self._samples,
            "steal_share": memory.steal_share(self._start["cpu"], end["cpu"]),
            "pressure": self._pressure(end),
            "throttled_s": _difference(self._start["throttled_s"], end["throttled_s"]),
            "gpus": [_gpu_summary(g) for g in self._gpus],
            "gpu_problem": self._gpu_problem,
        }
        seen["flags"] = flags(seen)
        return seen

    def _counters(self) -> dict[str, Any]:
        return {
            "clock": time.monotonic(),
            "cpu": memory.cpu_times(self._root),
            "throttled_s": container.limits(self._root).throttled_s,
            "stall": {key: memory.stall(self._root, *key, "total") for key in _STALLS},
        }

    def _pressure(self, end: dict[str, Any]) -> dict[str, float | None]:
        """Share of the window in which tasks were stalled, from the kernel's own µs counters."""
        seconds = max(end["clock"] - self._start["clock"], 1e-9)
        shares = {}
        for key in _STALLS:
            stalled = _difference(self._start["stall"][key], end["stall"][key])
            shares["_".join(key)] = None if stalled is None else min(1.0, stalled / 1e6 / seconds)
        return shares

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self._take()

    def _take(self) -> None:
        try:
            nvml.call(self._read_gpus, deadline_s=2.0)
            self._gpu_problem = None
        except Exception as error:
            self._gpu_problem = nvml.problem_of(error).code
            if self._gpu_problem == "DRIVER_HUNG":
                self._stop.set()  # repeated waits would only slow the measurement
        self._samples += 1

    def _read_gpus(self, module: Any) -> None:
        for index in range(module.nvmlDeviceGetCount()):
            r = DeviceReader(module, module.nvmlDeviceGetHandleByIndex(index))
            if index >= len(self._gpus):
                self._gpus.append(_GpuSeries(r.get("nvmlDeviceGetUUID")))
            self._read_gpu(r, self._gpus[index])

    def _read_gpu(self, r: DeviceReader, g: _GpuSeries) -> None:
        _keep(g.temperature_c, r.get("nvmlDeviceGetTemperature", r.nvml.NVML_TEMPERATURE_GPU))
        _keep(g.power_w, r.milli("nvmlDeviceGetPowerUsage"))
        _keep(g.energy_j, r.milli("nvmlDeviceGetTotalEnergyConsumption"))
        _keep(g.memory_bytes, getattr(r.get("nvmlDeviceGetMemoryInfo"), "used", None))
        reasons = decode_reasons(r.get("nvmlDeviceGetCurrentClocksEventReasons"))
        if reasons is None or "gpu_idle" not in reasons:  # the clock of an idle GPU is irrelevant to the measurement
            _keep(g.sm_mhz, r.get("nvmlDeviceGetClockInfo", r.nvml.NVML_CLOCK_SM))
        if reasons is not None:
            g.reason_samples += 1
            g.reasons.update(reasons)
        if self._samples % _PROCESS_EVERY == 0:
            self._read_processes(r, g)

    def _read_processes(self, r: DeviceReader, g: _GpuSeries) -> None:
        for process in processes(r) or []:
            if process.name is None:  # not visible in this pid namespace: may be ours or a neighbour's
                g.unresolved.add(process.pid)
            elif not descends(process.pid, self._own, self._root):
                ended = text(self._root, f"/proc/{process.pid}/stat") is None  # nobody can say whose it was
                if ended:
                    g.unresolved.add(process.pid)
                else:
                    g.foreign[process.pid] = process.name


_STALLS = (("cpu", "some"), ("memory", "full"), ("io", "full"))


def _keep(series: list[Any], value: Any) -> None:
    if value is not None:
        series.append(value)


def _difference(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def descends(pid: int, ancestors: frozenset[int], root: Path = ROOT) -> bool:
    """Return True if pid is one of the ancestors or below one of them, by the parents in /proc."""
    for _ in range(64):
        if pid in ancestors:
            return True
        stat = text(root, f"/proc/{pid}/stat")
        parent = as_int(stat.rpartition(")")[2].split()[1]) if stat else None
        if not parent:
            return False
        pid = parent
    return False


def _gpu_summary(g: _GpuSeries) -> dict[str, Any]:
    return {
        "uuid": g.uuid,
        "sm_mhz": _range(g.sm_mhz),
        "temperature_c": _range(g.temperature_c),
        "power_w": _range(g.power_w),
        "memory_peak_bytes": max(g.memory_bytes, default=None),
        "energy_j": g.energy_j[-1] - g.energy_j[0] if len(g.energy_j) > 1 else None,
        "event_reasons": {name: count / g.reason_samples for name, count in sorted(g.reasons.items())},
        "foreign_processes": [{"pid": pid, "name": name} for pid, name in sorted(g.foreign.items())],
        "unresolved_pids": sorted(g.unresolved),
    }


def _range(values: list[Any]) -> dict[str, float] | None:
    if not values:
        return None
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


# Shares of noise that are flagged. Steal of 1 % is as large as effects that benchmarks claim.
STEAL, CPU_STALL, MEMORY_STALL, IO_STALL = 0.01, 0.10, 0.01, 0.10
CLOCK_SPREAD = 0.10

_REASONS = {
    "hw_slowdown": ("warn", "the hardware lowered the clocks"),
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
            message = f"For {share:.0%} of the time, tasks {what}."
            yield _flag(f"PRESSURE_{key.partition('_')[0].upper()}", "warn", message, **{key: share})


def _gpu(gpu: dict[str, Any]) -> Iterator[dict[str, Any]]:
    uuid = gpu["uuid"]
    for reason, share in gpu["event_reasons"].items():
        if reason in _REASONS:
            severity, explanation = _REASONS[reason]
            yield _flag(
                f"GPU_{reason.upper()}",
                severity,
                f"In {share:.0%} of the samples, {explanation}.",
                uuid=uuid,
                share=share,
            )
    if gpu["foreign_processes"]:
        message = f"{len(gpu['foreign_processes'])} other process(es) used the GPU."
        yield _flag("GPU_SHARED", "warn", message, uuid=uuid, processes=gpu["foreign_processes"])
    clock = gpu["sm_mhz"]
    if clock and clock["median"] and (clock["max"] - clock["min"]) / clock["median"] > CLOCK_SPREAD:
        message = f"The SM clock moved between {clock['min']:g} and {clock['max']:g} MHz."
        yield _flag("GPU_CLOCK_VARIED", "note", message, uuid=uuid, sm_mhz=clock)
