"""The self-test as a table: run the attacks, disclose what cannot be attacked, and list what did not run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from aisp_mcp.errors import NotFound
from aisp_mcp.process import isolation
from aisp_mcp.server.context import Context
from aisp_mcp.system import manifest
from aisp_mcp.system.gpu.choice import device as present
from aisp_mcp.validity import corpus, selftest
from aisp_mcp.validity.base import Issue, Kind
from aisp_mcp.validity.loader import issues
from aisp_mcp.validity.records import IssueRow, Selftest

KINDS: dict[str, tuple[Kind, ...]] = {
    "attack": ("attack",),
    "honest": ("honest",),
    "both": ("attack", "honest"),
}


def chosen(categories: Sequence[str], numbers: Sequence[int]) -> list[Issue]:
    """The issues of these categories and numbers; empty lists mean all. Raises NotFound NO_ISSUE."""
    selected = [
        issue
        for issue in issues()
        if (not categories or issue.category in categories) and (not numbers or issue.id in numbers)
    ]
    if not selected:
        hint = f"Issues are 1 to {max(issue.id for issue in issues())}; see docs/validity.md."
        raise NotFound("NO_ISSUE", "No issue has that number in that category.", hint)
    return selected


def devices(wish: str) -> tuple[str, ...]:
    """Devices to run attacks on. auto: the CPU, and the GPU if there is one."""
    if wish == "auto":
        return ("cpu", "cuda") if present() == "cuda" else ("cpu",)
    return (wish,)


def run(ctx: Context, some: Sequence[Issue], kinds: Sequence[Kind], where: Sequence[str], every: bool) -> Selftest:
    """Run the cases of these issues and make the table."""
    begin = time.monotonic()
    cases = selftest.choose(some, kinds, where, every)
    titles = {issue.id: issue for issue in some}
    rows: dict[int, list[IssueRow]] = {issue.id: [] for issue in some}
    for done, evidence in enumerate(selftest.run(cases), 1):
        rows[evidence["issue"]].append(_row(titles[evidence["issue"]], evidence))
        ctx.progress(done, len(cases), f"{done} of {len(cases)}: {evidence['case']} {evidence['found']}")
    facts = manifest.manifest()
    for issue in some:
        rows[issue.id] += [] if rows[issue.id] else [_without(issue, where, facts)]
    counted = Counter(row.finding for issue_rows in rows.values() for row in issue_rows)
    categories: dict[str, list[IssueRow]] = {}
    for issue in some:
        categories.setdefault(issue.category, []).extend(rows[issue.id])
    return Selftest(
        passed=not corpus.BAD & set(counted),
        summary=dict(counted),
        device=", ".join(where),
        isolation=isolation.probe().level,
        seconds=time.monotonic() - begin,
        categories=categories,
    )


def _row(issue: Issue, evidence: dict[str, Any]) -> IssueRow:
    return IssueRow(
        **_about(issue),
        finding=evidence["found"],
        case=evidence["case"],
        ratio=evidence["ratio"],
        undefended=issue.undefended.gain if evidence["kind"] == "attack" else None,
        why=selftest.why(evidence),
    )


def _about(issue: Issue) -> dict[str, Any]:
    return {"issue": issue.id, "title": issue.title, "kind": issue.kind, "level": issue.isolation}


def _without(issue: Issue, where: Sequence[str], facts: dict[str, Any]) -> IssueRow:
    """The row of an issue without a run: disclosed, skipped because a device is missing, or never attacked."""
    if issue.kind == "R":
        shown = "; ".join(f"{name}: {_fact(facts, name)}" for name in issue.facts)
        return IssueRow(**_about(issue), finding="disclosed", why=shown or issue.reason)
    if issue.attacked:
        lacking = "a GPU" if "cuda" not in where else "a case for this device"
        return IssueRow(**_about(issue), finding="skipped", why=f"needs {lacking}")
    return IssueRow(**_about(issue), finding="untested", why=issue.reason)


def _fact(facts: dict[str, Any], name: str) -> str:
    value: Any = facts
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return "none" if value in (None, [], {}) else str(value)
