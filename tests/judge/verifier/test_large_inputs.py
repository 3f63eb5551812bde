"""Inputs of thousands, of overflowing products, and far from 0: what refuses a candidate, and what is only named."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from aisp_mcp.bench import Benchmark  # noqa: E402
from aisp_mcp.judge.evidence import CANCELLED  # noqa: E402
from aisp_mcp.judge.mutants.trial import Call, Trial  # noqa: E402
from aisp_mcp.judge.verdict import wording  # noqa: E402
from aisp_mcp.judge.verifier.requirements import has_answer, is_tried  # noqa: E402

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
    kinds = {"plain", "exact", "spikes", "zeros", "tiny", "constant", "offset", "thousands", "huge"}
    assert verdicts(f"{CANCELS}, x.clamp(-1000.0, 1000.0)") == dict.fromkeys(kinds)
    failed = {mode for mode, failure in verdicts(f"{CANCELS}, x.clone()").items() if failure}
    assert failed == {"thousands"}


class Clamped(Benchmark):
    """A product whose output is a thousand times its usual size on inputs of thousands."""

    def inputs(self, rng: Any) -> dict[str, Any]:
        return {"x": rng.randn(64, 32), "w": rng.randn(32, 16)}

    def run(self, x: Any, w: Any) -> Any:
        return x.clamp(-500.0, 500.0) @ w


def test_roundings_of_large_outputs_excuse_no_missing_branch() -> None:
    """Moved by roundings, it changes by as much as a usual output is large, and by a millionth of itself."""
    bank = Trial(Clamped()).bank
    usual = bank.reference.baseline(bank.inputs(1, "plain"))
    assert all(has_answer(bank, seed, "thousands", usual) for seed in range(8))


class Variances(Benchmark):
    """In two passes, by formulas that torch sees as steps, as one operation, and not at all."""

    def inputs(self, rng: Any) -> dict[str, Any]:
        return {"x": rng.randn(64, 128)}

    def run(self, x: Any) -> Any:
        centred = (x - x.mean(1, keepdim=True)).square().mean(1)
        return centred, x.var(1, unbiased=False), torch.from_numpy(x.numpy().var(1))


def in_one_pass(x: Any) -> Any:
    return x.square().mean(1) - x.mean(1).square()


def test_cancellation_is_named_where_the_mean_is_far_above_the_spread() -> None:
    trial = Trial(Variances())
    call, right = Call(5, "offset"), Variances().run
    one_pass = trial.judge(1, lambda x: (in_one_pass(x),) * 3, call)
    assert one_pass.failure is None
    shares = {name: one_pass.measures[f"{name}{CANCELLED}"] for name in ("out.0", "out.1", "out.2")}
    assert all(1e-3 < share < 0.125 for share in shares.values()), shares
    assert "is off by 4" in wording.cancels({"out.0": 0.041})
    assert not trial.judge(2, right, call).measures


class Nearest(Benchmark):
    """The nearest of points: differences of squares decide for other ones far from 0."""

    def inputs(self, rng: Any) -> dict[str, Any]:
        return {"x": rng.randn(512, 2), "y": rng.randn(512, 2)}

    def run(self, x: Any, y: Any) -> Any:
        return (x[:, None] - y).square().sum(2).argmin(1)


def test_other_positions_are_named_where_the_mean_is_far_above_the_spread() -> None:
    def by_products(x: Any, y: Any) -> Any:
        return (x.square().sum(1, keepdim=True) - 2 * x @ y.T + y.square().sum(1)).argmin(1)

    judged = Trial(Nearest()).judge(1, by_products, Call(5, "offset"))
    assert (judged.failure, judged.measures) == (None, {f"out{CANCELLED}": 0.0})
    assert "out is another" in wording.cancels({"out": 0.0})


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

    def of_selected(x: Any) -> Any:
        return in_one_pass(x[x > 0][None])[0]

    assert any(trials[0].judge(1, of_selected, call).failure for call in calls)


@pytest.mark.parametrize(("seconds", "processor_s", "tried"), [(0.1, 0.3, True), (0.4, 0.05, True), (0.4, 0.4, False)])
def test_a_busy_machine_leaves_out_no_kind(seconds: float, processor_s: float, tried: bool) -> None:
    """A candidate that is quick on small values only was not named at a load of ten on two cores."""
    assert is_tried(seconds, processor_s) is tried
