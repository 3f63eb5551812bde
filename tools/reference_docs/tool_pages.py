"""Reference pages of the tools: an index, one page for each family, and the list of commands."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from aisp_mcp.front.cli.commands import flag, positionals
from aisp_mcp.front.mcp.instructions import instructions
from aisp_mcp.server.dispatch import SHARED_HELP, input_schema, select
from aisp_mcp.server.registry import Tool
from aisp_mcp.settings import ToolSettings

FOLDER = "docs/tools"
_JOB_ARGUMENTS = "arguments-of-jobs"
_BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def tool_pages(tools: Sequence[Tool]) -> dict[str, str]:
    """All pages about tools by path from the repository's root, without the marker of generated files."""
    families = {family: list(group) for family, group in groupby(tools, key=lambda tool: tool.family)}
    homes = {tool.name: f"{tool.family}.md#{tool.name}" for tool in tools}
    pages = {f"{FOLDER}/{family}.md": _family_page(family, group, homes) for family, group in families.items()}
    return {**pages, f"{FOLDER}/index.md": _index_page(families, homes), "docs/cli.md": _commands_page(tools, homes)}


_INDEX_HEAD = """\
# Tools

Every tool is an MCP tool and a command: `aisp_run_benchmarks` is `aisp bench run`. The page of a family shows each of
its tools with its arguments, by the names that MCP uses and as flags on the command line. [Commands](../cli.md) lists
all commands, and explains how they are written and what their exit codes mean.

The line below a tool's command gives its effect (whether it only reads, or also writes files or runs programs), its
usual cost (milliseconds, seconds or minutes), what it needs, and the tools that are often called next.

## Families

| family | about | tools |
| --- | --- | --- |"""

_ARGUMENTS_HEAD = """\
## Arguments of jobs

Tools marked as jobs also take these. The default of `timeout_s` is given for each tool.

| argument | flag | type | default | |
| --- | --- | --- | --- | --- |"""


def _index_page(families: dict[str, list[Tool]], homes: dict[str, str]) -> str:
    lines = [_INDEX_HEAD]
    for family, group in families.items():
        tools = ", ".join(f"[{tool.name}]({homes[tool.name]})" for tool in group)
        lines.append(f"| [{family}]({family}.md) | {_cell(_about(group))} | {tools} |")
    job = next(tool for group in families.values() for tool in group if tool.job is not None)
    properties = input_schema(job)["properties"]
    lines += ["", _ARGUMENTS_HEAD, *(_row(name, properties[name], required=False) for name in SHARED_HELP)]
    lines += [
        "",
        "## Instructions for clients",
        "",
        "The server sends this text to every client once. It names only tools that the server's options leave:",
        "",
    ]
    lines += ["> " + line if line else ">" for line in instructions(select(ToolSettings())).rstrip().splitlines()]
    return "\n".join(lines) + "\n"


def _family_page(family: str, tools: Sequence[Tool], homes: dict[str, str]) -> str:
    lines = [f"# Tools: {family}", "", _about(tools)]
    for tool in tools:
        lines += ["", *_tool(tool, homes)]
    return "\n".join(lines) + "\n"


def _about(tools: Sequence[Tool]) -> str:
    """First paragraph of the docstring of the family's module."""
    doc = inspect.getdoc(sys.modules[tools[0].fn.__module__]) or ""
    return " ".join(doc.split("\n\n")[0].split())


def _tool(tool: Tool, homes: dict[str, str]) -> Iterator[str]:
    schema = input_schema(tool)
    yield from (f"## {tool.name}", "", (inspect.getdoc(tool.fn) or "").strip())
    yield from ("", "```bash", _usage(tool, schema), "```", "", " · ".join(_facts(tool, homes)))
    arguments = {
        name: part for name, part in schema.get("properties", {}).items() if tool.job is None or name not in SHARED_HELP
    }
    if arguments:
        yield from ("", "| argument | flag | type | default | |", "| --- | --- | --- | --- | --- |")
        yield from (_row(name, part, name in schema.get("required", ())) for name, part in arguments.items())
    if tool.result.model_fields:
        yield from ("", f"Result: {', '.join(f'`{name}`' for name in tool.result.model_fields)}.")


def _usage(tool: Tool, schema: dict[str, Any]) -> str:
    """The command with the arguments that need no flag; optional arguments are in brackets."""
    words = ["aisp", tool.cli]
    for name in positionals(tool):
        word = name.upper() + (" ..." if schema["properties"][name].get("type") == "array" else "")
        words.append(word if name in schema.get("required", ()) else f"[{word}]")
    return " ".join(words)


def _facts(tool: Tool, homes: dict[str, str]) -> Iterator[str]:
    yield f"effect: {tool.effect}"
    yield f"cost: {tool.cost}"
    if tool.job is not None:
        lock = ", holds the measuring lock" if tool.job.measures else ""
        yield f"[job](index.md#{_JOB_ARGUMENTS}), ends after {tool.job.timeout_s:g} s by default{lock}"
    if tool.needs:
        yield f"needs: {', '.join(tool.needs)}"
    if tool.next:
        yield f"next: {', '.join(f'[{name}]({homes[name]})' if name in homes else name for name in tool.next)}"
    if tool.aliases:
        yield f"also called: {', '.join(tool.aliases)}"


_COMMANDS_HEAD = """\
# Commands

A command is written `aisp GROUP VERB`. With `--help` it explains itself, and with `--json` it prints the answer exactly
as MCP gives it. The arguments of each command are on the page of its [tool](tools/index.md).

- An argument `job_id` is the flag `--job-id`. The required arguments, or else the first optional one, need no flag.
- A switch such as `--dry-run` is turned off by `--no-dry-run`.
- Lists are written `--targets a b` or `--targets a,b`.
- Words after `--` are passed on unchanged.
- A command that starts a job follows it to its end, unless `--wait-s` is given.

`aisp doctor` is not a tool: it checks the server and the clients on this machine ([clients](clients.md)).

| exit code | meaning |
| --- | --- |
| 0 | done, or a job that is still running (with `--wait-s`) |
| 1 | the tool answered with an error |
| 2 | the command line or an argument is wrong |
| 3 | a verdict was not passed: something is slower, incorrect, invalid or broken |
| 4 | undecided: a comparison is inconclusive, or `aisp keep` needs more runs; gates exit with 0, with `--strict` 3 |
| 5 | broken: nothing could be judged, because a program, a generator or a checker failed |
"""


def _commands_page(tools: Sequence[Tool], homes: dict[str, str]) -> str:
    lines = [_COMMANDS_HEAD]
    by_command = sorted(tools, key=lambda tool: tool.cli.split())
    for group, members in groupby(by_command, key=lambda tool: tool.cli.split()[0]):
        lines += [f"## {group}", "", "| command | what it does | tool |", "| --- | --- | --- |"]
        for tool in members:
            lines.append(f"| `aisp {tool.cli}` | {_cell(tool.summary)} | [{tool.name}](tools/{homes[tool.name]}) |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _row(name: str, part: dict[str, Any], required: bool) -> str:
    flags = f"`{flag(name)}`"
    if part.get("type") == "boolean" and part.get("default") is True:
        flags += f", `--no-{name.replace('_', '-')}`"
    default = f"`{json.dumps(part['default'], ensure_ascii=False)}`" if "default" in part else ""
    text = _cell(part.get("description") or SHARED_HELP.get(name, ""))
    return f"| `{name}` | {flags} | {_kind(part)} | {'required' if required else default} | {text} |"


def _kind(part: dict[str, Any]) -> str:
    """The type in words, with its bounds."""
    if "anyOf" in part:
        return " or ".join(_kind(branch) for branch in part["anyOf"])
    if "enum" in part:
        return ", ".join(f"`{choice}`" for choice in part["enum"])
    if part.get("type") == "array":
        return f"list of {_kind(part.get('items', {}))}"
    bounds = [f"{sign} {part[key]:g}" for key, sign in _BOUNDS.items() if key in part]
    return " ".join([str(part.get("type", "any")), ", ".join(bounds)]).strip()


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
