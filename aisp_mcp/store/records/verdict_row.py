"""One verdict of one run as a flat row, the kinds of runs, and filters: what lists and charts need, without samples."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pydantic import Field

from aisp_mcp.records import Record


class RunKind(StrEnum):
    """A target's candidates are compared only in `bench` runs; runs of other kinds are about something else.

    bench: the candidates of targets. verify: a caller's own candidate against a target's baseline. functions: two
    functions of the caller's. gate: the same candidate at two commits, so its ratio is that of base to head. commits:
    two commits on a workload. optimize: candidates of an optimisation, which are not files of a suite.
    """

    BENCH = "bench"
    VERIFY = "verify"
    FUNCTIONS = "functions"
    GATE = "gate"
    COMMITS = "commits"
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


QUICK = "quick"
_ABOUT_TIME = ("faster", "slower", "same", "inconclusive")


def is_provisional(preset: str, replicates: int | None, verdict: str) -> bool:
    """Return True for a verdict that rests on one replicate: a hint, never ranked, recommended or cited as evidence.

    A single replicate is enough to establish a wrong output or a broken rule.
    """
    return verdict in _ABOUT_TIME and (preset == QUICK or replicates == 1)


class RowOrigin(Record):
    """The run that a row comes from, and its relation to its target."""

    kind: RunKind = RunKind.BENCH
    benchmark: str = Field(default="", description="The target without the variant: ch07:row_sum.")
    replicates: int | None = None
    at_least: bool = Field(default=False, description="The ratio is a lower bound.")
    of_peak: float | None = Field(default=None, description="Candidate's share of the machine's measured ceiling.")
    revision: str | None = Field(default=None, description="The commit that was measured, where it is known.")
    revision_at: float | None = Field(default=None, description="UTC seconds of that commit.")
    modified: bool | None = Field(default=None, description="The measured files differed from that commit.")
    base_revision: str | None = Field(default=None, description="Of a gate: the commit that the head is compared with.")


class VerdictRow(RowOrigin):
    """A row. seq: its number in the store, ascending with time; times in seconds per call, memory in bytes."""

    seq: int
    run_id: str
    created_at: float
    chapter: str
    target: str = Field(description="With the variant: ch07:row_sum_tiled.")
    verdict: str
    goal: str
    preset: str
    device: str | None = Field(default=None, description="The first GPU's name, else the processor's.")
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    noise_floor: float | None = None
    baseline_s: float | None = None
    candidate_s: float | None = None
    baseline_bytes: int | None = None
    candidate_bytes: int | None = None
    flops_per_s: float | None = None
    bytes_per_s: float | None = None
    seconds: float | None = None

    @property
    def provisional(self) -> bool:
        """True for a verdict that more replicates must confirm."""
        return is_provisional(self.preset, self.replicates, self.verdict)


class VerdictFilter(Record):
    """Conditions on stored verdicts; empty fields match all. text: part of the target's name. since: UTC seconds.

    kinds: of runs; by default those whose verdicts are about the target that they name. confirmed: no provisional ones.
    """

    chapter: str | None = None
    target: str | None = None
    verdict: str | None = None
    goal: str | None = None
    preset: str | None = None
    device: str | None = None
    run: str | None = None
    since: float | None = None
    text: tuple[str, ...] = ()
    kinds: tuple[RunKind, ...] = OF_TARGETS
    confirmed: bool = False
