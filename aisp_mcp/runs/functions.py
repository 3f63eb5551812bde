"""Measure two of the caller's own functions, and disclose what could not be hidden.

Sizes are increased until calls are long enough for the parent's clock. Only numbers that the inputs name are increased
(`n=64, x=randn(n,n)`): no other size can change without changing the question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aisp_mcp.errors import BenchmarkError, Unavailable, UsageError
from aisp_mcp.judge import comparison as judge
from aisp_mcp.judge import library
from aisp_mcp.judge.functions import pair
from aisp_mcp.judge.functions.pair import Plan, Request
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.presets import PRESETS
from aisp_mcp.judge.records import Skip
from aisp_mcp.judge.records.verdict import Comparison, Flag
from aisp_mcp.runs import measure as runs
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.run import Failure, Run
from aisp_mcp.store.records.verdict_row import RunKind


def measure(ctx: Context, request: Request, options: Options) -> Run:
    """Write the pair into the run's folder and measure it. Raises as pair.plan, and Unavailable NO_GPU."""
    options = _placed(request, options)
    return _measured(ctx, _prepared(ctx, [(request, options)]), options)


def measure_all(
    ctx: Context,
    requests: Sequence[Request],
    options: Options,
    broken: Sequence[Failure | Skip] = (),
    profile: str = "portable",
) -> Run:
    """The same for several pairs in one run, each in a folder of its own; one that cannot be written is a failure.

    All candidates of a baseline get the same sizes: ratios at different ones say nothing about each other.
    """
    tasks, failed = dict[tuple[str, ...], list[_Placed]](), list[Failure | Skip](broken)
    for index, request in enumerate(requests):
        folder = options.folder / "pairs" / str(index)
        folder.mkdir(parents=True)
        try:
            placed = request, _placed(request, replace(options, folder=folder))
        except (BenchmarkError, UsageError) as error:
            label = f"{Path(request.baseline).stem}_{Path(request.candidate).stem}"
            failed.append(Failure(target=label, code=error.code, message=error.message, hint=error.hint))
            continue
        tasks.setdefault((request.baseline, request.inputs, str(request.make)), []).append(placed)
    prepared = [each for task in tasks.values() for each in _prepared(ctx, task)]
    return _measured(ctx, prepared, options, failed, profile)


_Placed = tuple[Request, Options]


@dataclass(frozen=True)
class _Prepared:
    """A pair that is written and whose sizes the clock resolves. options: those of its comparison."""

    request: Request
    plan: Plan
    written: Pair
    flag: Flag | None
    options: Options


def _placed(request: Request, options: Options) -> Options:
    """The options with the device of the request's inputs. Raises as measure."""
    plan = pair.plan(request)
    if plan.device == "cuda" and options.device == "cpu":
        raise Unavailable("NO_GPU", "The inputs ask for cuda, and this machine has no GPU.", "Leave out device=cuda.")
    return replace(options, device=plan.device or options.device)


def _prepared(ctx: Context, task: Sequence[_Placed]) -> list[_Prepared]:
    """The pairs of one baseline and its inputs, at the sizes that the shortest calls need."""
    written = []
    for (request, flag), (_, options) in zip(grown(ctx, task), task, strict=True):
        plan = pair.plan(request)
        written.append(_Prepared(request, plan, pair.write(plan, options.folder), flag, _unseen(plan, options)))
    return written


def _measured(
    ctx: Context,
    prepared: Sequence[_Prepared],
    options: Options,
    broken: Sequence[Failure | Skip] = (),
    profile: str = "portable",
) -> Run:
    """The stored run of these pairs, which are for one device."""
    hidden = dict.fromkeys(path for each in prepared for path in each.options.policy.hidden)
    policy = replace(options.policy, hidden=tuple(hidden) or options.policy.hidden)
    device = prepared[0].options.device if prepared else options.device
    options = replace(options, device=device, policy=policy)
    about = runs.About(RunKind.FUNCTIONS)
    run = runs.measure(ctx, [each.written for each in prepared], options, profile, broken, about=about)
    of = {(each.written.target, each.written.candidate): each for each in prepared}
    disclosed = [
        _disclosed(comparison, each.request, each.plan, each.flag)
        for comparison in run.comparisons
        for each in [of[comparison.target, comparison.candidate]]
    ]
    run = run.model_copy(update={"comparisons": disclosed, "failed": [_hinted(failure) for failure in run.failed]})
    ctx.store.save_run(run, ctx.job_id)
    return run


def _unseen(plan: Plan, options: Options) -> Options:
    """The options that hide the user's generator and checker from both programs."""
    hidden = (*options.policy.hidden, *pair.hidden(plan, options.folder))
    return replace(options, policy=replace(options.policy, hidden=hidden))


def _hinted(failure: Failure) -> Failure:
    """The failure with the remedy for functions."""
    if failure.code != "BASELINE_INPUT_MUTATED":
        return failure
    hint = "If changing its input is what the function is for, say so: x=randn(4096, in_place=True)."
    return failure.model_copy(update={"hint": hint})


def _disclosed(comparison: Comparison, request: Request, plan: Plan, grown: Flag | None) -> Comparison:
    if grown is not None:
        sentence = f"{comparison.sentence}; {clause(grown)}"
        comparison = comparison.model_copy(update={"flags": [*comparison.flags, grown], "sentence": sentence})
    return library.disclosed(comparison, request, plan)


MAX_STEPS = 5  # steps; each doubles every named size
MAX_CALL_S = 0.05  # of the baseline; its work may grow faster than its sizes
LEAST_GROWTH = 1.25  # of that, when sizes double: a function that ignores them takes as long. Chosen
MAX_ELEMENTS = 2**24  # of all inputs of one call
UNRESOLVED = "clock_resolution_low"


def grown(ctx: Context, task: Sequence[_Placed]) -> list[tuple[Request, Flag | None]]:
    """The requests with sizes that the clock can resolve for all, and flags if they differ from the given ones."""
    begin = pair.plan(task[0][0]).sizes
    if not begin or not all(request.grows for request, _ in task):
        return [(request, None) for request, _ in task]
    step, resolved = 0, list[bool]()
    for request, options in task:
        step, is_resolved = _resolved(ctx, request, options, begin, step)
        resolved.append(is_resolved)
    if not step:
        return [(request, None) for request, _ in task]
    sizes = _times(begin, 2**step)
    return [
        (replace(request, sizes=sizes), _flag(begin, sizes, is_resolved))
        for (request, _), is_resolved in zip(task, resolved, strict=True)
    ]


def _resolved(
    ctx: Context, request: Request, options: Options, begin: Mapping[str, int], first: int
) -> tuple[int, bool]:
    """The number of doublings, from `first` on, after which the clock resolves this pair's calls, and whether it then
    does; `first` if a probe gives no times, or if these do not depend on the sizes.
    """
    called_s = 0.0
    for step in range(first, MAX_STEPS + 1):
        sizes = _times(begin, 2**step)
        ctx.progress(0, 1, f"looking for sizes that the clock resolves: {_text(sizes)}")
        attempt = replace(request, sizes=sizes)
        comparison = _probe(attempt, options, step)
        if comparison is None:
            return first, True
        before_s, called_s = called_s, _called_s(comparison)
        if step > first and called_s < LEAST_GROWTH * before_s:  # the calls do not depend on these sizes
            return first, False
        if not any(flag.code == UNRESOLVED for flag in comparison.flags):
            return step, True
        if _ends(attempt, comparison, step):
            break
    return step, False


def _probe(request: Request, options: Options, step: int) -> Comparison | None:
    """A quick comparison that is not stored; None if it gives no times."""
    folder = options.folder / "sizes" / str(step)
    folder.mkdir(parents=True, exist_ok=True)
    how = replace(options, preset=PRESETS["quick"], folder=folder)
    try:
        plan = pair.plan(request)
        result = judge.compare(pair.write(plan, folder), _unseen(plan, how))
    except BenchmarkError:  # the measurement itself reports it
        return None
    return result if isinstance(result, Comparison) and result.baseline is not None else None


def _ends(request: Request, comparison: Comparison, step: int) -> bool:
    """Return True if the next step could take too much time or memory."""
    larger = replace(request, sizes=_times(request.sizes, 2))
    return step == MAX_STEPS or _called_s(comparison) > MAX_CALL_S / 4 or pair.plan(larger).elements > MAX_ELEMENTS


def _called_s(comparison: Comparison | None) -> float:
    """Seconds of a call of the baseline."""
    return comparison.baseline.time_s if comparison and comparison.baseline else 0.0


def _times(sizes: Mapping[str, int], factor: int) -> dict[str, int]:
    return {name: factor * value for name, value in sizes.items()}


def _text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sizes.items())


def clause(flag: Flag) -> str:
    """The end of a sentence that names the sizes of a verdict."""
    given, measured = (_text(flag.evidence[name]) for name in ("asked", "measured"))
    return f"measured at {measured} because calls at {given} are too short to time"


def _flag(begin: Mapping[str, int], end: Mapping[str, int], resolved: bool) -> Flag:
    message = f"Measured with {_text(end)}: with {_text(begin)} the calls were too short for the parent's clock."
    if not resolved:
        message += " They still are, and larger sizes are beyond the limit."
    evidence = {"asked": dict(begin), "measured": dict(end), "resolved": resolved}
    return Flag(code="size_grown", severity="note", message=message, evidence=evidence)
