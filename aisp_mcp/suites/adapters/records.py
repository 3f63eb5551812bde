"""Pairs made of other suites' benchmarks."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.records import Record
from aisp_mcp.store.records.run import Failure


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
    forbidden: list[str] = Field(default_factory=list, description="By the problem's own rules.")
    disclosed: list[str] = Field(description="What is not secret, not fresh, or has no effect here.")


class Adapted(Record):
    """Outcome of one path."""

    format: str
    folder: str
    problems: list[AdaptedProblem]
    failed: list[Failure]
