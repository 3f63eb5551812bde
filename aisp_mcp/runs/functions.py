"""Measure two of the caller's own functions, and disclose what could not be hidden.

Sizes are increased until calls are long enough for the parent's clock. Only numbers that the inputs name are increased
(`n=64, x=randn(n,n)`): no other size can change without changing the question.
"""

from __future__ import annotations

import math
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
from aisp_mcp.judge.verdict import wording
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
        sentence = f"{comparison.sentence}; {clause(grown)}" if grown.code == GROWN else comparison.sentence
        comparison = comparison.model_copy(update={"flags": [*comparison.flags, grown], "sentence": sentence})
    return library.disclosed(comparison, request, plan)


MAX_STEPS = 5  # steps; each doubles every named size
MAX_CALL_S = 0.05  # of the baseline; its work may grow faster than its sizes
LEAST_GROWTH = 1.25  # of that, when sizes double: a function that ignores them takes as long. Chosen
MAX_ELEMENTS = 2**24  # of all inputs of one call
GROWN, KEPT, UNRESOLVED = "size_grown", "size_kept", "clock_resolution_low"
FAR = 2.0  # times as long as they would be after one more doubling, so that two are made. Chosen
MAX_RESOLUTION = 0.04  # of a trial, which is short: the verdict itself is content with 0.05. Chosen


@dataclass(frozen=True)
class _Trial:
    """The calls at some sizes. called_s: seconds of one of the baseline, infinite if it was too long to try.
    short: how many times as long they must be for the clock to resolve them; up to 1 if it does. fails: why nothing was
    measured.
    """

    called_s: float = 0.0
    short: float = math.inf
    fails: str = ""

    @property
    def resolved(self) -> bool:
        return self.short <= 1.0


def grown(ctx: Context, task: Sequence[_Placed]) -> list[tuple[Request, Flag | None]]:
    """The requests with sizes that the clock can resolve for all, and flags if they differ from the given ones, or if
    larger ones cannot be measured.
    """
    begin = pair.plan(task[0][0]).sizes
    if not begin or not all(request.grows for request, _ in task):
        return [(request, None) for request, _ in task]
    step, last = 0, list[_Trial]()
    for request, options in task:
        step, trial = _resolved(ctx, request, options, begin, step)
        last.append(trial)
        if trial.fails:  # such sizes are for no candidate
            return [(request, _kept(begin, trial.fails)) for request, _ in task]
    if not step:
        return [(request, None) for request, _ in task]
    sizes = _times(begin, 2**step)
    return [
        (replace(request, sizes=sizes), _flag(begin, sizes, trial.resolved))
        for (request, _), trial in zip(task, last, strict=True)
    ]


def _resolved(
    ctx: Context, request: Request, options: Options, begin: Mapping[str, int], first: int
) -> tuple[int, _Trial]:
    """The number of doublings after which the clock resolves this pair's calls, and the trial there; `first` if calls
    do not depend on the sizes, 0 if larger ones cannot be measured.
    """
    before, step, doublings = _Trial(), first, 0
    while True:
        attempt = replace(request, sizes=_times(begin, 2**step))
        ctx.progress(0, 1, f"looking for sizes that the clock resolves: {_text(attempt.sizes)}")
        trial = _tried(attempt, options, step)
        if step == first and _is_lost(request, options, trial, begin, step):  # the measurement itself reports it
            return first, _Trial(short=0.0)
        if trial.fails:
            return 0, replace(trial, fails=f"with {_text(attempt.sizes)}, {wording.as_clause(trial.fails)}")
        if math.isinf(trial.called_s):
            return step - doublings, before
        if trial.called_s < LEAST_GROWTH**doublings * before.called_s:
            return first, before
        if trial.resolved or _ends(attempt, trial, step):
            return step, trial
        doublings = _doublings(attempt, before, trial, doublings, MAX_STEPS - step)
        before, step = trial, step + doublings


def _doublings(request: Request, before: _Trial, trial: _Trial, doublings: int, left: int) -> int:
    """The number of doublings to the next trial: two if the calls, growing as they did over the last ones, would still
    be far too short after one. left: how many are allowed.
    """
    if not doublings or left < 2 or _elements(request, 4) > MAX_ELEMENTS:
        return 1
    growth = max(before.short / trial.short, 1.0) ** (1 / doublings)
    calls_s = trial.called_s * (trial.called_s / before.called_s) ** (2 / doublings)
    return 2 if trial.short / growth > FAR and calls_s < MAX_CALL_S / 4 else 1


def _is_lost(request: Request, options: Options, trial: _Trial, begin: Mapping[str, int], step: int) -> bool:
    """Return True if the pair cannot be measured at the sizes of its first trial, nor at the given ones."""
    if not trial.fails:
        return math.isinf(trial.called_s)
    return not step or bool(_tried(replace(request, sizes=begin), options, 0).fails)


def _tried(request: Request, options: Options, step: int) -> _Trial:
    """Time a few calls at these sizes; nothing is stored."""
    folder = options.folder / "sizes" / str(step)
    folder.mkdir(parents=True, exist_ok=True)
    how = replace(options, folder=folder)
    try:
        plan = pair.plan(request)
        written, how = pair.write(plan, folder), _unseen(plan, how)
        if options.device == "cuda":
            return _compared(judge.compare(written, replace(how, preset=PRESETS["quick"])))
        times = judge.time_calls(written, how, MAX_CALL_S)
    except BenchmarkError as error:
        return _Trial(fails=error.message)
    if times is None:
        return _Trial(called_s=math.inf)
    if step and not times.varies:
        return _Trial(fails="the baseline gives the same output for different inputs")
    return _Trial(times.baseline_s, times.resolution / MAX_RESOLUTION)


def _compared(result: Comparison | Skip) -> _Trial:
    """The trial that a quick comparison is."""
    if not isinstance(result, Comparison) or result.baseline is None:
        return _Trial(fails="the candidate could not be measured")
    return _Trial(result.baseline.time_s, 2.0 if any(flag.code == UNRESOLVED for flag in result.flags) else 0.0)


def _ends(request: Request, trial: _Trial, step: int) -> bool:
    """Return True if the next step could take too much time or memory."""
    return step == MAX_STEPS or trial.called_s > MAX_CALL_S / 4 or _elements(request, 2) > MAX_ELEMENTS


def _elements(request: Request, factor: int) -> int:
    """Elements of all inputs of one call at so many times the sizes."""
    return pair.plan(replace(request, sizes=_times(request.sizes, factor))).elements


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
    return Flag(code=GROWN, severity="note", message=message, evidence=evidence)


def _kept(begin: Mapping[str, int], why: str) -> Flag:
    """The flag for calls that are too short at sizes that cannot grow."""
    given = _text(begin)
    message = f"Measured with {given}, where calls are too short for the parent's clock: {why}."
    return Flag(code=KEPT, severity="note", message=message, evidence={"asked": dict(begin)})
