"""Other words for commands, as people type them who know another tool of the kind."""

from __future__ import annotations

ALIASES = {
    ("info", "status"): ("status",),
    ("info", "gpu"): ("gpu", "info"),
    ("bench", "compare"): ("bench", "run"),
}


def real(words: tuple[str, ...]) -> tuple[str, ...]:
    """The command's own words for leading words that are an alias; otherwise the words unchanged."""
    for alias, command in ALIASES.items():
        if words[: len(alias)] == alias:
            return (*command, *words[len(alias) :])
    return words
