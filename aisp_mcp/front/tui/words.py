"""Short texts for narrow columns."""

from __future__ import annotations

from aisp_mcp.store.records.job import Job
from aisp_mcp.store.records.verdict_row import VerdictRow

BAR = 10  # cells
SPANS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"))


def age(seconds: float) -> str:
    """A span in its largest whole unit: 5 s, 12 min, 3 h, 9 d."""
    for length, unit in SPANS:
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def ratio(row: VerdictRow) -> str:
    """A ratio with its interval, never without; empty where a verdict has none."""
    if row.ratio is None or row.low is None or row.high is None:
        return ""
    return f"{row.ratio:.3g}x ({row.low:.3g}–{row.high:.3g})"


def progress(job: Job) -> str:
    """Progress of an active job, or why an ended one did not succeed."""
    if job.state.terminal:
        return job.reason or ""
    if job.position is not None:
        return f"{job.position} ahead of it" if job.position else "next"
    now = job.progress
    if now is None:
        return ""
    bar = ""
    if now.total:
        part = min(1.0, max(0.0, now.done / now.total))
        full = round(BAR * part)
        bar = f"{'█' * full}{'░' * (BAR - full)} {100 * part:3.0f} % "
    return bar + (now.message or "")
