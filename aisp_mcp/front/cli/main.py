"""Entry point of the command line `aisp`. Exit codes: 0 ok, 1 error, 2 usage, 3 not passed."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from aisp_mcp import __version__
from aisp_mcp.errors import AispError

HEAD = """usage: aisp GROUP VERB [options]
       aisp doctor [--client NAME]     check the server and the MCP clients on this machine
       aisp bench tui [--simple]       jobs, targets and verdicts on one screen
       aisp dashboard [export DIR]     web pages of runs, machine and jobs, or export them
       aisp --list [--json] | --version | --help

Measure, profile and explain AI workloads on this machine, and judge whether a claimed speed-up is true.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(argv)
    except AispError as error:
        return report_error(error)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe; write nothing on the way out either.
        sys.stderr.close()
        return 0


def _run(argv: list[str]) -> int:
    if argv[:1] == ["--version"]:
        print(__version__)
        return 0
    if argv[:1] == ["doctor"]:
        from aisp_mcp.front.doctor import command

        return command.run(argv[1:])
    if argv[:2] == ["bench", "tui"]:
        from aisp_mcp.front.tui import command as tui

        return tui.run(argv[2:])
    if argv[:1] == ["dashboard"]:
        from aisp_mcp.front.dashboard import command as dashboard

        return dashboard.run(argv[1:])
    from aisp_mcp.front.cli.aliases import resolve_alias
    from aisp_mcp.server.dispatch import load_command
    from aisp_mcp.settings import Settings

    load_command(resolve_alias(tuple(argv)), Settings.from_env())
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if argv[0] == "--list":
        return _list(argv[1:])
    group_only = len(argv) == 1 or argv[1] in ("-h", "--help")
    if group_only and (page := _group(argv[0])):
        print(page)
        return 0
    from aisp_mcp.front.cli import commands, run

    tool, rest = commands.find(argv)
    return run.run(tool, rest)


def report_error(error: AispError) -> int:
    """Print an error in the command line itself, and return its exit code."""
    from aisp_mcp.front import terminal_text

    print(f"error {error.code}: {terminal_text.escape(error.message)}", file=sys.stderr)
    if error.hint:
        print(f"hint: {terminal_text.escape(error.hint)}", file=sys.stderr)
    return error.exit_code


def _list(rest: Sequence[str]) -> int:
    from aisp_mcp.front.cli import listing

    print(listing.as_json() if "--json" in rest else listing.as_text())
    return 0


def _overview() -> str:
    """All commands by group, one line each."""
    from aisp_mcp.front.cli import commands

    width = max((len(tool.cli) for tools in commands.groups().values() for tool in tools), default=0)
    lines = [HEAD]
    for name, tools in commands.groups().items():
        lines.append(f"{name}:")
        lines += [f"  aisp {tool.cli:<{width}}  {tool.summary}" for tool in tools]
    lines.append("\nEvery command has --help and --json.")
    return "\n".join(lines)


def _group(name: str) -> str | None:
    """List the commands of a group; None if the word is itself a command or not a group."""
    from aisp_mcp.front.cli import commands

    tools = commands.groups().get(name)
    if tools is None or (name,) in commands.by_words():
        return None
    width = max(len(tool.cli) for tool in tools)
    lines = [f"usage: aisp {name} VERB [options]", ""]
    return "\n".join([*lines, *(f"  aisp {tool.cli:<{width}}  {tool.summary}" for tool in tools)])


if __name__ == "__main__":
    sys.exit(main())
