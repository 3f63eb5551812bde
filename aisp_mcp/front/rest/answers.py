"""Responses: JSON with an ETag, envelope errors as HTTP status codes, selected fields, paging."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response

from aisp_mcp.envelope import Envelope, Status
from aisp_mcp.errors import AispError, UsageError
from aisp_mcp.server import dispatch
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch.envelopes import Stopwatch, failure

JSON_HEADERS = {"Content-Type": "application/json", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
# By class of error (errors.py). 500 is only for bugs.
STATUS = {
    "UsageError": 422,
    "UnknownTool": 404,
    "NotFound": 404,
    "Unavailable": 503,
    "Refused": 409,
    "StoreError": 503,
    "ProcessError": 400,
    "BenchmarkError": 400,
}


def status_of(envelope: Envelope) -> int:
    """Return 200, 202 for a ticket, or the status of the error."""
    if envelope.error is not None:
        return 500 if envelope.error.code == "INTERNAL" else STATUS.get(envelope.error.kind, 400)
    return 202 if envelope.status in (Status.QUEUED, Status.RUNNING) else 200


def envelope_response(request: Request, envelope: Envelope, ctx: Context) -> Response:
    """Return a tool's answer, shortened as over MCP."""
    shortened = dispatch.shorten(dispatch.reachable(envelope, ctx.tools), ctx.settings, ctx.principal)
    return json_response(request, dispatch.to_data(shortened), status_of(envelope))


def json_response(request: Request, data: Any, status: int = 200) -> Response:
    """Return JSON with an ETag, or 304 without a body if the client has it already."""
    body = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {**JSON_HEADERS, "ETag": tag}
    if status == 200 and request.method in ("GET", "HEAD"):
        headers["Cache-Control"] = "private, no-cache"
        if tag in [value.strip() for value in request.headers.get("if-none-match", "").split(",")]:
            return Response(status_code=304, headers=headers)
    return Response(body, status, headers)


async def data_response(request: Request, ctx: Context, name: str, work: Callable[[], Any]) -> Response:
    """Return the data of work(), run in a thread, as JSON; an AispError becomes an envelope with its status."""
    try:
        data = await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
        return json_response(request, data)
    except AispError as error:
        envelope = failure(name, error, Stopwatch(ctx))
        return json_response(request, dispatch.to_data(envelope), status_of(envelope))


def select_fields(rows: list[dict[str, Any]], fields: str | None) -> list[dict[str, Any]]:
    """Return rows with only the comma-separated fields, or all of them. Raises UsageError UNKNOWN_FIELD."""
    if not fields:
        return rows
    names = [name.strip() for name in fields.split(",") if name.strip()]
    unknown = [name for name in names if rows and name not in rows[0]]
    if unknown:
        raise UsageError("UNKNOWN_FIELD", f"There is no field '{unknown[0][:60]}'.", f"Fields: {', '.join(rows[0])}.")
    return [{name: row[name] for name in names} for row in rows]


def page_of(request: Request, max_limit: int, default: int) -> tuple[int, int | None]:
    """Return (limit, cursor) of the query string. Raises UsageError BAD_PAGE."""
    limit, cursor = request.query_params.get("limit", str(default)), request.query_params.get("cursor")
    if not limit.isdecimal() or not 1 <= int(limit) <= max_limit or (cursor is not None and not cursor.isdecimal()):
        raise UsageError("BAD_PAGE", f"limit is 1 to {max_limit}, cursor is the previous page's next_cursor.")
    return int(limit), None if cursor is None else min(int(cursor), 2**62)
