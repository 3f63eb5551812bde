"""Results that rules return, and the minimum size of a finding."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

from aisp_mcp.envelope import NextStep
from aisp_mcp.profile.readers.text import shorten
from aisp_mcp.profile.records import Breakdown, Insight, Profile, Severity, Timeline

Evidence = list[dict[str, str | int | float]]
Finding = Insight | str | None  # str: the reason why the rule abstains


class Rule(Protocol):
    """A function named after its rule."""

    __name__: str

    def __call__(self, profile: Profile) -> Finding: ...


HIGH, MEDIUM, LOW = 0.15, 0.05, 0.01
UNNAMED = 0.3  # from this share of kernel time on, rules by name abstain instead of finding nothing
_ROWS = 5


def finding(title: str, ceiling: float, basis: str, evidence: Evidence, fix: str, step: NextStep) -> Insight | None:
    """An insight without the name of its rule, or None if its ceiling is too small to matter."""
    ceiling = min(ceiling, 1.0)
    if ceiling < LOW:
        return None
    severity: Severity = "high" if ceiling >= HIGH else "medium" if ceiling >= MEDIUM else "low"
    return Insight(
        rule="",
        severity=severity,
        title=title,
        evidence=evidence[:_ROWS],
        gain_ceiling=round(ceiling, 4),
        basis=basis,
        fix=fix,
        next=step,
    )


def short(name: str) -> str:
    return shorten(name, 80)


def step(tool: str, why: str, **args: Any) -> NextStep:
    return NextStep(tool=tool, args=args, why=why)


def timeline(profile: Profile) -> Timeline:
    """The timeline, for rules that only run on profiles that have one."""
    assert profile.timeline is not None
    return profile.timeline


def tensor_cores(profile: Profile) -> bool | None:
    """True if the devices have tensor cores; None if the profile does not name the devices."""
    known = [d for d in profile.devices if d.compute_capability]
    if not known:
        return None
    return all(float(d.compute_capability or 0) >= 7.0 and "GTX 16" not in (d.name or "") for d in known)


def low_precision(profile: Profile) -> str:
    """Advice on element types that every device of the profile has tensor cores for."""
    known = [float(d.compute_capability) for d in profile.devices if d.compute_capability]
    if known and min(known) < 8.0:  # Volta and Turing have neither bf16 nor TF32
        return "Use fp16 (autocast with dtype=torch.float16, and a gradient scaler in training)."
    if any("AMD" in (d.name or "") or "Instinct" in (d.name or "") for d in profile.devices):
        return "Use bf16 or fp16 (autocast)."
    return "Use bf16 or fp16 (autocast), or allow TF32: torch.set_float32_matmul_precision('high')."


def by_name(judge: Rule) -> Rule:
    """Abstain instead of finding nothing if much of the time is in kernels with meaningless names."""

    @functools.wraps(judge)
    def judged(profile: Profile) -> Finding:
        result, kernels = judge(profile), timeline(profile).kernels
        whole = sum(k.total_ns for k in kernels)
        unnamed = sum(k.total_ns for k in kernels if k.kind in ("other", "unknown"))
        if result is None and whole and unnamed / whole >= UNNAMED:
            return f"{100 * unnamed / whole:.0f} % of kernel time has names that do not reveal the kind"
        return result

    return judged


def total(profile: Profile, field: Callable[[Breakdown], int]) -> int:
    """Sum over devices."""
    return sum(field(row) for row in timeline(profile).breakdown)


def share(profile: Profile, ns: float) -> float:
    """Share of the window, averaged over devices."""
    span = total(profile, lambda row: row.span_ns)
    return ns / span if span else 0.0
