"""Altered baselines, and a contract's answer to them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from aisp_mcp.judge.records import Skip
from aisp_mcp.records import Record
from aisp_mcp.store.records.run import Failure

Status = Literal["accepted", "rejected", "equivalent", "within rounding", "not applied"]


class Mutant(Record):
    """One altered baseline. kind: of the change; what: the call or tensor that it changes."""

    kind: str
    what: str
    status: Status
    failure: str | None = Field(description="The contract's objection.")
    error: float | None = Field(description="The largest, in units of the contract.")
    difference: float = Field(description="The largest distance from the baseline, as a share of its output.")


class TargetMutants(Record):
    """The mutants of one target. accepted: those that compute something else without being rejected."""

    target: str
    contract: str
    made: int
    rejected: int
    equivalent: int = Field(description="The same bits, or within twice the baseline's own error.")
    accepted: list[Mutant]
    calls: int = Field(description="Calls whose outputs were compared, for mutants that none of them rejected.")
    seconds: float


class MutantReport(Record):
    """All targets that were tried. passed: no contract accepted a mutant."""

    passed: bool
    made: int
    accepted: int
    targets: list[TargetMutants]
    skipped: list[Skip] = Field(default_factory=list)
    failed: list[Failure] = Field(default_factory=list)
    seconds: float
