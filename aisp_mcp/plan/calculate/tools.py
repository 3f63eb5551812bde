"""One calculator for the formulas of training, serving and communication."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from aisp_mcp.plan.calculate.formulas import Calculation
from aisp_mcp.plan.records import Planned
from aisp_mcp.records import Params
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import MS, READS, tool


class CalculateParams(Params):
    question: Literal[
        "training-flops", "call-flops", "mfu", "duration", "gemm", "attention", "all-reduce", "all-gather",
        "all-to-all", "speculative", "amdahl", "gustafson", "chinchilla", "parameters", "states",
        "activations", "bubble", "decode", "broadcast", "lora", "checkpoint",
    ]  # fmt: skip
    values: list[str] = Field(default_factory=list, max_length=32, description="Such as m=4096.")
    model: str | None = None
    gpu: str | None = None
    dtype: Literal["fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8"] = "bf16"


@tool(cli="calculate", effect=READS, cost=MS, next=("aisp_distributed_plan", "aisp_cost_estimate"))
def aisp_calculate(p: CalculateParams, ctx: Context) -> Planned[Calculation]:
    """Evaluate formulas: FLOPs, MFU, duration, roofline, collectives, speculation, scaling laws."""
    from aisp_mcp.plan.calculate import formulas

    return formulas.answer(p.question, p.values, p.model, p.gpu, p.dtype)
