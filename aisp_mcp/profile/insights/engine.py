"""Run every rule that a profile has data for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aisp_mcp.envelope import NextStep
from aisp_mcp.profile.insights import counters, idle, memory, work
from aisp_mcp.profile.insights.base import LOW, Rule
from aisp_mcp.profile.records import Abstention, Insight, Insights, Profile

TIMELINE: tuple[Rule, ...] = (*work.RULES, *idle.RULES)
ALL: tuple[Rule, ...] = (*TIMELINE, *counters.RULES, *memory.RULES, *memory.COMPILE_RULES)


def insights(profile: Profile) -> Insights:
    """Findings by ceiling, largest first; if ceilings are within 1 % of the window, the more specific rule first."""
    numbered: list[tuple[int, Insight]] = []
    silent: list[Abstention] = []
    clean = 0
    for at, rule in enumerate(_rules(profile, silent)):
        result = rule(profile)
        if isinstance(result, str):
            silent.append(Abstention(rule=rule.__name__, reason=result))
        elif result is None:
            clean += 1
        else:
            numbered.append((at, result.model_copy(update={"rule": rule.__name__})))
    complete = [i.model_copy(update={"next": _complete(profile, i.next)}) for i in _ordered(numbered)]
    return Insights(found=complete, abstained=silent, clean=clean)


def _ordered(numbered: list[tuple[int, Insight]]) -> list[Insight]:
    """found: (index of the rule, insight). Differences too small to be a finding do not affect the order."""
    rest = sorted(numbered, key=lambda item: -item[1].gain_ceiling)
    rows: list[Insight] = []
    while rest:
        largest = rest[0][1].gain_ceiling
        equal = sorted((item for item in rest if item[1].gain_ceiling > largest - LOW), key=lambda item: item[0])
        rows += [insight for _, insight in equal]
        rest = rest[len(equal) :]
    return rows


def _complete(profile: Profile, step: NextStep) -> NextStep:
    """The same step with the profile's path, for tools that read files; those that record need a command instead."""
    path, kind = profile.source.path, profile.source.kind
    if step.tool == "aisp_nsys_summary" and kind in ("kineto", "rocprof", "xplane"):
        return NextStep(tool="aisp_profile_hta", args={**step.args, "traces": [path]}, why=step.why)
    if step.tool == "aisp_profile_hta" and kind == "nsys":
        return NextStep(tool="aisp_nsys_summary", args={"profile": path, "section": "collectives"}, why=step.why)
    arguments: dict[str, dict[str, Any]] = {
        "aisp_nsys_summary": {"profile": path},
        "aisp_ncu_summary": {"profile": path},
        "aisp_profile_kernels": {"profile": path},
        "aisp_profile_hta": {"traces": [path]},
    }
    own: dict[str, Any] = (
        {"snapshot": path} if step.tool == "aisp_profile_memory" and kind == "memory" else arguments.get(step.tool, {})
    )
    return step.model_copy(update={"args": {**step.args, **own}})


def _rules(profile: Profile, silent: list[Abstention]) -> Sequence[Rule]:
    """The rules for which the profile has data."""
    rules: list[Rule] = []
    if profile.timeline is not None:
        if profile.timeline.breakdown:
            rules += TIMELINE
        else:
            silent.append(
                Abstention(rule="all rules over a timeline", reason="the profile contains no device activity")
            )
    rules += counters.RULES if profile.kernels else ()
    rules += memory.RULES if profile.memory else ()
    rules += memory.COMPILE_RULES if profile.compile is not None else ()
    return rules
