"""Two servers, judged like any pair: log-ratios of medians over interleaved repeats, against the baseline's
own noise.
"""

from __future__ import annotations

import math

from aisp_mcp.judge.records.verdict import Flag, Verdict
from aisp_mcp.judge.verdict.verdict import judge
from aisp_mcp.runs.endpoint.measuring import AGAIN, BASELINE, CANDIDATE, Runs, medians
from aisp_mcp.runs.endpoint.records import MetricRatio, ServerFigures, ServerVerdict

GOALS = ("latency", "ttft", "tpot")
TOKEN_SLACK = 0.02  # a different number of tokens in an answer is different work
_PASSED = (Verdict.FASTER, Verdict.SAME, Verdict.INCONCLUSIVE)


def compare(runs: Runs, servers: list[ServerFigures], goal: str, margin: float | None) -> ServerVerdict:
    """The verdict on the goal, and each metric's ratio with its interval."""
    flags = _flags(*servers)
    rows = [row for name in GOALS if (row := _ratio(runs, name, flags, margin))]
    judged = next(row for row in rows if row.metric == goal)
    return ServerVerdict(
        verdict=judged.verdict,
        passed=judged.verdict in _PASSED,
        goal=goal,
        sentence=judged.sentence,
        metrics=rows,
        flags=flags,
    )


def _ratio(runs: Runs, name: str, flags: list[Flag], margin: float | None) -> MetricRatio | None:
    log_ratios, noise = list[float](), list[float]()
    for repeat in zip(*(runs.by_role[role] for role in (BASELINE, AGAIN, CANDIDATE)), strict=True):
        before, again, after = (medians(requests).get(name) for requests in repeat)
        if before and again and after:
            log_ratios.append((math.log(before) + math.log(again)) / 2 - math.log(after))
            noise.append(math.log(before) - math.log(again))
    if not log_ratios and not flags:
        return None
    outcome = judge(log_ratios, noise, margin=margin, flags=flags)
    return MetricRatio(
        metric=name,
        ratio=outcome.ratio,
        interval=outcome.interval,
        noise_floor=outcome.noise_floor,
        verdict=outcome.verdict,
        sentence=outcome.sentence,
    )


def _flags(baseline: ServerFigures, candidate: ServerFigures) -> list[Flag]:
    """Reasons why two servers' latencies cannot be compared: failed requests, or answers of different length."""
    flags = []
    if candidate.failed > baseline.failed:
        message = f"The candidate failed {candidate.failed} requests, the baseline {baseline.failed}."
        flags.append(Flag(code="incorrect_failed", severity="fatal", message=message))
    if abs(candidate.output_tokens / baseline.output_tokens - 1) > TOKEN_SLACK:
        tokens = f"{candidate.output_tokens:.4g} tokens in a mean answer, the baseline's {baseline.output_tokens:.4g}"
        flags.append(Flag(code="incorrect_tokens", severity="fatal", message=f"The candidate's has {tokens}."))
    return flags
