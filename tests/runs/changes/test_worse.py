"""Slowdowns that two runs prove, apart from those that their conditions explain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.runs.changes.worse import comparable, worse
from aisp_mcp.server.context import Context
from aisp_mcp.settings import Settings
from aisp_mcp.store.records.run import Run
from aisp_mcp.store.records.verdict_row import VerdictFilter


@pytest.fixture
def ctx(home: Path) -> Context:
    return Context(settings=Settings.from_env({"AISP_HOME": str(home)}))


def store(ctx: Context, name: str, ratio: float, load: float = 0.0, **more: Any) -> None:
    compared = {"target": "ch07:row_sum", "candidate": "", "verdict": "faster", "sentence": "faster", "goal": "speed"}
    figures = {"ratio": ratio, "interval": {"low": 0.95 * ratio, "high": 1.05 * ratio}, "noise_floor": 0.01}
    environment = {"host": {"cpu": "x"}, "during": {"pressure": {"cpu_some": load}}}
    replicates = 1 if more.get("preset") == "quick" else 5
    comparison = {**compared, **figures, "isolation": "L2", "replicates": replicates}
    facts = {"created_at": 1.0, "preset": "default", "profile": "portable", "environment": environment, **more}
    ctx.store.save_run(Run.model_validate({"id": name, **facts, "comparisons": [comparison]}), None)


def falls(ctx: Context) -> list[tuple[str, str, bool]]:
    rows, _ = ctx.store.list_verdicts(VerdictFilter())
    return [(fall.then.run_id, fall.now.run_id, fall.proven) for fall in worse(ctx, rows)]


@pytest.mark.parametrize(("load", "proven"), [(0.02, True), (0.54, False)])
def test_a_fall_is_a_regression_only_under_equal_conditions(ctx: Context, load: float, proven: bool) -> None:
    store(ctx, "r_1", 10.5)
    store(ctx, "r_2", 7.6, load)
    assert falls(ctx) == [("r_1", "r_2", proven)]


def test_neither_hints_nor_gates_are_falls(ctx: Context) -> None:
    store(ctx, "r_1", 10.5)
    store(ctx, "r_quick", 2.0, preset="quick")
    store(ctx, "r_gate", 0.5, kind="gate")
    assert falls(ctx) == []


def test_the_newest_two_alike_are_compared_by_default(ctx: Context) -> None:
    for name, more in (("r_1", {}), ("r_2", {}), ("r_quick", {"preset": "quick"}), ("r_gate", {"kind": "gate"})):
        store(ctx, name, 2.0, **more)
    rows, _ = ctx.store.list_verdicts(VerdictFilter())
    assert comparable(rows) == ("r_1", "r_2")
