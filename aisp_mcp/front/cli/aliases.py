"""Aliases of commands, for users of similar tools."""

from __future__ import annotations

ALIASES = {
    ("info", "status"): ("status",),
    ("info", "gpu"): ("gpu", "info"),
    ("bench", "compare"): ("bench", "run"),
    ("bench", "functions"): ("bench", "verify"),
}


def resolve_alias(words: tuple[str, ...]) -> tuple[str, ...]:
    """Replace leading words that are an alias by the command's own words."""
    for alias, command in ALIASES.items():
        if words[: len(alias)] == alias:
            return (*command, *words[len(alias) :])
    return words
