"""Contracts of training and of formats: what passes, what is refused, and what the ruling says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness_support import judge

from aisp_mcp.bench import Tolerance
from aisp_mcp.bench.training import plain_step, train
from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.protocol.draws.rng import MODES
from aisp_mcp.judge.protocol.module_loader import load_spec
from aisp_mcp.judge.verifier.checks import formats
from aisp_mcp.judge.verifier.checks.quality import QualityCheck, _weights, contract, update_error
from aisp_mcp.judge.verifier.checks.tolerance import compare_steps, near_steps
from aisp_mcp.judge.verifier.inputs.bank import InputBank
from aisp_mcp.judge.verifier.reference import ReferenceEvaluator

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch]

COMMON = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width=16, classes=4):
        super().__init__()
        self.up, self.head = nn.Linear(width, 2 * width), nn.Linear(2 * width, classes)
    def forward(self, x):
        return self.head(torch.tanh(self.up(x)))

def loss(model, x, labels):
    return nn.functional.cross_entropy(model(x), labels)
"""
BASELINE = '''
    """Steps of AdamW."""
    import torch
    from _common import Model, loss
    from aisp_mcp.bench import Work
    from aisp_mcp.bench.training import Quality, TrainingBenchmark

    class Steps(TrainingBenchmark):
        rows, steps = 64, 4
        QUALITY
        def model(self):
            return Model()
        def task(self, rng):
            return {"teacher": rng.randn(16, 4, scale=1.0, shift=0.0)}
        def batch(self, rng, teacher):
            x = rng.randn(self.rows, 16)
            return {"x": x, "labels": (x @ teacher).argmax(dim=1)}
        def loss(self, model, x, labels):
            return loss(model, x, labels)
        def optimizer(self, parameters):
            return torch.optim.AdamW(parameters, lr=1e-2, foreach=False)
        def work(self):
            return Work(flops=1e6, bytes=1e6, items=self.steps * self.rows, unit="samples")
'''
EXACT, QUALITY = BASELINE.replace("QUALITY", ""), BASELINE.replace("QUALITY", "quality = Quality(update=0.05)")
CANDIDATE = """
    import torch
    from _common import Model, loss
    from aisp_mcp.bench.training import plain_step, train
    MODEL = Model()
    def fused(parameters):
        return torch.optim.AdamW(parameters, lr=1e-2, fused=True)
    def run(**tensors):
        return train(MODEL, fused, STEP, tensors, state=STATE)
"""
HONEST = CANDIDATE.replace("STEP", "plain_step(loss)").replace("STATE", "True")
SPLIT = CANDIDATE.replace("    MODEL =", """
    def split(model, optimizer, batch):
        optimizer.zero_grad(set_to_none=True)
        parts = zip(batch["x"].chunk(4), batch["labels"].chunk(4))
        losses = [loss(model, x, labels) / 4 for x, labels in parts]
        for one in losses:
            one.backward()
        optimizer.step()
        return sum(losses)
    MODEL =""").replace("STEP", "split").replace("STATE", "True")  # fmt: skip
HALF = """
    def half(model, optimizer, batch):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16):
            value = loss(model, **batch)
        value.backward()
        optimizer.step()
        return value.float()
    MODEL ="""
BFLOAT16 = CANDIDATE.replace("    MODEL =", HALF).replace("STEP", "half")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "_common.py").write_text(COMMON)
    return tmp_path


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that spin for each other stall on a loaded machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Checked:
    """A contract of quality with one call's truth."""

    def __init__(self, folder: Path, text: str = QUALITY) -> None:
        import textwrap

        path = folder / "baseline_steps.py"
        path.write_text(textwrap.dedent(text))
        self.spec: Any = load_spec(path, "small")
        outputs = contract(self.spec)
        assert outputs is not None
        self.check: QualityCheck = outputs
        self.bank = InputBank("cpu", ReferenceEvaluator(self.spec, {}))
        self.base, self.truth = self.bank.reference.both(self.inputs())

    def inputs(self) -> dict[str, Any]:
        return self.bank.inputs(5, "plain")

    def failure(self, out: dict[str, Any]) -> str | None:
        return self.check.check(self.bank, 5, "plain", out, self.base, self.truth)[1]


def test_the_unit_of_a_loss_grows_with_its_step() -> None:
    truth = torch.tensor([1.0, 0.9, 0.8, 0.7], dtype=torch.float64)
    base = truth.float()
    off = 2e-6 * torch.tensor([0.0, 0.0, 0.0, 1.0])  # 33 half eps: too much for a first step, not for a fourth
    assert compare_steps(base + off, base, truth, Tolerance())[1] is None
    ratio, failure = compare_steps(base + off.flip(0), base, truth, Tolerance())
    assert failure is not None
    assert "step 0" in failure
    assert ratio > Tolerance().error_ratio
    assert near_steps(base.clone(), base, Tolerance())
    assert not near_steps(base + off.flip(0), base, Tolerance())


def test_a_loss_that_is_not_a_number_is_refused() -> None:
    truth = torch.tensor([1.0, 0.9], dtype=torch.float64)
    assert compare_steps(torch.tensor([1.0, float("nan")]), truth.float(), truth, Tolerance())[1] is not None


def test_quality_accepts_narrow_arithmetic_and_refuses_what_was_not_trained(folder: Path) -> None:
    checked = Checked(folder)
    noise = {name: tensor * (1 + 1e-4 * torch.randn_like(tensor)) for name, tensor in checked.base.items()}
    assert checked.failure(checked.base) is None
    assert checked.failure(noise) is None
    untouched = checked.inputs() | {"loss": checked.base["loss"]}
    assert re.search("change of the weights|held-out", str(checked.failure(untouched)))  # by the luck of the draw
    assert "loss" in str(checked.failure(checked.base | {"loss": checked.base["loss"][0].expand(4)}))
    assert checked.failure(checked.base | {"loss": checked.base["loss"] * float("nan")}) is not None


NORMED = COMMON.replace("self.up(x)", "self.up(self.norm(x))").replace(
    "self.up, self.head = ", "self.norm, self.up, self.head = nn.LayerNorm(width), "
)


def trained(checked: Checked, mode: str, step: Any) -> tuple[dict[str, Any], str | None]:
    """Result of a training in float32 with that step, and what is wrong with it."""
    base, truth = map(dict, checked.bank.reference.both(checked.bank.inputs(5, mode)))
    out = train(checked.spec.model(), checked.spec.optimizer, step, checked.bank.inputs(5, mode), state=False)
    return out, checked.check.check(checked.bank, 5, mode, out, base, truth)[1]


def left_out(loss: Any, parameters: slice = slice(None), last: int = 0) -> Any:
    """A step that leaves these parameters as they are: always, or in that step."""
    done = 0

    def step(model: Any, optimizer: Any, batch: dict[str, Any]) -> Any:
        nonlocal done
        done += 1
        optimizer.zero_grad(set_to_none=True)
        value = loss(model, **batch)
        value.backward()
        for parameter in [*model.parameters()][parameters] if last in (0, done) else ():
            parameter.grad = None
        optimizer.step()
        return value

    return step


@pytest.mark.parametrize("mode", [mode for mode in MODES[1:] if mode != "constant"])
def test_on_adversarial_inputs_too_all_weights_are_trained_in_every_step(tmp_path: Path, mode: str) -> None:
    """The loss on the call's own batches does not show all of them, nor a last step of many."""
    (tmp_path / "_common.py").write_text(NORMED)
    checked = Checked(tmp_path)
    assert trained(checked, mode, plain_step(checked.spec.loss))[1] is None
    for step in (left_out(checked.spec.loss, slice(2)), left_out(checked.spec.loss, last=4)):
        assert trained(checked, mode, step)[1] is not None


def test_where_gradients_are_rounding_weights_may_differ_and_losses_may_not(tmp_path: Path) -> None:
    """Equal numbers less their mean are rounding, which Adam turns into whole steps."""
    (tmp_path / "_common.py").write_text(NORMED)
    checked = Checked(tmp_path)
    start = checked.bank.inputs(5, "constant")
    base, truth = map(dict, checked.bank.reference.both(checked.bank.inputs(5, "constant")))
    other = base | {"weight.up.weight": start["weight.up.weight"]}
    assert update_error(other, truth, _weights(start)) > checked.spec.quality.update
    assert checked.check.check(checked.bank, 5, "constant", other, base, truth)[1] is None
    early = {name: tensor if name == "loss" else start[name].lerp(tensor, 0.5) for name, tensor in base.items()}
    assert "after training" in str(checked.check.check(checked.bank, 5, "constant", early, base, truth)[1])


def test_a_training_that_diverges_in_float64_is_no_ground_for_a_verdict(folder: Path) -> None:
    checked = Checked(folder)
    diverged = {name: tensor * float("inf") for name, tensor in checked.truth.items()}
    assert checked.check.check(checked.bank, 5, "spikes", checked.base, checked.base, diverged)[1] is None
    assert checked.check.check(checked.bank, 5, "spikes", diverged, checked.base, checked.truth)[1] is not None


def test_held_out_data_tell_weights_that_were_fitted_to_the_batches(folder: Path) -> None:
    """Within `update`, but to the side where new data are worse."""
    checked = Checked(folder, QUALITY.replace("update=0.05", "update=10.0"))
    start = checked.inputs()
    back = {name: tensor if name == "loss" else start[name].lerp(tensor, -0.5) for name, tensor in checked.base.items()}
    assert "held-out" in str(checked.failure(back))


def test_held_out_data_are_others_each_time(folder: Path) -> None:
    checked = Checked(folder)
    first, again = (checked.check._batches(checked.bank, 5, 1)["x"] for _ in range(2))
    assert not torch.equal(first, again)


def test_a_contract_that_a_step_less_fulfils_is_refused(folder: Path) -> None:
    checked = Checked(folder, QUALITY.replace("update=0.05", "update=0.9, spreads=1e6"))
    with pytest.raises(BenchmarkError) as raised:
        checked.check.reject_blind(checked.bank, 7)
    assert raised.value.code == "QUALITY_BLIND"


def test_the_same_seed_draws_the_same_state(folder: Path) -> None:
    checked = Checked(folder)
    first, again = checked.inputs(), checked.inputs()
    assert {"weight.up.bias", "exp_avg.head.weight", "exp_avg_sq.up.weight", "step", "x", "labels"} <= set(first)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["exp_avg.up.weight"], checked.bank.inputs(6, "plain")["exp_avg.up.weight"])


@pytest.mark.parametrize(
    ("name", "low", "high"), [("fp8_e4m3", 28, 34), ("fp8_e5m2", 22, 28), ("int8_weight", 38, 45),
                              ("int4_weight", 16, 22), ("fp4", 13, 20)]
)  # fmt: skip
def test_a_format_has_its_own_error_and_no_more_is_allowed(name: str, low: float, high: float) -> None:
    tolerance = getattr(Tolerance, name)
    draw = torch.Generator().manual_seed(3)
    weight, x = (torch.randn(rows, 256, generator=draw, dtype=torch.float64) for rows in (64, 32))
    params, inputs = {"weight": weight.float()}, {"x": x.float()}
    operands = formats.rounded_operands(params, inputs, tolerance)
    assert set(operands) == ({"weight", "x"} if name.startswith("fp") else {"weight"})
    exact = operands.get("x", inputs["x"]).double() @ operands["weight"].double().t()
    truth = inputs["x"].double() @ params["weight"].double().t()
    ratio, failure, measures = formats.compare(exact.float(), truth, exact, tolerance)
    assert (failure, ratio) == (None, pytest.approx(1.0, abs=0.01))
    assert low - 4 < measures["format_sqnr_db"] < high
    zeros = formats.compare(torch.zeros_like(exact).float(), truth, exact, tolerance)
    assert zeros[1] is not None
    row = exact.clone().float()
    row[3] = 0
    assert formats.compare(row, truth, exact, tolerance)[1] is not None
    coarser = {"fp8_e4m3": "fp8_e5m2", "int8_weight": "int4_weight"}.get(name)
    if coarser:
        operands = formats.rounded_operands(params, inputs, getattr(Tolerance, coarser))
        out = operands.get("x", inputs["x"]) @ operands["weight"].t()
        assert "times that of" in str(formats.compare(out, truth, exact, tolerance)[1])


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_ruling_says_that_quality_was_compared(folder: Path) -> None:
    comparison = judge(folder, BFLOAT16.replace("STATE", "False"), QUALITY)
    assert comparison.verdict.value not in ("incorrect", "invalid"), comparison.sentence
    assert (comparison.disclosed["compared"], comparison.verification and comparison.verification.oracle) == (
        "quality",
        "quality",
    )
    assert comparison.disclosed["quality"]["update"] == 0.05
    assert len(comparison.disclosed["common_sha256"]) == 64
    assert comparison.verification is not None
    assert {"update_error", "loss_error", "held_out_spreads"} == set(comparison.verification.measures)
    assert 1e-4 < comparison.verification.measures["update_error"] < 0.05
    assert comparison.optimized is not None
    assert comparison.optimized.unit == "samples"
    assert comparison.optimized.items_per_s == pytest.approx(256 / comparison.optimized.time_s)


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("candidate", [HONEST, SPLIT], ids=["fused", "split"])
def test_honest_twins_of_exact_training_pass(folder: Path, candidate: str) -> None:
    comparison = judge(folder, candidate, EXACT)
    assert comparison.verdict.value not in ("incorrect", "invalid"), comparison.sentence


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_bfloat16_is_no_exact_training(folder: Path) -> None:
    comparison = judge(folder, BFLOAT16.replace("STATE", "True"), EXACT)
    assert comparison.verdict == "incorrect"
