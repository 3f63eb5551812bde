"""Conversions before and after a round, and kinds of inputs, as the timing process counts them; without processes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aisp_mcp.judge.evidence import Account, Overhead, Replicate, RoundTiming
from aisp_mcp.judge.parent.timing.cpu import work_aside_s
from aisp_mcp.judge.parent.timing.replicate import ReplicateRun
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.verdict import replay

CALL_S, FIXED_S = 10e-6, 300e-6


def timing(count: int, converted_s: float, settled_s: float) -> RoundTiming:
    """A round whose conversions take so long for each call."""
    elapsed_s = FIXED_S + count * CALL_S
    aside = FIXED_S + count * converted_s, FIXED_S + count * settled_s
    return RoundTiming(count, elapsed_s, [round(1e9 * CALL_S)] * count, Account(), 0.0, 0.0, *aside)


BASELINES = [[timing(200, 2e-6, 5e-6)] * 6] * 2
SINGLES = [timing(1, 2e-6, 5e-6)] * 4


@pytest.mark.parametrize("count", [200, 600], ids=["as many calls", "three times as many"])
@pytest.mark.parametrize(
    ("own", "aside_s"),
    [((2e-6, 5e-6), 0.0), ((2e-6, 1e-6), 0.0), ((2e-6, 9e-6), 4e-6), ((8e-6, 5e-6), 6e-6)],
    ids=["alike", "shorter", "outputs", "arguments"],
)
def test_what_a_candidate_converts_longer_is_time_of_its_calls(
    count: int, own: tuple[float, float], aside_s: float
) -> None:
    candidate = [timing(count, *own)] * 6
    found = work_aside_s(candidate, BASELINES, SINGLES)
    assert found == pytest.approx(aside_s, abs=50e-6 / count + 1e-9)
    seconds = {
        role: replay.net_s(role, candidate[0], Overhead(FIXED_S, 0.0, aside_s=found))
        for role in (Role.BASELINE, Role.CANDIDATE)
    }
    assert seconds[Role.CANDIDATE] - seconds[Role.BASELINE] == pytest.approx(found)


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
    assert found == pytest.approx({"plain": 2.0, "zeros": ratio, "spikes": 2.0})
