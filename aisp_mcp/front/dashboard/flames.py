"""A stored profile's flame graph as a page of its own, under a policy of its own, and its file as it is."""

from __future__ import annotations

from functools import lru_cache, partial
from pathlib import Path

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response

from aisp_mcp.errors import AispError
from aisp_mcp.front.dashboard.pages.profiles import stored
from aisp_mcp.server.context import Context

# The page allows its own script by its hash; in a sandbox it is of no origin, and sees nothing of ours.
HEADERS = {
    "Content-Security-Policy": "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
}


async def flame(request: Request, ctx: Context) -> Response:
    """GET /flame?id=JOB, with &before=JOB as a difference."""
    ids = [request.query_params.get(name, "") for name in ("id", "before")]
    try:
        text = await anyio.to_thread.run_sync(partial(page_of, ctx, *ids), abandon_on_cancel=True)
    except AispError as error:
        return PlainTextResponse(f"{error.code}: {error.message}\n", 404)
    return HTMLResponse(text, headers=HEADERS)


async def trace(request: Request, ctx: Context) -> Response:
    """GET /trace?id=JOB: the file of a profile, for a viewer in this browser."""
    try:
        path = stored(ctx, request.query_params.get("id", "")).path
    except AispError as error:
        return PlainTextResponse(f"{error.code}: {error.message}\n", 404)
    return FileResponse(path, media_type="application/octet-stream", filename=path.name)


def page_of(ctx: Context, job_id: str, before: str = "") -> str:
    """The page. Raises NotFound, and UsageError for a profile without stacks."""
    after, earlier = stored(ctx, job_id).path, stored(ctx, before).path if before else None
    return _made(after, earlier)


@lru_cache(maxsize=16)
def _made(path: Path, earlier: Path | None) -> str:
    # Readers of traces cost the start of a server that may never be asked for one.
    from aisp_mcp.profile.pictures import flame as stacks
    from aisp_mcp.profile.pictures import flame_page

    if earlier is None:
        found = stacks.stacks(path)
        return flame_page.to_html(found[0], found[1], path.name)
    one, two = stacks.pair(earlier, path)
    return flame_page.to_html(two.stacks, two.unit, path.name, one.stacks, two.per)
