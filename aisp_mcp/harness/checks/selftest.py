"""Run attacks and honest twins on the user's own machine: which ones, how many at once, and what their rows say."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from aisp_mcp.harness.checks import corpus
from aisp_mcp.harness.checks.base import Case, Kind
from aisp_mcp.harness.checks.manifest import Issue

CORES_PER_CASE = 4  # below, two cases at once only wait for each other
WORDS = 200  # characters of evidence in a row


def choose(issues: Sequence[Issue], kinds: Sequence[Kind], devices: Sequence[str], every: bool) -> list[Case]:
    """The cases to run: all of them, or one of each kind per issue, preferably one that is quick and can run here."""
    found = []
    for issue in issues:
        for kind in kinds:
            cases = [case for case in corpus.cases(kind=kind) if case.issue == issue.id and case.device in devices]
            cases.sort(key=lambda case: (corpus.lacks(case) is not None, case.slow))
            found += cases if every else cases[:1]
    return found


def run(cases: Sequence[Case]) -> Iterator[dict[str, Any]]:
    """A row per case, in the order given. See corpus.row; the key "case" names the case."""
    at_once = max(1, len(os.sched_getaffinity(0)) // CORES_PER_CASE) if cases and cases[0].device == "cpu" else 1
    with ThreadPoolExecutor(min(at_once, 2)) as pool:
        yield from pool.map(lambda case: corpus.tried(case, corpus.FAST), cases)


def why(row: dict[str, Any]) -> str:
    """The evidence of a row in a few words."""
    words = row["error"] or "; ".join(row["flags"]) or f"{row['verdict']}: no gain beyond the truth"
    return words if len(words) <= WORDS else words[: WORDS - 1] + "…"
