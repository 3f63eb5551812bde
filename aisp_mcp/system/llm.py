"""The configured language model server: list its models, or query it. The key is sent only in a header."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any, NamedTuple

from aisp_mcp.errors import Unavailable
from aisp_mcp.settings import LlmSettings
from aisp_mcp.system.deadline import CallLane, Hung

LIST_DEADLINE_S, CHAT_DEADLINE_S = 3.0, 40.0
MAX_REPLY_BYTES = 1_000_000
MAX_TOKENS = 800
_LANE = CallLane("llm")  # a server that sends an occasional byte never triggers a socket's timeout


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, which could carry the key to another host."""

    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        return None


class Api(NamedTuple):
    """One kind of server. body(model, system, user) → request; text(answer) → reply; names(answer) → models."""

    models_path: str
    chat_path: str
    headers: Callable[[str], dict[str, str]]
    body: Callable[[str, str, str], dict[str, Any]]
    text: Callable[[Any], str]
    names: Callable[[Any], list[str]]


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def _anthropic_headers(key: str) -> dict[str, str]:
    return {"anthropic-version": "2023-06-01"} | ({"x-api-key": key} if key else {})


def _turns(system: str, user: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


APIS = {
    "openai": Api(
        "/models",
        "/chat/completions",
        _bearer,
        lambda model, system, user: {"model": model, "messages": _turns(system, user), "max_tokens": MAX_TOKENS},
        lambda answer: str(answer["choices"][0]["message"]["content"]),
        lambda answer: [str(row["id"]) for row in answer["data"]],
    ),
    "anthropic": Api(
        "/models",
        "/messages",
        _anthropic_headers,
        lambda model, system, user: {
            "model": model,
            "system": system,
            "messages": _turns(system, user)[1:],
            "max_tokens": MAX_TOKENS,
        },
        lambda answer: "".join(str(part["text"]) for part in answer["content"] if part["type"] == "text"),
        lambda answer: [str(row["id"]) for row in answer["data"]],
    ),
    "ollama": Api(
        "/api/tags",
        "/api/chat",
        _bearer,
        lambda model, system, user: {"model": model, "messages": _turns(system, user), "stream": False},
        lambda answer: str(answer["message"]["content"]),
        lambda answer: [str(row["name"]) for row in answer["models"]],
    ),
}


def shown(url: str) -> str:
    """The URL without user information, query and fragment."""
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    return urllib.parse.urlunsplit((parts.scheme, host + port, parts.path, "", ""))


def models(settings: LlmSettings) -> tuple[list[str], str | None]:
    """(model names, None), or ([], reason)."""
    try:
        api = _api(settings)
        return api.names(_request(settings, api, api.models_path, None, LIST_DEADLINE_S)), None
    except Unavailable as error:
        return [], error.message
    except (KeyError, TypeError, IndexError) as error:
        return [], f"No usable answer: {type(error).__name__}."


def chat(settings: LlmSettings, system: str, user: str) -> str:
    """The model's reply to one turn. Raises Unavailable NO_LLM with the reason."""
    api = _api(settings)
    answer = _request(settings, api, api.chat_path, api.body(settings.model, system, user), CHAT_DEADLINE_S)
    try:
        return api.text(answer)
    except (KeyError, TypeError, IndexError) as error:
        raise _unavailable(f"No usable answer: {type(error).__name__}.") from error


def _api(settings: LlmSettings) -> Api:
    if settings.api not in APIS:
        raise _unavailable(f"AISP_LLM_API must be one of {', '.join(APIS)}.")
    return APIS[settings.api]


def _request(settings: LlmSettings, api: Api, path: str, body: dict[str, Any] | None, deadline_s: float) -> Any:
    """The parsed answer. Raises Unavailable NO_LLM."""
    if urllib.parse.urlsplit(settings.url).scheme not in ("http", "https"):
        raise _unavailable("AISP_LLM_URL must begin with http:// or https://.")
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", **api.headers(settings.key)}
    request = urllib.request.Request(f"{settings.url.rstrip('/')}{path}", data=data, headers=headers)
    try:
        return _LANE.call(lambda: _sent(request, deadline_s), deadline_s)
    except urllib.error.HTTPError as error:
        raise _unavailable(f"The server answered with status {error.code}.") from error
    except Hung as error:
        raise _unavailable(f"No answer within {deadline_s:g} s.") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, TimeoutError):
            raise _unavailable(f"No answer within {deadline_s:g} s.") from error
        raise _unavailable(f"No usable answer: {type(reason).__name__}.") from error


def _sent(request: urllib.request.Request, deadline_s: float) -> Any:
    with urllib.request.build_opener(_NoRedirect).open(request, timeout=deadline_s) as answer:
        return json.loads(answer.read(MAX_REPLY_BYTES))


def _unavailable(message: str) -> Unavailable:
    return Unavailable("NO_LLM", message, "aisp_ai_status says what is configured and whether it answers.")
