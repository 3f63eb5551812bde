"""Figures that an own run measured, beside the plan of the same thing."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from pydantic import Field

from aisp_mcp.errors import NotFound, UsageError
from aisp_mcp.plan import own
from aisp_mcp.records import Record
from aisp_mcp.runs.endpoint.records import ServeBench
from aisp_mcp.runs.imports.records import Figure
from aisp_mcp.server.context import Context

METRICS = {"tpot": "rate.tpot_s", "ttft": "rate.ttft_s"}
STATISTICS = ("mean", "median")  # the planner's figures are means; a median is taken where a file has no mean


class Fitted(Record):
    """One figure: predicted without the run, and measured in it."""

    figure: str
    predicted: float
    measured: float
    measured_over_predicted: float
    inside: bool = Field(description="The measured value lies in the band of the uncalibrated plan.")


class Calibration(Record):
    """Figures that the run corrects. Plans of this model and GPU show the corrected figures beside their own."""

    sentence: str
    run: str
    model: str
    gpu: str
    fitted: list[Fitted]
    notes: list[str]


def serving(ctx: Context, run: str) -> tuple[dict[str, float], dict[str, int]]:
    """Seconds by figure, and the load as far as it is known: of a serve-bench job, an import, or a result file."""
    from aisp_mcp.runs.imports import reading

    job = _job(ctx, run)
    if job is not None:
        return _of_job(job)
    figures = reading.find(ctx, run).contents.figures
    measured = {name: value for metric, name in METRICS.items() if (value := _stated(figures, metric)) is not None}
    if not measured:
        raise UsageError(
            "NO_SERVING_FIGURES",
            f"{run[:200]} has no time per token and no time to first token.",
            "Import a result of vllm bench serve, SGLang, GuideLLM or AIPerf, or run aisp serve-bench.",
        )
    settings = next((figure.parameters for figure in figures if figure.parameters), {})
    names = {"concurrency": ("max_concurrency", "conc"), "prompt": ("random_input_len", "isl"),
             "output": ("random_output_len", "osl")}  # fmt: skip
    known = {name: settings[key] for name, keys in names.items() for key in keys if settings.get(key, "").isdigit()}
    return measured, {name: int(value) for name, value in known.items()}


def _job(ctx: Context, run: str) -> ServeBench | None:
    if not (ctx.settings.home / "aisp.db").exists():
        return None
    try:
        job = ctx.store.job(run)
    except NotFound:
        return None
    if job.tool != "aisp_serve_bench" or not job.envelope:
        raise UsageError("NOT_A_SERVING_RUN", f"Job {run} measured no server.", "Give a job of aisp serve-bench.")
    return ServeBench.model_validate(job.envelope["result"])


def _of_job(job: ServeBench) -> tuple[dict[str, float], dict[str, int]]:
    measured = {
        METRICS[row.name]: row.value * (1e-3 if row.unit == "ms" else 1.0)
        for row in job.servers[0].metrics
        if row.name in METRICS
    }
    known = {"concurrency": job.load.concurrency, "output": job.load.output_tokens}
    return measured, {name: value for name, value in known.items() if value is not None}


def _stated(figures: Sequence[Figure], metric: str) -> float | None:
    """The mean, else the median, of a metric; of requests it may be named without a statistic."""
    for statistic in STATISTICS:
        for figure in figures:
            named = figure.metric in (metric, f"{statistic} {metric}")
            if named and figure.statistic == statistic and figure.failed is None:
                return figure.value
    return None


def step_seconds(run: str) -> float:
    """Median step of a profile."""
    from aisp_mcp.profile.load import load

    timeline = load(run).timeline
    steps = timeline.steps if timeline else []
    if not steps:
        raise UsageError(
            "NO_STEPS",
            f"{run[:200]} marks no steps.",
            "Record it with torch.profiler's step(), NVTX ranges named step, or give step_s.",
        )
    return median(step.duration_ns for step in steps) * 1e-9


def fit(planned: Any, measured: dict[str, float]) -> list[Fitted]:
    """The plan's figures beside the measured ones."""
    rows = []
    for figure, seconds in measured.items():
        value: Any = planned.answer
        for part in figure.split("."):
            value = getattr(value, part, None)
        if value is None:
            continue
        band = planned.band[figure]
        rows.append(
            Fitted(
                figure=figure,
                predicted=value,
                measured=seconds,
                measured_over_predicted=seconds / value,
                inside=band.p10 <= seconds <= band.p90,
            )
        )
    return rows


def remembered(
    ctx: Context, run: str, model: str, gpu: str, rows: list[Fitted], in_flight: int | None, stack: str | None = None
) -> Calibration:
    """Keep the ratios, and say what they change."""
    name = own.of_stack(model, stack) if stack else model
    for row in rows:
        detail = {"run": run, "in_flight": in_flight, "measured": row.measured, "predicted": row.predicted}
        own.remember(ctx, row.figure, name, gpu, row.measured_over_predicted, detail)
    parts = [
        f"{row.figure}: measured {row.measured:.4g} s, planned {row.predicted:.4g} s "
        f"({row.measured_over_predicted:.2f} times, {'inside' if row.inside else 'outside'} the band)"
        for row in rows
    ]
    near = (
        f" with {in_flight / own.MOST_APART:g} to {in_flight * own.MOST_APART:g} sequences in flight"
        if in_flight
        else ""
    )
    return Calibration(
        sentence=f"{'; '.join(parts)}. Plans of {name} on {gpu}{near} now show corrected figures beside their own.",
        run=run,
        model=model,
        gpu=gpu,
        fitted=rows,
        notes=[
            "Other models keep the general calibration: published runs show that a run of another model misleads.",
            "The layout, engine and load that you describe must be those of the run.",
        ],
    )
