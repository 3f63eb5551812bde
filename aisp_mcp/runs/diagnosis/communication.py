"""Traces of several ranks, read into exposed communication per device and calls to match between ranks."""

from __future__ import annotations

from collections.abc import Sequence

from aisp_mcp.errors import Unavailable
from aisp_mcp.profile import load
from aisp_mcp.profile.timeline import exposure, summarize
from aisp_mcp.profile.timeline.events import GpuOp
from aisp_mcp.profile.timeline.exposure import RankOverlap
from aisp_mcp.profile.timeline.summarize import Scope
from aisp_mcp.profile.timeline.trace import Trace
from aisp_mcp.runs.diagnosis.stragglers import Call

Ranks = list[tuple[RankOverlap, list[Call]]]  # with the calls in order of their start


def ranks(paths: Sequence[str], scope: Scope) -> Ranks:
    """Every device that communicates. Raises Unavailable NO_COMMUNICATION, and as profilers.load."""
    all_ranks: Ranks = []
    for path in paths:
        all_ranks += _of_trace(load.load_trace(path), scope, len(all_ranks))
    if not all_ranks:
        raise Unavailable(
            "NO_COMMUNICATION",
            "No trace contains a communication kernel (NCCL, RCCL, NVSHMEM).",
            "Record ranks of a distributed program with aisp_profile_torch or aisp_profile_nsys.",
            [("aisp_hw_nccl", {})],
        )
    return all_ranks


def _of_trace(trace: Trace, scope: Scope, before: int) -> Ranks:
    scoped, _ = summarize.scoped(trace, scope)
    profile = summarize.profile(trace, scope)
    rows = exposure.exposures(scoped.gpu)
    breakdown = profile.timeline.breakdown if profile.timeline else []
    talking = [row for row in breakdown if row.communication_ns]
    ranks_of_trace = []
    for at, row in enumerate(talking):
        # A trace of several devices numbers them itself; a separate rank belongs to one device.
        number = trace.rank if trace.rank is not None and len(talking) == 1 else before + at
        overlap = RankOverlap(
            rank=number,
            device=row.device,
            span_ns=row.span_ns,
            communication_ns=row.communication_ns,
            exposed_ns=row.exposed_communication_ns,
            overlap=row.overlap,
            collectives=[item for item in rows if item.device == row.device],
        )
        ranks_of_trace.append((overlap, _calls([op for op in scoped.gpu if op.device == row.device])))
    return ranks_of_trace


def _calls(ops: Sequence[GpuOp]) -> list[Call]:
    calls = []
    for op in sorted(ops, key=lambda op: op.start):
        if op.kind == "communication" and op.message is not None and op.message.collective != "send_recv":
            size, group = op.message.bytes, op.message.ranks
            calls.append(Call(f"{op.message.collective} {size} {group}", op.end - op.start))
    return calls


def notes(rank_overlaps: Sequence[RankOverlap]) -> list[str]:
    """Advice and caveats for the figures."""
    messages = []
    same = sum(row.same_stream_calls for rank in rank_overlaps for row in rank.collectives)
    if same:
        messages.append(f"{same} collective calls run on a stream that also computes: put them on a separate stream.")
    if any(row.bytes is None for rank in rank_overlaps for row in rank.collectives):
        messages.append("Some collectives have no message size in the trace: no bus bandwidth for them.")
    if len(rank_overlaps) == 1:
        messages.append("One rank: stragglers need the traces of several.")
    return messages
