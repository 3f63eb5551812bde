"""Savings by measured speed-ups: seconds, money, and days until the effort is paid. From judged comparisons only."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from aisp_mcp.model.base import Record
from aisp_mcp.model.verdict import NO_TIME, Comparison, Verdict

SECONDS_PER_HOUR = 3600.0
MILLION = 1e6


class Saving(Record):
    """One measured candidate. Low and high follow from the interval of its speed-up."""

    target: str
    run_id: str
    device: str
    verdict: Verdict
    speedup: float
    seconds_per_call: float = Field(description="Of the candidate.")
    baseline_usd_per_million_calls: float
    usd_per_million_calls: float
    saved_usd_per_million_calls: float
    saved_low: float
    saved_high: float


class Payback(Record):
    """Effort against saving. None where nothing is saved."""

    target: str
    saved_usd_per_day: float
    low: float
    high: float
    effort_usd: float
    days_to_pay: float | None


def saving(comparison: Comparison, run_id: str, device: str, usd_per_hour: float) -> Saving | None:
    """Price one comparison; None without both times or where calls are not what is timed.

    Only a judged difference counts: same and inconclusive save 0."""
    if comparison.goal in (*NO_TIME, "cold") or not (comparison.ratio and comparison.interval and comparison.baseline):
        return None
    million = usd_per_hour / SECONDS_PER_HOUR * MILLION
    before = comparison.baseline.time_s * million
    after = before / comparison.ratio
    proven = comparison.verdict in (Verdict.FASTER, Verdict.SLOWER)
    low, high = (before * (1 - 1 / edge) for edge in (comparison.interval.low, comparison.interval.high))
    return Saving(
        target=comparison.target + (f"_{comparison.candidate}" if comparison.candidate else ""),
        run_id=run_id,
        device=device,
        verdict=comparison.verdict,
        speedup=comparison.ratio,
        seconds_per_call=comparison.baseline.time_s / comparison.ratio,
        baseline_usd_per_million_calls=before,
        usd_per_million_calls=after,
        saved_usd_per_million_calls=before - after if proven else 0.0,
        saved_low=low if proven else 0.0,
        saved_high=high if proven else 0.0,
    )


def payback(row: Saving, calls_per_day: float, effort_usd: float) -> Payback:
    """Days until the saving has paid for the effort."""
    share = calls_per_day / MILLION
    saved = row.saved_usd_per_million_calls * share
    return Payback(
        target=row.target,
        saved_usd_per_day=saved,
        low=row.saved_low * share,
        high=row.saved_high * share,
        effort_usd=effort_usd,
        days_to_pay=effort_usd / saved if saved > 0 else None,
    )


def best(rows: Sequence[Saving], top: int) -> list[Saving]:
    """The largest savings first."""
    return sorted(rows, key=lambda row: row.saved_usd_per_million_calls, reverse=True)[:top]
