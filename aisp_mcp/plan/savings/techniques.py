"""Techniques suitable for a machine and a goal, ranked by published or measured effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field

from aisp_mcp.plan.records import Technique
from aisp_mcp.records import Record


class Advice(Record):
    """One technique in order of merit. measured: the speed-up in this machine's own runs, if there is one."""

    name: str
    effect: tuple[float, float]
    measured: float | None = None
    what: str
    effort_days: float
    conflicts: list[str]
    source: str
    run_id: str | None = None
    measure: str | None = Field(default=None, description="Command that measures it here.")


class Excluded(Record):
    """A technique that does not apply, with the reason."""

    name: str
    because: str


def capable(have: str | None, needs: str | None) -> bool:
    """Return True if the compute capability is high enough; unknown hardware meets only techniques without a
    requirement.
    """
    if needs is None:
        return True
    if have is None:
        return False
    return tuple(map(int, have.split("."))) >= tuple(map(int, needs.split(".")))


def choose(
    rows: Sequence[Technique], goal: str, workload: str, cc: str | None, gpus: int
) -> tuple[list[Technique], list[Excluded]]:
    """Techniques for the goal that the hardware can run, and those left out with their reason."""
    fits, out = [], []
    for row in rows:
        if goal not in row.goals or row.workload not in ("any", workload):
            continue
        if not capable(cc, row.needs.cc):
            have = f"this GPU has {cc}" if cc else "no compute capability is known here"
            out.append(Excluded(name=row.name, because=f"needs compute capability {row.needs.cc}; {have}"))
        elif gpus < row.needs.gpus:
            out.append(Excluded(name=row.name, because=f"needs {row.needs.gpus} GPUs; {gpus} given"))
        else:
            fits.append(row)
    return fits, out


def rank(rows: Sequence[Technique], measured: Mapping[str, tuple[float, str]], top: int) -> list[Advice]:
    """Own measurements first, then the middle of the published range. measured: target to (speed-up, run id)."""
    advice = []
    for row in rows:
        measurement = measured.get(row.target or "")
        command = f"aisp bench run --targets {row.target}" if row.target else None
        advice.append(
            Advice(
                **row.model_dump(include={"name", "effect", "what", "effort_days", "conflicts", "source"}),
                measured=measurement and measurement[0],
                run_id=measurement and measurement[1],
                measure=command,
            )
        )
    return sorted(advice, key=_merit, reverse=True)[:top]


def headline(best: Sequence[Advice], goal: str) -> str:
    """The first technique with what speaks for it, and the names of the next two."""
    first = best[0]
    low, high = first.effect
    published = f"published {low:g}" + (f" to {high:g}x" if high != low else "x")
    evidence = f"measured {first.measured:.3g}x here, {published}" if first.measured else published
    after = ", then ".join(row.name for row in best[1:3])
    return f"For {goal}, try {first.name} first ({evidence})" + (f", then {after}." if after else ".")


def _merit(advice: Advice) -> tuple[bool, float]:
    low, high = advice.effect
    return advice.measured is not None, advice.measured or (low * high) ** 0.5
