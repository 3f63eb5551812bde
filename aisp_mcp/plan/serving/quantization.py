"""Compare weight formats by the plan of a server in each of them: memory, speed, accuracy risk."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from aisp_mcp.errors import UsageError
from aisp_mcp.machine.datasheets.load import cite
from aisp_mcp.plan import lookup
from aisp_mcp.plan.data import tables
from aisp_mcp.plan.records import Planned, Source, WeightFormat
from aisp_mcp.plan.savings.techniques import Excluded
from aisp_mcp.plan.serving import choice, deployment, formats, model
from aisp_mcp.plan.serving.deployment import ServingPlan, Wish
from aisp_mcp.records import Record

WORTH = 1.05  # a format is named where it is so many times as fast


class Format(Record):
    """One weight format. The speeds are those of `aisp inference vllm` with it; empty where it does not fit."""

    name: str
    weight_bytes: int
    least_gpus: int | None = Field(description="Least power of two of them that holds weights and one sequence.")
    ready: bool = Field(description="The published checkpoint can be served so; others need a checkpoint of their own.")
    concurrency: int | None = Field(default=None, description="Sequences in flight on all GPUs.")
    tokens_per_s_per_gpu: float | None = None
    tokens_per_s_alone: float | None = Field(default=None, description="Of one request that has all GPUs.")
    risk: str
    source: str


class Formats(Record):
    """Formats that the hardware multiplies natively, and the others with the reason."""

    headline: str
    gpus: int | None = Field(description="Of the speeds: those asked for, else the least that serve the model.")
    chosen: str | None = Field(description="Format of `aisp inference vllm` without --weights; empty if none fits.")
    formats: list[Format]
    excluded: list[Excluded]


def compare(wish: Wish, gpus: int | None) -> Planned[Formats]:
    """Every format on these GPUs, or on the least number that serves the model; bf16 first. Raises as `plan`."""
    rows, out = listed(wish)
    gpus = gpus or _least(rows, ready=True) or _least(rows, ready=False)
    if gpus is not None:
        rows = [_with_speeds(replace(wish, gpus=gpus, weights=row.name), row) for row in rows]
    default = _plan(replace(wish, gpus=gpus)) if gpus else None
    chosen = default.weights if default else None
    text = _headline(wish, rows, chosen, gpus)
    return Planned[Formats](
        answer=Formats(headline=text, gpus=gpus, chosen=chosen, formats=rows, excluded=out),
        assumptions=lookup.first(
            *wish.arch.assumed,
            f"Mean prompt {wish.lengths.prompt:.0f} and output {wish.lengths.output:.0f} tokens; the cache of 8- and "
            "4-bit weights is in fp8 where the GPU has it. Embedding and head stay in 16 bits.",
        ),
        band={},
        not_modelled=lookup.first(
            "Accuracy on your task: risk is what the source reports for its models.",
            "Cost of scaling and dequantising inside kernels.",
        ),
        definitions=deployment.DEFINITIONS,
        check_here="aisp hw tc --dtypes bf16 fp8 int8",
        sources=[
            *lookup.sources(wish.facts, wish.arch),
            *tables.serving_shares().sources,
            *(Source(what=cite(row), as_of=row.checked) for row in tables.engine().formats[1:]),
        ],
    )


def listed(wish: Wish) -> tuple[list[Format], list[Excluded]]:
    """Formats of this GPU without speeds, and those that it has no rate for."""
    rows, out = [], []
    for weights in tables.engine().formats:
        if formats.runs_on(weights, wish.facts):
            rows.append(_row(wish, weights))
        else:
            have = ", ".join(wish.facts.peak)
            because = f"needs a rate for {weights.compute}; {wish.facts.sku} has {have}"
            if weights.compute in wish.facts.peak:
                because = f"needs compute capability {weights.needs} of {weights.vendor or 'either vendor'}"
            out.append(Excluded(name=weights.name, because=because))
    return rows, out


def _row(wish: Wish, weights: WeightFormat) -> Format:
    published = formats.checkpoint_formats(wish.arch)
    served = deployment.serve(wish, weights)
    return Format(
        name=weights.name,
        weight_bytes=model.weight_bytes(wish.arch, weights),
        least_gpus=choice.least(served, wish.lengths, wish.limits, tables.engine(wish.engine)),
        # An engine makes fp8 of 16 bits when it starts.
        ready=weights.name in published if published else not weights.checkpoint,
        risk=weights.risk,
        source=cite(weights),
    )


def _least(rows: list[Format], ready: bool) -> int | None:
    return min((row.least_gpus for row in rows if row.ready is ready and row.least_gpus), default=None)


def _with_speeds(wish: Wish, row: Format) -> Format:
    plan = _plan(wish)
    if plan is None:
        return row
    more = {
        "concurrency": plan.rate.concurrency * plan.rate.replicas,
        "tokens_per_s_per_gpu": plan.rate.tokens_per_s_per_gpu,
        "tokens_per_s_alone": 1 / deployment.alone(wish, plan).tpot_s,
    }
    return row.model_copy(update=more)


def _plan(wish: Wish) -> ServingPlan | None:
    """None where nothing fits, or not as many sequences as were asked for."""
    try:
        return deployment.plan(wish).answer
    except UsageError as error:
        if error.code not in ("DOES_NOT_FIT", "LIMITS_MISSED"):
            raise
    return None


def _headline(wish: Wish, rows: list[Format], chosen: str | None, gpus: int | None) -> str:
    """The format that a plan takes by itself, then what would be faster."""
    where = f"{wish.arch.name} on {f'{gpus} x ' if gpus else ''}{wish.facts.sku}"
    here = [row for row in rows if row.tokens_per_s_per_gpu]
    other = max((row for row in here if not row.ready), key=_speed, default=None)
    now = next((row for row in here if row.name == chosen), None)
    if now is None:
        least = _least(rows, ready=True)
        text = f"{where}: the published weights do not fit"
        text += f"; {least} GPUs would hold them." if least else f", nor on {choice.MOST_GPUS} GPUs."
        return text + (f" A checkpoint in {other.name} would fit: {other.risk}." if other else "")
    text = f"{where}: {now.name}, {now.weight_bytes / model.GIB:.1f} GiB of weights, {_speed(now):,.0f} tokens/s/GPU; "
    text += f"accuracy risk: {now.risk}."
    made = max((row for row in here if row.ready), key=_speed)
    if _speed(made) > WORTH * _speed(now):
        text += f" --weights {made.name} is {_speed(made) / _speed(now):.2g} times as fast: {made.risk}."
    if other and _speed(other) > WORTH * _speed(made):
        text += f" A checkpoint in {other.name} would be {_speed(other) / _speed(now):.2g} times as fast."
    return text


def _speed(row: Format) -> float:
    return row.tokens_per_s_per_gpu or 0.0
