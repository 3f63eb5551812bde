"""Run attacks and honest twins on the user's own machine: choose cases, run several at once, return rows of
evidence.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from aisp_mcp.validity import corpus
from aisp_mcp.validity.base import Case, Issue, Kind

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


def run(cases: Sequence[Case]) -> Iterator[dict[str, Any]]:
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
