"""Raw arguments to a tool's parameters: strict, and refused in words a caller can act on."""

from __future__ import annotations

import difflib
import json
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from aisp_mcp.errors import UsageError
from aisp_mcp.records import Params
from aisp_mcp.server.dispatch.foreign import foreign
from aisp_mcp.server.dispatch.wording import explain
from aisp_mcp.server.registry import JobParams, Tool

MAX_SAID = 5
MAX_ECHO = 60
MAX_REPAIRED = 600


def validate(tool: Tool, raw: Any) -> Params:
    """The tool's parameters. Raises UsageError UNKNOWN_ARGUMENT, MISSING_ARGUMENT or INVALID_ARGUMENT."""
    if not isinstance(raw, dict):
        raise UsageError("INVALID_ARGUMENT", f"Arguments of {tool.name} must be one object of names and values.")
    unknown = [name for name in raw if name not in _fields(tool)]
    if unknown:
        raise _unknown(tool, raw, unknown)
    if _holds_nul(raw):
        raise UsageError("INVALID_ARGUMENT", "Text in arguments must not hold the NUL character.", expected(tool))
    try:
        # By way of JSON: an enumeration, a path or a tuple has a JSON form, yet "3" is still no integer.
        return tool.params.model_validate_json(json.dumps(raw, allow_nan=False))
    except ValidationError as error:
        raise _invalid(tool, error) from None
    except (ValueError, TypeError, RecursionError):
        raise _not_json(tool) from None


def _fields(tool: Tool) -> dict[str, FieldInfo]:
    """The arguments by the name that a caller uses, which need be no Python name (`from`)."""
    return {field.alias or name: field for name, field in tool.params.model_fields.items()}


def _holds_nul(value: Any) -> bool:
    """No file name, command or stored text can hold one, and each would fail in its own way."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            if "\x00" in one:
                return True
        elif isinstance(one, dict):
            waiting += [*one, *one.values()]
        elif isinstance(one, list):
            waiting += one
    return False


def expected(tool: Tool) -> str:
    """One line naming the arguments, the required ones marked, those that all jobs share last."""
    fields = dict(sorted(_fields(tool).items(), key=lambda one: one[0] in JobParams.model_fields))
    if not fields:
        return f"{tool.name} takes no arguments."
    names = [f"{name} (required)" if field.is_required() else name for name, field in fields.items()]
    return f"Expected: {', '.join(names)}."


def echo(text: str) -> str:
    """The caller's own words, bounded and on one line."""
    line = "".join(c if c.isprintable() else "�" for c in text[:MAX_ECHO])
    return line + "…" if len(text) > MAX_ECHO else line


def _unknown(tool: Tool, raw: dict[str, Any], unknown: list[str]) -> UsageError:
    near = {name: found for name in unknown[:MAX_SAID] if (found := _near(tool, name))}
    said = ", ".join(f"'{echo(str(name))}'" for name in unknown[:MAX_SAID])
    more = f" and {len(unknown) - MAX_SAID} more" if len(unknown) > MAX_SAID else ""
    meant = "".join(f"Did you mean '{fromkey}'? " for fromkey in dict.fromkeys(near.values()))
    meant = "".join(f"{text} " for text in foreign(tool, unknown)) or meant
    repaired = _repaired(tool, raw, unknown, near)
    steps = [(tool.name, repaired)] if repaired is not None else []
    return UsageError("UNKNOWN_ARGUMENT", f"{tool.name} has no argument {said}{more}.", meant + expected(tool), steps)


def _near(tool: Tool, name: Any) -> str | None:
    found = difflib.get_close_matches(str(name)[:MAX_ECHO], list(_fields(tool)), n=1, cutoff=0.55)
    return found[0] if found else None


def _repaired(tool: Tool, raw: dict[str, Any], unknown: list[str], near: dict[str, str]) -> dict[str, Any] | None:
    """The call that was probably meant, offered only if it is valid and short."""
    if len(near) < len(unknown) or any(found in raw for found in near.values()):
        return None
    fixed = {near.get(name, name): value for name, value in raw.items()}
    try:
        short = len(json.dumps(fixed, allow_nan=False)) <= MAX_REPAIRED
        if short and len(fixed) == len(raw):
            validate(tool, fixed)
            return fixed
    except (UsageError, ValueError, TypeError, RecursionError):
        return None
    return None


def _not_json(tool: Tool) -> UsageError:
    said = f"Arguments of {tool.name} must be JSON: finite numbers, valid text, lists and objects of moderate depth."
    return UsageError("INVALID_ARGUMENT", said, expected(tool))


def _invalid(tool: Tool, error: ValidationError) -> UsageError:
    details = error.errors(include_url=False)
    if details[0]["type"] == "json_invalid":
        return _not_json(tool)
    problems = explain(details)
    missing = [p for p in problems if p.missing]
    code = "MISSING_ARGUMENT" if len(missing) == len(problems) else "INVALID_ARGUMENT"
    lines = [problem.sentence for problem in problems]
    more = f" And {len(lines) - MAX_SAID} more." if len(lines) > MAX_SAID else ""
    return UsageError(code, " ".join(lines[:MAX_SAID]) + more, expected(tool))
