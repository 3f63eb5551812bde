"""`aisp bench utils --tool NAME -- FLAGS`: three tools under other names."""

from __future__ import annotations

from collections.abc import Sequence

from aisp_mcp.errors import UsageError

# Flags after `--` are passed to the tool.
UTILITIES = {
    "kv-cache": "aisp_inference_kv_cache",
    "cost-per-token": "aisp_cost_estimate",
    "probe-hw": "aisp_system_capabilities",
}


def resolve(words: Sequence[str]) -> tuple[str, list[str]]:
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
