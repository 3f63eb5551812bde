"""One verdict of one run as a flat row: what lists, charts and filters need, without samples or evidence."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.records import Record


class VerdictRow(Record):
    """A row. seq: its number in the store, ascending with time; times in seconds per call, memory in bytes."""

    seq: int
    run_id: str
    created_at: float
    chapter: str
    target: str = Field(description="With the variant: ch07:row_sum_tiled.")
    verdict: str
    goal: str
    preset: str
    device: str | None = Field(default=None, description="The first GPU's name, else the processor's.")
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    noise_floor: float | None = None
    baseline_s: float | None = None
    candidate_s: float | None = None
    baseline_bytes: int | None = None
    candidate_bytes: int | None = None
    flops_per_s: float | None = None
    bytes_per_s: float | None = None
    seconds: float | None = None
    revision: str | None = Field(default=None, description="The commit that was measured, where it is known.")
    revision_at: float | None = Field(default=None, description="UTC seconds of that commit.")
    modified: bool | None = Field(default=None, description="The measured files differed from that commit.")


class VerdictFilter(Record):
    """Conditions on stored verdicts; empty fields match all. text: part of the target's name. since: UTC seconds."""

    chapter: str | None = None
    target: str | None = None
    verdict: str | None = None
    goal: str | None = None
    preset: str | None = None
    device: str | None = None
    run: str | None = None
    since: float | None = None
    text: tuple[str, ...] = ()
