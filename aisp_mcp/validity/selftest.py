"""The self-test: on this machine, known attacks must fail and honest look-alikes must pass.

Cases run several at once, each in a process of its own. The result is a table that also lists what was not run, and
discloses issues that no software can attack.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from aisp_mcp.errors import NotFound
from aisp_mcp.process import isolation
from aisp_mcp.server.context import Context
from aisp_mcp.system import manifest
from aisp_mcp.system.gpu.nvml import benchmark_device as present
from aisp_mcp.validity import corpus
from aisp_mcp.validity.issues import Case, Issue, Kind, issues
from aisp_mcp.validity.records import IssueRow, Selftest

CORES_PER_CASE = 4  # with fewer cores, two concurrent cases only wait for each other
AT_ONCE = {"cpu": 2, "cuda": 3}  # at most; on a GPU, starting its processes takes most of a case's time
WORDS = 200  # characters of evidence in a row


def choose(issues: Sequence[Issue], kinds: Sequence[Kind], devices: Sequence[str], every: bool) -> list[Case]:
    """The cases to run: all of them, or one of each kind per issue, preferably one that is quick and can run here."""
    selected = []
    for issue in issues:
        for kind in kinds:
            cases = [case for case in corpus.cases(kind=kind) if case.issue == issue.id and case.device in devices]
            cases.sort(key=lambda case: (corpus.lacks(case) is not None, case.slow))
            selected += cases if every else cases[:1]
    return selected


def rows_of(cases: Sequence[Case]) -> Iterator[dict[str, Any]]:
    """A row per case, in the given order, one device after the other. See corpus.row; the key "case" names the case.

    On a GPU cases start side by side, but only one at a time is measured.
    """
    room = max(1, len(os.sched_getaffinity(0)) // CORES_PER_CASE)
    for device, most in AT_ONCE.items():
        some = [case for case in cases if case.device == device]
        with tempfile.NamedTemporaryFile() as file, ThreadPoolExecutor(min(room, most)) as pool:
            turn = Path(file.name) if device == "cuda" else None
            yield from pool.map(lambda case, turn=turn: corpus.tried(case, corpus.FAST, turn), some)


def why(row: dict[str, Any]) -> str:
    """The evidence of a row, in a few words."""
    words = row["error"] or "; ".join(row["flags"]) or f"{row['verdict']}: no gain beyond the truth"
    return words if len(words) <= WORDS else words[: WORDS - 1] + "…"


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
    cases = choose(some, kinds, where, every)
    titles = {issue.id: issue for issue in some}
    rows: dict[int, list[IssueRow]] = {issue.id: [] for issue in some}
    for done, evidence in enumerate(rows_of(cases), 1):
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
        why=why(evidence),
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
