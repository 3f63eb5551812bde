"""Analyses by path: each runs a tool with the arguments of the query string."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from aisp_mcp.errors import AispError
from aisp_mcp.front.cli.arguments import convert
from aisp_mcp.front.rest.answers import envelope_response
from aisp_mcp.front.rest.tools import refuse_unknown, run
from aisp_mcp.server import dispatch, registry
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch.envelopes import Stopwatch, failure

TOOLS = {
    "pareto": "aisp_analyze_pareto",
    "whatif": "aisp_analyze_whatif",
    "stacking": "aisp_analyze_stacking",
    "power": "aisp_analyze_energy",
    "cost": "aisp_bench_cost",
    "scaling": "aisp_analyze_scaling",
    "recommendations": "aisp_recommend",
}


async def answer(request: Request, ctx: Context) -> Response:
    """GET /api/analysis/{name}?argument=value."""
    name = request.path_params["name"]
    tool_name = TOOLS.get(name, "")
    try:
        if tool_name not in registry.names():
            raise refuse_unknown(request.url.path)
        tool = dispatch.offered(tool_name, ctx)
    except AispError as error:
        return envelope_response(request, failure(name[:80], error, Stopwatch(ctx)), ctx)
    schema = dispatch.input_schema(tool).get("properties", {})
    arguments: dict[str, Any] = {}
    for key in request.query_params:
        values = request.query_params.getlist(key)
        arguments[key] = convert(values if len(values) > 1 else values[0], schema.get(key, {}))
    return envelope_response(request, await run(tool.name, arguments, ctx), ctx)
