"""The answer to a line that is no message. The protocol library drops such lines, and whoever sent one would wait."""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types
from mcp_types import jsonrpc
from pydantic import ValidationError

_EXAMPLE = 'One message is one line, such as {"jsonrpc":"2.0","id":1,"method":"tools/list"}.'

_LIMITS = "The message's text must be valid Unicode, and its nesting moderate."


def reply_to(error: Exception) -> jsonrpc.JSONRPCError | None:
    """The error response for what could not be read; None where none is due: an empty line, a notification."""
    given, parsed = _input_of(error)
    if not parsed and not given.strip():
        return None
    try:
        value = given if parsed else json.loads(given)
    except RecursionError:
        return _refusal(None, jsonrpc.PARSE_ERROR, "This message cannot be read.", _LIMITS)
    except ValueError:
        return _refusal(None, jsonrpc.PARSE_ERROR, "This line is not JSON.", _EXAMPLE)
    if isinstance(value, list):
        return _refusal(None, jsonrpc.INVALID_REQUEST, "Batches are not part of the protocol.", _EXAMPLE)
    if not isinstance(value, dict):
        return _refusal(None, jsonrpc.INVALID_REQUEST, "This is not a message.", _EXAMPLE)
    number = value.get("id")
    if "id" not in value and isinstance(value.get("method"), str):
        return None
    params = value.get("params", {})
    if value.get("jsonrpc") == "2.0" and isinstance(value.get("method"), str) and isinstance(params, dict):
        return _refusal(number, jsonrpc.PARSE_ERROR, "This message cannot be read.", _LIMITS)
    return _refusal(number if _is_id(number) else None, jsonrpc.INVALID_REQUEST, "This is no JSON-RPC 2.0.", _EXAMPLE)


def _refusal(number: Any, code: int, message: str, hint: str) -> jsonrpc.JSONRPCError:
    data = {"code": "MALFORMED", "hint": hint}
    return jsonrpc.JSONRPCError(jsonrpc="2.0", id=number, error=types.ErrorData(code=code, message=message, data=data))


def _is_id(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _input_of(error: Exception) -> tuple[Any, bool]:
    """Input that the library tried to read, and a mark for JSON. Its errors carry it whole: the text, or the value."""
    found = error.errors(include_url=False) if isinstance(error, ValidationError) else []
    if not found or found[0]["type"] == "json_invalid":
        return (found[0]["input"] if found else ""), False
    whole = [one["input"] for one in found if len(one["loc"]) < 2 or one["type"] == "missing"]
    return (whole[0] if whole else {}), True
