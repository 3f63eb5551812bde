"""Access control: a link with a token sets a session cookie, and every form that changes something has a CSRF token."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aisp_mcp.front.dashboard.responses import sign_in

CSRF_HEADER = "x-csrf-token"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers hide the origin of our own forms
    "Cross-Origin-Opener-Policy": "same-origin-allow-popups",  # same-origin would cut us off from Perfetto's window
    "Cross-Origin-Resource-Policy": "same-origin",
}
PUBLIC = ("/login", "/static/")  # reachable without a session


@dataclass
class Access:
    """The secrets of one server process. port: part of the cookie's name, because cookies are shared between ports."""

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    _session: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @property
    def cookie(self) -> str:
        return f"aisp_session_{self.port}"

    @property
    def csrf(self) -> str:
        """CSRF token for forms: derived from the session, without revealing it."""
        return hmac.new(self._session.encode(), b"csrf", hashlib.sha256).hexdigest()

    def log_in(self, token: str) -> str | None:
        """Return the session for the token of the link, which works while the server runs; None for any other."""
        return self._session if _equal(self.token, token) else None

    def is_session(self, session: str) -> bool:
        return _equal(self._session, session)

    def is_csrf(self, token: str) -> bool:
        return _equal(self.csrf, token)


def _equal(secret: str, token: str) -> bool:
    return hmac.compare_digest(secret.encode(), token.encode("utf-8", "surrogatepass"))


class Guard:
    """Answers 401 without the session cookie, and 403 to writes through /api without the CSRF header.

    Adds the security headers to every response that does not set them. Forms carry the CSRF token as a field.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await (self._refusal(scope) or self.app)(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers, path = Headers(scope=scope), scope["path"]
        if path.startswith(PUBLIC):
            return None
        if not self._access.is_session(_cookie(headers.get("cookie", ""), self._access.cookie)):
            return sign_in("This browser is not signed in.")
        writes = path.startswith("/api/") and scope["method"] not in ("GET", "HEAD")
        if writes and not self._access.is_csrf(headers.get(CSRF_HEADER, "")):
            return PlainTextResponse("The header X-CSRF-Token is missing or wrong.\n", 403)
        return None


def _cookie(text: str, name: str) -> str:
    try:
        cookie = SimpleCookie(text).get(name)
    except CookieError:
        return ""
    return cookie.value if cookie else ""
