"""The GPUs through NVML (package nvidia-ml-py), each call with a deadline.

Nothing here raises: no driver, a driver that does not match its library, a function missing from an old driver, a GPU
that fell off the bus and a call that never returns are all answers with a reason.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from aisp_mcp.system.deadline import Hung, Lane
from aisp_mcp.system.gpu.nvml_device import read_brief, read_gpu
from aisp_mcp.system.records.device import Gpu, GpuReading, Problem

_LANE = Lane("nvml")
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
