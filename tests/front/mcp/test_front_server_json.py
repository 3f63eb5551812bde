"""server.json says what the registry's schema (2025-12-11) asks for, and what this package is."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

from aisp_mcp import __version__

ROOT = Path(__file__).resolve().parents[3]
# What the schema defines, by object: the fields that must be there, and the others. It allows unknown ones, so that a
# misspelt name would pass.
SERVER = ({"name", "description", "version"}, {"$schema", "title", "packages", "remotes", "repository", "websiteUrl"})
PACKAGE = (
    {"registryType", "identifier", "transport"},
    {"version", "runtimeHint", "runtimeArguments", "packageArguments", "environmentVariables", "registryBaseUrl"},
)
VARIABLE = (
    {"name"},
    {"description", "format", "default", "isSecret", "isRequired", "choices", "placeholder", "value", "variables"},
)


def test_every_field_is_one_that_the_schema_defines() -> None:
    document = json.loads((ROOT / "server.json").read_text("utf-8"))
    assert document["$schema"] == "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
    [package] = document["packages"]
    variables = [(VARIABLE, variable) for variable in package["environmentVariables"]]
    for (required, optional), item in [(SERVER, document), (PACKAGE, package), *variables]:
        assert required <= set(item) <= required | optional
    assert 3 <= len(document["name"]) <= 200
    for version in (document["version"], package["version"]):
        assert re.fullmatch(r"\d+\.\d+\.\d+", version)  # one version, not a range, not "latest"
    for _, variable in variables:
        assert all(isinstance(variable[name], bool) for name in ("isSecret", "isRequired") if name in variable)
        assert re.fullmatch(r"[A-Z][A-Z0-9_]*", variable["name"])


def test_the_entry_of_the_registry_is_complete_and_true() -> None:
    document = json.loads((ROOT / "server.json").read_text("utf-8"))
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", document["name"])
    assert 1 <= len(document["description"]) <= 100
    assert 1 <= len(document["title"]) <= 100
    [package] = document["packages"]
    assert document["version"] == package["version"] == __version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert (package["registryType"], package["identifier"]) == ("pypi", project["name"])
    assert package["identifier"] in project["scripts"]  # what uvx runs
    assert package["transport"] == {"type": "stdio"}


def test_every_setting_is_described() -> None:
    [package] = json.loads((ROOT / "server.json").read_text("utf-8"))["packages"]
    variables = {variable["name"]: variable for variable in package["environmentVariables"]}
    assert {"AISP_HOME", "AISP_LLM_KEY"} <= set(variables)
    assert variables["AISP_LLM_KEY"]["isSecret"] is True
    for variable in variables.values():
        assert variable["description"]
        assert variable.get("format", "string") in ("string", "number", "boolean", "filepath")
        assert isinstance(variable.get("default", ""), str)


def test_the_readme_carries_the_name_that_the_package_index_is_asked_for() -> None:
    name = json.loads((ROOT / "server.json").read_text("utf-8"))["name"]
    assert f"<!-- mcp-name: {name} -->" in (ROOT / "README.md").read_text("utf-8")
