"""Stored variants that meet limits of memory, latency and throughput, and the nearest ones that do not."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from aisp_mcp.records import Record
from aisp_mcp.runs.analysis.variants import Variant

DEFINITION = (
    "Latency is seconds per call, throughput its inverse (calls per second), memory what timed calls added at their "
    "worst: weights that were there before do not count. A variant meets a limit with the unfavourable end of its "
    "interval. margin: how far below (or above) the limit, as a share of it; negative misses."
)


class Limits(Record):
    """Upper limits in bytes and seconds, lower limit in calls per second; None means no limit."""

    memory_bytes: float | None = None
    latency_s: float | None = None
    calls_per_s: float | None = None


class Candidate(Record):
    """One variant against the limits; a margin is None without its limit. unknown: limits that it has no figure for."""

    name: str
    target: str
    machine: str
    time_s: float
    memory_bytes: float | None
    calls_per_s: float
    memory_margin: float | None = None
    latency_margin: float | None = None
    throughput_margin: float | None = None
    unknown: list[str] = Field(default_factory=list)
    sentence: str

    @property
    def worst(self) -> float:
        """The smallest margin; 0 without a limit."""
        margins = (self.memory_margin, self.latency_margin, self.throughput_margin)
        return min((value for value in margins if value is not None), default=0.0)


def solve(rows: Sequence[Variant], limits: Limits) -> tuple[list[Candidate], list[Candidate]]:
    """(variants that meet every limit, fastest of each target first; the others, nearest miss first)."""
    judged = [_judge(row, limits) for row in rows]
    met = [candidate for candidate in judged if not candidate.unknown and candidate.worst >= 0]
    missed = [candidate for candidate in judged if candidate.unknown or candidate.worst < 0]
    met.sort(key=lambda candidate: (candidate.target, candidate.time_s))
    missed.sort(key=lambda candidate: (len(candidate.unknown), -candidate.worst))
    return met, missed


def _judge(row: Variant, limits: Limits) -> Candidate:
    worst_memory = row.memory_bytes.high if row.memory_bytes else None
    checks = {
        "memory": (limits.memory_bytes, worst_memory, True),
        "latency": (limits.latency_s, row.time_s.high, True),
        "throughput": (limits.calls_per_s, 1 / row.time_s.high if row.time_s.high else None, False),
    }
    margins: dict[str, float] = {}
    unknown: list[str] = []
    for name, (limit, value, upper) in checks.items():
        if limit is None:
            continue
        if value is None:
            unknown.append(name)
        else:
            margins[name] = (limit - value) / limit if upper else (value - limit) / limit
    return Candidate(
        name=row.name,
        target=row.target,
        machine=row.machine,
        time_s=row.time_s.value,
        memory_bytes=row.memory_bytes.value if row.memory_bytes else None,
        calls_per_s=1 / row.time_s.value,
        memory_margin=margins.get("memory"),
        latency_margin=margins.get("latency"),
        throughput_margin=margins.get("throughput"),
        unknown=unknown,
        sentence=_sentence(margins, unknown),
    )


def _sentence(margins: dict[str, float], unknown: Sequence[str]) -> str:
    if unknown:
        return f"not known: {', '.join(unknown)}"
    missed = [f"{name} by {-100 * value:.3g} %" for name, value in margins.items() if value < 0]
    return f"misses {', '.join(missed)}" if missed else "meets every limit"
