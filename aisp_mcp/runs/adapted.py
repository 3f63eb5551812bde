"""Measure problems of other suites: adapt them, measure the pairs, and disclose what could not be kept secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aisp_mcp.judge.comparison import load_libraries
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.records.run import Failure, Run, Skip
from aisp_mcp.judge.records.verdict import Comparison, Flag
from aisp_mcp.runs import measure as runs
from aisp_mcp.server.context import Context
from aisp_mcp.suites import selection
from aisp_mcp.suites.adapters.adapt import AdaptRequest, adapt
from aisp_mcp.suites.adapters.records import Adapted, AdaptedProblem


def pairs(adapted: Adapted) -> tuple[list[Pair], list[Failure | Skip]]:
    """Measurable pairs of the adapted problems; a problem without a candidate is a failure."""
    found: list[Pair] = []
    broken: list[Failure | Skip] = list(adapted.failed)
    root = Path(adapted.folder)
    for problem in adapted.problems:
        some, failures = selection.pairs(root, [problem.target])
        found += some
        broken += failures
    return found, broken


def measure(
    ctx: Context, request: AdaptRequest, options: Options, profile: str = "portable", about: runs.About = runs.SUITE
) -> tuple[Run, list[Pair]]:
    """Adapt and measure; each ruling discloses what could not be kept from its candidate. Raises as adapt."""
    load_libraries(options)  # while the problems are recorded
    adapted = adapt(ctx, request, options.folder / "adapted")
    found, broken = pairs(adapted)
    measured = runs.measure(ctx, found, options, profile, broken, about=about)
    facts = {problem.target: problem for problem in adapted.problems}
    judged = [_disclose(comparison, adapted.format, facts[comparison.target]) for comparison in measured.comparisons]
    measured = measured.model_copy(update={"comparisons": judged})
    ctx.store.save_run(measured, ctx.job_id)
    return measured, found


def _disclose(comparison: Comparison, name: str, problem: AdaptedProblem) -> Comparison:
    fixed = [each.name for each in problem.inputs if each.how == "fixed" and each.role == "input"]
    update: dict[str, Any] = {"disclosed": {**comparison.disclosed, "adapted_from": name, "adapted": problem.disclosed}}
    if fixed:
        message = f"The candidate may know these inputs, which are the same in every call: {', '.join(fixed)}."
        flag = Flag(code="inputs_not_fresh", severity="warn", message=message, evidence={"inputs": fixed})
        update["flags"] = [*comparison.flags, flag]
    return comparison.model_copy(update=update)
