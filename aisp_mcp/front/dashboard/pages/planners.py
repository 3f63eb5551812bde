"""Planners as forms; the arguments are in the address, and the page opens with the answer and its breakdown."""

from __future__ import annotations

from typing import Any

from aisp_mcp.front.dashboard import forms, plans
from aisp_mcp.front.dashboard.request import PageRequest
from aisp_mcp.server import registry
from aisp_mcp.server.registry import Effect

PLANNERS = (
    "aisp_distributed_plan", "aisp_inference_vllm", "aisp_inference_kv_cache", "aisp_inference_quantization",
    "aisp_predict_scaling", "aisp_distributed_nccl", "aisp_launch_plan", "aisp_cluster_slurm", "aisp_cost_estimate",
    "aisp_optimize_roi", "aisp_optimize_techniques",
)  # fmt: skip
# Fields that most calls set; the others are collapsed.
COMMON = ("model", "gpu", "gpus", "nodes", "batch", "seq", "sequence", "goal", "hours", "command")
HIDDEN = ("answer", "assumptions", "band", "not_modelled", "definitions", "check_here", "sources")  # shown separately


def build(request: PageRequest) -> dict[str, Any]:
    """?tool= with its arguments; without arguments only the form."""
    tools = [registry.get(name) for name in PLANNERS if name in registry.names()]
    tools = [tool for tool in tools if tool.effect is Effect.READS]
    tool = next((tool for tool in tools if tool.name == request.word("tool")), tools[0])
    arguments, fields = forms.arguments(tool, dict(request.query)), forms.form_of(tool)
    is_submitted = bool(arguments) or ("tool" in request.query and not any(field["required"] for field in fields))
    answer = request.tool(tool.name, **arguments) if is_submitted else None
    result = (answer.result if answer else None) or {}
    common = [field for field in fields if field["required"] or field["name"] in COMMON]
    return {
        "lead": plans.lead(tool.name, result) if result else tool.summary,
        "drawings": plans.drawings(result),
        "tools": tools,
        "tool": tool,
        "fields": common or fields,
        "further": [field for field in fields if field not in common] if common else [],
        "arguments": arguments,
        "answer": answer,
        "rest": {name: value for name, value in result.items() if name not in HIDDEN},
    }
