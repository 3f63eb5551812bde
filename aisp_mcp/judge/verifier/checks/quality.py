"""Quality of approximate training: the change of all weights, reported losses, and the loss on held-out data.

Held-out batches are drawn after the call they judge, from a secret seed, so a candidate cannot fit them. The allowed
deviation is the baseline's own: that of several trainings from one state, each on different batches.
"""

from __future__ import annotations

import math
import os
from statistics import fmean, pstdev, stdev
from typing import Any

from aisp_mcp.bench.training import WEIGHT, Quality, TrainingBenchmark, is_state
from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.protocol.draws.rng import CallRng
from aisp_mcp.judge.verifier.evaluation import evaluate
from aisp_mcp.judge.verifier.inputs.bank import InputBank
from aisp_mcp.judge.verifier.reference import disturb, widen

Tensors = dict[str, Any]
# Least scatter of the losses over the steps, as a share of their mean: chosen, so that a training that hardly moves
# does not get a limit of nothing.
MIN_DEVIATION = 0.01
# eps of bfloat16, the narrowest format in common use for all operands, and times the effect of such a rounding that is
# allowed on adversarial inputs: chosen (commit 10c23a30), above the scatter of a few draws of a rounding.
NARROW_EPS, MOVED_SLACK = 2**-7, 4.0
WORDS = {
    "update_error": "the change of the weights is off by {:.3g} of its size",
    "fit_error": "the loss after training is off by {:.3g} of the change that training made",
    "loss_error": "a reported loss is off by {:.3g} standard deviations of the losses",
    "held_out_spreads": "the loss on held-out data is {:.3g} standard deviations above the baseline's",
}


class QualityCheck:
    """The contract of one specification. Outputs are dictionaries as TrainingBenchmark.run returns them."""

    def __init__(self, spec: TrainingBenchmark, quality: Quality) -> None:
        self.spec, self.quality = spec, quality

    def check(
        self, bank: InputBank, seed: int, mode: str, out: Tensors, base: Tensors, truth: Tensors
    ) -> tuple[float, str | None, dict[str, float]]:
        """Return (worst error in units of its limit, failure or None, all errors).

        seed, mode: of the call's inputs. truth: of the float64 reference. Held-out data are used for plain inputs only.
        On other inputs, a figure may be as large as narrow operands make it in float64, with some slack: where many
        gradients are nothing but rounding errors, Adam turns them into whole steps, and training may diverge.
        """
        inputs = bank.inputs(seed, mode)
        limits = {"loss_error": self.quality.loss, "update_error": self.quality.update}
        if mode == "plain":
            limits["held_out_spreads"] = self.quality.spreads
            errors = _errors(out, truth, inputs) | {"held_out_spreads": self.held_out(bank, seed, out, base)}
        elif not _are_finite(base, truth):
            return 0.0, None, {}
        else:
            limits["fit_error"] = self.quality.update
            errors = self._errors_and_fit(out, truth, inputs)
            if any(not errors[name] <= limits[name] for name in limits):
                usual = self._errors_and_fit(self._moved(inputs, seed), truth, inputs)
                limits = {name: max(limit, MOVED_SLACK * usual[name]) for name, limit in limits.items()}
        ratios = {name: value / limits[name] if math.isfinite(value) else math.inf for name, value in errors.items()}
        name = max(ratios, key=lambda figure: ratios[figure])
        if ratios[name] <= 1.0:
            return ratios[name], None, errors
        return ratios[name], f"{WORDS[name].format(errors[name])}; {limits[name]:g} is allowed", errors

    def _errors_and_fit(self, out: Tensors, truth: Tensors, inputs: Tensors) -> dict[str, float]:
        return _errors(out, truth, inputs) | {"fit_error": self.fit_error(out, truth, inputs)}

    def fit_error(self, out: Tensors, truth: Tensors, inputs: Tensors) -> float:
        """Error of the loss on the call's own batches after training, as a share of the change that training made.

        On equal inputs, the weights of two honest trainings may differ widely, but what they compute may not.
        """
        batches = {name: tensor for name, tensor in inputs.items() if not is_state(name, _names(inputs))}
        reached, true, before = (self._loss(weights, batches) for weights in (out, truth, inputs))
        return abs(reached - true) / max(abs(before - true), MIN_DEVIATION * abs(true), 1e-300)

    def _moved(self, inputs: Tensors, seed: int) -> Tensors:
        """Train in float64 with weights and batches rounded at random, as narrow operands are, and return the outputs
        with this change of the weights added to the call's own.
        """
        start, wide = _weights(inputs), widen(inputs)
        operands = [tensor for name, tensor in wide.items() if name in start or not is_state(name, _names(inputs))]
        disturb(operands, seed, -NARROW_EPS / 2, NARROW_EPS / 2)
        moved = {name: wide[name].clone() for name in start}
        out = dict(evaluate(lambda: self.spec.reference(**wide)))
        return out | {name: out[name] - moved[name] + start[name].double() for name in start}

    def held_out(self, bank: InputBank, seed: int, out: Tensors, base: Tensors) -> float:
        """Excess of the held-out loss with these weights over that with the baseline's, in units of the baseline's
        standard deviation over different batches.
        """
        held = self._batches(bank, seed, self.quality.batches)
        if bank.spread is None:
            others = [self._trained_on_others(bank, seed) for _ in range(self.quality.seeds)]
            bank.spread = max(stdev(self._loss(other, held) for other in others), 1e-12)
        return (self._loss(out, held) - self._loss(base, held)) / bank.spread

    def _batches(self, bank: InputBank, seed: int, count: int) -> Tensors:
        """New batches of the same task as the call's batches; the task is drawn first."""
        task = self.spec.task(CallRng(bank.device, seed, "plain", alike=True))
        rng = CallRng(bank.device, int.from_bytes(os.urandom(6)), "plain", alike=True)
        return self.spec.batches(rng, task, count)

    def _trained_on_others(self, bank: InputBank, seed: int) -> Tensors:
        inputs = bank.inputs(seed, "plain") | self._batches(bank, seed, self.spec.steps)
        return dict(self.spec.run(**inputs, **bank.reference.params))

    def _loss(self, out: Tensors, held: Tensors) -> float:
        return float(evaluate(lambda: self.spec.evaluate(widen(_weights(out)), widen(held))))

    def reject_blind(self, bank: InputBank, seed: int) -> None:
        """Try the baseline without its last step, and with one loss for all steps. Raises BenchmarkError QUALITY_BLIND
        if the contract accepts either.
        """
        inputs = bank.inputs(seed, "plain")
        base, truth = (dict(training) for training in bank.reference.both(bank.inputs(seed, "plain")))
        batches = self._batches(bank, seed, 1).keys()
        short = {name: tensor[:-1] if name in batches else tensor for name, tensor in inputs.items()}
        out = dict(self.spec.run(**short, **bank.reference.params)) | {"loss": base["loss"]}
        if self.check(bank, seed, "plain", out, base, truth)[1] is None:
            words = f"training without the last of {self.spec.steps} steps"
            raise _blind(words, "Allow a smaller `update`, or train fewer steps at a higher rate.")
        flat = {"loss": base["loss"][:1].expand_as(base["loss"])}
        if loss_error(flat, truth) <= self.quality.loss:
            raise _blind("one loss for all steps", "Allow a smaller `loss`, or smaller batches, whose losses differ.")


def _blind(accepted: str, hint: str) -> BenchmarkError:
    return BenchmarkError("QUALITY_BLIND", f"The contract of quality accepts {accepted}.", hint)


def _errors(out: Tensors, truth: Tensors, inputs: Tensors) -> dict[str, float]:
    return {"loss_error": loss_error(out, truth), "update_error": update_error(out, truth, _weights(inputs))}


def update_error(out: Tensors, truth: Tensors, start: Tensors) -> float:
    """Distance of the weights from the truth over the distance that training moved them, over all weights together."""
    off = math.fsum(float((out[name].double() - truth[name]).square().sum()) for name in start)
    moved = math.fsum(float((start[name].double() - truth[name]).square().sum()) for name in start)
    return math.sqrt(off / max(moved, 1e-300))


def loss_error(out: Tensors, truth: Tensors) -> float:
    """The largest error of a reported loss, in units of the standard deviation of the true ones over the steps."""
    losses = [float(loss) for loss in truth["loss"]]
    scale = max(pstdev(losses), MIN_DEVIATION * fmean(map(abs, losses)), 1e-300)
    return float((out["loss"].double() - truth["loss"]).abs().max()) / scale


def _weights(tensors: Tensors) -> Tensors:
    return {name: tensor for name, tensor in tensors.items() if name.startswith(WEIGHT)}


def _names(tensors: Tensors) -> set[str]:
    """Names of the parameters."""
    return {name.removeprefix(WEIGHT) for name in _weights(tensors)}


def _are_finite(*trainings: Tensors) -> bool:
    """Return True if none of these trainings has diverged beyond its type."""
    return all(math.isfinite(float(tensor.sum())) for training in trainings for tensor in training.values())


def contract(spec: Any) -> QualityCheck | None:
    """The quality check of a specification that declares one."""
    return QualityCheck(spec, spec.quality) if isinstance(spec, TrainingBenchmark) and spec.quality else None
