"""Money from time, price and power, and the savings of measured speed-ups: seconds, money, days until they repay the
effort.

Savings come from judged comparisons only.
"""

from __future__ import annotations

import datetime

from pydantic import Field

from aisp_mcp.judge.records.verdict import NO_TIME, Verdict
from aisp_mcp.plan.records import Price
from aisp_mcp.records import Record
from aisp_mcp.store.records.verdict_row import VerdictRow

OLD_DAYS = 180
SECONDS_PER_HOUR = 3600.0
MILLION = 1e6
WATTS_PER_KILOWATT = 1000.0


class Cost(Record):
    """Costs; None if the arguments do not determine a figure."""

    headline: str
    usd_per_gpu_hour: float | None = None
    usd_per_hour: float | None = Field(default=None, description="All GPUs.")
    usd_per_run: float | None = None
    usd_per_million_tokens: float | None = Field(default=None, description="Rent of the GPUs.")
    electricity_usd_per_million_tokens: float | None = Field(default=None, description="Electricity only.")
    electricity_usd_per_run: float | None = None
    price: Price | None = Field(default=None, description="Row of the list that was used.")


class Load(Record):
    """The load to price: GPUs, hours, tokens per second, power."""

    gpus: int
    hours: float | None = None
    tokens_per_s: float | None = Field(default=None, description="Over all GPUs.")
    watts: float | None = Field(default=None, description="Average draw of everything counted.")
    usd_per_kwh: float | None = None


def estimate(load: Load, usd_per_gpu_hour: float | None, price: Price | None) -> Cost:
    """Combine the known figures."""
    hourly = usd_per_gpu_hour * load.gpus if usd_per_gpu_hour is not None else None
    power = load.watts / WATTS_PER_KILOWATT * load.usd_per_kwh if load.watts and load.usd_per_kwh else None
    figures = {
        "an hour": hourly,
        "a run": _times(hourly, load.hours),
        "per million tokens": per_million(hourly, load.tokens_per_s),
        "of electricity a run": _times(power, load.hours),
        "of electricity per million tokens": per_million(power, load.tokens_per_s),
    }
    known = [f"USD {value:,.4g} {name}" for name, value in figures.items() if value is not None]
    return Cost(
        headline=f"{load.gpus} GPUs: {', '.join(known)}.",
        usd_per_gpu_hour=usd_per_gpu_hour,
        usd_per_hour=hourly,
        usd_per_run=_times(hourly, load.hours),
        usd_per_million_tokens=per_million(hourly, load.tokens_per_s),
        electricity_usd_per_million_tokens=per_million(power, load.tokens_per_s),
        electricity_usd_per_run=_times(power, load.hours),
        price=price,
    )


def per_million(usd_per_hour: float | None, tokens_per_s: float | None) -> float | None:
    """USD for a million tokens."""
    if usd_per_hour is None or not tokens_per_s:
        return None
    return usd_per_hour / SECONDS_PER_HOUR / tokens_per_s * MILLION


def age_days(price: Price, today: datetime.date) -> int:
    """Days since the list was read."""
    return (today - price.as_of).days


def _times(a: float | None, b: float | None) -> float | None:
    return a * b if a is not None and b is not None else None


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
