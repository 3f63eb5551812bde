"""From words to a tool's raw arguments. What does not fit is passed on unchanged: dispatch refuses it in its words."""

from __future__ import annotations

import argparse
import inspect
import json
from collections.abc import Sequence
from typing import Any, NoReturn

from aisp_mcp.errors import UsageError
from aisp_mcp.front.cli.commands import command_line, flag, positionals
from aisp_mcp.front.options import add_executor, add_home, add_shared
from aisp_mcp.server.dispatch import SHARED_HELP, input_schema
from aisp_mcp.server.registry import Tool

_ONE_AT_A_TIME = {"bench_root"}  # so that bare words may follow the flag
_UNITS = {"gb", "mb", "kb", "ms", "s", "b"}
_KINDS = {"integer": "N", "number": "X", "string": "TEXT", "object": "JSON"}


class Parser(argparse.ArgumentParser):
    """Raises instead of exiting, so that there is one way to report an error. names: the tool's own arguments."""

    names: tuple[str, ...] = ()

    def error(self, message: str) -> NoReturn:
        raise UsageError("BAD_COMMAND_LINE", message[:1].upper() + message[1:] + ".", f"See {self.prog} --help")


def tool_parser(tool: Tool) -> Parser:
    """The parser of one command; nothing is built for the others."""
    parser = Parser(
        prog=f"aisp {tool.cli}",
        description=inspect.getdoc(tool.fn),
        epilog=_epilog(tool),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    properties = input_schema(tool).get("properties", {})
    parser.names = tuple(properties)
    places = positionals(tool)
    if places:
        parser.add_argument("_words", nargs="*", metavar=places[0].upper(), help=argparse.SUPPRESS)
    for name, schema in properties.items():
        _add(parser, name, schema, name in input_schema(tool).get("required", ()))
    parser.add_argument("--json", action="store_true", dest="_json", help="print the answer as JSON, as MCP gives it")
    add_shared(parser, properties)
    add_home(parser)
    if tool.job is not None:
        add_executor(parser, set(properties))
    return parser


def parse(tool: Tool, argv: Sequence[str]) -> tuple[dict[str, Any], argparse.Namespace]:
    """Raw arguments for the tool, and the front's own options. Words after `--` are taken as they are.

    Raises UsageError.
    """
    words, verbatim = _split(argv)
    parser = tool_parser(tool)
    words, unknown = _take_unknown(words, parser)
    known = parser.parse_intermixed_args(words)
    schema = input_schema(tool).get("properties", {})
    raw: dict[str, Any] = {}
    for name, part in schema.items():
        value = getattr(known, name, None)
        if value is not None:
            raw[name] = convert(value, part)
    _place(tool, raw, schema, getattr(known, "_words", []), verbatim)
    return {**raw, **unknown}, known


def convert(value: Any, schema: dict[str, Any]) -> Any:
    """Text to the type the schema names; text that has no such form stays text."""
    if isinstance(value, bool):
        return value
    for branch in schema.get("anyOf", [schema]):
        converted = _branch(value, branch)
        if converted is not None:
            return converted
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _branch(value: Any, schema: dict[str, Any]) -> Any:
    kind = schema.get("type")
    if kind == "array":
        return [convert(item, schema.get("items", {})) for item in _items(value)]
    text = value[0] if isinstance(value, list) and len(value) == 1 else value
    if not isinstance(text, str):
        return None
    try:
        if kind in ("integer", "number"):
            return int(text) if kind == "integer" else float(text)
        if kind == "object":
            return json.loads(text)
    except ValueError:
        return None
    return text


def _items(value: Any) -> list[str]:
    """`a b`, `a,b` and `["a", "b"]` are the same list."""
    words = value if isinstance(value, list) else [value]
    items: list[str] = []
    for word in words:
        if word.startswith("["):
            try:
                items += [item if isinstance(item, str) else json.dumps(item) for item in json.loads(word)]
                continue
            except ValueError:
                pass
        items += [part for part in word.split(",") if part]
    return items


def _place(
    tool: Tool, raw: dict[str, Any], schema: dict[str, Any], words: Sequence[str], verbatim: Sequence[str]
) -> None:
    """Give bare words to the arguments that may stand without a flag, in order; a list takes all that is left."""
    free = [name for name in positionals(tool) if name not in raw]
    left = list(words)
    for name in free:
        if not left and not verbatim:
            break
        if schema[name].get("type") == "array":
            raw[name] = [*convert(left, schema[name]), *verbatim] if left else list(verbatim)
            left, verbatim = [], []
        else:
            raw[name] = convert(left.pop(0) if left else verbatim[0], schema[name])
            verbatim = verbatim if left or words else verbatim[1:]
    extra = [*left, *verbatim]
    if extra:
        raise UsageError("BAD_COMMAND_LINE", f"Not expected: {' '.join(extra)[:80]}", f"See aisp {tool.cli} --help")


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    words = list(argv)
    if "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


def _take_unknown(words: Sequence[str], parser: Parser) -> tuple[list[str], dict[str, Any]]:
    """Flags nobody knows, as arguments nobody knows: the refusal, with its did-you-mean, is dispatch's."""
    kept: list[str] = []
    unknown: dict[str, Any] = {}
    name: str | None = None
    for word in words:
        if word.startswith("--"):
            written, given, value = word.partition("=")
            known = written in parser._option_string_actions
            name = None if known else written[2:].replace("-", "_")
            if name is None:
                kept.append(word)
            else:
                unknown[name] = _guess(value) if given else True
        elif name is not None and unknown[name] is True:
            unknown[name] = _guess(word)
        else:
            kept.append(word)
    return kept, unknown


def _guess(text: str) -> Any:
    """The value of a flag nobody knows, so that the call that was meant can be offered whole."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _add(parser: Parser, name: str, schema: dict[str, Any], required: bool) -> None:
    said = schema.get("description") or SHARED_HELP.get(name, "")
    help_text = f"{said}{_bounds(name, schema, required)}".replace("%", "%%")
    if schema.get("type") == "boolean":
        parser.add_argument(flag(name), dest=name, default=None, action=argparse.BooleanOptionalAction, help=help_text)
        return
    branches = schema.get("anyOf", [schema])
    is_list = any(branch.get("type") == "array" for branch in branches)
    shown = schema.get("items", schema).get("type", "string")
    how: dict[str, Any] = {"action": "append"} if name in _ONE_AT_A_TIME else {"nargs": "+", "action": "extend"}
    parser.add_argument(
        *_spellings(parser, name), dest=name, metavar=_KINDS.get(shown, "VALUE"), help=help_text,
        **(how if is_list else {}),
    )  # fmt: skip


def _spellings(parser: Parser, name: str) -> list[str]:
    """The flag, and without its unit where nothing else is called so: `--vram-gb` and `--vram`."""
    short = flag(name.rpartition("_")[0]) if name.rpartition("_")[2] in _UNITS else ""
    taken = {flag(other) for other in parser.names} | set(parser._option_string_actions)
    return [flag(name), short] if len(short) > 2 and short not in taken else [flag(name)]


def _bounds(name: str, schema: dict[str, Any], required: bool) -> str:
    facts = []
    choices = schema.get("enum") or schema.get("items", {}).get("enum")
    if choices:
        facts.append(" | ".join(map(str, choices)))
    for key, word in (("minimum", "from"), ("exclusiveMinimum", "above"), ("maximum", "to")):
        if key in schema:
            facts.append(f"{word} {schema[key]:g}")
    if required:
        facts.append("required")
    elif name == "wait_s":
        facts.append("default: to the end")
    elif schema.get("default") not in (None, [], {}, ""):
        facts.append(f"default {schema['default']}")
    return f" [{', '.join(facts)}]" if facts else ""


def _epilog(tool: Tool) -> str:
    lines = [f"MCP tool: {tool.name}"]
    if tool.needs:
        lines.append(f"Needs: {', '.join(tool.needs)}")
    if tool.next:
        lines.append("Next: " + ", ".join(command_line(name, {}) for name in tool.next))
    return "\n".join(lines)
