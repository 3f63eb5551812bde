"""Calls that settle what two runs could not show: both states measured interleaved, in one job, on one machine."""

from __future__ import annotations

from collections.abc import Sequence

from aisp_mcp.runs.changes import conditions
from aisp_mcp.runs.changes.records import Change, Recommendation
from aisp_mcp.runs.changes.rerun import RUN
from aisp_mcp.store.records.run import Run
from aisp_mcp.store.records.run_kind import RunKind

_GATE = "aisp_benchmark_gate"


def calls(before: Run, after: Run, open_changes: Sequence[Change]) -> list[Recommendation]:
    """The call for these changes, or none if nothing is open."""
    labels = [_label(change) for change in open_changes]
    if not labels:
        return []
    reasons = [reason for change in open_changes for reason in change.reasons]
    if reasons and all(reason.startswith(conditions.BOUND) for reason in reasons):
        why = "calls are too short for the parent's clock: measure both again at a larger --size"
        return [Recommendation(tool=RUN, args={"targets": labels, "preset": "default"}, why=why)]
    if all(_same_files(before, after, label) for label in labels):
        why = "both runs measured the same files: if anything changed, it was the machine. Measure once more"
        return [Recommendation(tool=RUN, args={"targets": labels, "preset": "default"}, why=why)]
    base, head = (_commit(run) for run in (before, after))
    if base and head and base != head:
        why = "measures both commits interleaved, under the same conditions"
        return [Recommendation(tool=_GATE, args={"base": base, "head": head, "targets": labels}, why=why)]
    if RunKind.FUNCTIONS in (before.kind, after.kind):  # what functions import is not stored with the run
        return []
    why = "measures the files of both runs interleaved, under the same conditions"
    return [Recommendation(tool=_GATE, args={"base": before.id, "head": after.id, "targets": labels}, why=why)]


def _label(change: Change) -> str:
    return f"{change.target}_{change.candidate}" if change.candidate else change.target


def _same_files(before: Run, after: Run, label: str) -> bool:
    """Return True if both runs stored the same baseline and candidate of this benchmark."""
    folder = f"sources/{label.replace(':', '-').replace('/', '-')}/"
    old, new = ({k: v for k, v in run.sources.items() if k.startswith(folder)} for run in (before, after))
    return bool(old) and old == new


def _commit(run: Run) -> str | None:
    """The unmodified commit that a run measured; None if it is unknown or was modified."""
    commit = run.environment.get("commit") or {}
    return None if commit.get("modified", True) else commit.get("id")
