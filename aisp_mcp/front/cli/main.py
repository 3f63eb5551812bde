"""Entry point of the command line `aisp`. Exit codes: 0 ok, 1 error, 2 usage, 3 not passed, 4 undecided, 5 broken."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from aisp_mcp import __version__
from aisp_mcp.errors import AispError
from aisp_mcp.server import catalog
from aisp_mcp.server.catalog import Command

HEAD = """usage: aisp GROUP VERB [options]
       aisp doctor [--client NAME]     check the server and the MCP clients on this machine
       aisp bench tui [--simple]       jobs, targets and verdicts on one screen
       aisp serve-judge [--workers N]  judge submissions of many clients over HTTP
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
    if argv[:1] == ["serve-judge"]:
        from aisp_mcp.front.mcp import main as server

        return server.serve_judge(argv[1:])
    if argv[:2] == ["bench", "tui"]:
        from aisp_mcp.front.tui import command as tui

        return tui.run(argv[2:])
    if argv[:1] == ["dashboard"]:
        from aisp_mcp.front.dashboard import command as dashboard

        return dashboard.run(argv[1:])
    if (page := _page(argv)) is not None:
        print(page)
        return 0
    from aisp_mcp.front.cli.aliases import resolve_alias
    from aisp_mcp.server.dispatch import load_command
    from aisp_mcp.settings import Settings

    load_command(resolve_alias(tuple(argv)), Settings.from_env())
    if argv[0] == "--list":
        return _list(argv[1:])
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


def _page(argv: Sequence[str]) -> str | None:
    """The overview, or the commands of a group; None for other words. It imports no tool unless users added some."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        return _overview(_groups())
    if argv[0].startswith("-") or not (len(argv) == 1 or argv[1] in ("-h", "--help")):
        return None
    return _group(argv[0], _groups().get(argv[0], []))


def _groups() -> dict[str, list[Command]]:
    """All commands by their first word, sorted."""
    rows = catalog.commands()
    if os.environ.get("AISP_TOOL_MODULES"):
        from aisp_mcp.server import registry
        from aisp_mcp.server.dispatch import load_catalog
        from aisp_mcp.settings import Settings

        load_catalog(Settings.from_env())
        rows = sorted(Command(tool.cli, tool.summary) for tool in registry.tools())
    groups: dict[str, list[Command]] = {}
    for row in rows:
        groups.setdefault(row.cli.split()[0], []).append(row)
    return groups


def _overview(groups: dict[str, list[Command]]) -> str:
    """All commands by group, one line each."""
    width = max((len(row.cli) for rows in groups.values() for row in rows), default=0)
    lines = [HEAD]
    for name, rows in groups.items():
        lines.append(f"{name}:")
        lines += [f"  aisp {row.cli:<{width}}  {row.summary}" for row in rows]
    lines.append("\nEvery command has --help and --json.")
    return "\n".join(lines)


def _group(name: str, rows: list[Command]) -> str | None:
    """List the commands of a group; None if the word is itself a command or not a group."""
    if not rows or any(row.cli == name for row in rows):
        return None
    width = max(len(row.cli) for row in rows)
    lines = [f"usage: aisp {name} VERB [options]", ""]
    return "\n".join([*lines, *(f"  aisp {row.cli:<{width}}  {row.summary}" for row in rows)])


if __name__ == "__main__":
    sys.exit(main())
