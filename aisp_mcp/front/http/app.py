"""The web application: the protocol library's endpoint behind the gate, and the metadata of RFC 9728."""

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
from aisp_mcp.front.http.gate import Limits, RateLimit
from aisp_mcp.front.http.names import NameCheck
from aisp_mcp.front.http.tokens import Tokens
from aisp_mcp.front.rest import app as rest
from aisp_mcp.server.context import Context

METADATA = "/.well-known/oauth-protected-resource"
MAX_BODY = 1 << 20
SESSIONS, SESSIONS_EACH, SESSION_IDLE_S = 1000, 50, 1800.0
_PROTOCOL_HEADERS = ["authorization", "content-type", "mcp-protocol-version", "mcp-method", "mcp-name", "last-event-id"]


@dataclass(frozen=True)
class Door:
    """Rules of access. origin: the server's own; hosts: its names in the Host header; origins: web pages of others."""

    tokens: Tokens
    origin: str
    hosts: Sequence[str]
    origins: Sequence[str] = ()
    limits: Limits = field(default_factory=Limits)


class Sessions(StreamableHTTPSessionManager):
    """The library's sessions, of which one principal may have so many open: 503 beyond, as beyond the sum of all."""

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        mine = sum(owner == requestor for owner in self._session_owners.values())
        return None if mine >= SESSIONS_EACH else super()._admit_session(requestor)


def build_app(server: Server[Any], door: Door, ctx: Context) -> Starlette:
    """The ASGI application: MCP at /mcp, REST at /api.

    Every request is counted, named and, but for the metadata, authenticated.
    """
    manager = Sessions(
        server, max_request_body_size=MAX_BODY, max_sessions=SESSIONS, session_idle_timeout=SESSION_IDLE_S
    )
    metadata = AnyHttpUrl(door.origin + METADATA + PATH)
    endpoint = RequireAuthMiddleware(StreamableHTTPASGIApp(manager), [], metadata)
    api = RequireAuthMiddleware(Router(rest.routes(ctx, partial(_caller, ctx))), [], metadata)
    return Starlette(
        routes=[
            Route(PATH, endpoint),
            Mount("/api", api),
            Route(METADATA + PATH, _metadata(door)),
            Route(METADATA, _metadata(door)),
        ],
        middleware=[
            *_cross_origin(door.origins),
            Middleware(AuthenticationMiddleware, backend=BearerAuthBackend(door.tokens)),
            Middleware(AuthContextMiddleware),
            Middleware(RateLimit, limits=door.limits),
            Middleware(
                NameCheck, hosts=door.hosts, origins=[*(f"http://{host}" for host in door.hosts), *door.origins]
            ),
        ],
        lifespan=lambda _: manager.run(),
    )


def _caller(ctx: Context, request: Request) -> Context:
    """The context of who sent a request to the REST paths."""
    return ctx.under(request.user.access_token.client_id)


def principal_of(request: Any) -> str:
    """Principal of the token sent with this request of the protocol; an unauthenticated request has none and fails."""
    user = request.request.user
    assert isinstance(user, AuthenticatedUser)
    return user.access_token.client_id


def _metadata(door: Door) -> Any:
    """RFC 9728, for clients that ask how to authenticate. Tokens are handed out by hand: no authorization server."""
    said = {"resource": door.origin + PATH, "resource_name": "aisp", "bearer_methods_supported": ["header"]}

    async def answer(_: Request) -> JSONResponse:
        return JSONResponse(said, headers={"Cache-Control": "max-age=3600"})

    return answer


def _cross_origin(origins: Sequence[str]) -> list[Middleware]:
    """CORS headers that let pages of these origins call the server."""
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
