"""Short texts for table cells."""

from __future__ import annotations

from aisp_mcp.server.text.numbers import AT_LEAST
from aisp_mcp.store.records.job import Job
from aisp_mcp.store.records.run_kind import OF_TARGETS
from aisp_mcp.store.records.verdict_row import VerdictRow

BAR = 10  # width of a progress bar, in characters
SPANS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"))


def age(seconds: float) -> str:
    """Format a duration in its largest whole unit: 5 s, 12 min, 3 h, 9 d."""
    for length, unit in SPANS:
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def ratio(row: VerdictRow) -> str:
    """Format a ratio with its interval; empty if the verdict has none."""
    if row.ratio is None or row.low is None or row.high is None:
        return ""
    return f"{AT_LEAST if row.at_least else ''}{row.ratio:.3g}x ({row.low:.3g}–{row.high:.3g})"


def subject(row: VerdictRow) -> str:
    """Name the target, and the kind of the run if the verdict is not about the target's candidates."""
    if row.kind in OF_TARGETS:
        return row.target
    commits = f" {row.base_revision[:10]}..{(row.revision or '')[:10]}" if row.base_revision else ""
    return f"{row.kind.value}{commits}: {row.target}"


def progress(job: Job) -> str:
    """Describe the progress of an active job, or why an ended job did not succeed."""
    if job.state.terminal:
        return job.reason or ""
    if job.position is not None:
        return f"{job.position} ahead" if job.position else "next"
    current = job.progress
    if current is None:
        return ""
    bar = ""
    if current.total:
        share = min(1.0, max(0.0, current.done / current.total))
        full = round(BAR * share)
        bar = f"{'█' * full}{'░' * (BAR - full)} {100 * share:3.0f} % "
    return bar + (current.message or "")
