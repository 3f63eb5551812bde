"""Servers by address: which model they serve, whether they answer, and whether two addresses lead to one."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from aisp_mcp.errors import Unavailable, UsageError


@dataclass(frozen=True)
class Server:
    """A server and the model to request."""

    url: str
    model: str


def require_two(servers: Sequence[Server]) -> None:
    """Raise UsageError SAME_SERVER if both are one model of one process."""
    if len(servers) < 2 or servers[0].model != servers[1].model:
        return
    places = [_place(server.url) for server in servers]
    if places[0] & places[1]:
        message = f"{servers[0].url} and {servers[1].url} are the same server."
        raise UsageError("SAME_SERVER", message, "Start the second one on a port of its own.")


def _place(url: str) -> set[tuple[str, int | None, str]]:
    """Where an address leads: its IP addresses, port and path. All loopback addresses count as one."""
    parts = urlsplit(url)
    try:
        found = {str(row[4][0]) for row in socket.getaddrinfo(parts.hostname, None)}
    except OSError:
        found = set()
    hosts = {"localhost" if ip_address(each.partition("%")[0]).is_loopback else each for each in found}
    return {(each, parts.port, parts.path) for each in hosts}


_TIMEOUT_S = 60.0
_MOST = 2**20


def address(url: str) -> str:
    """The URL without /v1 and a trailing slash. Raises UsageError BAD_URL."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname or "," in url:
        raise UsageError("BAD_URL", f"{url[:200]!r} is not an HTTP address.", "Such as http://127.0.0.1:8000.")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}"


def model(url: str, name: str | None) -> str:
    """The named model, or the only one listed. Raises Unavailable UNREACHABLE, UsageError WHICH_MODEL."""
    try:
        listed = [str(row.get("id")) for row in _ask(f"{url}/v1/models").get("data", []) if isinstance(row, dict)]
    except Unavailable:
        if name is None:
            raise
        return name  # some servers cannot list; the next request shows whether the model exists
    if name is not None:
        return name
    if len(listed) != 1:
        known = ", ".join(listed[:10]) or "none"
        raise UsageError("WHICH_MODEL", f"{url} serves these models: {known}.", "Name one of them as model.")
    return listed[0]


def require_answer(url: str, name: str, tokens: int) -> None:
    """Send one untimed request: it warms the server up and shows that it answers. Raises Unavailable UNREACHABLE."""
    message = {"role": "user", "content": "Count from one to ten."}
    body = {"model": name, "messages": [message], "max_tokens": tokens}
    if not _ask(f"{url}/v1/chat/completions", body).get("choices"):
        raise Unavailable("UNREACHABLE", f"{url} answered a chat request without a choice.", "See the server's log.")


def _ask(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as reply:
            document = json.loads(reply.read(_MOST))
    except urllib.error.HTTPError as error:
        raise Unavailable("UNREACHABLE", f"{url} answered {error.code} {error.reason}.", _HINT) from error
    except json.JSONDecodeError as error:
        text = f"{url} answered with something else than JSON, though no stream was asked for."
        raise Unavailable("UNREACHABLE", text, _HINT) from error
    except (OSError, ValueError) as error:
        raise Unavailable("UNREACHABLE", f"{url} did not answer: {error}.", _HINT) from error
    return document if isinstance(document, dict) else {}


_HINT = "It must be an OpenAI-compatible server that is running and needs no key, such as vllm serve."
