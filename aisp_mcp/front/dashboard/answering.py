"""Requests into pages: the browser's words and cookies in, HTML or the reason for none out."""

from __future__ import annotations

from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from aisp_mcp.envelope import Envelope
from aisp_mcp.errors import AispError
from aisp_mcp.front.dashboard import site
from aisp_mcp.front.dashboard.asked import THEMES, Asked, answered
from aisp_mcp.front.dashboard.links import Served
from aisp_mcp.front.rest.answers import status_of
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch.envelopes import Stopwatch, failure, internal


def show(page: site.Page, asked: Asked, csrf: str) -> Response:
    """The page, or the page that says why there is none, under the status of its error."""
    watch, links = Stopwatch(asked.ctx), Served()
    try:
        return HTMLResponse(site.render(page, asked, links, csrf))
    except AispError as error:
        envelope = failure(page.name, error, watch)
    except Exception as error:
        envelope = internal(page.name, error, watch)
    return problem(page, asked, envelope)


def problem(page: site.Page, asked: Asked, envelope: Envelope) -> Response:
    """An envelope's error as a page."""
    said = answered(page.name, envelope).error or {}
    return HTMLResponse(site.problem(page, asked, Served(), said), status_of(envelope))


def asked_by(request: Request, ctx: Context, may_run: bool) -> Asked:
    """The request without its web."""
    theme = request.cookies.get("aisp_theme", "auto")
    return Asked(
        ctx,
        dict(request.query_params),
        bench_root=unquoted(request.cookies.get("aisp_bench_root", "")) or None,
        theme=theme if theme in THEMES else "auto",
        may_run=may_run,
    )


def quoted(text: str) -> str:
    return quote(text.strip()[:1000], safe="/")


def unquoted(text: str) -> str:
    return unquote(text)[:1000].strip()
