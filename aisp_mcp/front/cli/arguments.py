"""Parse a command line into a tool's raw arguments. Invalid values are passed on unchanged, for dispatch to report."""

from __future__ import annotations

import argparse
import inspect
import json
import re
import shutil
from collections.abc import Sequence
from typing import Any, NoReturn

from aisp_mcp.errors import UsageError
from aisp_mcp.front.cli.commands import command_line, flag, positionals
from aisp_mcp.front.options import add_executor, add_home, add_shared
from aisp_mcp.server.dispatch import SHARED_HELP, input_schema
from aisp_mcp.server.dispatch.arguments import other_names
from aisp_mcp.server.registry import Tool

_SINGLE_VALUE = {"bench_root"}  # one value per flag, so that positional arguments may follow
_UNITS = {"gb", "mb", "kb", "ms", "s", "b"}
_METAVARS = {"integer": "N", "number": "X", "string": "TEXT", "object": "NAME=VALUE"}
QUESTION = "query"  # name of the argument that is a question in words


class Parser(argparse.ArgumentParser):
    """Raises UsageError instead of exiting. names: the tool's own arguments."""

    names: tuple[str, ...] = ()

    def error(self, message: str) -> NoReturn:
        raise UsageError("BAD_COMMAND_LINE", message[:1].upper() + message[1:] + ".", f"See {self.prog} --help")


def tool_parser(tool: Tool) -> Parser:
    """Build the parser of one command."""
    parser = Parser(
        prog=f"aisp {tool.cli}",
        usage=_usage(tool),
        description=inspect.getdoc(tool.fn),
        epilog=_epilog(tool),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    whole = input_schema(tool)
    properties, required = whole.get("properties", {}), whole.get("required", ())
    parser.names = tuple(properties)
    positional_names = positionals(tool)
    if positional_names:
        parser.add_argument("_words", nargs="*", metavar=positional_names[0].upper(), help=argparse.SUPPRESS)
    former = {new: [flag(old) for old in olds] for new, olds in _by_own_name(tool).items()}
    for name, schema in properties.items():
        _add_option(parser, name, schema, name in required, former.get(name, []))
    parser.add_argument("--json", action="store_true", dest="_json", help="print the answer as JSON, as over MCP")
    if tool.verdict:
        parser.add_argument("--why", action="store_true", dest="_why", help="print all that explains a verdict")
    add_shared(parser, properties)
    add_home(parser)
    if tool.job is not None:
        add_executor(parser, set(properties))
    return parser


def _usage(tool: Tool) -> str:
    """The form that one types: words without a flag, then that there are options."""
    properties, words = input_schema(tool).get("properties", {}), [f"aisp {tool.cli}"]
    for name in positionals(tool):
        word = name.upper().replace("_", "-")
        if name in ("command", "script"):
            return f"{words[0]} [options] [{word} [ITS OPTIONS ...]]"
        kinds = [branch.get("type") for branch in properties[name].get("anyOf", [properties[name]])]
        word += " ..." if "array" in kinds else ""
        words.append(word if tool.params.model_fields[name].is_required() else f"[{word}]")
    return " ".join([*words, "[options]"])


def parse(tool: Tool, argv: Sequence[str]) -> tuple[dict[str, Any], argparse.Namespace]:
    """Return the tool's raw arguments and the CLI's own options. Words after `--` are taken literally.

    Raises UsageError.
    """
    parser = tool_parser(tool)
    argv, raw = _take_program(tool, argv, parser)
    words, literal = _split(argv)
    words, unknown = _take_unknown(words, parser)
    options = parser.parse_intermixed_args(words)
    schema = input_schema(tool).get("properties", {})
    for name, argument_schema in schema.items():
        value = getattr(options, name, None)
        if value is not None:
            raw[name] = convert(value, argument_schema)
    words = _take_pairs(raw, schema, getattr(options, "_words", []))
    _assign_positionals(tool, raw, schema, words, literal)
    return {**raw, **unknown}, options


def _take_program(tool: Tool, argv: Sequence[str], parser: Parser) -> tuple[list[str], dict[str, Any]]:
    """Separate a program that a command runs: its name is the first word that no option takes, and all words after it
    are its own, options included. `--args` begins the arguments of a script.
    """
    takes = next((name for name in positionals(tool)[:1] if name in ("command", "script")), "")
    rest, words = list(argv), list[str]()
    while takes and rest and rest[0] != "--":
        word = rest.pop(0)
        action = parser._option_string_actions.get(word.partition("=")[0])
        if word == "--args" and "args" in parser.names:
            return words, {"args": rest}
        if not word.startswith("-"):
            return words, _program(takes, [word, *rest])
        words.append(word)
        if action is not None and action.dest in ("command", "profile"):
            break  # its words are values of this option
        if action is not None and action.nargs != 0 and "=" not in word and rest:
            words.append(rest.pop(0))
    return [*words, *rest], {}


def _program(takes: str, words: list[str]) -> dict[str, Any]:
    if takes == "command":
        return {"command": words}
    python = {}
    if re.fullmatch(r"python[\d.]*", words[0].rpartition("/")[2]) and len(words) > 1:
        python = {"python": shutil.which(words[0]) or words[0]}
        words = words[1:]
    args = words[2:] if words[1:2] == ["--args"] else words[1:]
    return {**python, "script": words[0], **({"args": args} if args else {})}


def convert(value: Any, schema: dict[str, Any]) -> Any:
    """Convert text to the type that the schema names; text that does not fit stays text."""
    if isinstance(value, bool):
        return value
    for branch in schema.get("anyOf", [schema]):
        converted = _convert_to(value, branch)
        if converted is not None:
            return converted
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _convert_to(value: Any, schema: dict[str, Any]) -> Any:
    type_name = schema.get("type")
    if type_name == "array":
        return [convert(item, schema.get("items", {})) for item in _items(value)]
    if type_name == "object":
        return _object(value if isinstance(value, list) else [value])
    text = value[0] if isinstance(value, list) and len(value) == 1 else value
    if not isinstance(text, str):
        return None
    try:
        if type_name in ("integer", "number"):
            return int(text) if type_name == "integer" else float(text)
    except ValueError:
        return None
    return text


def _object(words: Sequence[str]) -> dict[str, Any] | None:
    """Merge words such as `N=256` and `{"N": 256}`; None where one is neither."""
    values: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        whole = _guess(word) if word.lstrip().startswith("{") else {name: _guess(text)} if equals else None
        if not isinstance(whole, dict):
            return None
        values |= whole
    return values


def _items(value: Any) -> list[str]:
    """Split a list: `a b`, `a,b` and `["a", "b"]` are the same."""
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


def _take_pairs(raw: dict[str, Any], schema: dict[str, Any], words: Sequence[str]) -> list[str]:
    """Add the words that follow a first NAME=VALUE to its argument: `--set N=8 M=4`. Returns the other words."""
    name = next((name for name in raw if schema[name].get("type") == "object"), None)
    pairs = [word for word in words if word.partition("=")[0].isidentifier() and "=" in word] if name else []
    if name and isinstance(raw[name], dict):
        raw[name] |= _object(pairs) or {}
    return [word for word in words if word not in pairs]


def _assign_positionals(
    tool: Tool, raw: dict[str, Any], schema: dict[str, Any], words: Sequence[str], literal: Sequence[str]
) -> None:
    """Assign positional words to the arguments that take them, in order.

    A list takes all remaining words, and so does a question that is not in quotes.
    """
    unset = [name for name in positionals(tool) if name not in raw]
    remaining = list(words)
    for name in unset:
        if not remaining and not literal:
            break
        if schema[name].get("type") == "array":
            raw[name] = [*convert(remaining, schema[name]), *literal] if remaining else list(literal)
            remaining, literal = [], []
        elif name == QUESTION and unset == [QUESTION]:
            raw[name] = " ".join([*remaining, *literal])
            remaining, literal = [], []
        else:
            raw[name] = convert(remaining.pop(0) if remaining else literal[0], schema[name])
            literal = literal if remaining or words else literal[1:]
    extra = [*remaining, *literal]
    if extra:
        raise UsageError("BAD_COMMAND_LINE", f"Unexpected: {' '.join(extra)[:80]}", f"See aisp {tool.cli} --help")


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    words = list(argv)
    if "--" not in words:
        return words, []
    index = words.index("--")
    return words[:index], words[index + 1 :]


def _take_unknown(words: Sequence[str], parser: Parser) -> tuple[list[str], dict[str, Any]]:
    """Separate unknown flags, as unknown arguments for dispatch to report with its did-you-mean."""
    rest: list[str] = []
    unknown: dict[str, Any] = {}
    name: str | None = None
    for word in words:
        if word.startswith("--"):
            option, has_value, value = word.partition("=")
            is_known = option in parser._option_string_actions
            name = None if is_known else option[2:].replace("-", "_")
            if name is None:
                rest.append(word)
            else:
                unknown[name] = _guess(value) if has_value else True
        elif name is not None and unknown[name] is True:
            unknown[name] = _guess(word)
        else:
            rest.append(word)
    return rest, unknown


def _guess(text: str) -> Any:
    """Parse a value of unknown type: JSON, or else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _by_own_name(tool: Tool) -> dict[str, list[str]]:
    """Other names of the tool's arguments by the tool's own."""
    options: dict[str, list[str]] = {}
    for old, new in other_names(tool).items():
        options.setdefault(new, []).append(old)
    return options


def _add_option(parser: Parser, name: str, schema: dict[str, Any], required: bool, former: Sequence[str]) -> None:
    description = schema.get("description") or SHARED_HELP.get(name, "")
    help_text = f"{description}{_bounds(name, schema, required)}".replace("%", "%%")
    if schema.get("type") == "boolean":
        parser.add_argument(flag(name), dest=name, default=None, action=argparse.BooleanOptionalAction, help=help_text)
        return
    types = {branch.get("type") for branch in schema.get("anyOf", [schema])}
    type_name = schema.get("items", schema).get("type", "string")
    once: dict[str, Any] = {"action": "append"}  # per flag
    repetition = once if "object" in types or name in _SINGLE_VALUE else {"nargs": "+", "action": "extend"}
    taken: dict[str, Any] = {"dest": name, "metavar": _METAVARS.get(type_name, "VALUE")}
    taken |= repetition if types & {"array", "object"} else {}
    parser.add_argument(*_spellings(parser, name), help=help_text, **taken)
    if former:
        parser.add_argument(*former, help=argparse.SUPPRESS, **taken)


def _spellings(parser: Parser, name: str) -> list[str]:
    """The flag, and the flag without its unit unless another argument has that name: `--vram-gb` and `--vram`."""
    short = flag(name.rpartition("_")[0]) if name.rpartition("_")[2] in _UNITS else ""
    used = {flag(other) for other in parser.names} | set(parser._option_string_actions)
    return [flag(name), short] if len(short) > 2 and short not in used else [flag(name)]


def _bounds(name: str, schema: dict[str, Any], required: bool) -> str:
    limits = []
    choices = schema.get("enum") or schema.get("items", {}).get("enum")
    if choices:
        limits.append(" | ".join(map(str, choices)))
    for key, word in (("minimum", "from"), ("exclusiveMinimum", "above"), ("maximum", "to")):
        if key in schema:
            limits.append(f"{word} {schema[key]:g}")
    if required:
        limits.append("required")
    elif name == "wait_s":
        limits.append("default: until the job ends")
    elif schema.get("default") not in (None, [], {}, ""):
        limits.append(f"default {schema['default']}")
    return f" [{', '.join(limits)}]" if limits else ""


def _epilog(tool: Tool) -> str:
    lines = [f"MCP tool: {tool.name}"]
    if tool.needs:
        lines.append(f"Needs: {', '.join(tool.needs)}")
    if tool.next:
        lines.append("Next: " + ", ".join(command_line(name, {}) for name in tool.next))
    return "\n".join(lines)
