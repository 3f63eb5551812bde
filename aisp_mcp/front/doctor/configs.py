"""Read and change a client's configuration file without losing its other content."""

from __future__ import annotations

import difflib
import json
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aisp_mcp.errors import Refused, UsageError
from aisp_mcp.front.doctor.clients import NAME, ConfigFile
from aisp_mcp.store.files import write_atomic


@dataclass(frozen=True)
class Change:
    """A file's content before and after the change. before: None if the file does not exist."""

    path: Path
    before: bytes | None
    after: str

    @property
    def needed(self) -> bool:
        return self.before is None or self.before.decode() != self.after

    def difference(self) -> str:
        """Return a unified diff."""
        old = (self.before or b"").decode().splitlines()
        lines = difflib.unified_diff(old, self.after.splitlines(), str(self.path), str(self.path), lineterm="")
        return "\n".join(lines)


def find(file: ConfigFile) -> dict[str, Any] | None:
    """Return our entry in a file, or None. Raises UsageError UNREADABLE_CONFIG."""
    data: Any = _parse(file.path, _read(file.path))
    for key in file.keys:
        data = data.get(key) if isinstance(data, dict) else None
    entry = data.get(NAME) if isinstance(data, dict) else None
    return entry if isinstance(entry, dict) else None


def plan(file: ConfigFile, entry: dict[str, Any]) -> Change:
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
    return Change(path, before, json.dumps(data, indent=_indent(before), ensure_ascii=False) + "\n")


def apply(change: Change) -> Path | None:
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
