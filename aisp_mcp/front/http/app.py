"""The web application: the protocol library's endpoint, the REST API and RFC 9728 metadata, with access checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import (
    AuthenticatedUser,
    AuthorizationContext,
    BearerAuthBackend,
    RequireAuthMiddleware,
)
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route, Router

from aisp_mcp.front.http.address import PATH
from aisp_mcp.front.http.limits import LimitMiddleware, RequestLimits
from aisp_mcp.front.http.names import NameCheck
from aisp_mcp.front.http.tokens import Tokens
from aisp_mcp.front.rest import app as rest
from aisp_mcp.server.context import Context

METADATA = "/.well-known/oauth-protected-resource"
MAX_BODY = 1 << 20
SESSIONS, SESSIONS_EACH, SESSION_IDLE_S = 1000, 50, 1800.0
_PROTOCOL_HEADERS = ["authorization", "content-type", "mcp-protocol-version", "mcp-method", "mcp-name", "last-event-id"]


@dataclass(frozen=True)
class AccessRules:
    """Rules for serving or rejecting requests.

    origin: the server's own. hosts: allowed Host headers. origins: web pages of other sites that may call the server.
    """

    tokens: Tokens
    origin: str
    hosts: Sequence[str]
    origins: Sequence[str] = ()
    limits: RequestLimits = field(default_factory=RequestLimits)


class Sessions(StreamableHTTPSessionManager):
    """The library's sessions with a limit per principal; beyond it the answer is 503, as beyond the total limit."""

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        open_sessions = sum(owner == requestor for owner in self._session_owners.values())
        return None if open_sessions >= SESSIONS_EACH else super()._admit_session(requestor)


def build_app(server: Server[Any], rules: AccessRules, ctx: Context) -> Starlette:
    """Build the ASGI application: MCP at /mcp, REST at /api.

    Every request is rate-limited and its Host checked; all but the metadata need a token.
    """
    manager = Sessions(
        server, max_request_body_size=MAX_BODY, max_sessions=SESSIONS, session_idle_timeout=SESSION_IDLE_S
    )
    metadata = AnyHttpUrl(rules.origin + METADATA + PATH)
    endpoint = RequireAuthMiddleware(StreamableHTTPASGIApp(manager), [], metadata)
    api = RequireAuthMiddleware(Router(rest.routes(ctx, partial(_context_of, ctx))), [], metadata)
    return Starlette(
        routes=[
            Route(PATH, endpoint),
            Mount("/api", api),
            Route(METADATA + PATH, _metadata(rules)),
            Route(METADATA, _metadata(rules)),
        ],
        middleware=[
            *_cross_origin(rules.origins),
            Middleware(AuthenticationMiddleware, backend=BearerAuthBackend(rules.tokens)),
            Middleware(AuthContextMiddleware),
            Middleware(LimitMiddleware, limits=rules.limits),
            Middleware(
                NameCheck, hosts=rules.hosts, origins=[*(f"http://{host}" for host in rules.hosts), *rules.origins]
            ),
        ],
        lifespan=lambda _: manager.run(),
    )


def _context_of(ctx: Context, request: Request) -> Context:
    return ctx.under(request.user.access_token.client_id)


def principal_of(request: Any) -> str:
    """Return the principal of an MCP request's token; the request must be authenticated."""
    user = request.request.user
    assert isinstance(user, AuthenticatedUser)
    return user.access_token.client_id


def _metadata(rules: AccessRules) -> Any:
    """RFC 9728 metadata. It names no authorization server, because tokens are passed on by the user."""
    metadata = {"resource": rules.origin + PATH, "resource_name": "aisp", "bearer_methods_supported": ["header"]}

    async def answer(_: Request) -> JSONResponse:
        return JSONResponse(metadata, headers={"Cache-Control": "max-age=3600"})

    return answer


def _cross_origin(origins: Sequence[str]) -> list[Middleware]:
    """CORS middleware that lets pages of these origins call the server."""
    if not origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=[*_PROTOCOL_HEADERS, "mcp-session-id"],
            expose_headers=["mcp-session-id", "www-authenticate"],
        )
    ]
