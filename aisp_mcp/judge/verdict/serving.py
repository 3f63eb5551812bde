"""Latency percentiles, goodput and verdict of a serving comparison, all on the parent's clock. Pure functions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.evidence import Replicate, ServedReplicate, ServedRequest, ServedTrace
from aisp_mcp.judge.protocol.messages import OpenAnswer, ServingTerms
from aisp_mcp.judge.protocol.roles import BASELINES, Role
from aisp_mcp.judge.records.measurement import Clocks, Figures, Metric, Percentiles, Serving
from aisp_mcp.judge.records.verdict import Comparison, Flag
from aisp_mcp.judge.verdict import figures, wording
from aisp_mcp.judge.verdict.verdict import Judgement

GUARDED = ("ttft", "tpot", "e2e")  # latencies that must not get much worse, whichever metric decides the verdict

# --- calibrated constants

# Seconds that the parent's polls resolve: a shorter latency is taken to be this long. Chosen: it polls about every
# 0.3 ms (timing/serving.py), so that nothing shorter tells two engines apart.
RESOLUTION_S = 0.0002
# Share of the deciding metric: a longer pause between two polls is flagged. Chosen: as for the clocks of timed calls.
COARSE = 0.05

Rate = Callable[[ServedReplicate, ServedTrace], float]  # seconds of one trace, less is better
Ratios = list[tuple[float, float]]  # (log-ratio, A/A log-ratio) per replicate


def latencies(requests: Sequence[ServedRequest], metric: str) -> list[float]:
    """Values of one metric over requests; of itl, over gaps."""
    if metric == "itl":
        return [gap for request in requests for gap in request.itl]
    return [value for request in requests if (value := getattr(request, metric)) is not None]


def meets_slo(request: ServedRequest, terms: ServingTerms, alone_s: dict[str, float]) -> bool:
    """Return True if a request met the service level; without one, every request does."""
    for metric, limit in (("ttft", terms["slo_ttft"]), ("tpot", terms["slo_tpot"])):
        unit_s = alone_s[metric] if terms["time_unit"] == "alone" else 1.0
        value = getattr(request, metric)
        if limit is not None and value is not None and value > limit * unit_s:
            return False
    return True


def span_s(trace: ServedTrace) -> float:
    """Seconds from the first arrival to the last token."""
    return max(request.stamps_s[-1] for request in trace.requests) - min(
        request.arrived_s for request in trace.requests
    )


def good_tokens(trace: ServedTrace, terms: ServingTerms, alone_s: dict[str, float]) -> int:
    """Tokens of the requests that met the service level."""
    return sum(len(request.stamps_s) for request in trace.requests if meets_slo(request, terms, alone_s))


def seconds_per_good_token(replicate: ServedReplicate, trace: ServedTrace, terms: ServingTerms) -> float:
    """The reciprocal of goodput; a trace in which no request met the service level is taken for one token."""
    return span_s(trace) / max(good_tokens(trace, terms, replicate.alone_s), 1)


def compare(
    replicates: Sequence[Replicate],
    opened: OpenAnswer,
    judge: Callable[[Ratios, Sequence[Flag]], Judgement],
    earlier_flags: Sequence[Flag],
    common: dict[str, Any],
) -> Comparison:
    """The comparison of two engines that both served every request. judge: the judgement on ratios, with flags."""
    terms, served = opened["serving"], [replicate for replicate in replicates if isinstance(replicate, ServedReplicate)]
    deciding = _deciding(opened["goal"], terms)
    used, flags = ratios(served, deciding), list(earlier_flags)
    if opened["goal"] == "latency" and (worse := _worsened(served, terms)):
        used, flag = worse
        flags.append(flag)
    flags += _notes(served, opened["goal"], terms, deciding)
    judgement = judge(used, flags)
    ratio = math.exp(statistics.fmean(log_ratio for log_ratio, _ in used))
    programs = {name: _figures(served, roles, opened, deciding) for name, roles in figures.ROLES.items()}
    amounts = wording.serving_amounts(*(_metric(opened, program.time_s) for program in programs.values()))
    coarse = max(trace.look_s / deciding(replicate, trace) for replicate in served for trace in replicate.traces)
    return Comparison(
        **{**judgement.fields(), "sentence": f"{judgement.sentence}; {amounts}"},
        baseline=programs["baseline"],
        optimized=programs["optimized"],
        clocks=Clocks(used="parent", ratio_parent=ratio, delta=coarse),
        flags=[*flags, *judgement.flags],
        **common,
    )


def _deciding(goal: str, terms: ServingTerms) -> Rate:
    if goal == "throughput":
        return lambda replicate, trace: seconds_per_good_token(replicate, trace, terms)
    return _latency(terms["metric"], terms["percentile"])


def _latency(metric: str, percentile: float) -> Rate:
    return lambda _, trace: max(stats.quantile(latencies(trace.requests, metric), percentile / 100), RESOLUTION_S)


def ratios(served: Sequence[ServedReplicate], rate: Rate) -> Ratios:
    """Per replicate the log-ratio of baseline over candidate, and that of both baselines."""
    log_ratios = []
    for replicate in served:
        rows = [(trace.role, rate(replicate, trace)) for trace in replicate.traces]
        reduced = stats.replicate_log_ratio(rows)
        log_ratios.append((reduced.log_ratio, reduced.noise))
    return log_ratios


def _worsened(served: Sequence[ServedReplicate], terms: ServingTerms) -> tuple[Ratios, Flag] | None:
    """The ratios of the latency that worsened by more than max_regression, with a flag; None if there is none."""
    worst: tuple[float, str, Ratios] | None = None
    for metric in GUARDED:
        if metric == terms["metric"] or not latencies(served[0].traces[0].requests, metric):
            continue
        other = ratios(served, _latency(metric, _judged_percentile(served, metric, terms["percentile"])))
        factor = math.exp(-statistics.fmean(log_ratio for log_ratio, _ in other))
        if factor > terms["max_regression"] and (worst is None or factor > worst[0]):
            worst = factor, metric, other
    if worst is None:
        return None
    factor, metric, other = worst
    message = wording.other_latency_decides(metric=metric, factor=factor, allowed=terms["max_regression"])
    return other, Flag(code="other_latency_worse", severity="warn", message=message, evidence={"factor": factor})


def _judged_percentile(served: Sequence[ServedReplicate], metric: str, percentile: float) -> float:
    """The percentile, or 95 if a trace has too few values of this metric for a higher one."""
    fewest = min(len(latencies(trace.requests, metric)) for replicate in served for trace in replicate.traces)
    return percentile if fewest >= stats.P99_CALLS else min(percentile, 95.0)


def _notes(served: Sequence[ServedReplicate], goal: str, terms: ServingTerms, deciding: Rate) -> list[Flag]:
    """Flags that help to interpret the numbers."""
    flags = []
    traces = [(replicate, trace) for replicate in served for trace in replicate.traces]
    look_s = statistics.median(trace.look_s for _, trace in traces)
    seconds = statistics.median(deciding(*both) for both in traces)
    if goal == "latency" and look_s > COARSE * seconds:
        message = wording.slow_polls(look_s=look_s, metric_s=seconds)
        evidence = {"look_s": look_s, "metric_s": seconds}
        flags.append(Flag(code="clock_resolution_low", severity="warn", message=message, evidence=evidence))
    if goal == "throughput":
        for program, roles in (("baseline", BASELINES), ("candidate", (Role.CANDIDATE,))):
            if not any(
                good_tokens(trace, terms, replicate.alone_s) for replicate, trace in traces if trace.role in roles
            ):
                message = wording.service_level_never_met(program)
                flags.append(Flag(code="slo_never_met", severity="warn", message=message))
    return flags


def _figures(served: Sequence[ServedReplicate], roles: Sequence[Role], opened: OpenAnswer, deciding: Rate) -> Figures:
    """A baseline or candidate: time_s is the deciding metric, p50 to p99 are of e2e, items are emitted tokens."""
    common = figures.of_program(served, roles, "parent", figures.NO_WORK)
    rows = [deciding(replicate, trace) for replicate in served for trace in replicate.traces if trace.role in roles]
    time_s, serving = statistics.median(rows), _serving(served, roles, opened["serving"])
    update = {"time_s": time_s, "parent_time_s": time_s, "serving": serving, "items_per_s": serving.tokens_per_s}
    return common.model_copy(update={**update, "unit": "tokens", "metric": _metric(opened, time_s)})


def _metric(opened: OpenAnswer, time_s: float) -> Metric:
    """The deciding metric, by its usual name and in its unit. time_s: per token if a rate decides."""
    terms = opened["serving"]
    if opened["goal"] == "latency":
        return Metric(name=f"p{terms['percentile']:g} {terms['metric'].upper()}", unit="s", value=time_s)
    level = terms["slo_ttft"] is not None or terms["slo_tpot"] is not None
    return Metric(name="goodput" if level else "throughput", unit="tokens/s", value=1 / time_s)


def _serving(served: Sequence[ServedReplicate], roles: Sequence[Role], terms: ServingTerms) -> Serving:
    traces = [(replicate, trace) for replicate in served for trace in replicate.traces if trace.role in roles]
    requests = [request for _, trace in traces for request in trace.requests]
    seconds = sum(span_s(trace) for _, trace in traces)
    good = [meets_slo(request, terms, replicate.alone_s) for replicate, trace in traces for request in trace.requests]
    return Serving(
        requests=len(requests),
        ttft=_percentiles(latencies(requests, "ttft")),
        tpot=_percentiles(latencies(requests, "tpot")),
        itl=_percentiles(latencies(requests, "itl")),
        e2e=_percentiles(latencies(requests, "e2e")),
        tokens_per_s=sum(len(request.stamps_s) for request in requests) / seconds,
        goodput_tokens_per_s=sum(good_tokens(trace, terms, replicate.alone_s) for replicate, trace in traces) / seconds,
        slo_met=sum(good) / len(good),
        look_s=max(trace.look_s for _, trace in traces),
    )


def _percentiles(values: list[float]) -> Percentiles | None:
    if not values:
        return None
    p50, p95, p99 = stats.percentiles(values)
    return Percentiles(p50_s=p50, p95_s=p95, p99_s=p99)
