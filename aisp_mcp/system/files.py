"""Small readers of /proc and /sys that never fail: missing or unreadable values are None."""

from __future__ import annotations

from pathlib import Path

ROOT = Path("/")


def text(root: Path, path: str, limit: int = 1_000_000) -> str | None:
    """The stripped content of root/path, at most limit bytes. path is absolute, as on the machine."""
    try:
        with open(root / path.lstrip("/"), "rb") as file:
            return file.read(limit).decode("utf-8", "replace").strip()
    except OSError:
        return None


def number(root: Path, path: str) -> int | None:
    """The content as a whole number; None if it is absent or something else (such as `max`)."""
    return as_int(text(root, path))


def as_int(raw: str | None) -> int | None:
    """A whole number or None."""
    try:
        return int(raw) if raw else None
    except ValueError:
        return None


def names(root: Path, path: str) -> list[str]:
    """Sorted entries of a folder; empty if it does not exist."""
    try:
        return sorted(entry.name for entry in (root / path.lstrip("/")).iterdir())
    except OSError:
        return []


def exists(root: Path, path: str) -> bool:
    try:
        return (root / path.lstrip("/")).exists()
    except OSError:
        return False


def fields(raw: str | None, separator: str = ":") -> dict[str, str]:
    """`key: value` lines as a dict; the first of several equal keys wins."""
    values: dict[str, str] = {}
    for line in (raw or "").splitlines():
        key, mark, value = line.partition(separator)
        if mark:
            values.setdefault(key.strip(), value.strip())
    return values


def chosen(raw: str | None) -> str:
    """The bracketed word of `always [madvise] never`; "unknown" without one."""
    for word in (raw or "").split():
        if word.startswith("["):
            return word.strip("[]")
    return "unknown"


def count_cpus(cpu_list: str | None) -> int | None:
    """Number of processors that a list such as `0-3,8` names."""
    if not cpu_list:
        return None
    total = 0
    for part in cpu_list.split(","):
        first, _, last = part.partition("-")
        low, high = as_int(first), as_int(last or first)
        if low is None or high is None:
            return None
        total += high - low + 1
    return total
