"""Configuration files of MCP clients, and the form of an entry."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aisp_mcp.jobs.environment import remembered
from aisp_mcp.process import python

NAME = "aisp"


@dataclass(frozen=True)
class ConfigFile:
    """A configuration file. keys: path to the object of servers by name. own: only the user writes it."""

    path: Path
    keys: tuple[str, ...]
    own: bool = True


@dataclass(frozen=True)
class Client:
    """An MCP client. files: the entry is written to the first; the others are only checked."""

    name: str
    title: str
    files: tuple[ConfigFile, ...]
    instead: str | None = None


def clients() -> tuple[Client, ...]:
    """Return the known clients, with their files for this user and the current folder."""
    home, here = Path.home(), Path.cwd()
    settings = _settings_folder(home)
    servers, mcp_servers = ("servers",), ("mcpServers",)
    claude_file = home / ".claude.json"
    return (
        Client(
            "claude-code",
            "Claude Code",
            (
                ConfigFile(here / ".mcp.json", mcp_servers, own=False),
                ConfigFile(claude_file, mcp_servers),
                ConfigFile(claude_file, ("projects", str(here), "mcpServers")),
            ),
            f"claude mcp add --scope user {NAME} -- {shlex.join(_command())}",
        ),
        Client(
            "claude-desktop",
            "Claude Desktop",
            (ConfigFile(settings / "Claude" / "claude_desktop_config.json", mcp_servers),),
        ),
        Client(
            "cursor",
            "Cursor",
            (
                ConfigFile(home / ".cursor" / "mcp.json", mcp_servers),
                ConfigFile(here / ".cursor" / "mcp.json", mcp_servers, own=False),
            ),
        ),
        Client(
            "vscode",
            "VS Code",
            (
                ConfigFile(settings / "Code" / "User" / "mcp.json", servers),
                ConfigFile(here / ".vscode" / "mcp.json", servers, own=False),
            ),
        ),
    )


def entry() -> dict[str, Any]:
    """Return a client's entry, complete because clients started from a desktop lack this shell's PATH and variables."""
    command, *args = _command()
    fields: dict[str, Any] = {"type": "stdio", "command": command, "args": args}
    if env := _own_settings(os.environ):
        fields["env"] = env
    return fields


def _command() -> list[str]:
    program = shutil.which("aisp-mcp", path=str(Path(sys.executable).parent))
    return [program] if program else python.module("aisp_mcp")


def _own_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of this shell without keys, which the user must add."""
    return {name: value for name, value in sorted(remembered(environ).items()) if name.startswith("AISP_") and value}


def _settings_folder(home: Path) -> Path:
    if sys.platform == "darwin":
        return home / "Library" / "Application Support"
    return Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
