"""Calls for the fuzz test: from a tool's own schema, valid or with something wrong about them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from aisp_mcp.server.dispatch import input_schema
from aisp_mcp.server.registry import Effect, Tool

# Texts that mean something to some tool: targets, ids, files that are there and that are not, regular expressions.
WORDS = [
    *("", "x", "ch07", "ch07:row_sum", "all", "cuda:0", "0", "-1", "1e999", "j_" + "a" * 22, "*", "(", "a,b", "--help"),
    *("/etc/passwd", "/no/such/file", "../../..", ".", "/dev/zero", "/proc/self/mem", "a\x00b", "é\u202e", "\ud800x"),
    *("report.sqlite", "http://127.0.0.1:1/", "$(reboot)", "'; drop table jobs;--", "x" * 5000),
]
NUMBERS = [0, 1, -1, 2, 10, 10**6, 2**63, -(2**63), 10**400, 0.5, -0.0, 1e308]


def odd() -> st.SearchStrategy[Any]:
    """Any JSON value, most of which do not fit."""
    plain = st.one_of(st.none(), st.booleans(), st.sampled_from(NUMBERS), st.sampled_from(WORDS), st.text(max_size=30))
    return st.recursive(plain, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner))


def fitting(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """A value the schema allows."""
    if "anyOf" in schema:
        return st.one_of([fitting(branch) for branch in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    made = {"boolean": _boolean, "integer": _integer, "number": _number, "array": _array, "object": _object}
    return made.get(schema.get("type", "string"), _string)(schema)


def _boolean(_: dict[str, Any]) -> st.SearchStrategy[Any]:
    return st.booleans()


def _integer(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    low = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
    return st.integers(low, min(schema.get("maximum", low + 1000), low + 1000))


def _number(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    low = schema.get("minimum", schema.get("exclusiveMinimum", 0))
    high = schema.get("maximum", low + 100)
    return st.floats(low, high, exclude_min="exclusiveMinimum" in schema, allow_subnormal=False)


def _string(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    limit = schema.get("maxLength", 5000)
    return st.sampled_from([w for w in WORDS if schema.get("minLength", 0) <= len(w) <= limit])


def _array(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    least = schema.get("minItems", 0)
    return st.lists(fitting(schema.get("items", {})), min_size=least, max_size=max(least, 3))


def _object(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "properties" in schema:
        return st.fixed_dictionaries({}, optional={k: fitting(v) for k, v in schema["properties"].items()})
    return st.dictionaries(st.sampled_from(["count", "tool", "args", "x"]), odd(), max_size=3)


@st.composite
def calls(draw: st.DrawFn, tools: list[Tool]) -> tuple[str, Any]:
    """(tool, arguments). Nothing is measured: a tool that runs something is only ever called for its plan."""
    tool = draw(st.sampled_from(tools))
    schema = input_schema(tool)
    properties = schema.get("properties", {})
    required = {name: fitting(properties[name]) for name in schema.get("required", ())}
    optional = {name: fitting(part) for name, part in properties.items() if name not in required}
    arguments = draw(st.fixed_dictionaries(required, optional=optional))
    if tool.effect is Effect.ANY:
        arguments = draw(st.one_of(st.just(arguments), _detour(tools)))
    arguments = draw(_mutated(arguments))
    if isinstance(arguments, dict) and "timeout_s" in arguments and tool.job is None:
        arguments["timeout_s"] = 0
    return tool.name, only_plan(tool, arguments)


def only_plan(tool: Tool, arguments: Any) -> Any:
    """The call as a dry run, if the tool has one."""
    return {**arguments, "dry_run": True} if tool.job is not None and isinstance(arguments, dict) else arguments


@st.composite
def _detour(draw: st.DrawFn, tools: list[Tool]) -> dict[str, Any]:
    """A tool called by the tool that calls tools."""
    name, arguments = draw(calls([tool for tool in tools if tool.effect is not Effect.ANY]))
    return {"tool": draw(st.sampled_from([name, name, name[:-1], "nope"])), "args": arguments}


@st.composite
def _mutated(draw: st.DrawFn, arguments: dict[str, Any]) -> Any:
    """Half of the time as it is; else one thing about it is wrong."""
    kind = draw(st.sampled_from(["none", "none", "none", "value", "value", "drop", "name", "swap"]))
    names = sorted(arguments)
    if kind == "name":
        near = draw(st.sampled_from([f"{name}s" for name in names] or ["x"]))
        return {**arguments, draw(st.sampled_from([near, "nothing_like_it", "", "a" * 300])): draw(odd())}
    if kind == "none" or not names:
        return arguments
    name = draw(st.sampled_from(names))
    rest = {key: value for key, value in arguments.items() if key != name}
    if kind == "drop":
        return rest
    return {**rest, name: draw(odd())} if kind == "value" else {**rest, f"{name}_": arguments[name]}
