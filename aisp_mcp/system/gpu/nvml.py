"""The GPUs through NVML (package nvidia-ml-py), each call with a deadline.

Nothing here raises: no driver, a driver that does not match its library, a function missing from an old driver, a GPU
that fell off the bus and a call that never returns are all answers with a reason. Each value of a GPU may be missing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aisp_mcp.system.deadline import CallLane, Hung
from aisp_mcp.system.records import (
    Gpu,
    GpuActivity,
    GpuClocks,
    GpuHealth,
    GpuMemory,
    GpuModes,
    GpuPcie,
    GpuPower,
    GpuProcess,
    GpuReading,
    GpuThermal,
    MigDevice,
    Problem,
)

_LANE = CallLane("nvml")
_READY = threading.Event()

_PROBLEMS = {
    12: ("NO_DRIVER", "No NVIDIA driver: libnvidia-ml.so.1 was not found.", None),
    9: (
        "DRIVER_NOT_LOADED",
        "libnvidia-ml.so.1 is there but the kernel module is not loaded.",
        "Load it: sudo modprobe nvidia; in a container, start it with the NVIDIA container toolkit (--gpus all).",
    ),
    18: (
        "DRIVER_MISMATCH",
        "The NVML library and the loaded kernel module are of different driver versions.",
        "Reboot, or unload and load the nvidia modules, so that the module of the installed version runs.",
    ),
    4: ("NO_PERMISSION", "This user may not open the NVIDIA devices.", "Check the permissions of /dev/nvidiactl."),
    15: ("GPU_LOST", "A GPU fell off the bus.", "See dmesg for Xid 79; drain the node and reset or power-cycle it."),
    16: ("GPU_RESET", "A GPU needs a reset.", "sudo nvidia-smi --gpu-reset -i INDEX, with no process on it."),
    17: ("OPERATING_SYSTEM", "The operating system blocked NVML.", "Check the container's device cgroup."),
    999: ("DRIVER_ERROR", "NVML reported an unknown internal error.", "See dmesg for Xid messages."),
}


def problem_of(error: BaseException) -> Problem:
    """The message for an NVML exception or a time-out."""
    if isinstance(error, Hung):
        return Problem(
            code="DRIVER_HUNG",
            message=f"The NVIDIA driver did not answer within {error.since_s:.1f} s.",
            hint="Without persistence mode the first call can take seconds: call again. "
            "If it stays, see dmesg for Xid messages; processes in state D hold the driver.",
        )
    code = getattr(error, "value", None)
    if isinstance(error, ImportError):
        return Problem(
            code="NOT_INSTALLED",
            message="The Python package nvidia-ml-py is not installed.",
            hint="pip install nvidia-ml-py",
        )
    name, message, hint = _PROBLEMS.get(code if isinstance(code, int) else -1, ("NVML_ERROR", f"NVML: {error}", None))
    return Problem(code=name, message=message, hint=hint)


def _module() -> Any:
    """pynvml, initialised. It stays open, so that a server that queries often does not pay the driver's start each
    time.
    """
    import pynvml

    if not _READY.is_set():
        pynvml.nvmlInit()
        _READY.set()
    return pynvml


def call(fn: Callable[[Any], Any], deadline_s: float) -> Any:
    """fn(pynvml) on the driver's own thread. Raises Hung, ImportError or pynvml.NVMLError."""

    def work() -> Any:
        try:
            return fn(_module())
        except Exception as error:
            # Uninitialized, driver not loaded, GPU lost: the next call starts afresh.
            if getattr(error, "value", None) in (1, 9, 15, 16, 18, 999):
                _READY.clear()
            raise

    return _LANE.call(work, deadline_s)


def read(deadline_s: float = 3.0, brief: bool = False) -> GpuReading:
    """Every GPU, in full or only name, memory, load and temperature.

    At the deadline, the values read so far, together with the problem.
    """
    head: dict[str, str | None] = {"driver": None, "cuda_driver": None}
    gpus: list[Gpu] = []

    def work(nvml: Any) -> None:
        head["driver"], head["cuda_driver"] = _versions(nvml)
        read_device = read_brief if brief else read_gpu
        for index in range(nvml.nvmlDeviceGetCount()):
            gpus.append(_device(nvml, index, read_device))  # noqa: PERF401 - at the deadline, those read so far count

    problem = None
    try:
        call(work, deadline_s)
    except Exception as error:
        problem = problem_of(error)
    if problem is None and not gpus:
        problem = Problem(code="NO_DEVICES", message="The driver runs but shows no GPU.", hint=_VISIBLE_HINT)
    return GpuReading(gpus=list(gpus), problem=problem, **head)


_VISIBLE_HINT = "In a container, check --gpus or NVIDIA_VISIBLE_DEVICES; on the host, lspci -d 10de: lists the cards."


def _device(nvml: Any, index: int, read_one: Callable[[Any, Any, int], tuple[Gpu, Exception | None]]) -> Gpu:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        return Gpu(index=index, problem=problem_of(error))
    gpu, fault = read_one(nvml, handle, index)
    return gpu if fault is None else gpu.model_copy(update={"problem": problem_of(fault)})


def _versions(nvml: Any) -> tuple[str | None, str | None]:
    driver = cuda = None
    try:
        driver = nvml.nvmlSystemGetDriverVersion()
        number = nvml.nvmlSystemGetCudaDriverVersion()
        cuda = f"{number // 1000}.{number % 1000 // 10}"
    except nvml.NVMLError:
        pass
    return driver, cuda


def versions(deadline_s: float = 2.0) -> tuple[str | None, str | None]:
    """(driver, newest CUDA it supports); None if there is no driver or no answer in time."""
    try:
        driver_and_cuda: tuple[str | None, str | None] = call(_versions, deadline_s)
    except Exception:
        return None, None
    return driver_and_cuda


def measuring_locks() -> list[str]:
    """Names of what a job that measures holds: every GPU of this machine, or the CPU if there is no GPU."""
    return [f"gpu:{uuid}" for uuid in gpu_uuids()] or ["cpu"]


def gpu_uuids(deadline_s: float = 2.0) -> list[str]:
    """UUIDs of the GPUs in NVML's order; empty without a driver, a GPU or an answer in time."""

    def work(nvml: Any) -> list[str]:
        texts = []
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                texts.append(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(index)))
            except nvml.NVMLError:
                continue
        return texts

    try:
        result: list[str] = call(work, deadline_s)
    except Exception:
        return []
    return result


def benchmark_device() -> str:
    """cuda if NVML sees a GPU and CUDA_VISIBLE_DEVICES does not hide all of them, else cpu."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")
    return "cuda" if gpu_uuids() and not hidden else "cpu"


# Bits of nvmlClocksEventReasons, from nvml.h.
EVENT_REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}
COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
FATAL = (15, 16)  # GPU is lost, reset required
VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host_vgpu", 4: "host_vsga"}


class DeviceReader:
    """Calls NVML functions on one device and remembers which it could not read."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self.nvml = nvml
        self.handle = handle
        self.unread: list[str] = []
        self.fault: Exception | None = None

    def get(self, name: str, *args: Any) -> Any:
        """nvml.<name>(handle, *args), or None if the driver or device does not support it."""
        if self.fault is not None:  # the device is gone: each further call could time out
            return None
        try:
            return getattr(self.nvml, name)(self.handle, *args)
        except Exception as error:  # NVMLError, or a binding newer or older than the library: a gap, not a failure
            if getattr(error, "value", None) in FATAL:
                self.fault = error
            self.unread.append(name.removeprefix("nvmlDeviceGet"))
            return None

    def milli(self, name: str, *args: Any) -> float | None:
        """A number of thousandths as units: milliwatts as watts."""
        value = self.get(name, *args)
        return None if value is None else value / 1000


def read_gpu(nvml: Any, handle: Any, index: int) -> tuple[Gpu, Exception | None]:
    """The full record (bytes, MHz, watts, degrees Celsius) and the error that ended the reading early, if any."""
    r = DeviceReader(nvml, handle)
    return _record(r, index), r.fault


def read_brief(nvml: Any, handle: Any, index: int) -> tuple[Gpu, Exception | None]:
    """Name, memory, load and temperature: the calls that answer within microseconds."""
    r = DeviceReader(nvml, handle)
    rates = r.get("nvmlDeviceGetUtilizationRates")
    brief = Gpu(
        index=index,
        name=r.get("nvmlDeviceGetName"),
        uuid=r.get("nvmlDeviceGetUUID"),
        memory=_memory(r),
        activity=GpuActivity(gpu_percent=getattr(rates, "gpu", None)),
        thermal=GpuThermal(gpu_c=r.get("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU)),
    )
    return brief, r.fault


def _record(r: DeviceReader, index: int) -> Gpu:
    capability = r.get("nvmlDeviceGetCudaComputeCapability")
    return Gpu(
        index=index,
        name=r.get("nvmlDeviceGetName"),
        uuid=r.get("nvmlDeviceGetUUID"),
        compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
        memory=_memory(r),
        activity=_activity(r),
        clocks=clocks(r),
        power=power(r),
        thermal=_thermal(r),
        health=_health(r),
        pcie=_pcie(r),
        modes=_modes(r),
        unread=sorted(set(r.unread)),
    )


def _memory(r: DeviceReader) -> GpuMemory:
    info = r.get("nvmlDeviceGetMemoryInfo", getattr(r.nvml, "nvmlMemory_v2", None))
    if info is None:  # before driver 510 only the first version exists
        info = r.get("nvmlDeviceGetMemoryInfo")
    if info is None:
        return GpuMemory()
    return GpuMemory(
        total_bytes=info.total,
        used_bytes=info.used,
        free_bytes=info.free,
        reserved_bytes=getattr(info, "reserved", None),
    )


def _activity(r: DeviceReader) -> GpuActivity:
    rates = r.get("nvmlDeviceGetUtilizationRates")
    state = r.get("nvmlDeviceGetPerformanceState")
    return GpuActivity(
        gpu_percent=getattr(rates, "gpu", None),
        memory_percent=getattr(rates, "memory", None),
        performance_state=f"P{state}" if state is not None and state < 16 else None,
        processes=processes(r),
    )


def processes(r: DeviceReader) -> list[GpuProcess] | None:
    """Processes on the device; None if NVML does not report them (a container may hide them all)."""
    compute = r.get("nvmlDeviceGetComputeRunningProcesses")
    graphics = r.get("nvmlDeviceGetGraphicsRunningProcesses")
    if compute is None and graphics is None:
        return None
    records = [_process(p, "compute") for p in compute or []]
    return records + [_process(p, "graphics") for p in graphics or []]


def _process(info: Any, kind: Any) -> GpuProcess:
    return GpuProcess(pid=info.pid, kind=kind, used_bytes=info.usedGpuMemory, name=_process_name(info.pid))


def _process_name(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return None


def decode_reasons(bits: int | None) -> list[str] | None:
    """The names of the set bits; unknown bits are shown by number."""
    if bits is None:
        return None
    known = [name for bit, name in EVENT_REASONS.items() if bits & bit]
    rest = bits & ~sum(EVENT_REASONS)
    return known + ([hex(rest)] if rest else [])


def clocks(r: DeviceReader) -> GpuClocks:
    """Present and highest clocks in MHz with the decoded event reasons."""
    bits = r.get("nvmlDeviceGetCurrentClocksEventReasons")
    if bits is None:  # the name before driver 535
        bits = r.get("nvmlDeviceGetCurrentClocksThrottleReasons")
    return GpuClocks(
        sm_mhz=r.get("nvmlDeviceGetClockInfo", r.nvml.NVML_CLOCK_SM),
        memory_mhz=r.get("nvmlDeviceGetClockInfo", r.nvml.NVML_CLOCK_MEM),
        sm_max_mhz=r.get("nvmlDeviceGetMaxClockInfo", r.nvml.NVML_CLOCK_SM),
        memory_max_mhz=r.get("nvmlDeviceGetMaxClockInfo", r.nvml.NVML_CLOCK_MEM),
        sm_application_mhz=r.get("nvmlDeviceGetApplicationsClock", r.nvml.NVML_CLOCK_SM),
        event_reasons=decode_reasons(bits),
    )


def power(r: DeviceReader) -> GpuPower:
    """Power in watts and energy in joules since the driver was loaded."""
    bounds = r.get("nvmlDeviceGetPowerManagementLimitConstraints")
    limit = r.milli("nvmlDeviceGetEnforcedPowerLimit")
    return GpuPower(
        draw_w=r.milli("nvmlDeviceGetPowerUsage"),
        instant_w=_field(r, "NVML_FI_DEV_POWER_INSTANT", 1000),
        limit_w=limit if limit is not None else r.milli("nvmlDeviceGetPowerManagementLimit"),
        default_limit_w=r.milli("nvmlDeviceGetPowerManagementDefaultLimit"),
        min_limit_w=bounds[0] / 1e3 if bounds else None,
        max_limit_w=bounds[1] / 1e3 if bounds else None,
        energy_j=r.milli("nvmlDeviceGetTotalEnergyConsumption"),
    )


def _field(r: DeviceReader, name: str, divisor: float = 1.0) -> float | None:
    """One value of nvmlDeviceGetFieldValues, or None."""
    identifier = getattr(r.nvml, name, None)
    values = r.get("nvmlDeviceGetFieldValues", [identifier]) if identifier is not None else None
    if not values or values[0].nvmlReturn != 0:
        return None
    readers: dict[int, Callable[[Any], float]] = {
        0: lambda v: v.dVal,
        1: lambda v: v.uiVal,
        2: lambda v: v.ulVal,
        3: lambda v: v.ullVal,
    }
    read = readers.get(values[0].valueType)
    return None if read is None else read(values[0].value) / divisor


def _thermal(r: DeviceReader) -> GpuThermal:
    nvml = r.nvml
    memory = _field(r, "NVML_FI_DEV_MEMORY_TEMP")
    return GpuThermal(
        gpu_c=r.get("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        memory_c=int(memory) if memory else None,
        slowdown_c=r.get("nvmlDeviceGetTemperatureThreshold", nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
        shutdown_c=r.get("nvmlDeviceGetTemperatureThreshold", nvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN),
        margin_c=r.get("nvmlDeviceGetMarginTemperature"),
    )


def _ecc(r: DeviceReader, corrected: bool, aggregate: bool) -> int | None:
    nvml = r.nvml
    kind = nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED if corrected else nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    counter = nvml.NVML_AGGREGATE_ECC if aggregate else nvml.NVML_VOLATILE_ECC
    value = r.get("nvmlDeviceGetTotalEccErrors", kind, counter)
    return None if value is None else int(value)


def _health(r: DeviceReader) -> GpuHealth:
    mode = r.get("nvmlDeviceGetEccMode")
    rows = r.get("nvmlDeviceGetRemappedRows")
    pages = [_retired(r, cause) for cause in (0, 1)]
    pending = r.get("nvmlDeviceGetRetiredPagesPendingStatus")
    return GpuHealth(
        ecc_enabled=bool(mode[0]) if mode else None,
        corrected_volatile=_ecc(r, True, False),
        uncorrected_volatile=_ecc(r, False, False),
        corrected_aggregate=_ecc(r, True, True),
        uncorrected_aggregate=_ecc(r, False, True),
        retired_pages=None if None in pages else sum(p or 0 for p in pages),
        retirement_pending=None if pending is None else bool(pending),
        remapped_correctable=rows[0] if rows else None,
        remapped_uncorrectable=rows[1] if rows else None,
        remap_pending=bool(rows[2]) if rows else None,
        remap_failed=bool(rows[3]) if rows else None,
    )


def _retired(r: DeviceReader, cause: int) -> int | None:
    pages = r.get("nvmlDeviceGetRetiredPages", cause)
    return None if pages is None else len(pages)


def _pcie(r: DeviceReader) -> GpuPcie:
    info = r.get("nvmlDeviceGetPciInfo")
    bus_id = getattr(info, "busId", None)
    return GpuPcie(
        bus_id=bus_id.decode() if isinstance(bus_id, bytes) else bus_id,
        generation=r.get("nvmlDeviceGetCurrPcieLinkGeneration"),
        generation_max=r.get("nvmlDeviceGetMaxPcieLinkGeneration"),
        width=r.get("nvmlDeviceGetCurrPcieLinkWidth"),
        width_max=r.get("nvmlDeviceGetMaxPcieLinkWidth"),
        replays=r.get("nvmlDeviceGetPcieReplayCounter"),
    )


def _modes(r: DeviceReader) -> GpuModes:
    persistence = r.get("nvmlDeviceGetPersistenceMode")
    mode = r.get("nvmlDeviceGetComputeMode")
    virtual = r.get("nvmlDeviceGetVirtualizationMode")
    mig = r.get("nvmlDeviceGetMigMode")
    enabled = bool(mig[0]) if mig else None
    return GpuModes(
        persistence=None if persistence is None else bool(persistence),
        compute_mode=None if mode is None else COMPUTE_MODES.get(mode, str(mode)),
        virtualization=None if virtual is None else VIRTUALIZATION.get(virtual, str(virtual)),
        mig=enabled,
        mig_pending=bool(mig[1]) if mig else None,
        mig_devices=_mig_devices(r) if enabled else [],
    )


def _mig_devices(r: DeviceReader) -> list[MigDevice]:
    mig_devices = []
    for index in range(r.get("nvmlDeviceGetMaxMigDeviceCount") or 0):
        try:
            handle = r.nvml.nvmlDeviceGetMigDeviceHandleByIndex(r.handle, index)
        except r.nvml.NVMLError:
            continue  # a free slot
        m = DeviceReader(r.nvml, handle)
        memory = m.get("nvmlDeviceGetMemoryInfo")
        mig_devices.append(
            MigDevice(
                index=index,
                name=m.get("nvmlDeviceGetName"),
                uuid=m.get("nvmlDeviceGetUUID"),
                memory_bytes=getattr(memory, "total", None),
            )
        )
    return mig_devices
