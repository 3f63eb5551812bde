"""Planners as forms: the arguments are the address, the answer stands below with its band and its assumptions."""

from __future__ import annotations

from typing import Any

from aisp_mcp.front.dashboard import forms
from aisp_mcp.front.dashboard.asked import Asked
from aisp_mcp.server import registry
from aisp_mcp.server.registry import Effect

PLANNERS = (
    "aisp_inference_vllm", "aisp_inference_kv_cache", "aisp_inference_quantization", "aisp_distributed_plan",
    "aisp_predict_scaling", "aisp_distributed_nccl", "aisp_launch_plan", "aisp_cluster_slurm", "aisp_cost_estimate",
    "aisp_optimize_roi", "aisp_optimize_techniques",
)  # fmt: skip


def build(asked: Asked) -> dict[str, Any]:
    """?tool= with its arguments; without any the form alone."""
    known = [registry.get(name) for name in PLANNERS if name in registry.names()]
    known = [tool for tool in known if tool.effect is Effect.READS]
    tool = next((tool for tool in known if tool.name == asked.word("tool")), known[0])
    given = forms.arguments(tool, dict(asked.query))
    asks = bool(given) or ("tool" in asked.query and not any(field["required"] for field in forms.form_of(tool)))
    answer = asked.tool(tool.name, **given) if asks else None
    return {"tools": known, "tool": tool, "fields": forms.form_of(tool), "given": given, "answer": answer}
