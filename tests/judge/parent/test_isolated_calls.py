"""Rounds whose inputs come one call at a time: what a candidate can do in them, by whole comparisons."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from harness_support import HONEST, judge

from aisp_mcp.judge.parent.processes.placement import measuring_cpus, spare_cpus
from aisp_mcp.judge.presets import Preset
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.validity import issues

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not spare_cpus(), reason=f"needs a core beside {sorted(measuring_cpus())} for the verifier"),
]

WORKER = issues.snippet("worker")
SEVERAL_CALLS = Preset("several", 1, 0.001, 1)


def isolated(then: str) -> str:
    """A candidate that does its work, and in these rounds something else first."""
    return WORKER + f'\ndef run(a, b):\n    if loop()["isolated"]:\n        {then}\n    return a @ b\n'


def test_each_side_is_measured_so_and_the_log_says_what_was_found(tmp_path: Path) -> None:
    comparison = judge(tmp_path, HONEST, preset=SEVERAL_CALLS)
    assert comparison.log_path is not None
    rows = [json.loads(line) for line in Path(comparison.log_path).read_text().splitlines()]
    [alone] = [row for row in rows if row["kind"] == "isolated"]
    assert {role: len(seconds) for role, seconds in alone["seconds"].items()} == dict.fromkeys(
        Role, SEVERAL_CALLS.isolated_rounds
    )
    for seconds in alone["seconds"], alone["handoffs_s"]:
        least = [min(row) for row in seconds.values()]
        assert 0 < max(least) < 5 * min(least)


@pytest.mark.parametrize(
    ("then", "codes"),
    [
        ("os._exit(3)", "candidate_crashed"),
        ('raise RuntimeError("no")', "incorrect_raised"),
        ("os.write(DONE, b'D')", "candidate_forged incorrect_unwritten"),  # the next round sees the answer, or this one
        ("worker.control.stats[-6] = 1 << 20", "incorrect_unwritten"),  # all of them are done, it says
        ("worker.control.stats[-5] = 1 << 20", "incorrect_output"),  # and that all inputs are there
    ],
    ids=["ends", "raises", "answers for the round", "answers for the calls", "does not wait for inputs"],
)
def test_whatever_a_candidate_does_in_them_the_verifier_is_let_go(tmp_path: Path, then: str, codes: str) -> None:
    for _ in range(3):  # on a busy machine, inputs may come before a candidate that does not wait goes on
        comparison = judge(tmp_path, isolated(then), preset=SEVERAL_CALLS)
        if found := {flag.code for flag in comparison.flags} & set(codes.split()):
            break
    assert found
    assert comparison.seconds < 60  # nobody waited for a deadline


def test_inputs_of_later_calls_are_not_there(tmp_path: Path) -> None:
    """A candidate that looks at the next call's place finds other inputs there than the call then gets."""
    look = textwrap.dedent("""
        seen = []

        def run(a, b):
            here = loop()
            if here["isolated"]:
                before = seen.pop() if here["call"] else None
                assert before != float(a.sum()), "they were there"
                if here["call"] + 1 < here["count"]:
                    seen.append(float(worker.inputs[here["call"] + 1]["a"].sum()))
            return a @ b
        """)
    comparison = judge(tmp_path, WORKER + look, preset=SEVERAL_CALLS)
    assert comparison.verdict.value in ("inconclusive", "faster", "slower"), comparison.sentence
