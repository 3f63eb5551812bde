"""Which ranges are iterations, and what each of them cost."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from aisp_mcp.model.profile import Step
from aisp_mcp.profilers.intervals import Interval, clip, length
from aisp_mcp.profilers.trace import HostRange

_STEP = re.compile(r"(?:^|[\s:_/.])(?:profiler|train(?:ing)?_?)?(?:step|iter(?:ation)?|batch)[\s_#:=-]*(\d+)?$", re.I)
# A range of the optimizer is called step too, and is none.
_NOT_STEP = re.compile(r"optim", re.I)
_MAX_STEPS = 10_000


def find(ranges: Sequence[HostRange]) -> list[HostRange]:
    """The iterations, in time order: `ProfilerStep#n` where there are any, else outermost ranges named like steps."""
    named = [r for r in ranges if r.name.startswith("ProfilerStep#")]
    if not named:
        named = [r for r in ranges if len(r.name) < 100 and _STEP.search(r.name) and not _NOT_STEP.search(r.name)]
    outer: list[HostRange] = []
    by_thread: dict[int, list[HostRange]] = defaultdict(list)
    for one in named:
        by_thread[one.thread].append(one)
    # One thread drives the loop: the one with most steps.
    busiest = max(by_thread.values(), key=lambda rows: len(rows), default=[])
    for one in sorted(busiest, key=lambda r: (r.start, -r.end)):
        if not outer or one.start >= outer[-1].end:
            outer.append(one)
    return outer[:_MAX_STEPS]


def measure(steps: Sequence[HostRange], busy: Sequence[Interval]) -> list[Step]:
    """Each step from its start to the next one's; busy: the union of all operations on all devices."""
    rows = []
    for at, one in enumerate(steps):
        # A pause (the loop was left) is not part of a step: the next must follow within one step's own length.
        follows = at + 1 < len(steps) and steps[at + 1].start - one.end <= one.end - one.start
        end = steps[at + 1].start if follows else one.end
        inside = length(clip(busy, one.start, end))
        rows.append(
            Step(
                name=one.name,
                start_ns=one.start,
                duration_ns=end - one.start,
                busy_ns=inside,
                idle_ns=end - one.start - inside,
            )
        )
    return rows
