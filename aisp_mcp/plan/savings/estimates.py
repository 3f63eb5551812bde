"""Prices from the dated list or the caller, and the savings of stored comparisons at these prices."""

from __future__ import annotations

import datetime
import heapq
import math
from collections.abc import Sequence

from pydantic import Field

from aisp_mcp.errors import Unavailable, UsageError
from aisp_mcp.judge.records.verdict import Verdict
from aisp_mcp.machine.datasheets import load
from aisp_mcp.machine.datasheets.load import GpuFacts, cite
from aisp_mcp.plan import lookup
from aisp_mcp.plan.data import tables as knowledge
from aisp_mcp.plan.records import Band, Planned, Price, Source, Technique
from aisp_mcp.plan.savings import cost, techniques
from aisp_mcp.plan.savings.techniques import Advice, Excluded
from aisp_mcp.records import Record
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.run import Run
from aisp_mcp.store.records.verdict_row import VerdictFilter, VerdictRow

_CONFIRMED = VerdictFilter(confirmed=True)  # a provisional verdict does not justify spending money
_BASIS_PUBLISHED = "lowest and highest published, not a quantile"
_BASIS_ESTIMATE = "an estimate: no published figure was found"


class Savings(Record):
    """Comparisons by savings per million calls, largest first."""

    rows: list[cost.Saving]
    priced: int
    unpriced: list[str] = Field(description="Devices without a price, left out.")
    runs: int = Field(description="Runs among the newest verdicts of each target and device.")


class Roi(Record):
    """Measured gains against the effort stated by the caller."""

    rows: list[cost.Payback]
    calls_per_day: float


class Recommendation(Record):
    """Techniques in order: measured here first, then by the middle of the published range."""

    headline: str
    techniques: list[Advice]
    excluded: list[Excluded]


class Catalogue(Record):
    """The catalogue of techniques, or part of it."""

    techniques: list[Technique]
    total: int


def today(ctx: Context) -> datetime.date:
    """The date by the context's clock."""
    return datetime.datetime.fromtimestamp(ctx.clock(), datetime.UTC).date()


def price(ctx: Context, sku: str, spot: bool, allow_old: bool, provider: str | None = None) -> Price:
    """Cheapest listed price, of all providers or the named one. Raises Unavailable NO_PRICE, PRICE_OLD."""
    kind = "spot" if spot else "on-demand"
    rows = [row for row in knowledge.prices() if row.sku == sku and row.kind == kind]
    if rows and provider is not None:
        rows = _of_provider(rows, provider)
    if not rows:
        listed = ", ".join(sorted({row.sku for row in knowledge.prices()}))
        raise Unavailable(
            "NO_PRICE", f"No {kind} price of {sku} is listed.", f"Give usd_per_gpu_hour. Listed: {listed}."
        )
    cheapest = min(rows, key=lambda row: row.usd_per_gpu_hour)
    age = cost.age_days(cheapest, today(ctx))
    if age > cost.OLD_DAYS and not allow_old:
        raise Unavailable(
            "PRICE_OLD",
            f"The price of {sku} is of {cheapest.as_of}: {age} days old, more than {cost.OLD_DAYS}.",
            "Give usd_per_gpu_hour, or allow_old=true.",
        )
    return cheapest


def _of_provider(rows: list[Price], provider: str) -> list[Price]:
    """Rows of providers whose name begins like the given one. Raises Unavailable NO_PRICE, naming those that exist."""
    matches = [row for row in rows if row.provider.lower().startswith(provider.strip().lower())]
    if not matches:
        listed = ", ".join(sorted({f"{row.provider} {row.usd_per_gpu_hour:g}" for row in rows}))
        raise Unavailable(
            "NO_PRICE",
            f"No {rows[0].kind} price of {rows[0].sku} at '{provider[:40]}' is listed.",
            f"Listed, in USD per GPU and hour: {listed}. Or give usd_per_gpu_hour.",
        )
    return matches


def estimate(
    ctx: Context,
    load_: cost.Load,
    gpu: str | None,
    usd: float | None,
    spot: bool,
    old: bool,
    provider: str | None = None,
) -> Planned[cost.Cost]:
    """Cost of a load. The caller's price takes precedence. Raises UsageError NO_LOAD, and as `price`."""
    row = price(ctx, lookup.gpu(gpu).sku, spot, old, provider) if gpu is not None and usd is None else None
    hourly = row.usd_per_gpu_hour if row is not None else usd
    cost_estimate = cost.estimate(load_, hourly, row)
    figures = cost_estimate.model_dump(exclude={"headline", "price", "usd_per_gpu_hour"})
    if not all(value is None or math.isfinite(value) for value in figures.values()):
        raise UsageError("TOO_LARGE", "A figure is larger than any number.", "Check price, hours and throughput.")
    if all(value is None for value in figures.values()):
        raise UsageError(
            "NO_LOAD",
            "Nothing can be computed from these arguments.",
            "Name gpu or usd_per_gpu_hour, with hours or throughput; or avg_power, throughput and electricity_cost.",
        )
    electric = (
        cost_estimate.electricity_usd_per_million_tokens is not None
        or cost_estimate.electricity_usd_per_run is not None
    )
    return Planned[cost.Cost](
        answer=cost_estimate,
        assumptions=lookup.first(
            f"{load_.gpus} GPU(s), held and paid all the time.",
            f"{row.kind} list price of {row.provider}, as of {row.as_of}." if row else None,
            "Price given by the caller." if usd is not None else None,
            "Electricity figures are electricity only: no hardware, no cooling." if electric else None,
            "Exact arithmetic on the price: no band.",
        ),
        band={},
        not_modelled=["Discounts, commitments, storage, traffic, taxes; idle GPUs; failed runs."],
        definitions={"usd_per_million_tokens": "price of all GPUs per second / tokens per second x 1e6"},
        check_here="aisp gpu power",
        sources=[Source(what=row.source, as_of=row.as_of.isoformat())] if row else [],
    )


def rows(ctx: Context, gpu: str | None, usd: float | None, top: int) -> Savings:
    """The newest verdict of each candidate and device, largest saving first. Raises Unavailable NO_RUNS, NO_PRICE."""
    rulings = sorted(ctx.store.latest_verdicts(_CONFIRMED, ctx.sees), key=lambda row: row.seq, reverse=True)
    skus = {row.device: _sku(row.device) for row in rulings}
    on_gpu = [row for row in rulings if gpu is None or load.normal(skus[row.device]).startswith(load.normal(gpu))]
    prices = {sku: usd if usd is not None else _listed(ctx, sku) for sku in {skus[row.device] for row in on_gpu}}
    newest: dict[tuple[str, str], tuple[float, VerdictRow]] = {}
    for row in on_gpu:
        sku, seconds = skus[row.device], cost.saved_seconds(row)
        if prices[sku] is not None and seconds is not None:
            newest.setdefault((row.target, sku), (seconds, row))
    unpriced = {sku for sku, hourly in prices.items() if hourly is None}
    if not newest:
        raise _nothing(gpu, set(skus.values()), unpriced)
    largest = heapq.nlargest(top, newest.items(), key=lambda item: item[1][0] * (prices[item[0][1]] or 0.0))
    priced = [cost.saving(row, sku, prices[sku] or 0.0) for (_, sku), (_, row) in largest]
    runs = len({row.run_id for row in on_gpu})
    return Savings(rows=priced, priced=len(newest), unpriced=sorted(unpriced), runs=runs)


def _sku(device: str | None) -> str:
    facts = load.gpu(device)
    return facts.sku if facts else device or "an unknown device"


def _listed(ctx: Context, sku: str) -> float | None:
    try:
        return price(ctx, sku, spot=False, allow_old=False).usd_per_gpu_hour
    except Unavailable:
        return None


def _nothing(gpu: str | None, devices: set[str], unpriced: set[str]) -> Unavailable:
    call = (("aisp_run_benchmarks", {"targets": ["ch07:row_sum"]}),)
    if unpriced:
        names = ", ".join(sorted(unpriced))
        return Unavailable("NO_PRICE", f"No price is listed for {names}.", "Give usd_per_hour, in USD.", ())
    where = f" on {gpu}" if gpu else ""
    have = f" Measured so far: {', '.join(sorted(devices))}." if devices else ""
    return Unavailable("NO_RUNS", f"No judged comparison is stored{where}.{have}", "Measure some pairs first.", call)


def cost_table(ctx: Context, gpu: str | None, usd: float | None, top: int) -> Planned[Savings]:
    """Savings of each measured candidate per million calls."""
    table = rows(ctx, gpu, usd, top)
    best = table.rows
    return Planned[Savings](
        answer=table,
        assumptions=_priced(usd),
        band={f"{row.target} saved_usd_per_million_calls": _interval(row) for row in best if row.saved_high},
        not_modelled=["Other GPUs than the measured one: times are not converted between devices."],
        definitions={"saved": "baseline cost - candidate cost; 0 unless the verdict is faster or slower"},
        check_here="aisp bench run --targets ch07:row_sum",
        sources=_price_sources(ctx, best) if usd is None else [],
    )


def _interval(row: cost.Saving) -> Band:
    return Band(p10=row.saved_low, p90=row.saved_high, unit="USD", basis="the comparison's own 95 % interval")


def _priced(usd: float | None) -> list[str]:
    return [f"USD {usd:g} per hour, given by the caller." if usd is not None else "On-demand list prices per GPU."]


def _price_sources(ctx: Context, savings: Sequence[cost.Saving]) -> list[Source]:
    """The list price that was used for each device."""
    used = (price(ctx, sku, spot=False, allow_old=False) for sku in sorted({row.device for row in savings}))
    return [Source(what=f"{p.provider}: {p.source}", as_of=p.as_of.isoformat()) for p in used]


def roi(ctx: Context, calls_per_day: float, effort_usd: float, usd: float | None, top: int) -> Planned[Roi]:
    """Days until each measured gain has repaid the effort."""
    best = rows(ctx, None, usd, top).rows
    paybacks = [cost.payback(row, calls_per_day, effort_usd) for row in best]
    return Planned[Roi](
        answer=Roi(rows=paybacks, calls_per_day=calls_per_day),
        assumptions=[*_priced(usd), f"Bringing a candidate into use costs USD {effort_usd:g}."],
        band={
            f"{row.target} saved_usd_per_day": Band(p10=row.low, p90=row.high, unit="USD", basis="95 % interval")
            for row in paybacks
            if row.high
        },
        not_modelled=["Gains that were not measured here; combinations of techniques."],
        definitions={"days_to_pay": "effort / saving per day; null where nothing proven is saved"},
        check_here="aisp bench run --targets ch07:row_sum",
        sources=_price_sources(ctx, best) if usd is None else [],
    )


def measured(ctx: Context, facts: GpuFacts | None) -> dict[str, tuple[float, str]]:
    """Target of a technique to the best proven speed-up among its candidates' newest verdicts here, and its run.

    Only what was measured on this GPU counts, or without one on a processor.
    """
    confirmed = _CONFIRMED.model_copy(update={"verdict": Verdict.FASTER.value})
    faster = [
        row
        for row in ctx.store.latest_verdicts(confirmed, ctx.sees)
        if (known.sku if (known := load.gpu(row.device)) else None) == (facts.sku if facts else None)
    ]
    faster.sort(key=lambda row: row.ratio or 0.0, reverse=True)
    targets = [row.target for row in knowledge.techniques() if row.target]
    return {target: best for target in targets if (best := _best(ctx, target, faster)) is not None}


def _best(ctx: Context, target: str, faster: Sequence[VerdictRow]) -> tuple[float, str] | None:
    for row in (row for row in faster if row.target.startswith(target)):
        # A row's name joins pair and candidate: the run tells whether it is this pair's or one with a longer name.
        comparisons = ctx.store.run(Run, row.run_id, ctx.sees).comparisons if row.target != target else []
        if row.target == target or any(c.target == target and c.ratio == row.ratio for c in comparisons):
            return row.ratio or 0.0, row.run_id
    return None


def recommend(
    ctx: Context, goal: str, workload: str, facts: GpuFacts | None, gpus: int, top: int
) -> Planned[Recommendation]:
    """Rank the techniques for a goal. The throughput of training is its speed. facts: None without a GPU."""
    cc = facts.compute_capability if facts else None
    goal = "speed" if (goal, workload) == ("throughput", "training") else goal
    fits, out = techniques.choose(knowledge.techniques(), goal, workload, cc, gpus)
    if not fits:
        raise UsageError("NO_TECHNIQUE", f"No technique for {goal} in {workload} is listed here.", "Try another goal.")
    best = techniques.rank(fits, {} if goal == "memory" else measured(ctx, facts), top)
    unverified = {row.name for row in fits if "effect" in row.unverified}
    return Planned[Recommendation](
        answer=Recommendation(headline=techniques.headline(best, goal), techniques=best, excluded=out),
        assumptions=[f"Compute capability {cc or 'unknown'}, {gpus} GPU(s), {workload}."],
        band={
            a.name: Band(
                p10=a.effect[0],
                p90=a.effect[1],
                unit="x",
                basis=_BASIS_ESTIMATE if a.name in unverified else _BASIS_PUBLISHED,
            )
            for a in best
        },
        not_modelled=["Techniques already in your program; how effects combine."],
        definitions={"effect": "published factor on the goal's figure; below 1 is a price paid"},
        check_here=next((a.measure for a in best if a.measure), "aisp bench verify"),
        sources=_technique_sources([row for a in best for row in fits if row.name == a.name]),
    )


def catalogue(goal: str | None, workload: str | None) -> Planned[Catalogue]:
    """Techniques, filtered."""
    every = knowledge.techniques()
    rows_ = [
        row
        for row in every
        if (goal is None or goal in row.goals) and (workload is None or row.workload in ("any", workload))
    ]
    return Planned[Catalogue](
        answer=Catalogue(techniques=rows_, total=len(every)),
        assumptions=["Effects are those of the sources: lowest and highest published, no band."],
        band={},
        not_modelled=["Your program."],
        definitions={"effect": "published factor on the goal's figure; below 1 is a price paid"},
        check_here="aisp recommend --goal speed",
        sources=[_catalogue_source(rows_)] if rows_ else [],
    )


def _catalogue_source(rows_: Sequence[Technique]) -> Source:
    """One line for all rows, each of which names its own source."""
    estimated = ", ".join(row.name for row in rows_ if row.unverified)
    what = "the source in each row" + (f"; effects that are estimates without one: {estimated}" if estimated else "")
    return Source(what=what, as_of=min(row.checked for row in rows_))


def _technique_sources(rows_: Sequence[Technique]) -> list[Source]:
    return [Source(what=f"{row.name}: {cite(row)}", as_of=row.checked) for row in rows_]
