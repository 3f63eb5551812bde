"""Access: a one-time link, then a cookie; and a second secret in every form that changes something."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CSRF_HEADER = "x-csrf-token"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers would hide the origin of our own forms
    "Cross-Origin-Opener-Policy": "same-origin-allow-popups",  # same-origin would cut us off from Perfetto's window
    "Cross-Origin-Resource-Policy": "same-origin",
}
OPEN = ("/login", "/static/")  # what a stranger may reach: the door, and files that are the same for everyone


@dataclass
class Door:
    """The secrets of one process. port: cookies know no ports, so that the cookie's name tells servers apart."""

    port: int
    _links: set[str] = field(default_factory=set)
    _session: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @property
    def cookie(self) -> str:
        return f"aisp_session_{self.port}"

    @property
    def csrf(self) -> str:
        """Goes into forms; made from the session, and tells nothing about it."""
        return hmac.new(self._session.encode(), b"csrf", hashlib.sha256).hexdigest()

    def new_link(self) -> str:
        """A token that opens the door once."""
        token = secrets.token_urlsafe(32)
        self._links.add(token)
        return token

    def enter(self, token: str) -> str | None:
        """The session for a token of new_link, which is then used up."""
        found = next((known for known in self._links if _same(known, token)), None)
        if found is None:
            return None
        self._links.discard(found)
        return self._session

    def knows(self, session: str) -> bool:
        return _same(self._session, session)

    def agrees(self, token: str) -> bool:
        """True for the secret of a form on one of our pages."""
        return _same(self.csrf, token)


def _same(known: str, given: str) -> bool:
    return hmac.compare_digest(known.encode(), given.encode("utf-8", "surrogatepass"))


class Guard:
    """401 without the session's cookie; 403 for what writes through /api without the header of our own script.

    Adds the policy to every answer that has none of its own. Forms carry the same secret as a field.
    """

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self.app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
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

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers, path = Headers(scope=scope), scope["path"]
        if path.startswith(OPEN):
            return None
        if not self._door.knows(_cookie(headers.get("cookie", ""), self._door.cookie)):
            hint = "Open the link that `aisp dashboard` printed; it works once. Start it again for another one.\n"
            return PlainTextResponse(hint, 401)
        changes = path.startswith("/api/") and scope["method"] not in ("GET", "HEAD")
        if changes and not self._door.agrees(headers.get(CSRF_HEADER, "")):
            return PlainTextResponse("The header X-CSRF-Token is missing or wrong.\n", 403)
        return None


def _cookie(text: str, name: str) -> str:
    try:
        found = SimpleCookie(text).get(name)
    except CookieError:
        return ""
    return found.value if found else ""
