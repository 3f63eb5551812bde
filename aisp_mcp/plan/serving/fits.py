"""Answer whether a model fits on GPUs, how fast it would be, and how many GPUs it needs."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.errors import UsageError
from aisp_mcp.plan import lookup
from aisp_mcp.plan.data import tables as knowledge
from aisp_mcp.plan.records import Band, Planned
from aisp_mcp.plan.serving import deployment, formats, model, quantization
from aisp_mcp.plan.serving.deployment import ServingPlan, Wish
from aisp_mcp.plan.serving.model import GIB
from aisp_mcp.records import Record

RATE = "tokens_per_s"


class FormatNeed(Record):
    """One weight format: the least power of two of these GPUs that holds it with one sequence."""

    name: str
    weight_bytes: int
    gpus: int | None = Field(description="Empty above 64.")
    ready: bool = Field(description="The published checkpoint can be served so; others need a checkpoint of their own.")
    risk: str


class FitAnswer(Record):
    """The sentence, then its numbers; the speeds are empty where the model does not fit."""

    headline: str
    fits: bool
    weights: str | None = Field(default=None, description="Format that was chosen.")
    gpus_needed: int | None = Field(default=None, description="Least power of two of these GPUs; empty above 64.")
    sequences: int | None = Field(default=None, description="Of prompt and output, at once.")
    tokens_per_s: float | None = Field(default=None, description="Output tokens per second of all GPUs together.")
    tokens_per_s_alone: float | None = Field(default=None, description="The same of one request that has them alone.")
    command: str | None = None
    formats: list[FormatNeed]


def fit(wish: Wish) -> Planned[FitAnswer]:
    """The fastest layout on these GPUs, or the number of GPUs and the formats that would do.

    Raises UsageError CONTEXT_LIMIT, NO_FORMAT, Unavailable NO_PEAK.
    """
    needs = _needs(wish)
    least = min((need.gpus for need in needs if need.ready and need.gpus), default=None)
    plan = _planned(wish)
    if plan is None:
        return Planned[FitAnswer](
            answer=FitAnswer(headline=_refusal(wish, needs), fits=False, gpus_needed=least, formats=needs),
            assumptions=[
                *wish.arch.assumed,
                f"Sequences of {wish.lengths.longest:,} tokens; embedding and head stay in 16 bits.",
            ],
            band={},
            not_modelled=["Accuracy on your task: risk is what the source reports for its models."],
            definitions={},
            check_here="aisp hw tc --dtypes bf16 fp8 int8",
            sources=lookup.sources(wish.facts, wish.arch),
        )
    served, rate = plan.answer, plan.answer.rate
    alone, band = 1 / deployment.alone(wish, served).tpot_s, plan.band[f"rate.{RATE}"]
    answer = FitAnswer(
        headline=_headline(wish, served, band, alone, least),
        fits=True,
        weights=served.weights,
        gpus_needed=least,
        sequences=rate.concurrency * rate.replicas,
        tokens_per_s=rate.tokens_per_s,
        tokens_per_s_alone=alone,
        command=served.command,
        formats=needs,
    )
    return Planned[FitAnswer](
        answer=answer,
        assumptions=plan.assumptions,
        band={RATE: band},
        not_modelled=plan.not_modelled,
        definitions={RATE: "output tokens; the time to prefill the prompts is included"},
        check_here=plan.check_here,
        sources=plan.sources,
    )


def _planned(wish: Wish) -> Planned[ServingPlan] | None:
    try:
        return deployment.plan(wish)
    except UsageError as error:
        if error.code != "DOES_NOT_FIT":
            raise
    return None


def _needs(wish: Wish) -> list[FormatNeed]:
    return [
        FormatNeed(name=row.name, weight_bytes=row.weight_bytes, gpus=row.least_gpus, ready=row.ready, risk=row.risk)
        for row in quantization.listed(wish)[0]
        if wish.weights is None
        or {row.name, row.name.removesuffix("-w16")} & {wish.weights, *formats.FAMILIES.get(wish.weights, ())}
    ]


def _headline(wish: Wish, served: ServingPlan, band: Band, alone: float, least: int | None) -> str:
    rate = served.rate
    fewer = f" {least} would hold it." if least is not None and least < wish.gpus else ""
    return (
        f"Yes: {wish.arch.name} fits on {wish.gpus} x {wish.facts.sku} in {served.weights}, with room for "
        f"{rate.concurrency * rate.replicas:,} requests of {wish.lengths.longest:,} tokens at once. Predicted: "
        f"{rate.tokens_per_s:,.0f} output tokens/s in all ({band.p10:,.0f}-{band.p90:,.0f}), {alone:,.0f} for a "
        f"single request.{fewer}"
    )


def _refusal(wish: Wish, needs: list[FormatNeed]) -> str:
    usable = wish.gpus * model.memory_bytes(wish.facts) * knowledge.engine().utilization / GIB
    text = f"No: {wish.arch.name} does not fit on {wish.gpus} x {wish.facts.sku}, of which {usable:.0f} GiB are usable"
    if ready := [need for need in needs if need.ready]:
        best = min(ready, key=lambda need: need.weight_bytes)
        text += f"; its weights take {best.weight_bytes / GIB:.0f} GiB in {best.name}, and "
        text += f"{best.gpus} GPUs hold them" if best.gpus else "64 GPUs do not hold them"
    if others := [need for need in needs if not need.ready and need.gpus and need.gpus <= wish.gpus]:
        best = max(others, key=lambda need: need.weight_bytes)
        text += f". A checkpoint in {best.name} ({best.weight_bytes / GIB:.0f} GiB) would fit here: {best.risk}"
    return text + "."
