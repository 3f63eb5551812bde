"""Tests of random outputs, for contracts such as dropout or sampling.

The specification's reference is then the expected output for the inputs. What is left after subtracting it is the noise
of a draw; the candidate's noise must be distributed like the baseline's, must not follow the expectation in another
way, and must be new in every call and in every part of a call (independence.py). Each test errs with a chance of about
1e-7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from aisp_mcp.judge.verifier.checks.independence import Independence

SIGMAS = 5.3  # two-sided chance of 1e-7
MOST = 1 << 18  # elements compared per call; more would only cost time
GRAIN, OFFSET = 2.0**-14, 0.3819660  # of the largest value: noise is sorted into steps of this, moved by that share
LEAST = 256  # fewer elements say nothing about a distribution


@dataclass
class Draws:
    """Judges the draws of one process over its calls, in the order in which they are verified.

    earlier: (noise, the baseline's noise, expectation) of each output in the call before.
    """

    earlier: dict[int, tuple[Any, Any, Any]] = field(default_factory=dict)
    independence: dict[int, Independence] = field(default_factory=dict)

    def failure(self, index: int, out: Any, own: Any, mean: Any) -> str | None:
        """Describe what is wrong with a draw, or return None. out: the candidate's; own: the baseline's; mean: the
        expectation. All have one shape. index: number of the output.
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
    """Two-sample Kolmogorov-Smirnov, of values that another order of rounding does not part."""
    import torch

    grain = max(float(noise.abs().max()), float(usual.abs().max())) * GRAIN or 1.0
    steps = ((residual / grain + (OFFSET + 1 / GRAIN)).floor_().long() for residual in (noise, usual))
    counts = (torch.bincount(step, minlength=int(2 / GRAIN) + 2).cumsum(0) for step in steps)
    shares = [count.double() / count[-1] for count in counts]
    distance = float((shares[0] - shares[1]).abs().max())
    limit = math.sqrt(-math.log(0.5e-7) / noise.numel())  # asymptotic, two samples of one size
    if distance <= limit:
        return None
    return f"its noise is not distributed like the baseline's: distance {distance:.3g}, allowed {limit:.3g}"


def _other_slope(noise: Any, usual: Any, center: Any) -> str | None:
    """The noise must not depend on the expectation in another way than the baseline's: a missing or added part."""
    energy = float(center.square().sum())
    if energy == 0.0:
        return None
    slopes = [float((residual * center).sum()) / energy for residual in (noise, usual)]
    spread = math.sqrt(float(((noise.square() + usual.square()) * center.square()).sum())) / energy
    if abs(slopes[0] - slopes[1]) <= SIGMAS * spread:
        return None
    return f"its expectation is off by {slopes[0] - slopes[1]:+.3g} times the reference, allowed {SIGMAS * spread:.3g}"


def _repeated(now: tuple[Any, Any, Any], before: tuple[Any, Any, Any] | None) -> str | None:
    """Draws of different calls must not resemble each other more than the baseline's do: not as they are, and not in
    units of the expectation, where a mask that is used again shows.
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
    """Noise over expectation, bounded; zero where the expectation is."""
    import torch

    return torch.nan_to_num(noise / center, 0.0, 0.0, 0.0).clamp_(-10, 10)


def _likeness(left: Any, right: Any) -> tuple[float, float]:
    """Correlation and its standard error where the two are independent; zeros where one side does not vary.

    The error is that of the very products, because few large elements correlate by chance far more than many equal
    ones: 1/sqrt(n) is its least value, reached where all elements vary alike.
    """
    left, right = left - left.mean(), right - right.mean()
    scale = math.sqrt(float(left.square().sum()) * float(right.square().sum()))
    if scale == 0.0:
        return 0.0, 0.0
    products = left * right
    return float(products.sum()) / scale, math.sqrt(float(products.square().sum())) / scale
