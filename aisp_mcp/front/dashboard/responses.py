"""Turn a web request into a page request, and a page request into an HTML response."""

from __future__ import annotations

from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from aisp_mcp.envelope import Envelope
from aisp_mcp.errors import AispError
from aisp_mcp.front.dashboard import site
from aisp_mcp.front.dashboard.request import THEMES, PageRequest, ServedLinks, answer_from
from aisp_mcp.front.rest.answers import status_of
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch.envelopes import Stopwatch, failure, internal


def page_response(page: site.SitePage, request: PageRequest, csrf: str) -> Response:
    """Return the page, or an error page with the status of its error."""
    watch, links = Stopwatch(request.ctx), ServedLinks()
    try:
        return HTMLResponse(site.render(page, request, links, csrf))
    except AispError as error:
        envelope = failure(page.name, error, watch)
    except Exception as error:
        envelope = internal(page.name, error, watch)
    return error_response(page, request, envelope)


def error_response(page: site.SitePage, request: PageRequest, envelope: Envelope) -> Response:
    error = answer_from(page.name, envelope).error or {}
    return HTMLResponse(site.render_error(page, request, ServedLinks(), error), status_of(envelope))


def not_found(request: PageRequest, path: str) -> Response:
    """Return the page for an address that does not exist."""
    hint = "The menu lists all pages. An address may name a run, job or profile that was removed."
    error = {"code": "NO_PAGE", "message": f"There is no page {path[:100]}.", "hint": hint}
    return HTMLResponse(site.render_error(site.SitePage("", "Not found"), request, ServedLinks(), error), 404)


def sign_in(reason: str) -> Response:
    """Return the page for a browser without a session; it shows no stored data."""
    return HTMLResponse(site.render_sign_in(reason, ServedLinks()), 401)


def page_request(request: Request, ctx: Context, may_run: bool) -> PageRequest:
    """Return the query and the settings cookies of a web request."""
    theme = request.cookies.get("aisp_theme", "auto")
    return PageRequest(
        ctx,
        dict(request.query_params),
        bench_root=unquote_cookie(request.cookies.get("aisp_bench_root", "")) or None,
        theme=theme if theme in THEMES else "auto",
        may_run=may_run,
    )


def quote_cookie(text: str) -> str:
    return quote(text.strip()[:1000], safe="/")


def unquote_cookie(text: str) -> str:
    return unquote(text)[:1000].strip()
