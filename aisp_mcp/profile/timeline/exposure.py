"""Exposed communication: per collective, by exact unions of intervals of the device's own clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from pydantic import Field

from aisp_mcp.profile.timeline.events import GpuOp, Message
from aisp_mcp.profile.timeline.intervals import Interval, clip, length, union
from aisp_mcp.profile.timeline.summarize import busbw
from aisp_mcp.records import Record

DEFINITION = (
    "exposed: time of a collective's kernels on a device while no compute kernel ran on it. busbw as nccl-tests, at "
    "the median duration, which may include waiting for other ranks. same_stream_calls: calls on a stream that also "
    "runs compute kernels, where nothing can overlap."
)


class Exposure(Record):
    """All calls of one collective with one message on one device."""

    device: int
    name: str
    bytes: int | None = Field(default=None, description="Per call, where the trace says.")
    ranks: int | None = None
    dtype: str | None = None
    count: int
    total_ns: int
    exposed_ns: int
    exposed_share: float
    busbw_bytes_per_s: float | None = None
    same_stream_calls: int


class RankOverlap(Record):
    """One device of one trace. overlap: share of communication that ran under compute."""

    rank: int
    device: int
    span_ns: int
    communication_ns: int
    exposed_ns: int
    overlap: float | None
    collectives: list[Exposure]


def exposures(gpu: Sequence[GpuOp]) -> list[Exposure]:
    """Every collective of a trace, most exposed time first."""
    compute: dict[int, list[Interval]] = defaultdict(list)
    mixed: set[tuple[int, int]] = set()
    for op in gpu:
        if op.kind == "kernel":
            compute[op.device].append((op.start, op.end))
            mixed.add((op.device, op.stream))
    covers = {device: union(parts) for device, parts in compute.items()}
    groups: dict[tuple[int, Message], list[GpuOp]] = defaultdict(list)
    for op in gpu:
        if op.kind == "communication":
            groups[op.device, op.message or Message("other", None, None, None)].append(op)
    rows = [_row(device, message, ops, covers.get(device, []), mixed) for (device, message), ops in groups.items()]
    return sorted(rows, key=lambda row: (-row.exposed_ns, -row.total_ns, row.name))


def _row(
    device: int, message: Message, ops: Sequence[GpuOp], compute: Sequence[Interval], mixed: set[tuple[int, int]]
) -> Exposure:
    times = [op.end - op.start for op in ops]
    exposed = sum(op.end - op.start - length(clip(compute, op.start, op.end)) for op in ops)
    return Exposure(
        device=device,
        name=message.collective,
        bytes=message.bytes,
        ranks=message.ranks,
        dtype=message.dtype,
        count=len(ops),
        total_ns=sum(times),
        exposed_ns=exposed,
        exposed_share=exposed / sum(times) if sum(times) else 0.0,
        busbw_bytes_per_s=busbw(message.collective, message.bytes, message.ranks, median(times)),
        same_stream_calls=sum((op.device, op.stream) in mixed for op in ops),
    )
