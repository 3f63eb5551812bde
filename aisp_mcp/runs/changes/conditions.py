"""Conditions under which runs were measured: if they differ, a difference of results proves nothing.

Pure functions over stored records. A value missing from a record is unknown, not a difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.server.text import numbers
from aisp_mcp.store.records.run import Run
from aisp_mcp.system.manifest import manifest_difference

_LASTING = ("host", "gpus", "driver", "cuda_driver", "software", "settings", "limits", "variables")
# Shares of a run's time, and how far two runs may differ in them.
_LOADS = (
    ("cpu_some", 0.10, "tasks waited for a CPU"),
    ("memory_full", 0.02, "tasks waited for memory"),
    ("io_full", 0.10, "tasks waited for a disk"),
)
_STEAL = 0.02
BOUND = "a lower bound is not a measured ratio"
_WORKER_CLOCKS = ("worker", "worker_mean")


def of_runs(before: Run, after: Run, any_preset: bool = False) -> list[str]:
    """Differences between two runs that rule out a comparison, one line each. any_preset: presets may differ."""
    reasons = []
    if before.kind is not after.kind:
        reasons.append(f"kind of run: {before.kind.value} → {after.kind.value}")
    if before.preset != after.preset and not any_preset:
        reasons.append(f"preset: {before.preset} → {after.preset}")
    return [*reasons, *_load(before, after), *manifest_difference(_lasting(before), _lasting(after))]


def of_comparisons(before: Comparison, after: Comparison) -> list[str]:
    """Differences between two comparisons of one benchmark that rule out comparing them."""
    pairs = (
        ("isolation level", before.isolation, after.isolation),
        ("goal", before.goal, after.goal),
        ("clock", _clock(before), _clock(after)),
        ("size", _size(before), _size(after)),
    )
    reasons = [f"{name}: {old} → {new}" for name, old, new in pairs if old and new and old != new]
    if not reasons and (before.at_least or after.at_least):
        words = (
            f"{'at least ' if comparison.at_least else ''}{numbers.ratio(comparison.ratio)}"
            for comparison in (before, after)
        )
        reasons.append(f"{BOUND}: {' → '.join(words)}")
    return reasons


def _lasting(run: Run) -> dict[str, Any]:
    """Facts of the machine; the same model of GPU is the same condition, whichever card it is."""
    facts = {name: run.environment[name] for name in _LASTING if name in run.environment}
    if "gpus" in facts:
        facts["gpus"] = [{key: value for key, value in gpu.items() if key != "uuid"} for gpu in run.gpus]
    return facts


def _load(before: Run, after: Run) -> Iterator[str]:
    """Other load on the machine during the runs or, if it was not recorded, just before them."""
    old, new = (run.environment.get("during") or {} for run in (before, after))
    for name, limit, words in _LOADS:
        shares = [_pressure(run, name) for run in (before, after)]
        if reason := _differs(shares, limit):
            yield f"load of the machine: {words} {reason} of the time"
    if reason := _differs([old.get("steal_share"), new.get("steal_share")], _STEAL):
        yield f"load of the machine: the hypervisor took {reason} of the CPU time"
    slowed = [
        {flag["code"]: flag["message"] for flag in during.get("flags") or [] if _slows(flag)} for during in (old, new)
    ]
    for code in sorted(slowed[0].keys() ^ slowed[1].keys()):
        run, messages = ("earlier", slowed[0]) if code in slowed[0] else ("later", slowed[1])
        yield f"only during the {run} run: {messages[code]}"


def _pressure(run: Run, name: str) -> float | None:
    during = (run.environment.get("during") or {}).get("pressure") or {}
    if during.get(name) is not None:
        return float(during[name])
    earlier = (run.environment.get("noise") or {}).get(name)  # in per cent
    return None if earlier is None else earlier / 100


def _differs(shares: list[float | None], limit: float) -> str | None:
    old, new = shares
    if old is None or new is None or abs(new - old) <= limit:
        return None
    return f"{numbers.percent(old)} → {numbers.percent(new)}"


def _slows(flag: Any) -> bool:
    """Return True for an event that slowed a GPU down or shared it; a host's load is compared by its share."""
    return str(flag.get("code", "")).startswith("GPU_") and flag.get("severity") == "warn"


def _clock(comparison: Comparison) -> str | None:
    used = comparison.clocks.used if comparison.clocks else None
    return "worker" if used in _WORKER_CLOCKS else used


def _size(comparison: Comparison) -> str | None:
    size = comparison.disclosed.get("sizes") or comparison.disclosed.get("size")
    return str(size) if size else None
