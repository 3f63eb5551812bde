"""MCP clients: their configuration files, the form of our entry, and changes that keep a file's other content."""

from __future__ import annotations

import difflib
import json
import os
import shlex
import shutil
import stat
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aisp_mcp.errors import Refused, UsageError
from aisp_mcp.jobs.environment import remembered
from aisp_mcp.process import python
from aisp_mcp.store.files import write_atomic

NAME = "aisp"


@dataclass(frozen=True)
class ConfigFile:
    """A configuration file. keys: path to the object of servers by name. own: only the user writes it."""

    path: Path
    keys: tuple[str, ...]
    own: bool = True


@dataclass(frozen=True)
class McpClient:
    """An MCP client. files: the entry is written to the first; the others are only checked."""

    name: str
    title: str
    files: tuple[ConfigFile, ...]
    instead: str | None = None


def clients() -> tuple[McpClient, ...]:
    """Return the known clients, with their files for this user and the current folder."""
    home, here = Path.home(), Path.cwd()
    settings = _settings_folder(home)
    servers, mcp_servers = ("servers",), ("mcpServers",)
    claude_file = home / ".claude.json"
    return (
        McpClient(
            "claude-code",
            "Claude Code",
            (
                ConfigFile(here / ".mcp.json", mcp_servers, own=False),
                ConfigFile(claude_file, mcp_servers),
                ConfigFile(claude_file, ("projects", str(here), "mcpServers")),
            ),
            f"claude mcp add --scope user {NAME} -- {shlex.join(_command())}",
        ),
        McpClient(
            "claude-desktop",
            "Claude Desktop",
            (ConfigFile(settings / "Claude" / "claude_desktop_config.json", mcp_servers),),
        ),
        McpClient(
            "cursor",
            "Cursor",
            (
                ConfigFile(home / ".cursor" / "mcp.json", mcp_servers),
                ConfigFile(here / ".cursor" / "mcp.json", mcp_servers, own=False),
            ),
        ),
        McpClient(
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


@dataclass(frozen=True)
class ConfigChange:
    """A file's content before and after the change. before: None if the file does not exist."""

    path: Path
    before: bytes | None
    after: str

    @property
    def needed(self) -> bool:
        return self.before is None or self.before.decode() != self.after

    def difference(self) -> str:
        old = (self.before or b"").decode().splitlines()
        lines = difflib.unified_diff(old, self.after.splitlines(), str(self.path), str(self.path), lineterm="")
        return "\n".join(lines)


def find_entry(file: ConfigFile) -> dict[str, Any] | None:
    """Return our entry in a file, or None. Raises UsageError UNREADABLE_CONFIG."""
    data: Any = _parse(file.path, _read(file.path))
    for key in file.keys:
        data = data.get(key) if isinstance(data, dict) else None
    entry = data.get(NAME) if isinstance(data, dict) else None
    return entry if isinstance(entry, dict) else None


def plan_change(file: ConfigFile, entry: dict[str, Any]) -> ConfigChange:
    """Return the change that sets our entry. Raises UsageError UNREADABLE_CONFIG."""
    path = file.path.resolve()  # so that a symbolic link stays one
    before = _read(path)
    data = _parse(path, before)
    servers = data
    for key in file.keys:
        servers = servers.setdefault(key, {})
        if not isinstance(servers, dict):
            raise _unreadable(path, f"{key!r} is not an object")
    servers[NAME] = entry
    return ConfigChange(path, before, json.dumps(data, indent=_indent(before), ensure_ascii=False) + "\n")


def apply_change(change: ConfigChange) -> Path | None:
    """Write atomically; returns the backup of the old content. Raises Refused CONFIG_CHANGED, OSError."""
    if _read(change.path) != change.before:
        raise Refused("CONFIG_CHANGED", f"{change.path} was changed by its client in the meantime.", "Run this again.")
    change.path.parent.mkdir(parents=True, exist_ok=True)
    if change.before is None:
        write_atomic(change.path, change.after, 0o600)
        return None
    mode = stat.S_IMODE(change.path.stat().st_mode)
    backup = change.path.with_name(f"{change.path.name}.{time.strftime('%Y%m%d-%H%M%S')}.bak")
    write_atomic(backup, change.before, mode)
    write_atomic(change.path, change.after, mode)
    return backup


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, str(error.strerror)) from None


def _parse(path: Path, raw: bytes | None) -> dict[str, Any]:
    if raw is None or not raw.strip():
        return {}
    try:
        data = json.loads(raw.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        # Some clients allow comments and trailing commas, which rewriting the file would lose.
        raise _unreadable(path, f"not plain JSON ({error})") from None
    if not isinstance(data, dict):
        raise _unreadable(path, "not a JSON object")
    return data


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("duplicate name")
    return fields


def _indent(raw: bytes | None) -> int | str:
    """The file's indentation; two spaces for a new file."""
    for line in (raw or b"").decode().splitlines()[1:]:
        if indent := line[: len(line) - len(line.lstrip())]:
            return indent
    return 2


def _unreadable(path: Path, reason: str) -> UsageError:
    return UsageError("UNREADABLE_CONFIG", f"{path}: {reason}.", "Add the entry by hand; `aisp doctor` prints it.")
