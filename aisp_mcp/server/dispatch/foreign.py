"""Arguments of other benchmark tools, and their equivalents here."""

from __future__ import annotations

from collections.abc import Sequence

from aisp_mcp.server.registry import Tool

# name → (argument that makes the hint useful, hint)
_HINTS: dict[str, tuple[str, str]] = {
    "iterations": (
        "replicates",
        "Calls per round follow from their time; did you mean 'replicates' (process sets) or 'preset' (the effort)?",
    ),
    "warmup": (
        "replicates",
        "Nothing to set: rounds begin when the calls have become steady; did you mean 'preset' (the effort)?",
    ),
    "timeout_multiplier": ("timeout_s", "Did you mean 'timeout_s'? It is in seconds, for the whole job."),
    "gpu_sm_clock_mhz": ("replicates", "Clocks are watched and never set; aisp_gpu_power shows them."),
    "update_expectations": (
        "replicates",
        "Every run is stored; aisp_benchmark_compare_runs judges one against another.",
    ),
}
_SAME = {"iters": "iterations", "num_iterations": "iterations", "repeat": "iterations", "warmup_iterations": "warmup"}


def foreign(tool: Tool, names: Sequence[str]) -> list[str]:
    """Hints for unknown names that other benchmark tools use, if this tool has an equivalent."""
    texts = []
    for name in names[:5]:
        needed, hint = _HINTS.get(_SAME.get(str(name), str(name)), ("", ""))
        if hint and needed in tool.params.model_fields:
            texts.append(hint)
    return texts
