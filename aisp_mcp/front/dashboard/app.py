"""The web application: pages at /, REST at /api, files of ours at /static."""

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
from aisp_mcp.front.dashboard.access import Door, Guard
from aisp_mcp.front.dashboard.answering import asked_by, quoted, show
from aisp_mcp.front.dashboard.asked import THEMES
from aisp_mcp.front.dashboard.flames import flame, trace
from aisp_mcp.front.http.names import NameCheck
from aisp_mcp.front.rest import app as rest
from aisp_mcp.server.charts import drawing
from aisp_mcp.server.context import Context

STATIC = {"app.css": "text/css", "app.js": "text/javascript"}
DAY_S = 86_400


def build_app(ctx: Context, door: Door, hosts: Sequence[str], may_run: bool) -> Starlette:
    """The ASGI application. hosts: what the Host header may say. may_run: forms may start and cancel jobs."""
    routes = [Route(f"/{name}", _page(page, ctx, door, may_run)) for name, page in site.PAGES.items()]
    return Starlette(
        routes=[
            Route("/", _page(site.PAGES["overview"], ctx, door, may_run)),
            *routes,
            Route("/flame", partial(flame, ctx=ctx)),
            Route("/trace", partial(trace, ctx=ctx)),
            Route("/login", partial(_login, door=door)),
            Route("/static/{name}", _static),
            Route("/settings", partial(_keep, door=door), methods=["POST"]),
            *forms.routes(ctx, door, may_run),
            Mount("/api", Router(rest.routes(ctx, lambda _: ctx, writes=may_run))),
        ],
        middleware=[
            Middleware(NameCheck, hosts=hosts, origins=[f"http://{host}" for host in hosts]),
            Middleware(Guard, door=door),
        ],
    )


def _page(page: site.Page, ctx: Context, door: Door, may_run: bool) -> Callable[..., Any]:
    async def answer(request: Request) -> Response:
        asked = asked_by(request, ctx, may_run)
        return await anyio.to_thread.run_sync(partial(show, page, asked, door.csrf), abandon_on_cancel=True)

    return answer


async def _login(request: Request, door: Door) -> Response:
    """GET /login?token=…: the one-time link."""
    session = door.enter(request.query_params.get("token", ""))
    if session is None:
        return PlainTextResponse("This link was used before, or is not ours. Start `aisp dashboard` again.\n", 401)
    answer = RedirectResponse("/", 303)
    answer.set_cookie(door.cookie, session, httponly=True, samesite="strict", path="/")
    return answer


async def _keep(request: Request, door: Door) -> Response:
    """POST /settings: what the browser shall keep and send with every request."""
    form = await forms.read(request, door)
    if form is None:
        return PlainTextResponse("The form is not of this page.\n", 403)
    answer = RedirectResponse("/settings", 303)
    theme = form.get("theme", "auto")
    keep = {"aisp_theme": theme if theme in THEMES else "auto", "aisp_bench_root": quoted(form["bench_root"])}
    for name, value in keep.items():
        answer.set_cookie(name, value, max_age=365 * DAY_S, httponly=True, samesite="strict", path="/")
    return answer


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        return PlainTextResponse("There is no such file.\n", 404)
    return Response(asset(name), media_type=STATIC[name], headers={"Cache-Control": "private, max-age=3600"})


def asset(name: str) -> bytes:
    """A file of static/; the style of the page holds that of the charts."""
    text = (files("aisp_mcp.front.dashboard") / "static" / name).read_bytes()
    return text + drawing.style().encode() if name == "app.css" else text
