"""Money from time, price and power."""

from __future__ import annotations

import datetime

from pydantic import Field

from aisp_mcp.plan.records.planning import Price
from aisp_mcp.records import Record

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
