"""A run: what one call measured, with when and where."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.records import Record


class Skip(Record):
    """A target that was not measured, and what was missing. A skip is not a pass."""

    target: str
    code: str
    missing: str


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
    preset: str
    profile: str = Field(description="strict or portable")
    environment: dict[str, Any] = Field(description="Manifest: hardware, driver, libraries, limits, noise.")
    comparisons: list[Comparison] = Field(default_factory=list)
    skipped: list[Skip] = Field(default_factory=list)
    failed: list[Failure] = Field(default_factory=list)
    seconds: float = 0.0
    sources: dict[str, str] = Field(
        default_factory=dict, description="What was measured: SHA-256 by path in the run's folder."
    )

    name: str = Field(default="", description="Given by its user; it can be used in place of the id.")
    tags: list[str] = Field(default_factory=list)
    note: str = ""

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
    def passed(self) -> bool:
        """No failure, and no verdict that must stop a pipeline."""
        bad = {"slower", "incorrect", "invalid"}
        return not self.failed and all(c.verdict.value not in bad for c in self.comparisons)
