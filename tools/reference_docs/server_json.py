"""server.json, which describes this package to the MCP registry."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from aisp_mcp import __version__
from aisp_mcp.settings import TABLES

SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
# The publisher must own the namespace before the slash; README.md repeats the name for the package index.
NAME = "io.github.aisp-mcp/aisp"
DESCRIPTION = "Measure, profile and explain AI workloads; judge whether a claimed speed-up is true."
_FORMATS = {"Path": "filepath", "int": "number", "float": "number", "bool": "boolean"}


def server_json() -> str:
    """Return the file's text, with the version and settings of the package."""
    package = {
        "registryType": "pypi",
        "identifier": "aisp-mcp",
        "version": __version__,
        "runtimeHint": "uvx",
        "transport": {"type": "stdio"},
        "environmentVariables": [_variable(item) for table in TABLES for item in dataclasses.fields(table)],
    }
    document = {
        "$schema": SCHEMA,
        "name": NAME,
        "title": "AI systems performance",
        "description": DESCRIPTION,
        "version": __version__,
        "packages": [package],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _variable(item: dataclasses.Field[Any]) -> dict[str, Any]:
    name = item.metadata["env"]
    variable: dict[str, Any] = {"name": name, "description": item.metadata["help"]}
    if (value_format := _FORMATS.get(str(item.type))) is not None:
        variable["format"] = value_format
    if item.default not in (None, ""):
        variable["default"] = str(item.default).lower() if isinstance(item.default, bool) else str(item.default)
    return {**variable, "isSecret": True} if name.endswith("_KEY") else variable
