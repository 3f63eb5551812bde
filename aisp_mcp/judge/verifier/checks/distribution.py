"""Tests of random outputs, for contracts such as dropout or sampling.

The specification's reference returns the expected output for the inputs. Subtracting it from a draw leaves the noise.
The candidate's noise must be distributed like the baseline's, must depend on the expectation in the same way, and must
be new in every call and in every part of a call (independence.py). Each test has a false-alarm rate of about 1e-7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from aisp_mcp.judge.verifier.checks.independence import Independence

SIGMAS = 5.3  # two-sided chance of 1e-7
MOST = 1 << 18  # elements compared per call; more would cost time and add nothing
GRAIN, OFFSET = 2.0**-14, 0.3819660  # of the largest value: bin width for noise; offset of the bins, in widths
LEAST = 256  # elements; fewer are not tested


@dataclass
class Draws:
    """Checks the draws of one process over its calls, in the order in which they are verified.

    earlier: (noise, the baseline's noise, expectation) of each output in the previous call.
    """

    earlier: dict[int, tuple[Any, Any, Any]] = field(default_factory=dict)
    independence: dict[int, Independence] = field(default_factory=dict)

    def failure(self, index: int, out: Any, own: Any, mean: Any) -> str | None:
        """Describe what is wrong with a draw, or return None. out: the candidate's; own: the baseline's; mean: the
        expectation. All have the same shape. index: number of the output.
        """
        import torch

        if not bool(torch.isfinite(out).all()):
            return "a random output is not finite"
        step = -(-out.numel() // MOST)
        drawn, usual, center = (tensor.flatten()[::step].double() for tensor in (out, own, mean))
        noise, usual_noise = drawn - center, usual - center
        now = (noise, usual_noise, center)
        before, self.earlier[index] = self.earlier.get(index), now
        once = _other_shape(noise, usual_noise) or _other_slope(*now) or _repeated(now, before)
        return once or self.independence.setdefault(index, Independence()).failure(out, own, mean)


def _other_shape(noise: Any, usual: Any) -> str | None:
    """Two-sample Kolmogorov-Smirnov test on binned noise, so that rounding in another order makes no difference."""
    import torch

    grain = max(float(noise.abs().max()), float(usual.abs().max())) * GRAIN or 1.0
    steps = ((residual / grain + (OFFSET + 1 / GRAIN)).floor_().long() for residual in (noise, usual))
    counts = (torch.bincount(step, minlength=int(2 / GRAIN) + 2).cumsum(0) for step in steps)
    shares = [count.double() / count[-1] for count in counts]
    distance = float((shares[0] - shares[1]).abs().max())
    limit = math.sqrt(-math.log(0.5e-7) / noise.numel())  # asymptotic, two samples of equal size
    if distance <= limit:
        return None
    return f"its noise is not distributed like the baseline's: distance {distance:.3g}, allowed {limit:.3g}"


def _other_slope(noise: Any, usual: Any, center: Any) -> str | None:
    """Compare how the noise depends on the expectation: a difference shows that a term is missing or was added."""
    energy = float(center.square().sum())
    if energy == 0.0:
        return None
    slopes = [float((residual * center).sum()) / energy for residual in (noise, usual)]
    spread = math.sqrt(float(((noise.square() + usual.square()) * center.square()).sum())) / energy
    if abs(slopes[0] - slopes[1]) <= SIGMAS * spread:
        return None
    return f"its expectation is off by {slopes[0] - slopes[1]:+.3g} times the reference, allowed {SIGMAS * spread:.3g}"


def _repeated(now: tuple[Any, Any, Any], before: tuple[Any, Any, Any] | None) -> str | None:
    """Compare draws of different calls: they must not resemble each other more than the baseline's do, neither as they
    are nor relative to the expectation, where a reused mask shows.
    """
    if before is None:
        return None
    for units in (_as_it_is, _in_units):
        (ours, error), (usual, other) = (_likeness(units(now[i], now[2]), units(before[i], before[2])) for i in (0, 1))
        if ours > max(usual, 0.0) + max(SIGMAS * math.hypot(error, other), 0.02):
            return f"its noise repeats that of an earlier call: correlation {ours:.3g}, the baseline's {usual:.3g}"
    return None


def _as_it_is(noise: Any, _: Any) -> Any:
    return noise


def _in_units(noise: Any, center: Any) -> Any:
    """Noise over expectation, clipped; zero where the expectation is zero."""
    import torch

    return torch.nan_to_num(noise / center, 0.0, 0.0, 0.0).clamp_(-10, 10)


def _likeness(left: Any, right: Any) -> tuple[float, float]:
    """Correlation, and its standard error under independence; zeros if either input is constant.

    The error is computed from the products themselves, because a few large elements correlate by chance far more often
    than many equal ones: 1/sqrt(n) is the minimum, reached if all elements vary alike.
    """
    left, right = left - left.mean(), right - right.mean()
    scale = math.sqrt(float(left.square().sum()) * float(right.square().sum()))
    if scale == 0.0:
        return 0.0, 0.0
    products = left * right
    return float(products.sum()) / scale, math.sqrt(float(products.square().sum())) / scale
