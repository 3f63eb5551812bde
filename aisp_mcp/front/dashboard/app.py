"""The web application: pages at /, REST at /api, style and script at /static."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib.resources import files
from typing import Any

import anyio.to_thread
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route, Router

from aisp_mcp.front.dashboard import forms, site
from aisp_mcp.front.dashboard.access import Access, Guard
from aisp_mcp.front.dashboard.flames import flame, trace
from aisp_mcp.front.dashboard.request import THEMES
from aisp_mcp.front.dashboard.responses import not_found, page_request, page_response, quote_cookie, sign_in
from aisp_mcp.front.http.names import NameCheck
from aisp_mcp.front.rest import app as rest
from aisp_mcp.server.charts import drawing
from aisp_mcp.server.context import Context

STATIC = {"app.css": "text/css", "app.js": "text/javascript"}
DAY_S = 86_400


def build_app(ctx: Context, access: Access, hosts: Sequence[str], may_run: bool) -> Starlette:
    """Build the ASGI application. hosts: allowed Host headers. may_run: forms may start and cancel jobs."""
    routes = [Route(f"/{name}", _page(page, ctx, access, may_run)) for name, page in site.PAGES.items()]
    return Starlette(
        routes=[
            Route("/", _page(site.PAGES["overview"], ctx, access, may_run)),
            *routes,
            Route("/flame", partial(flame, ctx=ctx)),
            Route("/trace", partial(trace, ctx=ctx)),
            Route("/login", partial(_login, access=access)),
            Route("/static/{name}", _static),
            Route("/settings", partial(_save_settings, access=access), methods=["POST"]),
            *forms.routes(ctx, access, may_run),
            Mount("/api", Router(rest.routes(ctx, lambda _: ctx, writes=may_run))),
        ],
        exception_handlers={404: partial(_not_found, ctx=ctx, may_run=may_run)},
        middleware=[
            Middleware(NameCheck, hosts=hosts, origins=[f"http://{host}" for host in hosts]),
            Middleware(Guard, access=access),
        ],
    )


def _page(page: site.SitePage, ctx: Context, access: Access, may_run: bool) -> Callable[..., Any]:
    async def answer(request: Request) -> Response:
        work = partial(page_response, page, page_request(request, ctx, may_run), access.csrf)
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)

    return answer


async def _not_found(request: Request, _: Exception, ctx: Context, may_run: bool) -> Response:
    work = partial(not_found, page_request(request, ctx, may_run), request.url.path)
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)


async def _login(request: Request, access: Access) -> Response:
    """GET /login?token=…: the link that the command printed."""
    session = access.log_in(request.query_params.get("token", ""))
    if session is None:
        return sign_in("This link is incomplete, or its dashboard has ended.")
    response = RedirectResponse("/", 303)
    response.set_cookie(access.cookie, session, httponly=True, samesite="strict", path="/")
    return response


async def _save_settings(request: Request, access: Access) -> Response:
    form = await forms.read(request, access)
    if form is None:
        return PlainTextResponse(forms.FOREIGN, 403)
    response = RedirectResponse("/settings", 303)
    theme = form.get("theme", "auto")
    cookies = {"aisp_theme": theme if theme in THEMES else "auto", "aisp_bench_root": quote_cookie(form["bench_root"])}
    for name, value in cookies.items():
        response.set_cookie(name, value, max_age=365 * DAY_S, httponly=True, samesite="strict", path="/")
    return response


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        return PlainTextResponse("No such file.\n", 404)
    return Response(asset(name), media_type=STATIC[name], headers={"Cache-Control": "private, max-age=3600"})


def asset(name: str) -> bytes:
    """Return a file of static/; the style sheet includes those of the charts."""
    content = (files("aisp_mcp.front.dashboard") / "static" / name).read_bytes()
    return content + (drawing.style() + drawing.kinds()).encode() if name == "app.css" else content
