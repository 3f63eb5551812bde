"""From what both clocks say of a GPU to a verdict: which of them counts, and what is not a gain. No GPU is needed."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from aisp_mcp.judge.evidence import Account, DeviceEvidence, Overhead, Replicate, Round, RoundTiming
from aisp_mcp.judge.options import ALL
from aisp_mcp.judge.presets import PRESETS
from aisp_mcp.judge.protocol.roles import BASELINES, Role
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.judge.verdict import bound, estimate
from aisp_mcp.judge.verdict import flags as flags_module
from aisp_mcp.judge.verdict.bound import lower_bound_flag
from aisp_mcp.judge.verdict.conclude import Terms, conclude
from aisp_mcp.judge.verdict.estimate import IsolatedCallEvidence


def seconds(ratio: float, noise: float = 1.0) -> dict[int, float]:
    return {Role.BASELINE: ratio * noise, Role.BASELINE_REPEAT: ratio / noise, Role.CANDIDATE: 1.0}


@pytest.mark.parametrize(
    ("worker", "alone", "with_host", "copying", "parent", "noise"),
    [
        (2.0, 1.99, None, False, 1.99, 1.1),
        (3.0, 2.0, None, False, 2.0, 1.1),
        (1.5, 2.0, None, False, 2.0, 1.1),
        (3.0, 2.0, 4.0, False, 3.0, 1.3),
        (3.0, 4.0, 2.0, False, 3.0, 1.1),
        (5.0, 2.0, 4.0, False, 4.0, 1.3),
        (1.5, 2.0, 4.0, False, 2.0, 1.1),
        (1.5, 0.7, None, True, 1.5, 1.1),
        (0.9, 0.7, None, True, 0.9, 1.1),
        (0.0, 2.0, 4.0, False, 2.0, 1.1),
    ],
)
def test_the_parents_ratio_on_a_gpu_bounds_the_workers(
    worker: float, alone: float, with_host: float | None, copying: bool, parent: float, noise: float
) -> None:
    device = DeviceEvidence(seconds(alone, 1.1), seconds(with_host, 1.3) if with_host else {}, copying)
    replicate = Replicate(0, device=device)
    for role in (*Role, *reversed(Role)):
        own = 1.0 if role == Role.CANDIDATE else worker
        replicate.rounds.append(Round(role, own, own, RoundTiming(1, own, [round(1e9 * own)], Account())))
    [ratios] = estimate.log_ratios([replicate], "parent")
    assert math.exp(ratios.log_ratio) == pytest.approx(parent)
    assert math.exp(ratios.noise / 2) == pytest.approx(noise)


@pytest.mark.parametrize(
    ("dropped", "apart"),
    [
        ([2.2, 2.2, 2.2], math.log(1.1)),
        ([1.8, 1.8, 1.8], math.log(0.9)),
        ([2.01, 1.98, 2.015], 0.0),  # as the mean itself is not known
        ([2.2, 0.0, 2.2], math.log(1.1)),  # a clock that shows nothing
        ([], 0.0),
    ],
)
def test_what_outputs_that_are_dropped_change_is_told_from_scatter(dropped: list[float], apart: float) -> None:
    replicates = list[Replicate]()
    for index, shown in enumerate(dropped or [0.0]):
        replicate = Replicate(index)
        for role in (*Role, *reversed(Role)):
            own = 1.0 if role == Role.CANDIDATE else 2.0
            replicate.rounds.append(Round(role, own, own, RoundTiming(1, own, [round(1e9 * own)], Account())))
        if dropped:
            replicate.dropped_s = {Role(role): [own] * 3 for role, own in seconds(shown).items()}
        replicates.append(replicate)
    assert estimate.dropped_apart(replicates) == pytest.approx(apart)


@pytest.mark.parametrize(
    ("alone", "with_host", "copying", "proven"),
    [
        (0.7, None, True, 0.7),
        (0.7, 1.2, True, 1.2),
        (1.46, None, True, None),  # hardly less than is claimed
        (1.46, None, False, None),  # no copies are in it
    ],
)
def test_what_copies_leave_of_a_gain_on_a_gpu_counts(
    alone: float, with_host: float | None, copying: bool, proven: float | None
) -> None:
    replicate = Replicate(0, device=DeviceEvidence(seconds(alone), seconds(with_host) if with_host else {}, copying))
    for role in (*Role, *reversed(Role)):
        own = 1.0 if role == Role.CANDIDATE else 1.5
        replicate.rounds.append(Round(role, own, own, RoundTiming(1, own, [round(1e9 * own)], Account())))
    flag = lower_bound_flag([replicate], [math.log(1.5)])
    assert (flag is None) == (proven is None)
    if flag:
        assert (flag.code, flag.evidence["ratio_lower_bound"]) == ("clock_disagreement", pytest.approx(proven))


def concluded(
    worker: float, ratio: float, *, copying: bool = False, gated: bool = True, **device_s: dict[int, float]
) -> Comparison:
    """The comparison that five such replicates on a GPU make, each a little unlike. device_s: of DeviceEvidence."""
    replicates = []
    for index in range(5):
        step = 1 + 0.002 * index
        unlike = seconds(step, 1 + 0.0001 * (index - 2))
        given = {"device_only": seconds(ratio), "isolated": seconds(ratio), **device_s}
        if "with_host" in given:
            given["isolated_with_host"] = given["with_host"]
        scaled = {name: {role: s * unlike[role] for role, s in of_side.items()} for name, of_side in given.items()}
        device: Any = DeviceEvidence(copying=copying, gated=gated, **scaled)
        replicate = Replicate(index, device=device, overhead=Overhead(0.0, 0.0))
        for role in (*Role, *reversed(Role)):
            own = 1e-3 / (1.0 if role != Role.CANDIDATE else worker * step)
            own *= 1.0005 if role == Role.BASELINE_REPEAT else 1.0
            replicate.rounds.append(Round(role, own, own, RoundTiming(1, own, [round(1e9 * own)], Account())))
        replicates.append(replicate)
    opened = {"goal": "speed", "error_ratio": 1.0, "oracle": "float64", "facts": {}}
    pair: Any = SimpleNamespace(target="t", candidate="c")
    known: Any = opened | {"work": {"flops": 0.0, "bytes": 0.0, "items": 0.0}, "unit": ""}
    terms = Terms(pair, PRESETS["default"], ALL, known, "L1", 1, None, {})
    return conclude(terms, replicates, [])


@pytest.mark.parametrize(
    ("worker", "alone", "copying", "verdict", "ratio", "flags"),
    [
        (1.5, 1.5, False, "faster", 1.5, []),
        (1.5, 1.46, False, "faster", 1.5, []),
        (1.5, 1.43, False, "faster", 1.43, ["clock_disagreement"]),
        (1.5, 1.3, False, "faster", 1.3, ["clock_disagreement"]),
        (1.5, 0.7, False, "slower", 0.7, ["clock_disagreement"]),
        (1.5, 0.7, True, "inconclusive", 0.7, ["clock_disagreement"]),
        (1.5, 1.2, True, "faster", 1.2, ["clock_disagreement"]),
        (0.999, 0.7, True, "same", 0.999, []),
        (0.8, 0.5, True, "slower", 0.8, []),
    ],
)
def test_a_gain_on_a_gpu_counts_as_far_as_it_is_proven(
    worker: float, alone: float, copying: bool, verdict: str, ratio: float, flags: list[str]
) -> None:
    comparison = concluded(worker, alone, copying=copying)
    assert (comparison.verdict.value, [flag.code for flag in comparison.flags if flag.severity != "note"]) == (
        verdict,
        flags,
    )
    assert comparison.ratio == pytest.approx(ratio, rel=0.01)


def test_a_gain_that_the_host_decides_is_said_to_be_one() -> None:
    isolated_times = {"isolated": seconds(4.0), "isolated_with_host": seconds(2.0)}
    device = DeviceEvidence(seconds(4.0), seconds(2.0), overcounted="it is slow", **isolated_times)
    hindered, host = flags_module.device_flags([Replicate(0, device=device)])
    assert (hindered.code, hindered.severity) == ("parent_overcounts", "note")
    assert "it is slow" in hindered.message
    assert (host.code, host.severity) == ("host_bound", "note")
    assert host.evidence == {"ratio_alone": pytest.approx(4.0), "ratio_with_host": pytest.approx(2.0)}
    assert (
        flags_module.device_flags(
            [
                Replicate(
                    0,
                    device=DeviceEvidence(
                        seconds(4.0), seconds(4.1), isolated=seconds(4.0), isolated_with_host=seconds(4.1)
                    ),
                )
            ]
        )
        == []
    )


def test_a_gain_is_not_vouched_for_where_no_call_is_measured_by_itself() -> None:
    for alone, single, severity in ((1.5, None, "warn"), (1.5, 1.5, None), (1.01, None, None)):
        device = DeviceEvidence(seconds(alone), isolated=seconds(single) if single else {}, gated=True)
        codes = [(flag.code, flag.severity) for flag in flags_module.device_flags([Replicate(0, device=device)])]
        assert codes == ([("batching_unverified", severity)] if severity else [])


@pytest.mark.parametrize(
    ("single", "verdict", "ratio", "used"),
    [
        ((1.80, 1.80, 1.3), "faster", 1.5, "worker"),  # as much by itself, or almost
        ((1.80, 1.80, 1.32), "faster", 1.5, "worker"),
        ((1.80, 1.80, 1.2), "faster", 1.5, "worker"),  # more: that is not a gain among others
        ((1.80, 1.80, 1.4), "faster", 1.5 / 1.1, "lower_bound"),
        ((1.81, 1.79, 1.4), "faster", 1.5 / 1.1, "lower_bound"),
        ((2.10, 1.50, 1.4), "inconclusive", 1.5 / 1.1, "lower_bound"),  # two processes of one program are as far apart
        ((1.80, 1.80, 1.8), "inconclusive", 1.0, "lower_bound"),
        ((1.80, 1.80, 1.9), "inconclusive", 1.5 / 1.6, "lower_bound"),  # no gain, and no loss either
    ],
)
def test_short_calls_count_as_what_they_take_by_themselves(
    single: tuple[float, ...], verdict: str, ratio: float, used: str
) -> None:
    """Calls of ten microseconds, of which all that is missing would be conceded to a clock."""
    scale = 1e-5
    short = {role: scale * taken for role, taken in seconds(1.5).items()}
    single_s = {role: scale * taken for role, taken in zip(Role, single, strict=True)}
    comparison = concluded(1.5, 1.5, device_only=short, isolated=single_s)
    assert comparison.clocks is not None
    assert comparison.baseline is not None
    assert comparison.optimized is not None
    assert (comparison.verdict.value, comparison.clocks.used) == (verdict, used)
    assert comparison.ratio == pytest.approx(ratio, rel=0.02)
    assert ("clock_resolution_low" in {flag.code for flag in comparison.flags}) == (used == "lower_bound")
    if used == "lower_bound":
        assert comparison.baseline.time_s / comparison.optimized.time_s == pytest.approx(ratio, rel=0.02)


@pytest.mark.parametrize("copying", [False, True])
def test_a_call_by_itself_is_no_shorter_with_the_host_than_on_the_device_alone(copying: bool) -> None:
    """The host of baselines may cost more by itself; that does not make the device's own part shorter."""
    alone, single = (
        dict.fromkeys(BASELINES, base) | {Role.CANDIDATE: call} for base, call in ((90e-6, 60e-6), (230e-6, 230e-6))
    )
    host_s = {Role.BASELINE: 310e-6, Role.BASELINE_REPEAT: 310e-6, Role.CANDIDATE: 235e-6}
    given = {"device_only": alone, "with_host": alone, "isolated": single, "isolated_with_host": host_s}
    replicate = Replicate(0, device=DeviceEvidence(copying=copying, gated=True, **given))
    for role in (*Role, *reversed(Role)):
        replicate.rounds.append(
            Round(role, alone[role], alone[role], RoundTiming(1, 1e-4, [round(1e9 * alone[role])], Account()))
        )
    flag = lower_bound_flag([replicate], [math.log(1.5)])
    assert flag is not None
    assert flag.evidence["ratio_lower_bound"] == pytest.approx(1.0)


@pytest.mark.parametrize(("clock", "base_s"), [("parent", 4.0), ("with_host", 10.0)])
def test_beside_a_proven_ratio_stand_times_of_the_clock_it_is_taken_from(clock: str, base_s: float) -> None:
    alone, host = (dict.fromkeys(BASELINES, s) | {Role.CANDIDATE: 2.0} for s in (4.0, 10.0))
    device = DeviceEvidence(alone, host, isolated=alone, isolated_with_host=host, gated=True)
    replicate = Replicate(0, device=device)
    replicate.rounds = [
        Round(role, 1.0, alone[role], RoundTiming(1, 1.0, [1], Account())) for role in (*Role, *reversed(Role))
    ]
    bounds = dict(bound.lower_bound_seconds([replicate], [math.log(base_s / 2.0)], clock))
    assert bounds == pytest.approx(dict.fromkeys(BASELINES, base_s) | {Role.CANDIDATE: 2.0})


def test_with_the_host_a_call_by_itself_is_compared_with_what_all_baselines_cost_in_the_middle() -> None:
    """Their hosts scatter by more than a call of the candidate takes."""
    replicates = []
    for index, disturbed in enumerate((0.0, 4.0, -3.0)):
        many = {Role.BASELINE: 10.0, Role.BASELINE_REPEAT: 10.0, Role.CANDIDATE: 1.0}
        single = {Role.BASELINE: 12.0 + disturbed, Role.BASELINE_REPEAT: 12.1, Role.CANDIDATE: 3.1 + 0.1 * index}
        replicate = Replicate(
            index, device=DeviceEvidence(many, many, isolated=many, isolated_with_host=single, gated=True)
        )
        for role in (*Role, *reversed(Role)):
            replicate.rounds.append(
                Round(role, many[role], many[role], RoundTiming(1, 1.0, [round(1e9 * many[role])], Account()))
            )
        replicates.append(replicate)
    _, with_host = zip(*estimate.bounded_seconds(replicates), strict=True)
    assert [ruler[Role.CANDIDATE] for ruler in with_host] == pytest.approx([1.0, 1.1, 1.2])


@pytest.mark.parametrize(
    ("worker", "alone", "host", "own", "used", "ratio", "flags"),
    [
        (3.0, 1.2, 2.0, 2.02, "with_host", 2.0, []),
        (0.9, 1.2, 2.0, 1.99, "with_host", 2.0, []),
        (1.6, 1.2, 2.0, 2.0, "worker", 1.6, []),
        (3.0, 1.2, 2.0, 3.0, "parent", 2.0, ["clock_disagreement"]),
        (3.0, 1.2, 2.0, 0.0, "parent", 2.0, ["clock_disagreement"]),
    ],
    ids=["beyond both", "below both", "between", "the own clock is bent, too", "there is none"],
)
def test_where_events_count_a_part_of_the_host_rounds_with_all_of_it_decide(
    worker: float, alone: float, host: float, own: float, used: str, ratio: float, flags: list[str]
) -> None:
    own_s = seconds(own) if own else dict.fromkeys(Role, 0.0)
    comparison = concluded(worker, alone, with_host=seconds(host), worker_with_host=own_s)
    assert comparison.clocks is not None
    assert comparison.clocks.used == used
    assert [flag.code for flag in comparison.flags if flag.severity != "note"] == flags
    assert comparison.ratio == pytest.approx(ratio, rel=0.02)
    if used == "with_host":
        assert comparison.baseline is not None
        assert comparison.baseline.time_s == pytest.approx(host, rel=0.02)


@pytest.mark.parametrize(
    ("worker", "alone", "expected"),
    [(0.7, 0.8, "slower"), (0.85, 1.0, "inconclusive")],
    ids=["both clocks show the loss", "only the worker's does"],
)
def test_a_loss_on_a_gpu_needs_both_clocks(worker: float, alone: float, expected: str) -> None:
    """Seen on an H100: a program of two short kernels beside itself, 0.85x by device events alone."""
    comparison = concluded(worker, alone)
    assert comparison.clocks is not None
    assert (comparison.verdict.value, comparison.clocks.used) == (expected, "worker")


@pytest.mark.parametrize(
    ("single", "known_s", "part", "hidden"),
    [
        ((1.5, 1.5, 1.5), 0.0, 1.0, 0.5),  # alone they are alike
        ((1.5, 1.5, 1.5), 0.1, 1.0, 0.4),
        ((1.5, 1.5, 1.5), 0.1, 0.5, 0.4),
        ((1.5, 1.5, 1.3), 0.0, 1.0, 0.3),
        ((1.5, 1.5, 1.2), 0.0, 0.5, 0.0),  # it saves more than half
        ((1.6, 1.5, 1.5), 0.0, 1.0, 0.35),  # it is not well known what a round of one call costs
        ((1.5, 1.5, 1.0), 0.0, 1.0, 0.0),
        ((1.5, 1.5, 0.9), 0.0, 1.0, 0.0),
        ((2.5, 2.5, 2.0), 0.0, 1.0, 0.0),  # such a round costs all of them more
        ((2.5, 1.5, 2.0), 0.0, 1.0, 0.3),  # what scatters is conceded up to a bound
        ((), 0.0, 1.0, 0.0),
    ],
)
def test_what_a_call_saves_among_others_alone_is_known(
    single: tuple[float, ...], known_s: float, part: float, hidden: float
) -> None:
    told = IsolatedCallEvidence(seconds(1.5), dict(zip(Role, single, strict=False)), known_s, 0.2, part)
    assert told.hidden_s == pytest.approx(hidden)


@pytest.mark.parametrize(("part", "apart"), [(1.0, 0.4), (0.85, 0.0)])
def test_one_restless_single_call_of_a_baseline_is_no_noise_where_its_host_counts(part: float, apart: float) -> None:
    """There are few of these; with the gate each process is off by about a microsecond, so there it is noise."""
    many = seconds(1.5)
    told = IsolatedCallEvidence(
        many, many | {Role.BASELINE: many[Role.BASELINE] + 0.4 * many[Role.BASELINE]}, 0.0, 0.0, part
    )
    bound = told.lower_bound(cost_s=0.0)
    assert bound[Role.BASELINE] - bound[Role.BASELINE_REPEAT] == pytest.approx(apart * many[Role.BASELINE])


def test_isolated_calls_of_equal_length_do_not_hide_what_the_baselines_differ_by() -> None:
    many = seconds(1.5) | {Role.BASELINE: 1.01 * seconds(1.5)[Role.BASELINE]}
    bound = IsolatedCallEvidence(many, seconds(1.5), 0.0, 0.0).lower_bound(cost_s=0.0)
    assert bound[Role.BASELINE] - bound[Role.BASELINE_REPEAT] == pytest.approx(0.01 * many[Role.BASELINE] / 1.01)


@pytest.mark.parametrize(
    ("single", "gated", "ratio", "accused"),
    [
        (1.0, True, 1.0, True),
        (1.5, True, 1.5, False),
        (1.4, True, 1.38, True),
        (1.46, False, 1.5, False),
        (1.4, False, 1.36, False),
        (1.0, False, 1.0, True),
    ],
)
def test_what_calls_gain_by_work_on_several_at_once_is_no_gain(
    single: float, gated: bool, ratio: float, accused: bool
) -> None:
    """Nobody is accused of a hundredth of a call, or without the gate of what a restless host explains."""
    comparison = concluded(1.5, 1.5, isolated=seconds(single), gated=gated)
    codes = {code for code, holds in (("batching", accused), ("clock_resolution_low", ratio < 1.5)) if holds}
    assert {flag.code for flag in comparison.flags if flag.severity != "note"} == codes
    assert comparison.ratio == pytest.approx(ratio, rel=0.02)


@pytest.mark.parametrize(
    ("hidden", "accused"), [((0.1, 0.0), 0), ((0.1, 0.1), 1), ((0.1, 0.0, 0.1), 1), ((0.1, 0.0, 0.0), 0)]
)
def test_one_disturbed_replicate_accuses_nobody_of_work_on_several_calls(
    hidden: tuple[float, ...], accused: int
) -> None:
    replicates = []
    for index, more in enumerate(hidden):
        single = seconds(1.5) | {Role.CANDIDATE: 1.0 + more}
        replicates.append(Replicate(index, device=DeviceEvidence(seconds(1.5), isolated=single, gated=True)))
    flags = [flag for flag in flags_module.device_flags(replicates) if flag.code == "batching"]
    assert len(flags) == accused


@pytest.mark.parametrize("with_host", [0.8, 1.2])
def test_a_host_can_only_add_to_what_the_device_takes(with_host: float) -> None:
    """Or work on several calls at once would count where only the host's time counts."""
    many = {Role.BASELINE: 2.0, Role.BASELINE_REPEAT: 2.0}
    replicate = Replicate(
        0, device=DeviceEvidence(many | {Role.CANDIDATE: 1.0}, many | {Role.CANDIDATE: with_host}, gated=True)
    )
    for role in (*Role, *reversed(Role)):
        own = 0.2 if role == Role.CANDIDATE else 2.0  # it says that it is ten times as fast
        replicate.rounds.append(Round(role, own, own, RoundTiming(1, own, [round(1e9 * own)], Account())))
    [ratios] = estimate.log_ratios([replicate], "parent")
    assert math.exp(ratios.log_ratio) == pytest.approx(2.0)


def test_a_forged_clock_finds_no_support_in_rounds_of_a_busy_host() -> None:
    """Seen on an H200 beside three processes on four cores: a worker that subtracts the L2 flush was "faster", 1.31x,
    because the rounds with host time, which then vary threefold, happened to show more in both replicates.
    """
    device_only = [(353.1, 353.5, 354.7), (355.4, 354.5, 360.7)]
    with_host = [(653.1, 1115.5, 441.8), (885.7, 1173.0, 656.0)]
    roles = (*BASELINES, Role.CANDIDATE)
    own_with_host = [(384.2, 388.4, 385.6), (370.7, 380.4, 372.6)]
    replicates = []
    for index, rows in enumerate(zip(device_only, with_host, own_with_host, strict=True)):
        alone, host, its = (dict(zip(roles, (us * 1e-6 for us in row), strict=True)) for row in rows)
        replicate = Replicate(index, device=DeviceEvidence(alone, host, worker_with_host=its, gated=True))
        for role in (*Role, *reversed(Role)):
            own = 353e-6 / (1.307 + 0.001 * index if role == Role.CANDIDATE else 1.0)
            replicate.rounds.append(Round(role, own, own, RoundTiming(1, own, [round(1e9 * own)], Account())))
        replicates.append(replicate)
    estimated = estimate.estimate(replicates, [], True)
    assert estimated.clocks.ratio_parent == pytest.approx(0.99, rel=0.01)
    assert [flag.code for flag in estimated.flags] == ["clock_disagreement"]
