"""The errors of valid orders of operations, where the baseline's own error is not representative."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from aisp_mcp.judge.verifier import evaluation
from aisp_mcp.judge.verifier.checks.tolerance import NARROW_ADVERSARIAL_SLACK, adversarial_slack, relative_error
from aisp_mcp.judge.verifier.inputs.bank import CheckedCall, InputBank

# Times the limit: an error from limit / EDGE to limit * EDGE is at the edge of the tolerance, where fresh inputs do not
# overrule the battery. Chosen; docs/harness.md, "The same file always gets the same answer", results/cpu-honest.json.
EDGE = 2.0
# Times the effect of rounding-sized noise (see evaluation.py) and of adding terms one by one, that valid orders may
# reach. Chosen with the honest alternatives (commits 3fa8d429, 280ea2bf): none of 206 is refused in 20,600 runs
# (results/cpu-honest.json).
ROUNDINGS_ALLOWED, ORDERS_ALLOWED = 6.0, 2.0
# Times the roundings of sums in programs that torch does not see: their baseline is off by as much as a candidate.
# Chosen; results/cpu-honest-unseen.json: no honest pair is refused, each wrong one is.
WALKS_ALLOWED, WALKS = 12.0, (range(2), range(2, 8))
# Times the roundings of these sums if all have one sign, which is the most that they can be: those of the baseline and
# of the candidate. An error is explained if it is at most half of what is allowed (EDGE).
STRAIGHT_ALLOWED = 2.0 * EDGE
# Times half the limit: three times the effect of rounding to TF32 is explained, and one and a half times that of
# ignoring the last bits, whose errors have a sign in common. The effect of bfloat16 is eight times as large as the
# former, and 2.4 times as large as the latter. docs/decisions/0091-allow-tf32-in-convolutions.md.
TF32_ALLOWED = ((evaluation.rounded_to_tf32, 6.0), (evaluation.truncated_to_tf32, 1.5))
# Share of the largest element of its row by which float64 that torch does not see may be off: sines of large angles,
# tables and differences of running sums lose that, and no shortcut gains by it. Chosen;
# results/cpu-honest-foreign.json: a Fourier transform as a product with a matrix is off by 2e-14, and each wrong pair
# by 1e-11 or more.
NEGLIGIBLE = 1e-12
# Terms that a sum on plain inputs adds one by one at most: longer ones use lanes. Times more on adversarial inputs,
# where the roundings of a sum share a sign, so more of them count. Chosen (commit 280ea2bf), as above.
LANES_TERMS, ORDERED_SLACK = 8192.0, 8.0
# Times one draw of noise: the largest of four draws is 1.6 times as large as one of them in the root-mean-square of
# many elements, from MANY on. Chosen above that (commit 9c8e2ee6).
MORE_DRAWS, MANY = 2.0, 1 << 10
# Times the limit, beyond which no order explains an error, unless the baseline's error is below LUCKY of an eps: of any
# output; of a coarse one, whose errors are those of its narrow operands, which all orders share; and where convolutions
# may use TF32, which drops 13 bits of each operand: 16,000 roundings and more.
# docs/decisions/0086-limit-what-rounding-excuses.md and 0091-allow-tf32-in-convolutions.md; BEYOND_COARSE by commit
# 963bfebb.
BEYOND, BEYOND_COARSE, BEYOND_TF32, LUCKY = 1e3, 30.0, 1e4, 1 / 16
# Error of a baseline on plain inputs, as a share of its output, above which the output is coarse: that of sums in
# float32 is less. docs/decisions/0086-limit-what-rounding-excuses.md.
COARSE = 1e-4
# Errors of an output that are explained before others are taken as explained, and the share that is rechecked all the
# same. docs/decisions/0086-limit-what-rounding-excuses.md.
ENOUGH, AGAIN = 3, 0.25


def other_orders(
    bank: InputBank, seed: int, mode: str, dtype: str, slack: float = 1.0
) -> Iterator[tuple[list[Any], float]]:
    """Yield (the largest error of each output element under valid orders of operations, the factor by which further
    ones may still be larger as a whole). It grows with every evaluation of the reference. dtype: of an output. slack:
    on adversarial inputs, what the contract allows there.
    """
    allowed: list[Any] = []
    for errors, factor in _evaluations(bank, seed, mode, dtype, slack):
        allowed = [one.maximum(other) for one, other in zip(allowed, errors, strict=True)] if allowed else errors
        enough = min(error.numel() for error in allowed) >= MANY
        yield allowed, factor if enough else math.inf


def _evaluations(bank: InputBank, seed: int, mode: str, dtype: str, slack: float) -> Iterator[tuple[list[Any], float]]:
    """Each kind of order once, then further draws of noise."""
    is_plain = mode == "plain"
    eps, most_terms = _eps(dtype, is_plain), LANES_TERMS if is_plain else math.inf
    if dtype in ("float64", "complex128") and bank.is_unseen(seed):
        yield [error * (EDGE * NEGLIGIBLE) for error in bank.row_peaks(seed, mode)], math.inf
    if bank.sums_unseen(seed):
        yield from _walks(bank, seed, mode, eps)
    factor = ROUNDINGS_ALLOWED * (1.0 if is_plain else min(slack, ORDERED_SLACK))
    draws = (
        [error.mul_(factor) if error.is_floating_point() else error for error in rounding]
        for rounding in bank.rounding(seed, mode, eps, most_terms)
    )
    kinds: list[Callable[[], list[Any]]] = [lambda: next(draws)]
    if _may_use_tf32(bank, dtype):
        kinds[:0] = [partial(_in_tf32, bank, seed, mode, *allowed) for allowed in TF32_ALLOWED]
    if dtype not in ("float64", "complex128"):
        kinds.append(lambda: [error * ORDERS_ALLOWED for error in bank.in_order(seed, mode)])
    if mode == "constant":
        kinds.append(lambda: bank.cancelled(seed, mode))
    for evaluated in kinds:
        yield evaluated(), MORE_DRAWS if evaluated is kinds[-1] else math.inf
    for draw in draws:
        yield draw, MORE_DRAWS


def _walks(bank: InputBank, seed: int, mode: str, eps: float) -> Iterator[tuple[list[Any], float]]:
    for draws in WALKS:
        yield [error * WALKS_ALLOWED for error in bank.walked(seed, mode, eps, draws)], math.inf
    if mode == "plain":
        yield [error * EDGE for error in bank.scattered(seed, mode, eps)], math.inf
    else:
        yield [error * STRAIGHT_ALLOWED for error in bank.straight(seed, mode, eps)], math.inf


def _may_use_tf32(bank: InputBank, dtype: str) -> bool:
    return dtype == "float32" and bank.reference.convolves and evaluation.allows_tf32(bank.device)


def _in_tf32(bank: InputBank, seed: int, mode: str, narrowed: Callable[[Any], Any], allowed: float) -> list[Any]:
    return [error * allowed for error in bank.in_tf32(seed, mode, narrowed)]


def _eps(dtype: str, is_plain: bool) -> float:
    """Rounding unit of intermediate results for an output of that type. On plain inputs, narrow outputs are rounded
    once, from wider sums; where numbers cancel, every operation may have rounded.
    """
    import torch

    kind = torch.finfo(getattr(torch, dtype))
    return float(min(kind.eps, torch.finfo(torch.float32).eps) if is_plain or kind.bits < 16 else kind.eps)


class OtherOrders:
    """Explains errors near the limit by other orders of operations.

    Their evaluation takes several references in float64. After ENOUGH explained errors of an output on one kind of
    inputs, only a share of AGAIN of the smaller ones is rechecked.

    An output is coarse if the baseline computes a part of it in a narrow type, such as TF32. Roundings in float32, for
    which adversarial inputs need much slack, are far below its errors.

    limit: of an error, in units of the baseline's own.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._coarse = set[int]()
        # Of errors that were explained, by worker, output and kind of inputs.
        self._ratios: defaultdict[tuple[int, int, str], list[float]] = defaultdict(list)

    def note_coarse(self, errors: Sequence[float]) -> None:
        """Note which outputs are coarse. errors: of the baseline on plain inputs, by output."""
        self._coarse = {index for index, error in enumerate(errors) if error > COARSE}

    def is_coarse(self, index: int) -> bool:
        """Return True if the baseline computes a part of this output in a narrow type."""
        return index in self._coarse

    def slack(self, mode: str, index: int, dtype: Any) -> float:
        """Factor by which the limit of an output is raised on that kind of inputs."""
        if mode == "plain":
            return 1.0
        return min(adversarial_slack(dtype), NARROW_ADVERSARIAL_SLACK if index in self._coarse else math.inf)

    def may_explain(self, bank: InputBank, index: int, ratio: float, base: Any, ref: Any) -> bool:
        """Return False for an error of an output that no order explains, so that none needs to be evaluated: many
        elements show how the baseline rounds, so its own error is not small by luck.
        """
        import torch

        usual = BEYOND_TF32 if _may_use_tf32(bank, _name(base)) else BEYOND
        beyond = BEYOND_COARSE if index in self._coarse else usual
        if ratio <= beyond * self._limit or ref.numel() < MANY:
            return True
        return bool(relative_error(base, ref) <= LUCKY * torch.finfo(base.dtype).eps)

    def explained(
        self,
        call: CheckedCall,
        index: int,
        base: Any,
        slack: float,
        found: tuple[float, str | None],
        compared: Callable[[Any], tuple[float, str | None]],
    ) -> tuple[float, str | None]:
        """Return (ratio, failure) of an output if errors of other orders are allowed. base: the baseline's output.
        found: without them. compared(): with an allowed error of each element.
        """
        known, (ratio, _), limit = self._ratios[call.round.worker_id, index, call.mode], found, self._limit
        is_known = len(known) >= ENOUGH and ratio <= max(known) and random.random() > AGAIN
        if is_known and not call.round.battery:
            return limit / EDGE, None
        for allowed, larger in other_orders(call.bank, call.seed, call.mode, _name(base), slack):
            found = compared(allowed[index])
            if found[0] <= limit / EDGE:
                known.append(ratio)
                break
            if found[0] > larger * EDGE * limit:  # further evaluations could only allow more, but not enough
                break
        return found


def _name(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")
