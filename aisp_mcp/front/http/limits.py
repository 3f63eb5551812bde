"""Limits on the rate of requests and on concurrent requests."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

ANONYMOUS = "anonymous"


@dataclass
class TokenBucket:
    """A token bucket: `rate` requests per second on average, `burst` at once. at: time of the last request, in s."""

    rate: float
    burst: float
    level: float
    at: float

    def take(self, now: float) -> float:
        """Take a token. Returns 0 if there was one, else the seconds until there will be."""
        self.level = min(self.burst, self.level + (now - self.at) * self.rate)
        self.at = now
        if self.level < 1:
            return (1 - self.level) / self.rate
        self.level -= 1
        return 0.0


@dataclass(frozen=True)
class RequestLimits:
    """(Requests per second, burst) and concurrent requests: of each principal, and of all anonymous clients together.

    An event stream counts as a running request for as long as it is open.
    """

    principal: tuple[float, float] = (200.0, 400.0)
    anonymous: tuple[float, float] = (20.0, 100.0)
    principal_concurrent: int = 64
    anonymous_concurrent: int = 16


class LimitMiddleware:
    """Answers 429 to clients beyond their limits. Clients without a token share one limit."""

    def __init__(self, app: ASGIApp, limits: RequestLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.app = app
        self._limits = limits
        self._clock = clock
        self._buckets: dict[str, TokenBucket] = {}
        self._running: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI. Runs after the middleware that authenticates."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        user = scope.get("user")
        name = f"principal {user.username}" if isinstance(user, AuthenticatedUser) else ANONYMOUS
        wait = self._bucket(name).take(self._clock())
        limit = self._limits.anonymous_concurrent if name == ANONYMOUS else self._limits.principal_concurrent
        if wait or self._running[name] >= limit:
            response = Response("Too many requests", 429, {"Retry-After": str(math.ceil(wait) or 1)})
            await response(scope, receive, send)
            return
        self._running[name] += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self._running[name] -= 1

    def _bucket(self, name: str) -> TokenBucket:
        rate, burst = self._limits.anonymous if name == ANONYMOUS else self._limits.principal
        return self._buckets.setdefault(name, TokenBucket(rate, burst, burst, self._clock()))
