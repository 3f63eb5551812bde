"""A run: all measurements of one call, with its time and machine."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from aisp_mcp.judge.records.endtoend import EndToEnd
from aisp_mcp.judge.records.verdict import Comparison, Skip, all_passed
from aisp_mcp.judge.records.workload import Workload
from aisp_mcp.records import Record
from aisp_mcp.store.records.verdict_row import RunKind, former_kind, is_provisional


class Failure(Record):
    """A target that could not be measured because something broke."""

    target: str
    code: str
    message: str
    hint: str | None = None


class Run(Record):
    """One run, stored under its id, with its raw logs in files."""

    id: str
    created_at: float
    kind: RunKind = RunKind.BENCH
    preset: str
    profile: str = Field(description="strict or portable")
    environment: dict[str, Any] = Field(description="Manifest: hardware, driver, libraries, limits, noise.")
    comparisons: list[Comparison] = Field(default_factory=list)
    skipped: list[Skip] = Field(default_factory=list)
    failed: list[Failure] = Field(default_factory=list)
    workload: Workload | None = Field(default=None, description="The verdict on all comparisons together, if asked.")
    program: EndToEnd | None = Field(
        default=None, description="The verdict on the pair in its user's program, if asked."
    )
    seconds: float = 0.0
    sources: dict[str, str] = Field(
        default_factory=dict, description="What was measured: SHA-256 by path in the run's folder."
    )

    name: str = Field(default="", description="Given by its user; it can be used in place of the id.")
    tags: list[str] = Field(default_factory=list)
    note: str = ""

    @model_validator(mode="before")
    @classmethod
    def _with_kind(cls, data: Any) -> Any:
        return {**data, "kind": former_kind(data)} if isinstance(data, dict) and "kind" not in data else data

    def is_provisional(self, comparison: Comparison) -> bool:
        """Return True if more replicates must confirm this verdict before it can be relied on."""
        return is_provisional(self.preset, comparison.replicates, comparison.verdict)

    @property
    def title(self) -> str:
        """The pair that was judged, or how many candidates were."""
        if len(self.comparisons) == 1:
            return self.comparisons[0].title
        return f"Run of {len(self.comparisons)} candidates" if self.comparisons else "Run without a verdict"

    @property
    def commits(self) -> dict[str, str]:
        """Base and head of a gate's run; empty for others."""
        ids: dict[str, str] = self.environment.get("commits") or {}
        return ids

    @property
    def gpus(self) -> list[dict[str, Any]]:
        """GPUs of its machine."""
        devices: list[dict[str, Any]] = self.environment.get("gpus") or []
        return devices

    @property
    def host(self) -> dict[str, Any]:
        """Facts of its machine's processors."""
        facts: dict[str, Any] = self.environment.get("host") or {}
        return facts

    @property
    def passed(self) -> bool | None:
        """False after a failure or a verdict that must stop a pipeline, None if nothing was compared or decided."""
        if self.failed:
            return False
        pair = all_passed(each.verdict for each in self.comparisons) if self.workload is None else self.workload.passed
        if self.program is None or pair is False:
            return pair
        return self.program.passed if pair or self.program.passed is False else None
