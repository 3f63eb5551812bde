"""Error responses to malformed lines, which the protocol library drops without an answer."""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types
from mcp_types import jsonrpc
from pydantic import ValidationError

_EXAMPLE = 'One message is one line, such as {"jsonrpc":"2.0","id":1,"method":"tools/list"}.'

_LIMITS = "Its text must be valid Unicode and not deeply nested."


def error_response(error: Exception) -> jsonrpc.JSONRPCError | None:
    """Return the response to unreadable input, or None if none is due: for an empty line or a notification."""
    raw, is_parsed = _input_of(error)
    if not is_parsed and not raw.strip():
        return None
    try:
        value = raw if is_parsed else json.loads(raw)
    except RecursionError:
        return _response(None, jsonrpc.PARSE_ERROR, "This message cannot be read.", _LIMITS)
    except ValueError:
        return _response(None, jsonrpc.PARSE_ERROR, "This line is not JSON.", _EXAMPLE)
    if isinstance(value, list):
        return _response(None, jsonrpc.INVALID_REQUEST, "Batches are not part of the protocol.", _EXAMPLE)
    if not isinstance(value, dict):
        return _response(None, jsonrpc.INVALID_REQUEST, "This is not a message.", _EXAMPLE)
    request_id = value.get("id")
    if "id" not in value and isinstance(value.get("method"), str):
        return None
    params = value.get("params", {})
    if value.get("jsonrpc") == "2.0" and isinstance(value.get("method"), str) and isinstance(params, dict):
        return _response(request_id, jsonrpc.PARSE_ERROR, "This message cannot be read.", _LIMITS)
    return _response(
        request_id if _is_id(request_id) else None,
        jsonrpc.INVALID_REQUEST,
        "This is not a JSON-RPC 2.0 message.",
        _EXAMPLE,
    )


def _response(request_id: Any, code: int, message: str, hint: str) -> jsonrpc.JSONRPCError:
    data = {"code": "MALFORMED", "hint": hint}
    return jsonrpc.JSONRPCError(
        jsonrpc="2.0", id=request_id, error=types.ErrorData(code=code, message=message, data=data)
    )


def _is_id(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _input_of(error: Exception) -> tuple[Any, bool]:
    """Return the input from the library's error, as text or as a parsed JSON value, and whether it was parsed."""
    details = error.errors(include_url=False) if isinstance(error, ValidationError) else []
    if not details or details[0]["type"] == "json_invalid":
        return (details[0]["input"] if details else ""), False
    messages = [detail["input"] for detail in details if len(detail["loc"]) < 2 or detail["type"] == "missing"]
    return (messages[0] if messages else {}), True
