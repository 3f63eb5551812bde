"""Every sentence of a verdict, of its flags and of its notes, from named numbers. Pure functions.

The rules of this package, and the parent while it measures, decide what is said; how it is said is decided here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from aisp_mcp.judge.records.measurement import Metric, Verification
from aisp_mcp.judge.records.verdict import Verdict

# --- numbers


def format_ratio(log_ratio: float) -> str:
    """A ratio from its logarithm: three decimals near 1, two or three significant digits further out."""
    ratio = math.exp(min(log_ratio, 700.0))
    if 0.8 < ratio < 1.25:
        return f"{ratio:.3f}"
    return f"{ratio:.2f}" if 0.1 < ratio < 100 else f"{ratio:.3g}"


def format_percent(fraction: float) -> str:
    if fraction > 10:
        return "over 1000 %"
    return f"{100 * fraction:.2g} %" if fraction < 0.1 else f"{100 * fraction:.0f} %"


def as_clause(message: str) -> str:
    """A message as the second half of a sentence."""
    message = message.strip().rstrip(".")
    word = message.split(" ")[0]
    return message[:1].lower() + message[1:] if word[1:] == word[1:].lower() else message  # but not NaN


# --- the sentence of a verdict

TOO_NOISY_FOR_SAME = "the noise is too wide to call it the same"
ONE_PAIR_IS_NEVER_SAME = "one process pair cannot show that it is the same"
NO_DIFFERENCE_SHOWN = "a ratio of 1 cannot be ruled out"
BELOW_NOISE_FLOOR = "the difference is below the noise floor"
WITHIN_MARGIN = "there is a difference, but it is within the margin"


_INTERVAL = re.compile(r" \([\d.]+ % interval [^)]*\)")


def sentence(
    verdict: Verdict,
    *,
    reason: str | None,
    log_ratio: float,
    low: float,
    high: float,
    level: float,
    margin: float,
    noise_floor: float,
    verification: Verification | None,
    single: bool,
) -> str:
    """One line: word, ratio, interval, limiting factor, and what was verified. low, high: logarithms, as log_ratio."""
    interval = f"{format_ratio(low)}-{format_ratio(high)}"
    text = f"{verdict.value}: {format_ratio(log_ratio)}x ({100 * level:.4g} % interval {interval})"
    if reason:
        text += f", {reason}"
    if margin > 0.0 and verdict not in (Verdict.FASTER, Verdict.SLOWER):
        text += f", margin {format_percent(margin)}"
    text += f", noise floor {format_percent(noise_floor)}{_verified(verification)}"
    if single:
        text += "; one process pair only, more replicates are needed to confirm it"
    return text


def _verified(verification: Verification | None) -> str:
    return f", {verification.checked} of {verification.calls} timed calls verified" if verification else ""


def short_sentence(verdict: Verdict, message: str) -> str:
    """The sentence of a verdict without numbers: the finding that decides it."""
    return f"{verdict.value}: {as_clause(message)}"


def no_gain_is_proven(ratio: float | None) -> str:
    return f"inconclusive: no gain is proven; the candidate is at least {ratio:.3g}x as fast"


def batched_gain_is_unproven(amounts: str) -> str:
    return f"inconclusive: calls may have been batched, which proves no gain of a single call; {amounts}"


def with_qualified_ratio(text: str, verdict: Verdict, ratio: float | None, before: str, after: str) -> str:
    """The sentence with words around the ratio at its start, if there is one."""
    amount = f"{format_ratio(math.log(ratio))}x" if ratio else ""
    begin = f"{verdict.value}: {amount}"
    if not amount or not text.startswith(begin):
        return text
    return f"{verdict.value}: {before}{amount}{after}{text.removeprefix(begin)}"


def by_both_clocks(text: str, verdict: Verdict, ratio: float | None, *, ratio_worker: float) -> str:
    """The sentence, with the ratio as the part of the worker's that the parent's clock proves. The interval goes: it
    is that of the part, and a reader would take it for that of the gain.
    """
    text = _INTERVAL.sub("", text, count=1)
    after = f" by the parent's clock, {format_ratio(math.log(ratio_worker))}x by the worker's own"
    if NO_DIFFERENCE_SHOWN in text:
        return with_qualified_ratio(text, verdict, ratio, "", after)
    if verdict is Verdict.SLOWER:
        return with_qualified_ratio(text, verdict, ratio, "at most ", f" as fast{after}")
    return with_qualified_ratio(text, verdict, ratio, "at least ", after)


def with_and_without_host(text: str, verdict: Verdict, ratio: float | None, *, ratio_alone: float) -> str:
    """The sentence, with the ratio on the device alone next to the one that includes host time."""
    after = f" with the host's time, {format_ratio(math.log(ratio_alone))}x on the device alone"
    return with_qualified_ratio(text, verdict, ratio, "", after)


KINDS = {
    "exact": "small integers or fractions",
    "spikes": "values with outliers",
    "zeros": "mostly zeros",
    "missing": "missing values (NaN)",
    "offset": "values far from 0 for their spread",
    "tiny": "tiny values",
    "constant": "equal values",
    "sorted": "sorted values",
    "ties": "values with ties",
    "skewed": "mostly one value",
    "two": "two values",
    "thousands": "values in the thousands",
    "large": "large values",
    "huge": "huge values",
    "beyond": "values beyond the declared range",
}


def gain_depends_on_values(plain: float, ratios: Mapping[str, float]) -> str:
    """ratios: of the kinds of inputs on which the gain is smaller."""
    rows = sorted(ratios.items(), key=lambda row: row[1])
    listed = ", ".join(f"{format_ratio(math.log(ratio))}x on {KINDS.get(name, name)}" for name, ratio in rows)
    return f"The gain depends on the values of the inputs: {format_ratio(math.log(plain))}x on usual ones, {listed}."


def on_all_kinds(
    verdict: Verdict,
    ratio: float,
    message: str,
    verification: Verification | None,
    *,
    margin: float,
    but: Sequence[str],
) -> str:
    """The sentence of a gain that is smaller on some kinds of inputs than on plain ones. but: kinds that decide
    nothing, and on which it is smaller still.
    """
    is_hidden = verdict is Verdict.INCONCLUSIVE and ratio > 1.0
    hidden = f", which is within the margin of {format_percent(margin)}" if is_hidden else ""
    exceptions = f" but {' and '.join(KINDS.get(name, name) for name in but)}" if but else ""
    amount = f"{format_ratio(math.log(ratio))}x on all kinds of inputs{exceptions}{hidden}{_verified(verification)}"
    return f"{verdict.value}: {amount}; {as_clause(message)}"


def amounts(baseline: Metric, candidate: Metric) -> str:
    """A goal's metric of both programs."""
    return f"{baseline.name} {baseline.value:.3g} {baseline.unit} and {candidate.value:.3g} {candidate.unit}"


def serving_amounts(baseline: Metric, candidate: Metric) -> str:
    """The deciding metric of both engines: latencies in ms."""
    both = [
        f"{1e3 * metric.value:.3g} ms" if metric.unit == "s" else f"{metric.value:.4g} {metric.unit}"
        for metric in (baseline, candidate)
    ]
    return f"{baseline.name} {' and '.join(both)}"


# Ends of a sentence, by the code of the flag that says more.
STRIDES_CLAUSES = {
    "strides_copied": "; each call contains a copy of its output into the baseline's strides",
    "strides_differ": "; its output has other strides than the baseline's, and no copy is timed",
}


# --- which ratio the verdict uses


def clocks_disagree(*, log_worker: float | None, log_parent: float, uses_smaller: bool) -> str:
    shown = "nothing usable" if log_worker is None else f"{format_ratio(log_worker)}x"
    used = "smaller ratio" if uses_smaller else "parent's"
    return (
        f"The workers' own clocks show {shown}, the parent's {format_ratio(log_parent)}x: the verdict uses the {used}."
    )


def low_resolution(resolution: float) -> str:
    share = format_percent(resolution)
    return f"The parent's clock resolves these calls to {share}: the verdict leaves that part out of a gain."


def saved_times(*, back_to_back_s: float, isolated_s: float) -> str:
    return _batching(f"back-to-back calls save {1e6 * back_to_back_s:.0f} µs, isolated calls {1e6 * isolated_s:.0f} µs")


def saved_shares(*, back_to_back: float, isolated: float) -> str:
    return _batching(f"back-to-back calls save {100 * back_to_back:.0f} %, isolated calls {100 * isolated:.0f} %")


def _batching(saved: str) -> str:
    return f"Batching across calls: {saved}. The verdict uses the gain measured on isolated calls."


def isolated_calls_are_slower(hidden_s: float) -> str:
    return f"Batching across calls: isolated calls are {1e6 * hidden_s:.0f} µs slower than back-to-back calls."


NO_ISOLATED_CALL = "No isolated call could be measured: the gain may come from batching across calls."

UNOBSERVED_COPIES = "the copies of the candidate's outputs could not be observed"
ISOLATED_CALLS_GAIN_LESS = "isolated calls gain less"
WORKER_CLOCKS_SHOW_LESS = "the workers' own clocks show less"
AS_SHORT_AS_THE_LOOP = "the calls are as short as the loop around them"


def only_a_part_is_proven(*, proven: float, measured: float, why: str) -> str:
    return f"Only {proven:.3g}x of the measured {measured:.3g}x is proven: {why}. The verdict uses {proven:.3g}x."


def other_latency_decides(*, metric: str, factor: float, allowed: float) -> str:
    return (
        f"{metric.upper()} is {factor:.3g} times the baseline's, {allowed:g} is allowed, so it determines the verdict."
    )


# --- what else was found

MORE_CORES_THAN_GRANTED = "The candidate used more cores than it was granted."
OTHER_PROCESSES = "Other processes of the candidate existed during timed rounds."
MEMORY_CAME_FROM_DISK = "The candidate's memory was read from disk during timed rounds."
COPIED_BEFORE_OVERWRITTEN = (
    "The candidate's outputs are copied before its next call overwrites them: the copies count as the candidate's time,"
    " except for the part that single-call rounds show is not its own."
)
REUSED_OUTPUT = "Each call returns the same memory, so it overwrites the result of the call before."
STRIDES_COPIED = (
    "The candidate's outputs have other strides than the baseline's: copying them is part of each timed call."
)
STRIDES_DIFFER = (
    "The candidate's outputs have other strides than the baseline's, which its contract allows: no call contains a"
    " copy."
)
DEVICE_BUSY = "The GPU was busy before rounds although all workers were stopped."
WORK_AFTER_DONE = "The GPU was still working when the candidate reported that it was done."
OTHER_STREAMS = "The candidate also worked on other streams or devices."
WARM_STATE_POSSIBLE = "At this isolation level, a process of an earlier replicate may keep running and keep its state."


POSTPONED = "work_postponed"


def postponed(candidate_s: float, baseline_s: float) -> str:
    took = f"{candidate_s:.3g} s, the baseline's {baseline_s:.3g} s"
    return f"The second call took {took}: a part of what the start saves is only postponed."


SAME_OUTPUT = "The baseline's output is the same in all timed calls, so a candidate may know it."


def ties(outputs: Sequence[str]) -> str:
    return f"{', '.join(outputs)}: where inputs are equal, other positions than the baseline's were accepted."


def undecided(shares: Mapping[str, float]) -> str:
    """shares: of an output that differed, by its name and the kind of inputs."""
    worst = max(shares, key=lambda name: shares[name])
    return (
        "Not tested where ties or roundings among computed values decide the baseline's own answer: "
        f"{worst}, {format_percent(shares[worst])} of it differs there."
    )


SINGLE, FEWER, REUSED, CANCELS = "single_precision", "fewer_digits", "reused_output", "cancels"
IN_SENTENCE = SINGLE, FEWER, REUSED, CANCELS  # flags that end a sentence
SINGLE_PRECISION = "All numbers of its answers are of float32, and the baseline's are not."


def fewer_digits(apart: float) -> str:
    return f"Its answers agree with the baseline's to {-math.log10(apart):.0f} digits."


def large_inputs(outputs: Sequence[str]) -> str:
    return f"{', '.join(outputs)}: wrong or imprecise for large inputs, where the baseline is right."


def tiny_inputs(outputs: Sequence[str]) -> str:
    return f"{', '.join(outputs)}: a few counts are at other places than the baseline's for inputs near 0."


def cancels(shares: Mapping[str, float]) -> str:
    """shares: error of an output in units of its size, or 0 if it is another one, by its name."""
    name = max(shares, key=lambda each: shares[each])
    amount = f"is off by {format_percent(shares[name])}" if shares[name] else "is another"
    where = "where the mean of inputs is far above their spread"
    return f"Numbers cancel {where}: {name} {amount} there, and the baseline's is right."


def inputs_not_tested(messages: Mapping[str, str]) -> str:
    return f"Not tested on {', '.join(messages)} inputs: {next(iter(messages.values()))}."


def edge_of_tolerance(where: str) -> str:
    return f"At the edge of the tolerance: {where}."


def more_than_its_work(why: str) -> str:
    return f"The parent's clock includes more than the candidate's work on the device: {why}."


def host_bound(*, ratio_alone: float, ratio_with_host: float) -> str:
    return (
        f"On the parent's clock the ratio is {ratio_alone:.3g}x on the device alone and {ratio_with_host:.3g}x with the"
        " host."
    )


def baselines_differ(fraction: float) -> str:
    return f"The two baseline processes differ by {format_percent(fraction)} in all replicates."


def noise_is_missing(*, differences: int, replicates: int) -> str:
    return f"{differences} A/A differences for {replicates} replicates."


def energy_below_idle(counts: Mapping[str, int], replicates: int) -> str:
    """counts: in how many replicates each program used no more than the idle device."""
    programs = " and ".join(f"of the {program} in {count}" for program, count in counts.items() if count)
    return (
        f"energy above idle {programs} of {replicates} replicates is not positive: a call does too little work, or the"
        " idle device's power changed meanwhile, through other programs on it or falling clocks"
    )


def slow_polls(*, look_s: float, metric_s: float) -> str:
    return f"The parent polled for tokens every {1e3 * look_s:.2g} ms, and the metric is {1e3 * metric_s:.2g} ms."


def service_level_never_met(program: str) -> str:
    return f"No request of the {program} met the service level, so each of its traces counts as one token."


# --- why rounds of a GPU could not be those that prove most; parts of a sentence about the candidate

INPUTS_ON_HOST = "its inputs are in host memory"
WAITS_FOR_ITS_DEVICE = "it waits for its device, or enqueues more than its stream can hold"
CALLS_CANNOT_WAIT = "its calls cannot wait one by one, or need their host"
OUTPUTS_MOVE = "its outputs have other addresses in each round"
OUTPUTS_UNREADABLE = "its outputs overlap, or are in memory that cannot be read"
DEVICE_BUSY_AT_GATE = "the device is rarely idle while its calls wait"
DEVICE_RARELY_IDLE = "the device was rarely idle"
INPUTS_UNWRITABLE = "memory for its own inputs cannot be written from outside"
INPUTS_AT_ONE_ADDRESS = "it only works on the inputs that it was prepared for"
PREPARES_ANEW = "it prepares itself anew for inputs at other addresses"
NO_ROOM_FOR_INPUTS = "there is not enough memory for its own inputs"
NO_GATE = "the driver does not support the gate"
FEW_CALLS_FIT = "too few of its calls fit into its stream"


def wrong_without_copies(failure: str) -> str:
    return f"without copies {failure}"


def wrong_behind_the_gate(failure: str) -> str:
    return f"behind the gate {failure}"


# --- flags that the parent sets


def policy_kept(names: Sequence[str], rules: Sequence[str]) -> str:
    kept = f"Forbidden here, and not called by the candidate: {', '.join(names)}. " if names else ""
    those = "the candidate called none that is an operator, and other names are not looked for"
    return f"{kept}Forbidden by the problem: {', '.join(rules)}; {those}." if rules else kept.rstrip()


def forbidden_call(name: str) -> str:
    return f"The candidate calls {name}, which is forbidden here."


def source_hint(parts: Sequence[str]) -> str:
    return f"Worth checking, but not proof of anything: the source {'; '.join(parts)}."


def extension_not_built(name: str, reason: str) -> str:
    return f"The candidate's extension {name!r} was not built{f': {reason}' if reason else ''}"


def ranks_over_nodes(count: int, others: str) -> str:
    """others: names of the other nodes."""
    return (
        f"Ranks of baseline and candidate ran on {count} nodes and shared their network: a candidate could use services"
        f" on it and disturb the baseline. Reports of the harness's own process on {others} were trusted."
    )


def ranks_apart(baseline_us: float, candidate_us: float) -> str:
    """The time by which the slowest rank took longer for a call than the fastest one."""
    return f"the ranks of a call were {baseline_us:.3g} µs apart, those of the candidate {candidate_us:.3g} µs"
