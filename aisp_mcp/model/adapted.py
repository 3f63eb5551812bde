"""Pairs made of other suites' benchmarks and of operators of traces."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.model.base import Record
from aisp_mcp.model.run import Failure


class AdaptedInput(Record):
    """One tensor. how: normal, uniform, integers, booleans or permutation (drawn by the harness), recipe (the problem's
    own code under a secret seed) or fixed (always the same values)."""

    name: str
    role: str
    shape: list[int]
    dtype: str
    how: str


class AdaptedProblem(Record):
    """One problem as a pair of files."""

    target: str
    variants: list[str]
    files: list[str]
    inputs: list[AdaptedInput]
    disclosed: list[str] = Field(description="What is not secret, not fresh, or has no effect here.")


class Adapted(Record):
    """Outcome of one path."""

    format: str
    folder: str
    problems: list[AdaptedProblem]
    failed: list[Failure]


class TracedTarget(Record):
    """One operator with one signature. device_us and host_us: recorded microseconds of all its calls."""

    target: str
    operator: str
    inputs: list[str]
    calls: int
    device_us: float
    host_us: float
    file: str


class Coverage(Record):
    """Shares of the selected operators that became targets: of signatures, of calls, of device time."""

    signatures: int
    targets: int
    calls_share: float
    device_share: float | None = Field(description="None where the trace has no device time.")
    reasons: dict[str, int] = Field(description="Signatures that are no targets, by reason.")


class Traced(Record):
    """Targets from a trace."""

    folder: str
    targets: list[TracedTarget]
    coverage: Coverage
