"""A tool's parameters as JSON Schema, in as few tokens as possible."""

from __future__ import annotations

import functools
from typing import Any

from aisp_mcp.records import Params
from aisp_mcp.server.registry import JobParams, Tool

# A model reads about these once, in the server's instructions; these texts are for pages and --help.
SHARED_HELP = {
    "wait_s": "How long to wait for the answer before taking a ticket.",
    "timeout_s": "Ends the job and all its processes after this time.",
    "dry_run": "Show what would run, and run nothing.",
    "confirm": "Run even if it is expected to take long or to hold many GPUs.",
}
SHARED = frozenset(JobParams.model_fields)
_CHECKED = {"minLength", "maxLength", "minItems", "maxItems"}
_OBVIOUS = ({"minimum": 0}, {"minimum": 1}, {"exclusiveMinimum": 0})


def input_schema(tool: Tool) -> dict[str, Any]:
    """The tool's parameters as JSON Schema: no titles, no null branches, no references, unknown names refused.

    Required ones come first, and those of all jobs last. Its parts are shared: do not change them.
    """
    return dict(_schema(tool.params))


@functools.cache
def _schema(params: type[Params]) -> dict[str, Any]:
    full = params.model_json_schema()
    slim: dict[str, Any] = {"type": "object"}
    parts: dict[str, Any] = full.get("properties", {})
    required = full.get("required", ())
    in_order = sorted(parts, key=lambda name: (name in SHARED, name not in required))
    properties = {name: _property(name, parts[name], full.get("$defs", {})) for name in in_order}
    if properties:
        slim["properties"] = properties
    if full.get("required"):
        slim["required"] = full["required"]
    slim["additionalProperties"] = False
    return slim


def lean_schema(tool: Tool) -> dict[str, Any]:
    """The same for models, without details that are checked anyway and do not change how a call is written:

    the length of a text or a list, lower bounds of 0 and 1, defaults of switches that are off, and the bounds of the
    arguments of every job tool, which the server's instructions state once.
    """
    schema = input_schema(tool)
    if "properties" in schema:
        schema["properties"] = {name: _lean(name, part) for name, part in schema["properties"].items()}
    return schema


def _lean(name: str, part: dict[str, Any]) -> dict[str, Any]:
    if name in SHARED:
        return {"type": part["type"]}
    return {
        key: value
        for key, value in part.items()
        if key not in _CHECKED and not (key == "default" and value is False) and {key: value} not in _OBVIOUS
    }


def _property(name: str, part: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    slim = _slim(part, defs)
    if name in SHARED:
        slim.pop("description", None)
    return slim


def _slim(part: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    """One schema node with references resolved and everything removed that a model does not need."""
    if "$ref" in part:
        target = dict(defs[part["$ref"].rpartition("/")[2]])
        target.pop("description", None)
        part = {**target, **{key: value for key, value in part.items() if key != "$ref"}}
    slim: dict[str, Any] = {}
    for key, value in part.items():
        if key == "title" or (key == "default" and value is None):
            continue
        if key == "anyOf":
            slim.update(_union(value, defs))
        elif key == "items" and isinstance(value, dict):
            slim[key] = _slim(value, defs)
        elif key == "properties":
            slim[key] = {name: _slim(inner, defs) for name, inner in value.items()}
        else:
            slim[key] = value
    return slim


def _union(branches: list[dict[str, Any]], defs: dict[str, Any]) -> dict[str, Any]:
    """Drop the branch for null: it only says that the argument may be left out, as does `required`."""
    rest = [_slim(branch, defs) for branch in branches if branch.get("type") != "null"]
    return rest[0] if len(rest) == 1 else {"anyOf": rest}
