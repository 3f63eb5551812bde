"""Savings from measured speed-ups: seconds, money, and days until they repay the effort. From judged
comparisons only.
"""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.judge.records.verdict import NO_TIME, Verdict
from aisp_mcp.records import Record
from aisp_mcp.store.records.verdict_row import VerdictRow

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
    """Effort against saving. None if nothing is saved."""

    target: str
    saved_usd_per_day: float
    low: float
    high: float
    effort_usd: float
    days_to_pay: float | None


def saved_seconds(row: VerdictRow) -> float | None:
    """Seconds saved per call, as far as the verdict proves it.

    None without times and interval, or if calls are not what is timed. Only a judged difference counts: same and
    inconclusive save 0.
    """
    if row.goal in (*NO_TIME, "cold") or not (row.ratio and row.low and row.high and row.baseline_s):
        return None
    return row.baseline_s * (1 - 1 / row.ratio) if row.verdict in (Verdict.FASTER, Verdict.SLOWER) else 0.0


def saving(row: VerdictRow, device: str, usd_per_hour: float) -> Saving:
    """Price one verdict. Raises ValueError if saved_seconds is None."""
    if not (row.ratio and row.low and row.high and row.baseline_s):
        raise ValueError(f"{row.target} has no times")
    before = row.baseline_s * usd_per_hour / SECONDS_PER_HOUR * MILLION
    after = before / row.ratio
    proven = row.verdict in (Verdict.FASTER, Verdict.SLOWER)
    low, high = (before * (1 - 1 / edge) for edge in (row.low, row.high))
    return Saving(
        target=row.target,
        run_id=row.run_id,
        device=device,
        verdict=Verdict(row.verdict),
        speedup=row.ratio,
        seconds_per_call=row.baseline_s / row.ratio,
        baseline_usd_per_million_calls=before,
        usd_per_million_calls=after,
        saved_usd_per_million_calls=before - after if proven else 0.0,
        saved_low=low if proven else 0.0,
        saved_high=high if proven else 0.0,
    )


def payback(row: Saving, calls_per_day: float, effort_usd: float) -> Payback:
    """Days until the saving has repaid the effort."""
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
