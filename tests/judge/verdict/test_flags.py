"""Device work after a candidate's answer: a hard signal, unless it also follows the baselines' answers."""

from __future__ import annotations

import pytest

from aisp_mcp.judge.candidate.cupti import summarise
from aisp_mcp.judge.evidence import Account, DeviceEvidence, Replicate, Round, RoundTiming
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.verdict.flags import account_flags, device_flags, late_flags

TIMING = RoundTiming(1, 1e-3, [1_000_000], Account())


@pytest.mark.parametrize(
    ("late", "severity"),
    [
        ({}, None),
        ({Role.CANDIDATE: 1}, None),  # one round of ten is an accident
        ({Role.CANDIDATE: 9}, "fatal"),
        ({Role.CANDIDATE: 9, Role.BASELINE: 1}, "fatal"),
        ({Role.CANDIDATE: 9, Role.BASELINE: 8, Role.BASELINE_REPEAT: 9}, "warn"),  # somebody else's work
    ],
)
def test_late_work_of_the_candidate_alone_is_fatal(late: dict[Role, int], severity: str | None) -> None:
    rounds = [Round(role, 1e-3, 1e-3, TIMING) for role in [*Role] * 10]
    flags = late_flags([Replicate(0, rounds=rounds, device=DeviceEvidence(late_rounds=late))])
    assert [(flag.code, flag.severity) for flag in flags] == ([("work_after_done", severity)] if severity else [])


@pytest.mark.parametrize(("rounds_each", "late", "severity"), [(4, 2, "warn"), (6, 3, "warn"), (6, 6, "fatal")])
def test_few_late_rounds_of_a_short_run_are_no_evidence(rounds_each: int, late: int, severity: str) -> None:
    """Three late rounds of eighteen are all the candidate's once in forty comparisons that something else delays."""
    rounds = [Round(role, 1e-3, 1e-3, TIMING) for role in [*Role] * rounds_each]
    device = DeviceEvidence(late_rounds={Role.CANDIDATE: late})
    assert [flag.severity for flag in late_flags([Replicate(0, rounds=rounds, device=device)])] == [severity]


def test_a_busy_device_is_told_in_a_sentence() -> None:
    [flag] = device_flags([Replicate(0, device=DeviceEvidence(busy_probes_s=[0.01, 0.02]))])
    assert (flag.code, flag.evidence) == ("device_busy", {"rounds": 2, "probe_s": 0.02})
    assert flag.message == "The GPU was busy before rounds although all workers were stopped."


def test_rounds_that_are_not_timed_count_as_well() -> None:
    """A candidate has far more of them than a baseline, and another process may delay any."""
    rounds = [Round(role, 1e-3, 1e-3, TIMING) for role in [*Role] * 3]
    device, ended = DeviceEvidence(late_rounds={Role.CANDIDATE: 7}), {role: 8 for role in Role}
    replicate = Replicate(0, rounds=rounds, device=device, ended_rounds=ended)
    assert [flag.severity for flag in late_flags([replicate])] == ["fatal"]
    ended[Role.CANDIDATE] = 24
    assert [flag.severity for flag in late_flags([replicate])] == ["warn"]
    ended[Role.CANDIDATE] = 40
    assert not late_flags([replicate])


@pytest.mark.parametrize(
    ("account", "flagged"),
    [
        (Account(cpu_s=4.9e-3, first_s=4.9e-3), False),
        (Account(cpu_s=4.9e-3, first_s=4.9e-3, delayed_s=2e-3), False),  # between the answer and the stop
        (Account(cpu_s=2e-3, first_s=2e-3, delayed_s=3e-3), False),
        (Account(cpu_s=9e-3, first_s=4.9e-3), True),
        (Account(cpu_s=7e-3, first_s=2e-3, delayed_s=8e-3), True),
    ],
)
def test_processor_time_beyond_the_core_is_fatal(account: Account, flagged: bool) -> None:
    rounds = [Round(Role.CANDIDATE, 5e-3, 5e-3, RoundTiming(1, 5e-3, [5_000_000], account)) for _ in range(6)]
    flags = account_flags([Replicate(0, rounds=rounds)], cores=1)
    assert [flag.code for flag in flags if flag.severity == "fatal"] == (["undeclared_cores"] if flagged else [])


def test_a_trace_tells_the_judges_stream_from_others() -> None:
    """The first record on the device is the judge's own; rows are (side, name, device, stream, start, duration)."""
    summary = summarise(
        [
            ("host", "cudaLaunchHostFunc", 0, 0, 5, 1),
            ("device", "work_elsewhere", 0, 13, 30, 40),
            ("device", "Memset (Device)", 0, 7, 10, 2),
            ("device", "work", 0, 7, 20, 8),
            ("device", "Memcpy DtoH (Device -> Pinned)", 1, 7, 80, 3),
            ("host", "cudaGraphLaunch", 0, 0, 6, 1),
        ]
    )
    assert summary == {
        "kernels": 2,
        "copies": 1,
        "streams": 3,
        "devices": 2,
        "elsewhere_ns": 43,
        "busy_ns": 53,
        "graph_launches": 1,
        "host_functions": 1,
    }


def test_a_result_that_the_next_call_overwrites_is_named_unless_the_baselines_is_too() -> None:
    for copied_s, codes in ((0.0, ["reused_output", "parent_overcounts"]), (0.1, ["parent_overcounts"])):
        copies = {Role.BASELINE: copied_s, Role.BASELINE_REPEAT: copied_s, Role.CANDIDATE: 0.1}
        timings = {role: RoundTiming(1, 1.0, [10**9], Account(), seconds) for role, seconds in copies.items()}
        rounds = [Round(role, 1.0, 1.0, timing) for role, timing in timings.items()]
        assert [flag.code for flag in account_flags([Replicate(0, rounds=rounds)], cores=1)] == codes
