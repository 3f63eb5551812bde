"""The flame graph of a stored profile as a separate page with its own security policy, and the profile's file."""

from __future__ import annotations

from functools import lru_cache, partial
from pathlib import Path

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response

from aisp_mcp.errors import AispError
from aisp_mcp.front.dashboard.pages.profiles import stored
from aisp_mcp.server.context import Context

# The sandboxed page has no origin, so its inline script cannot reach the dashboard.
HEADERS = {
    "Content-Security-Policy": "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
}


async def flame(request: Request, ctx: Context) -> Response:
    """GET /flame?id=JOB; with &before=JOB the difference of both profiles."""
    ids = [request.query_params.get(name, "") for name in ("id", "before")]
    try:
        text = await anyio.to_thread.run_sync(partial(page_of, ctx, *ids), abandon_on_cancel=True)
    except AispError as error:
        return PlainTextResponse(f"{error.code}: {error.message}\n", 404)
    return HTMLResponse(text, headers=HEADERS)


async def trace(request: Request, ctx: Context) -> Response:
    """GET /trace?id=JOB: a profile's file, for a viewer in this browser."""
    try:
        path = stored(ctx, request.query_params.get("id", "")).path
    except AispError as error:
        return PlainTextResponse(f"{error.code}: {error.message}\n", 404)
    return FileResponse(path, media_type="application/octet-stream", filename=path.name)


def page_of(ctx: Context, job_id: str, before: str = "") -> str:
    """Return the page. Raises NotFound, and UsageError for a profile without stacks."""
    return _render(stored(ctx, job_id).path, stored(ctx, before).path if before else None)


@lru_cache(maxsize=16)
def _render(path: Path, earlier: Path | None) -> str:
    # Importing the readers of traces would slow down the start of the server.
    from aisp_mcp.profile.pictures import flame as stacks
    from aisp_mcp.profile.pictures import flame_page

    if earlier is None:
        profile_stacks, unit = stacks.stacks(path)
        return flame_page.to_html(profile_stacks, unit, path.name)
    before, after = stacks.pair(earlier, path)
    return flame_page.to_html(after.stacks, after.unit, path.name, before.stacks, after.per)
