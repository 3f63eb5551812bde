"""Other names of commands: those of similar tools, and three tools as `aisp bench utils --tool NAME -- FLAGS`."""

from __future__ import annotations

from collections.abc import Sequence

from aisp_mcp.errors import UsageError

ALIASES = {
    ("info", "status"): ("status",),
    ("info", "gpu"): ("gpu", "info"),
    ("bench", "compare"): ("bench", "run"),
    ("bench", "functions"): ("bench", "verify"),
    ("bench", "report"): ("bench", "export", "--format", "html"),
    ("export", "csv"): ("bench", "export", "--format", "csv"),
    ("export", "html"): ("bench", "export", "--format", "html"),
    ("export", "pdf"): ("bench", "export", "--format", "pdf"),
}


def resolve_alias(words: tuple[str, ...]) -> tuple[str, ...]:
    """Replace leading words that are an alias by the command's own words and flags; a flag given later wins."""
    for alias, command in ALIASES.items():
        if words[: len(alias)] == alias:
            return (*command, *words[len(alias) :])
    return words


# Flags after `--` are passed to the tool.
UTILITIES = {
    "kv-cache": "aisp_inference_kv_cache",
    "cost-per-token": "aisp_cost_estimate",
    "probe-hw": "aisp_system_capabilities",
}


def resolve_utility(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the tool's name and arguments for the words after `bench utils`. Raises UsageError UNKNOWN_UTILITY."""
    rest = [word for word in words if word != "--"]
    name = ""
    for index, word in enumerate(rest):
        if word == "--tool" or word.startswith("--tool="):
            inline = word.partition("=")[2]
            name = inline or "".join(rest[index + 1 : index + 2])
            rest = rest[:index] + rest[index + (1 if inline else 2) :]
            break
    if name not in UTILITIES:
        message = f"There is no utility '{name[:40]}'." if name else "Name a utility."
        raise UsageError(
            "UNKNOWN_UTILITY",
            message,
            f"aisp bench utils --tool NAME -- FLAGS, with NAME one of: {', '.join(UTILITIES)}.",
        )
    return UTILITIES[name], rest
