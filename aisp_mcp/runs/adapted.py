"""Measure problems of other suites: adapt them, and measure the pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from aisp_mcp.errors import UsageError
from aisp_mcp.judge.comparison import load_libraries
from aisp_mcp.judge.options import Options, Policy
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.records import Skip
from aisp_mcp.runs import functions
from aisp_mcp.runs import measure as runs
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.run import Failure, Run
from aisp_mcp.suites import selection
from aisp_mcp.suites.adapters import algotune, formats
from aisp_mcp.suites.adapters.adapt import AdaptRequest, adapt, find
from aisp_mcp.suites.adapters.records import Adapted, AdaptedProblem

RULES = "problem"  # in a policy: the operators that the problem itself forbids


def pairs(adapted: Adapted) -> tuple[list[Pair], list[Failure | Skip]]:
    """Measurable pairs of the adapted problems; a problem without a candidate is a failure."""
    all_pairs: list[Pair] = []
    broken: list[Failure | Skip] = list(adapted.failed)
    root = Path(adapted.folder)
    for problem in adapted.problems:
        some, failures = selection.pairs(root, [problem.target])
        all_pairs += some
        broken += failures if problem.variants else [_without_candidate(problem)]
    return all_pairs, broken


def _without_candidate(problem: AdaptedProblem) -> Failure:
    """The failure of a problem for which none of the given files is a candidate."""
    message = "No candidate was found for it."
    hint = (
        "Give the folder that contains both; docs/adapters.md lists the names that candidates have there. "
        "Or name a candidate: aisp bench verify PROBLEM CANDIDATE."
    )
    return Failure(target=problem.target, code="NO_CANDIDATE", message=message, hint=hint)


def measure(
    ctx: Context, request: AdaptRequest, options: Options, profile: str = "portable", about: runs.About = runs.SUITE
) -> tuple[Run, list[Pair]]:
    """Adapt and measure. Raises as adapt."""
    load_libraries(options)  # while the problems are recorded
    named, path = formats.split(request.source)
    if (request.format or named or formats.recognised(str(path))) == algotune.NAME:
        return _of_functions(ctx, request, options, profile), []
    adapted = adapt(ctx, request, options.folder / "adapted")
    options = replace(options, policy=with_rules(options.policy, adapted.problems))
    adapted_pairs, broken = pairs(adapted)
    return runs.measure(ctx, adapted_pairs, options, profile, broken, about=about), adapted_pairs


def _of_functions(ctx: Context, request: AdaptRequest, options: Options, profile: str) -> Run:
    """Measure tasks that are functions of Python values. Raises UsageError NO_POLICY, NO_INPUT, NO_TOLERANCE."""
    with_rules(options.policy, [])
    if request.recipe:
        raise UsageError("NO_INPUT", "All inputs of an AlgoTune task are drawn by its own code.", "Leave out recipe.")
    if request.tolerance != "own":
        message = "An AlgoTune task declares no tolerance: its is_solution judges."
        raise UsageError("NO_TOLERANCE", message, "Leave out the tolerance.")
    requests, failed = algotune.requests(find(request, request.candidates), options.folder / "tasks")
    return functions.measure_all(ctx, requests, options, failed, profile)


def with_rules(policy: Policy, problems: Sequence[AdaptedProblem]) -> Policy:
    """The policy, in which `problem` stands for what the problems themselves forbid.

    Raises UsageError NO_POLICY if they forbid nothing, or not the same.
    """
    if RULES not in policy.forbidden:
        return policy
    rules = {tuple(problem.forbidden) for problem in problems}
    if len(rules) != 1 or not (own := rules.pop()):
        message = "The problems forbid no operators, or not the same ones."
        raise UsageError("NO_POLICY", message, f"Name operators in place of {RULES!r}.")
    return replace(policy, forbidden=tuple(name for name in policy.forbidden if name != RULES), rules=own)
