"""Run every rule that a profile has data for."""

from __future__ import annotations

from collections.abc import Sequence

from aisp_mcp.model.profile import Abstention, Insight, Insights, Profile
from aisp_mcp.profilers.insights import counters, idle, memory, work
from aisp_mcp.profilers.insights.base import Rule, abstain

TIMELINE: tuple[Rule, ...] = (*work.RULES, *idle.RULES)
ALL: tuple[Rule, ...] = (*TIMELINE, *counters.RULES, *memory.RULES, *memory.COMPILE_RULES)


def insights(profile: Profile) -> Insights:
    """Findings by ceiling, largest first; at equal ceilings (to 0.5 %) the more specific rule comes first."""
    found: list[tuple[int, Insight]] = []
    silent: list[Abstention] = []
    clean = 0
    for at, rule in enumerate(_rules(profile, silent)):
        result = rule(profile)
        if isinstance(result, Abstention):
            silent.append(result)
        elif result is None:
            clean += 1
        else:
            found.append((at, result))
    found.sort(key=lambda item: (-round(item[1].gain_ceiling * 200), item[0]))
    return Insights(found=[insight for _, insight in found], abstained=silent, clean=clean)


def _rules(profile: Profile, silent: list[Abstention]) -> Sequence[Rule]:
    """Those whose kind of data is there."""
    rules: list[Rule] = []
    if profile.timeline is not None:
        if profile.timeline.breakdown:
            rules += TIMELINE
        else:
            silent.append(abstain("all rules over a timeline", "the profile holds no device activity"))
    rules += counters.RULES if profile.kernels else ()
    rules += memory.RULES if profile.memory else ()
    rules += memory.COMPILE_RULES if profile.compile is not None else ()
    return rules
