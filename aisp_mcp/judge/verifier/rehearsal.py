"""The first comparison of a baseline with its own reference, which shows what the comparison of others can find."""

from __future__ import annotations

from typing import Any

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.protocol.draws.rng import MODES
from aisp_mcp.judge.protocol.module_loader import flatten
from aisp_mcp.judge.verifier.checks.other_orders import OtherOrders
from aisp_mcp.judge.verifier.checks.tolerance import compare, is_compared_by_error, near, relative_error
from aisp_mcp.judge.verifier.inputs.bank import InputBank

MOST_ERROR = 0.3  # root-mean-square error of a baseline, as a share of its output's root-mean-square


def rehearse(bank: InputBank, seed: int, other: Any, orders: OtherOrders) -> None:
    """Compare the baseline with its reference once, so that first-use costs do not fall between rounds, and note its
    coarse outputs. seed: of inputs other than those of the output `other`.

    Raises BenchmarkError UNSTABLE if the baseline's output is far from the reference: its errors are the unit of a
    candidate's, so any output would pass; DEGENERATE if `other` passes on all kinds of inputs.
    """
    import torch

    tolerance = bank.reference.spec.tolerance
    own, truth = both(bank, seed, "plain")
    for output, exact in () if tolerance.stochastic else zip(own, truth, strict=True):
        near(output, output, tolerance)
        compare(output, output, exact, tolerance)
    shares = errors(bank, own, truth)
    if (share := max(shares, default=0.0)) > MOST_ERROR:
        raise BenchmarkError(
            "UNSTABLE",
            f"Rounding decides the baseline's output: it differs from its value in float64 by {share:.0%} of its size, "
            "and no output of a candidate could be judged wrong.",
            "Choose sizes or inputs for which the computation is stable, such as a larger batch for a batch norm.",
        )
    orders.note_coarse(shares)
    others = [tensor for _, tensor in flatten(other)]
    if shares and _passes(bank, others, own, truth, orders, "plain"):
        del own, truth
        if all(_passes(bank, others, *both(bank, seed, mode), orders, mode) for mode in MODES[1:]):
            raise BenchmarkError(
                "DEGENERATE",
                "The baseline's output for other inputs is right within the tolerance: its own errors are as large as "
                "the effect of its inputs.",
                "Choose sizes or inputs that change the output by more, or a more precise baseline.",
            )
    torch.cuda.empty_cache()  # memory for workers is not allocated by torch; on a CPU this does nothing


def both(bank: InputBank, seed: int, mode: str) -> tuple[list[Any], list[Any]]:
    """Outputs of the baseline and of its reference."""
    baseline, reference = bank.reference.both(bank.inputs(seed, mode))
    return [tensor for _, tensor in flatten(baseline)], [tensor for _, tensor in flatten(reference)]


def errors(bank: InputBank, own: list[Any], truth: list[Any]) -> list[float]:
    """The relative error of each output of the baseline; empty if errors do not decide."""
    spec = bank.reference.spec
    if not is_compared_by_error(spec.tolerance) or getattr(spec, "quality", None):
        return []
    return [relative_error(output, exact) for output, exact in zip(own, truth, strict=True)]


def _passes(
    bank: InputBank, outputs: list[Any], own: list[Any], truth: list[Any], orders: OtherOrders, mode: str
) -> bool:
    """Return True if these outputs would pass on inputs of that kind."""
    tolerance = bank.reference.spec.tolerance
    return all(
        tensors[0].shape == tensors[1].shape
        and compare(*tensors, tolerance, orders.slack(mode, index, tensors[0].dtype))[1] is None
        for index, tensors in enumerate(zip(outputs, own, truth, strict=True))
    )
