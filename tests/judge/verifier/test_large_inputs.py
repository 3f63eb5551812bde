"""Inputs of thousands, and ones whose products overflow: what refuses a candidate there, and what is only named."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from aisp_mcp.bench import Benchmark  # noqa: E402
from aisp_mcp.judge.mutants.trial import Call, Trial  # noqa: E402
from aisp_mcp.judge.verifier.requirements import is_tried  # noqa: E402

ENTROPY = "-(x.softmax(1) * x.log_softmax(1)).sum(1)"
CANCELS = "x.logsumexp(1) - (x.softmax(1) * x).sum(1)"  # the same, less precise where x is large


class Both(Benchmark):
    """Two outputs: one that another formula gives less precisely on large inputs, one with a branch for them."""

    def inputs(self, rng: Any) -> dict[str, Any]:
        return {"x": rng.randn(64, 128)}

    def run(self, x: Any) -> Any:
        return eval(ENTROPY), x.clamp(-1000.0, 1000.0)


def verdicts(outputs: str) -> dict[str, str | None]:
    trial = Trial(Both())
    calls = [Call(seed, mode) for seed, mode in enumerate(["plain", *trial.kinds])]
    program = eval(f"lambda x: ({outputs})")
    return {call.mode: trial.judge(1, program, call).failure for call in calls}


def test_less_precise_is_named_and_a_missing_branch_is_refused_beside_it() -> None:
    kinds = {"plain", "exact", "spikes", "zeros", "tiny", "constant", "thousands", "huge"}
    assert verdicts(f"{CANCELS}, x.clamp(-1000.0, 1000.0)") == dict.fromkeys(kinds)
    failed = {mode for mode, failure in verdicts(f"{CANCELS}, x.clone()").items() if failure}
    assert failed == {"thousands"}


class Selected(Benchmark):
    """A variance of the numbers above 0: of equal ones below 0, it is NaN."""

    def inputs(self, rng: Any) -> dict[str, Any]:
        return {"x": rng.randn(4096, dtype="float64")}

    def run(self, x: Any) -> Any:
        chosen = x[x > 0]
        return (chosen - chosen.mean()).square().mean()


def test_equal_numbers_are_tried_where_those_of_one_sign_have_an_answer() -> None:
    trials = [Trial(Selected(), seed) for seed in range(6)]
    assert all("constant" in trial.kinds for trial in trials)
    calls = [Call(seed, "constant") for seed in range(6)]

    def in_one_pass(x: Any) -> Any:
        chosen = x[x > 0]
        return chosen.square().mean() - chosen.mean().square()

    assert any(trials[0].judge(1, in_one_pass, call).failure for call in calls)


@pytest.mark.parametrize(("seconds", "processor_s", "tried"), [(0.1, 0.3, True), (0.4, 0.05, True), (0.4, 0.4, False)])
def test_a_busy_machine_leaves_out_no_kind(seconds: float, processor_s: float, tried: bool) -> None:
    """A candidate that is quick on small values only was not named at a load of ten on two cores."""
    assert is_tried(seconds, processor_s) is tried
