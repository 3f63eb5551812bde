"""Conversions before and after a round, and kinds of inputs, as the judge counts them; without processes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aisp_mcp.judge.evidence import Account, Overhead, Replicate, Round, RoundTiming
from aisp_mcp.judge.parent.timing.replicate import ReplicateRun
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.verdict import aside

CALL_S, FIXED_S = 10e-6, 300e-6


def replicate(count: int, own: tuple[float, float], luck: float) -> Replicate:
    """Baselines of 200 calls, whose arguments take 2 µs and outputs 5 µs each, and a candidate of `count`. own: seconds
    of the candidate's. luck: by how much more one of the baselines takes.
    """
    of_role = {
        Role.BASELINE: (200, 2e-6 * (1 + luck), 5e-6),
        Role.CANDIDATE: (count, *own),
        Role.BASELINE_REPEAT: (200, 2e-6, 5e-6),
    }
    found = Replicate(0, overhead=Overhead(FIXED_S, 0.0, settling_s=FIXED_S))
    for half in range(8):
        arguments = count if half in (3, 4, 5) else 0  # as many for all roles
        for role, (calls, converted_s, settled_s) in of_role.items():
            # What is made of more inputs takes longer each: it has left the caches.
            made = arguments or calls
            longer = 1 if half == 3 and made > calls else 1 + made / 1000  # and in new memory shorter
            seconds = (FIXED_S + made * converted_s * longer, FIXED_S + calls * settled_s)
            one = RoundTiming(calls, calls * CALL_S, [10_000] * calls, Account(), 0.0, 0.0, *seconds, made)
            found.rounds.append(Round(role, CALL_S, CALL_S, one))
    return found


@pytest.mark.parametrize("count", [200, 600], ids=["as many calls", "three times as many"])
@pytest.mark.parametrize(
    ("own", "more_s"),
    [((2e-6, 5e-6), 0.0), ((2e-6, 1e-6), 0.0), ((2e-6, 9e-6), 4e-6), ((8e-6, 5e-6), 6e-6)],
    ids=["alike", "shorter", "outputs", "arguments"],
)
def test_what_a_candidate_converts_longer_is_time_of_its_calls(
    count: int, own: tuple[float, float], more_s: float
) -> None:
    luck = (0.02, -0.02, 0.01, -0.01, 0.02)
    made = aside.counted([replicate(count, own, one) for one in luck])
    expected = more_s * (1 + count / 1000) if own[0] > 2e-6 else more_s  # of arguments, at the candidate's number
    for row in made[2].rounds:
        wanted = CALL_S + (expected if row.role is Role.CANDIDATE else 0.0)
        assert row.net_s == pytest.approx(wanted, abs=50e-6 / count + 0.1e-6)
        assert row.role is Role.CANDIDATE or row.net_s == CALL_S


def test_a_difference_of_one_process_is_not_a_difference_of_programs() -> None:
    """One of five was charged half a call where a list takes seven times as long as the call to be made."""
    alike = (2e-6, 5e-6)
    one_slow = [replicate(200, (2.6e-6, 5e-6), 0.0), *(replicate(200, alike, luck) for luck in (0.3, -0.3, 0.3, 0.0))]
    for found in aside.counted(one_slow):
        assert {row.net_s for row in found.rounds} == {CALL_S}


@pytest.mark.parametrize(("disturbed", "ratio"), [(2, 2.0), (99, 0.5)], ids=["once", "always"])
def test_a_kind_of_inputs_that_looks_slower_is_timed_again(disturbed: int, ratio: float) -> None:
    """disturbed: the number of rounds on zeros in which the candidate takes four times as long."""
    mode, slow = "", 0

    def fill(_: Any, name: str) -> None:
        nonlocal mode
        mode = name

    def run_round(_: Any, role: Role, count: int) -> RoundTiming:
        nonlocal slow
        call_s = CALL_S if role == Role.CANDIDATE else 2 * CALL_S
        if role == Role.CANDIDATE and mode == "zeros":
            slow += 1
            call_s *= 4 if slow <= disturbed else 1
        return RoundTiming(count, count * call_s, [1] * count, Account())

    kinds = {"adversarial": ["zeros", "spikes"], "as_quick_kinds": set[str]()}
    session = SimpleNamespace(opened={"goal": "speed", "facts": {}}, **kinds)
    calls = {"call_s": dict.fromkeys(Role, CALL_S), "most_calls": lambda _: 40, "fill": fill}
    run = object.__new__(ReplicateRun)
    run.driver = SimpleNamespace(session=session, result=Replicate(0), **calls)  # type: ignore[assignment]
    run.strategy, run.session = SimpleNamespace(run_round=run_round), session  # type: ignore[assignment]
    run.options = SimpleNamespace(device="cpu")  # type: ignore[assignment]
    run.time_kinds()
    found = {name: row[0] / row[2] for name, row in run.driver.result.kinds.items()}
    assert found == pytest.approx({"plain": 2.0, "skewed": ratio, "ties": 2.0})
