"""Measure two functions at every regime of a workload, as one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aisp_mcp.errors import UsageError
from aisp_mcp.judge import library
from aisp_mcp.judge.functions import inputs, pair, sources
from aisp_mcp.judge.functions.pair import Plan, Request
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.presets import Preset
from aisp_mcp.judge.records.verdict import Comparison, Verdict
from aisp_mcp.judge.records.workload import Workload
from aisp_mcp.judge.verdict import workload as rule
from aisp_mcp.judge.verdict.workload import Measured
from aisp_mcp.runs import measure as runs
from aisp_mcp.runs.workload import reading
from aisp_mcp.runs.workload.reading import Read, Row
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.run import Failure, Run
from aisp_mcp.store.records.verdict_row import RunKind

# What all regimes together may cost, in rounds of one pair at the same preset. Chosen: each has its own processes and
# checks, which take longer than its rounds, so that a dozen cost less than three times as much as one.
ROUNDS = 1.5
# One of each order; what an interval needs; and rounds of isolated calls, of which the shortest counts.
LEAST_PALINDROMES, LEAST_REPLICATES, LEAST_ISOLATED = 3, 2, 3


@dataclass(frozen=True)
class Regimes:
    """A workload as pairs that can be written: one plan and one request for each row."""

    read: Read
    requests: Sequence[Request]
    plans: Sequence[Plan]


def regimes(request: Request, workload: str) -> Regimes:
    """Read everything that can be wrong. Raises as reading.read and pair.plan do."""
    if request.make:
        raise UsageError("BAD_WORKLOAD", "A workload makes the arguments of each call itself.", "Leave out --make.")
    baseline, candidate = sources.pair(request.baseline, request.candidate)
    arguments = inputs.read(request.inputs, pair.library(baseline, candidate))
    named = list(inputs.sizes(arguments))
    found = reading.read(workload, named, baseline.parameters, baseline.name or "run")
    requests = [
        replace(request, sizes=row.sizes) if row.sizes else replace(request, inputs=repr(row.label))
        for row in found.rows
    ]
    plans = [
        pair.plan(each) if row.sizes else pair.with_arguments(each, baseline, candidate, row.arguments)
        for each, row in zip(requests, found.rows, strict=True)
    ]
    return Regimes(found, requests, plans)


def measure(ctx: Context, chosen: Regimes, workload: str, options: Options, allow_slower: bool = False) -> Run:
    """Measure every regime, and judge the workload. The regime that matters and seems to lose most is measured again,
    with all the preset's replicates: only new times, which its selection did not bias, are used. allow_slower: as in
    rule.judge.
    """
    device = next((plan.device for plan in chosen.plans if plan.device), options.device)
    options = replace(options, device=device)
    first = replace(options, preset=divided(options.preset, len(chosen.plans)))
    pairs = [
        _written(plan, row, options.folder / "regimes" / str(at))
        for at, (plan, row) in enumerate(zip(chosen.plans, chosen.read.rows, strict=True))
    ]
    run = runs.measure(ctx, pairs, first, about=runs.About(RunKind.FUNCTIONS))
    orders = {each.target: row.order for each, row in zip(pairs, chosen.read.rows, strict=True)}
    run = run.model_copy(update={"failed": [explained(failure, orders) for failure in run.failed]})
    found = {each.target: each for each in run.comparisons}
    if len(found) == len(pairs):
        seemed = _judged(chosen, pairs, found, workload, options, allow_slower)
        label = seems_slower(seemed)
        if label is not None and options.preset.replicates > first.preset.replicates:
            ctx.progress(0, 1, "measuring again where the candidate seems slower")
            unsure = [each for each, row in zip(pairs, chosen.read.rows, strict=True) if row.label == label]
            again = replace(first, preset=replace(first.preset, replicates=options.preset.replicates))
            more = runs.measure(ctx, unsure, again, about=runs.About(RunKind.FUNCTIONS, part_of=run.id))
            found |= {each.target: each for each in more.comparisons}
    disclosed = [
        library.disclosed(found[each.target], request, plan)
        for each, request, plan in zip(pairs, chosen.requests, chosen.plans, strict=True)
        if each.target in found
    ]
    verdict = _judged(chosen, pairs, found, workload, options, allow_slower) if len(found) == len(pairs) else None
    run = run.model_copy(update={"comparisons": disclosed, "workload": verdict})
    ctx.store.save_run(run, ctx.job_id)
    return run


def _judged(
    chosen: Regimes,
    pairs: Sequence[Pair],
    found: Mapping[str, Comparison],
    workload: str,
    options: Options,
    allow_slower: bool,
) -> Workload:
    measured = [_weighed(row, found[each.target]) for row, each in zip(chosen.read.rows, pairs, strict=True)]
    verdict = rule.judge(workload, measured, chosen.read.step_share, options.margin, allow_slower)
    return verdict.model_copy(update={"notes": list(chosen.read.notes)})


def seems_slower(seemed: Workload) -> str | None:
    """The label of the regime that matters, is not decided, and seems to lose most of the workload's time. One that is
    then shown slower is enough.
    """
    launches = sum(each.launches for each in seemed.regimes)
    lost = {
        each.label: each.share * (1 / each.ratio - 1)
        for each in seemed.regimes
        if each.verdict == Verdict.INCONCLUSIVE and each.ratio and each.ratio < 1 and rule.matters(each, launches)
    }
    return max(lost, key=lambda label: lost[label], default=None)


def divided(preset: Preset, regimes: int) -> Preset:
    """The preset of each regime: its share of ROUNDS times the rounds of one pair."""
    share = min(1.0, ROUNDS / regimes)
    palindromes = max(LEAST_PALINDROMES, 3 * round(share * preset.palindromes / 3))
    left = share * preset.palindromes * preset.replicates / palindromes
    replicates = min(preset.replicates, max(LEAST_REPLICATES, round(left)))
    isolated = LEAST_ISOLATED if palindromes < preset.palindromes else preset.isolated_rounds
    return replace(preset, palindromes=palindromes, replicates=replicates, looks=(), isolated_rounds=isolated)


def _written(plan: Plan, row: Row, folder: Path) -> Pair:
    folder.mkdir(parents=True, exist_ok=True)
    written = pair.write(plan, folder)
    return replace(written, target=f"{written.target}@{row.label.replace(' ', '')}")


def explained(failure: Failure, orders: Mapping[str, str]) -> Failure:
    """The failure, and how the function got its arguments, if that may be the reason. orders: Row.order by target."""
    order = next((order for target, order in orders.items() if failure.target.startswith(target)), "")
    return failure.model_copy(update={"message": f"{failure.message}. {order}"}) if order else failure


def _weighed(row: Row, comparison: Comparison) -> Measured:
    """The regime with its time: as recorded, or launches times the baseline's time here."""
    call_s = comparison.baseline.time_s if comparison.baseline else 1.0
    return Measured(row.label, row.launches, row.recorded_s or row.launches * call_s, comparison)
