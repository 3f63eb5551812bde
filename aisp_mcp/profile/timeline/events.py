"""Records of single events of a timeline, whatever its format: integer nanoseconds, names already cleaned."""

from __future__ import annotations

from typing import Literal, NamedTuple

OpKind = Literal["kernel", "communication", "memcpy", "memset"]
NO_LINK = (0, 0)
HOST_FUNCTIONS: tuple[str, ...] = ("cudaLaunchHostFunc", "cuLaunchHostFunc", "cudaStreamAddCallback")
HOST_FUNCTIONS += ("cuStreamAddCallback", "hipLaunchHostFunc", "hipStreamAddCallback")


class LaunchShape(NamedTuple):
    """A launch, in the fields of KernelStat: registers and local_bytes are per thread, shared_bytes per block."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: int | None
    shared_bytes: int | None
    local_bytes: int | None
    occupancy: float | None


class Message(NamedTuple):
    """A collective's size in bytes, number of ranks and element type, if the trace contains them."""

    collective: str
    bytes: int | None
    ranks: int | None
    dtype: str | None


class GpuOp(NamedTuple):
    """One operation on a device."""

    start: int
    end: int
    device: int
    stream: int
    kind: OpKind
    name: str
    link: tuple[int, int]  # (process, correlation id): the host call that launched it
    bytes: int = 0
    shape: LaunchShape | None = None
    message: Message | None = None


class HostCall(NamedTuple):
    """One call into the CUDA runtime or driver, or one host operator. thread is unique over processes."""

    start: int
    end: int
    thread: int
    name: str
    link: tuple[int, int]


class StreamWait(NamedTuple):
    """An event that a stream waits for (cudaStreamWaitEvent), by the call's link."""

    device: int
    stream: int
    link: tuple[int, int]


class HostRange(NamedTuple):
    """A named range: NVTX or user annotation."""

    start: int
    end: int
    thread: int
    name: str
