"""How the harness draws a problem's inputs: from the distribution that two draws of a tensor show, or by its recipe.

Only distributions that independent draws per element explain are recognised: normal, uniform, integers, booleans, a
permutation. Everything else (sorted, correlated, masked, normalised rows, few elements) is left to the problem's own
recipe.

So are inputs that must keep the recipe's statistics. The harness draws inputs with secret scales, and some of unusual
kinds. On those, a recurrence or a product of exponentials that stays small on its own inputs may grow without bound.
Then nothing can be compared, and a correct kernel would be judged incorrect.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from aisp_mcp.bench import RANDN_SCALE, RANDN_SHIFT
from aisp_mcp.judge.candidate.adapted import Reference
from aisp_mcp.judge.loading import CallRng, flatten
from aisp_mcp.suites.adapters import writing
from aisp_mcp.suites.adapters.base import TensorFacts

MIN_ELEMENTS = 64  # fewer elements are not enough to recognise a distribution
MAX_ELEMENTS = 1 << 20
BLOCK = 2048  # rows and columns of a large matrix
NICE = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0)
Fit = tuple[str, tuple[float, ...]]
# Kinds of inputs to try: normal ones as large as any that the harness draws, then those of calls, most of them plain.
# Of the exact ones, some are a sixteenth of others.
WIDEST = "widest"
_PLAIN = ("plain", WIDEST)
_MODES = (
    WIDEST,
    *["exact"] * 3,
    "constant",
    *["plain"] * 4,
    "spikes",
    *["plain"] * 4,
)
# Largest growth of the largest output. A product of three inputs grows by 1e6 on spikes, by a hundred on plain ones.
_MOST_GROWTH, _MOST_PLAIN_GROWTH = 1e9, 1e6
_TRIALS_S, _LEAST_TRIALS = 8.0, 5  # no further draws after that time, beyond the first ones
RECIPE: Fit = ("recipe", ())
FIXED: Fit = ("fixed", ())


def fit(first: Any, other: Any) -> Fit:
    """Distribution to draw such tensors from: (how, numbers) as in TensorFacts. first, other: two draws of
    one shape.
    """
    import torch

    same = bool(torch.equal(first, other)) or bool((first == other).all())
    triangular = _triangular(first) and _triangular(other)
    if first.is_floating_point():  # for integers, the extremes and duplicates matter
        first, other = excerpt(first), excerpt(other)
    first, other = first.cpu(), other.cpu()
    if same and not _looks_random(first):
        return FIXED
    if triangular or first.numel() < MIN_ELEMENTS or first.is_complex() or first.is_quantized:
        return RECIPE
    if first.dtype == torch.bool:
        share = float(torch.cat([first.flatten(), other.flatten()]).double().mean())
        return ("booleans", (round(share, 2),)) if _unstructured(first.double()) else RECIPE
    if not first.is_floating_point():
        return _integers(first, other)
    return _floats(first.double(), other.double())


def excerpt(tensor: Any) -> Any:
    """The first rows of a tensor, or of its first block: enough elements to tell a distribution."""
    while tensor.numel() > 4 * MAX_ELEMENTS:
        rows = max(1, 4 * MAX_ELEMENTS // (tensor.numel() // tensor.shape[0]))
        tensor = tensor[0] if rows == 1 and tensor.dim() > 1 else tensor[:rows]
    return tensor


def _looks_random(tensor: Any) -> bool:
    """Recognise tensors that never change but may be a draw from a seed set while the module was loaded."""
    if not tensor.is_floating_point() or tensor.numel() < MIN_ELEMENTS:
        return False
    sample = tensor.double().flatten()[:MAX_ELEMENTS]
    return bool(sample.unique().numel() > sample.numel() // 4) and _unstructured(tensor.double())


def _integers(first: Any, other: Any) -> Fit:
    import torch

    flat = first.flatten()
    if first.dtype == torch.int64 and first.dim() == 1 and torch.equal(flat.sort().values, torch.arange(len(flat))):
        return "permutation", ()
    both = torch.cat([flat, other.flatten()]).double()
    low, high = float(both.min()), float(both.max()) + 1
    if high - low <= len(both) / 16 and both.unique().numel() < high - low:
        return RECIPE  # some numbers in between are never drawn, as with signs
    low = 0.0 if 0 <= low < 0.05 * high else low
    spread = (high - low) / math.sqrt(12)
    even = abs(float(both.mean()) - (low + high - 1) / 2) < 5 * spread / math.sqrt(len(both))
    even &= abs(float(both.std()) / max(spread, 1e-9) - 1) < 0.2
    return ("integers", (low, high)) if even and _unstructured(first.double()) else RECIPE


def _floats(first: Any, other: Any) -> Fit:
    import torch

    values = torch.cat([first.flatten()[:MAX_ELEMENTS], other.flatten()[:MAX_ELEMENTS]])
    if not bool(values.isfinite().all()) or not _unstructured(first) or not _unstructured(other):
        return RECIPE
    if bool((values == values.round()).all()):
        kind, numbers = _integers(first, other)
        return (kind, numbers) if kind == "integers" else RECIPE
    mean, sd = float(values.mean()), float(values.std())
    scaled = (values - mean) / sd
    skew, kurtosis = float(scaled.pow(3).mean()), float(scaled.pow(4).mean())
    noise = 4 / math.sqrt(len(values))
    if abs(skew) > 2.5 * noise + 0.05:
        return RECIPE
    if abs(kurtosis - 1.8) < 2 * noise + 0.05:
        return "uniform", _bounds(values)
    if abs(kurtosis - 3) < 5 * noise + 0.1:
        mean = 0.0 if abs(mean) < noise * sd else mean
        return "normal", (_nice(mean, 2 * noise * sd), _nice(sd, noise * sd))
    return RECIPE


def _bounds(values: Any) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    slack = 8 * (high - low) / len(values) + 1e-9
    low, high = _nice(low, slack + 0.005 * (high - low)), _nice(high, slack + 0.005 * (high - low))
    if abs(low + high) < 2 * slack:  # symmetric: the larger bound is nearer to the true one
        high = max(-low, high)
        low = -high
    return low, high


def _nice(value: float, within: float) -> float:
    """The nearest round number if one is close enough, else the value to four digits."""
    near = min(NICE, key=lambda nice: abs(nice - value))
    return near if abs(near - value) <= within else float(f"{value:.4g}")


def _unstructured(values: Any) -> bool:
    """Check for signs that elements depend on each other or on their position."""
    flat = values.flatten()[:MAX_ELEMENTS]
    if len(flat) < MIN_ELEMENTS or float(flat.std()) == 0:
        return False
    return _independent(flat) and _alike_rows(values)


def _independent(flat: Any) -> bool:
    """Check that neighbours are uncorrelated and nothing is sorted."""
    centred = flat - flat.mean()
    lag = float((centred[1:] * centred[:-1]).mean() / centred.pow(2).mean())
    return abs(lag) < 6 / math.sqrt(len(flat)) + 0.02


def _alike_rows(values: Any) -> bool:
    """Check that rows have no scale or sum of their own."""
    if values.dim() < 2 or values.shape[-1] < 16 or values.numel() // values.shape[-1] < 4:
        return True
    rows = values.reshape(-1, values.shape[-1])[:4096]
    spread = rows.std(dim=1)
    # Logarithms of independent rows' spreads scatter by 1 / sqrt(2 (n - 1)): of 4,096 rows of 16, the largest is 4 to 6
    # times the smallest.
    most = max(3.0, math.exp(11 / math.sqrt(2 * (rows.shape[1] - 1))))
    if float(spread.max()) > most * float(spread.min()) + 1e-12:
        return False
    expected = float(rows.std()) * math.sqrt(rows.shape[1])
    return float(rows.sum(dim=1).std()) > 0.3 * expected


def _triangular(values: Any) -> bool:
    """Recognise square matrices that are symmetric, or zero on one side, by the first of them."""
    if values.dim() < 2 or values.shape[-1] != values.shape[-2] or not values.numel():
        return False
    block = values[(0,) * (values.dim() - 2)][:BLOCK, :BLOCK].float()  # narrow types have no triu()
    return bool((block == block.T).all()) or bool((block.triu(1) == 0).all()) or bool((block.tril(-1) == 0).all())


def unbounded_inputs(
    reference: Reference, facts: Sequence[TensorFacts], static: Mapping[str, Any], usual: Mapping[str, Any], device: str
) -> frozenset[str]:
    """Names of the inputs that must be left to the recipe. usual: outputs on the recipe's inputs, by name."""
    import torch

    drawn = [fact for fact in facts if fact.role == "input" and fact.how not in ("recipe", "fixed")]
    sizes = {name: _largest(tensor) for name, tensor in usual.items() if tensor.is_floating_point()}

    def growth(some: Sequence[TensorFacts], number: int, mode: str) -> float:
        rng = CallRng(device, number, "plain" if mode in _PLAIN else mode, secret_statistics=mode != WIDEST)
        own = reference.recipe(rng)
        # All are drawn, whichever are used: the same draws in each trial of this number.
        texts = {fact.name: writing.expression(_widest(fact) if mode == WIDEST else fact) for fact in drawn}
        others = {name: eval(text, {"rng": rng}) for name, text in texts.items()}
        inputs = own | {fact.name: others[fact.name] for fact in drawn if fact in some}
        outputs = dict(flatten(reference.run(**inputs, **static)))
        return max(_growth(outputs[name], usual[name], size, mode in _PLAIN) for name, size in sizes.items())

    rest, end = drawn, time.monotonic() + _TRIALS_S
    with suppress(torch.OutOfMemoryError):  # a large problem is tried as far as memory allows
        for number, mode in enumerate(_MODES if drawn and sizes else ()):
            if number >= _LEAST_TRIALS and time.monotonic() > end:
                break
            grown, most = growth(rest, number, mode), _MOST_PLAIN_GROWTH if mode in _PLAIN else _MOST_GROWTH
            while rest and grown > most:  # without the input that matters most
                others = [[fact for fact in rest if fact is not one] for one in rest]
                grown, at = min((growth(some, number, mode), at) for at, some in enumerate(others))
                rest = others[at]
    return frozenset(fact.name for fact in drawn) - {fact.name for fact in rest}


def _widest(fact: TensorFacts) -> TensorFacts:
    """The facts of a normal tensor with the largest secret factor and mean; any other as it is."""
    if fact.how != "normal":
        return fact
    mean, sd = fact.numbers
    largest = RANDN_SCALE[1] * sd
    return replace(fact, numbers=(mean + RANDN_SHIFT * largest, largest))


def _largest(tensor: Any) -> float:
    """The largest finite magnitude."""
    wide = tensor.float() if tensor.itemsize == 1 else tensor
    return float(wide.abs().where(wide.isfinite(), 0.0).max()) if tensor.numel() else 0.0


def _growth(output: Any, usual: Any, size: float, is_plain: bool) -> float:
    """The largest element of an output in units of the usual one; infinite for an output that, on plain inputs, is not
    finite although the recipe's is.
    """
    wide, own = (tensor.float() if tensor.itemsize == 1 else tensor for tensor in (output, usual))
    if is_plain and bool(own.isfinite().all()) and not bool(wide.isfinite().all()):
        return math.inf
    return _largest(output) / size if size > 0 else 0.0
