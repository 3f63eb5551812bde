"""Calibrate the planners on one own run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from aisp_mcp.plan.records import Count, Gpus, Planned, Positive, Size, Tokens
from aisp_mcp.plan.serving.deployment import ServingPlan
from aisp_mcp.plan.training.distributed import DistributedPlan
from aisp_mcp.plan.training.tools import StackName
from aisp_mcp.records import Params
from aisp_mcp.runs.calibration.fitting import Calibration
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import WRITES, S, tool


class CalibrateParams(Params):
    source: str | None = Field(default=None, alias="from")
    model: str
    gpu: str | None = None
    gpus: Gpus = 1
    tensor: Size | None = None
    weights: str | None = None
    prompt: Tokens | None = None
    output: Tokens | None = None
    concurrency: Count | None = None
    batch: Size | None = None  # of a training step, as the rest
    seq: Size = 4096
    precision: Literal["mixed", "fp8", "fp4"] | None = None
    stack: StackName | None = None
    step_s: Positive | None = None


@tool(cli="plan calibrate", effect=WRITES, cost=S, next=("aisp_inference_vllm", "aisp_distributed_plan"))
def aisp_plan_calibrate(p: CalibrateParams, ctx: Context) -> Calibration:
    """Fit planners to your run (job, import, file, profile); its model's plans show both."""
    from aisp_mcp.errors import UsageError
    from aisp_mcp.plan import lookup
    from aisp_mcp.runs.calibration import fitting

    facts = lookup.gpu(p.gpu)
    run = p.source or ("step_s" if p.step_s and p.batch else None)
    if run is None:
        raise UsageError("NO_RUN", "No run is named.", "Give from=RUN, or batch and step_s of a training step.")
    if p.batch is None:
        measured, load = fitting.serving(ctx, run)
        asked = p.model_dump(include={"prompt", "output", "concurrency"}, exclude_none=True)
        load |= asked
        rows = fitting.fit(_server(p, ctx, load), measured)
        return fitting.remembered(ctx, run, p.model, facts.sku, rows, load.get("concurrency"))
    seconds = p.step_s or fitting.step_seconds(run)
    planned = _trainer(p)
    rows = fitting.fit(planned, {"best.step.total_s": seconds})
    return fitting.remembered(ctx, run, p.model, facts.sku, rows, None, planned.answer.best.stack)


def _server(p: CalibrateParams, ctx: Context, load: dict[str, int]) -> Planned[ServingPlan]:
    from aisp_mcp.plan.serving import deployment, wishes

    names = {"model", "gpu", "gpus", "tensor", "weights"}
    chosen = p.model_dump(include=names, exclude_none=True) | load
    return deployment.plan(wishes.wish(wishes.VllmParams(**chosen), ctx))


def _trainer(p: CalibrateParams) -> Planned[DistributedPlan]:
    from aisp_mcp.plan.training import tools

    names = {"model", "gpu", "gpus", "tensor", "precision", "batch", "seq", "stack"}
    return tools.planned(tools.DistributedParams(**p.model_dump(include=names, exclude_none=True)))
