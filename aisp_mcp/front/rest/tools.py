"""Tools over REST: the list, a call, analyses by path, and the OpenAPI document."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response

from aisp_mcp import __version__
from aisp_mcp.envelope import Envelope
from aisp_mcp.errors import AispError, Refused, UnknownTool, UsageError
from aisp_mcp.front.cli.arguments import convert
from aisp_mcp.front.following import follow
from aisp_mcp.front.mcp.schemas import describe
from aisp_mcp.front.rest.answers import envelope_response, json_response
from aisp_mcp.server import dispatch, registry
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch.envelopes import Stopwatch, failure
from aisp_mcp.server.registry import Effect, Tool

MAX_BODY = 1 << 20
ENVELOPE = {"$ref": "#/components/schemas/Envelope"}
_EXECUTOR = {"name": "executor", "in": "query", "description": "What runs the job.", "schema": {"type": "string"}}


def listed(ctx: Context) -> list[dict[str, Any]]:
    """Return every tool this caller may use, with its schema."""
    tools = [tool for tool in registry.tools() if ctx.tools is None or tool.name in ctx.tools]
    return [{**describe(tool), "family": tool.family, "effect": tool.effect, "job": bool(tool.job)} for tool in tools]


async def call(request: Request, ctx: Context, writes: bool) -> Response:
    """POST /api/tools/{name} with the arguments as a JSON object; wait_s and tickets work as over MCP.

    ?executor=NAME runs the job there, as --executor does on the command line.
    writes: tools that do more than read are allowed.
    """
    name = request.path_params["name"]
    try:
        tool = dispatch.offered(name, ctx)
        if not writes and tool.effect is not Effect.READS:
            raise Refused("READ_ONLY", f"This server is read-only; {tool.name} is not.", "Start it with --allow-run.")
        arguments = await _arguments(request)
        own = _placed(request, ctx)
    except AispError as error:
        return envelope_response(request, failure(str(name)[:80], error, Stopwatch(ctx)), ctx)
    return envelope_response(request, await run(tool.name, arguments, own), ctx)


def _placed(request: Request, ctx: Context) -> Context:
    """The context of a call that names the executor of its job: ?executor=. Raises UsageError BAD_EXECUTOR."""
    executor = request.query_params.get("executor")
    if executor is None:
        return ctx
    if executor == "inprocess":
        raise UsageError("BAD_EXECUTOR", "A job cannot run inside this server.", "Omit executor, or name another one.")
    return ctx.under(ctx.principal, {**ctx.job_env, "AISP_EXECUTOR": executor})


async def run(name: str, arguments: dict[str, Any], ctx: Context) -> Envelope:
    """Run a tool; wait for a pending answer without a thread, up to the caller's time limit."""
    answer = await anyio.to_thread.run_sync(partial(dispatch.start, name, arguments, ctx), abandon_on_cancel=True)
    if isinstance(answer, Envelope):
        return answer
    return await follow(name, ctx, answer)


async def _arguments(request: Request) -> dict[str, Any]:
    """Return the body as an object; an empty body means no arguments. Raises UsageError BAD_BODY."""
    if request.headers.get("content-type", "application/json").partition(";")[0].strip() != "application/json":
        raise UsageError("BAD_BODY", "The body must be JSON.", "Content-Type: application/json")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise UsageError("BAD_BODY", f"The body has more than {MAX_BODY} bytes.")
    try:
        arguments = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise UsageError("BAD_BODY", "The body is not JSON.", 'Example: {"targets": ["ch07:row_sum"]}') from None
    if not isinstance(arguments, dict):
        raise UsageError("BAD_BODY", "The body must be a JSON object of argument names and values.")
    return arguments


def openapi(request: Request, ctx: Context, reads: dict[str, str]) -> Response:
    """Return an OpenAPI 3.1 document of the registry. reads: summaries of the other paths."""
    error = {"description": "The envelope with status error.", "content": _json(ENVELOPE)}
    schema = Envelope.model_json_schema(ref_template="#/components/schemas/{model}")
    definitions = schema.pop("$defs", {})
    paths: dict[str, Any] = {
        path: {
            "get": {"summary": summary, "parameters": _parameters(path), "responses": {"200": _ok(), "default": error}}
        }
        for path, summary in reads.items()
    }
    for tool in registry.tools():
        if ctx.tools is None or tool.name in ctx.tools:
            paths[f"/api/tools/{tool.name}"] = {"post": _operation(tool, error)}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "aisp", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {"Envelope": schema, **definitions},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"bearer": []}],
    }
    return json_response(request, document)


def _operation(tool: Tool, error: dict[str, Any]) -> dict[str, Any]:
    envelope = _json(ENVELOPE)
    return {
        "operationId": tool.name,
        "summary": tool.summary,
        "tags": [tool.family],
        **({"parameters": [_EXECUTOR]} if tool.job else {}),
        "requestBody": {"content": _json(dispatch.input_schema(tool))},
        "responses": {
            "200": {"description": "The envelope with the result.", "content": envelope},
            "202": {"description": "A ticket: the job is still running.", "content": envelope},
            "default": error,
        },
    }


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _ok() -> dict[str, Any]:
    return {"description": "The answer.", "content": _json({"type": "object"})}


def _parameters(path: str) -> list[dict[str, Any]]:
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def refuse_unknown(name: str) -> UnknownTool:
    """Return the error for a path that is not an endpoint."""
    return UnknownTool("UNKNOWN_PATH", f"There is nothing at '{name[:80]}'.", "GET /api/openapi.json lists all paths.")


ANALYSES = {
    "pareto": "aisp_analyze_pareto",
    "whatif": "aisp_analyze_whatif",
    "stacking": "aisp_analyze_stacking",
    "power": "aisp_analyze_energy",
    "cost": "aisp_bench_cost",
    "scaling": "aisp_analyze_scaling",
    "recommendations": "aisp_recommend",
}


async def analysis(request: Request, ctx: Context) -> Response:
    """GET /api/analysis/{name}?argument=value."""
    name = request.path_params["name"]
    tool_name = ANALYSES.get(name, "")
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
