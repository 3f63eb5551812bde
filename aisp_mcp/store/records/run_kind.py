"""Kinds of runs, by the subject of their comparisons."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class RunKind(StrEnum):
    """A target's candidates are compared only in `bench` runs; runs of other kinds are about something else.

    bench: the candidates of targets. verify: a caller's own candidate against a target's baseline. functions: two
    functions of the caller's. gate: the same candidate at two commits, so its ratio is that of base to head. optimize:
    candidates of an optimisation, which are not files of a suite.
    """

    BENCH = "bench"
    VERIFY = "verify"
    FUNCTIONS = "functions"
    GATE = "gate"
    OPTIMIZE = "optimize"


# Kinds whose verdicts are about the target that they name. History, rankings and pages of targets show these.
OF_TARGETS = (RunKind.BENCH, RunKind.FUNCTIONS)
ANY_KIND = tuple(RunKind)


def former_kind(document: Mapping[str, Any]) -> RunKind:
    """The kind of a run stored before kinds existed, inferred from its document."""
    if (document.get("environment") or {}).get("commits"):
        return RunKind.GATE
    comparisons = document.get("comparisons") or [{}]
    first = comparisons[0] if isinstance(comparisons[0], Mapping) else {}
    if "/look-" in (first.get("log_path") or ""):  # further looks of a gate are separate runs
        return RunKind.GATE
    if str(first.get("candidate", "")).startswith("o_"):
        return RunKind.OPTIMIZE
    return RunKind.FUNCTIONS if "inputs" in (first.get("disclosed") or {}) else RunKind.BENCH
