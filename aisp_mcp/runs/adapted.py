"""Measure problems of other suites: adapt them, measure the pairs, and disclose what could not be hidden."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from aisp_mcp.errors import UsageError
from aisp_mcp.judge.comparison import load_libraries
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.records.run import Failure, Run, Skip
from aisp_mcp.judge.records.verdict import Comparison, Flag, Verdict
from aisp_mcp.runs import measure as runs
from aisp_mcp.server.context import Context
from aisp_mcp.suites import selection
from aisp_mcp.suites.adapters import base
from aisp_mcp.suites.adapters.adapt import AdaptRequest, adapt
from aisp_mcp.suites.adapters.records import Adapted, AdaptedProblem

TRAINING_MODE = "training_mode"  # a flag
HINT = "right in evaluation mode? --mode eval measures after eval()"  # ends the sentence that has this flag
RULES = "problem"  # in a policy: the operators that the problem itself forbids


def pairs(adapted: Adapted) -> tuple[list[Pair], list[Failure | Skip]]:
    """Measurable pairs of the adapted problems; a problem without a candidate is a failure."""
    all_pairs: list[Pair] = []
    broken: list[Failure | Skip] = list(adapted.failed)
    root = Path(adapted.folder)
    for problem in adapted.problems:
        some, failures = selection.pairs(root, [problem.target])
        all_pairs += some
        broken += failures
    return all_pairs, broken


def measure(
    ctx: Context, request: AdaptRequest, options: Options, profile: str = "portable", about: runs.About = runs.SUITE
) -> tuple[Run, list[Pair]]:
    """Adapt and measure; each verdict discloses what could not be hidden from its candidate. Raises as adapt."""
    load_libraries(options)  # while the problems are recorded
    adapted = adapt(ctx, request, options.folder / "adapted")
    names = forbidden(options.policy.forbidden, adapted.problems)
    options = replace(options, policy=replace(options.policy, forbidden=names))
    adapted_pairs, broken = pairs(adapted)
    measured = runs.measure(ctx, adapted_pairs, options, profile, broken, about=about)
    facts = {problem.target: problem for problem in adapted.problems}
    judged = [_disclose(comparison, adapted.format, facts[comparison.target]) for comparison in measured.comparisons]
    measured = measured.model_copy(update={"comparisons": judged})
    ctx.store.save_run(measured, ctx.job_id)
    return measured, adapted_pairs


def forbidden(names: Sequence[str], problems: Sequence[AdaptedProblem]) -> tuple[str, ...]:
    """The operators of a policy, in which `problem` stands for those that the problems themselves forbid.

    Raises UsageError NO_POLICY if they forbid none, or different ones.
    """
    if RULES not in names:
        return tuple(names)
    rules = {tuple(problem.forbidden) for problem in problems}
    if len(rules) != 1 or not (own := rules.pop()):
        message = "The problems forbid no operators, or not the same ones."
        raise UsageError("NO_POLICY", message, f"Name operators in place of {RULES!r}.")
    return tuple(dict.fromkeys([*(name for name in names if name != RULES), *own]))


def _disclose(comparison: Comparison, name: str, problem: AdaptedProblem) -> Comparison:
    fixed = [each.name for each in problem.inputs if each.how == "fixed" and each.role == "input"]
    update: dict[str, Any] = {"disclosed": {**comparison.disclosed, "adapted_from": name, "adapted": problem.disclosed}}
    update["flags"] = list(comparison.flags)
    if base.TRAINING in problem.disclosed and comparison.verdict is Verdict.INCORRECT:
        message = (
            "Right in evaluation mode? Problems with batch normalisation are judged as constructed, in training mode; "
            "--mode eval of bench verify and bench adapt measures after eval()."
        )
        update["flags"].append(Flag(code=TRAINING_MODE, severity="note", message=message))
        update["sentence"] = f"{comparison.sentence}; {HINT}"
    if fixed:
        message = f"The candidate may know these inputs, which are the same in every call: {', '.join(fixed)}."
        flag = Flag(code="inputs_not_fresh", severity="warn", message=message, evidence={"inputs": fixed})
        update["flags"].append(flag)
    return comparison.model_copy(update=update)
