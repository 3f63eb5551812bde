"""Check the Host and Origin headers before anything else. Does not import the protocol library."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class NameCheck:
    """Answers 421 to an unknown Host, which defends against DNS rebinding, and 403 to an unknown Origin."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str], origins: Sequence[str]) -> None:
        self.app = app
        self._hosts, self._origins = frozenset(hosts), frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(Headers(scope=scope)) if scope["type"] == "http" else None
        await (refusal or self.app)(scope, receive, send)

    def _refusal(self, headers: Headers) -> PlainTextResponse | None:
        if headers.get("host") not in self._hosts:
            return PlainTextResponse("Invalid Host header", 421)
        origin = headers.get("origin")
        if origin is not None and origin not in self._origins:
            return PlainTextResponse("Invalid Origin header", 403)
        return None
