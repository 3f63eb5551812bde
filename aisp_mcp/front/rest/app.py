"""The routes under /api, for both web servers, which authenticate requests beforehand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aisp_mcp.front.rest import events, lists, pool, tools
from aisp_mcp.front.rest.answers import data_response, envelope_response
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch.envelopes import Stopwatch, failure
from aisp_mcp.settings import PoolSettings

ContextOf = Callable[[Request], Context]
Read = Callable[[Request, Context], Any]

READS: dict[str, Read] = {
    "/benchmarks": lists.benchmarks,
    "/summary": lists.summary,
    "/analysis/leaderboards": lists.boards,
    "/analysis/tradeoffs": lists.tradeoffs,
    "/history": lists.history,
    "/runs": lists.runs,
    "/runs/{id}": lists.run,
    "/jobs": lists.jobs,
    "/jobs/{id}": lists.job,
    "/jobs/{id}/log": lists.job_log,
    "/profiles": lists.profiles,
}


def routes(ctx: Context, context_of: ContextOf, writes: bool = True) -> list[Route]:
    """Return the routes to mount at /api.

    context_of: the context of a request's principal. writes: tools that do more than read may be called.
    """
    feed = events.EventFeed(ctx)

    async def listed(request: Request) -> Response:
        caller_ctx = context_of(request)
        return await data_response(request, caller_ctx, "tools", lambda: {"tools": tools.listed(caller_ctx)})

    async def document(request: Request) -> Response:
        summaries = {f"/api{path}": (read.__doc__ or "").partition("\n")[0] for path, read in READS.items()}
        summaries |= {f"/api/analysis/{name}": f"The result of {tool}." for name, tool in tools.ANALYSES.items()}
        summaries |= {
            "/api/tools": "All tools with their schemas.",
            "/api/events": "Jobs as they change (server-sent events).",
        }
        return tools.openapi(request, context_of(request), summaries)

    async def unknown(request: Request) -> Response:
        error = tools.refuse_unknown(request.url.path)
        caller_ctx = context_of(request)
        return envelope_response(request, failure("rest", error, Stopwatch(caller_ctx)), caller_ctx)

    return [
        *(Route(path, _with(_read, context_of, read=read), methods=["GET"]) for path, read in READS.items()),
        Route("/openapi.json", document, methods=["GET"]),
        Route("/tools", listed, methods=["GET"]),
        Route("/tools/{name}", _with(tools.call, context_of, writes=writes), methods=["POST"]),
        Route("/analysis/{name}", _with(tools.analysis, context_of), methods=["GET"]),
        *(_judge(context_of) if PoolSettings.from_env().workers else ()),
        Route("/events", _with(events.stream, context_of, feed=feed), methods=["GET"]),
        Route("/{rest:path}", unknown, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
    ]


def _judge(context_of: ContextOf) -> list[Route]:
    """The routes of a judge server."""
    return [
        Route("/judge", _with(pool.submit, context_of), methods=["POST"]),
        Route("/judge", _with(pool.state, context_of), methods=["GET"]),
        Route("/judge/{id}", _with(pool.ticket, context_of), methods=["GET"]),
    ]


async def _read(request: Request, ctx: Context, read: Read) -> Response:
    return await data_response(request, ctx, read.__name__, lambda: read(request, ctx))


def _with(
    endpoint: Callable[..., Awaitable[Response]], context_of: ContextOf, **options: Any
) -> Callable[[Request], Awaitable[Response]]:
    """Wrap an endpoint in the signature that Starlette expects."""

    async def call(request: Request) -> Response:
        return await endpoint(request, context_of(request), **options)

    return call
