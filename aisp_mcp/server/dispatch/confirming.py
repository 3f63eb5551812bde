"""Calls that need a person's consent, and the answer until they consent."""

from __future__ import annotations

from typing import Any

from aisp_mcp.envelope import Envelope
from aisp_mcp.errors import Refused
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch.envelopes import Stopwatch, failure
from aisp_mcp.server.registry import JobParams, Plan, Tool

CODE = "CONFIRM_FIRST"


def costly(tool: Tool, params: JobParams, plan: Plan, ctx: Context) -> str | None:
    """Cost of the call as a sentence; None if it is low or confirmed."""
    if params.confirm or plan.estimate_s is None:
        return None
    gpus = sum(name.startswith("gpu:") for name in plan.resources)
    if plan.estimate_s * max(1, gpus) < ctx.settings.confirm_device_s:
        return None
    devices = f" and holds {gpus} GPUs" if gpus > 1 else ""
    return f"{tool.name} is expected to take {_duration(plan.estimate_s)}{devices}."


def refused(tool: Tool, raw: dict[str, Any], cost: str, watch: Stopwatch) -> Envelope:
    """The answer if no person can be asked: the cost, and the call that runs it anyway."""
    error = Refused(
        CODE,
        f"{cost} Nothing was started.",
        "Ask the user; if they agree, call again with confirm=true. dry_run=true shows the whole plan.",
        [(tool.name, {**raw, "confirm": True})],
    )
    return failure(tool.name, error, watch).model_copy(update={"confirm": f"{cost} Run it?"})


def declined(unasked: Envelope, ctx: Context) -> Envelope:
    """The answer if the person did not agree."""
    error = Refused("DECLINED", "The user did not agree, and nothing was done.", "Do not call it again unasked.")
    return failure(unasked.tool, error, Stopwatch(ctx))


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"about {seconds:.1g} s" if seconds < 1 else f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} minutes" if seconds < 5400 else f"about {seconds / 3600:.1f} hours"
