"""Is the configured LLM server there? One request with a deadline; the key goes out in the header and nowhere else."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

_TIMEOUT_S = 3.0
_MOST = 1_000_000


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect could carry the key to another host."""

    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        return None


def shown(url: str) -> str:
    """The URL without user information, query and fragment."""
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    return urllib.parse.urlunsplit((parts.scheme, host + port, parts.path, "", ""))


def models(url: str, key: str) -> tuple[list[str], str | None]:
    """(model names of GET <url>/models, None), or ([], why not)."""
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        return [], "AISP_LLM_URL must begin with http:// or https://."
    request = urllib.request.Request(f"{url.rstrip('/')}/models")
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=_TIMEOUT_S) as answer:
            document = json.loads(answer.read(_MOST))
        return [str(row["id"]) for row in document["data"]], None
    except urllib.error.HTTPError as error:
        return [], f"The server answered with status {error.code}."
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = getattr(error, "reason", None) or error
        return [], f"No usable answer: {type(reason).__name__}."
