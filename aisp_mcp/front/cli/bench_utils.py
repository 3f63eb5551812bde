"""`aisp bench utils --tool NAME -- FLAGS`: three small calculations under the names people know them by."""

from __future__ import annotations

from collections.abc import Sequence

from aisp_mcp.errors import UsageError

# Name to the tool that does it; flags after `--` are that tool's own.
UTILITIES = {
    "kv-cache": "aisp_inference_kv_cache",
    "cost-per-token": "aisp_cost_estimate",
    "probe-hw": "aisp_system_capabilities",
}


def resolve(words: Sequence[str]) -> tuple[str, list[str]]:
    """Tool's name and its words, from what follows `bench utils`. Raises UsageError UNKNOWN_UTILITY."""
    rest = [word for word in words if word != "--"]
    name = ""
    for at, word in enumerate(rest):
        if word == "--tool" or word.startswith("--tool="):
            inline = word.partition("=")[2]
            name = inline or "".join(rest[at + 1 : at + 2])
            rest = rest[:at] + rest[at + (1 if inline else 2) :]
            break
    if name not in UTILITIES:
        said = f"'{name[:40]}' is no utility." if name else "No utility is named."
        raise UsageError(
            "UNKNOWN_UTILITY",
            said,
            f"aisp bench utils --tool NAME -- FLAGS, with NAME one of: {', '.join(UTILITIES)}.",
        )
    return UTILITIES[name], rest
